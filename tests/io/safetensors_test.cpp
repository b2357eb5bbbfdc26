// SPDX-License-Identifier: Apache-2.0
// The bytes of small files are those that the reference implementation writes.
#include "tessera/io/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "tessera/core/error.hpp"

namespace tessera::io {
namespace {

std::string with_length(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

std::string rejection(const std::string& bytes) {
  const auto context = Context::create();
  try {
    parse_safetensors(*context, bytes, "weights.safetensors");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(error.message().find("weights.safetensors"), std::string::npos) << error.message();
    return error.message();
  }
  return "accepted";
}

void expect_rejected(const std::string& bytes, const std::string& part) {
  EXPECT_NE(rejection(bytes).find(part), std::string::npos) << rejection(bytes);
}

TEST(SafetensorsTest, WritesTheReferenceBytesWithoutTensors) {
  EXPECT_EQ(safetensors_bytes({}), with_length("{}      "));
  EXPECT_EQ(safetensors_bytes({}, {{"framework", "pt"}}),
            with_length(R"({"__metadata__":{"framework":"pt"}}     )"));
}

TEST(SafetensorsTest, WritesTheReferenceBytesOfOneTensor) {
  const auto context = Context::create();
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  std::string data(24, '\0');
  std::memcpy(data.data(), values.data(), 24);
  const NamedTensor a[] = {{"attn.0", Tensor::from(*context, {1, 2, 3}, values)}};
  EXPECT_EQ(
      safetensors_bytes(a),
      with_length(R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})", data));
  const NamedTensor b[] = {{"attn0", Tensor::from(*context, {1, 1, 2, 3}, values)}};
  EXPECT_EQ(
      safetensors_bytes(b),
      with_length(R"({"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}}       )",
                  data));
}

TEST(SafetensorsTest, OrdersByWidthThenName) {
  const auto context = Context::create();
  std::vector<NamedTensor> tensors;
  for (const DType dtype : {DType::kU8, DType::kF32, DType::kI64, DType::kBF16, DType::kF64}) {
    for (const char* name : {"b", "a"}) {
      tensors.push_back(
          {std::string(to_string(dtype)) + name, Tensor::zeros(*context, {2}, dtype)});
    }
  }
  const SafetensorsFile file = parse_safetensors(*context, safetensors_bytes(tensors), "file");
  std::vector<std::string> names;
  for (const NamedTensor& tensor : file.tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"i64a", "i64b", "f64a", "f64b", "f32a", "f32b",
                                             "bf16a", "bf16b", "u8a", "u8b"}));
}

TEST(SafetensorsTest, ReadsBackWhatItWrote) {
  const auto context = Context::create();
  const std::vector<double> values = {1.5, -0.0, std::numeric_limits<double>::quiet_NaN(), 1e300};
  const NamedTensor tensors[] = {
      {"scalar", Tensor::from(*context, {}, std::vector<float>{2.5F})},
      {"empty", Tensor::zeros(*context, {0, 7}, DType::kF16)},
      {"values", Tensor::from(*context, {2, 2}, values)},
      {"\"quoted\" \xc3\xa9", Tensor::from(*context, {1}, std::vector<std::int32_t>{-7})}};
  const auto path = std::filesystem::path(::testing::TempDir()) / "reads_back.safetensors";
  write_safetensors(path, tensors, {{"step", "12"}});
  const SafetensorsFile file = read_safetensors(*context, path);
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"step", "12"}}));
  ASSERT_EQ(file.tensors.size(), 4U);
  for (const NamedTensor& written : tensors) {
    const auto found =
        std::find_if(file.tensors.begin(), file.tensors.end(),
                     [&](const NamedTensor& read) { return read.name == written.name; });
    ASSERT_NE(found, file.tensors.end()) << written.name;
    EXPECT_EQ(found->tensor.dtype(), written.tensor.dtype());
    EXPECT_EQ(found->tensor.shape(), written.tensor.shape());
    ASSERT_EQ(found->tensor.bytes(), written.tensor.bytes());
    if (written.tensor.bytes() > 0) {
      EXPECT_EQ(std::memcmp(found->tensor.raw(), written.tensor.raw(), written.tensor.bytes()), 0);
    }
  }
  std::filesystem::remove(path);
}

TEST(SafetensorsTest, RefusesTwoTensorsOfOneName) {
  const auto context = Context::create();
  const Tensor tensor = Tensor::zeros(*context, {1}, DType::kF32);
  const NamedTensor tensors[] = {{"w", tensor}, {"w", tensor}};
  EXPECT_THROW(safetensors_bytes(tensors), Error);
}

TEST(SafetensorsTest, RejectsEveryCut) {
  const auto context = Context::create();
  const NamedTensor tensors[] = {{"w", Tensor::zeros(*context, {3}, DType::kF32)}};
  const std::string whole = safetensors_bytes(tensors);
  ASSERT_EQ(rejection(whole), "accepted");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(rejection(whole.substr(0, size)), "accepted") << size;
  }
  expect_rejected(whole + "x", "need 12 bytes of data, the file has 13");
}

TEST(SafetensorsTest, RejectsHeadersThatAreNotTheFormat) {
  expect_rejected(with_length("[]"), "does not begin with {");
  expect_rejected(with_length(" {}"), "does not begin with {");
  expect_rejected(with_length("{\"a\":"), "not JSON");
  expect_rejected(with_length("{\"\xff\":1}"), "not JSON");
  expect_rejected(with_length(R"({"__metadata__":{"a":1}})"), "is not a string");
  expect_rejected(with_length(R"({"__metadata__":{"a":"1","a":"2"}})"), "\"a\" appears twice");
  expect_rejected(with_length(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                              R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                              "1234"),
                  "\"w\" appears twice");
  std::string huge(8, '\xff');
  expect_rejected(huge + "{}", "does not fit");
}

std::string one_entry(const std::string& entry, const std::string& data) {
  return with_length("{\"w\":" + entry + "}", data);
}

TEST(SafetensorsTest, RejectsEntriesThatContradictThemselves) {
  expect_rejected(one_entry("3", ""), "no dtype, shape and data_offsets");
  expect_rejected(one_entry(R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})", "1234"),
                  "dtype");
  expect_rejected(one_entry(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", "1234"),
                  "not a size");
  expect_rejected(one_entry(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", "1234"),
                  "not a size");
  expect_rejected(one_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", "1234"),
                  "do not fit its dtype and shape");
  expect_rejected(one_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", "1234"),
                  "do not fit its dtype and shape");
  expect_rejected(one_entry(R"({"dtype":"U8","shape":[4294967296,4294967296,4294967296],)"
                            R"("data_offsets":[0,0]})",
                            ""),
                  "too large");
}

TEST(SafetensorsTest, RejectsHolesAndOverlaps) {
  const std::string a = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)";
  expect_rejected(
      with_length(a + R"("b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})", "1234"),
      "\"b\" begins at byte 3 of the data instead of 2");
  expect_rejected(
      with_length(a + R"("b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})", "1234"),
      "\"b\" begins at byte 1 of the data instead of 2");
  expect_rejected(one_entry(R"({"dtype":"U8","shape":[1],"data_offsets":[1,2]})", "12"),
                  "begins at byte 1 of the data instead of 0");
}

TEST(SafetensorsTest, ReadsForeignFilesWithoutPadding) {
  const auto context = Context::create();
  const std::string bytes = with_length(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                        R"("a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                                        std::string("\x07\x00\x00\x80\x3f", 5));
  const SafetensorsFile file = parse_safetensors(*context, bytes, "foreign");
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.tensors[1].tensor.item(), 1.0);
}

}  // namespace
}  // namespace tessera::io
