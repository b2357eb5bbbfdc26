// SPDX-License-Identifier: Apache-2.0
#include "checks.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <regex>
#include <sstream>

namespace tessera::style {
namespace {

bool is_cpp(const SourceFile& file) {
  constexpr std::array kExtensions = {".cpp", ".hpp", ".cu", ".cuh"};
  return std::find(kExtensions.begin(), kExtensions.end(), file.extension()) != kExtensions.end();
}

bool is_script(const SourceFile& file) {
  return file.extension() == ".sh" || file.extension() == ".cmake" || file.is_under(".ci") ||
         file.name() == "CMakeLists.txt";
}

bool is_public_header(const SourceFile& file) {
  return file.is_under("include/tessera") && file.extension() == ".hpp";
}

/// The layer that a library file belongs to; empty for other files.
std::string layer_of(const SourceFile& file) {
  const auto parts = file.parts();
  if (file.is_under("kernels")) return "ops";
  if (file.is_under("include/tessera") && parts.size() > 3) return parts[2];
  if (file.is_under("src") && parts.size() > 2) return parts[1];
  return {};
}

struct Include {
  int line = 0;
  bool quoted = false;
  std::string path;
};

std::vector<Include> includes_of(const SourceFile& file) {
  std::vector<Include> result;
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    std::string_view text = file.lines[i];
    const auto skip_spaces = [&] {
      text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    };
    skip_spaces();
    if (!text.starts_with('#')) continue;
    text.remove_prefix(1);
    skip_spaces();
    if (!text.starts_with("include")) continue;
    text.remove_prefix(7);
    skip_spaces();
    if (text.empty() || (text[0] != '"' && text[0] != '<')) continue;
    const auto end = text.find(text[0] == '"' ? '"' : '>', 1);
    if (end == std::string_view::npos) continue;
    result.push_back(
        {static_cast<int>(i) + 1, text[0] == '"', std::string(text.substr(1, end - 1))});
  }
  return result;
}

/// One finding for each line of `file` that contains a match.
void find_lines(const SourceFile& file, const std::regex& pattern, const std::string& text,
                Findings& findings) {
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    std::smatch match;
    if (std::regex_search(file.lines[i], match, pattern)) {
      findings.push_back({file.path, static_cast<int>(i) + 1, text + ": " + match.str()});
    }
  }
}

/// Without it, a comment that names the rule would break the rule.
std::string without_comment(const std::string& line) { return line.substr(0, line.find("//")); }

}  // namespace

Findings check_layers(const Tree& tree, const Layers& layers) {
  Findings findings;
  for (const auto& file : tree.files) {
    const std::string from = layer_of(file);
    if (!is_cpp(file) || from.empty()) continue;
    if (!layers.contains(from)) {
      findings.push_back({file.path, 0, "there is no layer '" + from + "'"});
      continue;
    }
    for (const auto& include : includes_of(file)) {
      const auto at = [&](const std::string& text) {
        findings.push_back({file.path, include.line, text});
      };
      if (include.path.find("../") != std::string::npos) at("includes through '..'");
      if (!include.path.starts_with("tessera/")) continue;
      const std::string to = include.path.substr(8, include.path.find('/', 8) - 8);
      if (!layers.contains(to)) {
        at("there is no layer '" + to + "'");
      } else if (!layers.may_include(from, to)) {
        at(from + " (level " + std::to_string(layers.level(from)) + ") includes " + to +
           " (level " + std::to_string(layers.level(to)) + "), which it does not depend on");
      }
    }
  }
  return findings;
}

Findings check_headers(const Tree& tree, const Layers&) {
  static const std::regex kBackend("^(mpi|nccl|cuda|cudnn|cublas|dnnl|hwy/|omp).*");
  static const std::regex kFlag(
      "^\\s*#\\s*(if|ifdef|ifndef|elif)\\b.*(TESSERA_|_OPENMP|__CUDACC__)");
  Findings findings;
  for (const auto& file : tree.files) {
    if (!is_public_header(file)) continue;
    for (const auto& include : includes_of(file)) {
      const bool own_mpi = file.path == "include/tessera/comm/mpi.hpp" && include.path == "mpi.h";
      if (std::regex_match(include.path, kBackend) && !own_mpi) {
        findings.push_back({file.path, include.line, "public header includes " + include.path});
      }
      if (include.quoted && !include.path.starts_with("tessera/")) {
        findings.push_back(
            {file.path, include.line, "public header includes the private " + include.path});
      }
    }
    if (file.path != "include/tessera/core/device.hpp") {
      find_lines(file, kFlag, "build flag in a public header", findings);
    }
    if (std::find(file.lines.begin(), file.lines.end(), "#pragma once") == file.lines.end()) {
      findings.push_back({file.path, 1, "#pragma once is missing"});
    }
  }
  return findings;
}

Findings check_length(const Tree& tree, const Layers&) {
  Findings findings;
  for (const auto& file : tree.files) {
    const std::size_t limit = file.is_under("kernels") ? 800 : 600;
    if ((is_cpp(file) || is_script(file)) && file.lines.size() > limit) {
      findings.push_back(
          {file.path, static_cast<int>(limit) + 1,
           std::to_string(file.lines.size()) + " lines; the limit is " + std::to_string(limit)});
    }
  }
  return findings;
}

Findings check_license(const Tree& tree, const Layers&) {
  const std::string spdx = "SPDX-License-Identifier: Apache-2.0";
  Findings findings;
  for (const auto& file : tree.files) {
    if (!is_cpp(file) && !is_script(file)) continue;
    const std::string expected = (is_cpp(file) ? "// " : "# ") + spdx;
    const std::size_t at = !file.lines.empty() && file.lines[0].starts_with("#!") ? 1 : 0;
    if (file.lines.size() <= at || file.lines[at] != expected) {
      findings.push_back({file.path, static_cast<int>(at) + 1, "expected: " + expected});
    }
  }
  return findings;
}

Findings check_format(const Tree& tree, const Layers&) {
  const auto run = [](const std::string& command) {
    std::string output;
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    if (!pipe) throw std::runtime_error("cannot run: " + command);
    std::array<char, 4096> buffer{};
    while (const auto n = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) {
      output.append(buffer.data(), n);
    }
    return output;
  };
  if (run("clang-format-14 --version 2>/dev/null").empty()) {
    throw Skipped("clang-format-14 is not installed");
  }
  std::string command = "cd '" + tree.root.string() + "' && clang-format-14 --dry-run";
  for (const auto& file : tree.files) {
    if (is_cpp(file)) command += " '" + file.path + "'";
  }
  std::istringstream output(run(command + " 2>&1 </dev/null"));
  static const std::regex kPlace("^([^ :]+):([0-9]+):[0-9]+: (warning|error): .*");
  Findings findings;
  for (std::string line; std::getline(output, line);) {
    std::smatch match;
    if (std::regex_match(line, match, kPlace)) {
      findings.push_back({match[1], std::stoi(match[2]), "clang-format would change this"});
    }
  }
  return findings;
}

Findings check_top_level(const Tree& tree, const Layers&) {
  constexpr std::array kEntries = {"CMakeLists.txt",
                                   "CMakePresets.json",
                                   "LICENSE",
                                   "README.md",
                                   "cmake",
                                   "include",
                                   "src",
                                   "kernels",
                                   "tests",
                                   "examples",
                                   "docs",
                                   "build",
                                   "runs"};
  Findings findings;
  for (const auto& entry : std::filesystem::directory_iterator(tree.root)) {
    const std::string name = entry.path().filename().string();
    const bool known = std::find(kEntries.begin(), kEntries.end(), name) != kEntries.end();
    if (!known && !name.starts_with('.')) {
      findings.push_back({name, 0, "does not belong at the top of the tree"});
    }
  }
  return findings;
}

namespace {

void check_links(const Tree& tree, const SourceFile& file, Findings& findings) {
  static const std::regex kLink("\\]\\(([^)#? ]+)[^)]*\\)");
  const auto directory = (tree.root / file.path).parent_path();
  bool in_code = false;
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    if (line.starts_with("```")) in_code = !in_code;
    if (in_code) continue;
    for (std::sregex_iterator it(line.begin(), line.end(), kLink), end; it != end; ++it) {
      const std::string target = (*it)[1];
      if (target.find("://") != std::string::npos || target.starts_with("mailto:")) continue;
      if (!std::filesystem::exists(directory / target)) {
        findings.push_back({file.path, static_cast<int>(i) + 1, "link to nothing: " + target});
      }
    }
  }
}

std::size_t count_words(const SourceFile& file) {
  std::size_t words = 0;
  for (const auto& line : file.lines) {
    std::istringstream in(line);
    for (std::string word; in >> word;) ++words;
  }
  return words;
}

}  // namespace

Findings check_docs(const Tree& tree, const Layers&) {
  static const std::regex kAdvertising(
      "\\b(blazing\\w*|seamless\\w*|cutting-edge|state-of-the-art|world-class|effortless\\w*|"
      "revolutionary|coming soon|lorem ipsum)\\b",
      std::regex::icase);
  static const std::regex kPrivatePath("(^|[\\s`\"'(=])/(home|root|work|tmp)/");
  constexpr std::size_t kReadmeWords = 1500;
  constexpr std::size_t kPageWords = 4000;
  Findings findings;
  for (const auto& file : tree.files) {
    if (file.extension() != ".md") continue;
    find_lines(file, kAdvertising, "say what it does instead", findings);
    find_lines(file, kPrivatePath, "a path of one machine", findings);
    check_links(tree, file, findings);
    const std::size_t limit = file.path == "README.md" ? kReadmeWords : kPageWords;
    const std::size_t words = count_words(file);
    if (words > limit) {
      findings.push_back(
          {file.path, 0, std::to_string(words) + " words; the limit is " + std::to_string(limit)});
    }
  }
  return findings;
}

Findings check_unfinished(const Tree& tree, const Layers&) {
  static const std::regex kMark("\\b(TODO|FIXME|XXX)\\b(?!\\(#[0-9]+\\))");
  Findings findings;
  for (const auto& file : tree.files) {
    if (file.is_under("tests/style")) continue;
    find_lines(file, kMark, "unfinished without an issue", findings);
  }
  return findings;
}

/// Whether the tests.cmake beside a source builds it.
bool is_built_beside(const Tree& tree, const SourceFile& source) {
  const std::string list = source.path.substr(0, source.path.rfind('/')) + "/tests.cmake";
  for (const auto& file : tree.files) {
    if (file.path != list) continue;
    return std::any_of(file.lines.begin(), file.lines.end(), [&source](const std::string& line) {
      return line.find(source.path) != std::string::npos;
    });
  }
  return false;
}

Findings check_tests(const Tree& tree, const Layers& layers) {
  static const std::regex kCase("^(TYPED_)?TEST(_F|_P)?\\((\\w+), *(\\w+)");
  Findings findings;
  for (const auto& file : tree.files) {
    if (!file.is_under("tests") || file.extension() != ".cpp") continue;
    const std::string directory = file.parts()[1];
    if (directory == "support" || directory == "bench" || directory == "style") continue;
    if (!layers.contains(directory)) {
      findings.push_back({file.path, 0, "no test program is built from tests/" + directory});
    }
    if (!file.name().ends_with("_test.cpp") && !is_built_beside(tree, file)) {
      findings.push_back(
          {file.path, 0, "neither named *_test.cpp nor in tests.cmake, so it is not built"});
    }
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const int line = static_cast<int>(i) + 1;
      const std::string code = without_comment(file.lines[i]);
      std::smatch match;
      if (!std::regex_search(code, match, kCase)) continue;
      const std::string suite = match[3];
      if (suite.starts_with("DISABLED_") || match[4].str().starts_with("DISABLED_")) {
        findings.push_back({file.path, line, "a test that is switched off"});
      }
      if (suite.starts_with("Mpi") != file.name().starts_with("mpi")) {
        findings.push_back({file.path, line,
                            "suites named Mpi* belong in mpi*_test.cpp, and only they do: these "
                            "run under mpirun"});
      }
    }
  }
  return findings;
}

}  // namespace tessera::style
