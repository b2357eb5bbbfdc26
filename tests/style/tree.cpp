// SPDX-License-Identifier: Apache-2.0
#include "tree.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tessera::style {
namespace {

constexpr std::array kDirectories = {"cmake", "include",  "src",  "kernels",
                                     "tests", "examples", "docs", ".ci"};

std::vector<std::string> read_lines(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

bool SourceFile::is_under(std::string_view directory) const {
  return path.size() > directory.size() && path.compare(0, directory.size(), directory) == 0 &&
         path[directory.size()] == '/';
}

std::string_view SourceFile::name() const {
  const auto slash = path.rfind('/');
  return std::string_view(path).substr(slash == std::string::npos ? 0 : slash + 1);
}

std::string_view SourceFile::extension() const {
  const auto dot = name().rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : name().substr(dot);
}

std::vector<std::string> SourceFile::parts() const {
  std::istringstream in(path);
  std::vector<std::string> result;
  for (std::string part; std::getline(in, part, '/');) result.push_back(part);
  return result;
}

Layers::Layers(const std::filesystem::path& table) {
  for (const auto& line : read_lines(table)) {
    std::istringstream in(line);
    std::string name;
    int level = 0;
    in >> name >> level;
    levels_[name] = level;
    auto& reachable = reachable_[name];
    reachable.insert(name);
    for (std::string lower; in >> lower;) {
      reachable.insert(reachable_.at(lower).begin(), reachable_.at(lower).end());
    }
  }
  if (levels_.empty()) throw std::runtime_error("no layers in " + table.string());
}

Tree read_tree(const std::filesystem::path& root) {
  namespace fs = std::filesystem;
  Tree tree{root, {}};
  const auto add = [&](const fs::path& path) {
    tree.files.push_back({path.lexically_relative(root).generic_string(), read_lines(path)});
  };
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.is_regular_file()) add(entry.path());
  }
  for (const char* directory : kDirectories) {
    if (!fs::is_directory(root / directory)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / directory)) {
      if (entry.is_regular_file()) add(entry.path());
    }
  }
  std::sort(tree.files.begin(), tree.files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return tree;
}

}  // namespace tessera::style
