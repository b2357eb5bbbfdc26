// SPDX-License-Identifier: Apache-2.0
// The rules of the house, each a function from a tree to the places that break it.
#pragma once

#include <stdexcept>

#include "tree.hpp"

namespace tessera::style {

/// A file includes its own layer or one that its layer depends on.
Findings check_layers(const Tree& tree, const Layers& layers);
/// Public headers: guarded, free of back-end headers, private headers and build flags.
Findings check_headers(const Tree& tree, const Layers& layers);
/// At most 600 lines; kernels 800.
Findings check_length(const Tree& tree, const Layers& layers);
/// The SPDX line comes first (after #! in scripts).
Findings check_license(const Tree& tree, const Layers& layers);
/// clang-format 14 would change nothing. Throws Skipped without that program.
Findings check_format(const Tree& tree, const Layers& layers);
/// Only the entries that the documentation lists stand at the top.
Findings check_top_level(const Tree& tree, const Layers& layers);
/// README and docs: links lead somewhere, pages are short, no advertising.
Findings check_docs(const Tree& tree, const Layers& layers);
/// No TODO, FIXME or XXX without the number of an issue.
Findings check_unfinished(const Tree& tree, const Layers& layers);
/// No test is left out of the build, switched off, or outside mpirun by its name.
Findings check_tests(const Tree& tree, const Layers& layers);

struct Skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace tessera::style
