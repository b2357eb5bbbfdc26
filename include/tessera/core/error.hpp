// SPDX-License-Identifier: Apache-2.0
// The one exception type of the library, and the one public macro. A message says which operation
// failed, what was expected, what came, and how to mend it.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <source_location>
#include <string>
#include <utility>

namespace tessera {

enum class ErrorCode {
  kInvalidArgument,  ///< a value that the function cannot take
  kShape,            ///< shapes that do not fit together
  kDType,            ///< a dtype that the function cannot take
  kShardingType,     ///< sharding types that do not fit together on some mesh axis
  kOutOfMemory,      ///< the allocator's limit or the machine's memory is used up
  kUnsupported,      ///< not available on this device or in this build
  kConfig,           ///< an unknown key, or a value that a key cannot take
  kIo,               ///< the operating system refused a file operation
  kTimeout,          ///< a wait passed its deadline
  kPeerFailed,       ///< another rank failed, or the communicator is poisoned
  kNonFinite,        ///< NaN or Inf where anomaly mode forbids it
  kInterrupted,      ///< the user asked to stop (Ctrl-C)
  kInternal,         ///< a broken invariant of the library
};

/// Stable name of a code, for example "kShape".
const char* to_string(ErrorCode code);

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message,
        std::source_location where = std::source_location::current());

  ErrorCode code() const { return code_; }
  /// What happened, without the decoration of what().
  const std::string& message() const { return message_; }
  const std::source_location& where() const { return where_; }
  /// The rank that raised it, or -1 where no rank was known.
  int rank() const { return rank_; }
  /// The same error with the rank filled in; the first known rank is kept.
  Error with_rank(int rank) const;
  /// "[rank R] message (code, file:line)".
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  void compose();

  ErrorCode code_;
  std::string message_;
  std::source_location where_;
  int rank_ = -1;
  std::string what_;
};

namespace detail {
[[noreturn]] void fail(ErrorCode code, std::string message, const std::source_location& where);
}  // namespace detail

}  // namespace tessera

/// Throws Error{kInvalidArgument} with a formatted message unless `condition` holds.
#define TESSERA_CHECK(condition, ...)                                                             \
  do {                                                                                            \
    if (!(condition)) [[unlikely]]                                                                \
      ::tessera::detail::fail(::tessera::ErrorCode::kInvalidArgument, ::fmt::format(__VA_ARGS__), \
                              std::source_location::current());                                   \
  } while (false)
