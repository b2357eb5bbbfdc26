// SPDX-License-Identifier: Apache-2.0
// `tessera train` as a user meets it: messages, exit codes and what is left on the disk.
#include "program_case.hpp"

namespace tessera::testing {
namespace {

class ProgramTest : public ProgramCase {
 protected:
  ProcessResult run(const std::vector<std::string>& command) const {
    return run_process(command, {.directory = root_});
  }
  /// Training with assignments fails and makes no run directory.
  void expect_refused(const std::vector<std::string>& assignments, int code,
                      const std::vector<std::string>& parts) const {
    const ProcessResult result = run(train(assignments));
    expect_error(result, code, parts);
    EXPECT_EQ(count_of(result.err, "\n"), 1) << result.err;
    EXPECT_EQ(result.out, "");
    expect_no_run();
  }
};

TEST_F(ProgramTest, TrainsAndLeavesAWholeRun) {
  const ProcessResult result = run(train());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("1 rank(s)"), std::string::npos);
  EXPECT_NE(result.out.find("held-out"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nAnd "), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("\x1b["), std::string::npos);
  EXPECT_EQ(files(),
            (std::vector<std::string>{"config.toml", "metrics.jsonl", "model.safetensors"}));
  EXPECT_EQ(metrics().size(), 4U);
}

TEST_F(ProgramTest, ExampleIsTheSameRun) {
  ASSERT_EQ(run(train({"log.directory=program"})).code, 0);
  const ProcessResult example =
      run({train_gpt(), "--config", "run.toml", "--set", "log.directory=example"});
  ASSERT_EQ(example.code, 0) << example.err;
  const auto a = metrics("program");
  const auto b = metrics("example");
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (const char* key : {"step", "tokens", "loss", "grad_norm", "lr"}) {
      EXPECT_EQ(a[i][key], b[i][key]) << key;
    }
  }
  EXPECT_EQ(read_text(root_ / "program" / "model.safetensors"),
            read_text(root_ / "example" / "model.safetensors"));
}

TEST_F(ProgramTest, ResolvedConfigurationRepeatsTheRun) {
  ASSERT_EQ(run(train()).code, 0);
  ASSERT_EQ(run({tessera(), "train", "out/config.toml", "--set", "log.directory=again"}).code, 0);
  EXPECT_EQ(read_text(root_ / "out" / "model.safetensors"),
            read_text(root_ / "again" / "model.safetensors"));
}

TEST_F(ProgramTest, HelpHasAnExample) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{tessera(), "--help"}, {tessera(), "train", "--help"}}) {
    const ProcessResult result = run(command);
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.err, "");
  }
  const std::string help = run({tessera(), "train", "--help"}).out;
  EXPECT_NE(help.find("Example: mpirun"), std::string::npos);
  EXPECT_NE(help.find("[optim]"), std::string::npos);
  EXPECT_NE(help.find("warmup = 50"), std::string::npos);
  EXPECT_NE(run({train_gpt(), "--help"}).out.find("--config FILE"), std::string::npos);
}

TEST_F(ProgramTest, BadUsageIsOneLineAndTwo) {
  expect_error(run({tessera()}), 2, {"subcommand"});
  expect_error(run({tessera(), "trian"}), 2, {"trian"});
  expect_error(run({tessera(), "train"}), 2, {"config"});
  expect_error(run({tessera(), "train", "run.toml", "--sett", "a=b"}), 2, {"--sett"});
  expect_error(run({tessera(), "train", "none.toml"}), 2, {"cannot open none.toml"});
  expect_error(run({train_gpt()}), 2, {"--config FILE"});
  expect_error(run({train_gpt(), "--steps", "3"}), 2, {"\"--steps\"", "--config FILE"});
}

TEST_F(ProgramTest, RefusesKeysAndValuesOfTheConfiguration) {
  expect_refused({"model.widht=32"}, 2, {"\"model.widht\"", "\"model.width\""});
  expect_refused({"model.width=wide"}, 2, {"model.width must be a whole number, not wide"});
  expect_refused({"model.heads=3"}, 2, {"model.heads = 3 does not divide model.width = 16"});
  expect_refused({"train.batch=0"}, 2, {"train.batch = 0 must be at least 1"});
  expect_refused({"model.layers=-1"}, 2, {"model.layers = -1 must be at least 1"});
  expect_refused({"parallel.dp_replicate=2"}, 2, {"2"});
  write("run.toml", "[model]\nwidth = \n");
  expect_refused({}, 2, {"run.toml, line 2"});
}

TEST_F(ProgramTest, RefusesTextThatCannotBeTrainedOn) {
  expect_refused({"data.path="}, 2, {"data.path is not set"});
  expect_refused({"data.path=none.txt"}, 2, {"the text none.txt cannot be opened", "No such file"});
  expect_refused({"data.path=."}, 2, {"not a regular file"});
  write("empty.txt", "");
  expect_refused({"data.path=empty.txt"}, 2, {"empty.txt is empty"});
  write("short.txt", std::string(300, 'x'));
  expect_refused({"data.path=short.txt"}, 2, {"300 bytes", "train.sequence = 16 needs 17"});
  write("small.txt", std::string(100, 'x'));
  expect_refused({"data.path=small.txt", "train.sequence=4", "train.batch=92"}, 2,
                 {"need 92 samples, but the text has only 91"});
}

TEST_F(ProgramTest, ExistingRunIsKeptUnlessToldOtherwise) {
  ASSERT_EQ(run(train()).code, 0);
  const std::string before = read_text(root_ / "out" / "metrics.jsonl");
  expect_error(run(train()), 2, {"out already holds a run", "log.overwrite=true"});
  EXPECT_EQ(read_text(root_ / "out" / "metrics.jsonl"), before);
  EXPECT_EQ(run(train({"log.overwrite=true", "train.steps=2"})).code, 0);
  EXPECT_EQ(metrics().size(), 2U);
}

TEST_F(ProgramTest, PlaceThatCannotBeWrittenIsNamed) {
  expect_refused({"log.directory=/proc/tessera/run"}, 1,
                 {"cannot make the run directory (log.directory) /proc/tessera/run"});
}

TEST_F(ProgramTest, FullDiskEndsTheRunWithWholeLines) {
  const ProcessResult result = run_process(train({"train.steps=100000", "log.every=100000"}),
                                           {.directory = root_, .file_size = 20000});
  expect_error(result, 1, {"cannot write out/metrics.jsonl"});
  EXPECT_GT(metrics().size(), 10U);
  EXPECT_EQ(files(), (std::vector<std::string>{"config.toml", "metrics.jsonl"}));
}

TEST_F(ProgramTest, FullDiskAtTheEndLeavesNoPartOfTheWeights) {
  const ProcessResult result = run_process(train(), {.directory = root_, .file_size = 20000});
  expect_error(result, 1, {"cannot write out/model.safetensors"});
  EXPECT_EQ(metrics().size(), 4U);
  EXPECT_EQ(files(), (std::vector<std::string>{"config.toml", "metrics.jsonl"}));
}

TEST_F(ProgramTest, SignalsEndTheRunBetweenSteps) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const ProcessResult result = run_process(
        train({"train.steps=1000000", "log.every=1000000", "log.overwrite=true"}),
        {.directory = root_, .signal = signal, .until = root_ / "out" / "metrics.jsonl"});
    expect_error(result, 130, {"stopped by a signal"});
    EXPECT_LT(result.seconds.count(), 10.0);
    EXPECT_FALSE(metrics().empty());
    EXPECT_EQ(files(), (std::vector<std::string>{"config.toml", "metrics.jsonl"}));
    std::filesystem::remove(root_ / "out" / "metrics.jsonl");
  }
}

}  // namespace
}  // namespace tessera::testing
