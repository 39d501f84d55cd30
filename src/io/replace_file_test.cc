// replace_file's promise: fail or crash anywhere, and the path holds the old content or the new, whole.
#include <gmock/gmock.h>

#include <string>

#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::io::replace_file_test {
namespace {

const std::string kPath = "/d/state.json";
const std::string kOld(9000, 'o');
const std::string kNew(13000, 'n');

struct Disk {
  MemoryDevice memory;
  FaultDevice faults{memory};

  Disk() {
    EXPECT_TRUE(make_directories(memory, "/d").ok());
    EXPECT_TRUE(replace_file(memory, kPath, kOld).ok());
  }
  std::string content() {
    const Result<std::string> found = read_file(memory, kPath, kMiB);
    return found.ok() ? *found : found.status().to_string();
  }
  // Old, new, or why it is neither.
  std::string_view verdict() {
    const std::string found = content();
    return found == kOld ? "old" : found == kNew ? "new" : "broken";
  }
};

uint64_t calls_of_one_replacement() {
  Disk disk;
  EXPECT_TRUE(replace_file(disk.faults, kPath, kNew).ok());
  return disk.faults.calls();
}

TEST(ReplaceFile, FailureOfAnyCallLeavesOldOrNewAndTheNextAttemptSucceeds) {
  for (const Code code : {Code::kIoError, Code::kNoSpace}) {
    uint64_t nth = 1;
    for (;; ++nth) {
      Disk disk;
      disk.faults.inject({.action = FaultAction::kTear,
                          .nth = nth,
                          .status = Status(code, Scope::kFile, "x"),
                          .position = 100});
      const Status status = replace_file(disk.faults, kPath, kNew);
      if (disk.faults.faults() == 0) {
        EXPECT_TRUE(status.ok());
        EXPECT_EQ(disk.verdict(), "new");
        break;
      }
      EXPECT_EQ(status.code(), code) << nth;
      EXPECT_NE(disk.verdict(), "broken") << nth;
      EXPECT_TRUE(replace_file(disk.faults, kPath, kNew).ok()) << nth;
      EXPECT_EQ(disk.verdict(), "new") << nth;
    }
    EXPECT_EQ(nth, calls_of_one_replacement() + 1);
  }
}

// Replaces with the power failing at the nth call, for every n and many seeds, while `canary` lies; counts
// outcomes.
struct Outcomes {
  uint64_t old_count = 0;
  uint64_t new_count = 0;
  uint64_t broken_count = 0;
  uint64_t lost_count = 0;  // old content after a success was reported
};

Outcomes crash_everywhere(CrashMode mode, std::optional<CallKind> canary) {
  Outcomes outcomes;
  for (uint64_t nth = 1; nth <= calls_of_one_replacement() + 1; ++nth) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      Disk disk;
      disk.faults.inject({.nth = nth, .from_then_on = true});
      if (canary) disk.faults.inject({.action = FaultAction::kDrop, .kind = canary, .from_then_on = true});
      const Status status = replace_file(disk.faults, kPath, kNew);
      Rng rng(seed);
      disk.memory.crash(rng, mode);
      const std::string_view verdict = disk.verdict();
      ++(verdict == "old"   ? outcomes.old_count
         : verdict == "new" ? outcomes.new_count
                            : outcomes.broken_count);
      if (status.ok() && verdict != "new") ++outcomes.lost_count;
    }
  }
  return outcomes;
}

class ReplaceFileCrash : public ::testing::TestWithParam<CrashMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, ReplaceFileCrash,
                         ::testing::Values(CrashMode::kDropAll, CrashMode::kTearPages));

TEST_P(ReplaceFileCrash, AnywhereLeavesOldOrNewWholeAndSuccessIsDurable) {
  const Outcomes outcomes = crash_everywhere(GetParam(), std::nullopt);
  EXPECT_EQ(outcomes.broken_count, 0u);
  EXPECT_EQ(outcomes.lost_count, 0u);
  EXPECT_GT(outcomes.old_count, 0u);
  EXPECT_GT(outcomes.new_count, 0u);
}

// The canaries: a disk that lies about a sync has to be caught, or the test above shows nothing.
TEST_P(ReplaceFileCrash, CanaryWithoutSyncOfTheFileIsCaught) {
  EXPECT_GT(crash_everywhere(GetParam(), CallKind::kSync).broken_count, 0u);
}
TEST_P(ReplaceFileCrash, CanaryWithoutSyncOfTheDirectoryIsCaught) {
  EXPECT_GT(crash_everywhere(GetParam(), CallKind::kSyncDirectory).lost_count, 0u);
}

TEST(MakeDirectories, SuccessIsDurable) {
  MemoryDevice memory;
  ASSERT_TRUE(make_directories(memory, "/a/b/c").ok());
  Rng rng(1);
  memory.crash(rng, CrashMode::kDropAll);
  EXPECT_TRUE(*memory.exists("/a/b/c"));
}

TEST(MakeDirectories, ANameThatAnotherProcessHasNotSyncedIsDurable) {
  MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("/a").ok());
  ASSERT_TRUE(make_directories(memory, "/a").ok());
  Rng rng(1);
  memory.crash(rng, CrashMode::kDropAll);
  EXPECT_TRUE(*memory.exists("/a"));
}

TEST(MakeDirectories, OneInAPlaceThatMayNotBeReadIsTaken) {
  MemoryDevice memory;
  ASSERT_TRUE(make_directories(memory, "/others/mine").ok());
  FaultDevice device(memory);
  device.inject({.kind = CallKind::kSyncDirectory, .path_part = "/others", .from_then_on = true});
  EXPECT_TRUE(make_directories(device, "/others/mine").ok());
  EXPECT_FALSE(make_directories(device, "/others/new").ok());
}

}  // namespace
}  // namespace swale::io::replace_file_test
