// Each call on the destination fails once; disks that lie; and canaries: without the read-back, a lie is not
// noticed.
#include <gmock/gmock.h>

#include "stage/testing/stage_rig.h"

namespace swale::stage::stage_faults_test {
namespace {

using testing::HasSubstr;

class StageFaultsTest : public StageRig {
 protected:
  void fresh() {
    std::filesystem::remove_all(to());
    std::filesystem::create_directories(to() + "/d");
    put(to() + "/a", kOld);
    put(to() + "/d/large", kOld);
  }
  static constexpr char kOld[] = "old";
};

TEST_F(StageFaultsTest, EachCallThatFailsIsToldAndLeavesNothing) {
  make_small_tree();
  fresh();
  ASSERT_EQ(run(options(), [](io::FaultDevice&) {}).state, StageState::kDone);
  const uint64_t calls = calls_;
  uint64_t told = 0;
  for (const Code code : {Code::kIoError, Code::kNoSpace}) {
    for (uint64_t nth = 1; nth <= calls; ++nth) {
      fresh();
      const StageReport report = run(options(), [&](io::FaultDevice& device) {
        device.inject({.nth = nth, .status = error(code, Scope::kFile, "injected")});
      });
      if (report.state == StageState::kDone) {
        EXPECT_TRUE(listing(from()) == listing(to())) << "call " << nth;
      } else {
        EXPECT_THAT(failures_of(report), HasSubstr("injected")) << "call " << nth;
      }
      told += report.state == StageState::kFailed ? 1 : 0;
      expect_old_or_new(kOld);
      EXPECT_EQ(run(options()).state, StageState::kDone);
      expect_staged();
      if (HasFailure()) return;
    }
  }
  printf("points: %llu calls, each with 2 errors, %llu told\n", static_cast<unsigned long long>(calls),
         static_cast<unsigned long long>(told));
  EXPECT_GT(told, calls);
}

TEST_F(StageFaultsTest, AFullDestinationIsToldAndItsSpaceIsFree) {
  make_small_tree();
  const StageReport report = run(options(), [](io::FaultDevice& device) {
    device.inject({.kind = io::CallKind::kWrite,
                   .nth = 5,
                   .from_then_on = true,
                   .status = errno_status(ENOSPC, "the destination")});
  });
  EXPECT_EQ(report.state, StageState::kFailed);
  EXPECT_THAT(failures_of(report), HasSubstr("No space left"));
  for (const auto& each : std::filesystem::recursive_directory_iterator(to())) {
    EXPECT_FALSE(each.path().string().ends_with(".swale-part")) << each.path();
  }
  EXPECT_EQ(run(options()).state, StageState::kDone);
  expect_staged();
}

// A disk that answers, and keeps other bytes: damage comes after the writes of a part's first piece.
Status damage(const io::Call& call, std::atomic<bool>* done) {
  const bool over =
      (call.kind == io::CallKind::kRead && call.offset == 0) || call.kind == io::CallKind::kRename;
  if (!over || !call.path.ends_with(".swale-part") || done->exchange(true)) return {};
  const int fd = ::open(call.path.c_str(), O_RDWR | O_CLOEXEC);
  char byte = 0;
  EXPECT_EQ(::pread(fd, &byte, 1, 90), 1);
  byte = static_cast<char>(byte ^ 4);
  EXPECT_EQ(::pwrite(fd, &byte, 1, 90), 1);
  ::close(fd);
  return {};
}

TEST_F(StageFaultsTest, AFlippedBitIsSeenByTheReadBackAndByNothingElse) {
  for (const size_t size : {size_t{97}, size_t{3 * kPiece}}) {
    for (const ReadBack read_back : {ReadBack::kYes, ReadBack::kNo}) {
      put(from() + "/file", bytes_of(size, size));
      StageOptions chosen = options();
      chosen.read_back = read_back;
      std::atomic<bool> damaged{false};
      const StageReport report = run(chosen, [&](io::FaultDevice& device) {
        device.set_hook([&](const io::Call& call) { return damage(call, &damaged); });
      });
      EXPECT_TRUE(damaged);
      if (read_back == ReadBack::kYes) {
        EXPECT_EQ(report.state, StageState::kFailed);
        EXPECT_THAT(failures_of(report), HasSubstr("read back are not those that were written"));
        EXPECT_FALSE(std::filesystem::exists(to() + "/file"));
      } else {  // the canary
        EXPECT_EQ(report.state, StageState::kDone);
        EXPECT_NE(get(to() + "/file"), get(from() + "/file"));
        EXPECT_THAT(get(root_ + "/status"), HasSubstr("\"read_back\":false"));
      }
      std::filesystem::remove_all(to());
    }
  }
}

TEST_F(StageFaultsTest, AWriteThatWasNeverDoneIsSeenByTheReadBack) {
  make_small_tree();
  uint64_t writes = 0;
  for (uint64_t nth = 1; nth <= 16; ++nth) {
    const StageReport report = run(options(), [&](io::FaultDevice& device) {
      device.inject({.action = io::FaultAction::kDrop, .kind = io::CallKind::kWrite, .nth = nth});
    });
    const bool dropped = report.state == StageState::kFailed;
    if (dropped) {
      EXPECT_THAT(failures_of(report), HasSubstr("read")) << nth;
    }
    writes += dropped ? 1 : 0;
    if (!dropped) expect_staged();
    std::filesystem::remove_all(to());
  }
  EXPECT_EQ(writes, 11u);  // of 16 KiB: nine of the large file, two others
  printf("points: %llu writes dropped\n", static_cast<unsigned long long>(writes));
}

}  // namespace
}  // namespace swale::stage::stage_faults_test
