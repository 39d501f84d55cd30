#include "tier/policy/backing_cost.h"

#include <gtest/gtest.h>

namespace swale::tier::backing_cost_test {
namespace {

constexpr uint64_t kLength = 64 * kKiB;
constexpr double kQuickNs = 20'000;  // a copy into the page cache

io::DiskModel disk() { return *io::disk_model("modern"); }
double random_ns() {
  return static_cast<double>(disk().positioning(0, kGiB) + disk().transfer(kLength, true));
}

TEST(BackingCost, NothingIsHiddenWhereMeasurementAndModelAgree) {
  BackingCost cost(disk());
  EXPECT_FALSE(cost.hidden());
  for (int i = 0; i < 10; ++i) cost.slot_written(0, kGiB, kLength, random_ns() / 2);
  EXPECT_FALSE(cost.hidden());
}

TEST(BackingCost, APageCacheHidesSeeksAndTheModelTellsThem) {
  BackingCost cost(disk());
  EXPECT_EQ(cost.slot_written(0, kGiB, kLength, kQuickNs), random_ns());
  EXPECT_TRUE(cost.hidden());
  const auto in_order = static_cast<double>(disk().transfer(kLength, true));
  EXPECT_EQ(cost.slot_written(kGiB, kGiB, kLength, kQuickNs), in_order) << "where the file's last slot ended";
}

TEST(BackingCost, SyncsThatAreQuickSayThatNothingIsHidden) {
  BackingCost cost(disk());
  cost.slot_written(0, kGiB, kLength, kQuickNs);
  cost.sync_answered(80 * random_ns(), 8);
  EXPECT_TRUE(cost.hidden()) << "the disk takes its time";
  for (int i = 0; i < 100; ++i) cost.sync_answered(random_ns(), 8);
  EXPECT_FALSE(cost.hidden());
}

}  // namespace
}  // namespace swale::tier::backing_cost_test
