// SPDX-License-Identifier: Apache-2.0
// A source tree as the style checks see it: its files, their lines, and the table of layers.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::style {

/// A place that breaks a rule. `line` 0 means the file as a whole.
struct Finding {
  std::string file;
  int line = 0;
  std::string text;
};
using Findings = std::vector<Finding>;

struct SourceFile {
  std::string path;  ///< relative to the root, with '/'
  std::vector<std::string> lines;

  bool is_under(std::string_view directory) const;
  std::string_view extension() const;
  std::string_view name() const;
  /// Path components: {"src", "ops", "add.cpp"}.
  std::vector<std::string> parts() const;
};

/// Which layers each layer may include: itself and what it depends on, directly or not.
class Layers {
 public:
  /// Reads lines of "name level dependency...", lower layers first.
  explicit Layers(const std::filesystem::path& table);

  bool contains(const std::string& layer) const { return levels_.count(layer) > 0; }
  int level(const std::string& layer) const { return levels_.at(layer); }
  bool may_include(const std::string& from, const std::string& to) const {
    return reachable_.at(from).count(to) > 0;
  }

 private:
  std::map<std::string, int> levels_;
  std::map<std::string, std::set<std::string>> reachable_;
};

struct Tree {
  std::filesystem::path root;
  std::vector<SourceFile> files;  ///< text files of the product, sorted by path
};

/// Reads the product's text files below `root` (not build/, runs/ or .git/).
Tree read_tree(const std::filesystem::path& root);

}  // namespace tessera::style
