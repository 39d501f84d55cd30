// A shard: damage to every file, torn logs, failed storage, retries, restarts, limits. Its parts:
// shard_parts_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/rng.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "meta/index/shard.h"
#include "meta/index/shard_check.h"
#include "meta/index/testing/shard_model.h"
#include "store/record_log.h"

namespace swale::meta::shard_test {
namespace {

constexpr FileId kFile{1, 2};

meta::Run strided(uint64_t offset, uint64_t length, uint64_t count, uint64_t stride, LogId log = 0) {
  meta::Run run;
  run.offset = offset, run.length = length, run.place = {log, 0}, run.levels = 1;
  run.level[0] = {count, stride, length};
  return run;
}

struct Store {
  io::MemoryDevice disk;
  ShardOptions options;
  std::unique_ptr<Shard> shard;

  Store() {
    options.directory = "/s";
    EXPECT_TRUE(disk.make_directory("/s").ok());
    EXPECT_TRUE(open().ok());
  }
  Status open(io::Device* device = nullptr) {
    shard.reset();
    auto opened = Shard::open(device != nullptr ? *device : disk, options);
    if (!opened.ok()) return opened.status();
    shard = *std::move(opened);
    return {};
  }
  Status put(std::vector<Extent> extents, std::vector<meta::Run> runs = {}, const FileId& file = kFile) {
    const Put put{file, extents, runs, {}};
    const auto group = shard->put({}, std::span(&put, 1));
    return group.ok() ? shard->commit() : group.status();
  }
};

std::vector<Extent> content(Shard& shard, Status* status) {
  std::vector<Extent> extents;
  uint64_t next = 0;
  *status = shard.scan(kFile, 0, 1'000'000, nullptr, &extents, &next);
  return extents;
}

// Irregular entries in files and in the log, runs in the snapshot and in the log.
void fill(Store* store) {
  Rng rng(9);
  std::vector<Extent> extents;
  for (uint64_t i = 0; i < 3000; ++i)
    extents.push_back({rng.below(1 << 20), 1 + rng.below(500), {3, i * 500}});
  ASSERT_TRUE(store->put(extents, {strided(2 << 20, 10, 100, 64)}).ok());
  ASSERT_TRUE(store->shard->drain().ok());
  ASSERT_TRUE(store->put({{5, 5, {1, 1}}}, {strided(4 << 20, 10, 100, 64)}).ok());
  ASSERT_TRUE(store->put({{50, 5, {1, 100}}}).ok());
}

TEST(Shard, FlippedBitsGiveErrorsNeverOtherExtents) {
  Store store;
  fill(&store);
  Status status;
  const std::vector<Extent> expected = content(*store.shard, &status);
  ASSERT_TRUE(status.ok());
  store.shard.reset();
  uint64_t visited = 0, refused = 0, torn = 0, unread = 0;
  const auto names = store.disk.list("/s");
  for (const std::string& name : *names) {
    if (name.ends_with(".claims")) continue;  // a folder
    const std::string bytes = *io::read_file(store.disk, "/s/" + name, kGiB);
    const bool log = name.find(".log-") != std::string::npos;
    for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 150, ++visited) {
      io::MemoryDevice copy;
      ASSERT_TRUE(copy.make_directory("/s").ok());
      for (const std::string& each : *names) {
        if (each.ends_with(".claims")) continue;
        std::string damaged = *io::read_file(store.disk, "/s/" + each, kGiB);
        if (each == name) damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
        ASSERT_TRUE(io::replace_file(copy, "/s/" + each, damaged).ok());
      }
      ShardOptions options = store.options;
      RecoveryReport report;
      auto opened = Shard::open(copy, options, &report);
      if (!opened.ok()) {
        ++refused;
        continue;
      }
      const std::vector<Extent> found = content(**opened, &status);
      if (!status.ok()) {
        ++refused;
      } else if (report.torn_bytes != 0) {
        // The last record of a log that nobody closed may have been torn by a crash; what is before it stays.
        ASSERT_TRUE(log);
        ++torn;
      } else {
        ASSERT_EQ(found, expected) << name << " at " << at;
        ++unread;  // padding of pages
      }
    }
  }
  std::printf(
      "%llu flips: %llu refused, %llu taken for a torn end of the log, %llu in bytes that say nothing\n",
      static_cast<unsigned long long>(visited), static_cast<unsigned long long>(refused),
      static_cast<unsigned long long>(torn), static_cast<unsigned long long>(unread));
  EXPECT_GT(refused, visited / 2);
}

// Two full write buffers: the second one takes the memory of the first.
TEST(Shard, HoldsNoBuffersAfterADrain) {
  Store store;
  store.options.write_buffer_entries = 1000;
  ASSERT_TRUE(store.open().ok());
  Rng rng(3);
  for (int batch = 0; batch < 5; ++batch) {
    std::vector<Extent> extents;
    for (uint64_t i = 0; i < 600; ++i)
      extents.push_back({rng.below(1 << 30), 1 + rng.below(500), {3, i * 500}});
    ASSERT_TRUE(store.put(extents).ok());
    while (auto work = store.shard->next_background()) {
      work->run();
      ASSERT_TRUE(store.shard->finish(std::move(work)).ok());
    }
  }
  EXPECT_GT(store.shard->state().buffer_memory_bytes, 40'000u);
  ASSERT_TRUE(store.shard->drain().ok());
  EXPECT_LT(store.shard->state().buffer_memory_bytes, 1000u);
  EXPECT_LT(store.shard->state().index_memory_bytes, 3000u);
}

TEST(Shard, SkipsATornEndOfTheLogAndReportsIt) {
  Store store;
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(store.put({{i * 10, 10, {1, i * 1000}}}).ok());
  store.shard.reset();
  std::string log = "/s/shard-000000.j0001.log-000001";
  const std::string bytes = *io::read_file(store.disk, log, kGiB);
  uint64_t whole = 0;
  for (size_t length = store::kLogHeaderBytes; length <= bytes.size(); ++length) {  // less is damage
    ASSERT_TRUE(io::replace_file(store.disk, log, Bytes(bytes).substr(0, length)).ok());
    io::MemoryDevice copy;
    ASSERT_TRUE(copy.make_directory("/s").ok());
    const auto names = store.disk.list("/s");
    for (const std::string& each : *names) {
      if (each.ends_with(".claims")) continue;  // a folder
      ASSERT_TRUE(io::replace_file(copy, "/s/" + each, *io::read_file(store.disk, "/s/" + each, kGiB)).ok());
    }
    ShardOptions options = store.options;
    RecoveryReport report;
    auto opened = Shard::open(copy, options, &report);
    ASSERT_TRUE(opened.ok()) << length << ": " << opened.status().to_string();
    Status status;
    const std::vector<Extent> found = content(**opened, &status);
    ASSERT_EQ(found.size(), report.groups);  // a prefix
    for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], (Extent{i * 10, 10, {1, i * 1000}}));
    ASSERT_GE(report.groups, whole);
    whole = report.groups;
  }
  EXPECT_EQ(whole, 5u);
}

TEST(Shard, AFailedSyncMakesItReadOnlyAndKeepsTheRest) {
  Store store;
  io::FaultDevice faulty(store.disk);
  ASSERT_TRUE(store.open(&faulty).ok());
  ASSERT_TRUE(store.put({{0, 10, {1, 0}}}).ok());
  faulty.inject({.kind = io::CallKind::kSync});
  const Status failed = store.put({{10, 10, {1, 500}}});
  EXPECT_FALSE(failed.ok());
  EXPECT_NE(failed.message().find("read-only"), std::string_view::npos) << failed.to_string();
  EXPECT_FALSE(store.put({{20, 10, {1, 900}}}).ok());  // and stays so
  Status status;
  EXPECT_EQ(content(*store.shard, &status), (std::vector<Extent>{{0, 10, {1, 0}}}));
  EXPECT_TRUE(status.ok());
  ASSERT_TRUE(store.open().ok());
  EXPECT_GE(content(*store.shard, &status).size(), 1u);
}

TEST(Shard, AFullDiskIsNamed) {
  Store store;
  io::FaultDevice faulty(store.disk);
  ASSERT_TRUE(store.open(&faulty).ok());
  faulty.inject({.kind = io::CallKind::kWrite,
                 .status = error(Code::kNoSpace, Scope::kFile, "no space left on the device")});
  EXPECT_EQ(store.put({{0, 10, {1, 0}}}).code(), Code::kNoSpace);
}

TEST(Shard, RefusesWhatIsNoExtent) {
  Store store;
  for (const Extent& wrong :
       {Extent{0, 0, {1, 0}}, Extent{kOffsetEnd - 1, 2, {1, 0}}, Extent{~0ull, 1, {1, 0}},
        Extent{5, ~0ull, {1, 0}}, Extent{0, 1, {kHoleLog, 0}}}) {
    EXPECT_EQ(store.put({wrong}).code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(store.put({}, {strided(kOffsetEnd - 10, 5, 3, 10)}).code(), Code::kInvalidArgument);
  EXPECT_EQ(store.put({}, {strided(0, 5, 3, 4)}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(store.put({{kOffsetEnd - 1, 1, {1, 7}}}).ok());
  Status status;
  EXPECT_EQ(content(*store.shard, &status), (std::vector<Extent>{{kOffsetEnd - 1, 1, {1, 7}}}));
  Found found;
  const Range beyond{kFile, kOffsetEnd, 1};
  EXPECT_EQ(store.shard->lookup(std::span(&beyond, 1), 10, &found).code(), Code::kInvalidArgument);
}

TEST(Shard, AGroupIsVisibleWhenItIsDurableAndNotBefore) {
  Store store;
  const Extent extent{0, 10, {1, 0}};
  const Put put{kFile, std::span(&extent, 1), {}, {}};
  const auto group = store.shard->put({7, 1}, std::span(&put, 1));
  ASSERT_TRUE(group.ok());
  Status status;
  EXPECT_TRUE(content(*store.shard, &status).empty());
  std::unique_ptr<Work> work = store.shard->next_commit();
  work->run();
  EXPECT_TRUE(content(*store.shard, &status).empty());
  EXPECT_EQ(*store.shard->put({7, 1}, std::span(&put, 1)), *group);  // the retry waits for the same group
  ASSERT_TRUE(store.shard->finish(std::move(work)).ok());
  EXPECT_EQ(store.shard->durable_group(), *group);
  EXPECT_EQ(content(*store.shard, &status).size(), 1u);
  EXPECT_EQ(store.shard->counters().duplicates, 1u);
}

// A second client trims what is being trimmed.
TEST(Shard, ATruncateThatAddsNothingWaitsForTheOneThatDid) {
  Store store;
  ASSERT_TRUE(store.put({{0, 10, {1, 0}}}).ok());
  const auto first = store.shard->truncate({7, 1}, kFile, 5, 2);
  ASSERT_TRUE(first.ok());
  std::unique_ptr<Work> work = store.shard->next_commit();
  EXPECT_EQ(*store.shard->truncate({}, kFile, 5, 2), *first);
  work->run();
  ASSERT_TRUE(store.shard->finish(std::move(work)).ok());
  EXPECT_GE(store.shard->durable_group(), *first);
}

TEST(Shard, RetriesAreKnownAfterARestart) {
  Store store;
  const Extent extent{0, 10, {1, 0}}, newer{0, 10, {2, 0}};
  const Put put{kFile, std::span(&extent, 1), {}, {}}, second{kFile, std::span(&newer, 1), {}, {}};
  ASSERT_TRUE(store.shard->put({7, 1}, std::span(&put, 1)).ok());
  ASSERT_TRUE(store.shard->put({7, 2}, std::span(&second, 1)).ok());
  for (int restart = 0; restart < 2; ++restart) {
    ASSERT_TRUE(restart == 0 ? store.shard->commit().ok() : store.shard->drain().ok());
    ASSERT_TRUE(store.open().ok());
    ASSERT_TRUE(store.shard->put({7, 1}, std::span(&put, 1)).ok());  // must not win over number 2
    ASSERT_TRUE(store.shard->commit().ok());
    Status status;
    EXPECT_EQ(content(*store.shard, &status), (std::vector<Extent>{newer}));
  }
}

TEST(Shard, AnOlderJobIsRefusedAndItsLateRecordsDoNotCount) {
  Store store;
  ASSERT_TRUE(store.put({{0, 10, {1, 0}}}).ok());
  auto second = Shard::open(store.disk, store.options);
  ASSERT_TRUE(second.ok());
  const Status late = store.put({{0, 10, {9, 0}}});  // its record is in the log of job 1
  EXPECT_EQ(late.code(), Code::kAborted);
  EXPECT_NE(late.message().find("job 2 has opened the directory after this one (job 1)"),
            std::string_view::npos)
      << late.to_string();
  second->reset();
  auto third = Shard::open(store.disk, store.options);
  ASSERT_TRUE(third.ok()) << third.status().to_string();
  Status status;
  EXPECT_EQ(content(**third, &status), (std::vector<Extent>{{0, 10, {1, 0}}}));
  EXPECT_EQ((*third)->job(), 3u);
}

// A job claims the shard at every call of storage of another one's opening, which then goes on.
TEST(Shard, AnOpeningThatIsOvertakenAtAnyCallFailsOrAcknowledgesNothing) {
  uint64_t refused = 0, fenced = 0;
  for (uint64_t nth = 1;; ++nth) {
    Store store;
    ASSERT_TRUE(store.put({{0, 10, {1, 0}}}).ok());
    store.shard.reset();
    io::FaultDevice device(store.disk);
    uint64_t call = 0;
    std::unique_ptr<Shard> later;
    device.set_hook([&](const io::Call&) {
      if (++call == nth) later = *Shard::open(store.disk, store.options);
      return ok_status();
    });
    const Status opened = store.open(&device);
    if (later == nullptr) break;
    refused += opened.ok() ? 0 : 1;
    // A claim that comes after the later one's is the newer one.
    if (opened.ok() && store.shard->job() < later->job()) {
      EXPECT_EQ(store.put({{0, 10, {9, 0}}}).code(), Code::kAborted) << nth;
      ++fenced;
    }
    Shard* const newest = opened.ok() && store.shard->job() > later->job() ? store.shard.get() : later.get();
    Status status;
    EXPECT_EQ(content(*newest, &status), (std::vector<Extent>{{0, 10, {1, 0}}})) << nth;
    const Extent more{20, 10, {2, 0}};
    const Put put{kFile, std::span(&more, 1), {}, {}};
    ASSERT_TRUE(newest->put({}, std::span(&put, 1)).ok());
    EXPECT_TRUE(newest->commit().ok()) << nth;
  }
  EXPECT_GT(refused, 3u);
  EXPECT_GT(fenced, 0u);
}

// The manifest says how much of the log was durable.
TEST(Shard, AMissingOrCutLogIsDamage) {
  for (const bool cut : {false, true}) {
    Store store;
    const std::string log = "/s/shard-000000.j0001.log-000001";
    ASSERT_TRUE(store.put({{0, 10, {1, 0}}}).ok());
    store.shard.reset();
    ASSERT_TRUE(cut ? io::replace_file(store.disk, log, "").ok() : store.disk.remove(log).ok());
    const Status missing = store.open();
    EXPECT_EQ(missing.code(), Code::kCorruption);
    EXPECT_NE(missing.message().find(log + ": is missing or was cut at offset 0"), std::string_view::npos)
        << missing.to_string();
    const auto found = verify_shard(store.disk, "/s", 0);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->problems.size(), 1u);
  }
}

TEST(Shard, QueriesOfRunsAreAnsweredInRuns) {
  Store store;
  std::vector<meta::Run> runs;
  for (uint32_t client = 0; client < 16; ++client)
    runs.push_back(strided(client * 1024, 1024, 1'000'000, 16 * 1024, client));
  ASSERT_TRUE(store.put({}, runs).ok());
  const meta::Run query = strided(3 * 1024 + 16 * 1024 * 500, 1024, 64'000, 16 * 1024);
  std::vector<meta::Run> found;
  ASSERT_TRUE(store.shard->lookup_runs(kFile, std::span(&query, 1), 10, &found, nullptr).ok());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].place, (Place{3, 500 * 1024}));
  EXPECT_EQ(blocks_of(found[0]), 64'000u);
  // An extent elsewhere in the file does not matter, one in the query's blocks does.
  ASSERT_TRUE(store.put({{1024, 10, {20, 0}}}).ok());
  found.clear();
  ASSERT_TRUE(store.shard->lookup_runs(kFile, std::span(&query, 1), 10, &found, nullptr).ok());
  EXPECT_EQ(found.size(), 1u);
  ASSERT_TRUE(store.put({{query.offset, 10, {20, 0}}}).ok());
  found.clear();
  ASSERT_TRUE(store.shard->lookup_runs(kFile, std::span(&query, 1), 1'000'000, &found, nullptr).ok());
  EXPECT_GT(found.size(), 1u);
  std::vector<meta::Run> table;
  EXPECT_EQ(store.shard->run_table(kFile, 100, nullptr, &table).code(), Code::kResourceExhausted);
}

// A rank that asks for all of a large file meets what two jobs have put there, in layers of their own. More
// blocks than may be looked up one by one.
TEST(Shard, ALongQueryThatMeetsSeveralLayersIsAnsweredInRuns) {
  Store store;
  constexpr uint64_t kCount = 1 << 20, kBoth = 10, kStride = 64, kBorder = (kCount - kBoth) * kStride;
  ASSERT_TRUE(
      store.put({}, {strided(0, 8, kCount, kStride, 1), strided(kBorder, 8, kCount, kStride, 2)}).ok());
  ASSERT_EQ(store.shard->state().run_layers_max, 2u);
  const meta::Run query = strided(0, 8, 2 * kCount - kBoth, kStride);
  std::vector<meta::Run> found;
  ASSERT_TRUE(store.shard->lookup_runs(kFile, std::span(&query, 1), 10'000, &found, nullptr).ok());
  EXPECT_LT(found.size(), 9000u);  // one by one where the layers meet: two parts of 4,096 at most
  uint64_t bytes = 0;
  for (const meta::Run& run : found) {
    bytes += bytes_of(run);
    for (const uint64_t i : {uint64_t{0}, blocks_of(run) - 1}) {
      const Extent block = block_at(run, i);
      const Place place = block.offset < kBorder ? Place{1, block.offset / kStride * 8}
                                                 : Place{2, (block.offset - kBorder) / kStride * 8};
      ASSERT_EQ(block, (Extent{block.offset / kStride * kStride, 8, place}));
    }
  }
  EXPECT_EQ(bytes, bytes_of(query));
}

TEST(Shard, RetiresRelocationsThatItHasPutIntoEffect) {
  Store store;
  store.options.relocations_retire = 10;
  ASSERT_TRUE(store.open().ok());
  const meta::Run regular = strided(0, 10, 100, 64, 4);
  ASSERT_TRUE(store.put({{1 << 20, 100, {5, 0}}, {2 << 20, 100, {5, 100}}}, {regular}).ok());
  for (uint64_t i = 0; i < 30; ++i) {  // log 5 to 30, half of it on to 40; log 4 whole
    const Relocation rule = i == 7  ? Relocation{4, 0, 10'000, {44, 500}}
                            : i % 2 ? Relocation{30, 50, 150, {40, i * 1000}}
                                    : Relocation{5, 0, 1000, {30, 0}};
    ASSERT_TRUE(store.shard->relocate({}, rule).ok());
    ASSERT_TRUE(store.shard->commit().ok());
    while (std::unique_ptr<Work> work = store.shard->next_background()) {
      work->run();
      ASSERT_TRUE(store.shard->finish(std::move(work)).ok());
    }
  }
  EXPECT_LT(store.shard->state().relocations, 10u);
  ASSERT_TRUE(store.shard->drain().ok());
  EXPECT_EQ(store.shard->state().relocations, 0u);
  for (int restart = 0; restart < 2; ++restart) {
    Status status;
    const std::vector<Extent> all = content(*store.shard, &status);
    ASSERT_EQ(all.size(), 104u);
    EXPECT_EQ(all[99], (Extent{99 * 64, 10, {44, 500 + 990}}));
    EXPECT_EQ(all[100], (Extent{1 << 20, 50, {30, 0}}));
    EXPECT_EQ(all[101], (Extent{(1 << 20) + 50, 50, {40, 1000}}));
    EXPECT_EQ(all[102], (Extent{2 << 20, 50, {40, 1050}}));
    EXPECT_EQ(all[103], (Extent{(2 << 20) + 50, 50, {30, 150}}));
    std::vector<meta::Run> found;  // a query of runs is answered in runs again
    ASSERT_TRUE(store.shard->lookup_runs(kFile, std::span(&regular, 1), 10, &found, nullptr).ok());
    EXPECT_EQ(found.size(), 1u);
    ASSERT_TRUE(store.open().ok());
  }
  // A rule that moves a run in part stays, and so do those after it.
  ASSERT_TRUE(store.shard->relocate({}, {44, 505, 600, {45, 0}}).ok());
  ASSERT_TRUE(store.shard->relocate({}, {30, 0, 10, {46, 0}}).ok());
  ASSERT_TRUE(store.shard->drain().ok());
  EXPECT_EQ(store.shard->state().relocations, 2u);
}

class EverySecondStripe final : public Ownership {
 public:
  std::pair<uint64_t, uint64_t> next_owned(const FileId&, uint64_t from) const override {
    const uint64_t stripe = from / 100 + (from / 100) % 2;
    return {stripe * 100, stripe * 100 + 100};
  }
};

TEST(Shard, ScansAreFilteredByOwnership) {
  Store store;
  ASSERT_TRUE(store.put({{50, 400, {1, 0}}}).ok());
  std::vector<Extent> extents;
  uint64_t next = 0;
  ASSERT_TRUE(
      store.shard->scan(kFile, 0, 100, std::make_unique<EverySecondStripe>().get(), &extents, &next).ok());
  EXPECT_EQ(extents, (std::vector<Extent>{{50, 50, {1, 0}}, {200, 100, {1, 150}}, {400, 50, {1, 350}}}));
}

// For ThreadSanitizer: works on threads of their own beside puts and lookups.
TEST(Shard, WorksRunBesidePutsAndLookups) {
  Store store;
  store.options.write_buffer_entries = 300;
  store.options.compression_buffer_bytes = 2000;
  ASSERT_TRUE(store.open().ok());
  Shard& shard = *store.shard;
  Rng rng(3);
  uint64_t next = 0;
  for (int i = 0; i < 150; ++i) {
    std::unique_ptr<Work> commit = shard.next_commit(), background = shard.next_background();
    std::vector<std::thread> threads;
    if (commit) threads.emplace_back([&] { commit->run(); });
    if (background) threads.emplace_back([&] { background->run(); });
    std::vector<Extent> extents;
    for (int k = 0; k < 40; ++k) extents.push_back({next++ * 10, 10, {1, rng.below(1000)}});
    const Put put{kFile, extents, {}, {}};
    if (shard.accepts()) {
      ASSERT_TRUE(shard.put({}, std::span(&put, 1)).ok());
    } else {
      next -= 40;
    }
    Status status;
    EXPECT_LE(content(shard, &status).size(), next);
    EXPECT_TRUE(status.ok());
    for (std::thread& thread : threads) thread.join();
    if (commit) {
      ASSERT_TRUE(shard.finish(std::move(commit)).ok());
    }
    if (background) {
      ASSERT_TRUE(shard.finish(std::move(background)).ok());
    }
  }
  ASSERT_TRUE(shard.commit().ok());
  EXPECT_GT(shard.counters().flushes, 3u);
  EXPECT_GT(shard.counters().merges, 1u);
  uint64_t bytes = 0;
  Status status;
  for (const Extent& extent : content(shard, &status)) bytes += extent.length;
  EXPECT_EQ(bytes, next * 10);
}

TEST(Shard, IsVerified) {
  Store store;
  fill(&store);
  const auto found = verify_shard(store.disk, "/s", 0);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->problems.empty()) << found->problems.front().to_string();
  EXPECT_EQ(found->tables, 1u);
  EXPECT_EQ(found->runs, 1u);
  EXPECT_EQ(found->groups, 2u);
  // Canary: one byte of a block.
  const std::string path = "/s/shard-000000.j0001.sorted-000002";
  std::string bytes = *io::read_file(store.disk, path, kGiB);
  bytes[100] = static_cast<char>(bytes[100] ^ 1);
  ASSERT_TRUE(io::replace_file(store.disk, path, bytes).ok());
  EXPECT_EQ(verify_shard(store.disk, "/s", 0)->problems.size(),
            2u);  // the block; the entries that are missing
}

}  // namespace
}  // namespace swale::meta::shard_test
