// What programs see of holes: SEEK_DATA, SEEK_HOLE and st_blocks, of bytes in logs and on the backing; and
// what is not written for them; and of free space.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "fs/job/testing/content.h"
#include "fs/job/testing/job_world.h"
#include "fs/job/testing/nodes_world.h"

namespace swale::fs::job_fs_space_test {
namespace {

constexpr uint64_t kPart = 64 * kKiB;  // no file system has larger blocks
constexpr uint64_t kNowhere = ~uint64_t{0};

bool knows_holes(const std::string& folder) {
  const std::string path = folder + "/holes";
  const int there = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const bool knows = ::ftruncate(there, 1 << 20) == 0 && ::lseek(there, 0, SEEK_HOLE) == 0;
  ::close(there);
  ::unlink(path.c_str());
  return knows;
}

uint64_t blocks_kib(const std::string& path) {
  struct stat found = {};
  EXPECT_EQ(::stat(path.c_str(), &found), 0) << path;
  return static_cast<uint64_t>(found.st_blocks) / 2;
}

class JobFsSpace : public testing::Test {
 protected:
  // Not to be mapped: then all would be data.
  int open(const std::string& path, int flags = O_WRONLY | O_CREAT) {
    int handle = -1;
    EXPECT_EQ(calls().open(path, flags, 0644, &handle), 0) << path;
    return handle;
  }
  void write(int handle, uint64_t offset) {
    EXPECT_EQ(calls().write(handle, offset, std::string(kPart, 'x')), 0);
  }
  uint64_t find(int handle, uint64_t offset, int whence) {
    uint64_t found = kNowhere;
    const int failed = calls().seek(handle, offset, whence, &found);
    EXPECT_TRUE(failed == 0 || failed == ENXIO) << failed;
    return failed == 0 ? found : kNowhere;
  }
  // The beginnings and ends of all data, as cp and tar look for them.
  std::vector<uint64_t> edges(int handle) {
    std::vector<uint64_t> found;
    for (uint64_t at = 0; (at = find(handle, at, SEEK_DATA)) != kNowhere;) {
      found.push_back(at);
      at = find(handle, at, SEEK_HOLE);
      found.push_back(at);
    }
    return found;
  }
  uint64_t blocks(const std::string& path) {
    struct stat found = {};
    EXPECT_EQ(calls().look(path, &found), 0);
    return static_cast<uint64_t>(found.st_blocks);
  }
  void drain() {
    const Status drained = world_.fs().drain_all();
    ASSERT_TRUE(drained.ok()) << drained.to_string();
  }
  bool backing_knows_holes() const { return knows_holes(world_.backing()); }
  FileSystemCalls& calls() { return world_.calls(); }

  JobWorld world_;
};

using Edges = std::vector<uint64_t>;

TEST_F(JobFsSpace, HolesOfANewFileAreFound) {
  world_.start();
  const int file = open("f");
  EXPECT_EQ(edges(file), Edges());
  EXPECT_EQ(find(file, 0, SEEK_HOLE), kNowhere) << "the file is empty";
  ASSERT_EQ(calls().resize(file, 10 * kMiB), 0);
  EXPECT_EQ(edges(file), Edges());
  EXPECT_EQ(find(file, 0, SEEK_HOLE), 0u);
  EXPECT_EQ(blocks("f"), 0u);
  write(file, kMiB);
  write(file, kMiB + kPart);
  write(file, 8 * kMiB);
  EXPECT_EQ(edges(file), (Edges{kMiB, kMiB + 2 * kPart, 8 * kMiB, 8 * kMiB + kPart}));
  EXPECT_EQ(find(file, kMiB + 5, SEEK_DATA), kMiB + 5);
  EXPECT_EQ(find(file, 9 * kMiB, SEEK_HOLE), 9 * kMiB);
  EXPECT_EQ(find(file, 10 * kMiB, SEEK_HOLE), kNowhere);
  EXPECT_EQ(blocks("f"), 3 * kPart / 512);
  write(file, 10 * kMiB);
  EXPECT_EQ(edges(file).back(), 10 * kMiB + kPart) << "a hole is at the end";
  ASSERT_EQ(calls().resize(file, kMiB + 100), 0);
  EXPECT_EQ(edges(file), (Edges{kMiB, kMiB + 100}));
  EXPECT_EQ(calls().close(file), 0);
}

TEST_F(JobFsSpace, HolesOfAFileAreFoundWhereverItsBytesStand) {
  if (!backing_knows_holes()) GTEST_SKIP() << "the file system of the test knows no holes";
  world_.start();
  int file = open("f");
  write(file, kMiB);
  write(file, 8 * kMiB);
  ASSERT_EQ(calls().resize(file, 10 * kMiB), 0);
  const Edges all = edges(file);
  drain();
  EXPECT_EQ(edges(file), all) << "open";
  EXPECT_EQ(calls().close(file), 0);
  drain();
  file = open("f", O_RDONLY);
  EXPECT_EQ(edges(file), all) << "on the backing";
  EXPECT_LT(blocks("f"), kMiB / 512) << "as many as the backing file has";
  EXPECT_EQ(calls().close(file), 0);

  file = open("f");
  write(file, 4 * kMiB);
  write(file, 8 * kMiB + kPart);
  EXPECT_EQ(edges(file),
            (Edges{kMiB, kMiB + kPart, 4 * kMiB, 4 * kMiB + kPart, 8 * kMiB, 8 * kMiB + 2 * kPart}));
  EXPECT_GE(blocks("f"), 4 * kPart / 512);
  EXPECT_LT(blocks("f"), kMiB / 512);
  ASSERT_EQ(calls().resize(file, 6 * kMiB), 0);
  ASSERT_EQ(calls().resize(file, 10 * kMiB), 0);
  EXPECT_EQ(edges(file), (Edges{kMiB, kMiB + kPart, 4 * kMiB, 4 * kMiB + kPart})) << "cut";
  EXPECT_EQ(calls().close(file), 0);
}

// Of pages that the kernel may have the server has not heard: to leave them out of a copy would lose them.
TEST_F(JobFsSpace, AFileThatMayBeMappedIsAllData) {
  world_.start();
  const int mapped = open("f", O_RDWR | O_CREAT), reader = open("f", O_RDONLY);
  ASSERT_EQ(calls().resize(mapped, kMiB), 0);
  for (const int handle : {mapped, reader}) EXPECT_EQ(edges(handle), (Edges{0, kMiB}));
  EXPECT_EQ(blocks("f"), kMiB / 512);
  drain();
  EXPECT_EQ(edges(reader), (Edges{0, kMiB}));
  EXPECT_EQ(blocks("f"), kMiB / 512);
  EXPECT_EQ(calls().close(mapped), 0);
  EXPECT_EQ(edges(reader), Edges());
  EXPECT_LT(blocks("f"), kMiB / 512);
  EXPECT_EQ(calls().close(reader), 0);
}

TEST_F(JobFsSpace, WhereThereIsNothingNoZerosAreWritten) {
  world_.start();
  const int file = open("f", O_RDWR | O_CREAT);
  ASSERT_EQ(calls().resize(file, 512 * kMiB), 0);
  write(file, 100 * kMiB);
  write(file, 300 * kMiB);
  const uint64_t before = world_.fs().stats().undrained_bytes;
  const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  ASSERT_EQ(calls().allocate(file, punch, 100, 300 * kMiB + kPart - 200), 0);
  ASSERT_EQ(calls().allocate(file, FALLOC_FL_ZERO_RANGE, 400 * kMiB, 200 * kMiB), 0);
  EXPECT_LT(world_.fs().stats().undrained_bytes, before + kMiB);
  std::string bytes;
  ASSERT_EQ(calls().read(file, 300 * kMiB, kPart, &bytes), 0);
  EXPECT_EQ(bytes, std::string(kPart - 100, '\0') + std::string(100, 'x'));
  ASSERT_EQ(calls().read(file, 100 * kMiB, kPart, &bytes), 0);
  EXPECT_EQ(bytes, std::string(kPart, '\0'));
  struct stat found;
  ASSERT_EQ(calls().state(file, &found), 0);
  EXPECT_EQ(found.st_size, static_cast<off_t>(600 * kMiB));
  EXPECT_EQ(calls().close(file), 0);
}

// In a file that is there, and in a new one.
TEST_F(JobFsSpace, PunchedHolesTakeNoSpaceOnTheBacking) {
  if (!backing_knows_holes()) GTEST_SKIP() << "this backing file system keeps no holes";
  world_.start();
  const auto there_kib = [&](const char* name) { return blocks_kib(world_.backing() + "/" + name); };
  for (const bool is_there : {true, false}) {
    const char* const name = is_there ? "there" : "new";
    const int file = open(name, O_RDWR | O_CREAT);
    for (uint64_t at = 0; at < 32; ++at) write(file, at * kPart);
    if (is_there) {
      ASSERT_NO_FATAL_FAILURE(drain());
      EXPECT_GE(there_kib(name), 32 * kPart / kKiB);
    }
    const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    ASSERT_EQ(calls().allocate(file, punch, 100, 32 * kPart - 200), 0);
    ASSERT_NO_FATAL_FAILURE(drain());
    EXPECT_LE(there_kib(name), 4 * kPart / kKiB) << name;
    std::string bytes;
    ASSERT_EQ(calls().read(file, 0, 32 * kPart, &bytes), 0);
    EXPECT_TRUE(bytes == std::string(100, 'x') + std::string(32 * kPart - 200, '\0') + std::string(100, 'x'));
    EXPECT_EQ(calls().close(file), 0);
  }
}

// ---- free space, as of a backing that nobody else uses

constexpr fsblkcnt_t kFree = 1'000'000, kAvailable = 900'000;  // blocks
constexpr unsigned long kBlock = 4 * kKiB;

int look_for_space(int, struct statvfs* space) {
  *space = {};
  space->f_bsize = space->f_frsize = kBlock;
  space->f_bfree = kFree;
  space->f_bavail = kAvailable;
  return 0;
}

// How many blocks the tree has fewer.
fsblkcnt_t taken(FileSystem& fs) {
  struct statvfs space = {};
  EXPECT_EQ(fs.statistics(&space), 0);
  EXPECT_EQ(kFree - space.f_bfree, kAvailable - space.f_bavail);
  return kFree - space.f_bfree;
}

int write_mib(FileCalls& on, const std::string& path, uint64_t count) {
  int handle = -1;
  EXPECT_EQ(on.open(path, O_WRONLY | O_CREAT, 0644, &handle), 0);
  for (uint64_t i = 0; i < count; ++i) EXPECT_EQ(on.write(handle, i * kMiB, std::string(kMiB, 'x')), 0);
  return handle;
}

TEST_F(JobFsSpace, FreeSpaceIsThatOfTheBackingLessWhatIsUndrained) {
  world_.options().look_for_space = look_for_space;
  world_.start();
  EXPECT_EQ(taken(world_.fs()), 0u);
  const int file = write_mib(calls(), "f", 8);
  EXPECT_EQ(taken(world_.fs()), 8 * kMiB / kBlock);
  EXPECT_EQ(calls().write(file, 8 * kMiB, "x"), 0);
  EXPECT_EQ(taken(world_.fs()), 8 * kMiB / kBlock + 1);
  EXPECT_EQ(calls().sync(file), 0);
  EXPECT_EQ(taken(world_.fs()), 0u);
  EXPECT_EQ(calls().close(file), 0);
}

// The numbers that the kernel has of the backing, which others use meanwhile.
TEST_F(JobFsSpace, BlocksAreTheBackings) {
  world_.start();
  struct statvfs tree = {}, there = {};
  ASSERT_EQ(world_.fs().statistics(&tree), 0);
  ASSERT_EQ(::statvfs(world_.backing().c_str(), &there), 0);
  EXPECT_EQ(tree.f_frsize, there.f_frsize);
  EXPECT_EQ(tree.f_blocks, there.f_blocks);
}

TEST(JobFsSpaceOfNodes, FreeSpaceIsLessWhatAnyNodeHasUndrained) {
  NodesWorld world(3);
  std::atomic<bool> lost = false;
  world.fate = [&](PeerMethod method) {
    return method == PeerMethod::kUndrained && lost.load() ? CallFate::kIsLost : CallFate::kGoes;
  };
  world.adjust = [](JobFsOptions& options) {
    options.look_for_space = look_for_space;
    options.idle = 0;  // no answer is good enough for the next one
  };
  world.start();
  const auto all = [&] {
    return std::vector<fsblkcnt_t>{taken(world.fs(0)), taken(world.fs(1)), taken(world.fs(2))};
  };
  const auto each = [](uint64_t mib) { return std::vector<fsblkcnt_t>(3, mib * kMiB / kBlock); };
  EXPECT_EQ(all(), each(0));
  ASSERT_EQ(world.calls(0).close(write_mib(world.calls(0), "f", 8)), 0);
  EXPECT_EQ(all(), each(8));
  const int file = write_mib(world.calls(1), "g", 2);
  EXPECT_EQ(all(), each(10)) << "that is not committed, too";
  lost = true;
  EXPECT_EQ(world.calls(1).sync(file), 0);
  EXPECT_EQ(all(), (std::vector<fsblkcnt_t>{2560, 2048, 2560})) << "what was known last";
  lost = false;
  EXPECT_EQ(all(), each(8));
  EXPECT_EQ(world.calls(1).close(file), 0);
  EXPECT_TRUE(world.fs(2).drain_everywhere().ok());
  EXPECT_EQ(all(), each(0));
}

// Half of the file is another node's.
TEST(JobFsSpaceOfNodes, PunchedHolesTakeNoSpaceOnTheBacking) {
  NodesWorld world(2);
  if (!knows_holes(world.backing())) GTEST_SKIP() << "this backing file system keeps no holes";
  world.start();
  for (size_t node = 0; node < 2; ++node) {
    int handle = -1;
    ASSERT_EQ(world.calls(node).open("f", O_RDWR | O_CREAT, 0644, &handle), 0);
    ASSERT_EQ(world.calls(node).write(handle, node * kMiB, std::string(kMiB, 'x')), 0);
    const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    ASSERT_EQ(world.calls(node).allocate(handle, punch, node * kMiB + 100, kMiB - 200), 0);
    ASSERT_EQ(world.calls(node).close(handle), 0);
  }
  EXPECT_TRUE(world.fs(0).drain_everywhere().ok());
  EXPECT_LE(blocks_kib(world.backing() + "/f"), 6 * kPart / kKiB);
  const std::string edge(100, 'x'), zeros(kMiB - 200, '\0');
  EXPECT_TRUE(content(world.backing() + "/f") == edge + zeros + edge + edge + zeros + edge);
}

}  // namespace
}  // namespace swale::fs::job_fs_space_test
