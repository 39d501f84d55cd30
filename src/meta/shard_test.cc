// Parts of the shard: blocks of all codecs, runs in layers, clusters; damage to every file; torn logs; limits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/rng.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "meta/block.h"
#include "meta/cluster.h"
#include "meta/run_layers.h"
#include "meta/shard.h"
#include "meta/shard_check.h"
#include "meta/shard_model.h"

namespace swale::meta {
namespace {

constexpr FileId kFile{1, 2};

meta::Run strided(uint64_t offset, uint64_t length, uint64_t count, uint64_t stride, LogId log = 0) {
  meta::Run run;
  run.offset = offset, run.length = length, run.place = {log, 0}, run.levels = 1;
  run.level[0] = {count, stride, length};
  return run;
}

// Blocks.

std::vector<Entry> rows_of(Rng* rng, int kind, size_t count) {
  std::vector<Entry> rows;
  uint64_t offset = kind == 3 ? kOffsetEnd - 10'000'000 : 0;
  for (size_t i = 0; i < count; ++i) {
    Entry row;
    row.file = kind == 2 ? static_cast<uint32_t>(i / 7) : 0;
    if (kind == 2 && i % 7 == 0) offset = 0;
    row.offset = offset;
    row.length = kind == 0 ? 1024 : kind == 1 ? 2040 * (1 + rng->below(4)) : 1 + rng->below(1000);
    row.log = static_cast<LogId>(kind == 0 ? i % 16 : rng->below(1000));
    row.address = kind == 0 ? i / 16 * 1024 : kind == 3 ? rng->next() : rng->below(1 << 20) * 1024;
    row.sequence = kind == 0 ? 5 : 5 + rng->below(3);
    offset = row.end() + (kind == 0 ? 0 : rng->below(5000));
    rows.push_back(row);
  }
  if (kind == 3) rows.back().length = kOffsetEnd - rows.back().offset;
  return rows;
}

TEST(Block, RoundTripsWithEveryCodecAndFindsRows) {
  Rng rng(1);
  for (int kind = 0; kind < 4; ++kind) {
    FileTable files;
    for (uint64_t i = 0; i < 400; ++i) files.index_of({i / 3, i});
    const std::vector<Entry> rows = rows_of(&rng, kind, 2000);
    for (const BlockCodec codec : {BlockCodec::kFrame, BlockCodec::kDeltaOfDelta, BlockCodec::kDeltaLz4,
                                   BlockCodec::kDeltaZstd, BlockCodec::kLz77, BlockCodec::kAuto}) {
      auto encoder = BlockEncoder::create(codec);
      ASSERT_TRUE(encoder.ok());
      size_t done = 0, bytes = 0;
      while (done < rows.size()) {
        std::string block;
        const size_t count = (*encoder)->encode(std::span(rows).subspan(done), files, kBlockBytes, &block);
        ASSERT_GT(count, 0u);
        ASSERT_LE(block.size(), kBlockBytes);
        bytes += block.size();
        const size_t size = block.size();
        block.append(kColumnSlackBytes, '\0');
        const auto view = BlockView::parse(Bytes(block).substr(0, size), "test");
        ASSERT_TRUE(view.ok()) << view.status().to_string();
        ASSERT_EQ(view->rows(), count);
        for (size_t i = 0; i < count; ++i) {
          const Entry& expected = rows[done + i];
          const Entry row = view->row(i);
          ASSERT_EQ(view->file_id(row.file), files.id(expected.file));
          ASSERT_EQ(std::tuple(row.offset, row.length, row.address, row.log, row.sequence),
                    std::tuple(expected.offset, expected.length, expected.address, expected.log,
                               expected.sequence));
          const FileId& id = files.id(expected.file);
          ASSERT_EQ(view->find(id, row.offset), i);
          ASSERT_EQ(view->find(id, row.end() - 1), i);
          if (row.offset > 0 && (i == 0 || rows[done + i - 1].offset < row.offset - 1)) {
            ASSERT_EQ(view->find(id, row.offset - 1), i == 0 ? count : i - 1);
          }
        }
        done += count;
      }
      if (kind == 0 && codec == BlockCodec::kAuto) {
        EXPECT_LT(bytes, 3 * rows.size());
      }
    }
  }
}

TEST(Block, RandomSegmentsTakeThreeBytes) {
  FileTable files;
  files.index_of(kFile);
  Rng rng(3);
  std::vector<Entry> rows;
  for (uint64_t i = 0; i < 100'000; ++i)
    rows.push_back({i * 1024, 1024, rng.below(1 << 18) * 1024, 9, static_cast<LogId>(rng.below(16)), 0});
  auto encoder = BlockEncoder::create(BlockCodec::kAuto);
  size_t done = 0, bytes = 0;
  for (std::string block; done < rows.size(); block.clear()) {
    done += (*encoder)->encode(std::span(rows).subspan(done), files, kBlockBytes, &block);
    bytes += round_up(block.size(), kBlockBytes);
  }
  EXPECT_LT(bytes, 3 * rows.size());  // 18 bits of address and 4 of log are 2.75
}

// Runs.

TEST(RunLayers, StridedClientsShareOneLayerAndJoin) {
  RunLayers layers;
  Sequence sequence = 1;
  for (uint64_t batch = 0; batch < 10; ++batch) {
    for (uint32_t client = 0; client < 16; ++client) {
      meta::Run run = strided((batch * 1000 * 16 + client) * 1024, 1024, 1000, 16 * 1024, client);
      run.place.address = batch * 1000 * 1024;
      layers.insert(run, sequence++, 0);
    }
  }
  EXPECT_EQ(layers.layers(), 1u);
  EXPECT_EQ(layers.runs(), 16u);
}

TEST(RunLayers, OverlappingLatticesDoNotExplode) {
  // 2^30 blocks each, strides without common factors: expanded they would be 2^40 extents.
  RunLayers layers;
  std::vector<meta::Run> runs;
  for (uint64_t i = 0; i < 1000; ++i) {
    const meta::Run run = strided(i * 7, 3, uint64_t{1} << 30, 1000 + i % 8, static_cast<LogId>(i));
    runs.push_back(run);
    if (layers.fits(run, 16)) layers.insert(run, i + 1, ~Sequence{0});
  }
  EXPECT_LE(layers.runs(), 1000u);
  EXPECT_LE(layers.layers(), 16u);
  EXPECT_LT(layers.memory_bytes(), 1000u * 400);
  Rng rng(1);
  std::vector<StoredRun> found;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t at = rng.below(uint64_t{1} << 40);
    found.clear();
    layers.find(at, at + 1, &found);
    std::vector<Sequence> expected, got;
    layers.for_each([&](const meta::Run& run, Sequence sequence) {
      if (touches(run, at, at + 1)) expected.push_back(sequence);
    });
    for (const StoredRun& run : found) got.push_back(run.sequence);
    std::sort(expected.begin(), expected.end());
    std::sort(got.begin(), got.end());
    ASSERT_EQ(got, expected);
  }
}

TEST(RunLayers, RewritingTheSamePatternKeepsOneRun) {
  RunLayers layers;
  for (Sequence s = 1; s <= 100; ++s) layers.insert(strided(5, 10, 50, 64), s, ~Sequence{0});
  EXPECT_EQ(layers.runs(), 1u);
}

// Clusters.

TEST(Cluster, FollowsThePapersExample) {
  // Figure 6: at 80 %, two blanks in ten blocks are one region.
  std::vector<WantedBlock> wanted;
  for (const uint32_t block : {0u, 1u, 2u, 4u, 5u, 7u, 8u, 9u}) wanted.push_back({block, 1});
  const std::vector<Region> regions = cluster_blocks(wanted, 80, 256);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].blocks(), 10u);
  EXPECT_EQ(regions[0].wanted, 8u);
}

TEST(Cluster, GreedyIsNeverBetterThanBruteForceAndOftenEqual) {
  Rng rng(4);
  uint64_t cases = 0, worse = 0, greedy_sum = 0, best_sum = 0, means_sum = 0;
  for (int i = 0; i < 300; ++i, ++cases) {
    std::vector<WantedBlock> wanted;
    const uint64_t chance = 20 + rng.below(75);
    for (uint32_t block = 0; block < 60; ++block) {
      if (rng.chance(chance, 100)) wanted.push_back({block, 1 + rng.below(4)});
    }
    const auto greedy = cluster_blocks(wanted, 80, 256), best = brute_force(wanted, 80, 256),
               means = k_means(wanted, 80, 256);
    for (const auto* regions : {&greedy, &best, &means}) {
      uint64_t covered = 0;
      for (const Region& region : *regions) {
        EXPECT_TRUE(local_enough(region.wanted, region.blocks(), 80));
        covered += region.wanted;
      }
      EXPECT_EQ(covered, wanted.size());
    }
    ASSERT_LE(best.size(), greedy.size());
    ASSERT_LE(best.size(), means.size());
    worse += greedy.size() > best.size() ? 1 : 0;
    greedy_sum += greedy.size(), best_sum += best.size(), means_sum += means.size();
  }
  std::printf("regions of %llu cases: optimum %llu, Algorithm 1 %llu (worse in %llu cases), K-means %llu\n",
              static_cast<unsigned long long>(cases), static_cast<unsigned long long>(best_sum),
              static_cast<unsigned long long>(greedy_sum), static_cast<unsigned long long>(worse),
              static_cast<unsigned long long>(means_sum));
  EXPECT_GT(worse, 0u);  // it is greedy
}

TEST(Cluster, TheQueueGivesEveryRequestOnceDensestFirst) {
  Rng rng(5);
  ClusterQueue queue(256, 80, 256);
  for (int i = 0; i < 400; ++i) queue.add(static_cast<uint32_t>(rng.below(256)));
  for (int i = 0; i < 50; ++i) queue.add(100);
  uint64_t taken = 0;
  bool first = true;
  while (!queue.empty()) {
    const Region region = queue.take();
    if (first) {
      EXPECT_TRUE(region.first <= 100 && 100 <= region.last);
    }
    first = false;
    taken += region.requests;
  }
  EXPECT_EQ(taken, 450u);
}

// Shards.

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
    const std::string bytes = *io::read_file(store.disk, "/s/" + name, kGiB);
    const bool log = name.find(".log-") != std::string::npos;
    for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 150, ++visited) {
      io::MemoryDevice copy;
      ASSERT_TRUE(copy.make_directory("/s").ok());
      for (const std::string& each : *names) {
        std::string damaged = *io::read_file(store.disk, "/s/" + each, kGiB);
        if (each == name) damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
        ASSERT_TRUE(io::replace_file(copy, "/s/" + each, damaged).ok());
      }
      ShardOptions options = store.options;
      options.job = 2;
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

TEST(Shard, SkipsATornEndOfTheLogAndReportsIt) {
  Store store;
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(store.put({{i * 10, 10, {1, i * 1000}}}).ok());
  store.shard.reset();
  std::string log = "/s/shard-000000.j0001.log-000001";
  const std::string bytes = *io::read_file(store.disk, log, kGiB);
  uint64_t whole = 0;
  for (size_t length = 0; length <= bytes.size(); ++length) {
    ASSERT_TRUE(io::replace_file(store.disk, log, Bytes(bytes).substr(0, length)).ok());
    io::MemoryDevice copy;
    ASSERT_TRUE(copy.make_directory("/s").ok());
    const auto names = store.disk.list("/s");
    for (const std::string& each : *names)
      ASSERT_TRUE(io::replace_file(copy, "/s/" + each, *io::read_file(store.disk, "/s/" + each, kGiB)).ok());
    ShardOptions options = store.options;
    options.job = 2;
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
  store.options.job = 2;
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
  store.options.job = 3;
  ASSERT_TRUE(store.open().ok());
  EXPECT_GE(content(*store.shard, &status).size(), 1u);
}

TEST(Shard, AFullDiskIsNamed) {
  Store store;
  io::FaultDevice faulty(store.disk);
  store.options.job = 2;
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

TEST(Shard, RetriesAreKnownAfterARestart) {
  Store store;
  const Extent extent{0, 10, {1, 0}}, newer{0, 10, {2, 0}};
  const Put put{kFile, std::span(&extent, 1), {}, {}}, second{kFile, std::span(&newer, 1), {}, {}};
  ASSERT_TRUE(store.shard->put({7, 1}, std::span(&put, 1)).ok());
  ASSERT_TRUE(store.shard->put({7, 2}, std::span(&second, 1)).ok());
  for (int restart = 0; restart < 2; ++restart) {
    ASSERT_TRUE(restart == 0 ? store.shard->commit().ok() : store.shard->drain().ok());
    ++store.options.job;
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
  ShardOptions next = store.options;
  next.job = 2;
  auto second = Shard::open(store.disk, next);
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(store.put({{0, 10, {9, 0}}}).ok());  // a survivor of job 1 that nobody has fenced
  second->reset();
  next.job = 3;
  auto third = Shard::open(store.disk, next);
  ASSERT_TRUE(third.ok()) << third.status().to_string();
  Status status;
  EXPECT_EQ(content(**third, &status), (std::vector<Extent>{{0, 10, {1, 0}}}));
  EXPECT_EQ(Shard::open(store.disk, next).status().code(), Code::kAlreadyExists);
}

TEST(Shard, TheFenceStopsACommit) {
  Store store;
  store.options.job = 2;
  store.options.fence = [] { return error(Code::kAborted, Scope::kFatal, "the lock is lost"); };
  EXPECT_EQ(store.open().code(), Code::kAborted);
}

TEST(Shard, QueriesOfRunsAreAnsweredInRuns) {
  Store store;
  std::vector<meta::Run> runs;
  for (uint32_t client = 0; client < 16; ++client)
    runs.push_back(strided(client * 1024, 1024, 1'000'000, 16 * 1024, client));
  ASSERT_TRUE(store.put({}, runs).ok());
  const meta::Run query = strided(3 * 1024 + 16 * 1024 * 500, 1024, 64'000, 16 * 1024);
  std::vector<meta::Run> found;
  ASSERT_TRUE(store.shard->lookup_runs(kFile, std::span(&query, 1), 10, &found).ok());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].place, (Place{3, 500 * 1024}));
  EXPECT_EQ(blocks_of(found[0]), 64'000u);
  // An extent elsewhere in the file does not matter, one in the query's blocks does.
  ASSERT_TRUE(store.put({{1024, 10, {20, 0}}}).ok());
  found.clear();
  ASSERT_TRUE(store.shard->lookup_runs(kFile, std::span(&query, 1), 10, &found).ok());
  EXPECT_EQ(found.size(), 1u);
  ASSERT_TRUE(store.put({{query.offset, 10, {20, 0}}}).ok());
  found.clear();
  ASSERT_TRUE(store.shard->lookup_runs(kFile, std::span(&query, 1), 1'000'000, &found).ok());
  EXPECT_GT(found.size(), 1u);
  std::vector<meta::Run> table;
  EXPECT_EQ(store.shard->run_table(kFile, 100, nullptr, &table).code(), Code::kResourceExhausted);
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
  store.options.job = 2;
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

TEST(Shard, IsVerifiedAndDumped) {
  Store store;
  fill(&store);
  const auto found = verify_shard(store.disk, "/s", 0);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->problems, std::vector<std::string>());
  EXPECT_EQ(found->tables, 1u);
  EXPECT_EQ(found->runs, 1u);
  EXPECT_EQ(found->groups, 2u);
  size_t lines = 0;
  EXPECT_TRUE(dump_shard(store.disk, "/s", 0, true, [&](const std::string&) { ++lines; }).ok());
  EXPECT_GT(lines, found->entries);
  // Canary: one byte of a block.
  const std::string path = "/s/shard-000000.j0001.sorted-000002";
  std::string bytes = *io::read_file(store.disk, path, kGiB);
  bytes[100] = static_cast<char>(bytes[100] ^ 1);
  ASSERT_TRUE(io::replace_file(store.disk, path, bytes).ok());
  EXPECT_EQ(verify_shard(store.disk, "/s", 0)->problems.size(),
            2u);  // the block; the entries that are missing
  EXPECT_FALSE(dump_shard(store.disk, "/s", 0, false, [](const std::string&) {}).ok());
}

}  // namespace
}  // namespace swale::meta
