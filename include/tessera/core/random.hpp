// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A random
// number is a pure function of (key, index): no state, so no layout, order or recomputation changes
// it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

/// One block: four 32-bit words from a 128-bit counter and a 64-bit key.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// Key of one stream of random numbers, derived by hashing.
struct RandomKey {
  std::uint64_t value = 0;
  /// Key of a named child, for example a parameter's qualified name.
  RandomKey child(std::string_view name) const;
  /// Key of a numbered child, for example a step.
  RandomKey child(std::uint64_t number) const;
  bool operator==(const RandomKey&) const = default;
};

/// The 32 random bits of element `index`: word index % 4 of block index / 4.
std::uint32_t random_bits(RandomKey key, std::uint64_t index);

/// Uniform in [0, 1) with 53 bits, from block number `index`.
double random_uniform(RandomKey key, std::uint64_t index);

/// Standard normal (Box-Muller in double precision on block number `index`).
double random_normal(RandomKey key, std::uint64_t index);

}  // namespace tessera
