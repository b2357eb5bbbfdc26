// SPDX-License-Identifier: Apache-2.0
// Whole runs on a small text, with ranks as threads.
#include "tessera/train/run.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/comm/backends.hpp"
#include "tessera/core/error.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/safetensors.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/parallel/ddp.hpp"
#include "tessera/train/evaluate.hpp"
#include "tessera/train/open_text.hpp"
#include "tessera/train/report.hpp"
#include "tessera/train/skip_rule.hpp"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) /
            (std::string("run_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::string text;
    for (int i = 0; i < 60; ++i) text += "The quick brown fox jumps over the lazy dog.\n";
    io::write_file_atomically(root_ / "text", text);
  }
  void TearDown() override { fs::remove_all(root_); }

  Config config(const std::string& name) const {
    Config config;
    config.model.layers = 1;
    config.model.width = 16;
    config.model.heads = 2;
    config.data.path = (root_ / "text").string();
    config.train.steps = 4;
    config.train.batch = 4;
    config.train.sequence = 16;
    config.optim.lr = 1e-2;
    config.optim.min_lr = 1e-3;
    config.optim.warmup = 1;
    config.log.directory = (root_ / name).string();
    config.log.sample = 4;
    return config;
  }

  std::vector<nlohmann::json> metrics(const std::string& name) const {
    std::ifstream file(root_ / name / "metrics.jsonl");
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  static void run_ranks(int ranks, const Config& config) {
    comm::run_threads(
        ranks, [&config](std::shared_ptr<comm::Communicator> world) { train::run(config, world); },
        std::chrono::seconds(60));
  }

  fs::path root_;
};
using RanksRunTest = RunTest;

TEST_F(RunTest, MetricsLinesHaveTheFormat) {
  Config c = config("format");
  c.train.evaluate_every = 2;
  run_ranks(1, c);
  const auto lines = metrics("format");
  ASSERT_EQ(lines.size(), 4U);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const nlohmann::json& line = lines[i];
    EXPECT_EQ(line["step"], i + 1);
    EXPECT_EQ(line["tokens"], (i + 1) * 64);
    for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_second", "step_ms", "mfu"}) {
      EXPECT_GT(line[key].get<double>(), 0.0) << key;
    }
    EXPECT_EQ(line["skipped"], 0);
    EXPECT_GT(line["memory"]["peak_bytes"].get<double>(), 0.0);
    EXPECT_GT(line["memory"]["parameter"].get<double>(), 0.0);
    double sum = 0.0;
    for (const auto& [part, ms] : line["ledger_ms"].items()) sum += ms.get<double>();
    EXPECT_NEAR(sum, line["step_ms"].get<double>(), 1e-6);
    EXPECT_EQ(line.contains("val_loss"), i % 2 == 1);
  }
  EXPECT_NEAR(lines[0]["loss"].get<double>(), std::log(256.0), 0.1);
  EXPECT_LT(lines[3]["loss"].get<double>(), lines[0]["loss"].get<double>());
}

TEST_F(RunTest, FinalWeightsAreTheModel) {
  const Config c = config("weights");
  run_ranks(1, c);
  const auto context = Context::create();
  const auto file = io::read_safetensors(*context, root_ / "weights" / "model.safetensors");
  std::int64_t count = 0;
  for (const io::NamedTensor& tensor : file.tensors) count += tensor.tensor.numel();
  EXPECT_EQ(count, c.decoder().parameter_count());
  EXPECT_EQ(file.metadata.at("model.width"), "16");
  EXPECT_EQ(file.metadata.at("train.sequence"), "16");
}

TEST_F(RunTest, SameSeedGivesTheSameBits) {
  run_ranks(1, config("a"));
  run_ranks(1, config("b"));
  EXPECT_EQ(io::read_file(root_ / "a" / "model.safetensors"),
            io::read_file(root_ / "b" / "model.safetensors"));
}

TEST_F(RanksRunTest, RanksAndAccumulationDoNotChangeTheTraining) {
  Config one = config("one");
  one.model.dropout = 0.1;
  one.train.batch = 12;
  run_ranks(1, one);
  const auto expected = metrics("one");
  for (const auto& [ranks, accumulation] : {std::pair{2, 1}, {3, 1}, {2, 3}, {1, 3}}) {
    const std::string name = std::to_string(ranks) + "x" + std::to_string(accumulation);
    Config c = config(name);
    c.model.dropout = 0.1;
    c.train.accumulation = accumulation;
    c.train.batch = 12 / (ranks * accumulation);
    run_ranks(ranks, c);
    const auto lines = metrics(name);
    ASSERT_EQ(lines.size(), expected.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      for (const char* key : {"loss", "grad_norm"}) {
        const double value = expected[i][key].get<double>();
        EXPECT_NEAR(lines[i][key].get<double>(), value, 1e-4 * value) << name << " " << key;
      }
    }
    const double held_out = expected[3]["val_loss"].get<double>();
    EXPECT_NEAR(lines[3]["val_loss"].get<double>(), held_out, 1e-4 * held_out) << name;
  }
}

TEST_F(RanksRunTest, MoreRanksThanSamplesAreRejected) {
  Config c = config("many");
  io::write_file_atomically(root_ / "text", std::string(100, 'x'));
  c.train.sequence = 4;
  c.train.batch = 46;
  try {
    run_ranks(2, c);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(error.message().find("need 92 samples, but the text has only 91"), std::string::npos)
        << error.message();
  }
  EXPECT_FALSE(fs::exists(root_ / "many"));
}

TEST_F(RanksRunTest, DataRanksMustBeTheRanks) {
  Config c = config("mesh");
  c.parallel.dp_replicate = 3;
  try {
    run_ranks(2, c);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
  }
  EXPECT_FALSE(fs::exists(root_ / "mesh"));
}

TEST_F(RunTest, NonfiniteStepsAreSkippedAndBounded) {
  Config c = config("nonfinite");
  c.train.steps = 20;
  c.train.skip_limit = 3;
  c.train.clip = 0.0;
  c.optim.lr = 1e38;
  c.optim.min_lr = 1e38;
  try {
    run_ranks(1, c);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNonFinite) << error.what();
    EXPECT_NE(error.message().find("4 steps in a row"), std::string::npos) << error.message();
  }
  const auto lines = metrics("nonfinite");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back()["skipped"], 3);
  EXPECT_TRUE(lines.back()["grad_norm"].is_null());
  const auto& names = lines.back()["nonfinite"];
  EXPECT_NE(std::find(names.begin(), names.end(), "grad_norm"), names.end());
  EXPECT_FALSE(fs::exists(root_ / "nonfinite" / "model.safetensors"));
}

TEST(SkipRuleTest, CountsAndBoundsWhatIsNotFinite) {
  const auto context = Context::create();
  SkipRule rule(2, context->log());
  const double nan = std::nan("");
  EXPECT_TRUE(rule.allows(1.0));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(rule.allows(nan));
    EXPECT_FALSE(rule.allows(INFINITY));
    EXPECT_TRUE(rule.allows(0.0));  // begins a new row
  }
  EXPECT_EQ(rule.skipped(), 6);
  EXPECT_FALSE(rule.allows(nan));
  EXPECT_FALSE(rule.allows(nan));
  EXPECT_THROW(rule.allows(nan), Error);
}

/// One sample only and no learning: what differs from step to step is the dropout masks.
TEST_F(RunTest, EveryStepDropsOtherElements) {
  io::write_file_atomically(root_ / "text", std::string(400, 'x'));
  Config c = config("masks");
  c.model.dropout = 0.5;
  c.optim.lr = 1e-30;
  c.optim.min_lr = 1e-30;
  run_ranks(1, c);
  std::set<double> losses;
  for (const auto& line : metrics("masks")) losses.insert(line["loss"].get<double>());
  EXPECT_EQ(losses.size(), 4U);
}

class EvaluateTest : public RunTest {};

TEST_F(EvaluateTest, IsTheMeanOverEveryHeldOutTarget) {
  const auto context = Context::create();
  comm::run_threads(
      1,
      [&](std::shared_ptr<comm::Communicator> world) {
        const spmd::AxisSpec axes[] = {{"dp", 1}};
        const spmd::Mesh mesh(*context, world, axes);
        nn::Decoder model(nn::BuildContext{context.get(), mesh.axes(), DType::kF64, ""},
                          config("none").decoder());
        const data::ByteSamples samples(std::make_shared<data::ByteText>(root_ / "text"), 16, 1);
        // The last window is not full: its last targets are ignored.
        double sum = 0.0;
        double count = 0.0;
        for (std::int64_t w = 0; w < samples.held_out_windows(); ++w) {
          const data::Batch batch = data::to_batch(*context, samples.held_out(w, 1));
          const autograd::Variable tokens(batch.tokens, mesh.invariant());
          const autograd::Variable targets(batch.targets, mesh.invariant());
          sum += model.loss(tokens, targets, 1.0).sum.value().item();
          count += static_cast<double>(ops::count_targets(batch.targets));
        }
        ASSERT_LT(count, static_cast<double>(16 * samples.held_out_windows()));
        const parallel::Ddp ddp(model, mesh, "dp");
        for (const std::int64_t rows : {1, 3, 100}) {
          EXPECT_NEAR(evaluate(model, samples, mesh, "dp", rows), sum / count, 1e-12);
        }
      },
      std::chrono::seconds(60));
}

TEST_F(RunTest, ADivergedRunFailsAndKeepsNoWeights) {
  Config c = config("diverged");
  c.train.clip = 0.0;
  c.optim.lr = 1e38;
  c.optim.min_lr = 1e38;
  try {
    run_ranks(1, c);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNonFinite) << error.what();
    EXPECT_NE(error.message().find("diverged"), std::string::npos) << error.message();
  }
  EXPECT_FALSE(fs::exists(root_ / "diverged" / "model.safetensors"));
}

TEST_F(RanksRunTest, DifferentTextsAreNamed) {
  io::write_file_atomically(root_ / "other", std::string(2700, 'y'));
  try {
    comm::run_threads(
        3,
        [this](std::shared_ptr<comm::Communicator> world) {
          Config c = config("texts");
          if (world->rank() == 2) c.data.path = (root_ / "other").string();
          open_text(c, *world);
        },
        std::chrono::seconds(60));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
    EXPECT_NE(error.message().find("on rank 2"), std::string::npos) << error.message();
  }
}

class GenerateTest : public ::testing::Test {
 protected:
  std::shared_ptr<Context> context_ = Context::create();
  nn::Decoder model_{
      nn::BuildContext{context_.get(), nullptr, DType::kF32, ""},
      nn::DecoderConfig{.layers = 1, .width = 8, .heads = 2, .vocabulary = 300, .sequence = 6}};
};

TEST_F(GenerateTest, IsAFunctionOfTheSeed) {
  const std::string text = generate(model_, "ab", 20, 1.0, 5);
  EXPECT_EQ(text.size(), 22U);
  EXPECT_EQ(text.substr(0, 2), "ab");
  EXPECT_EQ(generate(model_, "ab", 20, 1.0, 5), text);
  EXPECT_NE(generate(model_, "ab", 20, 1.0, 6), text);
  EXPECT_TRUE(model_.is_training());
}

TEST_F(GenerateTest, LowTemperatureFollowsTheLikeliestByte) {
  EXPECT_EQ(generate(model_, "ab", 10, 1e-3, 1), generate(model_, "ab", 10, 1e-3, 2));
}

TEST_F(GenerateTest, SeesTheLastTokensOnly) {
  // A low temperature follows the logits, which follow the six tokens in sight.
  const std::string a = generate(model_, "xyzabcdef", 8, 1e-3, 5).substr(9);
  EXPECT_EQ(generate(model_, "QRSabcdef", 8, 1e-3, 5).substr(9), a);
  EXPECT_NE(generate(model_, "xyzabcDEF", 8, 1e-3, 5).substr(9), a);
}

TEST_F(GenerateTest, RejectsAnEmptyPromptAndNoTemperature) {
  EXPECT_THROW(generate(model_, "", 3, 1.0, 1), Error);
  EXPECT_THROW(generate(model_, "a", 3, 0.0, 1), Error);
}

TEST(PrintableTest, ReplacesControlCharactersOnly) {
  EXPECT_EQ(printable("a\tb\nc\x1b[31m\x7f\xc3\xa9"), "a\tb\nc?[31m?\xc3\xa9");
}

}  // namespace
}  // namespace tessera::train
