// SPDX-License-Identifier: Apache-2.0
// The program: one subcommand per file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>

#include "tessera/comm/run_main.hpp"
#include "tessera/core/error.hpp"
#include "train.hpp"

int main(int argc, char** argv) {
  CLI::App app("Tessera trains large language models on many machines", "tessera");
  app.set_version_flag("--version", "tessera 0.1.0");
  std::function<int()> action;
  tessera::cli::add_train(app, action);
  try {
    app.parse(argc, argv);
    if (!action) throw CLI::RequiredError("A subcommand");
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    // Every rank was started with the same arguments: one of them says so.
    return tessera::comm::run_main([&error](const auto&) -> int {
      throw tessera::Error(tessera::ErrorCode::kConfig,
                           fmt::format("{}; see tessera --help", error.what()));
    });
  }
  return action();
}
