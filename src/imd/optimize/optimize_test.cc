// Clusters: with them a reader answers what it answers without them, whatever wrote the directory; and they
// are what answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "imd/check/verify.h"
#include "imd/format/cluster_list.h"
#include "imd/format/generation.h"
#include "imd/format/series.h"
#include "imd/optimize/optimizer.h"
#include "imd/testing/test_directory.h"
#include "imd/testing/test_optimize.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::optimize_test {
namespace {

using test::Answers;
using test::ask_directory;
using test::expect_verified;
using test::JobShape;
using test::kOptimized;
using test::list_of;
using test::optimize;
using test::small_pass;
using test::write_job;
using testing::HasSubstr;

constexpr uint64_t kKeys = 100;

uint32_t by_last_digit(void*, const void* key, size_t key_bytes, uint32_t partitions) {
  return static_cast<uint32_t>(static_cast<const char*>(key)[key_bytes - 1] - '0') % partitions;
}

JobShape random_shape(Rng& rng, const WriterOptions& options) {
  JobShape shape;
  shape.ranks = static_cast<int32_t>(1 + rng.below(3));
  shape.ways = static_cast<uint32_t>(1 + rng.below(2));
  shape.epochs = static_cast<uint32_t>(1 + rng.below(4));
  shape.records = rng.below(4) == 0 ? 0 : 20 + rng.below(300);
  shape.keys = kKeys;
  shape.one_size = rng.below(3) == 0;
  shape.options = options;
  return shape;
}

// The random model: directories of one to three jobs, passes between and after them.
void answer_alike(const WriterOptions& options, uint64_t seed) {
  io::MemoryDevice device;
  Rng rng(seed);
  uint64_t clusters = 0;
  for (uint64_t job = 0, jobs = 1 + rng.below(3); job < jobs; ++job) {
    JobShape shape = random_shape(rng, options);
    if (options.format == run::ShuffleFormat::kLossy) shape.ways = 1;
    write_job(device, shape, seed * 10 + job);
    if (testing::Test::HasFatalFailure()) return;
    const Answers before = ask_directory(device, kKeys);
    EXPECT_EQ(before.problem, "");
    if (job + 1 < jobs && rng.below(2) == 0) continue;
    OptimizeOptions pass = small_pass();
    pass.full = rng.below(4) == 0;
    const auto report = optimize(device, pass);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    clusters = pass.full ? 1 : clusters + 1;
    const Answers after = ask_directory(device, kKeys);
    EXPECT_EQ(after.problem, "");
    EXPECT_TRUE(after == before) << "seed " << seed << ", job " << job;
  }
  EXPECT_EQ(list_of(device).clusters.size(), clusters);
  expect_verified(device, clusters);
}

TEST(Optimize, AnswersStayTheSame) {
  for (uint64_t seed = 1; seed <= 6; ++seed) answer_alike({}, seed);
}

TEST(Optimize, AnswersStayTheSameInTheIndirectFormat) {
  WriterOptions options;
  options.format = run::ShuffleFormat::kIndirect;
  for (uint64_t seed = 11; seed <= 13; ++seed) answer_alike(options, seed);
}

TEST(Optimize, AnswersStayTheSameInTheLossyFormat) {
  WriterOptions options;
  options.format = run::ShuffleFormat::kLossy;
  for (uint64_t seed = 21; seed <= 23; ++seed) answer_alike(options, seed);
}

TEST(Optimize, AnswersStayTheSameWithAPartitioner) {
  WriterOptions options;
  options.partitioner = {"last_digit", by_last_digit, nullptr};
  for (uint64_t seed = 31; seed <= 33; ++seed) answer_alike(options, seed);
}

TEST(Optimize, AnswersStayTheSameWithCompressionAndFilters) {
  WriterOptions options;
  options.compression = Codec::kZstd;
  options.index = run::IndexKind::kBloom;
  for (uint64_t seed = 41; seed <= 42; ++seed) answer_alike(options, seed);
}

// The canary of the tests above: a cluster whose digests nobody compared, with a wrong value. Its answers are
// seen to differ, and verify tells.
TEST(Optimize, AClusterThatIsWrongIsNoticed) {
  io::MemoryDevice device;
  write_job(device, {.keys = kKeys}, 1);
  const Answers before = ask_directory(device, kKeys);
  const std::string folder = cluster_folder(kOptimized, 1);
  run_ranks(1, [&](net::Job& job) {
    ASSERT_TRUE(io::make_directories(device, folder).ok());
    WriterOptions options;
    options.memory_bytes = 8 * kMiB;
    const auto writer = Writer::open(job, device, folder, Create::kExclusive, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    SeriesBuilder builder([&](Bytes series) { return (*writer)->append(test::optimized_key(1), series); });
    ASSERT_TRUE(builder.add(1, SeriesKind::kWhole, "wrong").ok() && builder.finish().ok());
    ASSERT_TRUE((*writer)->epoch_end(0, 0).ok() && (*writer)->close().ok());
  });
  ClusterEntry forged{.number = 1,
                      .epoch_id = load_manifest(device, folder)->epochs[0].epoch_id,
                      .series = 1,
                      .bytes = 20,
                      .epochs = {}};
  const auto manifest = load_manifest(device, kOptimized);
  for (const EpochEntry& epoch : manifest->epochs) forged.epochs.push_back({epoch.epoch, epoch.epoch_id});
  const ClusterList list{1, {forged}};
  ASSERT_TRUE(io::replace_file(device, cluster_list_path(kOptimized, 1), list.encode()).ok());
  const auto reader = Reader::open(device, kOptimized, {});
  ASSERT_TRUE(reader.ok());
  const Answers wrong = test::ask_reader(**reader, kKeys);
  EXPECT_EQ(wrong.problem, "");
  EXPECT_FALSE(wrong == before);
  EXPECT_FALSE(verify_directory(**reader, 10).problems.empty());
}

// A series of an epoch that its cluster does not have is refused, and the epochs themselves answer.
TEST(Optimize, AClusterThatIsNotItsListsIsNotUsed) {
  io::MemoryDevice device;
  write_job(device, {.keys = kKeys}, 1);
  const Answers before = ask_directory(device, kKeys);
  ASSERT_TRUE(optimize(device).ok());
  ClusterList list = list_of(device);
  ASSERT_EQ(list.clusters.at(0).epochs.size(), 3u);
  list.clusters[0].epochs.pop_back();
  ASSERT_TRUE(device.remove(cluster_list_copy_path(kOptimized)).ok());
  ASSERT_TRUE(io::replace_file(device, cluster_list_path(kOptimized, 1), list.encode()).ok());
  EXPECT_TRUE(ask_directory(device, kKeys) == before);
  list.clusters[0].epoch_id += 1;
  ASSERT_TRUE(io::replace_file(device, cluster_list_path(kOptimized, 1), list.encode()).ok());
  EXPECT_TRUE(ask_directory(device, kKeys) == before);
}

// The copy counts for its own number alone; verify tells which one is damaged.
TEST(Optimize, TheListAndItsCopyStandInForEachOther) {
  io::MemoryDevice device;
  write_job(device, {.keys = kKeys}, 1);
  ASSERT_TRUE(optimize(device).ok());
  const std::string path = cluster_list_path(kOptimized, 1);
  const std::string copy = cluster_list_copy_path(kOptimized);
  const std::string right = io::read_file(device, path, kMiB).value();
  EXPECT_EQ(io::read_file(device, copy, kMiB).value(), right);
  const auto problems = [&] {
    const auto reader = Reader::open(device, kOptimized, {}).value();
    std::string all;
    for (const Status& problem : verify_directory(*reader, 10).problems) all += problem.to_string() + "\n";
    return all;
  };
  EXPECT_EQ(problems(), "");
  ClusterList other = list_of(device);
  other.clusters[0].series += 1;
  for (const std::string& damaged : {path, copy}) {
    for (const std::string& text : {std::string("damage"), other.encode()}) {
      ASSERT_TRUE(io::replace_file(device, damaged, text).ok());
      if (text == "damage" || damaged == path) {
        EXPECT_EQ(list_of(device).encode(), right);
      }
      EXPECT_THAT(problems(), HasSubstr(text == "damage" ? damaged : path));
    }
    ASSERT_TRUE(io::replace_file(device, damaged, right).ok());
  }
  // One of an earlier pass, or none: the list itself is read.
  OptimizeOptions full = small_pass();
  full.full = true;
  ASSERT_EQ(optimize(device, full)->number, 2u);
  ASSERT_TRUE(io::replace_file(device, copy, right).ok());
  EXPECT_EQ(list_of(device).generation, 2u);
  EXPECT_EQ(problems(), "");
  ASSERT_TRUE(device.remove(copy).ok());
  EXPECT_EQ(list_of(device).generation, 2u);
  EXPECT_EQ(problems(), "");
}

TEST(Optimize, AnswersComeFromTheCluster) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 8, .records = 2'000, .keys = 1'000, .one_size = true}, 1);
  ASSERT_TRUE(optimize(device).ok());
  const Answers before = ask_directory(device, kKeys);
  ASSERT_EQ(before.problem, "");
  // The epochs themselves are gone, and nobody notices.
  ASSERT_TRUE(device.remove(data_log_path(kOptimized, {1, PartitionNumber(0)})).ok());
  EXPECT_TRUE(ask_directory(device, kKeys) == before);
  const auto reader = Reader::open(device, kOptimized, {});
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE((*reader)->get(test::optimized_key(7), Reader::kAllEpochs).ok());
  const ReadStats stats = (*reader)->stats();
  // The footer, a slice, the neighbouring blocks of one series; now and then a false candidate.
  EXPECT_LE(stats.reads, 4u);
  EXPECT_LE(stats.depth_max, 3u);
}

TEST(Optimize, EpochsAreOneReadLessEach) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 40, .records = 500, .keys = 400, .one_size = true}, 1);
  const auto reads = [&] {
    const auto reader = Reader::open(device, kOptimized, {}).value();
    EXPECT_TRUE(reader->get(test::optimized_key(0), Reader::kAllEpochs).ok());
    return reader->stats().reads;
  };
  const uint64_t before = reads();
  ASSERT_TRUE(optimize(device).ok());
  EXPECT_GE(before, 80u);
  EXPECT_LE(reads(), 6u);
}

TEST(Optimize, RefreshFindsNewClustersAndNewEpochs) {
  io::MemoryDevice device;
  write_job(device, {.keys = kKeys}, 1);
  const auto reader = Reader::open(device, kOptimized, {}).value();
  const Answers first = test::ask_reader(*reader, kKeys);
  ASSERT_TRUE(optimize(device).ok());
  const auto refreshed = reader->refresh();
  ASSERT_TRUE(refreshed.ok());
  EXPECT_FALSE(refreshed->added || refreshed->dropped);
  ASSERT_TRUE(device.remove(data_log_path(kOptimized, {1, PartitionNumber(0)})).ok());
  EXPECT_TRUE(test::ask_reader(*Reader::open(device, kOptimized, {}).value(), kKeys) == first);
  write_job(device, {.keys = kKeys}, 2);
  ASSERT_TRUE(reader->refresh().ok());
  const Answers both = test::ask_reader(*reader, kKeys);
  EXPECT_EQ(both.problem, "");
  for (const auto& [key, values] : first.each)
    EXPECT_TRUE(std::equal(values.begin(), values.end(), both.each.at(key).begin())) << key;
}

TEST(Optimize, ClustersAndOtherEpochsAreAskedAtOnce) {
  io::MemoryDevice device;
  for (uint64_t job = 1; job <= 4; ++job) {
    write_job(device, {.epochs = 2, .records = 300, .keys = kKeys, .one_size = true}, job);
    ASSERT_TRUE(job == 4 || optimize(device).ok());
  }
  ASSERT_EQ(list_of(device).clusters.size(), 3u);
  const auto reader = Reader::open(device, kOptimized, {}).value();
  const auto found = reader->get(test::optimized_key(0), Reader::kAllEpochs);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_GT(found->size(), 100u);
  EXPECT_GE(reader->stats().reads, 12u);  // footers, slices, blocks
  EXPECT_LE(reader->stats().depth_max, 3u);
}

TEST(Optimize, ScansAndTheBestOfAFieldAreReadFromTheEpochs) {
  io::MemoryDevice device;
  JobShape shape{.records = 500, .keys = kKeys, .one_size = true};
  shape.options.schema = *run::Schema::parse("number:u8;_:*", "number");
  write_job(device, shape, 1);
  ASSERT_TRUE(optimize(device).ok());
  io::FaultDevice faulty(device);
  faulty.inject({.kind = io::CallKind::kRead, .path_part = "clusters/0001.part-", .from_then_on = true});
  const auto reader = Reader::open(faulty, kOptimized, {}).value();
  uint64_t records = 0;
  const Status scanned = reader->scan(Reader::kAllEpochs, [&](EpochNumber, Bytes, Bytes) {
    ++records;
    return true;
  });
  EXPECT_TRUE(scanned.ok()) << scanned.to_string();
  EXPECT_EQ(records, 1'500u);
  const auto best = reader->top(1, "number", 5, run::Extreme::kLargest);
  ASSERT_TRUE(best.ok()) << best.status().to_string();
  EXPECT_EQ(best->records.size(), 5u);
  EXPECT_EQ(faulty.faults(), 0u);
  set_log_level(LogLevel::kOff);
  EXPECT_TRUE(reader->get(test::optimized_key(0), Reader::kAllEpochs).ok());
  set_log_level(LogLevel::kWarn);
  EXPECT_GT(faulty.faults(), 0u) << "the canary: a trajectory asks the cluster";
}

TEST(Optimize, ThereIsNothingToDoTwice) {
  io::MemoryDevice device;
  write_job(device, {}, 1);
  ASSERT_EQ(optimize(device)->number, 1u);
  const auto again = optimize(device);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->number, 0u);
  EXPECT_EQ(again->plan.epochs, 0u);
  OptimizeOptions full = small_pass();
  full.full = true;
  EXPECT_EQ(optimize(device, full)->number, 2u);
  EXPECT_FALSE(*device.exists(cluster_folder(kOptimized, 1)));
  expect_verified(device, 1);
}

// What a cluster alone still has, no pass takes away.
TEST(Optimize, TheOnlyCopyStays) {
  io::MemoryDevice device;
  test::TestDirectory directory(device, kOptimized);
  directory.begin_job(2);
  Rng rng(3);
  for (int i = 0; i < 3; ++i) directory.write_epoch(test::numbered_records(rng, 500, 50, 40));
  ASSERT_TRUE(optimize(device).ok());
  directory.manifest.lost.push_back({directory.manifest.epochs[1].epoch_id, PartitionNumber(0), "gone"});
  directory.commit();
  const auto stays = [&](const OptimizeOptions& options) {
    ASSERT_TRUE(optimize(device, options).ok());
    EXPECT_EQ(list_of(device).clusters.at(0).epochs.size(), 3u);
    const auto reader = Reader::open(device, kOptimized, {}).value();
    for (const auto& [key, values] : directory.models[1]) {
      const auto found = reader->get(key, 1);
      ASSERT_TRUE(found.ok()) << found.status().to_string();
      EXPECT_EQ(found->size(), values.size());
    }
  };
  OptimizeOptions full = small_pass();
  full.full = true;
  stays(full);
  // Nor one that passes cannot open: its series may be read all the same, or be restored.
  for (const std::string& path : {manifest_path(cluster_folder(kOptimized, 1)),
                                  job_folder(cluster_folder(kOptimized, 1), 1) + "/manifest.json"})
    ASSERT_TRUE(io::replace_file(device, path, "damage").ok());
  stays(small_pass());
  stays(full);
}

TEST(Optimize, DroppedEpochsAreAnsweredByNobody) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 4, .keys = kKeys}, 1);
  ASSERT_TRUE(optimize(device).ok());
  JobShape other{.epochs = 3, .keys = kKeys};
  other.options.resume_after = 1'001;  // two of the four epochs stay
  write_job(device, other, 2);
  const Answers with = ask_directory(device, kKeys);
  EXPECT_EQ(with.problem, "");
  // The same without clusters.
  const ClusterList list = list_of(device);
  for (const std::string& path : {cluster_list_path(kOptimized, 1), cluster_list_copy_path(kOptimized)})
    ASSERT_TRUE(device.remove(path).ok());
  EXPECT_TRUE(ask_directory(device, kKeys) == with);
  ASSERT_TRUE(io::replace_file(device, cluster_list_path(kOptimized, 1), list.encode()).ok());
  // A half-dead cluster is made anew.
  const auto report = optimize(device);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->plan.epochs, 5u);
  EXPECT_EQ(list_of(device).clusters.size(), 1u);
  EXPECT_TRUE(ask_directory(device, kKeys) == with);
  expect_verified(device, 1);
}

TEST(Optimize, WhatIsNotWhatTheEpochLogSaysIsNotCopied) {
  io::MemoryDevice device;
  test::TestDirectory directory(device, kOptimized);
  directory.begin_job(2);
  Rng rng(3);
  directory.write_epoch(test::numbered_records(rng, 500, 50, 40));
  directory.manifest.epochs[0].digest += 1;
  directory.commit();
  const auto report = optimize(device);
  EXPECT_EQ(report.status().code(), Code::kCorruption);
  EXPECT_THAT(report.status().message(), HasSubstr("nothing was changed"));
  EXPECT_TRUE(list_of(device).clusters.empty());
  EXPECT_TRUE(device.list(cluster_folder(kOptimized, 1))->empty());
  directory.manifest.epochs[0].digest -= 1;
  directory.commit();
  EXPECT_TRUE(optimize(device).ok());
}

TEST(Optimize, EpochsWithLostPartsAreLeftAlone) {
  io::MemoryDevice device;
  test::TestDirectory directory(device, kOptimized);
  directory.begin_job(2);
  Rng rng(3);
  for (int i = 0; i < 3; ++i) directory.write_epoch(test::numbered_records(rng, 500, 50, 40));
  directory.manifest.lost.push_back({directory.manifest.epochs[1].epoch_id, PartitionNumber(0), "gone"});
  directory.commit();
  const auto report = optimize(device);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->plan.epochs, 2u);
  EXPECT_EQ(report->plan.epochs_lost, 1u);
  const std::vector<ClusterEntry::Epoch> epochs = list_of(device).clusters.at(0).epochs;
  ASSERT_EQ(epochs.size(), 2u);
  EXPECT_EQ(epochs[1].epoch, 2u);
}

TEST(Optimize, ASecondPassIsRefused) {
  io::MemoryDevice device;
  write_job(device, {}, 1);
  OptimizeOptions first = small_pass();
  Status second;
  first.approve = [&](const OptimizePlan&) {
    second = optimize(device).status();
    return Status();
  };
  ASSERT_TRUE(optimize(device, first).ok());
  EXPECT_EQ(second.code(), Code::kBusy);
  EXPECT_THAT(second.message(), HasSubstr("optimize.lock"));
}

TEST(Optimize, ARefusedPlanChangesNothing) {
  io::MemoryDevice device;
  write_job(device, {.keys = kKeys}, 1);
  OptimizeOptions refused = small_pass();
  uint64_t predicted = 0;
  refused.approve = [&](const OptimizePlan& plan) {
    predicted = plan.cluster_bytes_max;
    return error(Code::kNoSpace, Scope::kFile, "too little");
  };
  EXPECT_EQ(optimize(device, refused).status().code(), Code::kNoSpace);
  EXPECT_TRUE(list_of(device).clusters.empty());
  ASSERT_TRUE(optimize(device).ok());
  uint64_t bytes = 0;
  const LogId log = test::log_of_cluster();
  for (const auto path_of : {data_log_path, index_log_path}) {
    const auto file = device.open(path_of(cluster_folder(kOptimized, 1), log), io::OpenMode::kRead);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    bytes += *(*file)->size();
  }
  EXPECT_LE(bytes, predicted);
}

// Hash space in many stripes.
TEST(Optimize, ManyStripesAreOneCluster) {
  io::MemoryDevice device;
  write_job(device, {.ranks = 2, .epochs = 12, .records = 20'000, .keys = 9'000, .one_size = true}, 1);
  const Answers before = ask_directory(device, 20);
  const auto report = optimize(device);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_GT(report->stripes, 2u);
  EXPECT_TRUE(ask_directory(device, 20) == before);
  expect_verified(device, 1);
}

// All records are of one key: more than a stripe is to have.
TEST(Optimize, AHotKeyIsOneStripe) {
  io::MemoryDevice device;
  write_job(device, {.ranks = 2, .records = 40'000, .keys = 1, .one_size = true}, 1);
  const Answers before = ask_directory(device, 1);
  ASSERT_EQ(before.at_once.at(test::optimized_key(0)).size(), 240'000u);
  const auto report = optimize(device);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_GT(report->stripes, 2u);
  EXPECT_GT(report->series, 500u) << "of at most 16 KiB each";
  ASSERT_TRUE(device.remove(data_log_path(kOptimized, {1, PartitionNumber(0)})).ok());
  ASSERT_TRUE(device.remove(data_log_path(kOptimized, {1, PartitionNumber(1)})).ok());
  EXPECT_TRUE(ask_directory(device, 1) == before);
}

TEST(Optimize, ProgressComesToAllRecords) {
  io::MemoryDevice device;
  write_job(device, {.epochs = 4, .records = 40'000, .keys = 9'000, .one_size = true}, 1);
  std::vector<uint64_t> seen;
  OptimizeOptions pass = small_pass();
  pass.progress = [&](uint64_t done, uint64_t records) {
    EXPECT_EQ(records, 160'000u);
    EXPECT_TRUE(seen.empty() || seen.back() < done);
    seen.push_back(done);
  };
  ASSERT_TRUE(optimize(device, pass).ok());
  EXPECT_GT(seen.size(), 2u);
  EXPECT_EQ(seen.back(), 160'000u);
}

// Each of them has its own range of hashes.
TEST(Optimize, ManyRunsAreOneCluster) {
  for (const Codec codec : {Codec::kNone, Codec::kLz4}) {
    io::MemoryDevice device;
    JobShape shape{.epochs = 2, .records = 60'000, .keys = kKeys, .one_size = true};
    if (codec != Codec::kNone) shape.options.compression = codec;
    write_job(device, shape, 7);
    const Answers before = ask_directory(device, kKeys);
    OptimizeOptions pass = small_pass();
    pass.rate_bytes_per_s = 1'000 * kMiB;
    const auto report = optimize(device, pass);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->runs > 1, codec == Codec::kNone) << report->runs;
    EXPECT_TRUE(ask_directory(device, kKeys) == before);
    expect_verified(device, 1);
  }
}

TEST(ClusterList, IsReadAsItWasWritten) {
  ClusterList list;
  list.generation = 9;
  list.clusters = {
      {2, 0xabc, 1, 10, 100, {{EpochNumber(0), 1}, {EpochNumber(1), UINT64_MAX}, {EpochNumber(7), 3}}},
      {9, 0xdef, 1, 11, 101, {{EpochNumber(2), 4}}}};
  // An older Swale refuses a list with clusters of several partitions, or of columns, and no other.
  for (const auto& [ranks, columns] : {std::pair{1, false}, {3, false}, {1, true}, {3, true}}) {
    list.clusters[1].ranks = static_cast<uint32_t>(ranks);
    list.clusters[0].columns = columns;
    const std::string text = list.encode();
    EXPECT_EQ(text.find("ranks") != std::string::npos, ranks > 1);
    EXPECT_EQ(text.find("columns") != std::string::npos, columns);
    const auto again = ClusterList::decode(text, "list");
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_TRUE(*again == list);
  }
}

}  // namespace
}  // namespace swale::imd::optimize_test
