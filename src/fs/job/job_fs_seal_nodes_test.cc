// Sealed files on several nodes: who is refused where, what a node keeps of them, and what an unseal takes
// back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "fs/job/testing/nodes_world.h"
#include "fs/log/attach_format.h"

namespace swale::fs::job_fs_seal_nodes_test {
namespace {

using testing::HasSubstr;

constexpr size_t kNodes = 3;

class JobFsSealNodes : public testing::Test {
 protected:
  int open(size_t node, const std::string& path, int flags) {
    int handle = -1;
    const int failed = calls(node).open(path, flags, 0644, &handle);
    return failed == 0 ? handle : -failed;
  }
  void close(size_t node, int handle) { EXPECT_EQ(calls(node).close(handle), 0); }
  void make(size_t node, const std::string& path, const std::string& bytes, uint64_t offset = 0) {
    const int handle = open(node, path, O_RDWR | O_CREAT);
    ASSERT_GT(handle, 0);
    EXPECT_EQ(calls(node).write(handle, offset, bytes), 0);
    close(node, handle);
  }
  std::string read(size_t node, int handle) {
    std::string out;
    const int failed = calls(node).read(handle, 0, 1000, &out);
    return failed == 0 ? out : "(" + std::string(std::strerror(failed)) + ")";
  }
  std::string read(size_t node, const std::string& path) {
    const int handle = open(node, path, O_RDONLY);
    if (handle < 0) return "(" + std::string(std::strerror(-handle)) + ")";
    const std::string out = read(node, handle);
    close(node, handle);
    return out;
  }
  SealState state(size_t node, const std::string& path) {
    SealState found;
    Entry entry;
    JobFs& fs = world_.fs(node);
    EXPECT_EQ(fs.lookup(*fs.root(), path.c_str(), &entry), 0);
    std::unique_ptr<OpenFile> file;
    EXPECT_EQ(fs.open_file(*entry.node, O_RDONLY, Caller::this_thread(), &file), 0);
    std::string answer;
    EXPECT_EQ(fs.command(*file, kAskSeal, "", &answer), 0);
    if (answer.size() == sizeof(found)) std::memcpy(&found, answer.data(), sizeof(found));
    fs.release(std::move(file));
    fs.forget(entry.node, 1);
    return found;
  }
  FileSystemCalls& calls(size_t node) { return world_.calls(node); }
  uint64_t asked(size_t node) { return world_.fs(node).stats().asked_roots; }
  // Whether node 2 sees at once what node 1 has written after it has unsealed the file.
  bool sees_what_follows_an_unseal();

  NodesWorld world_{kNodes};
};

TEST_F(JobFsSealNodes, AFileThatOneNodeSealsIsImmutableOnAll) {
  world_.start();
  make(0, "f", "AAAAAAAA");
  make(1, "f", "BB", 2);
  ASSERT_EQ(calls(2).set_mode("f", 0444), 0);
  for (size_t node = 0; node < kNodes; ++node) {
    EXPECT_EQ(open(node, "f", O_WRONLY), -EPERM) << node;
    EXPECT_EQ(open(node, "f", O_RDWR | O_CREAT), -EPERM) << node;
    EXPECT_EQ(calls(node).truncate("f", 1), EPERM) << node;
    EXPECT_EQ(state(node, "f").sealed, 1u) << node;
    EXPECT_EQ(read(node, "f"), "AABBAAAA") << node;
  }
  ASSERT_EQ(calls(0).set_mode("f", 0644), 0);
  for (size_t node = 0; node < kNodes; ++node) {
    make(node, "f", std::string(1, static_cast<char>('0' + node)), node);
    EXPECT_EQ(state(node, "f").sealed, 0u) << node;
  }
  EXPECT_EQ(read(1, "f"), "012BAAAA");
}

TEST_F(JobFsSealNodes, AWriterOfAnotherNodeIsNamedAndItsCloseSeals) {
  world_.start();
  make(0, "f", "bytes");
  const int one = open(1, "f", O_WRONLY), other = open(2, "f", O_RDWR);
  ASSERT_EQ(calls(0).set_mode("f", 0444), 0);
  const SealState found = state(0, "f");
  EXPECT_EQ(found.sealed, 0u);
  EXPECT_EQ(found.writers, 2u);
  EXPECT_THAT(found.who, HasSubstr("of node here, process "));
  EXPECT_EQ(calls(1).write(one, 0, "B"), 0);
  close(1, one);
  EXPECT_EQ(state(0, "f").sealed, 0u) << "one is left";
  EXPECT_EQ(calls(2).write(other, 1, "Y"), 0);
  close(2, other);
  EXPECT_EQ(state(0, "f").sealed, 1u);
  EXPECT_EQ(read(0, "f"), "BYtes");
  EXPECT_EQ(open(1, "f", O_WRONLY), -EPERM);
}

// A drain changes who has the bytes, a new server has no table.
TEST_F(JobFsSealNodes, TheRootIsAskedOnceForAllReadsOfASealedFile) {
  world_.start();
  make(0, "f", "AAAAAAAA");
  make(1, "f", "BB", 2);
  ASSERT_EQ(calls(0).set_mode("f", 0444), 0);
  for (size_t node = 0; node < kNodes; ++node) {
    const int handle = open(node, "f", O_RDONLY);
    ASSERT_GT(handle, 0);
    EXPECT_EQ(read(node, handle), "AABBAAAA");
    const uint64_t before = asked(node);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(read(node, handle), "AABBAAAA");
    struct stat found = {};
    EXPECT_EQ(calls(node).state(handle, &found), 0);
    EXPECT_EQ(found.st_size, 8);
    EXPECT_EQ(asked(node), before) << "node " << node;
    close(node, handle);
  }
  for (size_t node = 0; node < kNodes; ++node) ASSERT_TRUE(world_.fs(node).drain_all().ok());
  for (size_t node = 0; node < kNodes; ++node) EXPECT_EQ(read(node, "f"), "AABBAAAA") << "node " << node;
  world_.restart();
  for (size_t node = 0; node < kNodes; ++node) {
    EXPECT_EQ(read(node, "f"), "AABBAAAA") << "node " << node;
    EXPECT_EQ(open(node, "f", O_RDWR), -EPERM) << node;
  }
  make(0, "g", "open to all");
  const int handle = open(1, "g", O_RDONLY);
  const uint64_t before = asked(1);
  EXPECT_EQ(read(1, handle), "open to all");
  EXPECT_GT(asked(1), before) << "the counter counts";
  close(1, handle);
}

bool JobFsSealNodes::sees_what_follows_an_unseal() {
  world_.start();
  make(0, "f", "AAAA");
  EXPECT_EQ(calls(0).set_mode("f", 0444), 0);
  const int reader = open(2, "f", O_RDONLY);
  EXPECT_EQ(read(2, reader), "AAAA");
  EXPECT_EQ(calls(1).set_mode("f", 0644), 0);
  make(1, "f", "BBBBBB");
  const bool seen = read(2, reader) == "BBBBBB";
  close(2, reader);
  return seen;
}

TEST_F(JobFsSealNodes, AnUnsealTakesBackWhatNodesHaveKept) { EXPECT_TRUE(sees_what_follows_an_unseal()); }

TEST_F(JobFsSealNodes, ACanaryThatTakesNothingBackIsNoticed) {
  world_.unseal_takes_back = false;
  EXPECT_FALSE(sees_what_follows_an_unseal());
}

// Two nodes write and seal at the same time: whoever has read a file as sealed has read its last bytes.
TEST_F(JobFsSealNodes, NobodyWritesASealedFileHoweverTheyMeet) {
  world_.start();
  make(0, "f", "0000");
  std::atomic<bool> over = false;
  std::atomic<uint64_t> writes = 0, refused = 0, seals = 0, seen = 0;
  std::thread writer([&] {
    for (uint64_t i = 1; !over; ++i) {
      const int handle = open(1, "f", O_WRONLY);
      if (handle == -EPERM) {
        ++refused;
        std::this_thread::yield();
        continue;
      }
      ASSERT_GT(handle, 0);
      EXPECT_EQ(calls(1).write(handle, 0, fmt::format("{:04}", i % 10'000)), 0);
      close(1, handle);
      ++writes;
    }
  });
  for (int round = 0; round < 40; ++round) {
    EXPECT_EQ(calls(0).set_mode("f", 0444), 0);
    while (state(0, "f").sealed == 0) std::this_thread::yield();
    ++seals;
    const std::string first = read(2, "f");
    EXPECT_EQ(read(0, "f"), first);
    for (int i = 0; i < 3; ++i, ++seen) EXPECT_EQ(read(2, "f"), first) << "round " << round;
    EXPECT_EQ(calls(2).set_mode("f", 0644), 0);
    const uint64_t before = writes;
    while (writes == before) std::this_thread::yield();
  }
  over = true;
  writer.join();
  std::printf("%lu seals, %lu reads, %lu writes, %lu refused\n", seals.load(), seen.load(), writes.load(),
              refused.load());
}

}  // namespace
}  // namespace swale::fs::job_fs_seal_nodes_test
