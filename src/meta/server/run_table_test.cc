// Run tables of sealed files: lookups beside a walk, the join of what servers say, and golden bytes of the
// formats.
#include "meta/server/run_table.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "base/crc32c.h"
#include "base/rng.h"
#include "meta/attributes/attribute_table.h"
#include "meta/server/manifest.h"

namespace swale::meta::run_table_test {
namespace {

using Bytemap = std::map<uint64_t, Place>;

void paint(const meta::Run& run, Bytemap* map) {
  for (uint64_t i = 0; i < blocks_of(run); ++i) {
    const Extent block = block_at(run, i);
    for (uint64_t at = 0; at < block.length; ++at)
      (*map)[block.offset + at] = {block.place.log, block.place.address + at};
  }
}

// Runs of many shapes, those left out that would overlap the ones before.
std::vector<meta::Run> any_runs(Rng& rng, Bytemap* map) {
  std::vector<meta::Run> runs;
  const uint64_t stride = 8 + rng.below(60);
  for (uint64_t tries = 1 + rng.below(30); tries > 0; --tries) {
    meta::Run run;
    run.offset = rng.below(3000);
    run.length = 1 + rng.below(12);
    run.place = {static_cast<LogId>(rng.below(4)), rng.below(100'000)};
    uint64_t span = run.length;
    for (run.levels = 0; run.levels < rng.below(kRunLevels + 1); ++run.levels) {
      const bool regular = rng.chance(3, 4);
      const uint64_t step = regular ? (span + stride - 1) / stride * stride : span + rng.below(40);
      run.level[run.levels] = {2 + rng.below(6), step, rng.below(50)};
      span += (run.level[run.levels].count - 1) * step;
    }
    Bytemap mine;
    paint(run, &mine);
    bool overlaps = false;
    for (const auto& [at, place] : mine) overlaps |= map->contains(at);
    if (overlaps) continue;
    map->insert(mine.begin(), mine.end());
    runs.push_back(run);
  }
  return runs;
}

TEST(SealedTable, AnswersAsAWalkThroughAllBlocksDoes) {
  uint64_t bytes = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    Bytemap truth;
    const std::vector<meta::Run> runs = any_runs(rng, &truth);
    const SealedTable table(*decode_table(encode_table(runs)));
    ASSERT_EQ(table.runs().size(), runs.size());
    uint32_t hint = 0;
    for (int i = 0; i < 300; ++i) {
      const uint64_t at = rng.below(6000);
      const auto found = table.find(at, &hint);
      const auto expected = truth.find(at);
      ASSERT_EQ(found.has_value(), expected != truth.end()) << "seed " << seed << ", byte " << at;
      if (found) {
        ASSERT_EQ(found->place, expected->second);
      }
    }
    const uint64_t begin = rng.below(5000), length = 1 + rng.below(3000);
    std::vector<Extent> pieces;
    uint64_t next = 0;
    table.lookup(begin, length, SIZE_MAX, &pieces, &next);
    ASSERT_EQ(next, begin + length);
    Bytemap map;
    for (const Extent& each : pieces) paint(run_of(each), &map);
    Bytemap expected(truth.lower_bound(begin), truth.lower_bound(begin + length));
    ASSERT_EQ(map, expected);
    bytes += map.size();
  }
  EXPECT_GT(bytes, 10'000u);
}

Collected part_of(const Partition& partition, Server server, const std::vector<meta::Run>& runs) {
  Collected part{0, true, runs};
  Bytemap map;
  for (const meta::Run& run : runs) paint(run, &map);
  for (const auto& [at, place] : map) part.bytes += partition.server_of({1, 2}, at) == server;
  return part;
}

TEST(JoinedTable, IsExactOrDoesNotExist) {
  const Partition partition(3, 4096);
  meta::Run strided;
  strided.length = 100;
  strided.levels = 1;
  strided.level[0] = {100, 200, 100};
  meta::Run other = strided;
  other.offset = 100;
  other.place.log = 1;
  std::vector<Collected> parts;
  for (Server server = 0; server < 3; ++server) parts.push_back(part_of(partition, server, {strided, other}));
  const std::string table = joined_table(parts);
  ASSERT_FALSE(table.empty());
  EXPECT_EQ(decode_table(table)->size(), 2u);
  // One server knows that a block was overwritten: it has pieces where the others have the run.
  std::vector<Collected> overwritten = parts;
  meta::Run first_half = strided;
  first_half.level[0].count = 50;
  overwritten[1] = part_of(partition, 1, {first_half, other});
  EXPECT_TRUE(joined_table(overwritten).empty());
  std::vector<Collected> unknown = parts;
  unknown[2].complete = false;
  EXPECT_TRUE(joined_table(unknown).empty());
}

TEST(RunTable, AThousandRegularRunsFitInto64KiB) {
  std::vector<meta::Run> runs;
  for (uint64_t i = 0; i < 1024; ++i) {
    meta::Run run;
    run.offset = i * 4096;
    run.length = 4096;
    run.place = {static_cast<LogId>(i), 0};
    run.levels = 1;
    run.level[0] = {65'536, 1024 * 4096, 4096};
    runs.push_back(run);
  }
  EXPECT_LT(encode_table(runs).size(), 8u * kKiB);
}

TEST(RunTable, DamageIsAnErrorOrAnotherValidTable) {
  Rng rng(3);
  Bytemap map;
  const std::string whole = encode_table(any_runs(rng, &map));
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = whole;
    damaged[rng.below(damaged.size())] = static_cast<char>(rng.next());
    if (rng.chance(1, 3)) damaged.resize(rng.below(damaged.size() + 1));
    const auto runs = decode_table(damaged);
    if (!runs.ok()) continue;
    for (const meta::Run& run : *runs) ASSERT_TRUE(valid(run));
  }
}

// What was written once is read for ever: a change of these bytes is a change of the format.
TEST(MetadataFormats, TheBytesAreThoseOfVersion1) {
  const auto hex = [](const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
  };
  meta::Run run;
  run.offset = 512;
  run.length = 512;
  run.place = {3, 1000};
  run.levels = 1;
  run.level[0] = {100, 2048, 512};
  EXPECT_EQ(hex(encode_table({run, run_of({0, 10, {1, 5}})})),
            "0102010a0000020a018004016480108008800406d00f");
  AttributeTable table;
  AttributeRequest request;
  request.op = AttributeOp::kCreate;
  request.name = "f";
  request.from = {5, 9};
  request.mode = 0644;
  request.time_ns = 77;
  std::string record;
  ASSERT_TRUE(table.apply(request, &record).ok());
  EXPECT_EQ(record.size(), 26u + 16 + 53 + 2 + 1);
  EXPECT_EQ(crc32c(record), 3'685'388'566u);
  const Manifest manifest{1, 64 << 20, 0x77, 5, true, {{0x99, "node17", "/local/store", 12}}, {{0x89abcdef}}};
  const Result<Manifest> again = decode_manifest(encode_manifest(manifest), "manifest");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->places, manifest.places);
}

// The next opening would count on to 0, which is a new store's generation.
TEST(StoreManifest, AGenerationThatNoStoreReachesIsRefused) {
  for (const uint64_t more : {0, 1}) {
    const uint64_t generation = (uint64_t{1} << 62) + more;
    const Manifest manifest{1, 64 << 20, 0x77, generation, false, {{0x99, "node17", "/local/store", 12}}};
    const Result<Manifest> read = decode_manifest(encode_manifest(manifest), "manifest");
    EXPECT_EQ(read.ok(), more == 0) << read.status().to_string();
  }
}

}  // namespace
}  // namespace swale::meta::run_table_test
