// SPDX-License-Identifier: Apache-2.0
#include "tessera/data/text.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include "tessera/core/error.hpp"
#include "tessera/data/batch_plan.hpp"
#include "tessera/io/file.hpp"

namespace tessera::data {
namespace {

std::filesystem::path write_text(const std::string& name, const std::string& text) {
  const auto path = std::filesystem::path(::testing::TempDir()) / name;
  io::write_file_atomically(path, text);
  return path;
}

std::shared_ptr<const ByteText> counting_text(const std::string& name, int size) {
  std::string text;
  for (int i = 0; i < size; ++i) text += static_cast<char>(i % 256);
  return std::make_shared<ByteText>(write_text(name, text));
}

std::string config_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
    return error.message();
  }
  return "no error";
}

TEST(ByteTokenizerTest, EveryByteComesBack) {
  std::string text(256, '\0');
  std::iota(text.begin(), text.end(), static_cast<char>(0));
  const std::vector<std::int32_t> tokens = encode_bytes(text);
  EXPECT_EQ(*std::min_element(tokens.begin(), tokens.end()), 0);
  EXPECT_EQ(*std::max_element(tokens.begin(), tokens.end()), 255);
  EXPECT_EQ(decode_bytes(tokens), text);
  EXPECT_THROW(decode_bytes(std::vector<std::int32_t>{256}), Error);
  EXPECT_THROW(decode_bytes(std::vector<std::int32_t>{-1}), Error);
}

TEST(ByteTextTest, RejectsEmptyTextAndNamesMissingFiles) {
  const auto path = write_text("empty_text", "");
  const std::string message = config_error([&] { ByteText text(path); });
  EXPECT_NE(message.find("empty_text is empty"), std::string::npos) << message;
  for (const std::string& missing : {std::string("/nowhere/at_all"), ::testing::TempDir()}) {
    try {
      ByteText text(missing);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      EXPECT_NE(error.message().find(missing), std::string::npos);
    }
  }
}

TEST(ByteTextTest, DoesNotWaitForAPipe) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "text_pipe";
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const std::string message = config_error([&] { ByteText text(path); });
  EXPECT_NE(message.find("not a regular file"), std::string::npos) << message;
  std::filesystem::remove(path);
}

TEST(ByteTextTest, ATextThatShrinksIsAnErrorNotACrash) {
  const auto path = write_text("shrinking_text", std::string(10000, 'x'));
  const ByteText text(path);
  EXPECT_EQ(text.bytes().size(), 10000U);
  std::filesystem::resize_file(path, 100);
  try {
    text.bytes();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(error.message().find("from 10000 to 100 bytes"), std::string::npos);
  }
}

TEST(ByteTextTest, DigestTellsTextsApart) {
  const std::string base(300000, 'x');
  std::string other = base;
  other[0] = 'y';
  std::set<std::uint64_t> digests;
  for (const std::string& text : {base, other, base + "x"}) {
    digests.insert(ByteText(write_text("digest_text", text)).digest());
  }
  EXPECT_EQ(digests.size(), 3U);
  EXPECT_TRUE(digests.contains(ByteText(write_text("digest_text", base)).digest()));
}

TEST(ByteSamplesTest, TargetsFollowTokensAndStayOutOfTheHeldOutPart) {
  const ByteSamples samples(counting_text("follow", 200), 4, 7);
  EXPECT_EQ(samples.training_size(), 190);
  const HostBatch batch = samples.training(0, 500);
  ASSERT_EQ(batch.tokens.size(), 2000U);
  std::int32_t most = 0;
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
    most = std::max(most, batch.targets[i]);
  }
  EXPECT_LE(most, 189);
}

TEST(ByteSamplesTest, SampleIsAFunctionOfSeedAndNumberOnly) {
  const auto text = counting_text("function", 5000);
  const ByteSamples samples(text, 8, 3);
  const HostBatch all = samples.training(100, 20);
  for (std::int64_t k = 0; k < 20; ++k) {
    const HostBatch one = samples.training(100 + k, 1);
    EXPECT_TRUE(std::equal(one.tokens.begin(), one.tokens.end(), all.tokens.begin() + k * 8));
  }
  EXPECT_EQ(ByteSamples(text, 8, 3).training(100, 20).tokens, all.tokens);
  EXPECT_NE(ByteSamples(text, 8, 4).training(100, 20).tokens, all.tokens);
}

TEST(ByteSamplesTest, EveryPlaceIsDrawn) {
  const ByteSamples samples(counting_text("places", 100), 4, 1);
  ASSERT_EQ(samples.training_windows(), 91);
  const HostBatch batch = samples.training(0, 3000);
  std::set<std::int32_t> starts;
  for (std::size_t row = 0; row < 3000; ++row) starts.insert(batch.tokens[row * 4]);
  EXPECT_EQ(starts.size(), 91U);
}

TEST(ByteSamplesTest, HeldOutWindowsCoverEveryTargetOnce) {
  for (const int size : {200, 201, 219, 220, 221, 260}) {
    const ByteSamples samples(counting_text("held_out", size), 4, 1);
    const HostBatch batch = samples.held_out(0, samples.held_out_windows());
    std::vector<std::int32_t> targets;
    for (std::size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] < 0) continue;
      EXPECT_EQ(batch.targets[i], (batch.tokens[i] + 1) % 256);
      targets.push_back(batch.targets[i]);
    }
    std::vector<std::int32_t> expected;
    for (int at = static_cast<int>(samples.training_size()) + 1; at < size; ++at) {
      expected.push_back(at % 256);
    }
    EXPECT_EQ(targets, expected) << size;
    const HostBatch beyond = samples.held_out(samples.held_out_windows(), 1);
    EXPECT_EQ(beyond.targets, std::vector<std::int32_t>(4, -1));
  }
}

TEST(ByteSamplesTest, RejectsTextShorterThanASequence) {
  const std::string message =
      config_error([&] { ByteSamples(counting_text("short", 100), 16, 1); });
  EXPECT_NE(message.find("100 bytes: 95 to train on and 5 held out"), std::string::npos) << message;
  EXPECT_NE(message.find("train.sequence = 16 needs 17"), std::string::npos) << message;
  EXPECT_EQ(config_error([&] { ByteSamples(counting_text("long_enough", 340), 16, 1); }),
            "no error");
}

/// The samples of step 3, in the order of their global rows, as the ranks see them.
std::vector<std::int64_t> step_samples(std::int64_t ranks, std::int64_t accumulation) {
  const std::int64_t rows = 24 / (ranks * accumulation);
  std::vector<std::int64_t> samples;
  for (std::int64_t a = 0; a < accumulation; ++a) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const BatchPlan plan{rows, ranks, rank, accumulation};
      EXPECT_EQ(plan.first_row(a), a * ranks * rows);
      for (std::int64_t row = 0; row < rows; ++row) {
        samples.push_back(plan.first_sample(3, a) + row);
      }
    }
  }
  return samples;
}

TEST(BatchPlanTest, SamplesOfAStepDoNotDependOnRanksAndAccumulation) {
  std::vector<std::int64_t> expected(24);
  std::iota(expected.begin(), expected.end(), 72);
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    for (const std::int64_t accumulation : {1, 2}) {
      EXPECT_EQ(step_samples(ranks, accumulation), expected) << ranks << " " << accumulation;
    }
  }
}

TEST(BatchPlanTest, RejectsMoreRowsThanSamples) {
  const BatchPlan plan{46, 2, 0, 1};
  const std::string message = config_error([&] { plan.check_enough(91); });
  EXPECT_NE(message.find("on each of 2 rank(s) need 92 samples"), std::string::npos) << message;
  EXPECT_NE(message.find("has only 91"), std::string::npos) << message;
  EXPECT_EQ(config_error([&] { plan.check_enough(92); }), "no error");
}

}  // namespace
}  // namespace tessera::data
