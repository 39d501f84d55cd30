// Room made ahead on disks that are small, and what happens when they are full.
#include "io/posix_room.h"

#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "io/io_queue.h"
#include "io/testing/device_test_fixture.h"

namespace swale::io::posix_room_test {
namespace {

using ::testing::HasSubstr;
using Engine = PosixOptions::Engine;

uint64_t allocated(const std::string& path) {
  struct stat attributes {};
  EXPECT_EQ(stat(path.c_str(), &attributes), 0);
  return static_cast<uint64_t>(attributes.st_blocks) * 512;
}

TEST(PosixRoom, IsInProportionToWhatIsWrittenAndCutOffByTruncate) {
  const TemporaryDirectory directory;
  PosixDevice device;
  const std::string path = directory.path() + "/a";
  const auto file = device.open(path, OpenMode::kCreate).value();
  ASSERT_TRUE(file->pwrite(0, "log").ok());
  file->reserve(1000);
  if (*file->size() == 3) GTEST_SKIP() << "this file system reserves nothing";
  constexpr uint64_t kRounding = 64 * kKiB;
  EXPECT_LE(*file->size(), PosixRooms::kStepBytesMin + kRounding);
  EXPECT_EQ(allocated(path), *file->size());
  for (const uint64_t end : {2 * kMiB, 64 * kMiB + 1, 300 * kMiB}) {
    file->reserve(end);
    EXPECT_GE(*file->size(), end);
    EXPECT_LE(*file->size(), end + std::max(PosixRooms::kStepBytesMin, end / 4) + kRounding);
  }
  ASSERT_TRUE(file->truncate(3).ok());
  EXPECT_LT(allocated(path), kMiB);
  EXPECT_EQ(*read_file(device, path, 10), "log");
  file->reserve(4);  // remembers that the room is gone
  EXPECT_GT(*file->size(), 4u);
}

TEST(PosixRoom, KeepsBytesThatWereThereBeforeTheFirstAnnouncement) {
  const TemporaryDirectory directory;
  PosixDevice device;
  const std::string path = directory.path() + "/a";
  ASSERT_TRUE(device.open(path, OpenMode::kCreate).value()->pwrite(3 * kMiB, "old").ok());
  const auto file = device.open(path, OpenMode::kReadWrite).value();
  file->reserve(kMiB);
  EXPECT_FALSE(file->give_back());
  file->reserve(4 * kMiB);
  if (*file->size() == 3 * kMiB + 3) GTEST_SKIP() << "this file system reserves nothing";
  EXPECT_TRUE(file->give_back());
  EXPECT_EQ(*file->size(), 4 * kMiB);
  std::string out(3, '.');
  EXPECT_TRUE(read_exactly(*file, 3 * kMiB, out).ok());
  EXPECT_EQ(out, "old");
}

struct Disk {
  std::string name;
  std::string file_system;
  Engine engine;
};

void PrintTo(const Disk& disk, std::ostream* out) { *out << disk.name; }

// A file system of 96 MiB of its own.
class SmallDisk : public ::testing::TestWithParam<Disk> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root mounts";
    root_ = directory_.path() + "/disk";
    ASSERT_EQ(mkdir(root_.c_str(), 0755), 0);
    if (GetParam().file_system == "tmpfs") {
      mounted_ = mount("swale-test", root_.c_str(), "tmpfs", 0, "size=96m") == 0;
    } else {
      const std::string image = directory_.path() + "/image";
      const std::string command = "truncate -s 96M " + image + " && mkfs.ext4 -q " + image +
                                  " && mount -o loop " + image + " " + root_ + " >/dev/null 2>&1";
      mounted_ = std::system(command.c_str()) == 0;
    }
    if (!mounted_) GTEST_SKIP() << "mounting " << GetParam().file_system << " is not possible here";
    if (!device_.make_queue(1).ok()) GTEST_SKIP() << "no such queue here";
  }
  void TearDown() override {
    files_.clear();
    if (!mounted_) return;
    EXPECT_EQ(umount2(root_.c_str(), MNT_DETACH), 0);
  }

  File& make(const std::string& name) {
    files_.push_back(device_.open(root_ + "/" + name, OpenMode::kCreate).value());
    files_.back()->prefer_direct();
    return *files_.back();
  }
  Status write(File& file, uint64_t offset, uint64_t bytes) {
    const auto queue = device_.make_queue(4).value();
    queue->submit(std::vector<Operation>{{Operation::Kind::kWrite, &file, offset, {}, {memory_, bytes}, 0}});
    std::vector<Completion> out;
    while (out.empty()) queue->wait(1, &out);
    return out[0].status;
  }
  // Nothing is left after it.
  void fill(File& ballast) {
    uint64_t end = 0;
    for (uint64_t piece = kPieceBytes; piece >= 4 * kKiB; piece /= 2)
      while (ballast.pwrite(end, Bytes(memory_, piece)).ok()) end += piece;
  }

  static constexpr uint64_t kPieceBytes = 256 * kKiB;
  alignas(4096) static inline char memory_[kPieceBytes] = {1};
  const TemporaryDirectory directory_;
  std::string root_;
  bool mounted_ = false;
  PosixDevice device_{{.engine = GetParam().engine}};
  std::vector<std::unique_ptr<File>> files_;
};

INSTANTIATE_TEST_SUITE_P(Disks, SmallDisk,
                         ::testing::Values(Disk{"TmpfsRing", "tmpfs", Engine::kUring},
                                           Disk{"TmpfsThreads", "tmpfs", Engine::kThreads},
                                           Disk{"Ext4Ring", "ext4", Engine::kUring},
                                           Disk{"Ext4Threads", "ext4", Engine::kThreads}),
                         [](const auto& disk) { return disk.param.name; });

// Each rank is a device of its own, so that no rank can give back what another one holds.
TEST_P(SmallDisk, IsFilledByFourRanksNearlyToItsEnd) {
  const uint64_t free = *[&] {
    File& ballast = make("ballast");
    fill(ballast);
    auto size = ballast.size();
    EXPECT_TRUE(ballast.truncate(0).ok());
    return size;
  }();
  std::vector<std::unique_ptr<File>> logs;
  for (int i = 0; i < 4; ++i) {
    logs.push_back(PosixDevice({.engine = GetParam().engine})
                       .open(root_ + "/" + std::to_string(i), OpenMode::kCreate)
                       .value());
    logs.back()->prefer_direct();
  }
  uint64_t written = 0;
  Status status;
  for (uint64_t offset = 0; status.ok(); offset += kPieceBytes) {
    for (const auto& log : logs) {
      log->reserve(offset + kPieceBytes);
      status = write(*log, offset, kPieceBytes);
      if (!status.ok()) break;
      written += kPieceBytes;
    }
  }
  EXPECT_EQ(status.code(), Code::kNoSpace);
  EXPECT_THAT(std::string(status.message()), HasSubstr("free space"));
  EXPECT_GE(written, free / 10 * 9);
  RecordProperty("free", std::to_string(free));
  RecordProperty("written", std::to_string(written));
}

TEST_P(SmallDisk, GetsRoomBackBeforeAWriteFindsNoSpace) {
  File& data = make("data");
  File& index = make("index");
  File& ballast = make("ballast");
  data.reserve(8 * kMiB);  // what is announced stays reserved
  fill(ballast);
  // The room in `data` is what the disk has left: the ballast has taken back what was beyond the
  // announcement.
  EXPECT_EQ(*data.size(), 8 * kMiB);
  const Status status = write(index, 0, kPieceBytes);
  EXPECT_EQ(status.code(), Code::kNoSpace);
  EXPECT_TRUE(write(data, 0, kPieceBytes).ok());
  EXPECT_TRUE(write(data, 8 * kMiB - kPieceBytes, kPieceBytes).ok());
}

TEST_P(SmallDisk, GivesRoomOfOneFileToAnother) {
  File& data = make("data");
  File& index = make("index");
  PosixDevice other({.engine = GetParam().engine});
  const auto ballast = other.open(root_ + "/ballast", OpenMode::kCreate).value();
  data.reserve(4 * kMiB);
  const uint64_t room = *data.size() - 4 * kMiB;
  if (room < 64 * kKiB) GTEST_SKIP() << "this file system reserves nothing";
  fill(*ballast);
  EXPECT_GT(*data.size(), 4 * kMiB);
  const Status status = write(index, 0, 64 * kKiB);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(*data.size(), 4 * kMiB);
}

}  // namespace
}  // namespace swale::io::posix_room_test
