// Which ends the kernel is told, so that writers behind the end that it knows do not have the inode alone.
#include "fuse/ends_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace swale::fuse::ends_ahead_test {
namespace {

constexpr uint64_t kNode = 64, kRecord = 47'008, kMiB = 1 << 20;

// What the kernel does with a file: a write past the end that it knows has the inode alone.
class Kernel {
 public:
  explicit Kernel(size_t writers) : handles_(writers) {}

  void write(size_t writer, uint64_t offset, uint64_t bytes = kRecord) {
    const uint64_t end = offset + bytes;
    if (end > end_) ++alone_;
    if (const auto told = ends.next(kNode, &handles_[writer], end)) {
      ++told_;
      EXPECT_GT(*told, end);
      EXPECT_NE(*told % 4096, 0u);
      end_ = std::max(end_, *told);
    }
    end_ = std::max(end_, end);
  }
  // A record of each in turn, by one that is `ahead` records before the others.
  void write_strided(uint64_t records, uint64_t ahead) {
    const uint64_t writers = handles_.size();
    for (uint64_t i = 0; i < records + ahead; ++i) {
      if (i < records) write(0, i * writers * kRecord);
      for (size_t writer = 1; writer < writers && i >= ahead; ++writer)
        write(writer, ((i - ahead) * writers + writer) * kRecord);
    }
  }
  uint64_t alone() const { return alone_; }
  uint64_t told() const { return told_; }

  EndsAhead ends;

 private:
  std::vector<char> handles_;
  uint64_t end_ = 0, alone_ = 0, told_ = 0;
};

TEST(EndsAhead, WritersThatTakeTurnsGoAheadTogether) {
  Kernel kernel(8);
  kernel.write_strided(1000, 0);
  EXPECT_LE(kernel.alone(), 2u);
  EXPECT_LE(kernel.told(), 1000 * 8 * kRecord / (8 * kMiB) + 1);
}

// Nobody but the first one is near the end that was told. While that one has the inode alone, all wait.
TEST(EndsAhead, AWriterFarBeforeTheOthersIsNotAloneThere) {
  constexpr uint64_t kAhead = 100;  // 36 MiB
  Kernel kernel(8);
  kernel.write_strided(1000, kAhead);
  EXPECT_LE(kernel.alone(), kAhead + 2);  // before the others came
}

TEST(EndsAhead, OneWriterIsToldNothing) {
  Kernel kernel(1);
  kernel.write_strided(2000, 0);
  EXPECT_EQ(kernel.told(), 0u);
}

TEST(EndsAhead, TheLastOfSeveralWritersIsToldOnceMore) {
  Kernel kernel(2);
  kernel.write_strided(100, 0);
  const uint64_t before = kernel.told();
  for (uint64_t i = 200; i < 4000; ++i) kernel.write(1, i * kRecord);
  EXPECT_LE(kernel.told(), before + 1);
}

TEST(EndsAhead, FilesThatAreAppendedToAreLeftAlone) {
  Kernel kernel(2);
  kernel.ends.add_appender(kNode);
  kernel.write_strided(1000, 0);
  EXPECT_EQ(kernel.told(), 0u);
  kernel.ends.remove_appender(kNode);
  kernel.write(0, 0);
  EXPECT_EQ(kernel.told(), 1u);
}

TEST(EndsAhead, IsToldAnewWhenTheKernelHasTheEndThatIs) {
  Kernel kernel(2);
  kernel.write_strided(2, 0);
  EXPECT_EQ(kernel.told(), 1u);
  EXPECT_TRUE(kernel.ends.has_told(kNode));
  kernel.ends.forget(kNode);
  kernel.write(0, 4 * kRecord);
  EXPECT_EQ(kernel.told(), 2u);
}

}  // namespace
}  // namespace swale::fuse::ends_ahead_test
