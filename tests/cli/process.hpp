// SPDX-License-Identifier: Apache-2.0
// Starts programs and looks at what they leave: exit code, output, processes that still run.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace tessera::testing {

struct ProcessResult {
  int code = -1;  ///< exit code, or 128 + the signal that ended it
  std::string out;
  std::string err;
  std::chrono::duration<double> seconds{};  ///< since the signal was sent, or since the start
};

struct ProcessOptions {
  std::filesystem::path directory;  ///< where it runs; also takes the output files
  int signal = 0;                   ///< sent once the file `until` has bytes; 0: none
  std::filesystem::path until{};
  std::size_t file_size = 0;  ///< no file that it writes grows beyond this; 0: no limit
  std::chrono::seconds timeout{60};
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

namespace detail {

/// The child's side: never returns.
[[noreturn]] inline void start(const std::vector<std::string>& command,
                               const ProcessOptions& options) {
  setpgid(0, 0);
  if (chdir(options.directory.c_str()) != 0) _exit(126);
  const int out = open("stdout", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int err = open("stderr", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int in = open("/dev/null", O_RDONLY);
  dup2(in, 0);
  dup2(out, 1);
  dup2(err, 2);
  if (options.file_size > 0) {
    const rlimit limit{options.file_size, options.file_size};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_IGN);
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

inline bool has_bytes(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::file_size(path, error) > 0 && !error;
}

}  // namespace detail

/// Runs a command to its end. One that takes longer than the timeout is killed with its group, and
/// the code is -1.
inline ProcessResult run_process(const std::vector<std::string>& command,
                                 const ProcessOptions& options) {
  using Clock = std::chrono::steady_clock;
  const pid_t child = fork();
  if (child == 0) detail::start(command, options);
  Clock::time_point begin = Clock::now();
  ProcessResult result;
  bool is_signalled = options.signal == 0;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (!is_signalled && detail::has_bytes(options.until)) {
      kill(child, options.signal);
      is_signalled = true;
      begin = Clock::now();
    }
    if (Clock::now() - begin > options.timeout) {
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
      status = -1;
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  result.seconds = Clock::now() - begin;
  if (status != -1) result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read_text(options.directory / "stdout");
  result.err = read_text(options.directory / "stderr");
  return result;
}

/// Processes whose command line has `part`.
inline int count_processes(const std::string& part) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (read_text(entry.path() / "cmdline").find(part) != std::string::npos) ++count;
  }
  return count;
}

/// The directory in which the build put its programs: this one is tests/cli_test of it.
inline std::filesystem::path build_directory() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
}

/// How often `part` occurs.
inline int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace tessera::testing
