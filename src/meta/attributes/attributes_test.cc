// The root's table, its log, and what a crash at any call of storage leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/crc32c.h"
#include "base/rng.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "meta/attributes/attribute_store.h"

namespace swale::meta::attributes_test {
namespace {

using testing::HasSubstr;

AttributeRequest request(AttributeOp op, std::string name, uint64_t client = 1, uint64_t number = 0) {
  AttributeRequest made;
  made.op = op;
  made.name = std::move(name);
  made.from = {client, number};
  return made;
}

Result<Applied> ask(AttributeTable* table, const AttributeRequest& what) {
  std::string record;
  return table->apply(what, &record);
}

// All that a table holds, in an order.
std::string dump(const AttributeTable& table) {
  std::vector<std::string> records;
  table.for_each_record([&](Bytes record) { records.emplace_back(record); });
  std::sort(records.begin(), records.end());
  std::string all;
  for (const std::string& each : records) append_sized(&all, each);
  return all;
}

TEST(AttributeTable, ExclusiveCreationHasOneWinnerAlsoWhenItIsRepeated) {
  AttributeTable table;
  const auto first = ask(&table, request(AttributeOp::kCreateExclusive, "f", 7, 3));
  const auto second = ask(&table, request(AttributeOp::kCreateExclusive, "f", 8, 1));
  const auto again = ask(&table, request(AttributeOp::kCreateExclusive, "f", 7, 3));
  ASSERT_TRUE(first.ok() && second.ok() && again.ok());
  const RequestName winner{7, 3};
  EXPECT_EQ(first->answer.attributes.creator, winner);
  EXPECT_EQ(second->answer.attributes.creator, winner);
  EXPECT_EQ(again->answer.attributes.creator, winner);
}

TEST(AttributeTable, CloseTakesTheLargestSizeOfTheNewestGeneration) {
  AttributeTable table;
  const uint64_t born = ask(&table, request(AttributeOp::kCreate, "f"))->answer.attributes.generation;
  AttributeRequest close = request(AttributeOp::kClose, "f");
  close.generation = born;
  for (const uint64_t size : {100, 300, 200}) {
    close.size = size;
    ASSERT_TRUE(ask(&table, close).ok());
  }
  EXPECT_EQ(ask(&table, request(AttributeOp::kStat, "f"))->answer.attributes.size, 300u);
  AttributeRequest truncate = request(AttributeOp::kTruncate, "f", 1, 1);
  truncate.size = 50;
  const auto cut = ask(&table, truncate);
  EXPECT_EQ(cut->follow_up, FollowUp::kTrim);
  EXPECT_GT(cut->answer.attributes.generation, born);
  close.size = 1000;  // written before the truncate
  EXPECT_EQ(ask(&table, close)->answer.attributes.size, 50u);
  close.generation = cut->answer.attributes.generation;
  close.size = 60;
  EXPECT_EQ(ask(&table, close)->answer.attributes.size, 60u);
}

TEST(AttributeTable, ARepeatedTruncateDoesNotCutWhatWasWrittenAfterIt) {
  AttributeTable table;
  ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
  const AttributeRequest truncate = request(AttributeOp::kTruncate, "f", 5, 9);
  const uint64_t generation = ask(&table, truncate)->answer.attributes.generation;
  std::string record;
  ASSERT_TRUE(table.followed(truncate, FollowUp::kTrim, generation, "", &record).ok());
  AttributeRequest close = request(AttributeOp::kClose, "f");
  close.generation = generation;
  close.size = 77;
  ASSERT_TRUE(ask(&table, close).ok());
  const auto again = ask(&table, truncate);
  EXPECT_EQ(again->follow_up, FollowUp::kNone);
  EXPECT_EQ(again->answer.attributes.size, 77u);
  EXPECT_EQ(again->answer.attributes.generation, generation);
}

// What was put after it is beyond its size and must stay.
TEST(AttributeTable, ATruncateThatFailedIsFinishedInItsGenerationBeforeTheNext) {
  AttributeTable table;
  ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
  AttributeRequest truncate = request(AttributeOp::kTruncate, "f", 5, 1);
  truncate.size = 100;
  const auto failed = ask(&table, truncate);
  AttributeRequest next = request(AttributeOp::kTruncate, "f", 5, 2);
  next.size = 1000;
  for (const AttributeRequest& later : {next, request(AttributeOp::kSeal, "f")}) {
    const auto first = ask(&table, later);
    EXPECT_TRUE(first->again);
    EXPECT_EQ(first->follow_up, FollowUp::kTrim);
    EXPECT_EQ(first->trim_size, 100u);
    EXPECT_EQ(first->answer.attributes.generation, failed->answer.attributes.generation);
  }
  std::string record;
  ASSERT_TRUE(table.followed(next, FollowUp::kTrim, failed->answer.attributes.generation, "", &record).ok());
  const auto second = ask(&table, next);
  EXPECT_FALSE(second->again);
  EXPECT_EQ(second->trim_size, 1000u);
  EXPECT_GT(second->answer.attributes.generation, failed->answer.attributes.generation);
}

// Whoever asks again, because the answer was lost, hears no other file's attributes: what he removed may have
// been sealed, and only a removal of any file, or of that one, is told to all ranks.
TEST(AttributeTable, ARepeatedRemovalNamesNoFileThatWasMadeSince) {
  AttributeTable table;
  std::string record;
  const auto end_removal = [&](const AttributeRequest& of, const Applied& begun) {
    return table.followed(of, begun.follow_up, begun.answer.attributes.generation, "", &record);
  };
  ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
  ASSERT_EQ(ask(&table, request(AttributeOp::kSeal, "f"))->follow_up, FollowUp::kCollect);
  ASSERT_TRUE(
      table.followed(request(AttributeOp::kSeal, "f"), FollowUp::kCollect, 0, "a table", &record).ok());
  const AttributeRequest remove = request(AttributeOp::kRemove, "f", 5, 9);
  const auto removed = ask(&table, remove);
  EXPECT_TRUE(removed->answer.attributes.sealed);
  ASSERT_TRUE(end_removal(remove, *removed).ok());
  ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
  const auto again = ask(&table, remove);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->follow_up, FollowUp::kNone);
  EXPECT_TRUE(again->answer.attributes.file.none()) << "it names the new file";
  // Somebody removes the new one, and that does not end: it is ended, and is not what was removed.
  const AttributeRequest other = request(AttributeOp::kRemove, "f", 6, 1);
  ASSERT_EQ(ask(&table, other)->follow_up, FollowUp::kForget);
  const auto during = ask(&table, remove);
  EXPECT_EQ(during->follow_up, FollowUp::kForget);
  EXPECT_TRUE(during->again);
  ASSERT_TRUE(end_removal(remove, *during).ok());
  EXPECT_EQ(table.find("f"), nullptr);
  const auto last = ask(&table, remove);
  ASSERT_TRUE(last.ok());
  EXPECT_FALSE(last->again);
  EXPECT_TRUE(last->answer.attributes.file.none());
}

TEST(AttributeTable, ARepeatedRemovalDoesNotTakeAFileThatWasMadeSince) {
  AttributeTable table;
  ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
  const AttributeRequest remove = request(AttributeOp::kRemove, "f", 5, 9);
  const auto removed = ask(&table, remove);
  ASSERT_EQ(removed->follow_up, FollowUp::kForget);
  EXPECT_EQ(ask(&table, request(AttributeOp::kCreate, "f")).status().code(), Code::kUnavailable);
  std::string record;
  ASSERT_TRUE(
      table.followed(remove, FollowUp::kForget, removed->answer.attributes.generation, "", &record).ok());
  EXPECT_EQ(ask(&table, request(AttributeOp::kStat, "f")).status().code(), Code::kNotFound);
  EXPECT_EQ(ask(&table, remove)->follow_up, FollowUp::kNone);
  const auto made = ask(&table, request(AttributeOp::kCreate, "f"));
  EXPECT_GT(made->answer.attributes.generation, removed->answer.attributes.generation);
  EXPECT_EQ(ask(&table, remove)->follow_up, FollowUp::kNone);
  EXPECT_TRUE(ask(&table, request(AttributeOp::kStat, "f")).ok());
}

TEST(AttributeTable, ARequestThatWasTakenBackIsNotDone) {
  for (const AttributeOp op : {AttributeOp::kTruncate, AttributeOp::kRemove}) {
    for (const uint64_t before : {0, 4}) {  // what the client asked for last
      AttributeTable table;
      ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
      ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "g")).ok());
      if (before != 0) {
        ASSERT_TRUE(ask(&table, request(AttributeOp::kTruncate, "g", 5, before)).ok());
      }
      table.keep(table.changes());
      const auto first = ask(&table, request(op, "f", 5, 9));
      ASSERT_NE(first->follow_up, FollowUp::kNone);
      table.undo();
      const auto again = ask(&table, request(op, "f", 5, 9));
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(again->follow_up, first->follow_up);
      EXPECT_GT(again->answer.attributes.generation, first->answer.attributes.generation);
    }
  }
}

// What a handle asks for is of the file that it opened, whatever file has the name by now.
TEST(AttributeTable, AHandleOfARemovedFileFindsNothing) {
  AttributeTable table;
  const FileId first = ask(&table, request(AttributeOp::kCreate, "f"))->answer.attributes.file;
  const auto remove = [&](uint64_t number) {
    const AttributeRequest what = request(AttributeOp::kRemove, "f", 7, number);
    const auto begun = ask(&table, what);
    std::string record;
    ASSERT_TRUE(
        table.followed(what, begun->follow_up, begun->answer.attributes.generation, {}, &record).ok());
  };
  const auto by_handle = [&](AttributeOp op) {
    AttributeRequest what = request(op, "f", 8);
    what.file = first;
    return ask(&table, what).status();
  };
  remove(1);
  constexpr AttributeOp kOfHandles[] = {AttributeOp::kStat, AttributeOp::kClose, AttributeOp::kTruncate,
                                        AttributeOp::kSeal};
  for (const AttributeOp op : kOfHandles) EXPECT_EQ(by_handle(op).code(), Code::kNotFound);
  const FileId second = ask(&table, request(AttributeOp::kCreate, "f"))->answer.attributes.file;
  EXPECT_NE(second, first);
  const std::string before = dump(table);
  for (const AttributeOp op : kOfHandles) {
    EXPECT_EQ(by_handle(op).code(), Code::kNotFound);
    EXPECT_THAT(std::string(by_handle(op).message()), HasSubstr("another file's now"));
  }
  EXPECT_EQ(dump(table), before);
  EXPECT_EQ(table.find("f")->file, second);
}

// The counter is in the records, also when no file is left: a later job goes on.
TEST(AttributeTable, IdsAreDrawnOnceInTheLifeOfAStore) {
  std::set<FileId> drawn;
  std::string state;
  for (int job = 0; job < 5; ++job) {
    AttributeTable table(3);
    Decoder in(state);
    while (in.remaining() > 0) ASSERT_TRUE(table.replay(in.sized()).ok());
    for (uint64_t i = 0; i < 4; ++i) {
      const auto made = ask(&table, request(AttributeOp::kCreate, "f", 7, 1));
      EXPECT_EQ(made->answer.attributes.file.high, 3u);
      EXPECT_TRUE(drawn.insert(made->answer.attributes.file).second);
      const AttributeRequest remove =
          request(AttributeOp::kRemove, "f", 7, 10 * static_cast<uint64_t>(job) + i + 1);
      const auto begun = ask(&table, remove);
      std::string record;
      ASSERT_TRUE(
          table.followed(remove, begun->follow_up, begun->answer.attributes.generation, {}, &record).ok());
    }
    EXPECT_EQ(table.files(), 0u);
    state = dump(table);
  }
}

// With a right checksum: the next id would be none, or one that was drawn.
TEST(AttributeTable, ACounterOfIdsThatCannotBeIsDamage) {
  for (const uint64_t drawn : {~uint64_t{0}, (uint64_t{1} << 62) + 1}) {
    std::string record;
    append_u8(&record, 4);  // a number
    append_u64(&record, 1);
    append_u64(&record, drawn);
    append_u64(&record, 0);
    append_u64(&record, 0);
    AttributeTable table;
    EXPECT_EQ(table.replay(record).code(), Code::kCorruption);
  }
}

TEST(AttributeTable, ASealedFileDoesNotChange) {
  AttributeTable table;
  ASSERT_TRUE(ask(&table, request(AttributeOp::kCreate, "f")).ok());
  const AttributeRequest seal = request(AttributeOp::kSeal, "f");
  EXPECT_EQ(ask(&table, seal)->follow_up, FollowUp::kCollect);
  std::string record;
  const auto sealed = table.followed(seal, FollowUp::kCollect, 0, "runs", &record);
  EXPECT_TRUE(sealed->attributes.sealed);
  EXPECT_EQ(sealed->table, "runs");
  EXPECT_EQ(ask(&table, request(AttributeOp::kOpen, "f"))->answer.table, "runs");
  EXPECT_EQ(ask(&table, request(AttributeOp::kStat, "f"))->answer.table, "");
  EXPECT_EQ(ask(&table, request(AttributeOp::kTruncate, "f", 1, 1)).status().code(), Code::kInvalidArgument);
  AttributeRequest close = request(AttributeOp::kClose, "f");
  close.size = 10;
  close.generation = UINT64_MAX;
  EXPECT_EQ(ask(&table, close)->answer.attributes.size, 0u);
}

TEST(AttributeRequests, AnyBytesAreDecodedOrRefused) {
  Rng rng(4);
  const std::string whole = [] {
    std::string out;
    append_request(&out, request(AttributeOp::kTruncate, "name", 2, 3));
    return out;
  }();
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    Decoder in(Bytes(whole).substr(0, cut));
    EXPECT_FALSE(read_request(&in).ok());
  }
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = whole;
    damaged[rng.below(damaged.size())] = static_cast<char>(rng.next());
    Decoder in(damaged);
    static_cast<void>(read_request(&in));
  }
}

// ---- the log

AttributeRequest any_request(Rng& rng, uint64_t number) {
  AttributeRequest made = request(static_cast<AttributeOp>(1 + rng.below(8)),
                                  fmt::format("file {}", rng.below(5)), 1 + rng.below(3), number);
  made.size = rng.below(1000);
  made.generation = rng.below(40);
  made.time_ns = static_cast<int64_t>(rng.below(1000));
  return made;
}

// One change, with its second half if there is one, and their records.
void any_change(Rng& rng, uint64_t number, AttributeStore* store) {
  AttributeTable& table = store->table();
  std::string record;
  const AttributeRequest what = any_request(rng, number);
  if (rng.chance(1, 12)) {
    rng.chance(1, 2) ? table.refuse_puts(what.file, &record) : table.allow_puts(what.file, &record);
    return store->add(record);
  }
  const auto applied = table.apply(what, &record);
  store->add(record);
  if (!applied.ok() || applied->follow_up == FollowUp::kNone || rng.chance(1, 3)) return;
  record.clear();
  static_cast<void>(table.followed(what, applied->follow_up, applied->answer.attributes.generation,
                                   std::string(rng.below(100), 'r'), &record));
  store->add(record);
}

TEST(AttributeTable, TheRecordsMakeTheSameTable) {
  Rng rng(8);
  AttributeTable table, replayed;
  for (uint64_t i = 1; i < 3000; ++i) {
    std::string record;
    const AttributeRequest what = any_request(rng, i);
    const auto applied = table.apply(what, &record);
    ASSERT_TRUE(record.empty() || replayed.replay(record).ok());
    if (applied.ok() && applied->follow_up != FollowUp::kNone && rng.chance(2, 3)) {
      record.clear();
      static_cast<void>(
          table.followed(what, applied->follow_up, applied->answer.attributes.generation, "table", &record));
      ASSERT_TRUE(record.empty() || replayed.replay(record).ok());
    }
    ASSERT_EQ(dump(table), dump(replayed)) << "after " << i;
  }
  AttributeTable copy;  // and so does a snapshot
  table.for_each_record([&](Bytes record) { ASSERT_TRUE(copy.replay(record).ok()); });
  EXPECT_EQ(dump(copy), dump(table));
}

Result<std::unique_ptr<AttributeStore>> open(io::Device& device, AttributeRecovery* report = nullptr,
                                             uint64_t compact_bytes_min = 16 * kMiB) {
  return AttributeStore::open(
      device, {.directory = "store", .server = 3, .compact_bytes_min = compact_bytes_min}, report);
}

Status commit(AttributeStore* store) {
  if (std::unique_ptr<Work> work = store->next_commit()) {
    work->run();
    return store->finish(std::move(work));
  }
  return {};
}

// Changes a store until the n-th call of storage, at which the power goes. What is wrong with what is found
// afterwards; "": nothing. `calls`: how many calls there were before the end. Every other seed compacts its
// log again and again.
std::string crash_at(uint64_t nth, uint64_t seed, bool drop_syncs, uint64_t* calls,
                     uint64_t* compactions = nullptr) {
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
  std::vector<std::string> states;  // that may be found
  const std::string empty = dump(AttributeTable());
  states = {empty};
  uint64_t number = 0;
  for (int job = 0; job < 3 && !down; ++job) {
    auto store = open(device, nullptr, seed % 2 == 0 ? 16 * kMiB : 200);
    if (!store.ok()) {
      if (!down) return store.status().to_string();
      break;
    }
    if (dump((*store)->table()) != states.back()) return "a reopened store has another table";
    for (int group = 0; group < 6 && !down; ++group) {
      for (uint64_t n = rng.below(5); n > 0; --n) any_change(rng, ++number, store->get());
      states = {states.back(), dump((*store)->table())};
      const Status done = commit(store->get());
      if (done.ok() && !down) states = {states[1]};
      if (!done.ok() && !down) return done.to_string();
    }
    if (compactions != nullptr) *compactions += (*store)->compactions();
  }
  *calls = call;
  memory.crash(rng, rng.chance(1, 2) ? io::CrashMode::kTearPages : io::CrashMode::kDropAll);
  AttributeRecovery report;
  const auto found = AttributeStore::read(memory, "store", 3, &report);
  if (!found.ok()) return found.status().to_string();
  const std::string state = report.job == 0 ? empty : dump(**found);
  if (std::find(states.begin(), states.end(), state) == states.end())
    return "another table than was acknowledged";
  return "";
}

TEST(AttributeStore, KeepsWhatItAcknowledgedWhenThePowerGoesAtAnyCall) {
  uint64_t points = 0, compactions = 0;
  const char* text = std::getenv("SWALE_META_CRASHES");
  const uint64_t seeds = text == nullptr ? 6 : static_cast<uint64_t>(std::atoi(text));
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    uint64_t calls = UINT64_MAX;
    for (uint64_t nth = 0; nth < calls; ++nth, ++points) {
      uint64_t made = 0;
      ASSERT_EQ(crash_at(nth, seed, false, &made, &compactions), "") << "call " << nth << ", seed " << seed;
      if (made <= nth) calls = made;
    }
  }
  std::printf("%lu points of failure, %lu compactions\n", static_cast<unsigned long>(points),
              static_cast<unsigned long>(compactions));
  EXPECT_GT(points, 100u);
  EXPECT_GT(compactions, points / 8);  // compilers order the random changes differently
}

TEST(AttributeStore, CanaryADeviceThatDoesNotSyncIsSeen) {
  int seen = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    uint64_t calls = 0;
    seen += !crash_at(UINT64_MAX, seed, true, &calls).empty();
  }
  EXPECT_GT(seen, 5);
}

TEST(AttributeStore, AFailedSyncMakesItReadOnlyAndTakesBackWhatWasNotDurable) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  io::FaultDevice device(memory);
  auto store = open(device);
  ASSERT_TRUE(store.ok());
  const auto change = [&](const AttributeRequest& what) {
    std::string record;
    ASSERT_TRUE((*store)->table().apply(what, &record).ok());
    (*store)->add(record);
  };
  change(request(AttributeOp::kCreate, "kept"));
  ASSERT_TRUE(commit(store->get()).ok());
  device.inject({.kind = io::CallKind::kSync});
  change(request(AttributeOp::kCreate, "lost"));
  const Status failed = commit(store->get());
  EXPECT_THAT(std::string(failed.message()), HasSubstr("can no longer be changed"));
  EXPECT_EQ((*store)->health().code(), failed.code());
  EXPECT_NE((*store)->table().find("kept"), nullptr);
  EXPECT_EQ((*store)->table().find("lost"), nullptr);
  EXPECT_EQ((*store)->next_commit(), nullptr);
}

Status close_file(AttributeStore* store, uint64_t size) {
  std::string record;
  AttributeRequest what = request(AttributeOp::kClose, "f", 1, size);
  what.size = size;
  what.generation = 100;
  const auto applied = store->table().apply(what, &record);
  store->add(record);
  return applied.status();
}

TEST(AttributeStore, CompactsItsLogWhileItRuns) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  auto store = open(memory, nullptr, 2000);
  ASSERT_TRUE(store.ok());
  std::string record;
  ASSERT_TRUE((*store)->table().apply(request(AttributeOp::kCreate, "f"), &record).ok());
  (*store)->add(record);
  for (uint64_t size = 1; size <= 1000; ++size) {
    ASSERT_TRUE(close_file(store->get(), size).ok());
    const uint64_t group = (*store)->covering_group();
    ASSERT_TRUE(commit(store->get()).ok());
    ASSERT_LE(group, (*store)->durable_group());
    ASSERT_LT((*store)->log_bytes(), 2500u);
    ASSERT_TRUE((*store)->fence().ok());
  }
  EXPECT_GT((*store)->compactions(), 20u);
  EXPECT_EQ(memory.list("store")->size(), 1u);  // the older logs are gone
  // A change that comes while a compaction is under way is not lost, and a later job fences this one.
  std::unique_ptr<Work> work;
  const uint64_t enough = (*store)->compactions() + 5;
  for (uint64_t size = 1001; (*store)->compactions() < enough; size += 2) {
    ASSERT_TRUE(close_file(store->get(), size).ok());
    work = (*store)->next_commit();
    ASSERT_TRUE(close_file(store->get(), size + 1).ok());
    work->run();
    ASSERT_TRUE((*store)->finish(std::move(work)).ok());
    ASSERT_TRUE(commit(store->get()).ok());
    ASSERT_EQ((*store)->covering_group(), (*store)->durable_group());
  }
  const std::string before = dump((*store)->table());
  auto second = open(memory);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_EQ(dump((*second)->table()), before);
  ASSERT_TRUE(close_file(store->get(), 1 << 20).ok());
  EXPECT_THAT(std::string(commit(store->get()).message()), HasSubstr("another job has opened"));
}

TEST(AttributeStore, GoesOnWhenAFullDiskHasSpaceAgain) {
  for (const uint64_t compact_bytes_min : {uint64_t{200}, uint64_t{16 * kMiB}}) {
    io::MemoryDevice memory;
    ASSERT_TRUE(memory.make_directory("store").ok());
    io::FaultDevice device(memory);
    auto store = open(device, nullptr, compact_bytes_min);
    ASSERT_TRUE(store.ok());
    std::string record;
    ASSERT_TRUE((*store)->table().apply(request(AttributeOp::kCreate, "f"), &record).ok());
    (*store)->add(record);
    ASSERT_TRUE(commit(store->get()).ok());
    uint64_t kept = 0, refused = 0;
    for (uint64_t size = 1; size <= 300; ++size) {
      if (size * 7 % 10 < 3) {
        device.inject({.action = io::FaultAction::kTear,
                       .kind = io::CallKind::kWrite,
                       .from_then_on = true,
                       .status = error(Code::kNoSpace, Scope::kFile, "no space left on the device"),
                       .position = size});
      }
      ASSERT_TRUE(close_file(store->get(), size).ok());
      Status done = commit(store->get());
      if (done.ok() && (*store)->covering_group() != (*store)->durable_group())
        done = commit(store->get());  // after a compaction that found no space
      device.clear();
      ASSERT_EQ((*store)->covering_group(), (*store)->durable_group());
      if (!done.ok()) {
        EXPECT_EQ(done.code(), Code::kNoSpace);
        ++refused;
      } else {
        kept = size;
      }
      ASSERT_TRUE((*store)->health().ok());
      ASSERT_EQ((*store)->table().find("f")->size, kept);
      const auto found =
          AttributeStore::read(memory, "store", 3, std::make_unique<AttributeRecovery>().get());
      ASSERT_TRUE(found.ok()) << found.status().to_string();
      ASSERT_EQ((*found)->find("f")->size, kept);
    }
    EXPECT_EQ(refused, 90u);
    EXPECT_EQ((*store)->compactions() > 0, compact_bytes_min == 200);
  }
}

// More than recovery takes for one group comes while a commit is under way.
TEST(AttributeStore, WhatIsAddedAtATimeIsReadBackHoweverMuchItIs) {
  constexpr uint64_t kFiles = 1100;  // sealed, with tables of 64 KiB
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  const AttributeStoreOptions options{.directory = "store", .tables_bytes_max = 256 * kMiB};
  auto store = AttributeStore::open(memory, options);
  ASSERT_TRUE(store.ok());
  for (uint64_t i = 0; i < kFiles; ++i) {
    const std::string name = fmt::format("f{}", i);
    std::string made, sealed;
    ASSERT_TRUE((*store)->table().apply(request(AttributeOp::kCreate, name), &made).ok());
    (*store)->add(made);
    ASSERT_TRUE((*store)
                    ->table()
                    .followed(request(AttributeOp::kSeal, name), FollowUp::kCollect, 0,
                              std::string(64 * kKiB, 't'), &sealed)
                    .ok());
    (*store)->add(sealed);
  }
  const uint64_t last = (*store)->covering_group();
  while ((*store)->durable_group() < last) ASSERT_TRUE(commit(store->get()).ok());
  EXPECT_EQ((*store)->next_commit(), nullptr);
  EXPECT_EQ((*store)->table().changes(), 0u);
  store->reset();
  AttributeRecovery report;
  const auto found = AttributeStore::read(memory, "store", 0, &report);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(report.torn_bytes, 0u);
  EXPECT_EQ((*found)->files(), kFiles);
}

// One that fails voids those after it, and the table takes back what they have.
TEST(AttributeStore, OfTwoOpenGroupsTheFirstMayBeDurableAlone) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  io::FaultDevice device(memory);
  auto store = AttributeStore::open(device, {.directory = "store", .group_bytes_max = 1});
  ASSERT_TRUE(store.ok());
  for (const char* const name : {"first", "second", "third"}) {
    std::string record;
    ASSERT_TRUE((*store)->table().apply(request(AttributeOp::kCreate, name), &record).ok());
    (*store)->add(record);
  }
  EXPECT_EQ((*store)->covering_group(), 3u);
  ASSERT_TRUE(commit(store->get()).ok());
  EXPECT_EQ((*store)->durable_group(), 1u);
  device.inject({.kind = io::CallKind::kWrite,
                 .status = error(Code::kNoSpace, Scope::kFile, "no space left on the device")});
  EXPECT_EQ(commit(store->get()).code(), Code::kNoSpace);
  EXPECT_EQ((*store)->covering_group(), 1u);
  EXPECT_NE((*store)->table().find("first"), nullptr);
  EXPECT_EQ((*store)->table().files(), 1u);
}

TEST(AttributeStore, AFlippedBitIsAnErrorOrATornTailNeverOtherAttributes) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  std::vector<std::string> states;
  {
    auto store = open(memory);
    states.push_back(dump((*store)->table()));
    for (int i = 0; i < 6; ++i) {
      std::string record;
      ASSERT_TRUE(
          (*store)->table().apply(request(AttributeOp::kCreate, fmt::format("f{}", i)), &record).ok());
      (*store)->add(record);
      ASSERT_TRUE(commit(store->get()).ok());
      states.push_back(dump((*store)->table()));
    }
  }
  auto file = memory.open("store/attributes-00003.j0001.log", io::OpenMode::kReadWrite);
  ASSERT_TRUE(file.ok());
  const uint64_t size = *(*file)->size();
  uint64_t errors = 0, torn = 0;
  for (uint64_t bit = 0; bit < size * 8; bit += 3) {
    char byte = 0;
    ASSERT_TRUE((*file)->pread(bit / 8, {&byte, 1}).ok());
    const char flipped = static_cast<char>(byte ^ (1 << bit % 8));
    ASSERT_TRUE((*file)->pwrite(bit / 8, {&flipped, 1}).ok());
    AttributeRecovery report;
    const auto found = AttributeStore::read(memory, "store", 3, &report);
    ASSERT_TRUE((*file)->pwrite(bit / 8, {&byte, 1}).ok());
    if (!found.ok()) {
      ++errors;
      continue;
    }
    ++torn;  // of the last group alone: nobody can tell it from one that was never acknowledged
    ASSERT_GT(report.torn_bytes, 0u) << "bit " << bit;
    ASSERT_EQ(dump(**found), states[states.size() - 2]) << "bit " << bit;
  }
  EXPECT_GT(errors, torn);
}

// The log of a store, with half a record more at the end of the group that begins at `at`, and the right
// checksum.
std::string with_half_a_record(std::string log, size_t at) {
  const size_t bytes = 24 + get_u32(log.data() + at + 8);
  const std::string half = "\x50half";  // of 80 bytes
  log.insert(at + bytes, half);
  put_u32(&log[at + 8], static_cast<uint32_t>(bytes - 24 + half.size()));
  put_u32(&log[at + 4], crc32c(Bytes(log).substr(at + 8, bytes - 8 + half.size())));
  return log;
}

TEST(AttributeStore, HalfARecordEndsTheLastGroupAndDamagesAnEarlierOne) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  const std::string path = "store/attributes-00003.j0001.log";
  std::vector<size_t> groups;
  std::string state;
  {
    auto store = open(memory);
    for (const char* const name : {"first", "second"}) {
      groups.push_back((*store)->log_bytes());
      std::string record;
      ASSERT_TRUE((*store)->table().apply(request(AttributeOp::kCreate, name), &record).ok());
      (*store)->add(record);
      ASSERT_TRUE(commit(store->get()).ok());
    }
    state = dump((*store)->table());
  }
  const std::string log = *io::read_file(memory, path, kMiB);
  AttributeRecovery report;
  ASSERT_TRUE(io::replace_file(memory, path, with_half_a_record(log, groups[0])).ok());
  EXPECT_EQ(AttributeStore::read(memory, "store", 3, &report).status().code(), Code::kCorruption);
  ASSERT_TRUE(io::replace_file(memory, path, with_half_a_record(log, groups[1])).ok());
  const auto found = AttributeStore::read(memory, "store", 3, &report);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(dump(**found), state);
  EXPECT_EQ(report.torn_bytes, 5u);
}

TEST(AttributeStore, AJobWhoseStoreAnotherOneHasOpenedAcknowledgesNothingMore) {
  io::MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("store").ok());
  AttributeRecovery report;
  auto first = open(memory);
  ASSERT_TRUE(first.ok());
  std::string record;
  ASSERT_TRUE((*first)->table().apply(request(AttributeOp::kCreate, "f"), &record).ok());
  (*first)->add(record);
  ASSERT_TRUE(commit(first->get()).ok());
  auto second = open(memory, &report);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(report.job, 1u);
  EXPECT_EQ((*second)->job(), 2u);
  EXPECT_NE((*second)->table().find("f"), nullptr);
  record.clear();
  ASSERT_TRUE((*first)->table().apply(request(AttributeOp::kCreate, "g"), &record).ok());
  (*first)->add(record);
  const Status refused = commit(first->get());
  EXPECT_THAT(std::string(refused.message()), HasSubstr("another job has opened"));
  EXPECT_TRUE((*second)->fence().ok());
}

}  // namespace
}  // namespace swale::meta::attributes_test
