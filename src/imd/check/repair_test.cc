// Repair: open epochs, damaged indexes and a lost swale.json, with a stop at every call of it.
#include "imd/check/repair.h"
#include "imd/check/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/crc32c.h"
#include "base/rng.h"
#include "imd/format/generation.h"
#include "imd/read/reader.h"
#include "imd/testing/test_directory.h"
#include "imd/testing/test_job.h"
#include "imd/testing/test_repair.h"
#include "imd/write/writer.h"
#include "imd/write/writer_lock.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "run/block.h"

namespace swale::imd::repair_test {
namespace {

using test::Records;
using test::TestDirectory;

constexpr char kDir[] = "/dir";
constexpr size_t kRecords = 300;  // of an epoch
constexpr TestDirectory::Shape kRuns{40, 2, TestDirectory::Shape::kCommitted};
constexpr TestDirectory::Shape kOpen{40, 2, TestDirectory::Shape::kUncommitted};

using Pairs = std::multiset<std::pair<std::string, std::string>>;

Pairs scan(Reader& reader, uint32_t epoch) {
  Pairs pairs;
  const Status status = reader.scan(epoch, [&](uint32_t, Bytes key, Bytes value) {
    pairs.emplace(key, value);
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  return pairs;
}

Pairs pairs_of(const Records& records) { return {records.begin(), records.end()}; }

// Everything of the directory is durable from now on.
void settle(io::Device& device) {
  std::set<std::string> folders = {"/", kDir};
  for (const auto& [path, content] : test::image_of(device)) {
    if (path.ends_with('/')) {
      folders.insert(path.substr(0, path.size() - 1));
      continue;
    }
    const auto file = device.open(path, io::OpenMode::kReadWrite);
    EXPECT_TRUE(file.ok() && (*file)->sync().ok()) << path;
  }
  for (const std::string& folder : folders) EXPECT_TRUE(device.sync_directory(folder).ok());
}

void change(io::Device& device, const std::string& path, uint64_t offset, const std::string& bytes) {
  const auto file = device.open(path, io::OpenMode::kReadWrite).value();
  ASSERT_TRUE(file->pwrite(offset, bytes).ok());
  ASSERT_TRUE(file->sync().ok());
}

std::string content(io::Device& device, const std::string& path) {
  return io::read_file(device, path, 64 * kMiB).value();
}

// Two committed epochs of three partitions and two ways, and an open one: 300 records each.
struct Sample {
  io::MemoryDevice device;
  std::vector<Records> records;
  std::unique_ptr<TestDirectory> directory;

  explicit Sample(bool open = true, uint64_t seed = 1) {
    Rng rng(seed);
    directory = std::make_unique<TestDirectory>(device, kDir);
    directory->begin_job(3, 2);
    for (int epoch = 0; epoch < (open ? 3 : 2); ++epoch) {
      records.push_back(test::numbered_records(rng, kRecords, 200, 60, epoch == 1));
      directory->write_epoch(records.back(), epoch < 2 ? kRuns : kOpen);
    }
    settle(device);
  }
};

// Verify finds nothing and the committed epochs hold what was written.
void expect_whole(io::Device& device, const Sample& sample, size_t epochs) {
  const auto reader = Reader::open(device, kDir, {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  ASSERT_EQ((*reader)->manifest().epochs.size(), epochs);
  const auto problems = verify_directory(**reader, 5).problems;
  ASSERT_TRUE(problems.empty()) << problems.front().to_string();
  for (uint32_t epoch = 0; epoch < 2; ++epoch) {
    ASSERT_EQ(scan(**reader, epoch), pairs_of(sample.records[epoch])) << epoch;
    const auto& [key, value] = sample.records[epoch].front();
    EXPECT_TRUE((*reader)->get(key, epoch).ok());
  }
  if (epochs < 3) return;
  const Pairs recovered = scan(**reader, 2);
  const Pairs written = pairs_of(sample.records[2]);
  ASSERT_FALSE(recovered.empty());
  ASSERT_TRUE(std::includes(written.begin(), written.end(), recovered.begin(), recovered.end()));
  for (const auto& [key, value] : recovered) ASSERT_TRUE((*reader)->get(key, 2).ok()) << key;
}

RepairReport repair(io::Device& device, bool dry_run = false) {
  const auto report = repair_directory(device, kDir, {.dry_run = dry_run});
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return report.ok() ? *report : RepairReport();
}

TEST(Repair, LeavesAWholeDirectoryAsItIs) {
  Sample sample(/*open=*/false);
  const std::string before = content(sample.device, manifest_path(kDir));
  const RepairReport report = repair(sample.device);
  EXPECT_TRUE(report.found.empty() && report.done.empty() && report.lost.empty());
  EXPECT_EQ(content(sample.device, manifest_path(kDir)), before);
  EXPECT_FALSE(sample.device.exists(lock_path(kDir)).value());
  expect_whole(sample.device, sample, 2);
}

TEST(Repair, RecoversAllRunsOfAnOpenEpoch) {
  Sample sample;
  const RepairReport dry = repair(sample.device, true);
  EXPECT_EQ(dry.records_recovered, kRecords);
  expect_whole(sample.device, sample, 2);
  const RepairReport report = repair(sample.device);
  EXPECT_EQ(report.records_recovered, kRecords);
  expect_whole(sample.device, sample, 3);
  const auto reader = Reader::open(sample.device, kDir, {}).value();
  EXPECT_EQ(reader->manifest().epochs[2].recovered, Recovered::kPartial);
  EXPECT_EQ(reader->manifest().epochs[2].step, kStepUnknown);
  EXPECT_TRUE(repair(sample.device).done.empty()) << "nothing is left to do";
}

// Every block of the open epoch is damaged in turn: its run is lost, the others are not.
TEST(Repair, RecoversTheOtherRunsIfOneIsTorn) {
  uint64_t points = 0;
  for (uint32_t partition = 0; partition < 3; ++partition) {
    for (uint64_t block = 0;; ++block) {
      Sample sample;
      const std::string path = data_log_path(kDir, {1, PartitionNumber(partition)});
      const std::string before = content(sample.device, path);
      const auto reader = Reader::open(sample.device, kDir, {}).value();
      if ((block + 1) * run::kBlockBytes > before.size()) break;
      const auto header =
          run::decode_run_header(Bytes(before).substr(block * run::kBlockBytes, run::kBlockBytes),
                                 PartitionNumber(partition), BlockNumber(block), path);
      if (header.ok() && header->epoch < 2) {
        block += header->blocks - 1;  // committed: another test's
        continue;
      }
      change(sample.device, path, block * run::kBlockBytes, std::string(run::kBlockBytes, '\0'));
      const RepairReport report = repair(sample.device);
      EXPECT_EQ(report.torn_runs, header.ok() ? 0u : 1u);
      EXPECT_LT(report.records_recovered, kRecords);
      expect_whole(sample.device, sample, 3);
      // Repair writes to no file but its own.
      std::string damaged = before;
      damaged.replace(block * run::kBlockBytes, run::kBlockBytes, std::string(run::kBlockBytes, '\0'));
      EXPECT_TRUE(content(sample.device, path) == damaged);
      ++points;
    }
  }
  EXPECT_GT(points, 10u);
  fmt::print("visited {} torn blocks\n", points);
}

TEST(Repair, MakesADamagedIndexAnew) {
  uint64_t points = 0;
  for (uint32_t partition = 0; partition < 3; ++partition) {
    const std::string path = index_log_path(kDir, {1, PartitionNumber(partition)});
    Sample whole(false);
    const uint64_t size = content(whole.device, path).size();
    for (uint64_t offset = 8; offset < size; offset += 40, ++points) {
      Sample sample(false);
      change(sample.device, path, offset, "damage, damage");
      const auto before = verify_directory(*Reader::open(sample.device, kDir, {}).value(), 5).problems.size();
      const RepairReport report = repair(sample.device);
      EXPECT_EQ(report.indexes_rebuilt, before == 0 ? 0u : 1u) << offset;
      expect_whole(sample.device, sample, 2);
    }
    Sample sample(false);
    ASSERT_TRUE(sample.device.remove(path).ok());
    EXPECT_EQ(repair(sample.device).indexes_rebuilt, 1u);
    expect_whole(sample.device, sample, 2);
    ++points;
  }
  fmt::print("visited {} damages\n", points);
}

// Nothing is lost: the manifest has two copies.
TEST(Repair, TakesTheOtherCopyOfALostManifest) {
  for (const std::string& path : {manifest_path(kDir), generation_path(kDir, 1)}) {
    for (const bool missing : {true, false}) {
      for (const bool index_lost : {true, false}) {
        Sample sample(false);
        if (missing) {
          ASSERT_TRUE(sample.device.remove(path).ok());
        }
        if (!missing) change(sample.device, path, 30, "?");
        if (index_lost) {
          ASSERT_TRUE(sample.device.remove(index_log_path(kDir, {1, PartitionNumber(2)})).ok());
        }
        const RepairReport report = repair(sample.device);
        EXPECT_TRUE(report.manifest_rebuilt);
        EXPECT_TRUE(report.lost.empty());
        EXPECT_EQ(report.indexes_rebuilt, index_lost ? 1u : 0u);
        expect_whole(sample.device, sample, 2);
        EXPECT_EQ(sample.device.exists(manifest_path(kDir) + ".damaged").value(),
                  !missing && path == manifest_path(kDir));
        const auto reader = Reader::open(sample.device, kDir, {}).value();
        EXPECT_EQ(reader->manifest().jobs.size(), 1u);
        EXPECT_EQ(reader->manifest().epochs[0].recovered, Recovered::kNo);
        EXPECT_TRUE(repair(sample.device).done.empty());
      }
    }
  }
}

void lose_all_documents(io::Device& device, bool epoch_logs) {
  for (const std::string& path : test::files_of(test::image_of(device))) {
    const bool document = path.ends_with(".json") || (epoch_logs && path.ends_with("/epochs"));
    if (document) {
      ASSERT_TRUE(device.remove(path).ok());
    }
  }
}

// The epoch log still knows steps; headers of runs know the job's shape.
TEST(Repair, KnowsJobsThatNoManifestNames) {
  Sample sample(false);
  lose_all_documents(sample.device, false);
  const RepairReport report = repair(sample.device);
  EXPECT_FALSE(report.lost.empty()) << "the schema";
  EXPECT_EQ(report.lost_parts, 0u);
  expect_whole(sample.device, sample, 2);
  const auto reader = Reader::open(sample.device, kDir, {}).value();
  EXPECT_EQ(reader->manifest().epochs[1].step, 10);
  ASSERT_EQ(reader->manifest().jobs.size(), 1u);
  EXPECT_EQ(reader->manifest().jobs[0].ranks, 3);
  EXPECT_EQ(reader->manifest().jobs[0].ways, 2u);
  EXPECT_TRUE(repair(sample.device).done.empty());
}

// One run of one partition is enough.
TEST(Repair, KnowsAJobByOneRun) {
  io::MemoryDevice device;
  TestDirectory directory(device, kDir);
  directory.begin_job(5, 3);
  std::string key = "0";  // of partition 0
  while (choose(hash_bytes(key), 5).index != 0) key += "0";
  directory.write_epoch({{key, "value"}});
  lose_all_documents(device, true);
  for (uint32_t partition = 1; partition < 5; ++partition) {
    for (const std::string& path : {data_log_path(kDir, {1, PartitionNumber(partition)}),
                                    index_log_path(kDir, {1, PartitionNumber(partition)})})
      ASSERT_TRUE(device.remove(path).ok());
  }
  EXPECT_EQ(repair(device).lost_parts, 4u);
  const auto reader = Reader::open(device, kDir, {}).value();
  ASSERT_EQ(reader->manifest().jobs.size(), 1u);
  EXPECT_EQ(reader->manifest().jobs[0].ranks, 5);
  EXPECT_EQ(reader->manifest().jobs[0].ways, 3u);
  EXPECT_EQ(reader->get(key, 0).value()[0].bytes, "value");
}

// Everything but the logs is lost: with all index logs all records are found, without one it cannot be shown.
TEST(Repair, MakesALostManifestAnewFromTheLogs) {
  for (const bool index_lost : {false, true}) {
    Sample sample(false);
    lose_all_documents(sample.device, true);
    if (index_lost) {
      ASSERT_TRUE(sample.device.remove(index_log_path(kDir, {1, PartitionNumber(2)})).ok());
    }
    const RepairReport report = repair(sample.device);
    EXPECT_TRUE(report.manifest_rebuilt);
    EXPECT_EQ(report.lost_parts, index_lost ? 2u : 0u);
    const auto reader = Reader::open(sample.device, kDir, {}).value();
    ASSERT_EQ(reader->manifest().epochs.size(), 2u);
    EXPECT_EQ(reader->manifest().epochs[0].recovered, Recovered::kWhole);
    EXPECT_EQ(reader->manifest().jobs[0].ranks, 3);
    EXPECT_EQ(reader->count(0).ok(), !index_lost);
    if (!index_lost) expect_whole(sample.device, sample, 2);
    if (index_lost) {
      const Status scanned = reader->scan(0, [](uint32_t, Bytes, Bytes) { return true; });
      EXPECT_EQ(scanned.code(), Code::kCorruption);
    }
    EXPECT_TRUE(repair(sample.device).done.empty());
  }
}

TEST(Repair, RefusesWhatIsNewer) {
  Sample sample;
  std::string json = content(sample.device, manifest_path(kDir));
  json.replace(json.find("\"version\":1"), 11, "\"version\":2");
  json.resize(json.rfind("\"crc32c\""));
  json += fmt::format("\"crc32c\":\"{:08x}\"}}\n", crc32c(json));
  ASSERT_TRUE(io::replace_file(sample.device, manifest_path(kDir), json).ok());
  const Status status = repair_directory(sample.device, kDir, {}).status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_EQ(content(sample.device, manifest_path(kDir)), json);
}

TEST(Repair, IsNoPlaceForAnythingElse) {
  io::MemoryDevice device;
  EXPECT_EQ(repair_directory(device, "/none", {}).status().code(), Code::kNotFound);
  ASSERT_TRUE(device.make_directory("/none").ok());
  EXPECT_EQ(repair_directory(device, "/none", {}).status().code(), Code::kNotFound);
  Sample sample;
  const auto lock = acquire_writer_lock(sample.device, kDir, 7);
  EXPECT_EQ(repair_directory(sample.device, kDir, {}).status().code(), Code::kBusy);
}

// What repair has to do in the crash loop.
struct Work {
  const char* name;
  size_t epochs;
  bool readable;  // without repair, too
  std::function<void(Sample&)> damage;
};

const std::vector<Work>& works() {
  static const std::vector<Work> all = {
      {"open epoch", 3, true, [](Sample&) {}},
      {"torn run", 3, true,
       [](Sample& sample) {
         const std::string path = data_log_path(kDir, {1, PartitionNumber(1)});
         const uint64_t blocks = content(sample.device, path).size() / run::kBlockBytes;
         change(sample.device, path, (blocks - 2) * run::kBlockBytes, std::string(run::kBlockBytes, '\0'));
       }},
      {"index", 3, false,
       [](Sample& sample) {
         change(sample.device, index_log_path(kDir, {1, PartitionNumber(1)}), 100, "damage");
       }},
      {"swale.json", 3, false, [](Sample& sample) { change(sample.device, manifest_path(kDir), 30, "?"); }},
  };
  return all;
}

// The machine stops at the n-th call of repair, for every n; repair is run again.
TEST(Repair, ACrashAtAnyCallIsRepairedByTheNextOne) {
  uint64_t points = 0;
  for (const Work& work : works()) {
    for (const io::CrashMode mode : {io::CrashMode::kDropAll, io::CrashMode::kTearPages}) {
      for (uint64_t n = 1;; n += 1 + n / 16, ++points) {
        Sample sample;
        work.damage(sample);
        io::FaultDevice device(sample.device);
        device.inject({.nth = n, .from_then_on = true});
        static_cast<void>(repair_directory(device, kDir, {}));
        const bool through = device.faults() == 0;
        Rng rng(n);
        sample.device.crash(rng, mode);
        if (work.readable) {
          const auto reader = Reader::open(sample.device, kDir, {}).value();
          expect_whole(sample.device, sample, reader->manifest().epochs.size());
        }
        static_cast<void>(repair(sample.device));
        expect_whole(sample.device, sample, work.epochs);
        ASSERT_FALSE(HasFailure()) << work.name << ", call " << n;
        if (through) break;
      }
    }
  }
  fmt::print("visited {} crashes\n", points);
}

// Canary: an index that was renamed into place but never synced must be noticed.
TEST(Repair, CanaryAnIndexThatIsNotDurableIsNoticed) {
  Sample sample(false);
  change(sample.device, index_log_path(kDir, {1, PartitionNumber(1)}), 100, "damage");
  io::FaultDevice device(sample.device);
  device.inject({.action = io::FaultAction::kDrop,
                 .kind = io::CallKind::kSync,
                 .path_part = ".index",
                 .from_then_on = true});
  EXPECT_EQ(repair(device).indexes_rebuilt, 1u);
  Rng rng(1);
  sample.device.crash(rng, io::CrashMode::kDropAll);
  EXPECT_FALSE(verify_directory(*Reader::open(sample.device, kDir, {}).value(), 5).problems.empty());
}

// ---- with the real writer ----

WriterOptions options_of(std::optional<int64_t> resume_after = {}) {
  WriterOptions options;
  options.memory_bytes = 4 * kMiB;
  options.resume_after = resume_after;
  options.schema = run::Schema::parse("number:u8;_:*", "number").value();
  return options;
}

// Epochs of steps 0 and 10 and then records that no epoch_end follows; the machine stops.
void write_and_stop(io::Device& device, int32_t ranks, int records) {
  run_ranks(ranks, [&](net::Job& job) {
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options_of());
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int i = 0; i < (epoch < 2 ? 500 : records); ++i) {
        const std::string value = fmt::format("{:08}{:032}", i, job.rank());
        ASSERT_TRUE((*writer)->append(fmt::format("{}/{}/{}", epoch, job.rank(), i), value).ok());
      }
      if (epoch == 2) break;
      ASSERT_TRUE((*writer)->epoch_end(epoch * 10, 0).ok());
    }
    static_cast<void>((*writer)->close());
  });
}

TEST(Repair, RecoversWhatAJobLeftAndTheNextJobGoesOn) {
  uint64_t recovered = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    io::MemoryDevice device;
    write_and_stop(device, 3, 40'000);
    if (seed > 1) {
      Rng rng(seed);
      device.crash(rng, io::CrashMode::kTearPages);
    }
    const RepairReport report = repair(device);
    recovered += report.records_recovered;
    {
      const auto reader = Reader::open(device, kDir, {}).value();
      const auto problems = verify_directory(*reader, 5).problems;
      ASSERT_TRUE(problems.empty()) << problems.front().to_string();
      const size_t epochs = report.records_recovered > 0 ? 3 : 2;
      ASSERT_EQ(reader->manifest().epochs.size(), epochs);
      EXPECT_EQ(reader->manifest().jobs.size(), epochs - 1) << "the job, and repair's own";
      EXPECT_EQ(
          reader->top(static_cast<int64_t>(epochs) - 1, "number", 5, run::Extreme::kLargest)->records.size(),
          5u);
    }
    // A checkpoint of step 10: what was recovered is no part of it.
    run_ranks(2, [&](net::Job& job) {
      auto writer =
          Writer::open(job, device, kDir, Writer::Create::kNever, options_of(seed % 2 == 0 ? 10 : 0));
      ASSERT_TRUE(writer.ok()) << writer.status().to_string();
      ASSERT_TRUE((*writer)->append("key", "12345678").ok());
      ASSERT_TRUE((*writer)->epoch_end(20, 0).ok());
      ASSERT_TRUE((*writer)->close().ok());
    });
    const RepairReport again = repair(device);
    EXPECT_EQ(again.epochs_recovered, 0u) << "dropped epochs stay dropped";
    const auto reader = Reader::open(device, kDir, {}).value();
    EXPECT_EQ(reader->manifest().epochs.size(), seed % 2 == 0 ? 3u : 2u);
    const auto problems = verify_directory(*reader, 5).problems;
    EXPECT_TRUE(problems.empty()) << problems.front().to_string();
  }
  EXPECT_GT(recovered, 0u);
  fmt::print("recovered {} records\n", recovered);
}

TEST(Repair, MakesExtremaAnew) {
  io::MemoryDevice device;
  write_and_stop(device, 3, 0);
  const auto best = [&] {
    const auto reader = Reader::open(device, kDir, {}).value();
    const auto top = reader->top(1, "number", 7, run::Extreme::kSmallest).value();
    EXPECT_EQ(top.partitions_scanned, 0u);
    std::vector<std::string> values;
    for (const auto& record : top.records) values.push_back(record.value);
    return values;
  };
  const auto before = best();
  for (uint32_t partition = 0; partition < 3; ++partition)
    ASSERT_TRUE(device.remove(index_log_path(kDir, {1, PartitionNumber(partition)})).ok());
  EXPECT_EQ(repair(device).indexes_rebuilt, 3u);
  EXPECT_EQ(best(), before);
  EXPECT_TRUE(verify_directory(*Reader::open(device, kDir, {}).value(), 5).problems.empty());
}

}  // namespace
}  // namespace swale::imd::repair_test
