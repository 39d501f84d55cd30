// Every layout of a directory (compression × index) with every shape of records and one run or several: what
// was appended is found in order, what was not is absent, and verify and repair agree.
#include "run/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/coding.h"
#include "base/rng.h"
#include "imd/check/repair.h"
#include "imd/check/verify.h"
#include "imd/format/run_packer.h"
#include "imd/read/reader.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_sample.h"
#include "imd/testing/test_job.h"
#include "imd/write/memory_plan.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"
#include "run/block.h"
#include "run/footer.h"
#include "run/run_cursor.h"

namespace swale::imd::layout_test {
namespace {

using Values = std::vector<std::string>;
using Model = std::map<std::string, Values>;

constexpr uint64_t kKeys = 2'000;
constexpr char kDirectory[] = "/dir";

enum class Rows { kFloats, kRandom, kVariable, kLarge };

struct Case {
  run::Layout layout;
  Rows rows;
  size_t records;
  bool several_runs;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const char* rows[] = {"Floats", "Random", "Variable", "Large"};
  const Case& made = info.param;
  return fmt::format("{}_{}{}_{}_{}", codec_name(made.layout.compression), run::index_name(made.layout.index),
                     made.layout.filtered() ? made.layout.bloom_bits : 0, rows[static_cast<int>(made.rows)],
                     made.records);
}

std::string key_of(uint64_t number) {
  std::string key;
  append_u64(&key, number);
  return key;
}

// Like a particle's position and velocity: the upper bytes of floats repeat, the lower ones do not.
std::string value_of(Rows rows, uint64_t number, Rng& rng) {
  std::string value;
  append_u64(&value, number);
  const size_t bytes = rows == Rows::kVariable ? 8 + rng.below(90)
                       : rows == Rows::kLarge  ? 200 + rng.below(20'000)  // some go to the value log
                                               : 40;
  while (value.size() < bytes) {
    if (rows == Rows::kRandom) {
      append_u64(&value, rng.next());
    } else {
      append_u32(&value, 0x42000000 + static_cast<uint32_t>(rng.below(1 << 16)));
    }
  }
  value.resize(bytes);
  return value;
}

class Layouts : public testing::TestWithParam<Case> {
 protected:
  // One key has a tenth of all records, so that its values span blocks; the others have some in every run.
  void write() {
    const Case& made = GetParam();
    run_ranks(1, [&](net::Job& job) {
      WriterOptions options;
      options.memory_bytes = 6 * kMiB;
      options.compression = made.layout.compression;
      options.index = made.layout.index;
      options.bloom_bits = made.layout.bloom_bits;
      options.schema = *run::Schema::parse("number:u8;_:*", "number");
      auto writer = Writer::open(job, device_, kDirectory, Writer::Create::kIfMissing, options);
      ASSERT_TRUE(writer.ok()) << writer.status().to_string();
      Rng rng(7);
      for (uint32_t epoch = 0; epoch < 2; ++epoch) {
        for (uint64_t i = 0; i < made.records; ++i) {
          const std::string key = key_of(rng.below(10) == 0 ? 0 : rng.below(kKeys));
          const std::string value = value_of(made.rows, i, rng);
          ASSERT_TRUE((*writer)->append(key, value).ok());
          models_[epoch][key].push_back(value);
        }
        ASSERT_TRUE((*writer)->epoch_end(epoch, 0).ok());
      }
      const Status closed = (*writer)->close();
      ASSERT_TRUE(closed.ok()) << closed.to_string();
    });
  }

  std::unique_ptr<Reader> open(const ReaderOptions& options = {}) {
    auto reader = Reader::open(device_, kDirectory, options);
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    return reader.ok() ? std::move(*reader) : nullptr;
  }

  void expect_all(Reader& reader) {
    EXPECT_EQ(reader.manifest().layout, GetParam().layout);
    for (const auto& [key, values] : models_[1]) {
      const auto got = reader.get(key, 1);
      ASSERT_TRUE(got.ok()) << got.status().to_string();
      ASSERT_EQ(got->size(), values.size());
      for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ((*got)[i].bytes, values[i]) << i;
    }
    for (uint64_t i = kKeys; i < kKeys + 300; ++i)
      EXPECT_EQ(reader.get(key_of(i), Reader::kAllEpochs).status().code(), Code::kNotFound);
    EXPECT_EQ(reader.get("short", 0).status().code(), Code::kNotFound);
    std::vector<std::string> keys;
    for (uint64_t i = 0; i < kKeys + 100; ++i) keys.push_back(key_of(i));
    const std::vector<Bytes> views(keys.begin(), keys.end());
    std::map<std::string, size_t> counts[2];
    const auto many = reader.get_many(views, Reader::kAllEpochs, [&](size_t key, uint32_t epoch, Bytes) {
      ++counts[epoch][keys[key]];
      return true;
    });
    ASSERT_TRUE(many.ok()) << many.status().to_string();
    for (uint32_t epoch = 0; epoch < 2; ++epoch) {
      ASSERT_EQ(counts[epoch].size(), models_[epoch].size());
      for (const auto& [key, values] : models_[epoch]) ASSERT_EQ(counts[epoch][key], values.size());
    }
    size_t distinct = 0;
    ASSERT_TRUE(reader.keys(1, [&](Bytes) { return ++distinct > 0; }).ok());
    EXPECT_EQ(distinct, models_[1].size());
    expect_sample();
    const auto top = reader.top(1, "number", 5, run::Extreme::kLargest);
    ASSERT_TRUE(top.ok()) << top.status().to_string();
    ASSERT_EQ(top->records.size(), 5u);
    for (uint64_t i = 0; i < 5; ++i)
      EXPECT_EQ(get_u64(top->records[i].value.data()), GetParam().records - 1 - i);
    const VerifyReport report = verify_directory(reader, 10);
    EXPECT_EQ(report.records, 2 * GetParam().records);
    for (const Status& problem : report.problems) ADD_FAILURE() << problem.to_string();
  }

  // Packed runs are sampled by throws as others are; an index that does not know records is not asked.
  void expect_sample() {
    const ReaderOptions options;
    ReadCounters counters;
    const Manifest manifest = Reader::open(device_, kDirectory, options).value()->manifest();
    const ReaderFiles files{device_, kDirectory, options, counters};
    PartitionCache partitions(files, manifest);
    const FreedEpochs freed(manifest, nullptr, kDirectory, {});
    for (uint64_t seed = 0; seed < 3; ++seed) {
      KeySample sample(files, manifest, manifest.epochs[1], partitions, freed, seed);
      const auto keys = sample.draw(1);
      ASSERT_TRUE(keys.ok()) << keys.status().to_string();
      ASSERT_EQ(keys->size(), 1u);
      EXPECT_EQ(models_[1].count(keys->front()), 1u);
      EXPECT_EQ(sample.scanned(), manifest.layout.filtered());
    }
  }

  io::MemoryDevice device_;
  Model models_[2];
};

std::vector<Case> all_cases() {
  using run::IndexKind;
  const std::pair<IndexKind, uint32_t> indexes[] = {{IndexKind::kSketch, 10}, {IndexKind::kBloom, 10},
                                                    {IndexKind::kBloom, 0},   {IndexKind::kBlockedBloom, 12},
                                                    {IndexKind::kPapers, 10}, {IndexKind::kPapers, 0}};
  std::vector<Case> cases;
  for (const Codec codec : {Codec::kNone, Codec::kLz4, Codec::kZstd}) {
    for (const auto& [index, bits] : indexes) {
      for (const Rows rows : {Rows::kFloats, Rows::kRandom, Rows::kVariable, Rows::kLarge}) {
        for (const bool several_runs : {false, true}) {
          const size_t records = several_runs ? 20'000 : 500;
          cases.push_back(
              {{codec, index, bits}, rows, rows == Rows::kLarge ? records / 50 : records, several_runs});
        }
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, Layouts, testing::ValuesIn(all_cases()), name_of);

TEST_P(Layouts, EveryRecordIsFoundAndNothingElse) {
  write();
  if (HasFatalFailure()) return;
  const auto reader = open();
  ASSERT_NE(reader, nullptr);
  expect_all(*reader);
}

TEST_P(Layouts, IndexesAreMadeAnewByRepair) {
  write();
  if (HasFatalFailure()) return;
  const std::string path = index_log_path(kDirectory, {1, PartitionNumber(0)});
  auto index = device_.open(path, io::OpenMode::kReadWrite);
  ASSERT_TRUE(index.ok()) << index.status().to_string();
  const run::Footer before = run::read_footer(**index, PartitionNumber(0)).value();
  uint64_t runs = 0;
  for (const run::SegmentRecord& segment : before.segments) runs += segment.runs;
  // In two epochs of two ways each.
  if (GetParam().several_runs) {
    EXPECT_GE(runs, 12u);
  } else {
    EXPECT_EQ(runs, 4u);
  }
  ASSERT_TRUE((*index)->truncate(0).ok());
  const auto report = repair_directory(device_, kDirectory, {});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const run::Footer after =
      run::read_footer(**device_.open(path, io::OpenMode::kRead), PartitionNumber(0)).value();
  ASSERT_EQ(after.segments.size(), before.segments.size());
  const auto reader = open();
  ASSERT_NE(reader, nullptr);
  for (const auto& [key, values] : models_[0]) {
    const auto got = reader->get(key, 0);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    ASSERT_EQ(got->size(), values.size());
  }
  for (const Status& problem : verify_directory(*reader, 10).problems) ADD_FAILURE() << problem.to_string();
}

Status open_with(io::Device& device, const WriterOptions& options) {
  Status status;
  run_ranks(1, [&](net::Job& job) {
    auto writer = Writer::open(job, device, kDirectory, Writer::Create::kIfMissing, options);
    status = writer.status();
    if (writer.ok()) status = (*writer)->close();
  });
  return status;
}

// Each value of the key is a candidate of its own; each decompressed its block anew.
TEST(Layout, AKeyWithManyValuesHasEachOfItsBlocksDecompressedOnce) {
  constexpr uint64_t kValues = 40'000;
  for (const ReaderOptions::Map map : {ReaderOptions::Map::kNever, ReaderOptions::Map::kAuto}) {
    io::MemoryDevice device;
    run_ranks(1, [&](net::Job& job) {
      WriterOptions options;
      options.memory_bytes = 16 * kMiB;
      options.compression = Codec::kLz4;
      auto writer = Writer::open(job, device, kDirectory, Writer::Create::kIfMissing, options);
      ASSERT_TRUE(writer.ok()) << writer.status().to_string();
      for (uint64_t i = 0; i < kValues; ++i) {
        ASSERT_TRUE((*writer)->append("hot", fmt::format("{:020}", i)).ok());
        ASSERT_TRUE((*writer)->append(key_of(i % 100), fmt::format("{:020}", i)).ok());
      }
      ASSERT_TRUE((*writer)->epoch_end(0, 0).ok() && (*writer)->close().ok());
    });
    const std::string path = data_log_path(kDirectory, {1, PartitionNumber(0)});
    const uint64_t blocks = *device.open(path, io::OpenMode::kRead).value()->size() / run::kBlockBytes;
    ASSERT_LT(blocks, kValues / 20) << "the records are not compressed";
    const auto reader = Reader::open(device, kDirectory, {.map = map});
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    const auto values = (*reader)->get("hot", 0);
    ASSERT_TRUE(values.ok()) << values.status().to_string();
    ASSERT_EQ(values->size(), kValues);
    for (uint64_t i = 0; i < kValues; ++i) ASSERT_EQ((*values)[i].bytes, fmt::format("{:020}", i));
    const uint64_t decompressed = (*reader)->files().counters.blocks_decompressed.value();
    fmt::print("{} values in {} blocks: {} were decompressed\n", kValues, blocks, decompressed);
    EXPECT_LE(decompressed, 2 * blocks);
    EXPECT_GT(decompressed, blocks / 4);
  }
}

TEST(Layout, IsFixedWhenTheDirectoryIsMade) {
  io::MemoryDevice device;
  WriterOptions made;
  made.memory_bytes = 16 * kMiB;
  made.compression = Codec::kLz4;
  made.index = run::IndexKind::kBloom;
  made.bloom_bits = 12;
  ASSERT_TRUE(open_with(device, made).ok());
  ASSERT_TRUE(open_with(device, made).ok());
  WriterOptions unsaid;
  unsaid.memory_bytes = 16 * kMiB;
  ASSERT_TRUE(open_with(device, unsaid).ok()) << "as it was made";
  for (int other = 0; other < 3; ++other) {
    WriterOptions options = made;
    if (other == 0) options.compression = Codec::kNone;
    if (other == 1) options.index = run::IndexKind::kSketch;
    if (other == 2) options.bloom_bits = 10;
    const Status refused = open_with(device, options);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_NE(refused.message().find("cannot be changed"), std::string_view::npos) << refused.to_string();
  }
}

TEST(Layout, StandsInTheManifestBehindAFeature) {
  Manifest manifest;
  EXPECT_EQ(manifest.encode().find("layout"), std::string::npos) << "the usual one is not said";
  manifest.layout = {Codec::kZstd, run::IndexKind::kPapers, 0};
  const std::string json = manifest.encode();
  EXPECT_NE(json.find("\"incompatible_features\":[\"layout\"]"), std::string::npos);
  EXPECT_NE(json.find("\"layout\":{\"compression\":\"zstd\",\"index\":\"papers\",\"bloom_bits\":0}"),
            std::string::npos)
      << json;
  const auto decoded = Manifest::decode(json, "json");
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(decoded->layout, manifest.layout);
}

// Compressed directories must have room for their packed runs in every budget that a plan accepts.
TEST(Layout, PlansOfMemoryStayInsideTheBudget) {
  size_t points = 0;
  for (const size_t budget : {8 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB}) {
    for (const uint32_t ways : {1u, 2u, 4u}) {
      MemoryWish wish;
      wish.budget_bytes = budget;
      wish.ways = ways;
      const auto plain = plan_memory(wish);
      wish.layout = {Codec::kZstd, run::IndexKind::kBloom, 10};
      const auto plan = plan_memory(wish);
      if (!plan.ok()) continue;
      ASSERT_TRUE(plain.ok());
      EXPECT_EQ(plain->packing_bytes, 0u);
      EXPECT_GE(plan->packing_bytes,
                ways * (run::packed_bytes_max(plan->memtable_bytes) + Compressor::kMemoryBytes));
      MemoryBudget total(budget);
      EXPECT_TRUE(reserve(total, *plan).ok());
      ++points;
    }
  }
  EXPECT_GE(points, 9u);
  fmt::print("{} plans\n", points);
}

}  // namespace
}  // namespace swale::imd::layout_test
