// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/random.hpp"

#include <cmath>
#include <numbers>

namespace tessera {
namespace {

/// Finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

std::array<std::uint32_t, 4> block(RandomKey key, std::uint64_t number) {
  return philox4x32(
      {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, 0},
      {static_cast<std::uint32_t>(key.value), static_cast<std::uint32_t>(key.value >> 32)});
}

double to_unit(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

RandomKey RandomKey::child(std::string_view name) const {
  std::uint64_t hash = mix(value ^ 0x6E616D65ULL);
  for (const char c : name) hash = mix(hash ^ static_cast<unsigned char>(c));
  return {mix(hash ^ name.size())};
}

RandomKey RandomKey::child(std::uint64_t number) const {
  return {mix(mix(value ^ 0x6E756D62ULL) ^ number)};
}

std::uint32_t random_bits(RandomKey key, std::uint64_t index) {
  return block(key, index / 4)[index % 4];
}

double random_uniform(RandomKey key, std::uint64_t index) {
  const auto words = block(key, index);
  return to_unit(words[0], words[1]);
}

double random_normal(RandomKey key, std::uint64_t index) {
  const auto words = block(key, index);
  const double radius = 1.0 - to_unit(words[0], words[1]);  // in (0, 1]
  const double angle = 2.0 * std::numbers::pi * to_unit(words[2], words[3]);
  return std::sqrt(-2.0 * std::log(radius)) * std::cos(angle);
}

}  // namespace tessera
