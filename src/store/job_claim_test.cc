// Jobs that claim the same directory: each number has one owner, and the fence falls before the successor
// reads.
#include "store/job_claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>

#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::store::job_claim_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ClaimNames names(ClaimNames::Kind kind = ClaimNames::Kind::kFile) {
  return {.folder = "/d",
          .directory = "/d",
          .path = [](uint32_t number) { return fmt::format("/d/claim-{}", number); },
          .number = [](std::string_view name) -> std::optional<uint32_t> {
            const size_t at = name.find('-');
            uint32_t number = 0;
            if (at == std::string_view::npos) return std::nullopt;
            std::from_chars(name.data() + at + 1, name.data() + name.size(), number);
            return number;
          },
          .kind = kind,
          .number_max = 5};
}

class Disk {
 public:
  Disk() { EXPECT_TRUE(memory.make_directory("/d").ok()); }
  void touch(const std::string& path) { EXPECT_TRUE(memory.open(path, io::OpenMode::kCreate).ok()); }
  io::MemoryDevice memory;
  io::FaultDevice device{memory};
};

TEST(JobClaim, IsTheNumberAfterAllThatAnyFileHas) {
  for (const auto kind : {ClaimNames::Kind::kFile, ClaimNames::Kind::kFolder}) {
    Disk disk;
    EXPECT_EQ(JobClaim::next(disk.memory, names(kind))->number(), 1u);
    disk.touch("/d/data-3");
    disk.touch("/d/other");
    EXPECT_THAT(*list_jobs(disk.memory, names(kind)), ElementsAre(1, 3));
    EXPECT_EQ(JobClaim::next(disk.memory, names(kind))->number(), 4u);
  }
  ClaimNames nowhere = names();
  nowhere.folder = "/none";
  Disk disk;
  EXPECT_THAT(*list_jobs(disk.memory, nowhere), ElementsAre());
}

TEST(JobClaim, EndsAtTheLastNumber) {
  Disk disk;
  disk.touch("/d/data-5");
  Disk empty;  // but for what the caller knows
  for (const uint64_t min : {uint64_t{6}, uint64_t{UINT32_MAX} + 1}) {
    ClaimNames after = names();
    after.number_min = min;
    EXPECT_EQ(JobClaim::next(empty.memory, after).status().code(), Code::kResourceExhausted);
  }
  const Status full = JobClaim::next(disk.memory, names()).status();
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("5 jobs have opened it for writing"));
}

TEST(JobClaim, FallsWithTheNextOne) {
  Disk disk;
  const JobClaim first = *JobClaim::next(disk.memory, names());
  EXPECT_TRUE(first.fence().ok());
  const JobClaim second = *JobClaim::next(disk.memory, names());
  EXPECT_EQ(first.fence().code(), Code::kAborted);
  EXPECT_THAT(first.fence().message(), HasSubstr("job 2 has opened the directory after this one (job 1)"));
  EXPECT_TRUE(second.fence().ok());
  const JobClaim third = *JobClaim::next(disk.memory, names());
  EXPECT_EQ(first.fence().code(), Code::kAborted);
  EXPECT_EQ(second.fence().code(), Code::kAborted);
  EXPECT_TRUE(third.fence().ok());
}

// Another job claims the same number between this one's look and its claim, as often as the position says.
TEST(JobClaim, OfTwoClaimantsOfANumberOneTakesTheNext) {
  for (uint64_t faster = 1; faster <= 3; ++faster) {
    Disk disk;
    uint64_t left = faster;
    disk.device.set_hook([&](const io::Call& call) {
      if (call.kind == io::CallKind::kOpen && left > 0) {
        --left;
        EXPECT_TRUE(JobClaim::next(disk.memory, names()).ok());
      }
      return ok_status();
    });
    const auto claim = JobClaim::next(disk.device, names());
    if (faster < 3) {
      ASSERT_TRUE(claim.ok()) << claim.status().to_string();
      EXPECT_EQ(claim->number(), faster + 1);
      EXPECT_TRUE(claim->fence().ok());
    } else {
      EXPECT_EQ(claim.status().code(), Code::kBusy);
    }
  }
}

// A claim counts only when it is durable; a fence that cannot see is no permission.
TEST(JobClaim, ReportsEachCallThatFails) {
  for (uint64_t nth = 1; nth <= 3; ++nth) {
    Disk disk;
    disk.device.inject({.nth = nth});
    EXPECT_EQ(JobClaim::next(disk.device, names()).status().code(), Code::kIoError) << nth;
  }
  Disk disk;
  const JobClaim claim = *JobClaim::next(disk.device, names());
  disk.device.inject({.kind = io::CallKind::kQuery});
  EXPECT_EQ(claim.fence().code(), Code::kIoError);
  EXPECT_TRUE(claim.fence().ok());
}

TEST(JobClaim, IsDurable) {
  Disk disk;
  ASSERT_TRUE(disk.memory.sync_directory("/").ok());
  const JobClaim claim = *JobClaim::next(disk.memory, names());
  Rng rng(1);
  disk.memory.crash(rng, io::CrashMode::kDropAll);
  EXPECT_EQ(JobClaim::next(disk.memory, names())->number(), 2u);
  EXPECT_FALSE(claim.fence().ok());
}

}  // namespace
}  // namespace swale::store::job_claim_test
