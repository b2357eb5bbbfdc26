// SPDX-License-Identifier: Apache-2.0
// style_check <check> <root> <layers.txt>: prints file:line of what breaks a rule. Exit status 0:
// nothing found, 1: something found, 2: bad usage, 77: cannot be checked here.
#include <iostream>
#include <map>

#include "checks.hpp"

int main(int argc, char** argv) {
  using namespace tessera::style;
  using Check = Findings (*)(const Tree&, const Layers&);
  const std::map<std::string, Check> checks = {
      {"layers", check_layers},   {"headers", check_headers}, {"length", check_length},
      {"license", check_license}, {"format", check_format},   {"top_level", check_top_level},
      {"docs", check_docs},       {"tests", check_tests},     {"unfinished", check_unfinished},
  };
  if (argc != 4 || checks.count(argv[1]) == 0) {
    std::cerr << "usage: style_check CHECK ROOT LAYERS.TXT, with CHECK one of";
    for (const auto& [name, check] : checks) std::cerr << ' ' << name;
    std::cerr << '\n';
    return 2;
  }
  try {
    const Findings findings = checks.at(argv[1])(read_tree(argv[2]), Layers(argv[3]));
    for (const auto& finding : findings) {
      std::cout << finding.file;
      if (finding.line > 0) std::cout << ':' << finding.line;
      std::cout << ": " << finding.text << '\n';
    }
    return findings.empty() ? 0 : 1;
  } catch (const Skipped& reason) {
    std::cout << "skipped: " << reason.what() << '\n';
    return 77;
  } catch (const std::exception& error) {
    std::cerr << "style_check: " << error.what() << '\n';
    return 2;
  }
}
