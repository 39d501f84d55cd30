// Engine: what somebody waits for goes where it is answered sooner. In virtual time: a backing device that
// takes 6.7 ms for a write, an SSD that syncs in 0.1 ms; no assertion depends on this machine.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "base/rng.h"
#include "tier/engine/engine.h"

namespace swale::tier::engine_waiters_test {
namespace {

constexpr uint32_t kLength = 32 * kKiB;
// So few that some writes of a stream are neighbours: SSDUP+ sends nothing to the SSD if all percentages are
// alike.
constexpr uint64_t kPlaces = 2048;
constexpr uint64_t kVariedBytes = 4 * kKiB;
constexpr uint64_t kVariedMax = 16;
constexpr Nanos kSlowNs = 6'700'000;
constexpr Nanos kSsdSyncNs = 100'000;

struct Shape {
  Policy policy = Policy::kSwale;
  Durability durability = Durability::kPageCache;
  // A page cache takes writes to the backing device, and a sync pays for them; otherwise each write takes its
  // time.
  bool cached = true;
  Nanos write_ns = kSlowNs;
  uint32_t writers = 8;
  uint32_t sync_every = 8;  // writes; 0: never
  uint32_t syncs = 40;
  uint64_t segment_bytes = 16 * kMiB;
  uint64_t seed = 7;
  bool varied = false;  // 4 to 64 KiB, as bench/tier/real.py has them; else kLength
  Canaries canaries = {};
};

// Writers with a file each, an engine, and two devices that serve one request after the other.
class SyncWorld {
 public:
  explicit SyncWorld(const Shape& shape) : shape_(shape), engine_(options(shape)) {
    for (uint32_t i = 0; i < shape.writers; ++i) {
      writers_.push_back({engine_.open_file(i + 1, uint64_t{i} << 40, 0), Rng(shape.seed << 8 | i)});
      writers_.back().writes_left = shape.syncs * std::max(1u, shape.sync_every);
    }
  }

  // Until all writers have ended. Returns when that was.
  Nanos run() {
    for (uint32_t i = 0; i < writers_.size(); ++i) go_on(i);
    while (!all_ended()) {
      const Nanos next = engine_.next_event();
      if (events_.empty() || next < events_.begin()->first) {
        if (next == kForever) return -1;
        now_ = std::max(now_, next);
        engine_.advance(now_);
        carry_out();
        continue;
      }
      perform();
    }
    return now_;
  }
  // One event of the devices.
  void perform() {
    const auto [time, action] = *events_.begin();
    events_.erase(events_.begin());
    now_ = std::max(now_, time);
    engine_.completed(action.kind, action.id, Code::kOk, now_);
    carry_out();
  }
  void finish_events() {
    carry_out();
    while (!events_.empty()) perform();
  }
  // Nobody asks for anything.
  void let_time_pass(Nanos time) {
    const Nanos end = now_ + time;
    for (finish_events(); engine_.next_event() <= end; finish_events()) {
      now_ = std::max(now_ + 1, engine_.next_event());
      engine_.advance(now_);
    }
    now_ = end;
  }
  bool write(uint32_t writer, uint64_t offset) {
    const Ticket ticket = next_ticket_++;
    by_ticket_[ticket] = ~0u;
    engine_.write(ticket, writers_[writer].file, offset, kLength, now_);
    carry_out();
    return answered_.contains(ticket);
  }
  Ticket sync(uint32_t writer) {
    const Ticket ticket = next_ticket_++;
    by_ticket_[ticket] = ~0u;
    engine_.sync(ticket, writers_[writer].file, now_);
    carry_out();
    return ticket;
  }
  bool answered(Ticket ticket) const { return answered_.contains(ticket); }
  void set_write_ns(Nanos ns) { shape_.write_ns = ns; }
  void again(uint32_t syncs) {
    for (Writer& writer : writers_) writer.writes_left = syncs * std::max(1u, shape_.sync_every);
  }

  Engine& engine() { return engine_; }
  Stats stats() const { return engine_.stats(); }
  Nanos now() const { return now_; }
  uint64_t backing_writes() const { return backing_writes_; }
  size_t events() const { return events_.size(); }
  // What SSDUP+ would have sent to the SSD, and what stands over bytes that are there already.
  uint64_t budget() const { return stats().ssdup_plus_bytes; }
  double share_to_log() const {
    return static_cast<double>(stats().ssd_bytes) / static_cast<double>(stats().write_bytes);
  }

 private:
  struct Writer {
    FileIndex file;
    Rng rng;  // of its own, so that its requests do not depend on when others ask
    uint32_t writes_left = 0;
    uint32_t since_sync = 0;
    bool syncing = false;
  };

  static Options options(const Shape& shape) {
    Options options;
    options.policy = shape.policy;
    options.durability = shape.durability;
    options.segment_count = 16;
    options.segment_bytes = shape.segment_bytes;
    options.queue_slots = 64;
    options.canaries = shape.canaries;
    return options;
  }

  bool all_ended() const {
    return std::all_of(writers_.begin(), writers_.end(),
                       [](const Writer& writer) { return writer.writes_left == 0 && !writer.syncing; });
  }

  // The next request of a writer whose last one was answered.
  void go_on(uint32_t index) {
    Writer& writer = writers_[index];
    writer.syncing = false;
    if (shape_.sync_every > 0 && writer.since_sync == shape_.sync_every) {
      writer.since_sync = 0;
      writer.syncing = true;
      const Ticket ticket = next_ticket_++;
      by_ticket_[ticket] = index;
      engine_.sync(ticket, writer.file, now_);
    } else if (writer.writes_left > 0) {
      --writer.writes_left;
      ++writer.since_sync;
      const Ticket ticket = next_ticket_++;
      by_ticket_[ticket] = index;
      const uint64_t unit = shape_.varied ? kVariedBytes : kLength;
      const uint64_t offset = writer.rng.below(kPlaces * kLength / unit - kVariedMax) * unit;
      const uint64_t length = shape_.varied ? (1 + writer.rng.below(kVariedMax)) * unit : unit;
      engine_.write(ticket, writer.file, offset, static_cast<uint32_t>(length), now_);
    }
    carry_out();
  }

  void carry_out() {
    while (const Action* next = engine_.next_action()) {
      const Action action = *next;
      switch (action.kind) {
        case Action::Kind::kAcknowledge: {
          answered_.insert(action.ticket);
          const auto found = by_ticket_.find(action.ticket);
          if (found != by_ticket_.end() && found->second != ~0u) to_go_on_.push_back(found->second);
          break;
        }
        case Action::Kind::kRelease:
          break;
        case Action::Kind::kWriteBacking: {
          const auto pieces = static_cast<uint32_t>(engine_.slot(action.id).pieces.size());
          backing_writes_ += pieces;
          if (shape_.cached) unsynced_[action.file] += pieces;
          later(action,
                shape_.cached ? now_ : backing_free_ = std::max(backing_free_, now_) + shape_.write_ns);
          break;
        }
        case Action::Kind::kSyncFile:
          sync_backing(action, std::exchange(unsynced_[action.file], 0));
          break;
        case Action::Kind::kSyncBacking: {
          uint32_t writes = 0;
          for (auto& [file, count] : unsynced_) writes += std::exchange(count, 0);
          sync_backing(action, writes);
          break;
        }
        case Action::Kind::kSyncLog:
          ssd_free_ = std::max(ssd_free_, now_) + kSsdSyncNs;
          later(action, ssd_free_);
          break;
        default:
          later(action, now_);
      }
    }
    if (going_on_) return;
    going_on_ = true;
    while (!to_go_on_.empty()) {
      const uint32_t writer = to_go_on_.front();
      to_go_on_.erase(to_go_on_.begin());
      go_on(writer);
    }
    going_on_ = false;
  }
  // A journal takes one write more.
  void sync_backing(const Action& action, uint32_t writes) {
    if (writes > 0) backing_free_ = std::max(backing_free_, now_) + (writes + 1) * shape_.write_ns;
    later(action, writes > 0 ? backing_free_ : now_);
  }
  void later(const Action& action, Nanos time) { events_.emplace(time, action); }

  Shape shape_;
  Engine engine_;
  std::vector<Writer> writers_;
  std::multimap<Nanos, Action> events_;
  std::map<Ticket, uint32_t> by_ticket_;
  std::set<Ticket> answered_;
  std::vector<uint32_t> to_go_on_;
  std::map<FileIndex, uint32_t> unsynced_;
  bool going_on_ = false;
  Nanos now_ = 0;
  Nanos backing_free_ = 0;
  Nanos ssd_free_ = 0;
  uint64_t backing_writes_ = 0;
  Ticket next_ticket_ = 1;
};

TEST(EngineWaiters, WritesUnderSyncsGoToTheLogThatAnswersSooner) {
  for (const bool cached : {true, false}) {
    SyncWorld ours({.cached = cached});
    SyncWorld backing({.policy = Policy::kBacking, .cached = cached});
    const Nanos with = ours.run();
    const Nanos without = backing.run();
    ASSERT_GT(with, 0);
    EXPECT_GT(ours.share_to_log(), 0.5) << cached;
    EXPECT_LT(with, without / 2) << cached;
    EXPECT_LE(ours.stats().ssd_bytes, ours.budget()) << "SSDUP+ would have sent fewer";
    EXPECT_GT(ours.stats().ssd_bytes, ours.budget() / 10 * 9) << "the budget is used";
    std::printf("cached %d: %.2f s, all to the backing device %.2f s, %.3f to the log, SSDUP+ %.3f\n", cached,
                to_seconds(with), to_seconds(without), ours.share_to_log(),
                static_cast<double>(ours.budget()) / static_cast<double>(ours.stats().write_bytes));
  }
}

TEST(EngineWaiters, SoDoWritesThatAreSyncedOneByOne) {
  SyncWorld ours({.sync_every = 1, .syncs = 320});
  SyncWorld backing({.policy = Policy::kBacking, .sync_every = 1, .syncs = 320});
  EXPECT_LT(ours.run(), backing.run() / 2);
  EXPECT_GT(ours.share_to_log(), 0.5);
  EXPECT_LE(ours.stats().ssd_bytes, ours.budget());
}

TEST(EngineWaiters, InTheModesThatSyncEachWriteToo) {
  for (const Durability durability : {Durability::kGroupCommit, Durability::kSync}) {
    SyncWorld ours({.durability = durability, .sync_every = 0, .syncs = 320});
    SyncWorld backing({.policy = Policy::kBacking, .durability = durability, .sync_every = 0, .syncs = 320});
    EXPECT_LT(ours.run(), backing.run() / 4 * 3);
    EXPECT_GT(ours.share_to_log(), 0.5);
  }
}

// The page cache takes all writes at once, and the sync that comes at the end pays for them. Until a sync has
// told what the file costs, the disk model does: random writes go where SSDUP+ sends them.
TEST(EngineWaiters, RandomWritesGoToTheLogBeforeTheFirstSyncTellsWhatTheyCost) {
  const auto run = [](Policy policy) {
    SyncWorld world({.policy = policy, .sync_every = 320, .syncs = 1});
    return std::pair(world.run(), world.stats().ssd_bytes <= world.budget());
  };
  const auto [ours, within] = run(Policy::kSwale);
  const auto [theirs, all] = run(Policy::kSsdupPlus);
  EXPECT_TRUE(within && all);
  EXPECT_LT(ours, theirs / 10 * 11);
  EXPECT_LT(ours, run(Policy::kBacking).first / 2);
}

// What SSDUP+ sends to the SSD is in the budget, so ours may send it as well: nobody waits longer. Writes of
// 4 to 64 KiB, synced in groups, one by one and once at the end, by which time the budget is of no more use.
TEST(EngineWaiters, NobodyWaitsLongerThanWithSsdupPlusOnTheSameRequests) {
  struct Case {
    uint32_t sync_every;
    uint32_t syncs;
  };
  for (const Case& each : {Case{8, 24}, Case{1, 128}, Case{128, 1}}) {
    uint32_t with_ssd = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const auto shape = [&](Policy policy) {
        return Shape{.policy = policy,
                     .sync_every = each.sync_every,
                     .syncs = each.syncs,
                     .segment_bytes = 64 * kMiB,
                     .seed = seed,
                     .varied = true};
      };
      SyncWorld ours(shape(Policy::kSwale));
      SyncWorld theirs(shape(Policy::kSsdupPlus));
      EXPECT_LE(ours.run(), theirs.run()) << each.sync_every << " writes a sync, seed " << seed;
      EXPECT_LE(ours.stats().ssd_bytes, ours.budget());
      EXPECT_GE(ours.stats().ssd_bytes * 100, ours.budget() * 99) << "the rest is of no more use";
      with_ssd += theirs.stats().ssd_bytes > 0;
    }
    EXPECT_GT(with_ssd, 15u) << "SSDUP+ hardly sends anything: nothing was compared";
  }
}

// SSDUP+ turns to the SSD in the middle of a group: its sync waits for the writes before, and not for those
// that follow.
TEST(EngineWaiters, AGroupGoesOnInTheLogOnceSsdupPlusSendsItsWritesThere) {
  SyncWorld world({.writers = 2, .sync_every = 0, .syncs = 0});
  Rng rng(3);
  const auto write = [&](uint32_t writer) { world.write(writer, rng.below(kPlaces) * kLength); };
  const auto sync = [&](uint32_t writer) {
    const Ticket ticket = world.sync(writer);
    while (!world.answered(ticket)) world.perform();
  };
  for (int i = 0; i < 8; ++i) write(0);
  sync(0);  // what a sync of this file takes is known
  write(0);
  while (!world.engine().traffic().to_ssd()) write(1);
  ASSERT_EQ(world.stats().ssd_bytes, 0u);
  for (int i = 0; i < 7; ++i) write(0);
  EXPECT_EQ(world.stats().ssd_bytes, 7u * kLength);
}

// A disk model that says too much: the first sync of a file that has random writes corrects it.
TEST(EngineWaiters, ADeviceThatSyncsShowToBeQuickIsNotTakenForADisk) {
  SyncWorld world({.write_ns = 1'000, .sync_every = 8, .syncs = 1});
  world.run();
  const uint64_t before = world.stats().ssd_bytes;
  Rng rng(5);
  for (int i = 0; i < 2000; ++i) world.write(0, rng.below(kPlaces) * kLength);
  EXPECT_GT(world.engine().traffic().ssd_bytes(), 1000u * kLength) << "SSDUP+ sends them to the SSD";
  EXPECT_EQ(world.stats().ssd_bytes, before);
}

TEST(EngineWaiters, ABackingDeviceThatSyncsAsSoonAsTheLogKeepsItsWrites) {
  SyncWorld ours({.write_ns = kSsdSyncNs / 100});
  ours.run();
  EXPECT_LT(ours.share_to_log(), 0.05) << "until it is known how long the log takes";
}

// What was measured long ago says nothing any more: a device that has become quick is found out.
TEST(EngineWaiters, ABackingDeviceThatHasBecomeQuickIsTriedAgain) {
  SyncWorld ours({});
  ours.run();
  const uint64_t before = ours.stats().ssd_bytes;
  EXPECT_GT(before, 0u);
  ours.set_write_ns(1'000);
  ours.let_time_pass(100'000'000'000);
  const uint64_t faded = ours.stats().ssd_bytes;
  const uint64_t written = ours.stats().write_bytes;
  ours.again(200);
  ours.run();
  EXPECT_LT(ours.stats().ssd_bytes - faded, (ours.stats().write_bytes - written) / 10);
}

// The queue to the backing device is long. A sync gives what it has of its file to the log, and waits for one
// slot at most.
TEST(EngineWaiters, ASyncTakesItsWritesOutOfALongQueue) {
  SyncWorld world({.cached = false, .writers = 2, .sync_every = 0, .syncs = 0});
  Rng rng(3);
  while (world.engine().traffic().ssd_bytes() <
         world.stats().ssd_bytes + 64 * kLength) {  // SSDUP+ finds them random: there is a budget
    world.write(1, rng.below(1024) * kLength);
    if (world.stats().elevator_depth > 40) world.perform();
  }
  for (uint64_t i = 0; i < 8; ++i) world.write(0, (100 + 2 * i) * kLength);
  ASSERT_GT(world.stats().elevator_depth, 20u);
  const Nanos begin = world.now();
  const Ticket ticket = world.sync(0);
  while (!world.answered(ticket)) world.perform();
  EXPECT_LE(world.now() - begin, 2 * kSlowNs);
  EXPECT_GT(world.stats().diverted_bytes, 0u);
  EXPECT_GT(world.stats().elevator_depth, 10u) << "the other file's writes wait on";
}

// Hot blocks: what waits to be written is replaced, not waited for.
TEST(EngineWaiters, AWriteReplacesAnOlderOneOfItsRangeThatWaits) {
  SyncWorld world({.cached = false, .writers = 1, .sync_every = 0, .syncs = 0});
  EXPECT_TRUE(world.write(0, 0));  // is being written from now on
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(world.write(0, 10 * kLength)) << i;
  const Ticket sync = world.sync(0);
  EXPECT_TRUE(world.write(0, 10 * kLength)) << "the sync waits for this one now";
  while (!world.answered(sync)) world.perform();
  EXPECT_EQ(world.backing_writes(), 2u);
  EXPECT_EQ(world.stats().absorbed_bytes, 20u * kLength);
  EXPECT_EQ(world.stats().direct_bytes, 2u * kLength);
  EXPECT_EQ(world.stats().overlap_waits, 0u);
  EXPECT_EQ(world.now(), 2 * kSlowNs);
}

// Whether a sync is answered before the write that has replaced its own is written.
bool answers_early(const Canaries& canaries) {
  SyncWorld world({.cached = false, .writers = 1, .sync_every = 0, .syncs = 0, .canaries = canaries});
  world.write(0, 0);
  world.write(0, 10 * kLength);
  const Ticket sync = world.sync(0);
  world.write(0, 10 * kLength);
  while (!world.answered(sync)) world.perform();
  return world.backing_writes() < 2 || world.stats().elevator_depth > 0 || world.now() < 2 * kSlowNs;
}

TEST(EngineWaiters, ASyncWaitsForWhatHasReplacedItsWrite) {
  EXPECT_FALSE(answers_early({}));
  EXPECT_TRUE(answers_early({.forget_replaced = true})) << "the canary";
}

// Somebody reads from the backing device: what is flushed meanwhile would take it from them.
TEST(EngineWaiters, AFlushYieldsToReadsOfTheBackingDevice) {
  SyncWorld world({.segment_bytes = 8 * kMiB});
  world.run();
  world.finish_events();
  ReadPlan plan;
  uint64_t at = 0;
  do {  // a place that the log does not have
    world.engine().read_done(plan, world.now());
    world.engine().plan_read(0, at, 1, &plan);
    at += kLength;
  } while (plan.pieces.at(0).from != ReadPiece::From::kBacking);
  const uint64_t before = world.stats().flushed_bytes;
  const uint64_t logged = world.stats().ssd_bytes;
  world.again(20);
  world.run();
  world.finish_events();
  EXPECT_GT(world.stats().ssd_bytes, logged + 16 * kMiB) << "nothing was sealed";
  EXPECT_EQ(world.stats().flushed_bytes, before);
  world.engine().read_done(plan, world.now());
  world.let_time_pass(1'000'000'000);
  EXPECT_GT(world.stats().flushed_bytes, before);
}

}  // namespace
}  // namespace swale::tier::engine_waiters_test
