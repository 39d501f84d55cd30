// JobFence: a job whose directory another one has opened may not commit any more
// (docs/design/generations.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "imd/testing/test_generation.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::job_fence_test {
namespace {

using testing::HasSubstr;

TEST(JobFence, FallsWithTheNextClaim) {
  io::MemoryDevice device;
  ASSERT_TRUE(make_directory(device).ok());
  ASSERT_TRUE(TestJob::open(device).ok() && TestJob::open(device).ok());
  const JobFence fence(device, kDirectory, 2, nullptr);
  EXPECT_TRUE(fence.check().ok());
  ASSERT_TRUE(claim_job(device, kDirectory).ok());
  const Status status = fence.check();
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_THAT(status.message(), HasSubstr("job 3 has opened the directory after this one (job 2)"));
  ASSERT_TRUE(claim_job(device, kDirectory).ok());
  EXPECT_FALSE(fence.check().ok());
  EXPECT_TRUE(JobFence(device, kDirectory, 4, nullptr).check().ok());
}

// A fence that cannot see is no permission.
TEST(JobFence, ReportsWhatItCannotSee) {
  io::MemoryDevice device;
  ASSERT_TRUE(make_directory(device).ok());
  io::FaultDevice faulty(device);
  faulty.inject({.kind = io::CallKind::kQuery});
  EXPECT_EQ(JobFence(faulty, kDirectory, 2, nullptr).check().code(), Code::kIoError);
}

// The argument of the fence: the steps of a committer of two epochs and of a successor in every order. A
// commit is answered OK if its append and its check succeed.
struct Interleaving {
  enum Step { kAppend, kCheck, kClaim, kCopy, kWrite };

  // The epochs that were answered OK and that the successor lacks.
  static size_t lost(const std::vector<Step>& steps) {
    io::MemoryDevice device;
    EXPECT_TRUE(make_directory(device).ok());
    TestJob old = TestJob::open(device).value();
    const JobFence fence(device, kDirectory, old.manifest.generation, nullptr);
    uint32_t claimed = 0;
    Manifest base;
    std::vector<uint64_t> acknowledged;
    bool appended = false;  // since the last check, or
    bool checked = false;   // since the last append
    bool refused = false;
    for (const Step step : steps) {
      if (step == kAppend && !refused) {
        EXPECT_TRUE(old.commit().ok());
        appended = true;
      }
      if (step == kCheck && !refused) {
        refused = !fence.check().ok();
        checked = !refused;
      }
      if (appended && checked) {
        acknowledged.push_back(old.log.epochs() - 1);
        appended = checked = false;
      }
      if (step == kClaim) claimed = claim_job(device, kDirectory).value();
      if (step == kCopy) base = load_manifest(device, kDirectory).value();
      if (step == kWrite) {
        EXPECT_TRUE(write_generation(device, kDirectory, next_of(base, claimed), base.continues).ok());
      }
    }
    const Manifest after = load_manifest(device, kDirectory).value();
    EXPECT_EQ(after.generation, claimed);
    size_t lost = 0;
    for (const uint64_t number : acknowledged) {
      if (number >= after.epochs.size()) ++lost;
    }
    return lost;
  }

  // The committer's steps, each once before the successor's.
  static std::pair<size_t, size_t> all(const std::vector<Step>& committer) {
    const std::vector<Step> successor = {kClaim, kCopy, kWrite};
    std::vector<bool> turn(committer.size() + successor.size());  // true: the successor's
    std::fill(turn.begin() + static_cast<std::ptrdiff_t>(committer.size()), turn.end(), true);
    size_t visited = 0;
    size_t losses = 0;
    do {
      std::vector<Step> steps;
      size_t mine = 0;
      size_t theirs = 0;
      for (const bool successors : turn)
        steps.push_back(successors ? successor[theirs++] : committer[mine++]);
      ++visited;
      if (lost(steps) > 0) ++losses;
    } while (std::next_permutation(turn.begin(), turn.end()));
    return {visited, losses};
  }
};

TEST(JobFenceArgument, AnEpochThatWasAnsweredIsTheSuccessorsWhateverTheOrder) {
  using I = Interleaving;
  const auto [visited, losses] = I::all({I::kAppend, I::kCheck, I::kAppend, I::kCheck});
  EXPECT_EQ(visited, 35u);
  EXPECT_EQ(losses, 0u);
  std::printf("%zu orders\n", visited);
}

// The order that a job's commit has: the first check is for jobs that were superseded long ago.
TEST(JobFenceArgument, AlsoWithACheckBeforeTheAppend) {
  using I = Interleaving;
  size_t visited = 0;
  const std::vector<I::Step> commit = {I::kCheck, I::kAppend, I::kCheck};
  std::vector<bool> turn = {false, false, false, true, true, true};
  do {
    io::MemoryDevice device;
    ASSERT_TRUE(make_directory(device).ok());
    TestJob old = TestJob::open(device).value();
    const JobFence fence(device, kDirectory, 1, nullptr);
    Manifest base;
    bool ok = true;
    size_t mine = 0;
    size_t theirs = 0;
    for (const bool successors : turn) {
      if (!successors) {
        if (ok) ok = commit[mine] == I::kCheck ? fence.check().ok() : old.commit().ok();
        ++mine;
      } else if (const size_t step = theirs++; step == 0) {
        EXPECT_EQ(claim_job(device, kDirectory).value(), 2u);
      } else if (step == 1) {
        base = load_manifest(device, kDirectory).value();
      } else {
        EXPECT_TRUE(write_generation(device, kDirectory, next_of(base, 2), base.continues).ok());
      }
    }
    if (ok) {
      EXPECT_EQ(load_manifest(device, kDirectory)->epochs.size(), 1u);
    }
    ++visited;
  } while (std::next_permutation(turn.begin(), turn.end()));
  std::printf("%zu orders\n", visited);
}

TEST(JobFenceArgument, CanaryACheckBeforeTheAppendAloneLosesEpochs) {
  using I = Interleaving;
  const auto [visited, losses] = I::all({I::kCheck, I::kAppend, I::kCheck, I::kAppend});
  EXPECT_GT(losses, 0u);
  std::printf("%zu of %zu orders lose an epoch\n", losses, visited);
}

}  // namespace
}  // namespace swale::imd::job_fence_test
