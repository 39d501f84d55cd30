// RemoteLocks: nodes as ranks with threads, over Rpc: grants that others wait for, cancellations, a node that
// is silent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <future>
#include <thread>

#include "fs/peers/remote_locks.h"
#include "net/meeting/bootstrap.h"

namespace swale::fs::remote_locks_test {
namespace {

constexpr meta::FileId kFile{1, 5};  // its root is node 1
constexpr FileLock kWrite{.type = LockType::kWrite, .owner = 3, .pid = 42};
constexpr FileLock kUnlock{.owner = 3};
constexpr Nanos kSoon = milliseconds(20);  // for what must not happen

struct Node final : PeerRequests {
  explicit Node(NodePeers& of) : peers(of), locks(of) {}

  std::future<int> begin(const FileLock& wanted, bool waits, uint64_t* number = nullptr) {
    auto answer = std::make_shared<std::promise<int>>();
    const uint64_t request = locks.begin([answer](int error) { answer->set_value(error); });
    if (number != nullptr) *number = request;
    locks.set(kFile, 9, wanted, waits, request);
    return answer->get_future();
  }
  int set(const FileLock& wanted, bool waits = false) { return begin(wanted, waits).get(); }
  Result<std::string> answer(PeerMethod method, NodeId from, Bytes payload) override {
    if (method == PeerMethod::kLives) return std::string();
    if (method == PeerMethod::kLockGranted && is_deaf) return errno_status(EIO, "deaf");
    return locks.answer(method, from, payload);
  }
  void barrier() { ASSERT_TRUE(job->allgather("").ok()); }

  NodePeers& peers;
  RemoteLocks locks;
  net::Job* job = nullptr;
  std::atomic<bool> is_deaf = false;  // to grants
};

void run_nodes(int32_t count, const std::function<void(Node&)>& body) {
  const auto group = std::make_shared<net::LocalGroup>(count);
  std::vector<std::thread> threads;
  for (net::Rank rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      net::JobOptions of_job;
      of_job.transport = "loopback";
      of_job.posting = "direct";
      auto job = net::Job::open(net::local_bootstrap(group, rank), of_job);
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      NodePeersOptions of_peers;
      of_peers.patience = seconds(60);
      of_peers.own = static_cast<NodeId>(rank);
      auto peers = NodePeers::open(**job, of_peers);
      ASSERT_TRUE(peers.ok()) << peers.status().to_string();
      Node node(**peers);
      node.job = job->get();
      ASSERT_TRUE((*peers)->start(&node).ok());
      ASSERT_TRUE(node.locks.start().ok());
      node.barrier();
      body(node);
      node.barrier();
      node.locks.stop();
      EXPECT_TRUE((*peers)->close().ok());
      EXPECT_TRUE((*job)->close().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RemoteLocks, AWaitEndsWithTheUnlockOfAnotherNode) {
  run_nodes(3, [](Node& node) {
    const NodeId own = node.peers.own();
    if (own == 0) {
      EXPECT_EQ(node.set(kWrite), 0);
    }
    node.barrier();
    if (own != 0) {
      EXPECT_EQ(node.set(kWrite), EAGAIN);
      const auto found = node.locks.get(kFile, kWrite);
      ASSERT_TRUE(found.ok()) << found.status().to_string();
      EXPECT_EQ(found->type, LockType::kWrite);
      EXPECT_EQ(found->pid, 0u) << "a process of another node";
    }
    node.barrier();
    std::future<int> waits;
    if (own != 0) waits = node.begin(kWrite, true);
    node.barrier();
    if (own == 0) {
      EXPECT_EQ(node.set(kUnlock), 0);
      return;
    }
    EXPECT_EQ(waits.get(), 0);
    EXPECT_EQ(node.set(kUnlock), 0);
  });
}

TEST(RemoteLocks, AnInterruptedWaitIsEintrAndIsNotGrantedLater) {
  run_nodes(2, [](Node& node) {
    if (node.peers.own() == 1) {
      EXPECT_EQ(node.set(kWrite), 0);
    }
    node.barrier();
    if (node.peers.own() == 0) {
      uint64_t number = 0;
      std::future<int> waits = node.begin(kWrite, true, &number);
      EXPECT_EQ(waits.wait_for(std::chrono::nanoseconds(kSoon)), std::future_status::timeout);
      node.locks.interrupt(number);
      EXPECT_EQ(waits.get(), EINTR);
    }
    node.barrier();
    if (node.peers.own() == 1) {
      EXPECT_EQ(node.set(kUnlock), 0);
      FileLock other = kWrite;
      other.owner = 4;
      EXPECT_EQ(node.set(other), 0);
    }
  });
}

// The message about the grant does not come: the node looks.
TEST(RemoteLocks, AGrantOfWhichNobodyHearsIsFoundByLooking) {
  run_nodes(2, [](Node& node) {
    std::future<int> waits;
    if (node.peers.own() == 1) {
      EXPECT_EQ(node.set(kWrite), 0);
    }
    node.barrier();
    if (node.peers.own() == 0) {
      node.is_deaf = true;
      waits = node.begin(kWrite, true);
    }
    node.barrier();
    if (node.peers.own() == 1) {
      EXPECT_EQ(node.set(kUnlock), 0);
    }
    if (node.peers.own() == 0) {
      EXPECT_EQ(waits.get(), 0);
    }
  });
}

TEST(RemoteLocks, LocksEndWithTheirOpenFileAndTheirOwner) {
  run_nodes(2, [](Node& node) {
    FileLock whole = kWrite;
    whole.kind = LockKind::kWhole;
    if (node.peers.own() == 0) {
      EXPECT_EQ(node.set(kWrite), 0);
      EXPECT_EQ(node.set(whole), 0);
      EXPECT_TRUE(node.locks.end_owner(kFile, 3).ok());
    }
    node.barrier();
    if (node.peers.own() == 1) {
      EXPECT_EQ(node.set(kWrite), 0);
      EXPECT_EQ(node.set(whole), EAGAIN) << "flock's do not end so";
    }
    node.barrier();
    if (node.peers.own() == 0) {
      EXPECT_TRUE(node.locks.end_handle(kFile, 9).ok());
    }
    node.barrier();
    if (node.peers.own() == 1) {
      EXPECT_EQ(node.set(whole), 0);
    }
  });
}

TEST(RemoteLocks, AtTheEndNothingWaitsAndTheRootHasForgotten) {
  run_nodes(2, [](Node& node) {
    if (node.peers.own() == 1) {
      EXPECT_EQ(node.set(kWrite), 0);
    }
    node.barrier();
    if (node.peers.own() == 0) {
      std::future<int> waits = node.begin(kWrite, true);
      node.locks.end_waits();
      EXPECT_EQ(waits.get(), ENOTCONN);
    }
    node.barrier();
    if (node.peers.own() == 1) {
      EXPECT_EQ(node.set(kUnlock), 0);
      FileLock other = kWrite;
      other.owner = 4;
      EXPECT_EQ(node.set(other), 0);
    }
  });
}

TEST(RemoteLocks, MessagesThatAreNoneAreRefused) {
  run_nodes(2, [](Node& node) {
    if (node.peers.own() == 0) {
      LockMessage message{.number = 1, .file = kFile};
      message.wanted = {1, kWrite};  // as another node
      const auto call = [&](PeerMethod method, const std::string& bytes) {
        return node.peers.call(1, method, bytes, 128, "forged").ok();
      };
      EXPECT_FALSE(call(PeerMethod::kLock, encode(message)));
      message.wanted.node = 0;
      message.file.high = 0;  // of another root
      EXPECT_FALSE(call(PeerMethod::kLock, encode(message)));
      EXPECT_FALSE(call(PeerMethod::kLock, "garbage"));
      EXPECT_FALSE(call(PeerMethod::kLockGranted, "g"));
      EXPECT_TRUE(call(PeerMethod::kLockNodeGone, std::string(8, '\1'))) << "and does nothing";
    }
  });
}

}  // namespace
}  // namespace swale::fs::remote_locks_test
