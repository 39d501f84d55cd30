#include "io/memory_device.h"

#include <gmock/gmock.h>

#include <set>
#include <string>
#include <vector>

namespace swale::io::memory_device_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kSeeds = 300;

void write(Device& device, const std::string& path, Bytes content) {
  const auto file = device.open(path, OpenMode::kOpenOrCreate).value();
  ASSERT_TRUE(file->pwrite(0, content).ok());
}
void write_durably(Device& device, const std::string& path, Bytes content) {
  write(device, path, content);
  ASSERT_TRUE(device.open(path, OpenMode::kRead).value()->sync().ok());
  ASSERT_TRUE(device.sync_directory(parent_directory(path)).ok());
}
std::string read(Device& device, const std::string& path) {
  const Result<std::string> content = read_file(device, path, kMiB);
  return content.ok() ? *content : std::string(code_name(content.status().code()));
}
void crash(MemoryDevice& device, uint64_t seed = 1, CrashMode mode = CrashMode::kDropAll) {
  Rng rng(seed);
  device.crash(rng, mode);
}

class MemoryDeviceCrash : public ::testing::TestWithParam<CrashMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, MemoryDeviceCrash,
                         ::testing::Values(CrashMode::kDropAll, CrashMode::kTearPages, CrashMode::kReorder));

TEST_P(MemoryDeviceCrash, KeepsWhatWasSynced) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    MemoryDevice device;
    ASSERT_TRUE(make_directories(device, "/d/e").ok());
    const std::string content(3 * MemoryDevice::kPageBytes + 5, 'a');
    write_durably(device, "/d/e/a", content);
    write_durably(device, "/d/e/b", content);
    ASSERT_TRUE(device.remove("/d/e/b").ok());
    ASSERT_TRUE(device.sync_directory("/d/e").ok());
    crash(device, seed, GetParam());
    EXPECT_EQ(read(device, "/d/e/a"), content);
    EXPECT_THAT(*device.list("/d/e"), ElementsAre("a"));
  }
}

TEST_P(MemoryDeviceCrash, HandlesFromBeforeFail) {
  MemoryDevice device;
  write_durably(device, "/a", "content");
  const auto file = device.open("/a", OpenMode::kReadWrite).value();
  crash(device, 1, GetParam());
  std::string out(7, '.');
  EXPECT_EQ(file->pread(0, out).status().code(), Code::kIoError);
  EXPECT_EQ(file->pwrite(0, "x").code(), Code::kIoError);
  EXPECT_EQ(file->sync().code(), Code::kIoError);
  EXPECT_EQ(file->truncate(0).code(), Code::kIoError);
  EXPECT_EQ(file->size().status().code(), Code::kIoError);
  EXPECT_EQ(read(device, "/a"), "content");
}

TEST_P(MemoryDeviceCrash, WhatSurvivedIsDurable) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    MemoryDevice device;
    write_durably(device, "/a", std::string(20000, 'a'));
    write(device, "/a", std::string(30000, 'b'));
    write(device, "/b", "b");
    crash(device, seed, GetParam());
    const std::string a = read(device, "/a");
    const std::string b = read(device, "/b");
    crash(device, seed + 1, CrashMode::kDropAll);
    EXPECT_EQ(read(device, "/a"), a);
    EXPECT_EQ(read(device, "/b"), b);
  }
}

TEST(MemoryDevice, CrashDropsUnsyncedDataAndSize) {
  MemoryDevice device;
  write_durably(device, "/a", "old content");
  write(device, "/a", "new");
  crash(device);
  EXPECT_EQ(read(device, "/a"), "old content");
  write(device, "/a", std::string(10000, 'x'));
  crash(device);
  EXPECT_EQ(read(device, "/a"), "old content");
  ASSERT_TRUE(device.open("/a", OpenMode::kReadWrite).value()->truncate(3).ok());
  EXPECT_EQ(read(device, "/a"), "old");
  crash(device);
  EXPECT_EQ(read(device, "/a"), "old content");
}

TEST(MemoryDevice, CrashDropsNamesThatWereNotSynced) {
  MemoryDevice device;
  write(device, "/a", "content");
  ASSERT_TRUE(device.open("/a", OpenMode::kRead).value()->sync().ok());
  crash(device);
  EXPECT_EQ(read(device, "/a"), "not found");  // its data was synced, its name was not

  write_durably(device, "/a", "content");
  ASSERT_TRUE(device.rename("/a", "/b").ok());
  crash(device);
  EXPECT_THAT(*device.list("/"), ElementsAre("a"));
  ASSERT_TRUE(device.remove("/a").ok());
  crash(device);
  EXPECT_EQ(read(device, "/a"), "content");
}

TEST(MemoryDevice, NameWithoutDataIsAnEmptyFile) {
  MemoryDevice device;
  write(device, "/a", "content");
  ASSERT_TRUE(device.sync_directory("/").ok());
  crash(device);
  EXPECT_EQ(read(device, "/a"), "");
}

TEST(MemoryDevice, FileInADirectoryWhoseNameWasNotSyncedIsGone) {
  MemoryDevice device;
  ASSERT_TRUE(device.make_directory("/d").ok());
  write_durably(device, "/d/a", "content");
  crash(device);
  EXPECT_THAT(*device.list("/"), IsEmpty());
}

TEST(MemoryDevice, TornCrashGivesEveryMixOfPagesAndSometimesATornOne) {
  constexpr size_t kPage = MemoryDevice::kPageBytes;
  std::set<std::string> mixes;
  uint64_t torn = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryDevice device;
    write_durably(device, "/a", std::string(3 * kPage, 'a'));
    write(device, "/a", std::string(2 * kPage, 'b'));  // the third page is not touched
    crash(device, seed, CrashMode::kTearPages);
    const std::string content = read(device, "/a");
    ASSERT_EQ(content.size(), 3 * kPage);
    std::string mix;
    for (size_t page = 0; page < 3; ++page) {
      const Bytes bytes = Bytes(content).substr(page * kPage, kPage);
      const size_t new_bytes = std::min(bytes.find('a'), kPage);
      EXPECT_EQ(bytes, std::string(new_bytes, 'b') + std::string(kPage - new_bytes, 'a'));
      EXPECT_EQ(new_bytes % MemoryDevice::kSectorBytes, 0u);
      if (new_bytes % kPage != 0) ++torn;
      mix += new_bytes == 0 ? 'a' : new_bytes == kPage ? 'b' : '|';
    }
    EXPECT_EQ(mix[2], 'a');
    mixes.insert(mix);
  }
  for (const char* mix : {"aaa", "aba", "baa", "bba"}) EXPECT_EQ(mixes.count(mix), 1u) << mix;
  EXPECT_GT(torn, 0u);
}

TEST(MemoryDevice, TornCrashOfAGrowingFileHasEverySizeButOnlyWrittenBytesOrZeros) {
  constexpr size_t kPage = MemoryDevice::kPageBytes;
  std::set<size_t> sizes;
  bool hole = false;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryDevice device;
    write_durably(device, "/a", std::string(100, 'a'));
    const auto file = device.open("/a", OpenMode::kReadWrite).value();
    ASSERT_TRUE(file->pwrite(100, std::string(3 * kPage, 'b')).ok());
    crash(device, seed, CrashMode::kTearPages);
    const std::string content = read(device, "/a");
    sizes.insert(content.size());
    ASSERT_GE(content.size(), 100u);
    EXPECT_EQ(content.substr(0, 100), std::string(100, 'a'));
    const Bytes rest = Bytes(content).substr(100);
    EXPECT_EQ(rest.find_first_not_of(Bytes("b\0", 2)), Bytes::npos);
    hole |= rest.find('\0') != Bytes::npos;
  }
  EXPECT_THAT(sizes, ElementsAre(100u, kPage, 2 * kPage, 3 * kPage, 100 + 3 * kPage));
  EXPECT_TRUE(hole);
}

TEST(MemoryDevice, TornCrashKeepsAPrefixOfTheOperationsOnADirectory) {
  std::set<std::vector<std::string>> outcomes;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryDevice device;
    write_durably(device, "/a", "a");
    ASSERT_TRUE(device.rename("/a", "/b").ok());
    write(device, "/c", "c");
    ASSERT_TRUE(device.remove("/b").ok());
    crash(device, seed, CrashMode::kTearPages);
    outcomes.insert(*device.list("/"));
  }
  EXPECT_THAT(outcomes,
              ElementsAre(ElementsAre("a"), ElementsAre("b"), ElementsAre("b", "c"), ElementsAre("c")));
}

TEST(MemoryDevice, TornCrashOfARenameBetweenDirectoriesHasAllFourOutcomes) {
  std::set<std::pair<bool, bool>> outcomes;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryDevice device;
    ASSERT_TRUE(make_directories(device, "/d").ok());
    ASSERT_TRUE(make_directories(device, "/e").ok());
    write_durably(device, "/d/a", "a");
    ASSERT_TRUE(device.rename("/d/a", "/e/a").ok());
    crash(device, seed, CrashMode::kTearPages);
    outcomes.insert({*device.exists("/d/a"), *device.exists("/e/a")});
  }
  EXPECT_EQ(outcomes.size(), 4u);
}

TEST(MemoryDevice, ReorderingCrashKeepsAnySubsetOfWritesWhole) {
  std::set<std::string> outcomes;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryDevice device;
    write_durably(device, "/a", "......");
    const auto file = device.open("/a", OpenMode::kReadWrite).value();
    ASSERT_TRUE(file->pwrite(0, "11").ok());
    ASSERT_TRUE(file->pwrite(2, "22").ok());
    ASSERT_TRUE(file->pwrite(4, "33").ok());
    crash(device, seed, CrashMode::kReorder);
    outcomes.insert(read(device, "/a"));
  }
  EXPECT_THAT(outcomes, ::testing::UnorderedElementsAre("......", "11....", "..22..", "....33", "1122..",
                                                        "11..33", "..2233", "112233"));
}

TEST(MemoryDevice, ReorderingCrashMayKeepALaterNameAndLoseAnEarlierOne) {
  std::set<std::vector<std::string>> outcomes;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryDevice device;
    write(device, "/a", "1");
    write(device, "/b", "2");
    crash(device, seed, CrashMode::kReorder);
    outcomes.insert(*device.list("/"));
  }
  EXPECT_THAT(outcomes, ::testing::UnorderedElementsAre(
                            std::vector<std::string>{}, std::vector<std::string>{"a"},
                            std::vector<std::string>{"b"}, std::vector<std::string>{"a", "b"}));
}

TEST(MemoryDevice, SameSeedSameCrash) {
  std::string content[2];
  for (std::string& result : content) {
    MemoryDevice device;
    write_durably(device, "/a", std::string(50000, 'a'));
    write(device, "/a", std::string(50000, 'b'));
    crash(device, 42, CrashMode::kTearPages);
    result = read(device, "/a");
  }
  EXPECT_EQ(content[0], content[1]);
}

TEST(MemoryDevice, WildOffsetIsAnError) {
  MemoryDevice device;
  const auto file = device.open("/a", OpenMode::kCreate).value();
  EXPECT_EQ(file->pwrite(UINT64_MAX, "xx").code(), Code::kIoError);
  EXPECT_EQ(file->truncate(UINT64_MAX).code(), Code::kIoError);
  EXPECT_EQ(*file->size(), 0u);
}

}  // namespace
}  // namespace swale::io::memory_device_test
