// What is written to the backing: each byte as it was given, and no space for zeros.
#include "fs/node/backing.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/rng.h"
#include "fs/node/testing/node_rig.h"
#include "io/memory_device.h"

namespace swale::fs::backing_test {
namespace {

constexpr uint64_t kBytes = kMiB;

// Pieces of any length and place, many of them zeros, over a file that was there or is new.
void write_pieces(io::File& out, std::string content, uint64_t seed) {
  Rng rng(seed);
  for (int i = 0; i < 40; ++i) {
    const uint64_t begin = rng.below(4) == 0 ? rng.below(16) * 64 * kKiB : rng.below(kBytes - 1);
    const uint64_t length = 1 + rng.below(std::min<uint64_t>(kBytes - begin, 300 * kKiB));
    std::string bytes(length, '\0');
    if (rng.below(2) == 0)
      for (uint64_t at = rng.below(length); at < length; at += 1 + rng.below(100 * kKiB))
        bytes[at] = static_cast<char>('a' + i % 26);
    content.replace(begin, length, bytes);
    ASSERT_TRUE(write_checked(out, begin, MutableBytes(bytes)).ok());
  }
  ASSERT_TRUE(out.truncate(kBytes).ok());
  std::string found(kBytes, '?');
  ASSERT_TRUE(read_exactly(out, 0, MutableBytes(found)).ok());
  EXPECT_TRUE(found == content) << "seed " << seed;
}

TEST(Backing, EachByteIsAsItWasGivenWhateverIsZeros) {
  Folder folder(testing::TempDir());
  io::PosixDevice disk;
  io::MemoryDevice memory;
  for (uint64_t seed = 0; seed < 40; ++seed)
    for (io::Device* const device : {static_cast<io::Device*>(&disk), static_cast<io::Device*>(&memory)}) {
      const std::string path =
          device == &disk ? fmt::format("{}/f{}", folder.path(), seed) : fmt::format("/f{}", seed);
      auto out = device->open(path, io::OpenMode::kOpenOrCreate);
      ASSERT_TRUE(out.ok()) << out.status().to_string();
      std::string before(kBytes, '\0');
      if (seed % 2 == 0) {
        before.assign(kBytes, 'o');
        ASSERT_TRUE((*out)->pwrite(0, before).ok());
      }
      ASSERT_NO_FATAL_FAILURE(write_pieces(**out, before, seed));
    }
}

TEST(Backing, ZerosTakeNoSpace) {
  Folder folder(testing::TempDir());
  io::PosixDevice device;
  auto out = device.open(folder.path() + "/f", io::OpenMode::kCreate);
  ASSERT_TRUE(out.ok());
  const auto blocks_kib = [&] {
    struct stat found = {};
    EXPECT_TRUE((*out)->sync().ok());
    EXPECT_EQ(::fstat((*out)->descriptor(), &found), 0);
    return static_cast<uint64_t>(found.st_blocks) / 2;
  };
  ASSERT_TRUE((*out)->pwrite(0, std::string(kBytes, 'x')).ok());
  EXPECT_GE(blocks_kib(), kBytes / kKiB);
  std::string zeros(600 * kKiB, '\0');
  ASSERT_TRUE(
      write_checked(**out, 100 * kKiB, MutableBytes(zeros)).ok());  // eight blocks of 64 KiB are whole
  EXPECT_LE(blocks_kib(), kBytes / kKiB - 8 * 64 + 64);
}

}  // namespace
}  // namespace swale::fs::backing_test
