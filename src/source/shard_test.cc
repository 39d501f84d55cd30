#include "source/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/crc32c.h"
#include "source/bit_stream.h"
#include "source/testing/source_test_support.h"

namespace swale::source::shard_test {
namespace {

using test::make_pairs;
using test::Ranks;
using test::sorted;
using test::Workload;

struct Case {
  Workload work;
  TableParams params;
  std::vector<Pair> pairs;
  std::string bytes;
  ShardBuilder::Counts counts;
};

Case build_one(const Workload& work, uint32_t fingerprint_bits, Scheme scheme = Scheme::kRibbon) {
  Case made;
  made.work = work;
  made.params.sources = work.sources;
  made.params.fingerprint_bits = fingerprint_bits;
  made.params.scheme = scheme;
  made.params.table_id = 42;
  made.pairs = sorted(make_pairs(work));
  made.counts = ShardBuilder(made.params, 0).build(made.pairs, 0, &made.bytes);
  return made;
}

uint64_t missed(const Shard& shard, const std::vector<Pair>& pairs) {
  uint64_t count = 0;
  std::vector<uint32_t> found;
  for (const Pair pair : pairs) {
    found.clear();
    shard.candidates(pair_hash(pair), &found);
    count += std::find(found.begin(), found.end(), pair_source(pair)) == found.end() ? 1 : 0;
  }
  return count;
}

// The smallest systems, odd counts of ranks, all kinds of duplicates: nothing that was stored is ever missed.
TEST(Shard, NamesEverySourceOfEveryKey) {
  uint64_t shards = 0;
  for (const uint64_t keys : {1, 2, 3, 47, 48, 49, 499, 500, 501, 2'000, 9'999, 20'000}) {
    for (const uint32_t sources : {1u, 2u, 3u, 68u, 4'096u, 4'097u, 131'071u, kSourcesMax}) {
      for (const uint32_t bits : {0u, 1u, 4u, 8u}) {
        if (keys > 3'000 && (bits == 1 || sources < 60)) continue;
        Workload work;
        work.keys = keys;
        work.sources = sources;
        work.duplicates_percent = static_cast<uint32_t>(keys * 7 % 31);
        work.ranks = static_cast<Ranks>(keys % 3);
        work.hashes = keys % 5 == 0 ? static_cast<uint32_t>(keys / 2) : 0;
        if (sources == 1 && bits == 0) continue;  // check_params refuses it
        const Case made = build_one(work, bits);
        const auto shard = Shard::open(made.bytes, made.params, 0, 0, "shard");
        ASSERT_TRUE(shard.ok()) << shard.status().to_string();
        ASSERT_EQ(missed(*shard, made.pairs), 0u)
            << keys << " keys, " << sources << " sources, " << bits << " bits";
        ++shards;
      }
    }
  }
  EXPECT_GT(shards, 200u);
}

TEST(Shard, ChoosesTheKindByKeysAndDuplicates) {
  Workload work;
  work.keys = 499;
  const auto kind = [](const Case& made) {
    return Shard::open(made.bytes, made.params, 0, 0, "shard")->header().kind;
  };
  EXPECT_EQ(kind(build_one(work, 4)), ShardKind::kMaplet);
  work.keys = 500;
  EXPECT_EQ(kind(build_one(work, 4)), ShardKind::kRibbon);
  work.keys = 5000;
  work.duplicates_percent = 15;
  EXPECT_EQ(kind(build_one(work, 4)), ShardKind::kRibbon);
  work.duplicates_percent = 50;
  EXPECT_EQ(kind(build_one(work, 4)), ShardKind::kMaplet);
  work.keys = 0;
  EXPECT_EQ(kind(build_one(work, 4)), ShardKind::kEmpty);
}

TEST(Shard, IsAsSmallAndAsExactAsItsArithmeticSays) {
  Workload work;
  work.keys = 16'000;
  work.sources = 4096;
  const Case made = build_one(work, 4);
  EXPECT_LT(static_cast<double>(made.bytes.size()) * 8 / 16'000, 16.35);
  EXPECT_LT(made.counts.bumped, 16'000u * 5 / 100);
  EXPECT_GT(made.counts.bumped, 16'000u * 1 / 100) << "canary: nothing bumped means that the load is too low";
  const auto shard = Shard::open(made.bytes, made.params, 0, 0, "shard");
  std::vector<uint32_t> found;
  for (const Pair pair : made.pairs) shard->candidates(pair_hash(pair), &found);
  EXPECT_EQ(found.size(), made.pairs.size()) << "one candidate a key";
  found.clear();
  Rng rng(5);
  for (int i = 0; i < 100'000; ++i) shard->candidates(rng.below(kHashEnd), &found);
  EXPECT_NEAR(static_cast<double>(found.size()) / 100'000, 1.0 / 16, 0.006);
}

TEST(Shard, AnyBitFlipIsAnErrorAndSoIsAnotherPlace) {
  Workload work;
  work.keys = 700;
  work.duplicates_percent = 10;
  for (const Scheme scheme : {Scheme::kRibbon, Scheme::kMaplet}) {
    const Case made = build_one(work, 4, scheme);
    for (size_t bit = 0; bit < made.bytes.size() * 8; bit += 3) {
      std::string damaged = made.bytes;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
      ASSERT_EQ(Shard::open(damaged, made.params, 0, 0, "shard").status().code(), Code::kCorruption) << bit;
    }
    EXPECT_FALSE(Shard::open(made.bytes, made.params, 0, 1, "shard").ok()) << "another shard's place";
    TableParams other = made.params;
    other.table_id = 43;
    EXPECT_FALSE(Shard::open(made.bytes, other, 0, 0, "shard").ok()) << "another table";
  }
}

// Canary of the tests above: they see a shard that answers wrongly. The checksum is made right again.
TEST(Shard, CanaryAForgedBitMakesPairsMissing) {
  Workload work;
  work.keys = 700;
  const Case made = build_one(work, 4);
  const auto header = decode_shard_header(made.bytes, 42, 0, "shard");
  ASSERT_TRUE(header.ok());
  uint64_t wrong = 0;
  for (size_t at = 100; at < 300; ++at) {
    std::string forged = made.bytes;
    forged[at] = static_cast<char>(forged[at] ^ 0xff);
    seal_shard(*header, 42, 0, forged);
    const auto shard = Shard::open(forged, made.params, 0, 0, "shard");
    if (shard.ok() && missed(*shard, made.pairs) > 0) ++wrong;
  }
  EXPECT_GT(wrong, 150u);
}

// Headers whose checksum is right and whose fields are not: an error or an answer, never a read beyond the
// shard (AddressSanitizer looks).
TEST(Shard, ForgedHeadersAreRefusedOrHarmless) {
  Rng rng(6);
  Workload work;
  work.keys = 600;
  work.duplicates_percent = 10;
  const Case made = build_one(work, 4);
  const auto good = decode_shard_header(made.bytes, 42, 0, "shard");
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    ShardHeader header = *good;
    header.kind = static_cast<ShardKind>(rng.below(5));
    uint32_t* const fields[] = {&header.entries, &header.extras, &header.rows[0], &header.rows[1],
                                &header.rows[2]};
    *fields[rng.below(5)] = static_cast<uint32_t>(rng.next() >> (32 + rng.below(32)));
    header.remainder_bits = static_cast<uint8_t>(rng.next());
    std::string forged = made.bytes;
    if (rng.chance(1, 2)) forged.resize(kShardHeaderBytes + rng.below(forged.size() - kShardHeaderBytes));
    const auto exact = std::make_unique<char[]>(forged.size());
    std::copy(forged.begin(), forged.end(), exact.get());
    seal_shard(header, 42, 0, MutableBytes(exact.get(), forged.size()));
    const auto shard = Shard::open(Bytes(exact.get(), forged.size()), made.params, 0, 0, "shard");
    refused += shard.ok() ? 0 : 1;
    if (!shard.ok()) continue;
    std::vector<uint32_t> found;
    for (int i = 0; i < 100; ++i) shard->candidates(rng.below(kHashEnd), &found);
  }
  EXPECT_GT(refused, 1500);
}

TEST(ValueCode, UsesAllOfAnOddCountOfRanks) {
  TableParams params;
  params.sources = 4097;  // 13 bits; 2^17 / 4097 = 31 fingerprints instead of 16
  params.fingerprint_bits = 4;
  const ValueCode code(params);
  Rng rng(7);
  uint64_t hits = 0;
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t fraction = rng.next();
    const auto source = static_cast<uint32_t>(rng.below(4097));
    uint32_t back = 0;
    ASSERT_TRUE(code.decode(fraction, code.encode(fraction, source), &back));
    ASSERT_EQ(back, source);
    hits += code.decode(rng.next(), code.encode(fraction, source), &back) ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(hits) / 100'000, 1.0 / 31, 0.004);
}

TEST(Cuckoo, FillsTablesAndNamesEveryPair) {
  Workload work;
  work.keys = 40'000;
  work.sources = 4097;
  work.duplicates_percent = 5;
  const std::vector<Pair> pairs = sorted(make_pairs(work));
  CuckooBuilder builder(pairs.size(), 13);
  for (const Pair pair : pairs) builder.add(pair);
  std::vector<Pair> rest;
  const std::vector<CuckooTable> tables = builder.finish(&rest);
  EXPECT_TRUE(rest.empty());
  EXPECT_GT(tables.size(), 1u) << "32,768 slots do not take 42,000 pairs, and 65,536 are too many";
  EXPECT_GT(tables[0].used_slots(), 32'768u * 90 / 100);
  std::vector<std::string> shards(tables.size());
  TableParams params;
  params.scheme = Scheme::kCuckoo;
  params.sources = 4097;
  uint64_t named = 0;
  std::vector<Shard> views;
  for (uint32_t i = 0; i < tables.size(); ++i) {
    build_cuckoo_shard(tables[i], params, i, &shards[i]);
    auto shard = Shard::open(shards[i], params, 0, i, "shard");
    ASSERT_TRUE(shard.ok()) << shard.status().to_string();
    views.push_back(std::move(*shard));
  }
  for (const Pair pair : pairs) {
    std::vector<uint32_t> found;
    for (const Shard& shard : views) shard.candidates(pair_hash(pair), &found);
    named += std::find(found.begin(), found.end(), pair_source(pair)) != found.end() ? 1 : 0;
  }
  EXPECT_EQ(named, pairs.size());
}

}  // namespace
}  // namespace swale::source::shard_test
