// Clusters of compressed directories, whose series are columns along epochs: they answer what the epochs
// answer, whatever is done to them, and take fewer bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "imd/check/repair.h"
#include "imd/check/verify.h"
#include "imd/format/cluster_list.h"
#include "imd/format/log_names.h"
#include "imd/format/series.h"
#include "imd/optimize/optimizer.h"
#include "imd/testing/test_free.h"
#include "imd/testing/test_optimize.h"
#include "io/memory_device.h"

namespace swale::imd::columns_test {
namespace {

using test::ask_all_of;
using test::Everything;
using test::free_logs;
using test::JobShape;
using test::kOptimized;
using test::write_job;

constexpr uint64_t kKeys = 40;

struct Counted {
  uint64_t columns = 0;
  uint64_t rows = 0;
};

// Keys and series of a cluster, in its order.
std::vector<std::pair<std::string, std::string>> cluster_of(io::Device& device, uint32_t number) {
  std::vector<std::pair<std::string, std::string>> all;
  const auto reader = Reader::open(device, cluster_folder(kOptimized, number), {});
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  if (!reader.ok()) return all;
  const Status scanned = (*reader)->scan(0, [&](EpochNumber, Bytes key, Bytes series) {
    all.emplace_back(key, series);
    return true;
  });
  EXPECT_TRUE(scanned.ok()) << scanned.to_string();
  return all;
}

Counted count_series(io::Device& device) {
  Counted counted;
  const ClusterList list = test::list_of(device);
  for (const ClusterEntry& cluster : list.clusters) {
    EXPECT_TRUE(cluster.columns);
    for (const auto& [key, series] : cluster_of(device, cluster.number))
      ++(has_columns(series) ? counted.columns : counted.rows);
  }
  return counted;
}

void expect_whole(io::Device& device) {
  const auto reader = Reader::open(device, kOptimized, {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  for (const Status& problem : verify_directory(**reader, 10).problems) ADD_FAILURE() << problem.to_string();
  const auto repaired = repair_directory(device, kOptimized, {.dry_run = true});
  ASSERT_TRUE(repaired.ok()) << repaired.status().to_string();
  EXPECT_TRUE(repaired->found.empty());
}

OptimizeOptions pass_of(bool full) {
  OptimizeOptions options = test::small_pass();
  options.full = full;
  return options;
}

// The random model: jobs, passes and frees in any order; values move slowly, now and then of another size,
// repeated or absent.
void answer_alike(WriterOptions options, Codec codec, uint64_t seed, Counted* counted) {
  options.compression = codec;
  io::MemoryDevice device;
  Rng rng(seed);
  uint64_t job = 0;
  for (int step = 0; step < 8; ++step) {
    const uint64_t kind = step == 0 ? 0 : rng.below(6);
    if (kind <= 1) {
      write_job(device,
                {.ranks = static_cast<int32_t>(1 + rng.below(2)),
                 .epochs = static_cast<uint32_t>(1 + rng.below(5)),
                 .records = 30 + rng.below(150),
                 .keys = kKeys,
                 .one_size = rng.below(2) == 0,
                 .slow = true,
                 .options = options},
                seed * 10 + ++job);
      if (testing::Test::HasFatalFailure()) return;
      continue;
    }
    const Everything before = ask_all_of(device, kKeys);
    ASSERT_EQ(before.problem, "");
    if (kind <= 3) {
      const auto report = optimize_directory(device, kOptimized, pass_of(rng.below(3) == 0));
      ASSERT_TRUE(report.ok()) << report.status().to_string();
    } else {
      const auto report = free_logs(device, rng.below(2) == 0 ? "last" : "none");
      ASSERT_TRUE(report.ok()) << report.status().to_string();
    }
    const Everything after = ask_all_of(device, kKeys);
    EXPECT_EQ(after.problem, "");
    EXPECT_TRUE(after == before) << "seed " << seed << ", step " << step << ", kind " << kind;
    if (testing::Test::HasFailure()) return;
  }
  expect_whole(device);
  const Counted found = count_series(device);
  counted->columns += found.columns;
  counted->rows += found.rows;
}

void try_format(run::ShuffleFormat format, uint64_t first) {
  WriterOptions options;
  options.format = format;
  Counted counted;
  for (uint64_t seed = first; seed < first + 6 && !testing::Test::HasFailure(); ++seed)
    answer_alike(options, seed % 2 == 0 ? Codec::kLz4 : Codec::kZstd, seed, &counted);
  fmt::print("{} series of columns, {} of rows\n", counted.columns, counted.rows);
  EXPECT_GT(counted.columns, 50u);  // the canary: the model is about columns
  EXPECT_GT(counted.rows, 10u);
}

TEST(Columns, AnswersStayTheSame) { try_format(run::ShuffleFormat::kBase, 1); }
TEST(Columns, AnswersStayTheSameInTheIndirectFormat) { try_format(run::ShuffleFormat::kIndirect, 11); }
TEST(Columns, AnswersStayTheSameInTheLossyFormat) { try_format(run::ShuffleFormat::kLossy, 21); }

JobShape slow_shape(Codec codec) {
  JobShape shape{.epochs = 20, .records = 4'000, .keys = 2'000, .one_size = true, .slow = true};
  if (codec != Codec::kNone) shape.options.compression = codec;
  return shape;
}

uint64_t bytes_of(io::Device& device, const std::string& directory, LogId log) {
  const std::string path = data_log_path(directory, log);
  return device.open(path, io::OpenMode::kRead).value()->size().value();
}

TEST(Columns, AreForCompressedDirectoriesOnly) {
  for (const Codec codec : {Codec::kNone, Codec::kLz4, Codec::kZstd}) {
    io::MemoryDevice device;
    write_job(device, slow_shape(codec), 1);
    ASSERT_TRUE(optimize_directory(device, kOptimized, pass_of(false)).ok());
    const ClusterList list = test::list_of(device);
    ASSERT_EQ(list.clusters.size(), 1u);
    const bool expected = codec != Codec::kNone;
    EXPECT_EQ(list.clusters[0].columns, expected);
    EXPECT_EQ(list.encode().find("[\"columns\",\"beside\"]") != std::string::npos, expected);
    uint64_t columns = 0;
    for (const auto& [key, series] : cluster_of(device, 1)) columns += has_columns(series) ? 1 : 0;
    EXPECT_EQ(columns > 1'000, expected) << columns;
    EXPECT_TRUE(expected || columns == 0);
    if (expected) {
      // The same values, compressed epoch by epoch and along epochs.
      EXPECT_LT(static_cast<double>(bytes_of(device, cluster_folder(kOptimized, 1), test::log_of_cluster())),
                0.8 * static_cast<double>(bytes_of(device, kOptimized, {1, PartitionNumber(0)})));
    }
  }
}

TEST(Columns, DoNotDependOnThreadsOrStripes) {
  io::MemoryDevice device;
  JobShape shape = slow_shape(Codec::kLz4);
  shape.ranks = 2;
  shape.one_size = false;
  write_job(device, shape, 1);
  std::vector<std::pair<std::string, std::string>> first;
  for (const auto& [threads, memory_bytes] :
       {std::pair{1u, kOptimizeMemoryMin}, {5u, 2 * kOptimizeMemoryMin}}) {
    OptimizeOptions options = pass_of(true);
    options.threads = threads;
    options.memory_bytes = memory_bytes;
    const auto report = optimize_directory(device, kOptimized, options);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    auto cluster = cluster_of(device, report->number);
    EXPECT_GT(cluster.size(), 1'000u);
    std::ranges::stable_sort(cluster, {}, [](const auto& one) { return one.first; });
    if (first.empty()) first = cluster;
    EXPECT_TRUE(cluster == first) << threads;
  }
}

}  // namespace
}  // namespace swale::imd::columns_test
