// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/storage.hpp"

#include <gtest/gtest.h>

#include <array>

#include "tessera/core/context.hpp"

namespace tessera {
namespace {

TEST(StorageTest, ChargesItsCategoryWhileItLives) {
  const auto context = Context::create();
  {
    const Storage storage(context, 100, MemoryCategory::kOptimizer);
    EXPECT_EQ(storage.bytes(), 100U);
    EXPECT_EQ(storage.category(), MemoryCategory::kOptimizer);
    EXPECT_EQ(context->memory().current(MemoryCategory::kOptimizer), 128U);
  }
  EXPECT_EQ(context->memory().current_total(), 0U);
}

TEST(StorageTest, KeepsItsContextAlive) {
  auto context = Context::create();
  const std::weak_ptr<Context> watch = context;
  auto storage = std::make_unique<Storage>(context, 64, MemoryCategory::kActivation);
  context.reset();
  EXPECT_FALSE(watch.expired());
  storage.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(StorageTest, ExternalMemoryIsChargedAndGivenBackOnce) {
  const auto context = Context::create();
  std::array<float, 10> memory{};
  int released = 0;
  {
    const Storage storage(context, memory.data(), sizeof(memory), MemoryCategory::kCommunication,
                          [&released] { ++released; });
    EXPECT_EQ(storage.data(), memory.data());
    EXPECT_EQ(context->memory().current(MemoryCategory::kCommunication), sizeof(memory));
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(context->memory().current_total(), 0U);
  EXPECT_EQ(context->allocator().cached_bytes(), 0U);
}

TEST(StorageTest, ExternalMemoryNeedsNoReleaseFunction) {
  const auto context = Context::create();
  std::array<float, 10> memory{};
  { const Storage storage(context, memory.data(), sizeof(memory), MemoryCategory::kOffload, {}); }
  EXPECT_EQ(context->memory().current_total(), 0U);
}

TEST(StorageTest, VersionCountsChanges) {
  Storage storage(Context::create(), 64, MemoryCategory::kActivation);
  EXPECT_EQ(storage.version(), 0U);
  storage.bump_version();
  storage.bump_version();
  EXPECT_EQ(storage.version(), 2U);
}

}  // namespace
}  // namespace tessera
