// Nodes that share files over Rpc: ranks with threads, each with real logs: what they see of each other, and
// what becomes of messages that are none. tests/faults/share_ranks_test.cc has processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <thread>

#include "base/rng.h"
#include "fs/node/testing/node_rig.h"
#include "fs/peers/peer_messages.h"
#include "fs/peers/remote_peers.h"
#include "net/meeting/bootstrap.h"

namespace swale::fs::peers_test {
namespace {

using testing::HasSubstr;

constexpr meta::FileId kShared{1, 5};  // its root is node 1
const char kOld[] = "0123456789ab";

struct Node {
  NodePeers& peers;
  RemotePeers& remote;
  SharedFiles& shared;
  Mutex& mutex;
  NodeFiles& files;
  LogWriter& writer;
  net::Job& job;

  void write(uint64_t offset, const std::string& bytes) const {
    {
      const MutexLock lock(mutex);
      ASSERT_TRUE(files.serve().ok());  // memory for it
    }
    ASSERT_EQ(writer.write(kShared, offset, bytes.data(), bytes.size()), static_cast<int64_t>(bytes.size()));
  }
  void commit() const {
    const Status done = shared.commit(kShared);
    ASSERT_TRUE(done.ok()) << done.to_string();
  }
  std::string read(uint64_t offset = 0, size_t bytes = 1000) const {
    std::string out(bytes, '?');
    const auto got = shared.read(kShared, offset, out);
    return got.ok() ? out.substr(0, *got) : "(" + std::string(got.status().message()) + ")";
  }
  void barrier() const { ASSERT_TRUE(job.allgather("").ok()); }
};

// `requests`: what answers in place of RemotePeers.
void run_nodes(int32_t count, const std::function<void(Node&)>& body,
               const std::function<PeerRequests*(NodeId)>& requests = {}, Nanos patience = seconds(60)) {
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
      of_peers.patience = patience;
      of_peers.own = static_cast<NodeId>(count - 1 - rank);
      auto peers = NodePeers::open(**job, of_peers);
      ASSERT_TRUE(peers.ok()) << peers.status().to_string();

      Folder memory(memory_base()), storage(testing::TempDir());
      io::PosixDevice device;
      io::MemoryDevice disk;
      ASSERT_TRUE(disk.make_directory("/b").ok());
      ASSERT_TRUE(disk.sync_directory("/").ok());
      put_file(disk, "/b/file", kOld);
      NamedBacking backing(disk, "/b");
      backing.names[kShared] = "file";
      auto roots = KeptRoots::open(device, storage.path() + "/roots");
      ASSERT_TRUE(roots.ok()) << roots.status().to_string();
      RemotePeers remote(**peers, **roots);
      Mutex mutex;
      SharedFiles shared((*peers)->own(), remote, mutex);
      NodeLogsOptions of_logs;
      of_logs.memory_directory = memory.path() + "/node";
      of_logs.spill_directory = storage.path() + "/spill";
      of_logs.memory_bytes = 64 * kMiB;
      of_logs.shape.node = "here";
      auto files = NodeFiles::open(device, device, of_logs, backing, &shared);
      ASSERT_TRUE(files.ok()) << files.status().to_string();
      ASSERT_TRUE((*files)->open_file(kShared).ok());
      const auto log = (*files)->logs().add_log();
      ASSERT_TRUE(log.ok());
      LogWriter writer;
      ASSERT_EQ(writer.attach(of_logs.memory_directory.c_str(), *log), 0);
      shared.start(files->get());
      PeerRequests* const other = requests ? requests((*peers)->own()) : nullptr;
      const Status started = other != nullptr ? (*peers)->start(other) : remote.start(&shared);
      ASSERT_TRUE(started.ok()) << started.to_string();
      Node node{**peers, remote, shared, mutex, **files, writer, **job};
      body(node);
      EXPECT_TRUE((*peers)->close().ok());
      EXPECT_TRUE((*job)->close().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Peers, NodesSeeEachOthersCommitsAndReservedPlaces) {
  run_nodes(3, [](Node& node) {
    const NodeId own = node.peers.own();
    node.write(own * 2, std::string(2, static_cast<char>('A' + own)));
    node.barrier();
    EXPECT_EQ(node.read().size(), 12u);
    node.commit();
    node.barrier();
    EXPECT_EQ(node.read(), "AABBCC6789ab");
    node.barrier();
    const auto place = node.shared.reserve(kShared, 4);
    ASSERT_TRUE(place.ok()) << place.status().to_string();
    EXPECT_EQ(*place % 4, 0u);
    node.write(*place, std::string(4, static_cast<char>('a' + own)));
    node.commit();
    node.barrier();
    const std::string whole = node.read();
    EXPECT_EQ(whole.size(), 24u);
    for (const char each : {'a', 'b', 'c'}) EXPECT_THAT(whole.substr(12), HasSubstr(std::string(4, each)));
    node.barrier();
    if (own == 2) {
      EXPECT_TRUE(node.shared.truncate(kShared, 3).ok());
    }
    node.barrier();
    EXPECT_EQ(node.read(), "AAB");
    const auto size = node.shared.size(kShared);
    EXPECT_TRUE(size.ok() && *size == 3);
  });
}

// More than a message takes, of bytes and of parts.
TEST(Peers, LongReadsTakeSeveralMessages) {
  run_nodes(2, [](Node& node) {
    constexpr uint64_t kBytes = 2 * kFetchBytesMax + 12'345, kSmall = 8'000;
    if (node.peers.own() == 0) {
      std::string bytes(kBytes, 'x');
      for (uint64_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>('a' + i % 23);
      for (uint64_t at = 0; at < kBytes; at += kMiB)
        node.write(at, bytes.substr(at, std::min<uint64_t>(kMiB, kBytes - at)));
      for (uint64_t i = 0; i < kSmall; ++i) node.write(kBytes + 2 * i + 1, "s");
      node.commit();
    }
    node.barrier();
    const std::string all = node.read(0, kBytes + 2 * kSmall);
    ASSERT_EQ(all.size(), kBytes + 2 * kSmall);
    for (uint64_t i = 0; i < kBytes; ++i) ASSERT_EQ(all[i], static_cast<char>('a' + i % 23)) << i;
    for (uint64_t i = 0; i < 2 * kSmall; ++i) ASSERT_EQ(all[kBytes + i], i % 2 == 1 ? 's' : '\0') << i;
    node.barrier();
  });
}

// Each bit of each request, and each length: an error, or a request of this file.
TEST(Peers, ForgedRequestsAreErrorsAndHarmNothing) {
  run_nodes(2, [](Node& node) {
    node.write(node.peers.own() * 3, "ABC");
    node.commit();
    node.barrier();
    if (node.peers.own() == 0) {
      ShareRequest commit{.op = ShareOp::kCommit, .node = 0, .file = kShared, .order = 1};
      commit.spans = {{1, 2}, {5, 9}};  // an old order: obeyed by nobody
      const ShareRequest look{.op = ShareOp::kLook, .node = 0, .file = kShared, .span = {0, 100}};
      const std::pair<PeerMethod, std::string> all[] = {
          {PeerMethod::kAsk, encode(look)},
          {PeerMethod::kAsk, encode(commit)},
          {PeerMethod::kFetch, encode(FetchRequest{kShared, {{3, 4}, {5, 6}}})},
      };
      uint64_t refused = 0, answered = 0;
      for (const auto& [method, whole] : all) {
        const auto send = [&, method = method](std::string bytes) {
          // What is forged to be a change by this node is one: only those that change nothing here are sent.
          const auto request = decode_share_request(bytes);
          if (method == PeerMethod::kAsk && request.ok() && request->op != ShareOp::kLook &&
              request->file == kShared && request->node == 0 && request->order != 1)
            return;
          const auto answer = node.peers.call(1, method, std::move(bytes), kMiB, "forged");
          answer.ok() ? ++answered : ++refused;
        };
        EXPECT_TRUE(node.peers.call(1, method, whole, kMiB, "whole").ok());
        for (size_t length = 0; length < whole.size(); ++length) send(whole.substr(0, length));
        for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
          std::string bytes = whole;
          bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
          send(std::move(bytes));
        }
      }
      Rng rng(5);
      for (int i = 0; i < 300; ++i) {
        std::string bytes(rng.below(200), '\0');
        for (char& each : bytes) each = static_cast<char>(rng.below(256));
        EXPECT_FALSE(node.peers.call(1, PeerMethod::kFetch, bytes, kMiB, "forged").ok());
        EXPECT_FALSE(node.peers.call(1, static_cast<PeerMethod>(50 + i), bytes, kMiB, "forged").ok());
      }
      std::printf("%lu refused, %lu answered\n", refused, answered);
      EXPECT_GT(refused, 500u);
      EXPECT_GT(answered, 100u) << "looks at other places";
    }
    node.barrier();
    EXPECT_EQ(node.read(), "ABCABC6789ab");
    node.barrier();
  });
}

// Each length and each bit: an error, or a message whose numbers can be used. How many are refused.
template <class Decode, class Use>
uint64_t forge(const std::string& whole, const Decode& decode, const Use& use) {
  uint64_t refused = 0;
  EXPECT_TRUE(decode(whole).ok());
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_FALSE(decode(whole.substr(0, length)).ok());
  EXPECT_FALSE(decode(whole + "x").ok());
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    const auto decoded = decode(bytes);
    if (decoded.ok())
      use(*decoded);
    else
      ++refused;
  }
  return refused;
}

TEST(Peers, ForgedMessagesOfDrainsAndNamesAreRefusedOrAreWhatTheySay) {
  DrainStep step{
      .file = {1, 2}, .drain = 3, .backing = {4, 5, 6}, .path = "a/b", .touched = {{7, 8}, 9, -10}};
  step.spans = {{0, 10}, {20, 30}, {40, 50}};
  EXPECT_GT(forge(encode(step), decode_drain_step,
                  [](const DrainStep& each) {
                    uint64_t end = 0;
                    for (const Span& span : each.spans) {
                      EXPECT_TRUE(end <= span.begin && span.begin < span.end && span.end <= meta::kOffsetEnd);
                      end = span.end;
                    }
                  }),
            20u);
  const DrainWish wish{
      .file = {1, 2}, .backing = {4, 5, 6}, .places = {{{0, 1}, "d", {1, 9}}, {{1, 9}, "f", {1, 2}}}};
  EXPECT_GT(
      forge(encode(wish), decode_drain_wish, [](const DrainWish& each) { EXPECT_FALSE(each.file.none()); }),
      5u);
  EXPECT_GT(forge(encode(SealStep{{1, 2}, SealOp::kSeal}), decode_seal_step,
                  [](const SealStep& each) { EXPECT_FALSE(each.file.none()); }),
            5u);
  EXPECT_GT(forge(encode(SealAnswer{3, "process 7"}), decode_seal_answer, [](const SealAnswer&) {}), 5u);
  // All bits of these say something: what is turned is another file, or another number.
  EXPECT_EQ(forge(encode(FileStep{{1, 2}}), decode_file_step,
                  [](const FileStep& each) { EXPECT_FALSE(each.file.none()); }),
            0u);
  EXPECT_FALSE(decode_file_step(encode(FileStep{})).ok());
  EXPECT_EQ(forge(encode(PagesAnswer{3}), decode_pages_answer, [](const PagesAnswer&) {}), 0u);
  const NameNews news{{1, 2}, meta::NodeType::kFile, false, {0, 1}, "name"};
  EXPECT_GT(
      forge(encode(news), decode_name_news,
            [](const NameNews& each) { EXPECT_TRUE(each.gone || each.name.find('/') == std::string::npos); }),
      5u);
  EXPECT_FALSE(decode_name_news(encode(NameNews{{1, 2}, meta::NodeType::kFile, false, {0, 1}, ".."})).ok());
}

class Garbage final : public PeerRequests {
 public:
  Result<std::string> answer(PeerMethod, NodeId, Bytes) override { return std::string("garbage"); }
};

TEST(Peers, AnAnswerThatIsNoneIsEioAndNamesNodeAndFile) {
  Garbage garbage;
  run_nodes(
      2,
      [](Node& node) {
        if (node.peers.own() == 0) {
          const auto size = node.shared.size(kShared);
          EXPECT_EQ(size.status().posix_error(), EIO);
          EXPECT_THAT(size.status().message(), HasSubstr("file 1:5: its root: node 1"));
          node.write(0, "X");
          EXPECT_EQ(node.shared.commit(kShared).posix_error(), EIO);
          std::string bytes(700'000, '?');  // some pieces
          const SharePeers::Wanted wanted{{5, 700'005}, bytes};
          const Status fetched = node.remote.fetch(1, kShared, {&wanted, 1});
          EXPECT_EQ(fetched.posix_error(), EIO);
          EXPECT_THAT(fetched.message(), HasSubstr("file 1:5: node 1: its answer lacks"));
        }
        node.barrier();
      },
      [&](NodeId node) { return node == 1 ? &garbage : nullptr; });
}

class Silent final : public PeerRequests {
 public:
  Result<std::string> answer(PeerMethod, NodeId, Bytes) override {
    const MutexLock lock(mutex_);
    go_on_.wait(lock, [this]() REQUIRES(mutex_) { return over_; });
    return std::string();
  }
  void end() {
    const MutexLock lock(mutex_);
    over_ = true;
    go_on_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar go_on_;
  bool over_ GUARDED_BY(mutex_) = false;
};

TEST(Peers, ASilentNodeIsEioAtTheDeadline) {
  Silent silent;
  run_nodes(
      2,
      [&](Node& node) {
        if (node.peers.own() == 0) {
          node.write(0, "X");
          const Status failed = node.shared.commit(kShared);
          EXPECT_EQ(failed.posix_error(), EIO);
          EXPECT_THAT(failed.message(), HasSubstr("file 1:5: its root: node 1"));
          silent.end();
        }
        node.barrier();
      },
      [&](NodeId node) { return node == 1 ? &silent : nullptr; }, milliseconds(300));
}

// Answers when as many nodes have been asked.
class Together : public PeerRequests {
 public:
  explicit Together(size_t nodes) : nodes_(nodes) {}
  Result<std::string> answer(PeerMethod method, NodeId, Bytes) override {
    if (method != PeerMethod::kTakeBack) return std::string();
    const MutexLock lock(mutex_);
    ++asked_;
    all_.notify_all();
    all_.wait(lock, [this]() REQUIRES(mutex_) { return asked_ >= nodes_; });
    return std::string();
  }

 private:
  const size_t nodes_;
  Mutex mutex_;
  CondVar all_;
  size_t asked_ GUARDED_BY(mutex_) = 0;
};

// A job without one of its nodes: nobody waits for it.
TEST(Peers, ANodeThatIsAtNoRankIsEioAtOnce) {
  const auto group = std::make_shared<net::LocalGroup>(1);
  net::JobOptions of_job;
  of_job.transport = "loopback";
  auto job = net::Job::open(net::local_bootstrap(group, 0), of_job);
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  NodePeersOptions options;
  options.own = 2;
  options.nodes = 3;
  auto peers = NodePeers::open(**job, options);
  ASSERT_TRUE(peers.ok()) << peers.status().to_string();
  EXPECT_EQ((*peers)->nodes(), 3u);
  const auto one = (*peers)->call(1, PeerMethod::kLives, "", kSmallAnswer, "file 1:5");
  EXPECT_EQ(one.status().error_number(), EIO);
  EXPECT_THAT(one.status().to_string(), HasSubstr("file 1:5: node 1 is lost"));
  const std::vector<NodeId> both = {0, 1};
  for (const auto& each : (*peers)->call_all(both, PeerMethod::kLives, "", kSmallAnswer, "file 1:5"))
    EXPECT_EQ(each.status().error_number(), EIO);
  std::string bytes(10, '?');
  const SharePeers::Wanted wanted{{0, 10}, MutableBytes(bytes)};
  EXPECT_EQ(fetch_from(**peers, 0, kShared, {&wanted, 1}).error_number(), EIO);
  EXPECT_TRUE((*peers)->close().ok());
  EXPECT_TRUE((*job)->close().ok());
}

TEST(Peers, NodesWithMapsAreAskedAtOnceToLetThemGo) {
  Together holders(2);
  run_nodes(
      3,
      [&](Node& node) {
        if (node.peers.own() == 2) {
          const Status taken = node.remote.take_back(kShared, {{0, 1}, {1, 2}});
          EXPECT_TRUE(taken.ok()) << taken.to_string();
        }
        node.barrier();
      },
      [&](NodeId node) { return node == 2 ? nullptr : &holders; });
}

TEST(Peers, CanaryOneAfterTheOtherTheFirstDoesNotAnswer) {
  Together holders(2);
  run_nodes(
      3,
      [&](Node& node) {
        if (node.peers.own() == 2) {
          const auto ask = [&](NodeId to, Nanos patience) {
            return node.peers.call(to, PeerMethod::kTakeBack, "", kSmallAnswer, "a map", patience);
          };
          EXPECT_EQ(ask(0, milliseconds(300)).status().posix_error(), EIO);
          EXPECT_TRUE(ask(1, seconds(60)).ok());
        }
        node.barrier();
      },
      [&](NodeId node) { return node == 2 ? nullptr : &holders; });
}

}  // namespace
}  // namespace swale::fs::peers_test
