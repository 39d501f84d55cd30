// Locks on files of a tree of two nodes, without a kernel: what is written under a lock is seen by the next
// one that has it.
#include <gtest/gtest.h>

#include <cerrno>
#include <future>
#include <thread>

#include "fs/job/testing/nodes_world.h"

namespace swale::fs::job_locks_test {
namespace {

constexpr size_t kNodes = 2;

class JobLocksTest : public testing::Test {
 protected:
  std::unique_ptr<OpenFile> open(size_t node, const std::string& name) {
    JobFs& fs = world_.fs(node);
    Entry entry;
    std::unique_ptr<OpenFile> file;
    EXPECT_EQ(fs.create(*fs.root(), name.c_str(), 0644, O_RDWR, Caller::this_thread(), &entry, &file), 0);
    nodes_[node].push_back(entry.node);
    return file;
  }
  int set(size_t node, OpenFile& file, const FileLock& wanted, bool waits = true) {
    FileLocks& locks = *world_.fs(node).locks();
    std::promise<int> answer;
    const uint64_t request = locks.begin([&](int error) { answer.set_value(error); });
    locks.set(file, wanted, waits, request);
    return answer.get_future().get();
  }
  void release(size_t node, std::unique_ptr<OpenFile> file) { world_.fs(node).release(std::move(file)); }
  uint64_t read(size_t node, OpenFile& file) {
    uint64_t value = 0;
    size_t got = 0;
    EXPECT_EQ(
        world_.fs(node).read(file, 0, MutableBytes(reinterpret_cast<char*>(&value), sizeof(value)), &got), 0);
    return got == sizeof(value) ? value : 0;
  }
  void write(size_t node, OpenFile& file, uint64_t value) {
    int failed = -1;
    world_.fs(node).write_bytes(file, 0, Bytes(reinterpret_cast<const char*>(&value), sizeof(value)),
                                Caller::this_thread(), [&](int error) { failed = error; });
    EXPECT_EQ(failed, 0);
  }
  void forget_all() {
    for (size_t node = 0; node < kNodes; ++node)
      for (Node* const each : nodes_[node]) world_.fs(node).forget(each, 1);
  }
  // Both nodes count in one file, under its lock. What they leave there.
  uint64_t count(LockKind kind, uint64_t each) {
    std::unique_ptr<OpenFile> files[kNodes];
    std::vector<std::thread> threads;
    for (size_t node = 0; node < kNodes; ++node) files[node] = open(node, "counter");
    for (size_t node = 0; node < kNodes; ++node) {
      threads.emplace_back([&, node] {
        OpenFile& file = *files[node];
        for (uint64_t i = 0; i < each; ++i) {
          EXPECT_EQ(set(node, file, {.kind = kind, .type = LockType::kWrite, .owner = 5}), 0);
          write(node, file, read(node, file) + 1);
          EXPECT_EQ(set(node, file, {.kind = kind, .owner = 5}), 0);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const uint64_t last = read(0, *files[0]);
    for (size_t node = 0; node < kNodes; ++node) release(node, std::move(files[node]));
    forget_all();
    return last;
  }

  NodesWorld world_{kNodes};
  std::vector<Node*> nodes_[kNodes];
};

TEST_F(JobLocksTest, WhatIsWrittenUnderALockIsSeenByTheNextOneThatHasIt) {
  world_.start();
  EXPECT_EQ(count(LockKind::kRange, 100), 200u);
}

TEST_F(JobLocksTest, TheSameUnderFlock) {
  world_.start();
  EXPECT_EQ(count(LockKind::kWhole, 100), 200u);
}

TEST_F(JobLocksTest, CanaryAnUnlockThatDoesNotCommit) {
  world_.commits = false;
  world_.start();
  EXPECT_LT(count(LockKind::kRange, 100), 200u);
}

TEST_F(JobLocksTest, ALockMadeWeakerCommits) {
  world_.start();
  auto one = open(0, "f"), other = open(1, "f");
  EXPECT_EQ(set(0, *one, {.type = LockType::kWrite, .owner = 5}), 0);
  write(0, *one, 77);
  EXPECT_EQ(set(0, *one, {.type = LockType::kRead, .owner = 5}), 0);
  EXPECT_EQ(set(1, *other, {.type = LockType::kRead, .owner = 5}), 0);
  EXPECT_EQ(read(1, *other), 77u);
  release(0, std::move(one));
  EXPECT_EQ(set(1, *other, {.type = LockType::kWrite, .owner = 5}), 0) << "it has ended with the open file";
  release(1, std::move(other));
  forget_all();
}

TEST_F(JobLocksTest, AreRealOfOneNodeAndOfTwo) {
  world_.start();
  auto one = open(0, "f"), second = open(0, "f"), other = open(1, "f");
  const FileLock lock{.type = LockType::kWrite, .owner = 5},
      second_lock{.type = LockType::kWrite, .owner = 6};
  EXPECT_EQ(set(0, *one, lock), 0);
  EXPECT_EQ(set(0, *second, second_lock, false), EAGAIN);
  EXPECT_EQ(set(1, *other, lock, false), EAGAIN);
  FileLock found;
  EXPECT_EQ(world_.fs(0).locks()->get(*second, second_lock, &found), 0);
  EXPECT_EQ(found, lock);
  std::future<int> waits = std::async(std::launch::async, [&] { return set(1, *other, lock); });
  EXPECT_EQ(world_.fs(0).locks()->end_owner(*one, 5), 0);
  EXPECT_EQ(waits.get(), 0);
  for (auto* const each : {&one, &second}) release(0, std::move(*each));
  release(1, std::move(other));
  forget_all();
}

}  // namespace
}  // namespace swale::fs::job_locks_test
