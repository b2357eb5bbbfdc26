// SPDX-License-Identifier: Apache-2.0
#include "train.hpp"

#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/run_main.hpp"
#include "tessera/train/run.hpp"

namespace tessera::cli {

void add_train(CLI::App& app, std::function<int()>& action) {
  struct Options {
    std::string config;
    std::vector<std::string> assignments;
  };
  auto options = std::make_shared<Options>();
  CLI::App* train = app.add_subcommand("train", "Trains a model from a configuration file");
  train->add_option("config", options->config, "TOML file")->required();
  train->add_option("--set", options->assignments, "section.key=value, over the file; repeatable")
      ->allow_extra_args(false);
  train->footer(
      "Example: mpirun -n 2 tessera train examples/configs/quickstart.toml --set "
      "data.path=book.txt\n\nThe keys and their defaults:\n\n" +
      train::to_toml(train::Config()));
  train->callback([options, &action] {
    action = [options] {
      return comm::run_main([&options](const std::shared_ptr<comm::Communicator>& world) {
        train::run(train::load_config(options->config, options->assignments), world);
        return 0;
      });
    };
  });
}

}  // namespace tessera::cli
