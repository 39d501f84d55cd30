// Engine: which writes swale's policy sends to the log when several files compete for the backing device.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "tier/engine/engine.h"

namespace swale::tier::engine_policy_test {
namespace {

// An engine whose backing device is slow for one file and quick for the other; the log takes everything at
// once.
class PolicyWorld {
 public:
  static constexpr uint32_t kLength = 4096;
  static constexpr Nanos kCheapNs = 30'000;  // less than four times in order
  static constexpr Nanos kCostlyNs = 3'000'000;

  explicit PolicyWorld(const Options& options) : engine_(options) {
    for (uint64_t id = 1; id <= 2; ++id) files_.push_back(engine_.open_file(id, id << 40, 0));
  }
  // Far from all others, so that nothing merges. Returns whether the log took it.
  bool write(size_t which) { return write_at(which, 2 * kLength * next_); }
  bool write_at(size_t which, uint64_t offset) {
    const uint64_t before = engine_.stats().ssd_bytes;
    engine_.write(next_++, files_[which], offset, kLength, ++now_);
    collect();
    return engine_.stats().ssd_bytes > before;
  }
  // The backing device writes one slot.
  bool serve() {
    if (backing_.empty()) return false;
    const Action action = backing_.front();
    backing_.pop_front();
    now_ += action.file == files_[0] ? kCheapNs : kCostlyNs;
    engine_.completed(action.kind, action.id, Code::kOk, now_);
    collect();
    return true;
  }
  // How fast writes come, and what those of the first `files` cost.
  void measure(size_t files = 2) {
    for (int i = 0; i < 64; ++i) write(0);
    while (serve()) {
    }
    for (size_t i = 0; i < 200; ++i) {
      write(i % files);
      serve();
    }
    while (serve()) {
    }
  }
  Stats stats() const { return engine_.stats(); }

 private:
  void collect() {
    while (const Action* action = engine_.next_action()) {
      if (action->kind == Action::Kind::kWriteBacking) {
        backing_.push_back(*action);
      } else if (action->kind > Action::Kind::kRelease) {
        engine_.completed(action->kind, action->id, Code::kOk, now_);
      }
    }
  }

  Engine engine_;
  std::vector<FileIndex> files_;
  std::deque<Action> backing_;
  Nanos now_ = 0;
  Ticket next_ = 1;
};

Options options() {
  Options options;
  options.policy = Policy::kSwale;
  options.segment_count = 4;
  options.segment_bytes = 64 * kKiB;
  options.queue_slots = 4;
  options.backing = {};  // no head moves: the model agrees with what is measured
  options.backing.write_bytes_per_s = 500e6;
  options.swale.byte_budget_random = 0;  // no limit
  options.swale.flush_always_share = 2;  // nothing is flushed while the queue is full
  options.swale.overload_ratio = 1e9;
  options.swale.log_first_ratio = 0;  // what finds a slot goes there
  return options;
}

// Fills the queue, and then the log to `share` of it with writes of the costly file.
void fill(PolicyWorld* world, double share) {
  for (int i = 0; i < 100; ++i) {
    const Stats stats = world->stats();
    if (static_cast<double>(stats.log_used_bytes) >= share * static_cast<double>(stats.log_capacity_bytes))
      return;
    world->write(1);
  }
}

TEST(EnginePolicy, TheLogIsForTheFileThatCostsTheBackingDeviceMost) {
  PolicyWorld world(options());
  world.measure();
  fill(&world, 0.6);
  EXPECT_TRUE(world.write(1));
  const uint64_t waited = world.stats().slot_waits;
  EXPECT_FALSE(world.write(0)) << "the cheap file waits for the backing device";
  EXPECT_EQ(world.stats().slot_waits, waited + 1);
  EXPECT_TRUE(world.write(1)) << "the costly one does not";
}

TEST(EnginePolicy, AnEmptyLogIsForAll) {
  PolicyWorld world(options());
  world.measure();
  bool taken = false;
  for (int i = 0; i < 8; ++i) taken |= world.write(0);  // more than the queue has slots
  EXPECT_TRUE(taken);
}

TEST(EnginePolicy, AFileThatNeedsASeekForEveryRequestIsNeverCheap) {
  Options with = options();
  with.swale.cheap_ratio = 1;
  PolicyWorld world(with);
  world.measure();
  fill(&world, 0.6);
  EXPECT_TRUE(world.write(0));
}

TEST(EnginePolicy, StripesGoWholeAndInTheShareThatTheBackingDeviceHasNoTimeFor) {
  constexpr uint64_t kStripe = 64 * kKiB;
  constexpr uint64_t kStripes = 200;
  Options with = options();
  with.segment_bytes = 16 * kMiB;
  with.swale.stripe_bytes = kStripe;
  // arrivals take no time: a tenth of all stripes if the traffic were in order,...
  with.swale.stripe_need = 0.1;
  with.swale.stripe_need_random = 0.5;  // ... and half, because it is random
  PolicyWorld world(with);
  world.measure(1);
  for (int i = 0; i < 16; ++i) world.write(0);  // the queue is full, and writers wait
  constexpr uint64_t kFar = kGiB;
  std::vector<bool> first;
  for (uint64_t i = 0; i < kStripes; ++i) first.push_back(world.write_at(0, kFar + i * kStripe));
  for (uint64_t i = 0; i < kStripes; ++i)
    EXPECT_EQ(world.write_at(0, kFar + i * kStripe + kStripe / 2), first[i]) << i;
  const auto taken = std::count(first.begin(), first.end(), true);
  EXPECT_GE(taken, 90);
  EXPECT_LE(taken, 110);
  while (world.serve()) {
  }
  EXPECT_FALSE(world.write(0)) << "the queue is short: the log takes nothing";
}

// A log that holds more than the programs write is never flushed: it must not be taken for one that is dear
// to flush.
TEST(EnginePolicy, WhatNeedsASeekForEveryWriteGoesToALogThatWasNeverFlushed) {
  Options with = options();
  with.segment_bytes = 16 * kMiB;
  with.swale.log_first_ratio = 0.9;
  PolicyWorld world(with);
  world.write(1);
  world.serve();
  EXPECT_TRUE(world.write(1)) << "although the queue is empty";
  EXPECT_EQ(world.stats().flushed_bytes, 0u);
  EXPECT_FALSE(world.write(0)) << "another file, of which nothing is known";
}

}  // namespace
}  // namespace swale::tier::engine_policy_test
