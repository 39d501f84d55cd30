// The log of the root's table, and what a crash at any call of storage leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "io/fault_device.h"
#include "io/memory_device.h"
#include "meta/attributes/testing/attribute_changes.h"
#include "meta/index/log.h"

namespace swale::meta::attributes_test {
namespace {

using testing::HasSubstr;

// Changes a table until the n-th call of storage, at which the power goes. What is wrong with what is found
// afterwards; "": nothing. `calls`: how many calls there were before the end. Every other seed makes
// checkpoints again and again.
std::string crash_at(uint64_t nth, uint64_t seed, bool drop_syncs, uint64_t* calls,
                     uint64_t* checkpoints = nullptr) {
  io::MemoryDevice memory;
  if (!memory.make_directory("store").ok() || !memory.sync_directory(".").ok()) return "no directory";
  io::FaultDevice device(memory);
  if (drop_syncs)
    device.inject({.action = io::FaultAction::kDrop, .kind = io::CallKind::kSync, .from_then_on = true});
  uint64_t call = 0;
  bool down = false;
  device.set_hook([&](const io::Call&) {
    down |= ++call > nth;
    return down ? error(Code::kIoError, Scope::kNode, "no power") : Status();
  });
  Rng rng(seed);
  std::vector<std::string> states = {dump(AttributeTable())};  // that may be found
  uint64_t number = 0;
  for (int job = 0; job < 3 && !down; ++job) {
    Logged logged;
    const Status opened = logged.open(device, seed % 2 == 0 ? 16 * kMiB : 200);
    if (!opened.ok()) {
      if (!down) return opened.to_string();
      break;
    }
    if (dump(logged.table) != states.back()) return "a reopened store has another table";
    for (int group = 0; group < 6 && !down; ++group) {
      for (uint64_t n = rng.below(5); n > 0; --n) any_change(rng, ++number, &logged);
      states = {states.back(), dump(logged.table)};
      const Status done = logged.shard->commit();
      if (done.ok() && !down) states = {states[1]};
      if (!done.ok() && !down) return done.to_string();
      if (rng.chance(1, 3))
        any_change(rng, ++number, &logged);  // comes before the checkpoint, and is not durable
      const std::string open = dump(logged.table);
      while (std::unique_ptr<Work> work = logged.shard->next_background()) {
        work->run();
        const Status finished = logged.shard->finish(std::move(work));
        if (!finished.ok() && !down) return finished.to_string();
      }
      if (!down && open != states.back()) {
        states.push_back(open);
        if (!logged.shard->commit().ok()) break;
        if (!down) states = {open};
      }
    }
    if (checkpoints != nullptr) *checkpoints += logged.shard->counters().checkpoints;
  }
  *calls = call;
  memory.crash(rng, rng.chance(1, 2) ? io::CrashMode::kTearPages : io::CrashMode::kDropAll);
  Logged found;
  const Status opened = found.open(memory);
  if (!opened.ok()) return opened.to_string();
  if (std::find(states.begin(), states.end(), dump(found.table)) == states.end())
    return "another table than was acknowledged";
  return "";
}

TEST(AttributeLog, KeepsWhatItAcknowledgedWhenThePowerGoesAtAnyCall) {
  uint64_t points = 0, checkpoints = 0;
  const char* text = std::getenv("SWALE_META_CRASHES");
  const uint64_t seeds = text == nullptr ? 6 : static_cast<uint64_t>(std::atoi(text));
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    uint64_t calls = UINT64_MAX;
    for (uint64_t nth = 0; nth < calls; ++nth, ++points) {
      uint64_t made = 0;
      ASSERT_EQ(crash_at(nth, seed, false, &made, &checkpoints), "") << "call " << nth << ", seed " << seed;
      if (made <= nth) calls = made;
    }
  }
  std::printf("%lu points of failure, %lu checkpoints\n", static_cast<unsigned long>(points),
              static_cast<unsigned long>(checkpoints));
  EXPECT_GT(points, 100u);
  EXPECT_GT(checkpoints, points / 8);  // compilers order the random changes differently
}

TEST(AttributeLog, CanaryADeviceThatDoesNotSyncIsSeen) {
  int seen = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    uint64_t calls = 0;
    seen += !crash_at(UINT64_MAX, seed, true, &calls).empty();
  }
  EXPECT_GT(seen, 5);
}

TEST(AttributeLog, AFailedSyncMakesItReadOnlyAndTakesBackWhatWasNotDurable) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  io::FaultDevice device(memory);
  Logged logged;
  ASSERT_TRUE(logged.open(device).ok());
  ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, "kept")).ok());
  ASSERT_TRUE(logged.shard->commit().ok());
  device.inject({.kind = io::CallKind::kSync});
  ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, "lost")).ok());
  const Status failed = logged.shard->commit();
  EXPECT_THAT(std::string(failed.message()), HasSubstr("read-only"));
  EXPECT_EQ(logged.shard->health().code(), failed.code());
  EXPECT_NE(logged.table.find("kept"), nullptr);
  EXPECT_EQ(logged.table.find("lost"), nullptr);
  EXPECT_LE(logged.shard->add_record({}), logged.shard->durable_group());  // what is shown is durable
  EXPECT_EQ(logged.shard->next_commit(), nullptr);
}

AttributeRequest close_of(uint64_t size) {
  AttributeRequest what = request(AttributeOp::kClose, "f", 1, size);
  what.size = size;
  what.generation = 100;
  return what;
}

TEST(AttributeLog, IsCutByCheckpointsWhileItRuns) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  Logged logged;
  ASSERT_TRUE(logged.open(memory, 2000).ok());
  ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, "f")).ok());
  for (uint64_t size = 1; size <= 1000; ++size) {
    ASSERT_TRUE(logged.ask(close_of(size)).ok());
    const uint64_t group = logged.shard->add_record({});
    ASSERT_TRUE(logged.work().ok());
    ASSERT_LE(group, logged.shard->durable_group());
    ASSERT_LT(logged.shard->state().log_bytes, 8000u);
    ASSERT_LT(logged.shard->state().table_tail_bytes, 4000u);
  }
  EXPECT_GT(logged.shard->counters().checkpoints, 20u);
  EXPECT_LE(memory.list("store")->size(),
            5u);  // claim, manifest, log, snapshot, attributes: the older ones are gone
  // Changes that come before and during a checkpoint are not lost, and a later job fences this one.
  const uint64_t enough = logged.shard->counters().checkpoints + 5;
  uint64_t waited = 0;
  for (uint64_t size = 1001; logged.shard->counters().checkpoints < enough; size += 3) {
    ASSERT_LT(size, 100'000u);
    ASSERT_TRUE(logged.ask(close_of(size)).ok());
    ASSERT_TRUE(logged.shard->commit().ok());
    ASSERT_TRUE(logged.ask(close_of(size + 1)).ok());  // open when the checkpoint would begin: it waits
    std::unique_ptr<Work> work = logged.shard->next_background();
    if (!logged.shard->accepts_records()) {
      EXPECT_EQ(work, nullptr);
      ++waited;
      ASSERT_TRUE(logged.shard->commit().ok());
      work = logged.shard->next_background();
      ASSERT_NE(work, nullptr);
    }
    ASSERT_TRUE(logged.shard->accepts_records());
    ASSERT_TRUE(logged.ask(close_of(size + 2)).ok());
    if (work == nullptr) continue;
    work->run();
    ASSERT_TRUE(logged.shard->commit().ok());
    ASSERT_TRUE(logged.shard->finish(std::move(work)).ok());
    ASSERT_EQ(logged.table.changes(), 0u);
  }
  EXPECT_GT(waited, 0u);
  ASSERT_TRUE(logged.shard->commit().ok());
  Logged second;
  ASSERT_TRUE(second.open(memory).ok());
  EXPECT_EQ(dump(second.table), dump(logged.table));
  ASSERT_TRUE(logged.ask(close_of(1 << 20)).ok());
  EXPECT_THAT(std::string(logged.shard->commit().message()),
              HasSubstr("has opened the directory after this one"));
}

// A large table that hardly changes is not written anew by each checkpoint of the index.
TEST(AttributeLog, TheFileOfALargeTableIsRewrittenOnlyWhenAQuarterHasChanged) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  std::string before;
  {
    Logged logged;
    ASSERT_TRUE(logged.open(memory).ok());
    for (int i = 0; i < 1000; ++i)
      ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, fmt::format("file {}", i))).ok());
    ASSERT_TRUE(logged.shard->drain().ok());
    const uint64_t file = logged.shard->state().table_file_bytes;
    EXPECT_GT(file, 50'000u);
    EXPECT_EQ(logged.shard->state().table_tail_bytes, 0u);
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, fmt::format("more {}", i))).ok());
      ASSERT_TRUE(logged.shard->drain().ok());
      EXPECT_EQ(logged.shard->state().table_file_bytes, file);
      EXPECT_EQ(logged.shard->state().log_bytes, 0u);  // the snapshot has the records
    }
    EXPECT_GT(logged.shard->state().table_tail_bytes, 0u);
    before = dump(logged.table);
  }
  Logged next;
  ASSERT_TRUE(next.open(memory).ok());
  EXPECT_EQ(dump(next.table), before);
  EXPECT_GT(next.shard->state().table_tail_bytes, 0u);
  for (int i = 0; i < 250; ++i)
    ASSERT_TRUE(next.ask(request(AttributeOp::kCreate, fmt::format("new {}", i))).ok());
  ASSERT_TRUE(next.shard->drain().ok());
  EXPECT_EQ(next.shard->state().table_tail_bytes, 0u);
  Logged last;
  ASSERT_TRUE(last.open(memory).ok());
  EXPECT_EQ(dump(last.table), dump(next.table));
}

TEST(AttributeLog, GoesOnWhenAFullDiskHasSpaceAgain) {
  for (const uint64_t table_bytes_min : {uint64_t{200}, uint64_t{16 * kMiB}}) {
    io::MemoryDevice memory;
    ASSERT_TRUE(memory.make_directory("store").ok());
    io::FaultDevice device(memory);
    Logged logged;
    ASSERT_TRUE(logged.open(device, table_bytes_min).ok());
    ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, "f")).ok());
    ASSERT_TRUE(logged.shard->commit().ok());
    uint64_t kept = 0, refused = 0;
    for (uint64_t size = 1; size <= 300; ++size) {
      if (size * 7 % 10 < 3) {
        device.inject({.action = io::FaultAction::kTear,
                       .kind = io::CallKind::kWrite,
                       .from_then_on = true,
                       .status = error(Code::kNoSpace, Scope::kFile, "no space left on the device"),
                       .position = size});
      }
      ASSERT_TRUE(logged.ask(close_of(size)).ok());
      const Status done = logged.shard->commit();
      static_cast<void>(logged.work());  // checkpoints, which find no space either
      device.clear();
      ASSERT_LE(logged.shard->add_record({}), logged.shard->durable_group());
      if (!done.ok()) {
        EXPECT_EQ(done.code(), Code::kNoSpace);
        ++refused;
      } else {
        kept = size;
      }
      ASSERT_TRUE(logged.shard->health().ok()) << logged.shard->health().to_string();
      ASSERT_EQ(logged.table.find("f")->size, kept);
      Logged found;
      const Status opened = read(memory, &found);
      ASSERT_TRUE(opened.ok()) << opened.to_string();
      ASSERT_EQ(found.table.find("f")->size, kept);
    }
    EXPECT_EQ(refused, 90u);
    EXPECT_EQ(logged.shard->counters().checkpoints > 0, table_bytes_min == 200);
  }
}

// Much more than a group should have comes while a commit is under way, of requests that were taken before.
TEST(AttributeLog, WhatIsAddedAtATimeIsReadBackHoweverMuchItIs) {
  constexpr uint64_t kFiles = 1100;  // sealed, with tables of 64 KiB
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  Logged logged;
  ASSERT_TRUE(logged.open(memory).ok());
  EXPECT_TRUE(logged.shard->accepts_records());
  for (uint64_t i = 0; i < kFiles; ++i) {
    const std::string name = fmt::format("f{}", i);
    ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, name)).ok());
    std::string sealed;
    ASSERT_TRUE(logged.table
                    .followed(request(AttributeOp::kSeal, name), FollowUp::kCollect, 0,
                              std::string(64 * kKiB, 't'), &sealed)
                    .ok());
    logged.shard->add_record(sealed);
  }
  EXPECT_FALSE(logged.shard->accepts_records());
  ASSERT_TRUE(logged.shard->commit().ok());
  EXPECT_TRUE(logged.shard->accepts_records());
  EXPECT_EQ(logged.table.changes(), 0u);
  Logged found;
  ASSERT_TRUE(read(memory, &found).ok());
  EXPECT_EQ(found.report.torn_bytes, 0u);
  EXPECT_EQ(found.table.files(), kFiles);
  ASSERT_TRUE(logged.shard->drain().ok());
  Logged again;
  ASSERT_TRUE(read(memory, &again).ok());
  EXPECT_EQ(dump(again.table), dump(logged.table));
}

// One that fails voids those after it, and the table takes back what they have.
TEST(AttributeLog, OfTwoGroupsTheFirstMayBeDurableAlone) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  io::FaultDevice device(memory);
  Logged logged;
  ASSERT_TRUE(logged.open(device).ok());
  ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, "first")).ok());
  std::unique_ptr<Work> commit = logged.shard->next_commit();
  ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, "second")).ok());
  EXPECT_EQ(logged.shard->add_record({}), 2u);
  commit->run();
  ASSERT_TRUE(logged.shard->finish(std::move(commit)).ok());
  EXPECT_EQ(logged.shard->durable_group(), 1u);
  ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, "third")).ok());
  device.inject({.kind = io::CallKind::kWrite,
                 .status = error(Code::kNoSpace, Scope::kFile, "no space left on the device")});
  EXPECT_EQ(logged.shard->commit().code(), Code::kNoSpace);
  EXPECT_LE(logged.shard->add_record({}), 1u);
  EXPECT_NE(logged.table.find("first"), nullptr);
  EXPECT_EQ(logged.table.files(), 1u);
}

// Every third bit of each file that holds attributes: in the log, in the snapshot's tail, in the file of the
// table.
TEST(AttributeLog, AFlippedBitIsAnErrorOrATornTailNeverOtherAttributes) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  std::vector<std::string> states;
  {
    Logged logged;
    ASSERT_TRUE(logged.open(memory).ok());
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, fmt::format("f{}", i))).ok());
      ASSERT_TRUE(i == 14 || i == 16 ? logged.shard->drain().ok() : logged.shard->commit().ok());
      states.push_back(dump(logged.table));
    }
  }
  uint64_t errors = 0, torn = 0, files = 0;
  const auto names = memory.list("store");
  for (const std::string& name : *names) {
    if (name.ends_with(".claims")) continue;
    ++files;
    const std::string bytes = *io::read_file(memory, "store/" + name, kMiB);
    for (uint64_t bit = 0; bit < bytes.size() * 8; bit += 3) {
      std::string flipped = bytes;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
      ASSERT_TRUE(io::replace_file(memory, "store/" + name, flipped).ok());
      io::OverlayDevice view(memory);
      Logged found;
      const Status opened = found.open(view);
      if (!opened.ok()) {
        ++errors;
        continue;
      }
      ++torn;  // of the last group alone: nobody can tell it from one that was never acknowledged
      ASSERT_GT(found.report.torn_bytes, 0u) << name << ", bit " << bit;
      ASSERT_EQ(dump(found.table), states[states.size() - 2]) << name << ", bit " << bit;
    }
    ASSERT_TRUE(io::replace_file(memory, "store/" + name, bytes).ok());
  }
  EXPECT_EQ(files, 4u);  // manifest, log, snapshot, attributes
  EXPECT_GT(errors, torn);
}

// A record whose length leads beyond its group, under the right checksum.
TEST(AttributeLog, HalfARecordIsDamage) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  const std::string path = "store/shard-000003.j0001.log-000001";
  {
    Logged logged;
    ASSERT_TRUE(logged.open(memory).ok());
    ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, "f")).ok());
    ASSERT_TRUE(logged.shard->commit().ok());
  }
  const std::string log = *io::read_file(memory, path, kMiB);
  std::string record = log.substr(store::kLogHeaderBytes);
  // sequence_end, operation, length of all, of the first
  char& length = record[store::kRecordHeadBytes + 10];
  ASSERT_EQ(static_cast<size_t>(length), record.size() - store::kRecordHeadBytes - 11);
  ++length;
  store::seal_record(get_u32(log.data() + 4), kGroupRecord, 1, &record);
  ASSERT_TRUE(io::replace_file(memory, path, log.substr(0, store::kLogHeaderBytes) + record).ok());
  Logged found;
  const Status damaged = found.open(memory);
  EXPECT_EQ(damaged.code(), Code::kCorruption);
  EXPECT_THAT(damaged.message(), HasSubstr(path + ": group 1 at offset 32: "));
  EXPECT_THAT(damaged.message(), HasSubstr("half a record"));
}

// Records without their table are no reason to go on without them.
TEST(AttributeLog, IsNotOpenedWithoutItsTable) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  {
    Logged logged;
    ASSERT_TRUE(logged.open(memory).ok());
    ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, "f")).ok());
    ASSERT_TRUE(logged.shard->commit().ok());
  }
  ShardOptions options;
  options.directory = "store";
  options.shard = 3;
  EXPECT_EQ(Shard::open(memory, options).status().code(), Code::kInvalidArgument);
}

// One sync for a put and a change of attributes that come together.
TEST(AttributeLog, APutAndAChangeShareASync) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  io::FaultDevice device(memory);
  Logged logged;
  ASSERT_TRUE(logged.open(device).ok());
  const uint64_t syncs = device.calls(io::CallKind::kSync), writes = device.calls(io::CallKind::kWrite);
  ASSERT_TRUE(logged.ask(request(AttributeOp::kCreate, "f")).ok());
  const Extent extent{0, 10, {1, 0}};
  const Put put{logged.table.find("f")->file, std::span(&extent, 1), {}, {}};
  const auto group = logged.shard->put({1, 1}, std::span(&put, 1));
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(*group, logged.shard->add_record({}));
  ASSERT_TRUE(logged.shard->commit().ok());
  EXPECT_EQ(device.calls(io::CallKind::kSync), syncs + 1);
  EXPECT_EQ(device.calls(io::CallKind::kWrite), writes + 1);
}

TEST(AttributeLog, AJobWhoseStoreAnotherOneHasOpenedAcknowledgesNothingMore) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  Logged first, second;
  ASSERT_TRUE(first.open(memory).ok());
  ASSERT_TRUE(first.ask(request(AttributeOp::kCreate, "f")).ok());
  ASSERT_TRUE(first.shard->commit().ok());
  ASSERT_TRUE(second.open(memory).ok());
  EXPECT_EQ(second.shard->job(), 2u);
  EXPECT_NE(second.table.find("f"), nullptr);
  ASSERT_TRUE(first.ask(request(AttributeOp::kCreate, "g")).ok());
  EXPECT_THAT(std::string(first.shard->commit().message()),
              HasSubstr("job 2 has opened the directory after this one"));
  EXPECT_EQ(first.table.find("g"), nullptr);
  EXPECT_TRUE(second.shard->fence().ok());
}

}  // namespace
}  // namespace swale::meta::attributes_test
