// SPDX-License-Identifier: Apache-2.0
#include "tessera/comm/affinity.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tessera/comm/run_main.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
namespace {

using comm::CoreMask;
using comm::threads_for_rank;

TEST(AffinityTest, ARankAloneTakesAllItsCores) {
  EXPECT_EQ(threads_for_rank({CoreMask{"a", {0, 1, 2, 3}}}, 0), 4);
}

TEST(AffinityTest, OverlappingMasksAreShared) {
  const CoreMask both{"a", {0, 1}};
  EXPECT_EQ(threads_for_rank({both, both}, 0), 1);
  EXPECT_EQ(threads_for_rank({both, both, both}, 2), 1);
  const CoreMask four{"a", {0, 1, 2, 3}};
  EXPECT_EQ(threads_for_rank({four, four}, 1), 2);
}

TEST(AffinityTest, SeparateMasksAreNot) {
  EXPECT_EQ(threads_for_rank({CoreMask{"a", {0, 1}}, CoreMask{"a", {2, 3}}}, 0), 2);
}

TEST(AffinityTest, OtherHostsDoNotCount) {
  EXPECT_EQ(threads_for_rank({CoreMask{"a", {0, 1}}, CoreMask{"b", {0, 1}}}, 0), 2);
}

TEST(AffinityTest, ThereIsAlwaysOneThread) {
  EXPECT_EQ(threads_for_rank({CoreMask{"a", {}}}, 0), 1);
}

comm::Launch launch(std::map<std::string, std::string> variables) {
  return comm::read_launch([&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(LaunchTest, WithoutVariablesTheProgramIsAlone) {
  EXPECT_FALSE(launch({}).is_launched);
  EXPECT_EQ(launch({}).size, 1);
}

TEST(LaunchTest, OurOwnVariablesComeFirst) {
  const auto l = launch({{"TESSERA_RANK", "2"},
                         {"TESSERA_WORLD_SIZE", "3"},
                         {"OMPI_COMM_WORLD_RANK", "0"},
                         {"OMPI_COMM_WORLD_SIZE", "8"}});
  EXPECT_EQ(l.rank, 2);
  EXPECT_EQ(l.size, 3);
}

TEST(LaunchTest, TwoSetsOfOneLevelThatDisagreeAreAnError) {
  try {
    launch({{"PMIX_RANK", "0"}, {"PMIX_SIZE", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(error.message().find("disagree"), std::string::npos);
  }
}

TEST(LaunchTest, ARankThatIsNoNumberIsAnError) {
  EXPECT_THROW(launch({{"SLURM_PROCID", "x"}, {"SLURM_NTASKS", "2"}}), Error);
  EXPECT_THROW(launch({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "2"}}), Error);
}

}  // namespace
}  // namespace tessera
