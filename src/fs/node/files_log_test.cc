// FilesLog: rows are there after a kill at any call, or were never answered.
#include "fs/node/files_log.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::fs::files_log_test {
namespace {

constexpr meta::FileId kOne{1, 1}, kTwo{1, 2};

TEST(FileRow, ASegmentEndsAtTheFirstCutThatComesBehindIt) {
  FileRow row;
  row.cut(10, 100, true);
  row.cut(20, 500, true);
  row.cut(25, 900, false);
  EXPECT_EQ(row.end_of(10), 100u);
  EXPECT_EQ(row.end_of(11), 500u);
  EXPECT_EQ(row.end_of(21), meta::kOffsetEnd) << "a truncate that makes the file longer cuts nothing";
  row.cut(30, 50, true);
  EXPECT_EQ(row.cuts.size(), 1u) << "a shorter cut replaces longer ones before it";
  EXPECT_EQ(row.end_of(5), 50u);
  row.drained(30, {1, 2, 50, 4});
  EXPECT_EQ(row.end_of(30), 0u);
  EXPECT_EQ(row.end_of(31), meta::kOffsetEnd);
  EXPECT_EQ(row.size_order, 0u);
}

FileRow row_of(uint64_t n) {
  FileRow row;
  row.backing = {1, n, n * 10, static_cast<int64_t>(n)};
  row.ours = {2, n + 1, n * 20, static_cast<int64_t>(n + 3)};
  row.floor = n;
  for (uint64_t i = 1; i <= n % 3; ++i) row.cut(n + i, n * 100 + i, true);
  return row;
}

TEST(FilesLogTest, RowsAreThereAgain) {
  io::MemoryDevice device;
  ASSERT_TRUE(device.make_directory("/d").ok());
  for (uint64_t life = 0; life < 3; ++life) {
    auto log = FilesLog::open(device, "/d");
    ASSERT_TRUE(log.ok()) << log.status().to_string();
    EXPECT_EQ((*log)->rows().size(), life == 0 ? 0u : 2u);
    if (life > 0) {
      EXPECT_EQ((*log)->rows().at(kTwo), row_of(5));
      EXPECT_EQ((*log)->order_max(), 77u);
    }
    ASSERT_TRUE((*log)->put(kOne, row_of(life), 7).ok());
    ASSERT_TRUE((*log)->put(kTwo, row_of(5), 77).ok());
    EXPECT_EQ((*log)->rows().at(kOne), row_of(life));
  }
}

// A long life: the log is begun again, and keeps its size.
TEST(FilesLogTest, TheLogDoesNotGrowForEver) {
  io::MemoryDevice device;
  ASSERT_TRUE(device.make_directory("/d").ok());
  {
    auto log = FilesLog::open(device, "/d");
    FileRow row;
    for (uint64_t i = 0; i < 1000; ++i) row.cut(i + 1, i + 1, true);
    for (uint64_t i = 0; i < 600; ++i) ASSERT_TRUE((*log)->put(kOne, row, 5000 + i).ok());
  }
  const auto names = *device.list("/d");
  ASSERT_EQ(names.size(), 1u);
  EXPECT_NE(names[0], "files-1");
  const auto file = device.open("/d/" + names[0], io::OpenMode::kRead);
  EXPECT_LT(*(*file)->size(), 6u << 20);
  EXPECT_EQ((*FilesLog::open(device, "/d"))->order_max(), 5599u);
}

TEST(FilesLogTest, AKillAtAnyCallLosesNothingThatWasAnswered) {
  uint64_t points = 0;
  for (uint64_t n = 1;; ++n) {
    io::MemoryDevice disk;
    ASSERT_TRUE(disk.make_directory("/d").ok());
    ASSERT_TRUE(disk.sync_directory("/").ok());
    ASSERT_TRUE((*FilesLog::open(disk, "/d"))->put(kOne, row_of(1), 1).ok());
    io::FaultDevice device(disk);
    device.inject({.nth = n, .from_then_on = true});
    uint64_t answered = 1;
    {
      auto log = FilesLog::open(device, "/d");
      for (uint64_t i = 2; log.ok() && i < 6; ++i)
        if ((*log)->put(kOne, row_of(i), i).ok()) answered = i;
    }
    const bool hit = device.faults() > 0;
    Rng rng(n);
    disk.crash(rng, io::CrashMode::kDropAll);
    auto after = FilesLog::open(disk, "/d");
    ASSERT_TRUE(after.ok()) << after.status().to_string() << " at call " << n;
    const FileRow& row = (*after)->rows().at(kOne);
    EXPECT_GE(row.floor, answered) << "at call " << n;
    EXPECT_EQ(row, row_of(row.floor)) << "at call " << n;
    EXPECT_GE((*after)->order_max(), row.floor);
    if (!hit) break;
    ++points;
  }
  std::printf("killed at %d calls\n", static_cast<int>(points));
  EXPECT_GT(points, 15u);
}

TEST(FilesLogTest, DamageNamesFileAndOffset) {
  io::MemoryDevice device;
  ASSERT_TRUE(device.make_directory("/d").ok());
  {
    auto log = FilesLog::open(device, "/d");
    ASSERT_TRUE((*log)->put(kOne, row_of(1), 1).ok());
    ASSERT_TRUE((*log)->put(kOne, row_of(2), 2).ok());
  }
  auto file = device.open("/d/files-1", io::OpenMode::kReadWrite);
  ASSERT_TRUE((*file)->pwrite(60, "x").ok());
  const Status status = FilesLog::open(device, "/d").status();
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_NE(status.message().find("/d/files-1: the record at offset 32"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace swale::fs::files_log_test
