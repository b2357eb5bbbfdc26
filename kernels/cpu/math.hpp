// SPDX-License-Identifier: Apache-2.0
// Sums that the compiler vectorises, in a fixed number of lanes: the same bits on every ISA and for
// any thread count.
#pragma once

#include <cstdint>
#include <limits>

namespace tessera::kernels {

inline constexpr int kLanes = 16;

/// Sum of f(i) for i in [0, count): lane i % 16 adds its terms in order, then the lanes are added
/// in order.
template <typename T, typename F>
[[gnu::always_inline]] inline T lane_sum(std::int64_t count, F&& f) {
  T lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += f(i + l);
  }
  for (int l = 0; i < count; ++i, ++l) lanes[l] += f(i);
  T sum = 0;
  for (int l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

/// The largest f(i) for i in [0, count), -infinity for none. NaN may be passed over.
template <typename T, typename F>
[[gnu::always_inline]] inline T lane_max(std::int64_t count, F&& f) {
  T lanes[kLanes];
  for (T& lane : lanes) lane = -std::numeric_limits<T>::infinity();
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const T value = f(i + l);
      lanes[l] = value > lanes[l] ? value : lanes[l];
    }
  }
  for (int l = 0; i < count; ++i, ++l) {
    const T value = f(i);
    lanes[l] = value > lanes[l] ? value : lanes[l];
  }
  T most = lanes[0];
  for (const T lane : lanes) most = lane > most ? lane : most;
  return most;
}

}  // namespace tessera::kernels
