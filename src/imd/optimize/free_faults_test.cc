// Frees that end in the middle: answers are those of before, always, and the next call ends what was begun.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "imd/check/verify.h"
#include "imd/format/cluster_list.h"
#include "imd/format/generation.h"
#include "imd/testing/test_free.h"
#include "imd/write/writer_lock.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::free_faults_test {
namespace {

using test::ask_all_of;
using test::ask_everything;
using test::copy_tree;
using test::Everything;
using test::free_logs;
using test::kOptimized;
using test::small_pass;
using test::write_job;

constexpr uint64_t kKeys = 6;

// The holder of these locks is this process, which would be taken for alive.
void forget_locks(io::Device& device) {
  static_cast<void>(device.remove(lock_path(kOptimized)));
  static_cast<void>(device.remove(clusters_folder(kOptimized) + "/optimize.lock"));
}

bool has_data(io::Device& device, uint32_t job) {
  return *device.exists(data_log_path(kOptimized, {job, PartitionNumber(0)}));
}

// A directory of two jobs, all of it in clusters: of the second one, `last` is to be copied.
class Frees : public testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);
    write_job(base_, {.ranks = 2, .epochs = 2, .records = 30, .keys = kKeys}, 1);
    write_job(base_, {.epochs = 2, .records = 30, .keys = kKeys}, 2);
    ASSERT_TRUE(optimize_directory(base_, kOptimized, small_pass()).ok());
    before_ = ask_all_of(base_, kKeys);
    ASSERT_EQ(before_.problem, "");
  }
  void TearDown() override { set_log_level(LogLevel::kWarn); }

  // Each is right, or says why not.
  void expect_right(io::Device& device, const std::string& when) {
    const Everything found = ask_all_of(device, kKeys);
    EXPECT_TRUE(found == before_) << when << ": " << found.problem;
  }

  // A free whose n-th call fails, and all after it: as if it were killed there. Then perhaps the power fails.
  // Returns whether it came to its end.
  bool end_at(uint64_t nth, const io::CrashMode* crash) {
    io::MemoryDevice device;
    copy_tree(base_, kOptimized, device);
    io::FaultDevice faulty(device);
    faulty.inject({.nth = nth, .from_then_on = true});
    const bool ended = free_logs(faulty).ok() && faulty.faults() == 0;
    if (crash != nullptr) device.crash(rng_, *crash);
    forget_locks(device);
    expect_right(device, fmt::format("call {}", nth));
    const auto next = free_logs(device);
    EXPECT_TRUE(next.ok()) << "call " << nth << ": " << next.status().to_string();
    expect_right(device, fmt::format("after the next, call {}", nth));
    EXPECT_FALSE(has_data(device, 1) || has_data(device, 2)) << "call " << nth;
    const uint32_t own = load_manifest(device, kOptimized)->generation;
    for (uint32_t job = 3; job <= own + 1; ++job) EXPECT_EQ(has_data(device, job), job == own) << nth;
    return ended;
  }

  uint64_t end_everywhere(const io::CrashMode* crash) {
    for (uint64_t nth = 1; nth < 5'000; ++nth) {
      if (end_at(nth, crash)) return nth;
      if (HasFailure()) return 0;
    }
    ADD_FAILURE() << "no call came to its end";
    return 0;
  }

  io::MemoryDevice base_;
  Everything before_;
  Rng rng_{7};
};

TEST_F(Frees, AKillAtAnyCallChangesNoAnswer) {
  const uint64_t calls = end_everywhere(nullptr);
  fmt::print("killed at {} calls\n", calls);
  EXPECT_GT(calls, 60u);
}

TEST_F(Frees, APowerCutAtAnyCallChangesNoAnswer) {
  for (const io::CrashMode mode : {io::CrashMode::kDropAll, io::CrashMode::kReorder}) {
    const uint64_t calls = end_everywhere(&mode);
    fmt::print("power cut at {} calls\n", calls);
    EXPECT_GT(calls, 60u);
  }
}

// The canary: a device that says that the copies are durable when they are not. That must be told.
TEST_F(Frees, ALyingDeviceIsNoticed) {
  io::FaultDevice lying(base_);
  lying.inject({.action = io::FaultAction::kDrop,
                .kind = io::CallKind::kSync,
                .path_part = ".j0003.data",
                .from_then_on = true});
  ASSERT_TRUE(free_logs(lying).ok());
  base_.crash(rng_, io::CrashMode::kDropAll);
  forget_locks(base_);
  EXPECT_NE(ask_all_of(base_, kKeys).problem, "");
  const auto reader = Reader::open(base_, kOptimized, {});
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE(verify_directory(**reader, 10).problems.empty());
}

TEST_F(Frees, AFullDiskChangesNothingAndGivesItsSpaceBack) {
  io::FaultDevice faulty(base_);
  uint64_t tried = 0;
  for (uint64_t nth = 1; nth < 1'000; ++nth, ++tried) {
    faulty.clear();
    faulty.inject({.kind = io::CallKind::kWrite,
                   .path_part = ".j0",  // of the copies
                   .nth = nth,
                   .from_then_on = true,
                   .status = error(Code::kNoSpace, Scope::kFile, "no space")});
    const auto report = free_logs(faulty);
    if (faulty.faults() == 0) break;
    EXPECT_EQ(report.status().code(), Code::kNoSpace);
    expect_right(base_, fmt::format("write {}", nth));
    EXPECT_TRUE(has_data(base_, 1) && has_data(base_, 2));
    for (uint32_t job = 3; job < 20; ++job) EXPECT_FALSE(has_data(base_, job));
  }
  fmt::print("full at {} writes\n", tried);
  EXPECT_GE(tried, 2u);
}

// Before each call that changes something two readers ask that were open before: one that has its files open
// already, and one that has asked nothing yet.
TEST_F(Frees, AReaderBesideItIsRightOrToldToRefresh) {
  constexpr size_t kIdle = 200;
  const auto used = Reader::open(base_, kOptimized, {}).value();
  std::vector<std::unique_ptr<Reader>> idle;
  for (size_t i = 0; i < kIdle; ++i) idle.push_back(Reader::open(base_, kOptimized, {}).value());
  uint64_t asked = 0;
  uint64_t aborted = 0;
  const auto ask = [&](Reader& reader, const std::string& when) {
    const Everything found = ask_everything(reader, kKeys);
    ++asked;
    if (found == before_) return;
    ++aborted;
    EXPECT_EQ(found.code, Code::kAborted) << when << ": " << found.problem;
    EXPECT_TRUE(reader.refresh().ok());
    EXPECT_TRUE(ask_everything(reader, kKeys) == before_) << when;
  };
  const auto ask_both = [&](const std::string& when) {
    ask(*used, when);
    if (idle.empty()) return;
    ask(*idle.back(), when);
    idle.pop_back();
  };
  io::FaultDevice device(base_);
  device.set_hook([&](const io::Call& call) {
    const bool reads = call.kind == io::CallKind::kRead || call.kind == io::CallKind::kQuery ||
                       call.kind == io::CallKind::kOpen;
    if (!reads && call.path.find("swale.lock") == std::string::npos) ask_both(call.path);
    return Status();
  });
  ASSERT_TRUE(free_logs(device).ok());
  device.clear();
  ask_both("the end");
  fmt::print("asked {} times, told to refresh {} times\n", asked, aborted);
  EXPECT_GT(asked, 60u);
  EXPECT_GT(aborted, 2u);  // the canary: logs were gone
}

}  // namespace
}  // namespace swale::imd::free_faults_test
