// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/profile.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace tessera {
namespace {

using std::chrono::nanoseconds;

Profiler::Clock::time_point at(std::int64_t ns) {
  return Profiler::Clock::time_point(nanoseconds(1'000'000'000 + ns));
}

TEST(ProfileTest, RecordsNothingWhenOff) {
  Profiler profiler;
  EXPECT_FALSE(profiler.is_enabled());
  { const ProfileScope scope(profiler, "matmul", "op"); }
  EXPECT_TRUE(profiler.events().empty());
}

TEST(ProfileTest, ScopeIsOneEventFromBeginToEnd) {
  Profiler profiler;
  profiler.set_enabled(true);
  const auto before = Profiler::Clock::now();
  {
    const ProfileScope outer(profiler, "step", "step");
    const ProfileScope inner(profiler, "all_reduce", "comm", ProfileLane::kCommunication);
  }
  const auto after = Profiler::Clock::now();
  const auto events = profiler.events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].name, "all_reduce");  // events are in the order of their ends
  EXPECT_STREQ(events[0].category, "comm");
  EXPECT_EQ(events[0].lane, ProfileLane::kCommunication);
  EXPECT_EQ(events[1].name, "step");
  EXPECT_EQ(events[1].lane, ProfileLane::kMain);
  EXPECT_LE(before, events[1].begin);
  EXPECT_LE(events[1].begin, events[0].begin);
  EXPECT_LE(events[0].begin, events[0].end);
  EXPECT_LE(events[0].end, events[1].end);
  EXPECT_LE(events[1].end, after);
}

TEST(ProfileTest, ScopeBegunWhileOnIsRecordedAlthoughOffAtItsEnd) {
  Profiler profiler;
  profiler.set_enabled(true);
  {
    const ProfileScope scope(profiler, "step", "step");
    profiler.set_enabled(false);
  }
  EXPECT_EQ(profiler.events().size(), 1U);
}

TEST(ProfileTest, ClearForgetsEvents) {
  Profiler profiler;
  profiler.record({"a", "op", ProfileLane::kMain, at(0), at(1)});
  profiler.clear();
  EXPECT_TRUE(profiler.events().empty());
}

TEST(ProfileTest, ChromeTraceHasMicrosecondsSinceTheOrigin) {
  Profiler profiler;
  profiler.record({"matmul", "op", ProfileLane::kMain, at(1500), at(4250)});
  profiler.record({"send", "comm", ProfileLane::kCommunication, at(-500), at(0)});
  EXPECT_EQ(profiler.chrome_trace(3, at(0)),
            R"({"displayTimeUnit":"ms","traceEvents":[)"
            R"({"name":"process_name","ph":"M","pid":3,"args":{"name":"rank 3"}},
{"name":"thread_name","ph":"M","pid":3,"tid":0,"args":{"name":"main"}},
{"name":"thread_name","ph":"M","pid":3,"tid":1,"args":{"name":"communication"}},
{"name":"thread_name","ph":"M","pid":3,"tid":2,"args":{"name":"data"}},
{"name":"matmul","cat":"op","ph":"X","ts":1.500,"dur":2.750,"pid":3,"tid":0},
{"name":"send","cat":"comm","ph":"X","ts":-0.500,"dur":0.500,"pid":3,"tid":1}]}
)");
}

TEST(ProfileTest, ChromeTraceEscapesNames) {
  Profiler profiler;
  profiler.record({"a\"b\\c\n\t\x01 \xC3\xA9", "op", ProfileLane::kMain, at(0), at(1)});
  const std::string trace = profiler.chrome_trace(0, at(0));
  EXPECT_NE(trace.find(R"("name":"a\"b\\c\u000a\u0009\u0001 )"
                       "\xC3\xA9\""),
            std::string::npos)
      << trace;
}

TEST(ProfileTest, TakesEventsOfSeveralThreads) {
  Profiler profiler;
  profiler.set_enabled(true);
  constexpr int kThreads = 4;
  constexpr int kEvents = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&profiler] {
      for (int i = 0; i < kEvents; ++i) const ProfileScope scope(profiler, "x", "op");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(profiler.events().size(), static_cast<std::size_t>(kThreads * kEvents));
}

}  // namespace
}  // namespace tessera
