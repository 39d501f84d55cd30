// Clusters that are made while a job writes: all of its epochs are in one when it has ended, and answers are
// those of the epochs at every moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/process_identity.h"
#include "imd/format/cluster_list.h"
#include "imd/optimize/follower.h"
#include "imd/testing/test_optimize.h"
#include "imd/write/writer_lock.h"
#include "io/lock_content.h"
#include "io/memory_device.h"

namespace swale::imd::follower_test {
namespace {

using test::kOptimized;

constexpr uint64_t kKeys = 30;

FollowOptions following(ManualClock& clock) {
  FollowOptions options;
  options.pass = test::small_pass();
  options.pass.epochs_min = 4;
  options.pass.clock = &clock;
  return options;
}

std::set<uint32_t> covered(io::Device& device) {
  std::set<uint32_t> epochs;
  const ClusterList list = test::list_of(device);
  for (const ClusterEntry& cluster : list.clusters) {
    for (const ClusterEntry::Epoch& epoch : cluster.epochs) EXPECT_TRUE(epochs.insert(epoch.epoch).second);
  }
  return epochs;
}

std::unique_ptr<Writer> open_writer(net::Job& job, io::Device& device) {
  WriterOptions options;
  options.memory_bytes = 20 * kMiB;
  return Writer::open(job, device, kOptimized, Create::kIfMissing, options).value();
}

void write_epoch(Writer& writer, Rng& rng, int64_t step) {
  for (uint64_t i = 0; i < 60; ++i) {
    const Status status =
        writer.append(test::optimized_key(rng.below(kKeys)), test::value_at_random(rng, false));
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  const Status ended = writer.epoch_end(step, 0.5);
  ASSERT_TRUE(ended.ok()) << ended.to_string();
}

// The job writes an epoch, or closes, each time that the follower waits.
TEST(Follower, MakesClustersOfARunningJobsEpochs) {
  io::MemoryDevice device;
  ManualClock clock;
  run_ranks(1, [&](net::Job& job) {
    const auto writer = open_writer(job, device);
    Rng rng(1);
    FollowOptions follow = following(clock);
    int64_t waits = 0;
    std::vector<uint64_t> passes;
    follow.made = [&](const OptimizeReport& report) {
      passes.push_back(report.plan.epochs);
      const test::Answers with = test::ask_directory(device, kKeys);
      EXPECT_EQ(with.problem, "");
    };
    follow.pass.pause = [&](Nanos nanos) {
      if (nanos == 0) return true;  // within a pass
      EXPECT_EQ(nanos, follow.period);
      if (++waits <= 10) write_epoch(*writer, rng, waits);
      if (waits == 11) {
        EXPECT_TRUE(writer->close().ok());
      }
      return waits < 100;
    };
    const Status status = follow_directory(device, kOptimized, follow);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(waits, 11);
    EXPECT_THAT(passes, testing::ElementsAre(4, 4, 2));
  });
  EXPECT_EQ(covered(device).size(), 10u);
  const test::Answers with = test::ask_directory(device, kKeys);
  EXPECT_EQ(with.problem, "");
  const uint32_t newest = load_clusters(device, kOptimized)->generation;
  ASSERT_TRUE(device.remove(cluster_list_path(kOptimized, newest)).ok());
  ASSERT_TRUE(device.remove(cluster_list_copy_path(kOptimized)).ok());
  EXPECT_TRUE(test::ask_directory(device, kKeys) == with);
}

TEST(Follower, OfADirectoryWithoutAJobMakesOneCluster) {
  io::MemoryDevice device;
  ManualClock clock;
  test::write_job(device, {.epochs = 3, .records = 50, .keys = kKeys}, 1);
  ASSERT_TRUE(follow_directory(device, kOptimized, following(clock)).ok());
  EXPECT_EQ(covered(device).size(), 3u);
  ASSERT_TRUE(follow_directory(device, kOptimized, following(clock)).ok());
  EXPECT_EQ(load_clusters(device, kOptimized)->generation, 1u);
}

TEST(Follower, EndsWhenItIsToldTo) {
  io::MemoryDevice device;
  ManualClock clock;
  run_ranks(1, [&](net::Job& job) {
    const auto writer = open_writer(job, device);
    FollowOptions follow = following(clock);
    int waits = 0;
    follow.pass.pause = [&](Nanos) { return ++waits < 3; };
    const Status status = follow_directory(device, kOptimized, follow);
    EXPECT_EQ(status.code(), Code::kAborted) << status.to_string();
    EXPECT_EQ(waits, 3);
    EXPECT_TRUE(writer->close().ok());
  });
}

// Another pass is at work when the job has ended: its end is waited for.
TEST(Follower, WaitsForAnotherPass) {
  io::MemoryDevice device;
  ManualClock clock;
  test::write_job(device, {.epochs = 2, .records = 50, .keys = kKeys}, 1);
  FollowOptions follow = following(clock);
  OptimizeOptions other = test::small_pass();
  int waits = 0;
  Status followed = Status(Code::kInternal, Scope::kOperation, "not called");
  other.approve = [&](const OptimizePlan&) {
    follow.pass.pause = [&](Nanos) { return ++waits < 5; };
    followed = follow_directory(device, kOptimized, follow);
    return Status();
  };
  ASSERT_TRUE(optimize_directory(device, kOptimized, other).ok());
  EXPECT_EQ(followed.code(), Code::kAborted);
  EXPECT_EQ(waits, 5);
}

// A lock whose holder is on another machine: alive while it is renewed, and for its lease after that.
TEST(Follower, ALeaseThatLapsesIsTheJobsEnd) {
  io::MemoryDevice device;
  ManualClock clock;
  test::write_job(device, {.epochs = 3, .records = 50, .keys = kKeys}, 1);
  io::LockContent content;
  content.holder = {.host = "elsewhere", .boot = "b", .pid_namespace = "n", .pid = 7, .start_time = "1"};
  content.job = "00000000000000ab";
  content.nonce = "0123456789abcdef";
  content.since = "2026-01-01T00:00:00Z";
  content.lease = seconds(60);
  const auto renew = [&] {
    ++content.counter;
    ASSERT_TRUE(io::replace_file(device, lock_path(kOptimized), content.encode()).ok());
  };
  renew();
  FollowOptions follow = following(clock);
  follow.period = seconds(10);
  int waits = 0;
  follow.pass.pause = [&](Nanos nanos) {
    clock.advance(nanos);
    if (nanos > 0 && ++waits <= 20) renew();
    EXPECT_TRUE(nanos == 0 || covered(device).empty()) << waits;
    return waits < 100;
  };
  ASSERT_TRUE(follow_directory(device, kOptimized, follow).ok());
  EXPECT_EQ(waits, 27);  // 20 renewals, seen one wait later, then more than six periods
  EXPECT_EQ(covered(device).size(), 3u);
}

}  // namespace
}  // namespace swale::imd::follower_test
