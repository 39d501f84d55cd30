#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/crc32c.h"
#include "source/table_builder.h"
#include "source/testing/source_test_support.h"

namespace swale::source::table_test {
namespace {

using test::Answers;
using test::build;
using test::Built;
using test::Files;
using test::make_batches;
using test::make_pairs;
using test::make_store;
using test::OpenTable;
using test::Ranks;
using test::sorted;
using test::Workload;

TableParams params_of(const Workload& work, Scheme scheme = Scheme::kRibbon, uint32_t fingerprint_bits = 4) {
  TableParams params;
  params.scheme = scheme;
  params.sources = work.sources;
  params.fingerprint_bits = fingerprint_bits;
  params.table_id = 0x5157414c45 + work.seed;
  return params;
}

// SWALE_SOURCE_KEYS: how many keys the largest cases have; make test-long takes millions.
uint64_t many_keys() {
  const char* const text = std::getenv("SWALE_SOURCE_KEYS");
  return text == nullptr ? 200'000 : std::strtoull(text, nullptr, 10);
}

TEST(Table, NoAppendIsMissedWhateverTheRanksTheDuplicatesAndTheScheme) {
  uint64_t tables = 0;
  for (const Scheme scheme : {Scheme::kRibbon, Scheme::kMaplet, Scheme::kCuckoo}) {
    for (const uint64_t keys : {uint64_t{0}, uint64_t{1}, uint64_t{16'383}, uint64_t{16'385}, many_keys()}) {
      for (const Ranks ranks : {Ranks::kUniform, Ranks::kSkewed, Ranks::kCorrelated}) {
        for (const uint32_t duplicates : {0u, 10u, 60u}) {
          Workload work{keys, 4'097, ranks, duplicates, 0, keys + duplicates};
          if (keys > 20'000 && duplicates == 10) work.hashes = static_cast<uint32_t>(keys / 3);
          Files files;
          const std::vector<Pair> pairs = make_pairs(work);
          const Built table = build(pairs, params_of(work, scheme));
          const OpenTable open(&files, table.bytes);
          const std::vector<Pair> expected = sorted(pairs);
          const Answers answers = open.ask_all(expected);
          ASSERT_EQ(answers.missed, 0u) << keys << " keys, scheme " << static_cast<int>(scheme);
          EXPECT_EQ(table.summary.pairs, expected.size());
          EXPECT_EQ(open.reader().trailer().keys, answers.keys);
          EXPECT_TRUE(open.reader().verify().ok());
          ++tables;
        }
      }
    }
  }
  EXPECT_EQ(tables, 135u);
}

TEST(Table, TakesTheBitsAndTheProbesThatTheDesignSays) {
  for (const Ranks ranks : {Ranks::kUniform, Ranks::kSkewed, Ranks::kCorrelated}) {
    Files files;
    const Workload work{many_keys(), 4096, ranks, 0, 0, 9};
    const std::vector<Pair> pairs = make_pairs(work);
    const Built table = build(pairs, params_of(work));
    const double bits = static_cast<double>(table.bytes.size()) * 8 / static_cast<double>(work.keys);
    EXPECT_LT(bits, 16.4);
    EXPECT_GT(bits, 16.0) << "canary: fewer than the 16 bits of a value cannot be";
    const OpenTable open(&files, table.bytes);
    const Answers answers = open.ask_all(sorted(pairs));
    EXPECT_LE(static_cast<double>(answers.candidates), static_cast<double>(answers.keys) * 1.001);
    EXPECT_NEAR(open.candidates_of_absent_keys(100'000), 0.0625, 0.005);
  }
}

TEST(Table, AQueryReadsTheTailAndOneShard) {
  Files files;
  const Workload work{200'000, 4096, Ranks::kUniform, 0, 0, 1};
  const std::vector<Pair> pairs = make_pairs(work);
  const Built table = build(pairs, params_of(work));
  const std::string padding(12'345, 'x');
  io::File* const file = files.with(padding + table.bytes + padding);
  const auto reader = TableReader::open(*file, padding.size(), table.bytes.size());
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(reader->open_cost().reads, 1u);
  EXPECT_LE(reader->open_cost().bytes, kTailBytes);
  for (size_t i = 0; i < pairs.size(); i += 997) {
    std::vector<uint32_t> found{77};
    TableReader::Cost cost;
    ASSERT_TRUE(reader->candidates(pair_hash(pairs[i]), &found, &cost).ok());
    EXPECT_EQ(found[0], 77u) << "what was there stays";
    EXPECT_THAT(std::span(found).subspan(1), testing::Contains(pair_source(pairs[i])));
    EXPECT_EQ(cost.reads, 1u);
    EXPECT_LT(cost.bytes, 34'000u);
  }
}

TEST(Table, RunIdsSaySourceAndRun) {
  Files files;
  Workload work{100'000, 4096 * 8, Ranks::kUniform, 0, 0, 1};
  const std::vector<Pair> pairs = make_pairs(work);
  TableParams params = params_of(work);
  params.runs_per_rank = 8;
  const Built table = build(pairs, params);
  const OpenTable open(&files, table.bytes);
  EXPECT_EQ(open.reader().trailer().params.runs_per_rank, 8u);
  EXPECT_EQ(open.ask_all(sorted(pairs)).missed, 0u);
  const double bits = static_cast<double>(table.bytes.size()) * 8 / 100'000;
  EXPECT_LT(bits, 16.5 + 3);
  params.runs_per_rank = 7;
  EXPECT_EQ(check_params(params).code(), Code::kInvalidArgument);
}

struct Epochs {
  std::vector<Pair> base;
  std::vector<Pair> next;
};

Epochs make_epochs(const Workload& work, uint32_t moved_percent) {
  Epochs epochs;
  epochs.base = make_pairs(work);
  Rng rng(77);
  for (const Pair pair : epochs.base) {
    const auto source =
        rng.below(100) < moved_percent ? static_cast<uint32_t>(rng.below(work.sources)) : pair_source(pair);
    epochs.next.push_back(make_pair(pair_hash(pair), source));
  }
  for (uint32_t i = 0; i < 100; ++i) epochs.next.push_back(make_pair(rng.below(kHashEnd), i));  // new keys
  return epochs;
}

TEST(Delta, HasOnlyWhatMovedAndMissesNothing) {
  for (const uint64_t keys : {uint64_t{0}, uint64_t{300}, uint64_t{40'000}, many_keys()}) {
    for (const uint32_t duplicates : {0u, 20u, 70u}) {
      Files files;
      const Workload work{keys, 4096, Ranks::kUniform, duplicates, 0, 3};
      const Epochs epochs = make_epochs(work, 1);
      const Built base = build(epochs.base, params_of(work));
      const OpenTable open_base(&files, base.bytes);
      TableParams params = params_of(work, Scheme::kRibbon, kDeltaFingerprintBits);
      params.table_id = 99;
      params.base_id = open_base.reader().trailer().params.table_id;
      PairStore store = make_store(work.sources, make_batches(epochs.next, EpochNumber(0), 4096, 5));
      std::string bytes;
      const auto summary = build_delta(&store, params, open_base.reader(), [&](Bytes more) {
        bytes += more;
        return ok_status();
      });
      ASSERT_TRUE(summary.ok()) << summary.status().to_string();
      if (!summary->has_value()) {
        EXPECT_LT(keys, 1000u) << "a hundred new keys are more than half of 300";
        EXPECT_TRUE(bytes.empty());
        continue;
      }
      const OpenTable open(&files, bytes);
      std::vector<uint32_t> found, more;
      for (const Pair pair : epochs.next) {
        open.candidates(pair_hash(pair), &found);
        open_base.candidates(pair_hash(pair), &more);
        found.insert(found.end(), more.begin(), more.end());
        ASSERT_TRUE(std::find(found.begin(), found.end(), pair_source(pair)) != found.end());
      }
      found.clear();
      if (!epochs.next.empty()) {
        ASSERT_TRUE(
            epoch_candidates(open.reader(), &open_base.reader(), pair_hash(epochs.next[0]), &found).ok());
        EXPECT_THAT(found, testing::Contains(pair_source(epochs.next[0])));
      }
      EXPECT_EQ(epoch_candidates(open.reader(), nullptr, 1, &found).code(), Code::kCorruption);
      EXPECT_EQ(epoch_candidates(open.reader(), &open.reader(), 1, &found).code(), Code::kCorruption);
      if (keys >= 200'000 && duplicates == 0) {
        EXPECT_LT(static_cast<double>(bytes.size()) * 8 / static_cast<double>(keys), 0.3);
      }
    }
  }
}

TEST(Delta, IsRefusedWhenItWouldBeLargeOrHasNoBase) {
  Files files;
  const Workload work{100'000, 4096, Ranks::kUniform, 0, 0, 3};
  const Epochs epochs = make_epochs(work, 80);
  const Built base = build(epochs.base, params_of(work));
  const OpenTable open_base(&files, base.bytes);
  TableParams params = params_of(work, Scheme::kRibbon, kDeltaFingerprintBits);
  params.base_id = params.table_id;
  PairStore store = make_store(work.sources, make_batches(epochs.next, EpochNumber(0), 4096, 5));
  const ByteSink refuse = [](Bytes) { return error(Code::kInternal, Scope::kOperation, "written"); };
  auto summary = build_delta(&store, params, open_base.reader(), refuse);
  ASSERT_TRUE(summary.ok()) << summary.status().to_string();
  EXPECT_FALSE(summary->has_value());
  params.base_id = 12345;
  EXPECT_EQ(build_delta(&store, params, open_base.reader(), refuse).status().code(), Code::kInvalidArgument);
}

TEST(Table, EveryFailureOfTheSinkIsPassedOn) {
  Workload work{40'000, 64, Ranks::kUniform, 0, 0, 1};
  PairStore store = make_store(64, make_batches(make_pairs(work), EpochNumber(0), 4096, 1));
  int writes = 0;
  ASSERT_TRUE(build_table(&store, params_of(work), [&](Bytes) { return ++writes, ok_status(); }).ok());
  for (int fail = 0; fail < writes; ++fail) {
    int at = 0;
    const auto result = build_table(&store, params_of(work), [&](Bytes) {
      return at++ == fail ? error(Code::kNoSpace, Scope::kFile, "full") : ok_status();
    });
    EXPECT_EQ(result.status().code(), Code::kNoSpace) << fail;
  }
}

// Flips bits of a whole small table, one at a time, and asks for every key: an error or the truth.
TEST(Table, AnyBitFlipIsAnErrorOrChangesNothing) {
  const Workload work{1'500, 68, Ranks::kUniform, 10, 0, 1};
  const std::vector<Pair> pairs = sorted(make_pairs(work));
  const Built table = build(pairs, params_of(work), 600);
  Files files;
  uint64_t errors = 0;
  std::vector<uint32_t> found;
  for (size_t bit = 0; bit < table.bytes.size() * 8; bit += 41) {
    std::string damaged = table.bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    files.files.clear();
    io::MemoryDevice device;
    auto file = device.open("/t", io::OpenMode::kCreate);
    ASSERT_TRUE((*file)->pwrite(0, damaged).ok());
    const auto reader = TableReader::open(**file, 0, damaged.size());
    if (!reader.ok()) {
      ++errors;
      continue;
    }
    EXPECT_FALSE(reader->verify().ok()) << "bit " << bit;
    for (size_t i = 0; i < pairs.size(); i += 101) {
      found.clear();
      const Status status = reader->candidates(pair_hash(pairs[i]), &found);
      errors += status.ok() ? 0 : 1;
      if (status.ok()) {
        ASSERT_THAT(found, testing::Contains(pair_source(pairs[i])));
      } else {
        EXPECT_EQ(status.code(), Code::kCorruption);
        EXPECT_TRUE(found.empty());
      }
    }
  }
  EXPECT_GT(errors, 200u) << "canary: flips are noticed";
}

TEST(Table, EveryCutIsAnError) {
  const Workload work{2'000, 68, Ranks::kUniform, 0, 0, 1};
  const Built table = build(make_pairs(work), params_of(work));
  Files files;
  for (size_t cut = 0; cut < table.bytes.size(); cut += 7) {
    io::File* const file = files.with(Bytes(table.bytes).substr(0, cut));
    EXPECT_FALSE(TableReader::open(*file, 0, cut).ok()) << cut;
    EXPECT_FALSE(TableReader::open(*file, 0, table.bytes.size()).ok()) << cut;
  }
}

TEST(Table, NewerTablesAreRefusedByName) {
  TableTrailer trailer;
  trailer.shard_count = 1;
  trailer.params.fingerprint_bits = 4;
  std::string bytes = encode_trailer(trailer);
  ASSERT_TRUE(decode_trailer(bytes, "t").ok()) << decode_trailer(bytes, "t").status().to_string();
  bytes[8] = 2;
  put_u32(bytes.data() + 4, crc32c(Bytes(bytes).substr(8)));
  EXPECT_EQ(decode_trailer(bytes, "t").status().code(), Code::kUnsupported);
}

// Tables of version 1 are read for ever; the bytes that this build makes of the same keys are the same.
TEST(Table, GoldenTablesAreReadAndMadeAgain) {
  const Workload work{1'800, 67, Ranks::kUniform, 8, 0, 2026};
  const std::vector<Pair> pairs = make_pairs(work);
  for (const auto& [name, scheme] :
       {std::pair("ribbon", Scheme::kRibbon), std::pair("maplet", Scheme::kMaplet),
        std::pair("cuckoo", Scheme::kCuckoo)}) {
    const Built table = build(pairs, params_of(work, scheme), 1'200);
    const std::string path = std::string(SWALE_SOURCE_DIR "/tests/golden/source/") + name + "-v1.source";
    if (std::getenv("SWALE_MAKE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << table.bytes;
    std::ifstream file(path, std::ios::binary);
    std::ostringstream golden;
    golden << file.rdbuf();
    ASSERT_FALSE(golden.str().empty()) << path;
    EXPECT_TRUE(golden.str() == table.bytes) << name << ": the format has changed";
    Files files;
    const OpenTable open(&files, golden.str());
    EXPECT_EQ(open.ask_all(sorted(pairs)).missed, 0u) << name;
  }
}

}  // namespace
}  // namespace swale::source::table_test
