// SPDX-License-Identifier: Apache-2.0
// Splits an index range over the threads of a stream. The split depends on the range and the thread
// count only; a kernel whose result must not depend on the thread count reduces over fixed blocks.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/core/stream.hpp"

namespace tessera {

namespace detail {
using RangeBody = void (*)(void* context, std::int64_t first, std::int64_t last);
void run_parallel(int parts, std::int64_t count, RangeBody body, void* context);
}  // namespace detail

/// Calls body(first, last) on disjoint ranges that cover [0, count), at least `grain` long each
/// (one range where `count` is less). The calling thread takes part. An exception of the body is
/// rethrown to the caller.
template <typename Body>
void parallel_for(const Stream& stream, std::int64_t count, std::int64_t grain, Body&& body) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  const std::int64_t most = count / grain;
  const int parts = static_cast<int>(most < stream.threads() ? most : stream.threads());
  if (parts <= 1) {
    body(std::int64_t{0}, count);
    return;
  }
  detail::run_parallel(
      parts, count,
      [](void* context, std::int64_t first, std::int64_t last) {
        (*static_cast<std::remove_reference_t<Body>*>(context))(first, last);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace tessera
