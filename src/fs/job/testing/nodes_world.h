// Several nodes of a job with one tree, in one process and without a kernel: opened, killed and opened again
// on the same folders.
//
// Threads: one; those of the nodes' servers go on meanwhile.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "fs/job/job_fs.h"
#include "fs/testing/file_system_calls.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "io/posix_device.h"
#include "meta/store/job_names.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"

namespace swale::fs {

class NodesWorld {
 public:
  // kLosesPower: the folders of each node are on a disk of its own, and fsync does not drain.
  enum class Storage { kPlain, kLosesPower };
  explicit NodesWorld(size_t nodes, Storage storage = Storage::kPlain)
      : old_mask_(::umask(0)), kind_(storage), nodes_(nodes) {
    root_ = (std::filesystem::current_path() / "job-nodes-XXXXXX").string();
    EXPECT_NE(::mkdtemp(root_.data()), nullptr);
    memory_ = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/swale-nodes-XXXXXX" : root_ + "/memory-XXXXXX";
    EXPECT_NE(::mkdtemp(memory_.data()), nullptr);
    std::filesystem::create_directory(backing());
  }
  ~NodesWorld() {
    stop();
    ::umask(old_mask_);
    std::filesystem::remove_all(root_);
    std::filesystem::remove_all(memory_);
  }
  NodesWorld(const NodesWorld&) = delete;
  NodesWorld& operator=(const NodesWorld&) = delete;

  std::string backing() const { return root_ + "/backing"; }
  std::string folder(size_t number) const {
    return fmt::format("{}/node{}", kind_ == Storage::kPlain ? root_ : "", number);
  }
  std::string memory(size_t number) const { return fmt::format("{}/node{}", memory_, number); }
  std::string state(size_t node) const { return folder(node) + "/state"; }
  io::FaultDevice& disk(size_t node) { return nodes_[node].faulty; }  // of kLosesPower
  size_t nodes() const { return nodes_.size(); }
  JobFs& fs(size_t node) { return *nodes_[node].fs; }
  FileSystemCalls& calls(size_t node) { return *nodes_[node].calls; }
  meta::NamesClient& names(size_t node) { return nodes_[node].names->client(); }
  // Of all nodes, before start().
  uint64_t memory_bytes = 32 * kMiB;
  DrainRules drain_rules;
  ShareRules share_rules;
  LogRules log_rules;
  bool commits = true;
  bool unseal_takes_back = true;
  std::function<Status(size_t node)> expect_own;  // whether the backing is still this node's
  std::function<void(size_t node)> between;       // the backing's and the names' change
  std::function<CallFate(PeerMethod)> fate;       // of what nodes ask each other
  Nanos patience = seconds(60);
  std::function<void(JobFsOptions&)> adjust;

  void start() {
    const auto group = std::make_shared<net::LocalGroup>(static_cast<int32_t>(nodes_.size()));
    on_all([&](size_t number, Node& node) {
      net::JobOptions of_job;
      of_job.transport = "loopback";
      of_job.posting = "direct";
      auto job = net::Job::open(net::local_bootstrap(group, static_cast<net::Rank>(number)), of_job);
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      node.job = std::move(*job);
      const std::string own = folder(number);
      meta::JobNamesOptions of_names;
      of_names.deadline = patience;
      auto names = meta::JobNames::open(*node.job, storage(node), own + "/names", of_names);
      ASSERT_TRUE(names.ok()) << names.status().to_string();
      node.names = std::move(*names);
      NodePeersOptions of_peers;
      of_peers.patience = patience;
      of_peers.fate = fate;
      node.names->with_server([&](meta::NamesServer& server) { of_peers.own = server.server(); });
      auto peers = NodePeers::open(*node.job, of_peers);
      ASSERT_TRUE(peers.ok()) << peers.status().to_string();
      node.peers = std::move(*peers);
      JobFsOptions options;
      options.backing = backing();
      options.job = "test";
      options.state_folder = state(number);
      options.fsync_drains = kind_ == Storage::kPlain;
      options.logs.outlives_power = !options.fsync_drains;
      options.logs.rules = log_rules;
      options.logs.memory_directory = memory(number);
      options.logs.spill_directory = own + "/spill";
      options.logs.memory_bytes = memory_bytes;
      options.logs.shape.node = "here";
      options.logs.shape.wait_ns = 60'000'000'000;
      options.drains_alone = false;
      options.drain_rules = drain_rules;
      options.share_rules = share_rules;
      options.commits = commits;
      if (between) options.between = [this, number] { between(number); };
      options.unseal_takes_back = unseal_takes_back;
      if (adjust) adjust(options);
      if (expect_own) options.expect_own = [this, number] { return expect_own(number); };
      auto fs = JobFs::open(node.names->client(), node.device, storage(node), anchored(node), options,
                            node.peers.get());
      ASSERT_TRUE(fs.ok()) << fs.status().to_string();
      node.fs = std::move(*fs);
      node.calls = std::make_unique<FileSystemCalls>(*node.fs);
    });
  }
  // The server of a node is killed; the others notice that it is gone. stop() comes next.
  void kill(size_t number) {
    Node& node = nodes_[number];
    node.calls.reset();
    node.fs->rest();
    node.peers.reset();
    node.fs.reset();
    node.names.reset();
    node.job.reset();
    killed_ = true;
  }
  // As a kill leaves it: nothing is drained.
  void stop() {
    if (std::exchange(killed_, false))
      for (size_t number = 0; number < nodes_.size(); ++number)
        if (nodes_[number].job != nullptr) kill(number);
    killed_ = false;
    stop_all(true);
  }
  // Of these nodes; the servers of the others are killed. The backing keeps all that it has been told.
  void lose_power(std::span<const size_t> which, uint64_t seed, io::CrashMode mode) {
    Rng rng(seed);
    for (const size_t number : which) nodes_[number].disk.crash(rng, mode);
    stop_all(false);
    for (const size_t number : which) std::filesystem::remove_all(memory(number));
    for (Node& node : nodes_) node.faulty.clear();
    start();
  }
  void restart() {
    stop();
    start();
  }

 private:
  struct Node {
    io::PosixDevice device;
    io::MemoryDevice disk;
    io::FaultDevice faulty{disk};
    std::unique_ptr<io::Device> anchored;
    std::unique_ptr<net::Job> job;
    std::unique_ptr<meta::JobNames> names;
    std::unique_ptr<NodePeers> peers;
    std::unique_ptr<JobFs> fs;
    std::unique_ptr<FileSystemCalls> calls;
  };

  void stop_all(bool is_clean) {
    if (nodes_[0].job == nullptr) return;
    on_all([&](size_t, Node& node) {
      const auto expect_ok = [&](const Status& status) {
        EXPECT_TRUE(status.ok() || !is_clean) << status.to_string();
      };
      node.calls.reset();
      node.fs->rest();
      expect_ok(node.peers->close());
      node.fs.reset();
      node.peers.reset();
      expect_ok(node.names->close());
      node.names.reset();
      expect_ok(node.job->close());
      node.job.reset();
    });
  }
  io::Device& storage(Node& node) {
    return kind_ == Storage::kPlain ? static_cast<io::Device&>(node.device) : node.faulty;
  }

  // Each on a thread: what is done is collective.
  template <class Act>
  void on_all(const Act& act) {
    std::vector<std::thread> threads;
    for (size_t number = 0; number < nodes_.size(); ++number)
      threads.emplace_back([&, number] { act(number, nodes_[number]); });
    for (std::thread& thread : threads) thread.join();
  }
  io::Device& anchored(Node& node) {
    if (!node.anchored) {
      io::PosixOptions options;
      options.links = io::PosixOptions::Links::kNone;
      auto made = io::PosixDevice(options).anchored(backing());
      EXPECT_TRUE(made.ok()) << made.status().to_string();
      node.anchored = std::move(*made);
    }
    return *node.anchored;
  }

  const mode_t old_mask_;
  const Storage kind_;
  std::string root_;
  std::string memory_;
  std::vector<Node> nodes_;
  bool killed_ = false;
};

}  // namespace swale::fs
