#include "imd/format/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "base/rng.h"
#include "imd/testing/test_generation.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::generation_test {
namespace {

using testing::HasSubstr;

// What load_manifest finds, as text; the failure if it finds nothing.
std::string found(io::Device& device) {
  const Result<Manifest> manifest = load_manifest(device, kDirectory);
  if (!manifest.ok()) return manifest.status().to_string();
  std::string text =
      fmt::format("{}of {} jobs, epochs", manifest->closed ? "closed, " : "", manifest->jobs.size());
  for (const EpochEntry& epoch : manifest->epochs) text += fmt::format(" {}", epoch.epoch_id);
  return text + fmt::format(", generation {}", manifest->generation);
}

// Job 1 has committed two epochs and closed; job 2 has committed one and writes.
class GenerationTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(make_directory(device_).ok());
    TestJob first = TestJob::open(device_).value();
    ASSERT_TRUE(first.commit().ok() && first.commit().ok() && first.close(device_).ok());
    old_document_ = read(manifest_path(kDirectory));
    TestJob second = TestJob::open(device_).value();
    ASSERT_TRUE(second.commit().ok());
    ASSERT_EQ(found(device_), kFound);
  }

  std::string read(const std::string& path) { return io::read_file(device_, path, kMiB).value(); }
  void write(const std::string& path, Bytes bytes) {
    static_cast<void>(device_.remove(path));
    ASSERT_TRUE(device_.open(path, io::OpenMode::kCreate).value()->pwrite(0, bytes).ok());
  }

  const std::string kFound = "of 2 jobs, epochs 100 101 202, generation 2";
  io::MemoryDevice device_;
  std::string old_document_;
};

TEST_F(GenerationTest, AStaleMissingOrDamagedCopyIsPassedOver) {
  const std::string path = manifest_path(kDirectory);
  const std::string document = read(path);
  EXPECT_EQ(document, read(generation_path(kDirectory, 2)));
  write(path, old_document_);
  EXPECT_EQ(found(device_), kFound) << "stale";
  ASSERT_TRUE(device_.remove(path).ok());
  EXPECT_EQ(found(device_), kFound) << "missing";
  EXPECT_TRUE(has_manifest(device_, kDirectory).value());
  size_t visited = 0;
  for (size_t at = 0; at <= document.size(); ++at) {
    std::string damaged = document.substr(0, at);  // cut off
    if (at < document.size()) {
      write(path, damaged);
      EXPECT_EQ(found(device_), kFound) << "cut off at " << at;
      damaged = document;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
    } else {
      damaged += "{";
    }
    write(path, damaged);
    EXPECT_EQ(found(device_), kFound) << "byte " << at;
    visited += 2;
  }
  std::printf("%zu damages\n", visited);
}

// The document of the newest generation is read when swale.json is stale or lost: if it is damaged, too, an
// older generation is no answer.
TEST_F(GenerationTest, AnOlderGenerationIsNoAnswerForADamagedOne) {
  const std::string document = read(generation_path(kDirectory, 2));
  write(generation_path(kDirectory, 2), document.substr(1));
  EXPECT_EQ(found(device_), kFound) << "swale.json is enough";
  size_t visited = 0;
  for (const bool stale : {false, true}) {
    for (size_t at = 0; at < document.size(); ++at) {
      if (stale) {
        write(manifest_path(kDirectory), old_document_);
      } else {
        static_cast<void>(device_.remove(manifest_path(kDirectory)));
      }
      std::string damaged = document;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      write(generation_path(kDirectory, 2), damaged);
      const Status status = load_manifest(device_, kDirectory).status();
      EXPECT_EQ(status.code(), Code::kCorruption) << at << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("jobs/0002/manifest.json"));
      ++visited;
    }
  }
  std::printf("%zu damages\n", visited);
}

TEST_F(GenerationTest, ADocumentOfAnotherGenerationIsDamage) {
  write(manifest_path(kDirectory), old_document_);
  write(generation_path(kDirectory, 2), old_document_);
  const Status status = load_manifest(device_, kDirectory).status();
  EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("jobs/0002/manifest.json: is the manifest of generation 1"));
}

TEST_F(GenerationTest, WhereThereIsNoneItSaysSo) {
  EXPECT_EQ(load_manifest(device_, "/other").status().code(), Code::kNotFound);
  ASSERT_TRUE(device_.make_directory("/other").ok());
  const Status status = load_manifest(device_, "/other").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("no massive directory"));
  EXPECT_FALSE(has_manifest(device_, "/other").value());
}

TEST_F(GenerationTest, NumbersThatNobodyFinishedArePassedOver) {
  for (const uint32_t number : {3u, 4u}) EXPECT_EQ(claim_job(device_, kDirectory).value(), number);
  EXPECT_EQ(found(device_), kFound);
  TestJob job = TestJob::open(device_).value();
  EXPECT_EQ(job.manifest.generation, 5u);
  EXPECT_EQ(job.manifest.continues, 2u);
  ASSERT_TRUE(job.commit().ok());
  write(manifest_path(kDirectory), old_document_);  // the way leads over 3 and 4
  EXPECT_EQ(found(device_), "of 3 jobs, epochs 100 101 202 503, generation 5");
  EXPECT_EQ(device_.exists(generation_path(kDirectory, 1)).value(), false) << "superseded";
  EXPECT_EQ(device_.exists(epoch_log_path(kDirectory, 1)).value(), false);
  EXPECT_EQ(device_.exists(epoch_log_path(kDirectory, 2)).value(), true);
}

// Between the reader's look at the document and at the epoch log, two other jobs come and go.
TEST_F(GenerationTest, AGenerationThatGoesWhileItIsReadIsFollowed) {
  io::FaultDevice watched(device_);
  int jobs = 0;
  watched.set_hook([&](const io::Call& call) -> Status {
    if (call.kind != io::CallKind::kOpen || call.path != epoch_log_path(kDirectory, 2) || jobs > 0) return {};
    for (; jobs < 2; ++jobs) {
      SWALE_ASSIGN_OR_RETURN(TestJob job, TestJob::open(device_));
      SWALE_RETURN_IF_ERROR(job.commit());
    }
    return {};
  });
  EXPECT_EQ(found(watched), "of 4 jobs, epochs 100 101 202 303 404, generation 4");
  EXPECT_EQ(jobs, 2);
}

TEST_F(GenerationTest, AnEpochLogThatIsMissingIsAnError) {
  ASSERT_TRUE(device_.remove(epoch_log_path(kDirectory, 2)).ok());
  const Status status = load_manifest(device_, kDirectory).status();
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(status.message(), HasSubstr("jobs/0002/epochs: is missing"));
}

TEST_F(GenerationTest, ANumberIsClaimedOnce) {
  constexpr int kThreads = 4;
  constexpr size_t kClaims = 100;
  std::vector<std::vector<uint32_t>> claimed(kThreads);
  std::atomic<size_t> busy = 0;
  std::vector<std::thread> threads;
  for (std::vector<uint32_t>& mine : claimed) {
    threads.emplace_back([&] {
      while (mine.size() < kClaims) {
        const Result<uint32_t> number = claim_job(device_, kDirectory);
        if (number.ok()) {
          mine.push_back(*number);
        } else {
          EXPECT_EQ(number.status().code(), Code::kBusy) << number.status().to_string();
          ++busy;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint32_t> all;
  for (const std::vector<uint32_t>& mine : claimed) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    all.insert(mine.begin(), mine.end());
  }
  EXPECT_EQ(all.size(), kThreads * kClaims);
  EXPECT_EQ(*all.begin(), 3u);
  EXPECT_EQ(*all.rbegin(), 2 + kThreads * kClaims) << "without gaps";
  std::printf("%zu claims, %zu times busy\n", all.size(), busy.load());
}

// Others claim the same number between this job's look and its claim.
TEST_F(GenerationTest, AClaimThatOthersWinIsTriedAgainAFewTimes) {
  for (const int others : {1, 2, 3}) {
    io::FaultDevice watched(device_);
    int left = others;
    watched.set_hook([&](const io::Call& call) -> Status {
      if (call.kind == io::CallKind::kMakeDirectory && call.path != jobs_folder(kDirectory) && left-- > 0)
        return device_.make_directory(call.path);
      return {};
    });
    const Result<uint32_t> number = claim_job(watched, kDirectory);
    if (others < 3) {
      EXPECT_TRUE(number.ok()) << number.status().to_string();
    } else {
      EXPECT_EQ(number.status().code(), Code::kBusy) << number.status().to_string();
    }
  }
  EXPECT_EQ(found(device_), kFound);
}

TEST_F(GenerationTest, TheLastNumberIsSaidToBeTheLast) {
  ASSERT_TRUE(device_.make_directory(job_folder(kDirectory, kJobNumberMax)).ok());
  const Status status = claim_job(device_, kDirectory).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("write to a new directory"));
}

// Loses power at the n-th call of a step, for every n until the step passes. Returns how many times it did;
// the directory is one of `allowed` afterwards.
struct CrashLoop {
  std::vector<std::string> allowed;
  std::function<Status(io::Device& device)> prepare;
  std::function<Status(io::Device& device)> step;
  bool lying_sync = false;

  size_t crashes = 0;
  size_t wrong = 0;
  std::set<std::string> seen;

  bool run(uint64_t nth, io::CrashMode mode, uint64_t seed) {
    io::MemoryDevice device;
    EXPECT_TRUE(prepare(device).ok());
    io::FaultDevice faulty(device);
    Rng rng(seed);
    bool crashed = false;
    if (lying_sync) {
      faulty.inject({.action = io::FaultAction::kDrop, .kind = io::CallKind::kSync, .from_then_on = true});
    }
    faulty.set_hook([&](const io::Call&) -> Status {
      if (crashed || faulty.calls() < nth) return {};
      crashed = true;
      device.crash(rng, mode);
      return error(Code::kIoError, Scope::kFatal, "power is lost");
    });
    static_cast<void>(step(faulty));
    if (!crashed) device.crash(rng, mode);
    ++crashes;
    const std::string now = found(device);
    seen.insert(now);
    const bool right = crashed ? std::find(allowed.begin(), allowed.end(), now) != allowed.end()
                               : now == allowed.back();  // done: it is the new one
    if (!right) ++wrong;
    EXPECT_TRUE(right || lying_sync) << "call " << nth << ": " << now;
    return crashed;
  }
  void run_all(uint64_t seeds) {
    for (const io::CrashMode mode :
         {io::CrashMode::kDropAll, io::CrashMode::kTearPages, io::CrashMode::kReorder}) {
      for (uint64_t seed = 0; seed < (mode == io::CrashMode::kDropAll ? 1 : seeds); ++seed) {
        for (uint64_t nth = 1; run(nth, mode, seed); ++nth) continue;
      }
    }
  }
};

Status make_two_generations(io::Device& device) {
  SWALE_RETURN_IF_ERROR(make_directory(device));
  for (int i = 0; i < 2; ++i) {
    SWALE_ASSIGN_OR_RETURN(TestJob job, TestJob::open(device));
    SWALE_RETURN_IF_ERROR(job.commit());
    SWALE_RETURN_IF_ERROR(job.close(device));
  }
  return device.sync_directory("/");
}

const std::string kTwo = "closed, of 2 jobs, epochs 100 201, generation 2";

CrashLoop opening() {
  CrashLoop loop;
  loop.allowed = {kTwo, "of 3 jobs, epochs 100 201, generation 3"};
  loop.prepare = make_two_generations;
  loop.step = [](io::Device& device) { return TestJob::open(device).status(); };
  return loop;
}

TEST(GenerationCrash, OpeningLeavesTheOldGenerationOrTheNewOne) {
  CrashLoop loop = opening();
  loop.run_all(20);
  EXPECT_EQ(loop.wrong, 0u);
  EXPECT_EQ(loop.seen.size(), 2u) << testing::PrintToString(loop.seen);
  std::printf("%zu crashes\n", loop.crashes);
}

TEST(GenerationCrash, ClosingLosesNoEpoch) {
  CrashLoop loop;
  loop.allowed = {"of 3 jobs, epochs 100 201 302 303, generation 3",
                  "closed, of 3 jobs, epochs 100 201 302 303, generation 3"};
  std::optional<TestJob> job;
  loop.prepare = [&](io::Device& device) -> Status {
    SWALE_RETURN_IF_ERROR(make_two_generations(device));
    SWALE_ASSIGN_OR_RETURN(TestJob opened, TestJob::open(device));
    SWALE_RETURN_IF_ERROR(opened.commit());
    SWALE_RETURN_IF_ERROR(opened.commit());
    job.emplace(std::move(opened));
    return {};
  };
  loop.step = [&](io::Device& device) { return job->close(device); };
  loop.run_all(20);
  EXPECT_EQ(loop.wrong, 0u);
  EXPECT_EQ(loop.seen.size(), 2u) << testing::PrintToString(loop.seen);
  std::printf("%zu crashes\n", loop.crashes);
}

TEST(GenerationCrash, CanaryADeviceThatDoesNotSyncIsNoticed) {
  CrashLoop loop = opening();
  loop.lying_sync = true;
  loop.run_all(5);
  EXPECT_GT(loop.wrong, 0u);
  std::printf("%zu of %zu crashes lost something\n", loop.wrong, loop.crashes);
}

}  // namespace
}  // namespace swale::imd::generation_test
