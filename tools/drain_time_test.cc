#include "tools/drain_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace swale::tools {
namespace {

using testing::HasSubstr;

constexpr int64_t kNow = 1'790'000'000;

TEST(DrainTime, FromNowAndBeforeTheEnd) {
  EXPECT_EQ(*parse_drain_time("+90s", kNow, {}), kNow + 90);
  EXPECT_EQ(*parse_drain_time("+10m", kNow, {}), kNow + 600);
  EXPECT_EQ(*parse_drain_time("-2h", kNow, kNow + 10'000), kNow + 2'800);
  EXPECT_EQ(*parse_drain_time("+0s", kNow, {}), kNow);
}

TEST(DrainTime, ALocalTime) {
  ASSERT_EQ(::setenv("TZ", "UTC", 1), 0);
  ::tzset();
  EXPECT_EQ(*parse_drain_time("2026-11-28T14:30", kNow, {}), 1'795'876'200);
  EXPECT_EQ(*parse_drain_time("2026-11-28T14:30:05", kNow, {}), 1'795'876'205);
}

TEST(DrainTime, WhatIsNoneSaysWhatIs) {
  for (const char* text :
       {"", "+", "10m", "+10", "+10d", "+-3m", "+99999999999999999999s", "+9223372036854775807h",
        "2026-11-28", "2026-13-40T14:30", "2026-11-28T14:30x", "soon"}) {
    const auto found = parse_drain_time(text, kNow, kNow + 1'000);
    ASSERT_FALSE(found.ok()) << text;
    EXPECT_EQ(found.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(found.status().message(), HasSubstr("+10m")) << text;
  }
}

TEST(DrainTime, WhatHasPassedAndAJobWithoutAnEnd) {
  EXPECT_THAT(parse_drain_time("-10m", kNow, {}).status().message(), HasSubstr("SLURM_JOB_END_TIME"));
  EXPECT_THAT(parse_drain_time("-10m", kNow, kNow + 100).status().message(), HasSubstr("500 s ago"));
}

TEST(DrainTurns, BeginEachTenSeconds) {
  DrainTurns turns(kNow);
  EXPECT_FALSE(turns.begins(kNow - 1));
  EXPECT_EQ(turns.wait(kNow - 7), 7);
  EXPECT_TRUE(turns.begins(kNow));
  turns.ended();
  EXPECT_EQ(turns.wait(kNow + 2), 8);
  EXPECT_FALSE(turns.begins(kNow + 9));
  EXPECT_TRUE(turns.begins(kNow + 10));
}

TEST(DrainTurns, AreOneAtATimeAndTheNextFollowsALongOneAtOnce) {
  DrainTurns turns(kNow);
  EXPECT_TRUE(turns.begins(kNow));
  for (int64_t now = kNow; now < kNow + 1'000; ++now) {
    EXPECT_FALSE(turns.begins(now));
    EXPECT_EQ(turns.wait(now), std::nullopt);
  }
  turns.ended();
  EXPECT_EQ(turns.wait(kNow + 1'000), 0);
  EXPECT_TRUE(turns.begins(kNow + 1'000));
}

TEST(DrainTurns, WithoutATimeNoneBegins) {
  DrainTurns turns({});
  EXPECT_FALSE(turns.begins(kNow));
  EXPECT_EQ(turns.wait(kNow), std::nullopt);
}

}  // namespace
}  // namespace swale::tools
