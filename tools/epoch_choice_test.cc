#include "tools/epoch_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace swale::tools::epoch_choice_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Six epochs, every 10 steps; of the fourth `swale repair` knows neither step nor time. Times are those of a
// program that multiplies.
imd::Manifest manifest() {
  imd::Manifest made;
  for (uint32_t number = 0; number < 6; ++number) {
    imd::EpochEntry epoch;
    epoch.epoch = EpochNumber(number);
    epoch.step = 10 * int64_t{number};
    epoch.time = 0.1 * number;
    if (number == 4) {
      epoch.step = imd::kStepUnknown;
      epoch.time = std::numeric_limits<double>::quiet_NaN();
    }
    made.epochs.push_back(epoch);
  }
  return made;
}

std::vector<uint32_t> chosen(const EpochChoice& choice) {
  const auto epochs = choice.choose(manifest(), "dir");
  EXPECT_TRUE(epochs.ok()) << epochs.status().to_string();
  return epochs.ok() ? *epochs : std::vector<uint32_t>();
}

std::string refusal(const EpochChoice& choice) {
  const auto epochs = choice.choose(manifest(), "dir");
  EXPECT_EQ(epochs.status().code(), Code::kInvalidArgument);
  return std::string(epochs.status().message());
}

TEST(EpochChoice, RangesHaveBothEndsAndMayBeOpen) {
  EXPECT_THAT(chosen({}), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(chosen({.epochs = ":"}), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(chosen({.epochs = "2:2"}), ElementsAre(2));
  EXPECT_THAT(chosen({.epochs = "4:9"}), ElementsAre(4, 5));
  EXPECT_THAT(chosen({.steps = "-5:10"}), ElementsAre(0, 1));
  EXPECT_THAT(chosen({.steps = "15:25"}), ElementsAre(2));
  EXPECT_THAT(chosen({.times = "0.15:0.25"}), ElementsAre(2));
  for (const char* wrong : {"x", "1:2:3", "1,2", "0x1", "99999999999999999999"})
    EXPECT_THAT(refusal({.epochs = wrong}), HasSubstr("expected a number, or a range")) << wrong;
  EXPECT_THAT(refusal({.times = "2:1"}), HasSubstr("ends before it begins"));
}

TEST(EpochChoice, WhatIsUnknownIsInNoRange) {
  EXPECT_THAT(chosen({.steps = ":"}), ElementsAre(0, 1, 2, 3, 5));
  EXPECT_THAT(chosen({.steps = ":30"}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(chosen({.times = ":"}), ElementsAre(0, 1, 2, 3, 5));
}

// 3 * 0.1 is not 0.3, which is what a person would type.
TEST(EpochChoice, NamesTheNearestIfThereIsNone) {
  EXPECT_THAT(refusal({.times = "0.3"}), HasSubstr("the nearest is 0.30000000000000004, of epoch 3"));
  EXPECT_THAT(refusal({.steps = "17"}), HasSubstr("the nearest is 20, of epoch 2"));
  EXPECT_THAT(refusal({.steps = "-9223372036854775808"}), HasSubstr("the nearest is 0, of epoch 0"));
  EXPECT_THAT(refusal({.steps = "9223372036854775807"}), HasSubstr("the nearest is 50, of epoch 5"));
  EXPECT_THAT(refusal({.epochs = "9"}), HasSubstr("it has 6 committed epochs"));
  EXPECT_THAT(refusal({.steps = "31:39"}), HasSubstr("the last has step 50 and time 0.5"));
}

}  // namespace
}  // namespace swale::tools::epoch_choice_test
