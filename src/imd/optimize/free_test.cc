// Freed epochs: whatever a reader is asked, it answers as before, and their logs are gone.
#include "imd/optimize/free.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "imd/check/repair.h"
#include "imd/check/verify.h"
#include "imd/format/cluster_list.h"
#include "imd/format/generation.h"
#include "imd/format/series_values.h"
#include "imd/testing/test_directory.h"
#include "imd/testing/test_free.h"
#include "imd/write/writer_lock.h"
#include "io/memory_device.h"

namespace swale::imd::free_test {
namespace {

using test::ask_all_of;
using test::ask_everything;
using test::Everything;
using test::free_logs;
using test::JobShape;
using test::kOptimized;
using test::small_pass;
using test::write_job;
using testing::HasSubstr;

constexpr uint64_t kKeys = 30;

uint32_t by_last_digit(void*, const void* key, size_t key_bytes, uint32_t partitions) {
  return static_cast<uint32_t>(static_cast<const char*>(key)[key_bytes - 1] - '0') % partitions;
}

std::vector<Status> problems_of(io::Device& device) {
  const auto reader = Reader::open(device, kOptimized, {});
  if (!reader.ok()) return {reader.status()};
  return verify_directory(**reader, 10).problems;
}

void expect_whole(io::Device& device) {
  for (const Status& problem : problems_of(device)) ADD_FAILURE() << problem.to_string();
  const auto repaired = repair_directory(device, kOptimized, {.dry_run = true});
  ASSERT_TRUE(repaired.ok()) << repaired.status().to_string();
  EXPECT_THAT(repaired->found, testing::IsEmpty());
  EXPECT_THAT(repaired->done, testing::IsEmpty());
  EXPECT_THAT(repaired->lost, testing::IsEmpty());
}

uint64_t count_freed(io::Device& device) {
  const Manifest manifest = load_manifest(device, kOptimized).value();
  return static_cast<uint64_t>(std::ranges::count_if(manifest.epochs, &EpochEntry::freed));
}

bool has_logs(io::Device& device, uint32_t job, uint32_t partition = 0) {
  const LogId id{job, PartitionNumber(partition)};
  return *device.exists(data_log_path(kOptimized, id)) || *device.exists(index_log_path(kOptimized, id)) ||
         *device.exists(table_log_path(kOptimized, id));
}

TEST(Free, WhatIsAskedIsAnsweredAsBefore) {
  io::MemoryDevice device;
  write_job(device, {.ranks = 2, .epochs = 4, .keys = kKeys}, 1);
  ASSERT_TRUE(optimize_directory(device, kOptimized, small_pass()).ok());
  const Everything before = ask_all_of(device, kKeys);
  ASSERT_EQ(before.problem, "");
  const auto report = free_logs(device);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->plan.epochs, 3u);
  EXPECT_EQ(report->plan.epochs_copied, 1u);
  EXPECT_EQ(report->plan.files, 4u);
  EXPECT_EQ(report->plan.cluster_epochs, 4u);
  EXPECT_EQ(report->job, 2u);
  EXPECT_EQ(count_freed(device), 3u);
  EXPECT_FALSE(has_logs(device, 1, 0) || has_logs(device, 1, 1));
  EXPECT_TRUE(has_logs(device, 2));
  EXPECT_TRUE(ask_all_of(device, kKeys) == before);
  expect_whole(device);
  const auto again = free_logs(device);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(again->plan.nothing());
  EXPECT_EQ(again->job, 0u);
}

WriterOptions options_of(run::ShuffleFormat format) {
  WriterOptions options;
  options.format = format;
  return options;
}

std::string random_keep(Rng& rng) {
  switch (rng.below(4)) {
    case 0:
      return "none";
    case 1:
      return fmt::format("{}:{},last", rng.below(3), 3 + rng.below(3));
    case 2:
      return "every=3";
    default:
      return "last";
  }
}

// The random model: jobs that append and go back, passes and frees, in any order.
void answer_alike(const WriterOptions& options, uint64_t seed, uint64_t* freed) {
  io::MemoryDevice device;
  Rng rng(seed);
  uint64_t job = 0;
  for (int step = 0; step < 7; ++step) {
    const uint64_t kind = step == 0 ? 0 : rng.below(6);
    if (kind <= 1) {
      JobShape shape{.ranks = static_cast<int32_t>(1 + rng.below(2)),
                     .ways = 1,
                     .epochs = static_cast<uint32_t>(1 + rng.below(3)),
                     .records = 20 + rng.below(150),
                     .keys = kKeys,
                     .one_size = !options.schema.empty(),
                     .options = options};
      if (step > 0 && rng.below(2) == 0)
        shape.options.resume_after = static_cast<int64_t>((seed * 10 + job) * 1'000);
      write_job(device, shape, seed * 10 + ++job);
      if (testing::Test::HasFatalFailure()) return;
      continue;
    }
    const Everything before = ask_all_of(device, kKeys);
    EXPECT_EQ(before.problem, "");
    if (kind <= 3) {
      OptimizeOptions pass = small_pass();
      pass.full = rng.below(3) == 0;
      const auto report = optimize_directory(device, kOptimized, pass);
      ASSERT_TRUE(report.ok()) << report.status().to_string();
    } else {
      const auto report = free_logs(device, random_keep(rng));
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      *freed += report->plan.epochs;
    }
    const Everything after = ask_all_of(device, kKeys);
    EXPECT_EQ(after.problem, "");
    EXPECT_TRUE(after == before) << "seed " << seed << ", step " << step << ", kind " << kind;
    if (testing::Test::HasFailure()) return;
  }
  expect_whole(device);
}

void try_seeds(const WriterOptions& options, uint64_t first, uint64_t last) {
  uint64_t freed = 0;
  if (const char* more = std::getenv("SWALE_FREE_SEEDS")) last = first + std::strtoull(more, nullptr, 10);
  for (uint64_t seed = first; seed <= last && !testing::Test::HasFailure(); ++seed)
    answer_alike(options, seed, &freed);
  fmt::print("{} epochs freed\n", freed);
  EXPECT_GT(freed, 0u);  // the canary: something was
}

TEST(Free, AnswersStayTheSame) { try_seeds({}, 1, 8); }
TEST(Free, AnswersStayTheSameInTheIndirectFormat) {
  try_seeds(options_of(run::ShuffleFormat::kIndirect), 11, 15);
}
TEST(Free, AnswersStayTheSameInTheLossyFormat) { try_seeds(options_of(run::ShuffleFormat::kLossy), 21, 25); }
TEST(Free, AnswersStayTheSameWithAPartitioner) {
  WriterOptions options;
  options.partitioner = {"last_digit", by_last_digit, nullptr};
  try_seeds(options, 31, 34);
}
TEST(Free, AnswersStayTheSameWithCompressionAndFilters) {
  WriterOptions options;
  options.compression = Codec::kZstd;
  options.index = run::IndexKind::kBloom;
  try_seeds(options, 41, 44);
}
TEST(Free, AnswersStayTheSameWithASchema) {
  WriterOptions options;
  options.schema = *run::Schema::parse("a:u8;b:i4;c:u4;d:f8x3", "a;b");
  try_seeds(options, 51, 54);
}

// The canary of the model: a cluster that has a wrong value is noticed, and nothing is freed.
TEST(Free, AClusterThatIsWrongKeepsItsEpochs) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 3, .keys = kKeys}, 1);
  ASSERT_TRUE(optimize_directory(device, kOptimized, small_pass()).ok());
  const std::string path = data_log_path(cluster_folder(kOptimized, 1), test::log_of_cluster());
  const auto file = device.open(path, io::OpenMode::kReadWrite).value();
  char byte = 0;
  ASSERT_TRUE(io::read_exactly(*file, 300, MutableBytes(&byte, 1)).ok());
  byte = static_cast<char>(byte ^ 1);
  ASSERT_TRUE(file->pwrite(300, Bytes(&byte, 1)).ok());
  const auto refused = free_logs(device);
  EXPECT_EQ(refused.status().code(), Code::kCorruption);
  EXPECT_THAT(refused.status().message(), HasSubstr(path));
  EXPECT_THAT(refused.status().message(), HasSubstr("nothing was changed"));
  EXPECT_EQ(count_freed(device), 0u);
  EXPECT_TRUE(has_logs(device, 1));
}

// Damage after it: an error that names the file, never a wrong answer, and no pass takes the cluster away.
TEST(Free, DamageOfAFreedEpochIsAnError) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 3, .keys = kKeys}, 1);
  ASSERT_TRUE(optimize_directory(device, kOptimized, small_pass()).ok());
  const Everything before = ask_all_of(device, kKeys);
  ASSERT_TRUE(free_logs(device).ok());
  const std::string path = data_log_path(cluster_folder(kOptimized, 1), test::log_of_cluster());
  const auto file = device.open(path, io::OpenMode::kReadWrite).value();
  const uint64_t size = *file->size();
  uint64_t told = 0;
  for (uint64_t at = 0; at < size; at += 1 + size / 40) {
    char byte = 0;
    ASSERT_TRUE(io::read_exactly(*file, at, MutableBytes(&byte, 1)).ok());
    const char turned = static_cast<char>(byte ^ 16);
    ASSERT_TRUE(file->pwrite(at, Bytes(&turned, 1)).ok());
    const Everything with = ask_all_of(device, kKeys);
    EXPECT_TRUE(with == before || !with.problem.empty()) << at;
    if (!with.problem.empty()) {
      EXPECT_THAT(with.problem, HasSubstr("clusters/0001"));
    }
    told += with.problem.empty() ? 0 : 1;
    EXPECT_FALSE(problems_of(device).empty());
    ASSERT_TRUE(file->pwrite(at, Bytes(&byte, 1)).ok());
  }
  EXPECT_GT(told, 20u);
  EXPECT_TRUE(ask_all_of(device, kKeys) == before);
}

// A pass would not open such a cluster, though it is a good directory. Freeing is refused there; this one
// goes round that.
TEST(Free, AClusterWhoseEpochWasMovedIsDamage) {
  io::MemoryDevice device;
  write_job(device, {.keys = kKeys}, 1);
  ASSERT_TRUE(test::optimize(device).ok());
  ASSERT_TRUE(free_logs(device, "none").ok());
  const std::string cluster = cluster_folder(kOptimized, 1);
  ASSERT_EQ(free_logs(device, "none", cluster).status().code(), Code::kInvalidArgument);
  ASSERT_EQ(optimize_directory(device, cluster, test::small_pass()).status().code(), Code::kInvalidArgument);
  test::expect_verified(device, 1);
  const std::string list = cluster_list_path(kOptimized, 1);
  ASSERT_TRUE(device.rename(list, list + ".hidden").ok());
  ASSERT_TRUE(optimize_directory(device, cluster, test::small_pass()).ok());
  ASSERT_TRUE(free_logs(device, "last", cluster).ok());
  ASSERT_TRUE(free_logs(device, "none", cluster).ok());
  ASSERT_TRUE(device.rename(list + ".hidden", list).ok());
  const auto reader = Reader::open(device, kOptimized, {});
  ASSERT_TRUE(reader.ok());
  const VerifyReport report = verify_directory(**reader, 10);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_THAT(report.problems[0].message(), HasSubstr("is not the cluster"));
}

TEST(Free, AListThatIsDamagedIsNamedAndMadeAnewByNobody) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 3, .keys = kKeys}, 1);
  ASSERT_TRUE(optimize_directory(device, kOptimized, small_pass()).ok());
  const Everything before = ask_all_of(device, kKeys);
  ASSERT_TRUE(free_logs(device).ok());
  const std::string path = cluster_list_path(kOptimized, 1);
  const std::string list = io::read_file(device, path, kMiB).value();
  ASSERT_TRUE(device.remove(cluster_list_copy_path(kOptimized)).ok());
  ASSERT_TRUE(io::replace_file(device, path, list.substr(0, list.size() / 2)).ok());
  const auto reader = Reader::open(device, kOptimized, {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_TRUE((*reader)->get(test::optimized_key(0), 2).ok());  // the one that was kept
  const auto freed = (*reader)->get(test::optimized_key(0), 1);
  EXPECT_EQ(freed.status().code(), Code::kCorruption);
  EXPECT_THAT(freed.status().message(), HasSubstr(path));
  OptimizeOptions full = small_pass();
  full.full = true;
  EXPECT_FALSE(optimize_directory(device, kOptimized, full).ok());
  ASSERT_TRUE(io::replace_file(device, path, list).ok());
  EXPECT_TRUE(ask_all_of(device, kKeys) == before);
}

// Four clusters, the first three of them freed, become one.
TEST(Free, ClustersOfFreedEpochsAreMerged) {
  io::MemoryDevice device;
  for (uint64_t job = 1; job <= 4; ++job) {
    write_job(device, {.epochs = 2, .keys = kKeys}, job);
    const Everything before = ask_all_of(device, kKeys);
    const auto report = optimize_directory(device, kOptimized, small_pass());
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(ask_all_of(device, kKeys) == before);
    ASSERT_TRUE(free_logs(device, "none").ok());
    EXPECT_TRUE(ask_all_of(device, kKeys) == before);
  }
  EXPECT_EQ(load_clusters(device, kOptimized)->clusters.size(), 1u);
  EXPECT_EQ(count_freed(device), 8u);
  expect_whole(device);
}

TEST(Free, AnEpochThatNoClusterHasKeepsTheFilesOfItsJob) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 2, .keys = kKeys}, 1);
  ASSERT_TRUE(optimize_directory(device, kOptimized, small_pass()).ok());
  write_job(device, {.epochs = 2, .keys = kKeys}, 2);
  const auto report = free_logs(device, "none");
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->plan.epochs, 2u);
  EXPECT_EQ(report->plan.epochs_left, 2u);
  EXPECT_FALSE(has_logs(device, 1));
  EXPECT_TRUE(has_logs(device, 2));
  expect_whole(device);
}

TEST(Free, AJobThatWritesIsNamed) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 2, .keys = kKeys}, 1);
  ASSERT_TRUE(optimize_directory(device, kOptimized, small_pass()).ok());
  {
    const auto lock = acquire_writer_lock(device, kOptimized, 0x77);
    ASSERT_TRUE(lock.ok());
    const auto refused = free_logs(device);
    EXPECT_EQ(refused.status().code(), Code::kBusy);
    EXPECT_THAT(refused.status().message(), HasSubstr("swale.lock"));
  }
  EXPECT_TRUE(free_logs(device).ok());
}

TEST(Free, ARefusedPlanAndADryRunChangeNothing) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 2, .keys = kKeys}, 1);
  ASSERT_TRUE(optimize_directory(device, kOptimized, small_pass()).ok());
  FreeOptions options;
  options.dry_run = true;
  const auto planned = free_directory(device, kOptimized, options);
  ASSERT_TRUE(planned.ok());
  EXPECT_EQ(planned->plan.epochs, 1u);
  options.dry_run = false;
  options.approve = [](const FreePlan&) { return error(Code::kNoSpace, Scope::kFile, "too little"); };
  EXPECT_EQ(free_directory(device, kOptimized, options).status().code(), Code::kNoSpace);
  EXPECT_EQ(load_manifest(device, kOptimized)->generation, 1u);
  EXPECT_TRUE(has_logs(device, 1));
}

// One that was open before: right, or kAborted and right after a refresh.
TEST(Free, AReaderThatWasOpenFollows) {
  io::MemoryDevice device;
  write_job(device, {.ranks = 2, .epochs = 3, .keys = kKeys}, 1);
  ASSERT_TRUE(optimize_directory(device, kOptimized, small_pass()).ok());
  const auto reader = Reader::open(device, kOptimized, {}).value();
  const Everything before = ask_all_of(device, kKeys);
  ASSERT_TRUE(free_logs(device).ok());
  const Everything old = ask_everything(*reader, kKeys);
  EXPECT_TRUE(old == before || old.code == Code::kAborted) << old.problem;
  const auto refreshed = reader->refresh();
  ASSERT_TRUE(refreshed.ok());
  EXPECT_FALSE(refreshed->added || refreshed->dropped);
  EXPECT_TRUE(ask_everything(*reader, kKeys) == before);
}

// Values that fill more than a series, in runs of three series: some begin in one run and end in the next.
// Pieces are cut elsewhere.
TEST(Free, AValueInTwoRunsIsOne) {
  io::MemoryDevice device;
  run_ranks(1, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = 20 * kMiB;
    const auto writer = Writer::open(job, device, kOptimized, Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      for (uint64_t key = 0; key < 20; ++key) {
        const std::string value(run::kValueBytesMax,
                                static_cast<char>('a' + key + 20 * static_cast<uint64_t>(epoch)));
        ASSERT_TRUE((*writer)->append(test::optimized_key(key), value).ok());
      }
      ASSERT_TRUE((*writer)->epoch_end(epoch, 0).ok());
    }
    ASSERT_TRUE((*writer)->close().ok());
  });
  ASSERT_TRUE(optimize_directory(device, kOptimized, small_pass()).ok());
  const Everything before = ask_all_of(device, 20);
  ASSERT_EQ(before.problem, "");
  test::Records series;
  const auto first = Reader::open(device, cluster_folder(kOptimized, 1), {}).value();
  ASSERT_TRUE(first
                  ->scan(0,
                         [&](EpochNumber, Bytes key, Bytes value) {
                           series.emplace_back(key, value);
                           return true;
                         })
                  .ok());
  test::TestDirectory second(device, cluster_folder(kOptimized, 2));
  second.begin_job(1);
  second.write_epoch(series, {.records_per_run = 3});
  ClusterList list = test::list_of(device);
  list.generation = list.clusters[0].number = 2;
  list.clusters[0].epoch_id = second.manifest.epochs[0].epoch_id;
  list.clusters[0].log_place = LogPlace::kInFolders;
  ASSERT_TRUE(io::replace_file(device, cluster_list_path(kOptimized, 2), list.encode()).ok());
  const auto freed = free_logs(device, "none");
  ASSERT_TRUE(freed.ok()) << freed.status().to_string();
  EXPECT_TRUE(ask_all_of(device, 20) == before);
  const auto reader = Reader::open(device, kOptimized, {}).value();
  const auto pieces = reader->scan_pieces(EpochNumber(1), PartitionNumber(0), 1);
  ASSERT_TRUE(pieces.ok()) << pieces.status().to_string();
  const auto own = Reader::open(device, cluster_folder(kOptimized, 2), {}).value();
  const auto runs = own->scan_pieces(EpochNumber(0), PartitionNumber(0), 1);
  EXPECT_GT(pieces->size(), 1u);
  EXPECT_GT(runs->size(), pieces->size());  // the canary: a value is in two of them
  OptimizeOptions full = small_pass();
  full.full = true;
  const auto merged = optimize_directory(device, kOptimized, full);
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_EQ(merged->plan.epochs, 2u);
  EXPECT_TRUE(ask_all_of(device, 20) == before);
  expect_whole(device);
}

TEST(Free, EpochsToKeep) {
  const auto text = [](std::string_view keep, size_t epochs) -> std::string {
    const auto kept = epochs_to_keep(keep, epochs);
    if (!kept.ok()) return std::string(kept.status().message());
    std::string out;
    for (const bool one : *kept) out += one ? 'x' : '.';
    return out;
  };
  EXPECT_EQ(text("last", 4), "...x");
  EXPECT_EQ(text("last", 0), "");
  EXPECT_EQ(text("none", 3), "...");
  EXPECT_EQ(text("1:2", 4), ".xx.");
  EXPECT_EQ(text("0:10", 3), "xxx");
  EXPECT_EQ(text("every=2,3", 6), "x.xxx.");
  EXPECT_EQ(text("every=100", 3), "x..");
  for (const char* wrong : {"", "first", "every=0", "every=", "2:1", ":3", "1,,2", "-1", "last,", "none,1"})
    EXPECT_THAT(text(wrong, 3), HasSubstr("says not which epochs to keep")) << wrong;
}

// A value in two series, the second in the next run: no piece ends between them.
TEST(SeriesValues, JoinsAValueOfTwoSeries) {
  std::vector<std::string> series;
  SeriesBuilder builder([&](Bytes one) {
    series.emplace_back(one);
    return Status();
  });
  const std::string first(10'000, 'a');
  const std::string second(run::kValueBytesMax, 'b');
  ASSERT_TRUE(builder.add(0, SeriesKind::kWhole, first).ok());
  ASSERT_TRUE(builder.add(1, SeriesKind::kWhole, second).ok());
  ASSERT_TRUE(builder.finish().ok());
  SeriesValues values(2);
  std::vector<std::string> found;
  for (const std::string& one : series) {
    EXPECT_TRUE(values.take("key", one, [&](const SeriesValue& value) { found.emplace_back(value.bytes); }));
  }
  EXPECT_TRUE(values.complete());
  EXPECT_EQ(found, (std::vector<std::string>{first, second}));
  // Another key's series between them is damage.
  ASSERT_EQ(series.size(), 3u);
  EXPECT_TRUE(values.take("key", series[1], [](const SeriesValue&) {}));
  EXPECT_FALSE(values.complete());
  EXPECT_FALSE(values.take("other", series[2], [](const SeriesValue&) {}));
  values.forget();
  EXPECT_TRUE(values.take("other", series[2], [](const SeriesValue&) {}));
}

}  // namespace
}  // namespace swale::imd::free_test
