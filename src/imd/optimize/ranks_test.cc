// A pass by several ranks: the series of one process, in a partition a rank; what fails on one rank fails on
// all, by name, and the next pass, by another number of ranks, ends.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "imd/check/verify.h"
#include "imd/format/cluster_list.h"
#include "imd/format/generation.h"
#include "imd/optimize/free.h"
#include "imd/optimize/optimizer.h"
#include "imd/optimize/pass_ranks.h"
#include "imd/optimize/stripe_reader.h"
#include "imd/testing/test_optimize.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::ranks_test {
namespace {

using test::Answers;
using test::ask_directory;
using test::JobShape;
using test::kOptimized;
using test::small_pass;
using test::write_job;
using testing::HasSubstr;

constexpr uint64_t kKeys = 60;

OptimizeOptions full_pass() {
  OptimizeOptions options = small_pass();
  options.full = true;
  return options;
}

using Reports = std::vector<std::optional<Result<OptimizeReport>>>;

// A pass by so many ranks, of which rank `odd` has a device and options of its own.
struct Odd {
  net::Rank rank = -1;
  io::Device* device = nullptr;
  OptimizeOptions options = full_pass();
};

// As the command does it: the job is closed, also that of a pass that has failed.
Reports optimize_by(int32_t ranks, io::Device& device, const OptimizeOptions& options, const Odd& odd = {}) {
  Reports reports(static_cast<size_t>(ranks));
  const auto group = std::make_shared<net::LocalGroup>(ranks);
  std::vector<std::thread> threads;
  for (net::Rank rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      net::JobOptions of_job;
      of_job.transport = "loopback";
      const auto job = net::Job::open(net::local_bootstrap(group, rank), of_job);
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      const bool is_odd = rank == odd.rank;
      OptimizeOptions own = is_odd ? odd.options : options;
      own.job = job->get();
      auto& report = reports[static_cast<size_t>(rank)];
      report = optimize_directory(is_odd && odd.device != nullptr ? *odd.device : device, kOptimized, own);
      const Status closed = (*job)->close();
      EXPECT_TRUE(closed.ok()) << closed.to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return reports;
}

// The series of a cluster by key, in their order.
std::map<std::string, std::vector<std::string>> series_of(io::Device& device, uint32_t number) {
  std::map<std::string, std::vector<std::string>> all;
  const auto reader = Reader::open(device, cluster_folder(kOptimized, number), {});
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  if (!reader.ok()) return all;
  EXPECT_TRUE((*reader)
                  ->scan(0,
                         [&](EpochNumber, Bytes key, Bytes series) {
                           all[std::string(key)].emplace_back(series);
                           return true;
                         })
                  .ok());
  return all;
}

void expect_whole(io::Device& device) {
  const auto reader = Reader::open(device, kOptimized, {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  const VerifyReport report = verify_directory(**reader, 10);
  for (const Status& problem : report.problems) ADD_FAILURE() << problem.to_string();
  EXPECT_GT(report.clusters, 0u);
}

uint32_t by_last_digit(void*, const void* key, size_t key_bytes, uint32_t partitions) {
  return static_cast<uint32_t>(static_cast<const char*>(key)[key_bytes - 1] - '0') % partitions;
}

void expect_the_series_of_one_process(const JobShape& shape) {
  io::MemoryDevice device;
  write_job(device, shape, 1);
  const Answers before = ask_directory(device, shape.keys);
  ASSERT_EQ(before.problem, "");
  std::map<std::string, std::vector<std::string>> of_one;
  for (const int32_t ranks : {1, 2, 3, 5}) {
    const Reports reports = optimize_by(ranks, device, full_pass());
    for (const auto& report : reports) {
      ASSERT_TRUE(report->ok()) << ranks << ": " << report->status().to_string();
      EXPECT_EQ((**report).number, (**reports[0]).number);
      EXPECT_EQ((**report).series, (**reports[0]).series);
    }
    const auto list = load_clusters(device, kOptimized);
    ASSERT_TRUE(list.ok());
    ASSERT_EQ(list->clusters.size(), 1u);
    EXPECT_EQ(list->clusters[0].ranks, static_cast<uint32_t>(ranks));
    const auto found = series_of(device, list->generation);
    if (ranks == 1) of_one = found;
    EXPECT_TRUE(found == of_one) << ranks;
    EXPECT_TRUE(ask_directory(device, shape.keys) == before) << ranks;
    expect_whole(device);
  }
}

TEST(OptimizeRanks, MakeTheSeriesOfOneProcess) {
  expect_the_series_of_one_process({.ranks = 2, .ways = 2, .records = 3'000, .keys = 900, .one_size = true});
}

TEST(OptimizeRanks, MakeTheSeriesOfOneProcessOfRecordsOfAllLengths) {
  expect_the_series_of_one_process({.ranks = 3, .records = 600, .keys = 300});
}

TEST(OptimizeRanks, MakeTheSeriesOfOneProcessOfCompressedRuns) {
  JobShape shape{.ranks = 2, .records = 600, .keys = 300};
  shape.options.compression = Codec::kLz4;
  expect_the_series_of_one_process(shape);
  shape.slow = true;  // and so of columns
  expect_the_series_of_one_process(shape);
}

TEST(OptimizeRanks, MakeTheSeriesOfOneProcessOfRunsInAnotherOrder) {
  JobShape shape{.ranks = 3, .records = 600, .keys = 300};
  shape.options.partitioner = {.name = "last-digit", .function = by_last_digit};
  expect_the_series_of_one_process(shape);
  JobShape lossy{.ranks = 3, .records = 600, .keys = 300};
  lossy.options.format = run::ShuffleFormat::kLossy;
  expect_the_series_of_one_process(lossy);
}

// A rank's part of a run is found without reading what comes before it.
TEST(OptimizeRanks, ReadTheirPartOfARunAlone) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 1, .records = 60'000, .keys = 50'000, .one_size = true}, 1);
  const Manifest manifest = load_manifest(device, kOptimized).value();
  const std::vector<EpochNumber> epochs = {EpochNumber(0)};
  const auto bytes_of = [&](const HashRange& range) {
    ReadCounters counters;
    const ReaderFiles files{device, kOptimized, {}, counters};
    PartitionCache partitions(files, manifest);
    const auto reader = StripeReader::open(files, manifest, partitions, epochs, {}, kMiB, 1, range);
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    Stripe stripe;
    stripe.first = range.first;
    stripe.last = range.last;
    EXPECT_TRUE((*reader)->read(&stripe).ok());
    const Status finished = (*reader)->finish();
    EXPECT_TRUE(finished.ok()) << finished.to_string();
    uint64_t rows = 0;
    for (const StripePart& part : stripe.parts) {
      for (uint32_t i = 0; i < part.count; ++i) rows += stripe.has(part.hash(i)) ? 1 : 0;
    }
    return std::pair(counters.snapshot().bytes_read, rows);
  };
  const auto [all_bytes, all_rows] = bytes_of({});
  EXPECT_EQ(all_rows, 60'000u);
  uint64_t rows = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const auto [bytes, own_rows] = bytes_of(HashRange::of(rank, 4));
    EXPECT_LT(bytes, all_bytes / 2) << rank;
    rows += own_rows;
  }
  EXPECT_EQ(rows, all_rows);
}

TEST(OptimizeRanks, OthersContinueWhatSomeRanksHaveBegun) {
  io::MemoryDevice device;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    write_job(device, {.ranks = 2, .records = 120, .keys = kKeys}, seed);
    const Answers before = ask_directory(device, kKeys);
    const Reports reports = optimize_by(static_cast<int32_t>(1 + seed % 3), device, small_pass());
    ASSERT_TRUE(reports[0]->ok()) << reports[0]->status().to_string();
    EXPECT_TRUE(ask_directory(device, kKeys) == before) << seed;
    expect_whole(device);
  }
}

// Epochs that only clusters of several partitions have: scanned, and copied by other ranks.
TEST(OptimizeRanks, FreedEpochsAreReadFromAllPartitions) {
  io::MemoryDevice device;
  write_job(device, {.ranks = 2, .records = 120, .keys = kKeys}, 1);
  const Answers before = ask_directory(device, kKeys);
  const auto scanned = [&] {
    std::vector<std::pair<std::string, std::string>> all;
    const auto reader = Reader::open(device, kOptimized, {});
    for (uint32_t part = 0; part < 3; ++part) {
      EXPECT_TRUE((*reader)
                      ->scan_part(Reader::kAllEpochs, part, 3,
                                  [&](EpochNumber epoch, Bytes key, Bytes value) {
                                    all.emplace_back(fmt::format("{} {}", epoch.value(), key), value);
                                    return true;
                                  })
                      .ok());
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  const auto before_scanned = scanned();
  ASSERT_TRUE(optimize_by(3, device, full_pass())[0]->ok());
  FreeOptions options;
  options.keep = "none";
  const auto freed = free_directory(device, kOptimized, options);
  ASSERT_TRUE(freed.ok()) << freed.status().to_string();
  ASSERT_GT(freed->plan.epochs, 0u);
  EXPECT_TRUE(ask_directory(device, kKeys) == before);
  EXPECT_TRUE(scanned() == before_scanned);
  for (const int32_t ranks : {2, 1}) {
    const auto again = optimize_by(ranks, device, full_pass());
    ASSERT_TRUE(again[0]->ok()) << again[0]->status().to_string();
    EXPECT_TRUE(ask_directory(device, kKeys) == before) << ranks;
    EXPECT_TRUE(scanned() == before_scanned) << ranks;
    expect_whole(device);
  }
}

TEST(OptimizeRanks, OfDifferentOptionsAreRefused) {
  io::MemoryDevice device;
  write_job(device, {.records = 60, .keys = kKeys}, 1);
  Odd odd{.rank = 1, .device = nullptr, .options = small_pass()};
  const Reports reports = optimize_by(3, device, full_pass(), odd);
  for (const auto& report : reports) {
    ASSERT_FALSE(report->ok());
    EXPECT_EQ(report->status().code(), Code::kInvalidArgument);
    EXPECT_THAT(report->status().message(), HasSubstr("rank 1 was given other options than rank 0"));
  }
  EXPECT_TRUE(load_clusters(device, kOptimized)->clusters.empty());
}

// What storage of one rank refuses, from its n-th call on, for every n.
void fail_at_each_call(net::Rank rank) {
  set_log_level(LogLevel::kOff);
  io::MemoryDevice device;
  write_job(device, {.ranks = 2, .records = 40, .keys = 12}, 1);
  const Answers before = ask_directory(device, 12);
  uint64_t failed = 0;
  for (uint64_t nth = 1; nth < 2'000; ++nth) {
    io::FaultDevice faulty(device);
    faulty.inject({.nth = nth, .from_then_on = true});
    const Reports reports = optimize_by(3, device, full_pass(), {.rank = rank, .device = &faulty});
    const bool ended = faulty.faults() == 0;
    for (const auto& report : reports) {
      EXPECT_TRUE(!ended || report->ok()) << nth << ": " << report->status().to_string();
      // What fails after the commit changes nothing any more.
      if (report->ok() || &report == &reports[static_cast<size_t>(rank)]) continue;
      EXPECT_THAT(report->status().message(), HasSubstr(fmt::format("rank {}", rank))) << nth;
    }
    failed += reports[2]->ok() ? 0 : 1;
    static_cast<void>(device.remove(clusters_folder(kOptimized) + "/optimize.lock"));
    EXPECT_TRUE(ask_directory(device, 12) == before) << nth;
    const Reports next = optimize_by(static_cast<int32_t>(1 + nth % 2), device, full_pass());
    EXPECT_TRUE(next[0]->ok()) << nth << ": " << next[0]->status().to_string();
    EXPECT_TRUE(ask_directory(device, 12) == before) << nth;
    const auto folders = device.list(clusters_folder(kOptimized));
    EXPECT_THAT(*folders, testing::UnorderedElementsAreArray(
                              test::names_of_one_cluster((*next[0])->number, nth % 2 == 0 ? 1 : 2)))
        << nth << ": what was left is removed";
    if (ended || testing::Test::HasFailure()) break;
  }
  fmt::print("rank {} failed at {} calls\n", rank, failed);
  EXPECT_GT(failed, 10u);
  set_log_level(LogLevel::kWarn);
}

TEST(OptimizeRanks, TheFirstFailsAtAnyCall) { fail_at_each_call(0); }
TEST(OptimizeRanks, AnotherFailsAtAnyCall) { fail_at_each_call(1); }

TEST(OptimizeRanks, TellEachOtherWhatIsLongerThanAMessage) {
  PassOrder order{.number = 7, .epochs_left = 11, .epochs = {}, .sources = {3, 5}};
  for (uint32_t epoch = 0; epoch < 20'000; ++epoch) order.epochs.push_back({EpochNumber(epoch), epoch * 3u});
  run_ranks(3, [&](net::Job& job) {
    PassRanks ranks(job);
    const auto text = ranks.from_first(ranks.is_first() ? order.encode() : std::string("something else"));
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    const auto heard = PassOrder::decode(*text);
    ASSERT_TRUE(heard.ok());
    EXPECT_TRUE(heard->epochs == order.epochs && heard->sources == order.sources && heard->number == 7u);
    EXPECT_EQ(heard->epochs_left, 11u);
    EXPECT_FALSE(PassOrder::decode(Bytes(*text).substr(1)).ok());
    const auto rank = static_cast<uint64_t>(job.rank());
    std::vector<RecordTally> mine(5'000, {rank, 10 * rank, 100 + rank});
    const auto sums = ranks.sum(mine);
    ASSERT_TRUE(sums.ok());
    EXPECT_TRUE(*sums == std::vector<RecordTally>(5'000, {3, 30, 303}));
  });
}

// The canary: a rank that sees another directory at this place.
TEST(OptimizeRanks, ARankWithAnotherDirectoryIsTold) {
  set_log_level(LogLevel::kOff);
  io::MemoryDevice device;
  io::MemoryDevice other;
  write_job(device, {.records = 60, .keys = kKeys}, 1);
  write_job(other, {.records = 60, .keys = kKeys}, 1);
  const Answers before = ask_directory(device, kKeys);
  const Reports reports = optimize_by(2, device, full_pass(), {.rank = 1, .device = &other});
  for (const auto& report : reports) EXPECT_FALSE(report->ok());
  EXPECT_TRUE(load_clusters(device, kOptimized)->clusters.empty());
  EXPECT_TRUE(ask_directory(device, kKeys) == before);
  set_log_level(LogLevel::kWarn);
}

}  // namespace
}  // namespace swale::imd::ranks_test
