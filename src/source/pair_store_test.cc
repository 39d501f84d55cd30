#include "source/pair_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/fault_device.h"
#include "source/testing/source_test_support.h"

namespace swale::source::pair_store_test {
namespace {

using test::Files;
using test::make_batches;
using test::make_pairs;
using test::make_store;
using test::Ranks;
using test::sorted;
using test::Workload;

std::vector<Pair> all_pairs(PairStore* store, uint32_t shard_bits) {
  std::vector<Pair> pairs;
  uint32_t next = 0;
  const Status status = store->each_shard(shard_bits, [&](uint32_t shard, std::span<const Pair> here) {
    EXPECT_EQ(shard, next++);
    for (const Pair pair : here) EXPECT_EQ(shard_number(pair_hash(pair), shard_bits), shard);
    pairs.insert(pairs.end(), here.begin(), here.end());
    return ok_status();
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(next, 1u << shard_bits);
  return pairs;
}

TEST(PairStore, HandsOutWhatCameInWhateverTheShardsAndTheSpilling) {
  Files files;
  for (const uint64_t keys : {0, 1, 300, 20'000, 700'000}) {
    for (const uint32_t batch_keys : {1u, 60u, 4096u, 65'535u}) {
      if (batch_keys == 1 && keys > 300) continue;
      Workload work;
      work.keys = keys;
      work.sources = 131;
      work.duplicates_percent = 10;
      work.ranks = Ranks::kSkewed;
      const std::vector<Pair> pairs = make_pairs(work);
      const auto batches = make_batches(pairs, EpochNumber(0), batch_keys, keys);
      PairStore in_memory = make_store(131, batches);
      EXPECT_EQ(in_memory.spilled_bytes(), 0u);
      PairStore spilling = make_store(131, batches, PairStore::kMemoryMin, files.create());
      EXPECT_LE(spilling.memory_bytes(), PairStore::kMemoryMin);
      if (keys == 700'000) {
        EXPECT_GT(spilling.spilled_bytes(), 0u);
      }
      const std::vector<Pair> expected = sorted(pairs);
      for (const uint32_t bits : {0u, 5u, 12u, 14u}) {
        ASSERT_EQ(all_pairs(&in_memory, bits), expected) << keys << " keys, " << bits << " bits";
        ASSERT_EQ(all_pairs(&spilling, bits), expected) << keys << " keys, " << bits << " bits, spilled";
      }
    }
  }
}

TEST(PairStore, SmallBatchesStayWithinTheLimitToo) {
  Workload work;
  work.keys = 60'000;
  work.sources = 100'000;
  const std::vector<Pair> pairs = make_pairs(work);
  Files files;
  auto store = PairStore::create({EpochNumber(0), work.sources, PairStore::kMemoryMin, files.create()});
  ASSERT_TRUE(store.ok());
  for (const std::string& batch : make_batches(pairs, EpochNumber(0), 4096, 1)) {
    ASSERT_TRUE(store->add(batch).ok());
    ASSERT_LE(store->memory_bytes(), PairStore::kMemoryMin);
  }
  EXPECT_GT(store->spilled_bytes(), 0u) << "canary: 60,000 cursors alone take more than the limit";
  EXPECT_EQ(all_pairs(&*store, 3), sorted(pairs));
}

TEST(PairStore, AHotKeyOfAllRanksIsOnePairEach) {
  // 60 keys, each written by each of 20,000 ranks.
  std::vector<Pair> pairs;
  Rng rng(1);
  std::vector<uint64_t> hashes(60);
  for (uint64_t& hash : hashes) hash = rng.below(kHashEnd);
  for (uint32_t source = 0; source < 20'000; ++source) {
    for (const uint64_t hash : hashes) pairs.push_back(make_pair(hash, source));
  }
  Files files;
  PairStore store =
      make_store(20'000, make_batches(pairs, EpochNumber(0), 4096, 1), 8 * kMiB, files.create());
  EXPECT_EQ(all_pairs(&store, 6), sorted(pairs));
}

TEST(PairStore, RefusesWhatDoesNotFitAndKeepsWhatItHas) {
  Workload work;
  work.keys = 1'500'000;
  const auto batches = make_batches(make_pairs(work), EpochNumber(0), 4096, 1);
  auto store = PairStore::create({EpochNumber(0), 64, PairStore::kMemoryMin, nullptr});
  ASSERT_TRUE(store.ok());
  Status status;
  size_t taken = 0;
  while (taken < batches.size() && (status = store->add(batches[taken])).ok()) ++taken;
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("no file to spill to"));
  const uint64_t pairs = store->pairs();
  EXPECT_FALSE(store->add(batches[taken]).ok());
  EXPECT_EQ(store->pairs(), pairs);
  EXPECT_EQ(all_pairs(&*store, 4).size(), pairs);
  EXPECT_EQ(store->add(Bytes(batches[0]).substr(1)).code(), Code::kCorruption);
  EXPECT_EQ(store->add(batches[0] + "x").code(), Code::kCorruption);
  auto other_epoch = PairStore::create({EpochNumber(1), 64, PairStore::kMemoryMin, nullptr});
  EXPECT_THAT(std::string(other_epoch->add(batches[0]).message()), testing::HasSubstr("epoch"));
  EXPECT_EQ(PairStore::create({EpochNumber(0), 0, PairStore::kMemoryMin, nullptr}).status().code(),
            Code::kInvalidArgument);
}

TEST(PairStore, AFailingSpillLosesNothing) {
  Workload work;
  work.keys = 900'000;
  const std::vector<Pair> pairs = make_pairs(work);
  const auto batches = make_batches(pairs, EpochNumber(0), 4096, 1);
  io::MemoryDevice memory;
  io::FaultDevice device(memory);
  auto file = device.open("/spill", io::OpenMode::kCreate);
  ASSERT_TRUE(file.ok());
  auto store = PairStore::create({EpochNumber(0), 64, PairStore::kMemoryMin, file->get()});
  ASSERT_TRUE(store.ok());
  int failures = 0;
  for (const uint64_t nth : {1, 2, 40}) {
    io::Fault fault;
    fault.kind = io::CallKind::kWrite;
    fault.nth = nth;
    fault.status = error(Code::kNoSpace, Scope::kFile, "full");
    device.inject(fault);
  }
  for (const std::string& batch : batches) {
    const uint64_t before = store->pairs();
    Status status = store->add(batch);
    for (; !status.ok(); status = store->add(batch), ++failures) {
      EXPECT_EQ(status.code(), Code::kNoSpace) << status.to_string();
      EXPECT_EQ(store->pairs(), before);
      ASSERT_LT(failures, 10);
    }
  }
  EXPECT_EQ(failures, 3);
  EXPECT_GT(store->spilled_bytes(), 0u);
  EXPECT_EQ(all_pairs(&*store, 6), sorted(pairs));
}

TEST(PairStore, DamageInTheSpillFileIsAnError) {
  Workload work;
  work.keys = 800'000;
  Files files;
  io::File* const file = files.create();
  PairStore store =
      make_store(64, make_batches(make_pairs(work), EpochNumber(0), 4096, 1), PairStore::kMemoryMin, file);
  ASSERT_GT(store.spilled_bytes(), 2 * kSpillBlockBytes);
  const auto walk = [&] {
    return store.each_shard(6, [](uint32_t, std::span<const Pair>) { return ok_status(); });
  };
  ASSERT_TRUE(walk().ok());
  Rng rng(3);
  for (int round = 0; round < 20; ++round) {
    const uint64_t at = rng.below(store.spilled_bytes());
    char byte = 0;
    ASSERT_TRUE(io::read_exactly(*file, at, MutableBytes(&byte, 1)).ok());
    const char damaged = static_cast<char>(byte ^ 1 << rng.below(8));
    ASSERT_TRUE(file->pwrite(at, Bytes(&damaged, 1)).ok());
    EXPECT_EQ(walk().code(), Code::kCorruption);
    ASSERT_TRUE(file->pwrite(at, Bytes(&byte, 1)).ok());
  }
  EXPECT_TRUE(walk().ok());
}

}  // namespace
}  // namespace swale::source::pair_store_test
