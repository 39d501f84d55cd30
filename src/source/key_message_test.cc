#include "source/key_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "source/batch.h"
#include "source/testing/source_test_support.h"

namespace swale::source::key_message_test {
namespace {

constexpr uint32_t kSource = 4711;

std::vector<uint64_t> random_hashes(Rng& rng, size_t count, uint64_t range) {
  std::set<uint64_t> hashes;
  while (hashes.size() < count) hashes.insert(kHashEnd - 1 - rng.below(range));
  return {hashes.begin(), hashes.end()};
}

Status decode(const std::string& message, std::vector<Pair>* out) {
  const std::string with_slack = message + std::string(kSlackBytes, '\xff');
  return decode_key_message(with_slack.data(), message.size(), kSource, out);
}

TEST(KeyMessage, GivesBackItsHashes) {
  Rng rng(1);
  for (const size_t count : {1, 2, 3, 17, 256, 4'096}) {
    for (const uint64_t range : {kHashEnd, uint64_t{1} << 20, uint64_t{4'096}}) {
      const std::vector<uint64_t> hashes = random_hashes(rng, count, range);
      std::string message;
      encode_key_message(hashes, &message);
      EXPECT_LE(message.size(), key_message_bytes_max(count));
      std::vector<Pair> pairs = {make_pair(1, 2)};
      const Status status = decode(message, &pairs);
      ASSERT_TRUE(status.ok()) << status.to_string();
      ASSERT_EQ(pairs.size(), count + 1);
      EXPECT_EQ(pairs[0], make_pair(1, 2)) << "what is there stays";
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(pairs[i + 1], make_pair(hashes[i], kSource));
    }
  }
}

TEST(KeyMessage, OfOneKeyTakesSixBytesAndOfSixteenFourEach) {
  Rng rng(2);
  std::string one, sixteen;
  encode_key_message(random_hashes(rng, 1, kHashEnd), &one);
  encode_key_message(random_hashes(rng, 16, kHashEnd), &sixteen);
  EXPECT_LE(one.size(), 6u);
  EXPECT_LE(sixteen.size(), 68u);
}

TEST(KeyMessage, EveryCutIsAnErrorAndLeavesNothing) {
  Rng rng(3);
  std::string message;
  encode_key_message(random_hashes(rng, 40, kHashEnd), &message);
  std::vector<Pair> pairs;
  for (size_t cut = 0; cut < message.size(); ++cut) {
    EXPECT_EQ(decode(message.substr(0, cut), &pairs).code(), Code::kCorruption) << cut;
    EXPECT_TRUE(pairs.empty());
  }
  EXPECT_FALSE(decode(message + "x", &pairs).ok());
}

// What is altered is an error or gives other hashes, which the digests of the epoch's end tell.
TEST(KeyMessage, DamageIsNeverReadBeyondTheMessage) {
  Rng rng(4);
  const std::vector<uint64_t> hashes = random_hashes(rng, 40, kHashEnd);
  std::string message;
  encode_key_message(hashes, &message);
  for (size_t bit = 0; bit < message.size() * 8; ++bit) {
    std::string damaged = message;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    std::vector<Pair> pairs;
    if (!decode(damaged, &pairs).ok()) continue;
    for (const Pair pair : pairs) EXPECT_LT(pair_hash(pair), kHashEnd);
  }
}

// A home keeps what came in messages as mixed batches beside those that came as batches, in memory and in
// spill runs.
TEST(MixedBatch, AStoreHandsOutAllPairsOfBothKinds) {
  for (const uint32_t sources : {1u, 2u, 100u, 131'072u}) {
    io::MemoryDevice device;
    const auto spill = device.open("/spill", io::OpenMode::kCreate).value();
    auto store = PairStore::create({EpochNumber(3), sources, PairStore::kMemoryMin, spill.get()});
    ASSERT_TRUE(store.ok());
    Rng rng(sources);
    std::vector<Pair> all;
    for (int round = 0; round < 120; ++round) {
      std::vector<Pair> pairs;
      const auto source = static_cast<uint32_t>(rng.below(sources));
      const bool mixed = round % 3 != 0;
      const size_t count = 1 + rng.below(round % 10 == 0 ? 10 : 8'192);
      while (pairs.size() < count) {
        const uint64_t hash = rng.below(round % 7 == 0 ? 500 : kHashEnd);
        pairs.push_back(make_pair(hash, mixed ? static_cast<uint32_t>(rng.below(sources)) : 0));
      }
      for (const Pair pair : pairs)
        all.push_back(make_pair(pair_hash(pair), mixed ? pair_source(pair) : source));
      std::vector<Pair> scratch(pairs.size());
      if (mixed) {
        ASSERT_TRUE(store->add_pairs(pairs, scratch).ok());
        continue;
      }
      std::string batch;
      encode_batch(EpochNumber(3), source, pairs, scratch, &batch);
      ASSERT_TRUE(store->add(batch).ok());
    }
    EXPECT_GT(store->spilled_bytes(), 0u);
    std::vector<Pair> seen;
    const Status status = store->each_shard(6, [&](uint32_t, std::span<const Pair> pairs) {
      seen.insert(seen.end(), pairs.begin(), pairs.end());
      return ok_status();
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(seen, test::sorted(all)) << sources << " sources";
  }
}

TEST(MixedBatch, TakesFiveBytesAKeyAndComesFromNoPeer) {
  constexpr size_t kKeys = 8'192;
  Rng rng(5);
  std::vector<Pair> pairs(kKeys), scratch(kKeys);
  for (Pair& pair : pairs) pair = make_pair(rng.below(kHashEnd), static_cast<uint32_t>(rng.below(131'072)));
  std::string batch;
  const BatchHeader header = encode_mixed_batch(18, pairs, scratch, &batch);
  EXPECT_EQ(header.count, kKeys);
  EXPECT_LT(static_cast<double>(batch.size()) / kKeys, 5.2);
  EXPECT_FALSE(decode_batch_header(batch).ok()) << "none may come from a peer";
}

}  // namespace
}  // namespace swale::source::key_message_test
