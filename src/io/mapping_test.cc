#include "io/mapping.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "io/fault_device.h"
#include "io/memory_device.h"
#include "io/posix_device.h"

namespace swale::io::mapping_test {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kRegion = Mapping::kRegionBytes;

// A file of holes: what is written is in memory, what is not is nowhere.
class MappingTest : public testing::Test {
 protected:
  MappingTest() : path_(testing::TempDir() + fmt::format("swale-mapping-{}", getpid())) {
    file_ = device_.open(path_, OpenMode::kOpenOrCreate).value();
    EXPECT_TRUE(file_->truncate(4 * kRegion).ok());
  }
  ~MappingTest() override { EXPECT_TRUE(device_.remove(path_).ok()); }

  void write(uint64_t offset, uint64_t bytes) {
    ASSERT_TRUE(file_->pwrite(offset, std::string(bytes, 'x')).ok());
  }

  PosixDevice device_;
  std::string path_;
  std::unique_ptr<File> file_;
};

TEST_F(MappingTest, GivesOnlyWhatIsInMemory) {
  write(kRegion - kPage, 2 * kPage);  // both sides of a region's edge
  const auto mapping = Mapping::map(*file_, 4 * kRegion);
  ASSERT_NE(mapping, nullptr) << testing::TempDir() << " is on no file system that is mapped";
  const char* at = mapping->resident(kRegion - kPage, 2 * kPage, 0);
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(std::string(at, 2 * kPage), std::string(2 * kPage, 'x'));
  EXPECT_NE(mapping->resident(kRegion - 1, 2, 0), nullptr);
  EXPECT_NE(mapping->resident(kRegion - kPage, 1, 0), nullptr);
  EXPECT_EQ(mapping->resident(kRegion - kPage - 1, 2, 0), nullptr) << "one byte of a page that is not there";
  EXPECT_EQ(mapping->resident(kRegion, kPage + 1, 0), nullptr);
  EXPECT_EQ(mapping->resident(0, kRegion, 0), nullptr);
  EXPECT_EQ(mapping->resident(0, 3 * kRegion, 0), nullptr);
  EXPECT_EQ(mapping->looks(), 2u) << "once per region";
}

TEST_F(MappingTest, SeesWholeRegionsAndTheLastPages) {
  write(0, 4 * kRegion);
  const auto mapping = Mapping::map(*file_, 4 * kRegion - 100);
  for (uint64_t begin = 0; begin < 4 * kRegion; begin += kRegion / 2) {
    for (uint64_t end = begin + 1; end <= 4 * kRegion; end += kRegion / 2 - 1) {
      EXPECT_EQ(mapping->resident(begin, end - begin, 0) != nullptr, end <= 4 * kRegion - 100)
          << begin << ".." << end;
    }
  }
}

TEST_F(MappingTest, RefusesRangesThatWereNotMapped) {
  write(0, 4 * kRegion);
  const auto mapping = Mapping::map(*file_, kRegion);
  EXPECT_NE(mapping->resident(0, kRegion, 0), nullptr);
  EXPECT_EQ(mapping->resident(0, kRegion + 1, 0), nullptr);
  EXPECT_EQ(mapping->resident(kRegion, 1, 0), nullptr);
  EXPECT_EQ(mapping->resident(~uint64_t{0}, 2, 0), nullptr);
  EXPECT_EQ(mapping->resident(1, ~size_t{0}, 0), nullptr);
  EXPECT_EQ(mapping->resident(0, 0, 0), nullptr);
}

TEST_F(MappingTest, LooksAgainWhenTheAnswerIsOld) {
  write(0, kPage);
  const auto mapping = Mapping::map(*file_, 4 * kRegion);
  const Nanos start = seconds(1'000);
  EXPECT_NE(mapping->resident(0, kPage, start), nullptr);
  EXPECT_EQ(mapping->resident(kPage, kPage, start), nullptr);
  write(kPage, kPage);
  ASSERT_TRUE(file_->truncate(kPage).ok());  // takes page 1 away again
  ASSERT_TRUE(file_->truncate(4 * kRegion).ok());
  write(2 * kPage, kPage);
  EXPECT_EQ(mapping->resident(2 * kPage, kPage, start + milliseconds(500)), nullptr) << "not looked at again";
  EXPECT_EQ(mapping->looks(), 1u);
  const Nanos later = start + 2 * Mapping::kFreshNanos;
  EXPECT_NE(mapping->resident(2 * kPage, kPage, later), nullptr);
  EXPECT_EQ(mapping->resident(kPage, kPage, later), nullptr);
  EXPECT_EQ(mapping->looks(), 2u);
}

TEST_F(MappingTest, OnePageFoundGonePutsAllAnswersInDoubt) {
  write(0, 2 * kRegion);
  const auto mapping = Mapping::map(*file_, 4 * kRegion);
  const Nanos start = seconds(1'000);
  EXPECT_NE(mapping->resident(0, kPage, start), nullptr);
  EXPECT_NE(mapping->resident(kRegion, kPage, start), nullptr);
  ASSERT_TRUE(file_->truncate(0).ok());
  ASSERT_TRUE(file_->truncate(4 * kRegion).ok());
  EXPECT_EQ(mapping->looks(), 2u);
  EXPECT_EQ(mapping->resident(0, kPage, start + 2 * Mapping::kCheckNanos), nullptr);
  EXPECT_EQ(mapping->resident(kRegion, kPage, start + 2 * Mapping::kCheckNanos), nullptr);
  EXPECT_EQ(mapping->looks(), 4u);
}

TEST_F(MappingTest, BytesBehindTheEndOfTheFileAreNotThere) {
  write(0, 4 * kRegion);
  const auto mapping = Mapping::map(*file_, 8 * kRegion);
  ASSERT_NE(mapping, nullptr);
  EXPECT_NE(mapping->resident(3 * kRegion, kRegion, 0), nullptr);
  EXPECT_EQ(mapping->resident(4 * kRegion, 1, 0), nullptr);
  EXPECT_EQ(mapping->resident(4 * kRegion - 1, 2, 0), nullptr);
}

TEST_F(MappingTest, OutlivesItsFile) {
  write(0, kPage);
  const auto mapping = Mapping::map(*file_, kPage);
  file_.reset();
  const char* at = mapping->resident(0, kPage, 0);
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(at[kPage - 1], 'x');
}

TEST_F(MappingTest, ManyThreadsAskAtOnce) {
  write(0, 4 * kRegion);
  const auto mapping = Mapping::map(*file_, 4 * kRegion);
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (Nanos now = 0; now < seconds(20); now += milliseconds(10)) {
        const uint64_t offset = (static_cast<uint64_t>(now) / 1'000'000 + thread) * kPage % (3 * kRegion);
        const char* at = mapping->resident(offset, kRegion, now);
        ASSERT_NE(at, nullptr);
        ASSERT_EQ(*at, 'x');
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Mapping, DevicesWithoutDescriptorsAreNotMapped) {
  MemoryDevice memory;
  const auto file = memory.open("/file", OpenMode::kCreate).value();
  ASSERT_TRUE(file->pwrite(0, "abc").ok());
  EXPECT_EQ(Mapping::map(*file, 3), nullptr);
  const std::string path = testing::TempDir() + fmt::format("swale-mapping-faulty-{}", getpid());
  PosixDevice posix;
  FaultDevice faulty(posix);  // what goes around its calls could not be made to fail
  const auto real = faulty.open(path, OpenMode::kCreate).value();
  ASSERT_TRUE(real->pwrite(0, "abc").ok());
  EXPECT_EQ(Mapping::map(*real, 3), nullptr);
  ASSERT_TRUE(posix.remove(path).ok());
}

TEST(Mapping, FileSystemsThatAreNotLocalAreNotMapped) {
  PosixDevice device;
  const auto file = device.open("/proc/self/status", OpenMode::kRead);
  if (!file.ok()) GTEST_SKIP() << "no /proc";
  EXPECT_EQ(Mapping::map(**file, 100), nullptr);
}

}  // namespace
}  // namespace swale::io::mapping_test
