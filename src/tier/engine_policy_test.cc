// Engine: which writes swale's policy sends to the log when several files compete for the backing device.
#include <gtest/gtest.h>

#include <deque>

#include "tier/engine.h"

namespace swale::tier {
namespace {

// An engine whose backing device is slow for one file and quick for the other; the log takes everything at once.
class PolicyWorld {
 public:
  static constexpr uint32_t kLength = 4096;
  static constexpr Nanos kCheapNs = 30'000;  // less than four times in order
  static constexpr Nanos kCostlyNs = 3'000'000;

  explicit PolicyWorld(const Options& options) : engine_(options) {
    for (uint64_t id = 1; id <= 2; ++id) files_.push_back(engine_.open_file(id, id << 40, 0));
  }
  // Far from all others, so that nothing merges. Returns whether the log took it.
  bool write(size_t which) {
    const uint64_t before = engine_.stats().ssd_bytes;
    const Ticket ticket = next_++;
    engine_.write(ticket, files_[which], 2 * kLength * ticket, kLength, now_);
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
  void measure() {  // what writes of both files cost
    for (int i = 0; i < 200; ++i) {
      write(static_cast<size_t>(i % 2));
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
  options.backing.write_bytes_per_s = 500e6;
  options.swale.byte_budget_random = 0;  // no limit
  options.swale.flush_always_share = 2;  // nothing is flushed while the queue is full
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

}  // namespace
}  // namespace swale::tier
