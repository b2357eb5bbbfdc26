// SPDX-License-Identifier: Apache-2.0
// `tessera train` under mpirun: one rank reports, all ranks end.
#include "program_case.hpp"

namespace tessera::testing {
namespace {

constexpr double kSeconds = 30.0;  ///< in which a failed job must be gone, on a busy machine

class JobTest : public ProgramCase {
 protected:
  static std::vector<std::string> mpirun(const std::vector<std::string>& first,
                                         const std::vector<std::string>& second) {
    std::vector<std::string> command = {
        "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "1"};
    command.insert(command.end(), first.begin(), first.end());
    command.insert(command.end(), {":", "-n", "1"});
    command.insert(command.end(), second.begin(), second.end());
    return command;
  }
  /// Two ranks of one command. The scratch directory in the command line marks its processes.
  ProcessResult run(std::vector<std::string> command, ProcessOptions options = {}) const {
    command[0] = mark(command[0]);
    options.directory = root_;
    return run_process(mpirun(command, command), options);
  }
  /// The program by a name in the scratch directory.
  std::string mark(const std::string& program) const {
    const auto link = root_ / std::filesystem::path(program).filename();
    std::error_code exists;
    std::filesystem::create_symlink(program, link, exists);
    return link;
  }
  void expect_all_gone(const ProcessResult& result) const {
    EXPECT_LT(result.seconds.count(), kSeconds);
    EXPECT_EQ(count_processes(root_.string() + "/"), 0);
  }
};

TEST_F(JobTest, TwoRanksTrainAsOneWithTwiceTheBatch) {
  const ProcessResult two = run(train());
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(count_of(two.out, "2 rank(s)"), 1) << two.out;
  ASSERT_EQ(run_process(train({"log.directory=one", "train.batch=8"}), {.directory = root_}).code,
            0);
  const auto a = metrics();
  const auto b = metrics("one");
  ASSERT_EQ(a.size(), 4U);
  ASSERT_EQ(b.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    const double loss = b[i]["loss"].get<double>();
    EXPECT_NEAR(a[i]["loss"].get<double>(), loss, 1e-4 * loss);
    EXPECT_EQ(a[i]["tokens"], b[i]["tokens"]);
  }
}

/// The King James Bible; skips the test where the program that prints it is not installed.
#define WRITE_BIBLE_OR_SKIP()                                                                    \
  do {                                                                                           \
    const ProcessResult bible = run_process({"bible", "Gen1:1-Rev22:21"}, {.directory = root_}); \
    if (bible.code != 0) GTEST_SKIP() << "needs the program bible (package bible-kjv)";          \
    write("book.txt", bible.out);                                                                \
  } while (false)

/// The quickstart's run, with its own configuration, for `steps` steps; the held-out loss.
class QuickstartCase : public JobTest {
 protected:
  double held_out_loss(const std::string& steps) {
    const auto config =
        std::filesystem::path(TESSERA_SOURCE_DIR) / "examples" / "configs" / "quickstart.toml";
    std::filesystem::copy_file(config, root_ / "run.toml",
                               std::filesystem::copy_options::overwrite_existing);
    std::vector<std::string> assignments = {"data.path=book.txt", "log.directory=out"};
    if (!steps.empty()) assignments.push_back("train.steps=" + steps);
    ProcessOptions options;
    options.timeout = std::chrono::seconds(1000);
    const ProcessResult result = run(train(assignments), options);
    EXPECT_EQ(result.code, 0) << result.err;
    const auto lines = metrics();
    return lines.empty() ? 99.0 : lines.back()["val_loss"].get<double>();
  }
};
using SlowQuickstartTest = QuickstartCase;
using QuickstartTest = QuickstartCase;

TEST_F(QuickstartTest, LearnsPairsOfLettersIn150Steps) {
  WRITE_BIBLE_OR_SKIP();
  EXPECT_LT(held_out_loss("150"), 2.4);
}

TEST_F(SlowQuickstartTest, ReachesTheHeldOutLossThatItPromises) {
  WRITE_BIBLE_OR_SKIP();
  EXPECT_LT(held_out_loss(""), 1.45);
}

TEST_F(JobTest, OneRankReportsWhatAllKnow) {
  for (const std::vector<std::string>& command : {train({"model.widht=3"}),
                                                  train({"train.batch=0"}),
                                                  {tessera(), "trian"},
                                                  train({"data.path=none.txt"})}) {
    const ProcessResult result = run(command);
    expect_error(result, 2, {});
    expect_all_gone(result);
    expect_no_run();
  }
}

TEST_F(JobTest, RanksThatDisagreeAreNamedWithTheKey) {
  std::vector<std::string> first = train();
  std::vector<std::string> second = train({"optim.lr=0.5"});
  first[0] = second[0] = mark(first[0]);
  const ProcessResult result = run_process(mpirun(first, second), {.directory = root_});
  expect_error(result, 2, {"rank 0 has optim.lr = 0.001, rank 1 has optim.lr = 0.5"});
  expect_all_gone(result);
  expect_no_run();
}

TEST_F(JobTest, ExistingRunIsReportedByTheRankThatLooked) {
  ASSERT_EQ(run(train()).code, 0);
  const ProcessResult result = run(train());
  expect_error(result, 2, {"rank 0: ", "already holds a run"});
  expect_all_gone(result);
  EXPECT_EQ(metrics().size(), 4U);
}

TEST_F(JobTest, ExceptionInTheMiddleOfBackwardEndsAllRanks) {
  const ProcessResult result = run({build_directory() / "tests" / "failing_backward"});
  expect_error(result, 1, {"rank 1: ", "the disk of rank 1 is on fire"});
  expect_all_gone(result);
}

TEST_F(JobTest, CtrlCEndsAllRanksWithWholeLines) {
  ProcessOptions options;
  options.signal = SIGINT;
  options.until = root_ / "out" / "metrics.jsonl";
  const ProcessResult result = run(train({"train.steps=1000000", "log.every=1000000"}), options);
  // mpirun answers the signal itself; its own code may hide that of the ranks.
  EXPECT_TRUE(result.code == 130 || result.code == 1) << result.code << "\n" << result.err;
  EXPECT_LE(count_of(result.err, "tessera: error: "), 1) << result.err;
  expect_all_gone(result);
  EXPECT_FALSE(metrics().empty());
  EXPECT_EQ(files(), (std::vector<std::string>{"config.toml", "metrics.jsonl"}));
}

}  // namespace
}  // namespace tessera::testing
