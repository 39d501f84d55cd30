// WarmPages, and NodeLogs: memory in large pages that is there before a process needs it.
#include <gtest/gtest.h>

#include <fstream>

#include "fs/log/testing/log_rig.h"
#include "fs/log/warm_pages.h"

namespace swale::fs::warm_pages_test {
namespace {

constexpr uint64_t kWrite = kMiB;
constexpr uint32_t kChunks = 16;  // of all memory

class WarmPagesTest : public LogRig {
 protected:
  WarmPagesTest() { options_.memory_bytes = kChunks * uint64_t{kChunkBytes}; }

  // A kernel without MADV_COLLAPSE, or a memory file system on a disk, has none.
  bool has_large_pages() {
    io::PosixDevice device;
    WarmPages pages(device, memory_.path() + "/probe", kLargePageBytes);
    pages.open();
    return pages.add();
  }
  uint64_t bytes() const { return logs_->memory_bytes() + logs_->warm_bytes(); }
  // Two processes that write three chunks each and end.
  void use() {
    LogWriter writers[2];
    uint32_t ids[2];
    for (int i = 0; i < 2; ++i) attach(writers[i], ids[i] = add());
    const std::string data = pattern(1, kWrite);
    for (uint64_t i = 0; i < 3 * kChunkBytes / kWrite; ++i) {
      for (LogWriter& writer : writers)
        ASSERT_EQ(writer.write(kFile, i * kWrite, data.data(), data.size()), static_cast<int64_t>(kWrite));
      take();
      serve();
      ASSERT_LE(bytes(), options_.memory_bytes);
    }
    for (LogWriter& writer : writers) writer.detach();
    for (const uint32_t id : ids) ASSERT_TRUE(logs_->end_log(id, files_).ok());
    files_.drop_all(*logs_);
    serve();
  }
  int prepare_all() {
    int steps = 0;
    while (logs_->prepare_next() && steps < 1000) {
      ++steps;
      EXPECT_LE(bytes(), options_.memory_bytes / 4 * 3);
    }
    return steps;
  }
  // Of the logs' mappings in this process, what is mapped by large pages.
  uint64_t mapped_large() const {
    uint64_t kib = 0, found = 0;
    bool ours = false;
    std::ifstream maps("/proc/self/smaps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find('-') < line.find(' ') && line.find(':') > line.find(' '))
        ours = line.find(options_.memory_directory + "/" + kLogPrefix) != std::string::npos;
      if (ours && std::sscanf(line.c_str(), "ShmemPmdMapped: %lu kB", &found) == 1) kib += found;
    }
    return kib * kKiB;
  }
};

TEST_F(WarmPagesTest, PagesComeAndGoWithoutAName) {
  io::PosixDevice device;
  const std::string folder = memory_.path();
  WarmPages pages(device, folder + "/warm", 3 * kLargePageBytes + 1);
  pages.open();
  const uint64_t most = has_large_pages() ? 3 : 0;
  std::printf("%lu large pages of 3\n", most);
  for (uint64_t i = 0; i < most; ++i) EXPECT_TRUE(pages.add());
  EXPECT_FALSE(pages.add()) << "there are enough, or none";
  EXPECT_EQ(pages.bytes(), most * kLargePageBytes);
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "what is killed here leaves nothing";
  for (uint64_t i = 0; i < most; ++i) EXPECT_TRUE(pages.give_back());
  EXPECT_FALSE(pages.give_back());
  EXPECT_EQ(pages.count(), 0u);
  EXPECT_EQ(pages.add(), most > 0) << "and once more";
}

TEST_F(WarmPagesTest, AFileOfAServerThatWasKilledIsReplaced) {
  std::ofstream(memory_.path() + "/warm") << "left";
  io::PosixDevice device;
  WarmPages pages(device, memory_.path() + "/warm", kLargePageBytes);
  pages.open();
  EXPECT_EQ(pages.add(), has_large_pages());
  EXPECT_TRUE(std::filesystem::is_empty(memory_.path()));
}

TEST_F(WarmPagesTest, WithoutAFolderThereAreNone) {
  io::PosixDevice device;
  WarmPages pages(device, memory_.path() + "/none/warm", kLargePageBytes);
  pages.open();
  EXPECT_FALSE(pages.add());
  EXPECT_FALSE(pages.give_back());
}

TEST_F(WarmPagesTest, LogsThatAreReadyAreOfLargePagesAndMoreAreWarm) {
  const bool has = has_large_pages();
  open();
  EXPECT_EQ(prepare_all(), 0) << "nobody has written yet";
  use();
  const int steps = prepare_all();
  EXPECT_LT(steps, 1000);
  EXPECT_EQ(logs_->prepared_logs(), 2u);
  const uint64_t ready = logs_->free_bytes(), warm = logs_->warm_bytes();
  std::printf("%d steps: %lu MiB in logs, %lu of them in large pages; %lu warm\n", steps, ready / kMiB,
              mapped_large() / kMiB, warm / kMiB);
  EXPECT_GE(ready, 6 * kChunkBytes);
  EXPECT_EQ(mapped_large(), has ? ready / kChunkBytes * 2 * kLargePageBytes : 0);
  EXPECT_EQ(warm, has ? options_.memory_bytes / 4 / kLargePageBytes * kLargePageBytes : 0);
  EXPECT_EQ(prepare_all(), 0) << "it comes to an end";
}

TEST_F(WarmPagesTest, AllMemoryIsForWritersAllTheSame) {
  open();
  use();
  prepare_all();
  LogWriter writer;
  attach(writer, add());
  const std::string data = pattern(2, kWrite);
  uint64_t written = 0;
  options_.shape.wait_ns = 10'000'000;
  for (; written < options_.memory_bytes / 8 * 7; written += kWrite) {
    ASSERT_EQ(writer.write(kFile, written, data.data(), data.size()), static_cast<int64_t>(kWrite))
        << written;
    take();
    serve();
    ASSERT_LE(bytes(), options_.memory_bytes);
  }
  EXPECT_EQ(logs_->warm_bytes(), 0u) << "writers have it";
  EXPECT_EQ(files_.bytes(*logs_).size(), written);
  EXPECT_TRUE(files_.problems.empty());
}

}  // namespace
}  // namespace swale::fs::warm_pages_test
