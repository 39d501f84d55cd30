// Stripes: each record of a directory is in exactly one of them, however narrow they are; and the series that
// threads make of them do not depend on the threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "imd/format/cluster_list.h"
#include "imd/format/generation.h"
#include "imd/optimize/optimizer.h"
#include "imd/optimize/stripe_pipeline.h"
#include "imd/optimize/stripe_reader.h"
#include "imd/optimize/throttle.h"
#include "imd/read/reader_partition.h"
#include "imd/testing/test_optimize.h"
#include "io/memory_device.h"

namespace swale::imd::stripes_test {
namespace {

using test::kOptimized;
using test::write_job;
using testing::HasSubstr;

// Index of the epoch, key, what the record has.
using Found = std::tuple<uint32_t, std::string, std::string>;

uint32_t by_last_digit(void*, const void* key, size_t key_bytes, uint32_t partitions) {
  return static_cast<uint32_t>(static_cast<const char*>(key)[key_bytes - 1] - '0') % partitions;
}

// A directory, and readers of its stripes.
class Directory {
 public:
  explicit Directory(const test::JobShape& shape) {
    write_job(device_, shape, 1);
    manifest_ = load_manifest(device_, kOptimized).value();
    for (const EpochEntry& epoch : manifest_.epochs) epochs_.push_back(epoch.epoch);
  }

  Manifest& manifest() { return manifest_; }
  io::MemoryDevice& device() { return device_; }
  std::unique_ptr<StripeReader> open(size_t memory_bytes, size_t reads_in_flight = 4) {
    partitions_ = std::make_unique<PartitionCache>(files_, manifest_);
    auto reader =
        StripeReader::open(files_, manifest_, *partitions_, epochs_, {}, memory_bytes, reads_in_flight);
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    return std::move(*reader);
  }

  // All records by a scan.
  std::vector<Found> scan() {
    std::vector<Found> all;
    const auto reader = Reader::open(device_, kOptimized, {}).value();
    EXPECT_TRUE(reader
                    ->scan(Reader::kAllEpochs,
                           [&](EpochNumber epoch, Bytes key, Bytes value) {
                             all.emplace_back(epoch, key, value);
                             return true;
                           })
                    .ok());
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  io::MemoryDevice device_;
  ReadCounters counters_;
  const ReaderFiles files_{device_, kOptimized, {}, counters_};
  Manifest manifest_;
  std::vector<EpochNumber> epochs_;
  std::unique_ptr<PartitionCache> partitions_;
};

// The records of one stripe; checks that those of one key come by epoch.
void take(const Stripe& stripe, std::vector<Found>* all) {
  std::map<std::string, uint32_t> epochs;
  uint64_t rows = 0;
  for (const StripePart& part : stripe.parts) {
    rows += part.count;
    for (uint32_t i = 0; i < part.count; ++i) {
      if (!stripe.has(part.hash(i))) continue;
      const char* const at = part.uniform + size_t{i} * part.row_bytes;
      const StripeRow row = part.rows != nullptr
                                ? part.rows[i]
                                : StripeRow{part.hash(i), at, part.index,
                                            StripeRow::shape_of(part.row_bytes, part.key_bytes, false)};
      EXPECT_EQ(row.hash, hash_bytes(row.key()));
      all->emplace_back(row.index, row.key(), row.stored());
      uint32_t& last = epochs[std::string(row.key())];
      EXPECT_LE(last, row.index);
      last = row.index;
    }
  }
  EXPECT_EQ(rows, stripe.rows_max);
}

// Reads all in stripes whose ends are drawn at random.
std::vector<Found> read_all(StripeReader& reader, uint64_t stripes, Rng& rng) {
  std::vector<Hash> ends{~Hash{0}};
  for (uint64_t i = 1; i < stripes; ++i) ends.push_back(rng.next());
  std::sort(ends.begin(), ends.end());
  std::vector<Found> all;
  Stripe stripe;
  Hash first = 0;
  for (const Hash last : ends) {
    stripe.first = first;
    stripe.last = last;
    const Status status = reader.read(&stripe);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) break;
    take(stripe, &all);
    first = last + 1;
  }
  const Status finished = reader.finish();
  EXPECT_TRUE(finished.ok()) << finished.to_string();
  std::sort(all.begin(), all.end());
  return all;
}

void expect_all_in_stripes(const test::JobShape& shape, size_t memory_bytes) {
  Directory directory(shape);
  const std::vector<Found> scanned = directory.scan();
  Rng rng(7);
  for (const uint64_t stripes : {1, 2, 40, 700}) {
    for (const size_t reads_in_flight : {1, 3}) {
      const auto reader = directory.open(memory_bytes, reads_in_flight);
      EXPECT_TRUE(read_all(*reader, stripes, rng) == scanned) << stripes;
    }
  }
}

TEST(Stripes, HaveEachRowOfUniformRunsOnce) {
  expect_all_in_stripes({.ranks = 2, .ways = 2, .records = 6'000, .keys = 4'000, .one_size = true}, kMiB);
}

TEST(Stripes, HaveEachRecordOfOtherRunsOnce) {
  // Values in value logs are not the records' own.
  test::JobShape shape{.ranks = 3, .records = 2'000, .keys = 900};
  Directory directory(shape);
  std::map<uint32_t, uint64_t> records;
  for (const EpochEntry& epoch : directory.manifest().epochs) records[epoch.epoch] = epoch.records;
  Rng rng(7);
  for (const uint64_t stripes : {1, 3, 300}) {
    std::map<uint32_t, uint64_t> found;
    for (const auto& [index, key, stored] : read_all(*directory.open(kMiB), stripes, rng)) ++found[index];
    EXPECT_EQ(found, records) << stripes;
  }
}

TEST(Stripes, HaveEachRecordOfPackedRunsOnce) {
  test::JobShape shape{.records = 3'000, .keys = 50, .one_size = true};
  shape.options.compression = Codec::kZstd;
  expect_all_in_stripes(shape, kMiB);
}

TEST(Stripes, HaveEachRecordOfRunsInAnotherOrderOnce) {
  test::JobShape shape{.ranks = 2, .epochs = 2, .records = 500, .keys = 300, .one_size = true};
  shape.options.partitioner = {"last_digit", by_last_digit, nullptr};
  expect_all_in_stripes(shape, kMiB);
}

// Whose keys are not where their hashes say, though the manifest says so.
// With one read in flight no stripe needs new chunks of many runs. The canary: with several, some do.
TEST(Stripes, ReadsAreSpreadOverStripes) {
  constexpr uint32_t kEpochs = 16;
  constexpr uint64_t kStripes = 64;
  constexpr uint64_t kChunk = 128 * kKiB;
  Directory directory({.epochs = kEpochs, .records = 16'000, .keys = 8'000, .one_size = true});
  const uint64_t hot = hash_bytes(test::optimized_key(0)) >> 58;
  for (const size_t in_flight : {1, 4}) {
    const auto reader = directory.open(2 * kEpochs * kChunk, in_flight);
    Stripe stripe;
    uint64_t most = 0;
    for (uint64_t i = 0; i < kStripes; ++i) {
      stripe.first = i << 58;
      stripe.last = stripe.first + (uint64_t{1} << 58) - 1;
      ASSERT_TRUE(reader->read(&stripe).ok());
      if (i > 0 && i != hot) most = std::max(most, stripe.read_bytes);
    }
    ASSERT_TRUE(reader->finish().ok());
    EXPECT_EQ(most <= kEpochs * kChunk / 4, in_flight == 1) << most;
    EXPECT_EQ(most > kEpochs * kChunk / 3, in_flight != 1) << most;
  }
}

TEST(Stripes, ARunThatIsNotInTheOrderOfHashesIsDamage) {
  test::JobShape shape{.ranks = 2, .epochs = 1, .records = 500, .keys = 300, .one_size = true};
  shape.options.partitioner = {"last_digit", by_last_digit, nullptr};
  Directory directory(shape);
  directory.manifest().jobs[0].partitioner = kHashPartitioner;
  const auto reader = directory.open(kMiB);
  Stripe stripe;
  stripe.last = ~Hash{0};
  const Status status = reader->read(&stripe);
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(status.message(), HasSubstr("not in the order of its keys' hashes"));
}

TEST(Stripes, ARunThatWasNotReadToItsEndIsNoticed) {
  Directory directory({.records = 5'000, .keys = 4'000, .one_size = true});
  const auto reader = directory.open(kMiB);
  Stripe stripe;
  stripe.last = Hash{1} << 63;
  ASSERT_TRUE(reader->read(&stripe).ok());
  EXPECT_EQ(reader->finish().code(), Code::kInternal);
}

// Keys and series of a cluster, in its order.
std::vector<std::pair<std::string, std::string>> cluster_of(io::Device& device, uint32_t number) {
  std::vector<std::pair<std::string, std::string>> all;
  const auto reader = Reader::open(device, cluster_folder(kOptimized, number), {});
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_TRUE((*reader)
                  ->scan(0,
                         [&](EpochNumber, Bytes key, Bytes series) {
                           all.emplace_back(key, series);
                           return true;
                         })
                  .ok());
  return all;
}

TEST(Stripes, AClusterDoesNotDependOnThreads) {
  for (const bool one_size : {true, false}) {
    io::MemoryDevice device;
    write_job(device,
              {.ranks = 2,
               .epochs = 4,
               .records = one_size ? 60'000u : 8'000u,
               .keys = 20'000,
               .one_size = one_size},
              1);
    OptimizeOptions options = test::small_pass();
    options.full = true;
    std::vector<std::pair<std::string, std::string>> first;
    uint64_t stripes_most = 0;
    for (const uint32_t threads : {1, 2, 7}) {
      options.threads = threads;
      const auto report = optimize_directory(device, kOptimized, options);
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      stripes_most = std::max(stripes_most, report->stripes);
      const auto cluster = cluster_of(device, report->number);
      EXPECT_TRUE(
          std::ranges::is_sorted(cluster, {}, [](const auto& one) { return hash_bytes(one.first) >> 24; }));
      if (first.empty()) first = cluster;
      EXPECT_TRUE(cluster == first) << threads;
    }
    EXPECT_GT(stripes_most, 5u);
  }
}

// The series of one key with these values, by epoch, by the quick ways; and as the builder makes them.
void expect_cut_alike_in(SeriesLayout layout, const std::string& key, const std::vector<std::string>& values,
                         uint32_t gap) {
  std::vector<std::string> rows;
  for (const std::string& value : values) rows.push_back(key + value);
  Stripe stripe;
  stripe.last = ~Hash{0};
  std::vector<std::string> expected;
  SeriesBuilder builder([&](Bytes series) {
    std::string& one = expected.emplace_back(series);
    if (layout == SeriesLayout::kColumns) make_columns({one.data(), one.size()});
    return Status();
  });
  for (size_t i = 0; i < rows.size(); ++i) {
    StripePart part;
    part.uniform = rows[i].data();
    part.count = 1;
    part.index = static_cast<uint32_t>(i) * gap;
    part.row_bytes = static_cast<uint16_t>(rows[i].size());
    part.key_bytes = static_cast<uint8_t>(key.size());
    stripe.add(part);
    ASSERT_TRUE(builder.add(part.index, SeriesKind::kWhole, values[i]).ok());
  }
  ASSERT_TRUE(builder.finish().ok());
  SeriesMaker maker(static_cast<uint32_t>(rows.size()) * gap, layout, {}, run::ChunkPool::create());
  SeriesBatch batch;
  ASSERT_TRUE(maker.make(stripe, &batch).ok());
  std::vector<std::string> made;
  uint64_t of_chunks = 0;
  for (const auto& chunk : batch.chunks) {
    of_chunks += chunk->digest();
    ASSERT_TRUE(chunk
                    ->walk([&](const run::RecordView& record) {
                      EXPECT_EQ(record.key, key);
                      made.emplace_back(record.value);
                      of_chunks -= run::record_digest(record);
                      return Status();
                    })
                    .ok());
  }
  EXPECT_EQ(of_chunks, 0u);
  EXPECT_EQ(made, expected);
  EXPECT_EQ(batch.records, rows.size());
  uint64_t digest = 0;
  for (const RecordTally& tally : maker.tallies()) digest += tally.digest;
  for (const std::string& row : rows) digest -= record_digest(row, key.size());
  EXPECT_EQ(digest, 0u);
}

void expect_cut_alike(const std::string& key, const std::vector<std::string>& values, uint32_t gap) {
  for (const SeriesLayout layout : {SeriesLayout::kRows, SeriesLayout::kColumns})
    expect_cut_alike_in(layout, key, values, gap);
}

TEST(Stripes, LongSeriesAreCutAsTheBuilderCutsThem) {
  Rng rng(9);
  for (const uint64_t count : {1, 2, 381, 382, 400, 1'000}) {
    for (const uint32_t gap : {1, 2, 200}) {
      expect_cut_alike("12345678", std::vector<std::string>(count, std::string(40, 'v')), gap);
      expect_cut_alike("key", std::vector<std::string>(count, std::string(40, 'v')), gap);
      std::vector<std::string> values;
      for (uint64_t i = 0; i < count; ++i)
        values.emplace_back(rng.below(100) == 0 ? kSeriesBytesMax - rng.below(60) : rng.below(300), 'w');
      expect_cut_alike("12345678", values, gap);
    }
  }
  for (size_t bytes = kSeriesBytesMax - 60; bytes <= kSeriesBytesMax; ++bytes)
    expect_cut_alike("12345678", std::vector<std::string>(3, std::string(bytes, 'x')), 1);
}

// A failure of a worker is what the owner gets; without it, it gets all.
TEST(Stripes, AFailureOnAnotherThreadEndsThePass) {
  test::JobShape shape{.records = 400, .keys = 300};
  shape.options.format = run::ShuffleFormat::kIndirect;
  Directory directory(shape);
  for (const bool fails : {false, true}) {
    const auto reader = directory.open(kMiB);
    StripePipeline::Params params{.stripes = 9, .epochs = 3, .threads = 3, .slots = 4};
    params.resolve = [&](uint32_t, Bytes, Bytes) -> Result<std::string> {
      if (fails) return error(Code::kIoError, Scope::kFile, "no value");
      return std::string("v");
    };
    const auto pipeline = StripePipeline::start(*reader, params).value();
    Status status;
    uint64_t batches = 0;
    for (;; ++batches) {
      const auto batch = pipeline->next();
      status = batch.status();
      if (!batch.ok() || *batch == nullptr) break;
    }
    EXPECT_EQ(status.code(), fails ? Code::kIoError : Code::kOk);
    EXPECT_TRUE(fails || batches == 9) << batches;
  }
}

TEST(Throttle, BytesTakeTheirTimeAndIdleTimeGivesNoCredit) {
  ManualClock clock(seconds(100));
  Nanos waited = 0;
  bool told = false;
  Throttle throttle(1'000, clock, [&](Nanos nanos) {
    waited += nanos;
    clock.advance(nanos);
    return !told;
  });
  EXPECT_TRUE(throttle.take(500) && throttle.take(1'500));
  EXPECT_EQ(waited, seconds(2));
  clock.advance(seconds(60));
  EXPECT_TRUE(throttle.take(1'000));
  EXPECT_EQ(waited, seconds(3));
  told = true;
  EXPECT_FALSE(throttle.take(0));
}

// The whole pass waits as long as its reads and its series take at this rate.
TEST(Throttle, APassKeepsItsRate) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 4, .records = 20'000, .keys = 9'000, .one_size = true}, 1);
  const auto data =
      device.open(kOptimized + std::string("/p000/part-000000.j0001.data"), io::OpenMode::kRead);
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  ManualClock clock(seconds(5));
  Nanos waited = 0;
  OptimizeOptions options = test::small_pass();
  options.rate_bytes_per_s = kMiB;
  options.clock = &clock;
  options.pause = [&](Nanos nanos) {
    waited += nanos;
    clock.advance(nanos);
    return true;
  };
  const auto report = optimize_directory(device, kOptimized, options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const double bytes = static_cast<double>(report->bytes + *(*data)->size());
  EXPECT_GT(report->stripes, 1u);
  EXPECT_NEAR(to_seconds(waited), bytes / static_cast<double>(kMiB), 0.1);
}

TEST(Throttle, APassThatIsToldToEndChangesNothing) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 4, .records = 20'000, .keys = 9'000, .one_size = true}, 1);
  const test::Answers before = test::ask_directory(device, 20);
  OptimizeOptions options = test::small_pass();
  uint64_t asked = 0;
  options.pause = [&](Nanos) { return ++asked < 2; };
  const auto report = optimize_directory(device, kOptimized, options);
  EXPECT_EQ(report.status().code(), Code::kAborted);
  EXPECT_THAT(report.status().message(), HasSubstr("nothing was changed"));
  EXPECT_EQ(asked, 2u);
  EXPECT_TRUE(load_clusters(device, kOptimized)->clusters.empty());
  EXPECT_TRUE(device.list(cluster_folder(kOptimized, 1))->empty());
  EXPECT_TRUE(test::ask_directory(device, 20) == before);
  EXPECT_TRUE(optimize_directory(device, kOptimized, test::small_pass()).ok());
  EXPECT_TRUE(test::ask_directory(device, 20) == before);
}

}  // namespace
}  // namespace swale::imd::stripes_test
