// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/random.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace tessera {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers of the authors' Random123 library.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  constexpr std::uint32_t kOnes = 0xFFFFFFFFU;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, BitsAreTheWordsOfBlocksInOrder) {
  const RandomKey key{0x299f31d0a4093822ULL};
  const std::uint64_t far = (std::uint64_t{5} << 34) + 8;  // its block number needs 33 bits or more
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{4}, far}) {
    const std::uint64_t number = first / 4;
    const Words block = philox4x32(
        {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, 0},
        {0xa4093822, 0x299f31d0});
    for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(random_bits(key, first + i), block[i]);
  }
}

TEST(RandomTest, ValuesDoNotDependOnTheOrderOfCalls) {
  const RandomKey key = RandomKey{1}.child("weight");
  std::vector<double> forward;
  for (std::uint64_t i = 0; i < 100; ++i) forward.push_back(random_normal(key, i));
  for (std::uint64_t i = 100; i-- > 0;) {
    random_uniform(key, i + 1000);
    EXPECT_EQ(random_normal(key, i), forward[i]);
  }
}

// All draws are fixed by the key, so the bounds (five standard errors) cannot fail by chance.
TEST(RandomTest, UniformHasItsMomentsAndRange) {
  constexpr int kCount = 200000;
  const RandomKey key = RandomKey{7}.child("uniform");
  double sum = 0.0;
  double squares = 0.0;
  std::array<int, 16> bins{};
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double u = random_uniform(key, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += (u - 0.5) * (u - 0.5);
    ++bins[static_cast<std::size_t>(u * 16.0)];
  }
  EXPECT_NEAR(sum / kCount, 0.5, 5.0 * std::sqrt(1.0 / 12.0 / kCount));
  EXPECT_NEAR(squares / kCount, 1.0 / 12.0, 5.0 * std::sqrt(1.0 / 180.0 / kCount));
  const double expected = kCount / 16.0;
  for (const int bin : bins) EXPECT_NEAR(bin, expected, 5.0 * std::sqrt(expected));
}

TEST(RandomTest, UniformHas53Bits) {
  std::uint64_t seen = 0;
  for (std::uint64_t i = 0; i < 64; ++i) {
    const double scaled = random_uniform(RandomKey{3}, i) * 0x1p53;
    EXPECT_EQ(scaled, std::floor(scaled));
    seen |= static_cast<std::uint64_t>(scaled);
  }
  EXPECT_EQ(std::popcount(seen), 53);
}

TEST(RandomTest, NormalHasItsMoments) {
  constexpr int kCount = 200000;
  const RandomKey key = RandomKey{7}.child("normal");
  std::array<double, 5> moment{};
  double within_one = 0.0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double z = random_normal(key, i);
    ASSERT_TRUE(std::isfinite(z));
    double power = 1.0;
    for (double& m : moment) {
      m += power / kCount;
      power *= z;
    }
    within_one += (std::abs(z) < 1.0 ? 1.0 : 0.0) / kCount;
  }
  // Variances of z, z^2, z^3, z^4 are 1, 2, 15, 96.
  const auto bound = [](double variance) { return 5.0 * std::sqrt(variance / kCount); };
  EXPECT_NEAR(moment[1], 0.0, bound(1.0));
  EXPECT_NEAR(moment[2], 1.0, bound(2.0));
  EXPECT_NEAR(moment[3], 0.0, bound(15.0));
  EXPECT_NEAR(moment[4], 3.0, bound(96.0));
  EXPECT_NEAR(within_one, 0.6826894921, bound(0.6827 * 0.3173));
}

TEST(RandomTest, NeighboursAndSiblingsAreUncorrelated) {
  constexpr int kCount = 100000;
  const RandomKey a = RandomKey{11}.child("a");
  const RandomKey b = RandomKey{11}.child("b");
  const RandomKey next = RandomKey{12}.child("a");
  double neighbours = 0.0;
  double siblings = 0.0;
  double seeds = 0.0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double z = random_normal(a, i);
    neighbours += z * random_normal(a, i + 1);
    siblings += z * random_normal(b, i);
    seeds += z * random_normal(next, i);
  }
  const double bound = 5.0 * std::sqrt(static_cast<double>(kCount));
  EXPECT_LT(std::abs(neighbours), bound);
  EXPECT_LT(std::abs(siblings), bound);
  EXPECT_LT(std::abs(seeds), bound);
}

TEST(RandomKeyTest, ChildrenDiffer) {
  std::set<std::uint64_t> seen;
  std::size_t made = 0;
  const auto add = [&](RandomKey key) {
    seen.insert(key.value);
    ++made;
  };
  for (const std::uint64_t seed : {0ULL, 1ULL, 2ULL, ~0ULL}) {
    const RandomKey root{seed};
    add(root);
    for (std::uint64_t i = 0; i < 1000; ++i) add(root.child(i));
    for (int i = 0; i < 1000; ++i) add(root.child("layer." + std::to_string(i)));
    // A name is not the concatenation of its parts, nor a number the name of its digits or bytes.
    add(root.child(""));
    add(root.child(std::string_view("\0", 1)));
    add(root.child(std::string_view("\0\0", 2)));
    add(root.child("ab"));
    add(root.child("a").child("b"));
    add(root.child("1"));
    add(root.child("\x01"));
  }
  EXPECT_EQ(seen.size(), made);
}

// From an independent implementation of splitmix64 chained over the bytes: a change of these values
// changes every initialisation and every dropout mask.
TEST(RandomKeyTest, HashIsTheRecordedOne) {
  EXPECT_EQ(RandomKey{0}.child("").value, 0xD1B575D47BC1321FULL);
  EXPECT_EQ(RandomKey{42}.child("transformer.h.0.attn.weight").value, 0x9BDCA2E8FD51085AULL);
  EXPECT_EQ(RandomKey{42}.child("\xC3\xA9").value, 0x204205D3FAD73E95ULL);
  EXPECT_EQ(RandomKey{42}.child(7).value, 0xB5ED57E7EB0EADB5ULL);
}

}  // namespace
}  // namespace tessera
