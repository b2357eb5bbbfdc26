// SPDX-License-Identifier: Apache-2.0
// The subcommand `tessera train`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tessera::cli {

/// Adds the subcommand; when it is parsed, `action` becomes what to do, with its exit code.
void add_train(CLI::App& app, std::function<int()>& action);

}  // namespace tessera::cli
