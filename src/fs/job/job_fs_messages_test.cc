// Messages of a drain that several nodes make together: each in turn is lost, or its answer, or it comes
// twice. What was committed is read throughout; fsync says no success that is none; the next brings all.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "fs/job/testing/content.h"
#include "fs/job/testing/nodes_world.h"

namespace swale::fs::job_fs_messages_test {
namespace {

constexpr size_t kNodes = 3;

class JobFsMessages : public testing::Test {
 protected:
  JobFsMessages() {
    world_.fate = [this](PeerMethod method) {
      const bool counts = method == PeerMethod::kFix || method == PeerMethod::kWriteOut ||
                          method == PeerMethod::kBrought || method == PeerMethod::kDrain;
      if (!counts || left_.load() == 0 || left_.fetch_sub(1) > 1) return CallFate::kGoes;
      ++met_[static_cast<size_t>(method)];
      return fate_.load();
    };
    world_.start();
  }
  int open(size_t node, const std::string& name) {
    int handle = -1;
    EXPECT_EQ(world_.calls(node).open(name, O_RDWR | O_CREAT, 0644, &handle), 0) << node;
    return handle;
  }
  std::string read(size_t node, int handle) {
    std::string out;
    EXPECT_EQ(world_.calls(node).read(handle, 0, 1000, &out), 0) << node;
    return out;
  }
  // A file of three nodes is made, drained by an fsync, changed by all, and
  // synced again by another node. False: it took fewer messages than `nth`.
  bool lose(const std::string& name, CallFate fate, size_t nth, size_t* told);

  std::atomic<CallFate> fate_ = CallFate::kGoes;
  std::atomic<size_t> left_ = 0;  // messages until one meets its fate
  std::atomic<int> met_[16] = {};
  NodesWorld world_{kNodes};
};

bool JobFsMessages::lose(const std::string& name, CallFate fate, size_t nth, size_t* told) {
  const std::string backing = world_.backing() + "/" + name;
  int handles[kNodes];
  for (size_t node = 0; node < kNodes; ++node) handles[node] = open(node, name);
  std::string bytes(3 * kNodes, '.');
  fate_ = fate;
  left_ = nth;
  for (size_t round = 0; round < 2; ++round) {
    for (size_t node = 0; node < kNodes; ++node) {
      const std::string own(2, static_cast<char>('a' + 3 * round + node));
      const size_t at = 3 * node + round;
      EXPECT_EQ(world_.calls(node).write(handles[node], at, own), 0);
      EXPECT_EQ(world_.calls(node).flush(handles[node]), 0);
      bytes.replace(at, 2, own);
      if (round == 0) bytes[3 * node + 2] = '\0';
    }
    const std::string expected = round == 0 ? bytes.substr(0, 3 * kNodes - 1) : bytes;
    const int failed = world_.calls(round).sync(handles[round]);
    EXPECT_TRUE(failed == 0 || failed == EIO) << std::strerror(failed);
    if (failed == 0) {
      EXPECT_EQ(content(backing), expected) << "an fsync has brought it";
    }
    *told += failed != 0 ? 1 : 0;
    for (size_t node = 0; node < kNodes; ++node) EXPECT_EQ(read(node, handles[node]), expected) << node;
  }
  const bool met = left_.exchange(0) == 0;
  EXPECT_EQ(world_.calls(2).sync(handles[2]), 0) << "the next one has all of its messages";
  EXPECT_EQ(content(backing), bytes);
  for (size_t node = 0; node < kNodes; ++node) {
    EXPECT_EQ(read(node, handles[node]), bytes) << node;
    EXPECT_EQ(world_.calls(node).close(handles[node]), 0);
  }
  return met;
}

TEST_F(JobFsMessages, AnyOfADrainMayBeLostOrComeTwice) {
  size_t points = 0, told = 0;
  for (const CallFate fate : {CallFate::kIsLost, CallFate::kAnswerIsLost, CallFate::kComesTwice}) {
    size_t of_fate = 0;
    for (bool met = true; met && !HasFailure(); of_fate += met ? 1 : 0) {
      const std::string name = fmt::format("f{}-{}", static_cast<int>(fate), of_fate);
      SCOPED_TRACE(name);
      met = lose(name, fate, of_fate + 1, &told);
    }
    points += of_fate;
    EXPECT_GT(of_fate, 8u);
  }
  EXPECT_TRUE(world_.fs(0).drain_everywhere().ok());
  for (size_t node = 0; node < kNodes; ++node) {
    EXPECT_EQ(world_.fs(node).stats().kept_aside, 0u);
    EXPECT_EQ(world_.fs(node).stats().undrained_bytes, 0u) << node;
  }
  std::printf("%zu messages met a fate, %zu fsyncs said so\n", points, told);
  for (const PeerMethod method :
       {PeerMethod::kFix, PeerMethod::kWriteOut, PeerMethod::kBrought, PeerMethod::kDrain})
    EXPECT_GT(met_[static_cast<size_t>(method)], 0) << static_cast<int>(method);
  EXPECT_GT(told, 4u) << "canary: what is lost is told";
}

}  // namespace
}  // namespace swale::fs::job_fs_messages_test
