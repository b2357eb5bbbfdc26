// SPDX-License-Identifier: Apache-2.0
// The program: one subcommand per file.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "train.hpp"

int main(int argc, char** argv) {
  CLI::App app("Tessera trains large language models on many machines", "tessera");
  app.require_subcommand(1);
  app.set_version_flag("--version", "tessera 0.1.0");
  std::function<int()> action;
  tessera::cli::add_train(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "tessera: error: %s; see tessera --help\n", error.what());
    return 2;
  }
  return action();
}
