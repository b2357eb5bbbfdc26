// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/error.hpp"

#include <fmt/format.h>

#include <string_view>

namespace tessera {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "kInvalidArgument";
    case ErrorCode::kShape:
      return "kShape";
    case ErrorCode::kDType:
      return "kDType";
    case ErrorCode::kShardingType:
      return "kShardingType";
    case ErrorCode::kOutOfMemory:
      return "kOutOfMemory";
    case ErrorCode::kUnsupported:
      return "kUnsupported";
    case ErrorCode::kConfig:
      return "kConfig";
    case ErrorCode::kIo:
      return "kIo";
    case ErrorCode::kTimeout:
      return "kTimeout";
    case ErrorCode::kPeerFailed:
      return "kPeerFailed";
    case ErrorCode::kNonFinite:
      return "kNonFinite";
    case ErrorCode::kInterrupted:
      return "kInterrupted";
    case ErrorCode::kInternal:
      return "kInternal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, std::string message, std::source_location where)
    : code_(code), message_(std::move(message)), where_(where) {
  compose();
}

Error Error::with_rank(int rank) const {
  Error copy = *this;
  if (copy.rank_ < 0) {
    copy.rank_ = rank;
    copy.compose();
  }
  return copy;
}

void Error::compose() {
  std::string_view file = where_.file_name();
  if (const auto slash = file.rfind('/'); slash != std::string_view::npos) {
    file.remove_prefix(slash + 1);
  }
  const std::string rank = rank_ < 0 ? "" : fmt::format("[rank {}] ", rank_);
  what_ = fmt::format("{}{} ({}, {}:{})", rank, message_, to_string(code_), file, where_.line());
}

void detail::fail(ErrorCode code, std::string message, const std::source_location& where) {
  throw Error(code, std::move(message), where);
}

}  // namespace tessera
