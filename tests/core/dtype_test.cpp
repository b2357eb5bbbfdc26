// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/dtype.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tessera/core/device.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
namespace {

TEST(DTypeTest, NamesAndSizesAreThoseOfFilesAndLogs) {
  const std::pair<DType, std::pair<const char*, std::size_t>> facts[] = {
      {DType::kF64, {"f64", 8}},   {DType::kF32, {"f32", 4}},       {DType::kF16, {"f16", 2}},
      {DType::kBF16, {"bf16", 2}}, {DType::kF8E4M3, {"f8e4m3", 1}}, {DType::kF8E5M2, {"f8e5m2", 1}},
      {DType::kI64, {"i64", 8}},   {DType::kI32, {"i32", 4}},       {DType::kU8, {"u8", 1}}};
  EXPECT_EQ(std::size(facts), static_cast<std::size_t>(kDTypeCount));
  for (const auto& [dtype, expected] : facts) {
    EXPECT_STREQ(to_string(dtype), expected.first);
    EXPECT_EQ(size_of(dtype), expected.second);
  }
}

TEST(DTypeTest, FloatingTypesAreTheFirstSix) {
  for (int i = 0; i < kDTypeCount; ++i) {
    EXPECT_EQ(is_floating(static_cast<DType>(i)), i < 6) << i;
  }
}

TEST(DTypeTest, FollowsFromTheCppType) {
  EXPECT_EQ(dtype_of<double>, DType::kF64);
  EXPECT_EQ(dtype_of<float>, DType::kF32);
  EXPECT_EQ(dtype_of<bf16>, DType::kBF16);
  EXPECT_EQ(dtype_of<std::int64_t>, DType::kI64);
  EXPECT_EQ(dtype_of<std::uint8_t>, DType::kU8);
}

TEST(DeviceTest, HasAShortName) {
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(Device{DeviceType::kCuda, 3}), "cuda:3");
}

TEST(DeviceTest, DispatchGivesTheDeviceTypeAndTheResult) {
  const int result =
      on_device(Device{}, []<DeviceType D>() { return D == DeviceType::kCpu ? 7 : 0; });
  EXPECT_EQ(result, 7);
}

TEST(DeviceTest, UnsupportedErrorNamesTheDevice) {
  try {
    detail::throw_device_unsupported(Device{DeviceType::kCuda, 1});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(error.message().find("cuda:1"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
