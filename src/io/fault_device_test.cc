#include "io/fault_device.h"

#include <gmock/gmock.h>

#include "io/memory_device.h"

namespace swale::io::fault_device_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FaultDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<File> open(const std::string& path) {
    return device_.open(path, OpenMode::kOpenOrCreate).value();
  }
  std::string read(const std::string& path) { return read_file(memory_, path, kMiB).value(); }

  MemoryDevice memory_;
  FaultDevice device_{memory_};
};

TEST_F(FaultDeviceTest, CountsCallsByKind) {
  const auto file = open("/a");
  std::string out(1, '.');
  ReadRequest requests[] = {{0, out, 0, {}}, {0, out, 0, {}}};
  EXPECT_TRUE(file->pwrite(0, "x").ok());
  EXPECT_TRUE(file->pwrite(0, "y").ok());
  EXPECT_TRUE(file->pread(0, out).ok());
  file->read_many(requests);
  EXPECT_TRUE(file->sync().ok());
  EXPECT_TRUE(file->truncate(0).ok());
  EXPECT_TRUE(file->size().ok());
  EXPECT_TRUE(device_.rename("/a", "/b").ok());
  EXPECT_TRUE(device_.remove("/b").ok());
  EXPECT_TRUE(device_.make_directory("/d").ok());
  EXPECT_TRUE(device_.sync_directory("/").ok());
  EXPECT_TRUE(device_.list("/").ok());
  EXPECT_TRUE(device_.exists("/").ok());
  std::vector<uint64_t> counts;
  for (size_t kind = 0; kind < kCallKinds; ++kind)
    counts.push_back(device_.calls(static_cast<CallKind>(kind)));
  EXPECT_THAT(counts, ElementsAre(1, 3, 2, 1, 1, 1, 1, 1, 1, 3));
  EXPECT_EQ(device_.calls(), 15u);
  EXPECT_EQ(device_.faults(), 0u);
  device_.clear();
  EXPECT_EQ(device_.calls(), 0u);
}

TEST_F(FaultDeviceTest, FailsTheNthCallOfAKindOnce) {
  device_.inject({.kind = CallKind::kWrite, .nth = 2, .status = error(Code::kNoSpace, Scope::kFile, "full")});
  const auto file = open("/a");
  EXPECT_TRUE(file->pwrite(0, "1").ok());
  EXPECT_TRUE(file->sync().ok());
  const Status failed = file->pwrite(1, "2");
  EXPECT_EQ(failed.code(), Code::kNoSpace);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("/a: write at offset 1"));
  EXPECT_TRUE(file->pwrite(1, "3").ok());
  EXPECT_EQ(read("/a"), "13");
  EXPECT_EQ(device_.faults(), 1u);
}

TEST_F(FaultDeviceTest, FailsEveryCallFromTheNthOn) {
  device_.inject({.nth = 3, .from_then_on = true});
  const auto file = open("/a");
  EXPECT_TRUE(file->pwrite(0, "1").ok());
  EXPECT_EQ(file->sync().code(), Code::kIoError);
  std::string out(1, '.');
  EXPECT_EQ(file->pread(0, out).status().code(), Code::kIoError);
  EXPECT_EQ(file->size().status().code(), Code::kIoError);
  EXPECT_EQ(device_.rename("/a", "/b").code(), Code::kIoError);
  EXPECT_EQ(device_.open("/a", OpenMode::kRead).status().code(), Code::kIoError);
  EXPECT_THAT(*memory_.list("/"), ElementsAre("a"));
}

TEST_F(FaultDeviceTest, PathSelectsTheVictim) {
  device_.inject({.kind = CallKind::kWrite, .path_part = ".index"});
  EXPECT_TRUE(open("/part.data")->pwrite(0, "x").ok());
  EXPECT_FALSE(open("/part.index")->pwrite(0, "x").ok());
}

TEST_F(FaultDeviceTest, TornWriteLeavesAPrefix) {
  device_.inject({.action = FaultAction::kTear, .kind = CallKind::kWrite, .position = 3});
  EXPECT_EQ(open("/a")->pwrite(0, "content").code(), Code::kIoError);
  EXPECT_EQ(read("/a"), "con");
}

TEST_F(FaultDeviceTest, FlippedReadDiffersInOneBitAndTheDiskDoesNot) {
  const auto file = open("/a");
  ASSERT_TRUE(file->pwrite(0, "abc").ok());
  device_.inject({.action = FaultAction::kFlip, .kind = CallKind::kRead, .nth = 2, .position = 8 + 1});
  std::string out(3, '.');
  EXPECT_TRUE(file->pread(0, out).ok());
  EXPECT_EQ(out, "abc");
  EXPECT_TRUE(file->pread(0, out).ok());
  EXPECT_EQ(out, "a`c");  // 'b' ^ 2
  EXPECT_TRUE(file->pread(0, out).ok());
  EXPECT_EQ(out, "abc");
}

TEST_F(FaultDeviceTest, DroppedCallsLie) {
  const auto file = open("/a");
  device_.inject({.action = FaultAction::kDrop, .kind = CallKind::kWrite});
  EXPECT_TRUE(file->pwrite(0, "lost").ok());
  EXPECT_EQ(read("/a"), "");
  EXPECT_TRUE(file->pwrite(0, "kept").ok());
  device_.inject({.action = FaultAction::kDrop, .kind = CallKind::kSync});
  EXPECT_TRUE(file->sync().ok());
  EXPECT_TRUE(memory_.sync_directory("/").ok());
  Rng rng(1);
  memory_.crash(rng, CrashMode::kDropAll);
  EXPECT_EQ(read("/a"), "");
}

TEST_F(FaultDeviceTest, HookSeesEveryCallAndMayAnswerIt) {
  std::vector<std::string> seen;
  device_.set_hook([&](const Call& call) -> Status {
    seen.push_back(fmt::format("{} {} {} {}", call_kind_name(call.kind), call.path, call.offset, call.bytes));
    if (call.kind == CallKind::kSync) return error(Code::kIoError, Scope::kFile, "hook says no");
    return {};
  });
  const auto file = open("/a");
  EXPECT_TRUE(file->pwrite(7, "xyz").ok());
  EXPECT_EQ(file->sync().message(), "hook says no");
  EXPECT_THAT(seen, ElementsAre("open /a 0 0", "write /a 7 3", "sync /a 0 0"));
}

TEST_F(FaultDeviceTest, HookMayCrashTheDeviceBelow) {
  device_.set_hook([&](const Call& call) -> Status {
    Rng rng(1);
    if (call.kind == CallKind::kSync) memory_.crash(rng, CrashMode::kDropAll);
    return {};
  });
  const auto file = open("/a");
  EXPECT_EQ(file->sync().code(), Code::kIoError);
  EXPECT_EQ(memory_.exists("/a").value(), false);
}

}  // namespace
}  // namespace swale::io::fault_device_test
