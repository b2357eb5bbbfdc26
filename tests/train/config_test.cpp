// SPDX-License-Identifier: Apache-2.0
#include "tessera/train/config.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "tessera/comm/backends.hpp"
#include "tessera/core/error.hpp"
#include "tessera/io/file.hpp"

namespace tessera::train {
namespace {

/// The message of the kConfig error that `body` throws.
std::string config_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
    return error.message();
  }
  return "no error";
}

std::string parse_error(const std::string& toml) {
  return config_error([&] { parse_config(toml, "run.toml"); });
}

Config valid() { return parse_config("[data]\npath = \"book.txt\"\n", "valid"); }

std::string set_error(const std::string& assignment) {
  return config_error([&] {
    Config config = valid();
    set_key(config, assignment);
    validate(config);
  });
}

#define EXPECT_HAS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << (text) << "\nlacks: " << (part)

TEST(ConfigTest, FileAndAssignmentsSetKeys) {
  Config config =
      parse_config("[model]\nwidth = 96\n[optim]\nlr = 1\n[log]\noverwrite = true", "f");
  EXPECT_EQ(config.model.width, 96);
  EXPECT_EQ(config.optim.lr, 1.0);
  EXPECT_TRUE(config.log.overwrite);
  set_key(config, "model.width=64");
  set_key(config, "optim.lr=3e-4");
  set_key(config, "log.overwrite=false");
  set_key(config, "data.path=a b=c.txt");
  EXPECT_EQ(config.model.width, 64);
  EXPECT_EQ(config.optim.lr, 3e-4);
  EXPECT_FALSE(config.log.overwrite);
  EXPECT_EQ(config.data.path, "a b=c.txt");
}

TEST(ConfigTest, ResolvedFileGivesTheSameConfiguration) {
  Config config = valid();
  config.data.path = "odd \"name\" \\ with\ttab \xc3\xa9";
  config.optim.lr = 1.0 / 3.0;
  config.optim.eps = 1e-8;
  config.train.seed = 9007199254740993;
  const std::string text = to_toml(config);
  const Config read = parse_config(text, "resolved");
  EXPECT_EQ(to_toml(read), text);
  EXPECT_EQ(read.data.path, config.data.path);
  EXPECT_EQ(read.optim.lr, config.optim.lr);
  EXPECT_EQ(read.train.seed, config.train.seed);
}

TEST(ConfigTest, UnknownKeysNameTheNearestKnownOne) {
  EXPECT_EQ(parse_error("[model]\nwidht = 3"),
            "run.toml: unknown key \"model.widht\"; the nearest known one is \"model.width\"");
  EXPECT_HAS(parse_error("[modle]\nwidth = 3"), "is \"model.width\"");
  EXPECT_HAS(parse_error("[optim]\nlearning_rate = 1"), "unknown key \"optim.learning_rate\"");
  EXPECT_HAS(parse_error("steps = 3"), "is \"train.steps\"");
  EXPECT_HAS(parse_error("[modle]"), "unknown section [modle]; the nearest known one is [model]");
  EXPECT_HAS(set_error("train.step=3"), "is \"train.steps\"");
  EXPECT_HAS(set_error("batch=3"), "is \"train.batch\"");
}

TEST(ConfigTest, WrongTypesSayWhatIsExpected) {
  EXPECT_EQ(parse_error("[model]\nwidth = \"wide\""),
            "run.toml: model.width must be a whole number, not 'wide'");
  EXPECT_HAS(parse_error("[model]\nwidth = 3.5"), "must be a whole number, not 3.5");
  EXPECT_HAS(parse_error("[optim]\nlr = true"), "must be a number, not true");
  EXPECT_HAS(parse_error("[log]\noverwrite = 1"), "must be true or false, not 1");
  EXPECT_HAS(parse_error("[data]\npath = 3"), "must be a string, not 3");
  EXPECT_HAS(parse_error("[model]\nwidth = [1, 2]"), "must be a whole number");
  EXPECT_HAS(parse_error("[model.width]\nx = 1"), "must be a whole number");
  EXPECT_HAS(set_error("model.width=wide"), "must be a whole number, not wide");
  EXPECT_HAS(set_error("model.width="), "must be a whole number, not nothing");
  EXPECT_HAS(set_error("model.width"), "expected section.key=value");
  EXPECT_HAS(set_error("train.steps=3\ntrain.batch=4"), "train.steps must be one line");
  EXPECT_HAS(set_error("=3"), "expected section.key=value");
}

TEST(ConfigTest, SyntaxErrorsNameTheLine) {
  EXPECT_HAS(parse_error("[model]\nwidth = 3\nheads 4\n"), "run.toml, line 3");
  EXPECT_HAS(parse_error("[model]\nwidth = 3\nwidth = 4\n"), "run.toml, line 3");
}

TEST(ConfigTest, ValuesOutOfRangeNameKeyValueAndRange) {
  EXPECT_EQ(set_error("model.heads=4"), "no error");
  EXPECT_EQ(set_error("train.batch=0"), "train.batch = 0 must be at least 1");
  EXPECT_HAS(set_error("model.heads=3"), "model.heads = 3 does not divide model.width = 128");
  EXPECT_EQ(set_error("model.kind=llama"), "no error");
  EXPECT_HAS(set_error("model.kind=bert"), "model.kind = bert must be \"gpt\" or \"llama\"");
  EXPECT_HAS(set_error("model.kv_heads=3"), "model.kv_heads = 3 does not divide model.heads = 4");
  EXPECT_HAS(set_error("optim.name=sgd"), "must be \"adamw\"");
  EXPECT_HAS(set_error("model.vocabulary=255"), "at least 256");
  EXPECT_HAS(set_error("model.dropout=1.0"), "model.dropout");
  EXPECT_HAS(set_error("optim.lr=nan"), "optim.lr");
  for (const char* key : {"model.layers",        "model.width",        "model.heads",
                          "model.kv_heads",      "model.hidden",       "model.rope_theta",
                          "model.vocabulary",    "model.dropout",      "train.steps",
                          "train.batch",         "train.sequence",     "train.accumulation",
                          "train.seed",          "train.clip",         "train.evaluate_every",
                          "train.skip_limit",    "optim.lr",           "optim.min_lr",
                          "optim.warmup",        "optim.beta1",        "optim.beta2",
                          "optim.eps",           "optim.weight_decay", "parallel.dp_replicate",
                          "parallel.bucket_mib", "parallel.timeout_s", "log.every",
                          "log.sample",          "log.temperature"}) {
    EXPECT_HAS(set_error(std::string(key) + "=-1"), key);  // no number may be negative
  }
  EXPECT_HAS(set_error("optim.lr=0.0"), "optim.lr");
  EXPECT_HAS(set_error("optim.min_lr=1.0"), "optim.min_lr");
  EXPECT_HAS(set_error("optim.warmup=1001"), "train.steps = 1000");
  EXPECT_HAS(set_error("train.clip=-1.0"), "train.clip = -1 must be 0");
  EXPECT_HAS(set_error("train.clip=nan"), "train.clip");
  EXPECT_HAS(set_error("log.temperature=0.0"), "log.temperature");
  EXPECT_HAS(set_error("data.path="), "data.path is not set");
  EXPECT_HAS(set_error("log.directory="), "log.directory");
}

TEST(ConfigTest, SizesThatAreNotPositiveOrTooLargeAreRejected) {
  for (const char* key : {"model.layers", "model.width", "model.heads", "train.steps",
                          "train.batch", "train.sequence", "train.accumulation", "log.every"}) {
    for (const char* value : {"0", "-1", "-9223372036854775808"}) {
      EXPECT_HAS(set_error(std::string(key) + "=" + value), std::string(key) + " = ");
    }
    if (std::string_view(key) == "log.every") continue;
    EXPECT_HAS(set_error(std::string(key) + "=9223372036854775807"), "must be at most");
  }
  EXPECT_HAS(config_error([] {
               Config config = valid();
               config.train.steps = 1000000000;
               config.train.batch = config.train.accumulation = 1 << 20;
               validate(config);
             }),
             "tokens per rank");
}

TEST(ConfigTest, MissingFileIsBadUsage) {
  EXPECT_HAS(config_error([] { load_config("/nowhere/run.toml", {}); }),
             "cannot open /nowhere/run.toml");
}

TEST(ConfigTest, ConfigsOfTheExamplesAreValid) {
  int count = 0;
  const std::string set[] = {"data.path=book.txt"};
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(TESSERA_SOURCE_DIR) / "examples" / "configs")) {
    EXPECT_NO_THROW(load_config(entry.path(), set)) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 2);
}

TEST(RanksConfigTest, DisagreementNamesKeyAndRanks) {
  for (const auto& [assignment, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {"optim.lr=0.5", "rank 0 has optim.lr = 0.001, rank 2 has optim.lr = 0.5"},
           {"data.path=a much longer name than the other one.txt",
            "rank 2 has data.path = 'a much"},
           {"log.temperature=0.25", "rank 2 has log.temperature = 0.25"}}) {
    const std::string message = config_error([&] {
      comm::run_threads(3, [&](comm::Communicator& world) {
        Config config = valid();
        if (world.rank() == 2) set_key(config, assignment);
        check_ranks_agree(config, world);
      });
    });
    EXPECT_HAS(message, part);
  }
  EXPECT_EQ(config_error([] {
              comm::run_threads(
                  3, [](comm::Communicator& world) { check_ranks_agree(valid(), world); });
            }),
            "no error");
}

}  // namespace
}  // namespace tessera::train
