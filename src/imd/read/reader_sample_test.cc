#include "imd/read/reader_sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "imd/testing/test_directory.h"
#include "io/memory_device.h"

namespace swale::imd::reader_sample_test {
namespace {

using test::Records;
using test::TestDirectory;

std::vector<std::string> sample(Reader& reader, int64_t epoch, size_t n, uint64_t seed) {
  std::vector<std::string> keys;
  const Status status = reader.sample(epoch, n, seed, [&](Bytes key) {
    keys.emplace_back(key);
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  return keys;
}

// Key i has one record, but each 16th has 200: a sampler of records would nearly always find those.
Records uneven_records(uint64_t keys, bool uniform) {
  Records records;
  for (uint64_t i = 0; i < keys; ++i) {
    for (int copy = 0; copy < (i % 16 == 0 ? 200 : 1); ++copy) {
      records.emplace_back(fmt::format("{:08}", i), std::string(uniform ? 40 : i % 80, 'v'));
    }
  }
  Rng rng(9);
  std::shuffle(records.begin(), records.end(), rng);
  return records;
}

struct Shape {
  int32_t ranks;
  uint32_t ways;
  size_t records_per_run;
  size_t runs_per_segment;
  bool uniform;
};
class Samples : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Samples,
                         testing::Values(Shape{1, 1, 50'000, 100, true}, Shape{1, 1, 9'000, 3, true},
                                         Shape{3, 2, 7'000, 100, false}));

// Every key is as likely as any other: of many samples, those with many records make up their share of the
// *keys*, and so do those of each partition and those of short values. Four standard deviations.
TEST_P(Samples, ManyRecordsMakeAKeyNoLikelier) {
  const Shape shape = GetParam();
  constexpr uint64_t kKeys = 8'000;
  io::MemoryDevice device;
  TestDirectory directory(device, "/dir");
  directory.begin_job(shape.ranks, shape.ways);
  TestDirectory::Shape runs;
  runs.records_per_run = shape.records_per_run;
  runs.runs_per_segment = shape.runs_per_segment;
  directory.write_epoch(uneven_records(kKeys, shape.uniform), runs);
  auto reader = Reader::open(device, "/dir", {}).value();
  ReadCounters counters;
  const Manifest& manifest = directory.manifest;
  const ReaderFiles files{device, "/dir", {}, counters};
  PartitionCache partitions(files, manifest);
  const FreedEpochs freed(manifest, nullptr, "/dir", {});
  uint64_t frequent = 0;
  uint64_t early = 0;
  uint64_t drawn = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    KeySample by_throws(files, manifest, manifest.epochs[0], partitions, freed, seed);
    const auto keys = by_throws.draw(5).value();
    EXPECT_FALSE(by_throws.scanned());
    EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), 5u);
    for (const std::string& key : keys) {
      const uint64_t number = std::stoull(key);
      ASSERT_LT(number, kKeys);
      frequent += number % 16 == 0 ? 1 : 0;
      early += number < kKeys / 4 ? 1 : 0;
      ++drawn;
    }
  }
  const auto expect_share = [&](uint64_t found, double share, const char* what) {
    const double mean = share * static_cast<double>(drawn);
    const double sigma = std::sqrt(mean * (1 - share));
    std::printf("%s: %llu of %llu, expected %.0f, sigma %.1f\n", what, static_cast<unsigned long long>(found),
                static_cast<unsigned long long>(drawn), mean, sigma);
    EXPECT_NEAR(static_cast<double>(found), mean, 4 * sigma) << what;
  };
  expect_share(frequent, 1.0 / 16, "keys of 200 records");
  expect_share(early, 1.0 / 4, "the first quarter");
  // The canary: a sampler of records is far off.
  Rng rng(1);
  const Records records = uneven_records(kKeys, shape.uniform);
  uint64_t by_record = 0;
  for (int i = 0; i < 1'000; ++i)
    by_record += std::stoull(records[rng.below(records.size())].first) % 16 == 0 ? 1 : 0;
  EXPECT_GT(by_record, 800u);
}

TEST_P(Samples, TheSeedDecides) {
  const Shape shape = GetParam();
  io::MemoryDevice device;
  TestDirectory directory(device, "/dir");
  directory.begin_job(shape.ranks, shape.ways);
  directory.write_epoch({});
  directory.write_epoch(uneven_records(8'000, shape.uniform), {.records_per_run = shape.records_per_run});
  auto reader = Reader::open(device, "/dir", {}).value();
  EXPECT_TRUE(sample(*reader, 0, 10, 1).empty());
  std::set<std::vector<std::string>> different;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto keys = sample(*reader, 1, 20, seed);
    EXPECT_EQ(keys.size(), 20u);
    EXPECT_EQ(keys, sample(*reader, 1, 20, seed));
    different.insert(keys);
    for (const std::string& key : keys) EXPECT_TRUE(reader->get(key, 1).ok());
  }
  EXPECT_EQ(different.size(), 20u);
}

TEST(Sample, AllKeysIfSoManyAreAskedForAndNeverOneTwice) {
  io::MemoryDevice device;
  TestDirectory directory(device, "/dir");
  directory.begin_job(2);
  directory.write_epoch(uneven_records(500, true));
  auto reader = Reader::open(device, "/dir", {}).value();
  for (const size_t n :
       {size_t{0}, size_t{1}, size_t{250}, size_t{499}, size_t{500}, size_t{501}, size_t{100'000}}) {
    const auto keys = sample(*reader, 0, n, n);
    EXPECT_EQ(keys.size(), std::min<size_t>(n, 500));
    EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), keys.size());
  }
  EXPECT_EQ(reader->sample(Reader::kAllEpochs, 1, 1, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(reader->sample(0, Reader::kSampleMax + 1, 1, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(reader->sample(1, 1, 1, {}).code(), Code::kInvalidArgument);
}

TEST(Sample, LittleIsRead) {
  io::MemoryDevice device;
  TestDirectory directory(device, "/dir");
  directory.begin_job(1);
  Records records;
  for (uint64_t i = 0; i < 200'000; ++i) records.emplace_back(fmt::format("{:08}", i), std::string(40, 'v'));
  directory.write_epoch(records, {.records_per_run = 50'000});
  auto reader = Reader::open(device, "/dir", {}).value();
  const auto keys = sample(*reader, 0, 50, 1);
  EXPECT_EQ(keys.size(), 50u);
  const ReadStats stats = reader->stats();
  std::printf("50 keys of 200,000: %llu bytes in %llu reads\n",
              static_cast<unsigned long long>(stats.bytes_read),
              static_cast<unsigned long long>(stats.reads));
  EXPECT_LT(stats.bytes_read, 1'500'000u);
}

}  // namespace
}  // namespace swale::imd::reader_sample_test
