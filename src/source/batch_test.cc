#include "source/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/crc32c.h"
#include "source/testing/source_test_support.h"

namespace swale::source::batch_test {
namespace {

std::vector<uint64_t> read_all(Bytes batch) {
  const auto header = decode_batch_header(batch);
  EXPECT_TRUE(header.ok()) << header.status().to_string();
  std::string with_slack(batch);
  with_slack.append(kSlackBytes, '\xff');
  std::vector<uint64_t> hashes;
  BatchCursor cursor(*header, with_slack.data());
  for (; !cursor.at_end(); cursor.advance()) hashes.push_back(cursor.hash());
  EXPECT_FALSE(cursor.malformed());
  return hashes;
}

std::string encode(std::vector<uint64_t> hashes, uint32_t source = 7) {
  std::vector<Pair> pairs;
  for (const uint64_t hash : hashes) pairs.push_back(make_pair(hash, 0));
  std::vector<Pair> scratch(pairs.size());
  std::string out;
  encode_batch(EpochNumber(3), source, pairs, scratch, &out);
  return out;
}

TEST(SortPairs, AgreesWithStdSort) {
  Rng rng(1);
  for (int round = 0; round < 400; ++round) {
    const size_t count = rng.below(round % 10 == 0 ? 30'000 : 300);
    const auto equal_bits = static_cast<uint32_t>(rng.below(24));
    const uint64_t hot = 1 + rng.below(50);
    std::vector<Pair> pairs(count);
    for (Pair& pair : pairs) {
      pair = rng.next() >> equal_bits;
      if (round % 3 == 0) pair = (pair % hot << 40 | pair % 4096) >> equal_bits;
    }
    std::vector<Pair> expected = pairs;
    std::sort(expected.begin(), expected.end());
    std::vector<Pair> scratch(count);
    sort_pairs(pairs, scratch, equal_bits);
    ASSERT_EQ(pairs, expected) << "round " << round;
  }
}

TEST(Batch, GivesBackTheSortedHashesWithoutDoubles) {
  Rng rng(2);
  for (const uint64_t count : {1, 2, 3, 10, 255, 256, 4096, 65'535}) {
    for (const uint64_t range : {kHashEnd, uint64_t{1} << 20, uint64_t{5}}) {
      std::vector<uint64_t> hashes(count);
      for (uint64_t& hash : hashes) hash = kHashEnd - 1 - rng.below(range);
      std::string batch = encode(hashes);
      EXPECT_LE(batch.size(), kBatchBytesMax);
      std::sort(hashes.begin(), hashes.end());
      hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
      EXPECT_EQ(read_all(batch), hashes) << count << " of " << range;
      const auto header = decode_batch_header(batch);
      EXPECT_EQ(header->source, 7u);
      EXPECT_EQ(header->epoch, 3u);
      EXPECT_EQ(header->bytes, batch.size());
    }
  }
}

TEST(Batch, FourThousandKeysTakeLessThanThreeBytesEach) {
  Rng rng(3);
  std::vector<uint64_t> hashes(4096);
  for (uint64_t& hash : hashes) hash = rng.below(kHashEnd);
  EXPECT_LT(static_cast<double>(encode(hashes).size()) / 4096, 3.0);
}

TEST(Batch, EveryBitFlipAndEveryCutIsAnError) {
  Rng rng(4);
  std::vector<uint64_t> hashes(50);
  for (uint64_t& hash : hashes) hash = rng.below(kHashEnd);
  const std::string batch = encode(hashes);
  for (size_t bit = 0; bit < batch.size() * 8; ++bit) {
    std::string damaged = batch;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(decode_batch_header(damaged).ok()) << "bit " << bit;
  }
  for (size_t cut = 0; cut < batch.size(); ++cut) {
    EXPECT_EQ(decode_batch_header(Bytes(batch).substr(0, cut)).status().code(), Code::kCorruption);
  }
}

// What a checksum cannot tell: a sender that encodes wrongly.
TEST(Batch, ForgedCodesAreNoticedByTheStoreAndCountNothing) {
  auto store = PairStore::create({EpochNumber(3), 64, PairStore::kMemoryMin, nullptr});
  ASSERT_TRUE(store.ok());
  std::vector<uint64_t> hashes(100);
  Rng rng(5);
  for (uint64_t& hash : hashes) hash = rng.below(kHashEnd);
  const std::string whole = encode(hashes);
  const auto seal = [](std::string batch) {
    put_u32(batch.data() + 4, static_cast<uint32_t>(batch.size()));
    put_u32(batch.data(), crc32c(Bytes(batch).substr(4)));
    return batch;
  };
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string forged = whole;
    if (round % 2 == 0)
      forged.resize(kBatchHeaderBytes + 1 + rng.below(whole.size() - kBatchHeaderBytes - 1));
    forged[16 + rng.below(forged.size() - 16)] = static_cast<char>(rng.next());
    forged[18] = static_cast<char>(kBatchVersion);
    const uint64_t before = store->pairs();
    const Status status = store->add(seal(forged));
    refused += status.ok() ? 0 : 1;
    if (!status.ok()) {
      EXPECT_EQ(store->pairs(), before);
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_EQ(store->add(seal(encode(hashes, 64))).code(), Code::kCorruption) << "no such source";
  uint64_t seen = 0;
  ASSERT_TRUE(store
                  ->each_shard(4,
                               [&](uint32_t, std::span<const Pair> pairs) {
                                 seen += pairs.size();
                                 return ok_status();
                               })
                  .ok());
  EXPECT_LE(seen, store->pairs());
}

}  // namespace
}  // namespace swale::source::batch_test
