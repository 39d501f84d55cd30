#include "base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace swale::log_test {
namespace {

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kWarn);
    set_log_sink([this](LogLevel level, std::string_view message) { seen_.emplace_back(level, message); });
  }
  void TearDown() override {
    set_log_sink({});
    set_log_level(LogLevel::kWarn);
  }
  std::vector<std::pair<LogLevel, std::string>> seen_;
};

TEST_F(LogTest, SinkGetsFormattedMessagesOfTheLevelAndAbove) {
  log_debug("no");
  log_info("no {}", 1);
  log_warn("slow {}", 2);
  log_error("broken {}", "disk");
  ASSERT_EQ(seen_.size(), 2u);
  EXPECT_EQ(seen_[0], std::make_pair(LogLevel::kWarn, std::string("slow 2")));
  EXPECT_EQ(seen_[1], std::make_pair(LogLevel::kError, std::string("broken disk")));
}

TEST_F(LogTest, LevelDecides) {
  set_log_level(LogLevel::kDebug);
  log_debug("yes");
  set_log_level(LogLevel::kOff);
  log_error("no");
  EXPECT_EQ(seen_.size(), 1u);
  EXPECT_FALSE(log_enabled(LogLevel::kOff));
}

TEST_F(LogTest, WithoutASinkMessagesGoToStderrOnceAndVerbatim) {
  set_log_sink({});
  testing::internal::CaptureStderr();
  log_warn("braces {} stay", "{}");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("[swale] [warning] braces {} stay\n"), std::string::npos) << text;
  EXPECT_TRUE(seen_.empty());
}

// In a fresh process each, because the environment is read at the first message.
TEST(LogDeathTest, EnvironmentSetsTheLevel) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto log_with = [](const char* level) {
    setenv("SWALE_LOG", level, 1);
    log_debug("a detail");
    log_info("a fact");
    log_error("a fault");
    _exit(0);
  };
  const auto succeeds = testing::ExitedWithCode(0);
  EXPECT_EXIT(log_with("info"), succeeds, "^[^\n]*a fact\n[^\n]*a fault\n$");
  EXPECT_EXIT(log_with("off"), succeeds, "^$");
  EXPECT_EXIT(log_with("loud"), succeeds, "SWALE_LOG is 'loud'.*taking warn\n[^\n]*a fault\n$");
}

}  // namespace
}  // namespace swale::log_test
