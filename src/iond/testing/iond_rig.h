// IondTest: I/O servers and their clients, as ranks in threads of one process.
// Threads: each test is its own; its bodies run on the threads of the ranks.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <latch>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "iond/iond.h"
#include "net/fabric/loopback_transport.h"
#include "net/meeting/bootstrap.h"
#include "tier/store/testing/described_fault_device.h"

namespace swale::iond::iond_test {

inline tier::StoreOptions store_options(const std::string& root, int32_t server) {
  tier::StoreOptions options;
  options.ssd_directory = fmt::format("{}/ssd{}", root, server);
  options.backing_directory = fmt::format("{}/disk{}", root, server);
  options.engine.segment_count = 4;
  options.engine.segment_bytes = 256 * kKiB;
  options.engine.queue_slots = 8;
  options.queue_slots = 16;
  options.slot_bytes = 32 * kKiB;
  return options;
}

class IondTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::current_path() / "iond-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
    options_.stripe_bytes = kStripeBytesMin;
    options_.deadline = seconds(20);
    options_.watch = milliseconds(50);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  struct RankOf {
    net::Rank rank;
    net::Job& job;
    Result<std::unique_ptr<Iond>>& iond;
    bool dies = false;  // set by the body: without any goodbye
  };
  // The first `servers` of `size` ranks serve; `body` is run by the others, and by all if there are no
  // others.
  void run_ranks(int32_t size, int32_t servers, const std::function<void(RankOf&)>& body,
                 const std::function<void(RankOf&)>& serve = {}) {
    net::JobOptions job_options;
    job_options.transport = "loopback";
    job_options.posting = "direct";
    job_options.collective_deadline = collective_deadline_;
    const auto group = std::make_shared<net::LocalGroup>(size);
    std::vector<std::thread> threads;
    std::latch ended(size);
    job_options.close_deadline = milliseconds(expect_clean_ ? 30'000 : 200);
    for (net::Rank rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        net::JobOptions of_rank = job_options;
        if (rank < servers) of_rank.collective_deadline = servers_collective_deadline_;
        auto job =
            net::Job::open(size == 1 ? net::solo_bootstrap() : net::local_bootstrap(group, rank), of_rank);
        ASSERT_TRUE(job.ok()) << job.status().to_string();
        tier::DescribedFaultDevice device;
        device.faults.set_hook([this](const io::Call& call) {
          if (call.kind == io::CallKind::kWrite) writes_held_.wait(true);
          return ok_status();
        });
        std::unique_ptr<tier::Store> store;
        std::optional<IondServing> serving;
        Status mine;
        if (rank < servers) {
          const tier::StoreOptions stored = store_options(root_, rank);
          std::filesystem::create_directories(stored.backing_directory);
          auto opened = tier::Store::open(device, stored);
          mine = opened.status();
          if (opened.ok()) {
            store = std::move(*opened);
            serving = IondServing{store.get(), stored.backing_directory};
          }
        }
        IondOptions options = options_;
        if (adjust_) adjust_(rank, &options);
        auto iond = Iond::open(**job, options, serving, mine);
        RankOf here{rank, **job, iond};
        if (rank >= servers || servers == size) {
          body(here);
        } else if (serve) {
          serve(here);
        }
        if (here.dies) {
          open_fabric()->kill(rank);
          ended.arrive_and_wait();
        } else if (iond.ok()) {
          const Status closed = (*iond)->close();
          if (rank >= servers && held_until_closed_) let_writes_go();
          EXPECT_TRUE(closed.ok() || !expect_clean_) << closed.to_string();
          {
            const MutexLock lock(told_mutex_);
            told_.push_back(closed.to_string());
          }
          ended.arrive_and_wait();
        } else {
          ended.arrive_and_wait();
        }
        iond = error(Code::kAborted, Scope::kFatal, "gone");
        const Status parted = here.dies ? Status() : (*job)->close();
        EXPECT_TRUE(parted.ok() || !expect_clean_) << parted.to_string();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void let_writes_go() {
    writes_held_ = false;
    writes_held_.notify_all();
  }

  // Storage of the only server hangs for `time` (none: until the client's close() has returned), beginning
  // with a write that fills the client's window there: when that was given up, nothing reaches the server
  // before it has gone on.
  void hang_and_close(std::optional<std::chrono::milliseconds> time) {
    held_until_closed_ = !time;
    options_.threads = 1;
    options_.deadline = seconds(2);  // of all requests: a busy machine, too, answers the others in time
    std::thread goes_on;
    run_ranks(2, 1, [&](RankOf& here) {
      ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
      auto file = (*here.iond)->open_file("f", kIondCreate);
      ASSERT_TRUE(file.ok()) << file.status().to_string();
      writes_held_ = true;
      const std::string data(kMiB - kIondAnswerBytesMax - 2 * kKiB, 'x');
      EXPECT_EQ((*here.iond)->write(*file, 0, data).code(), Code::kDeadlineExceeded);
      if (!time) return;
      goes_on = std::thread([this, time] {
        std::this_thread::sleep_for(*time);
        let_writes_go();
      });
    });
    if (goes_on.joinable()) goes_on.join();
  }

  static std::shared_ptr<net::LoopbackFabric> open_fabric() {
    for (uint64_t id = 1;; ++id)
      if (auto fabric = net::LoopbackFabric::find(id)) return fabric;
  }

  std::string root_;
  IondOptions options_;
  std::function<void(net::Rank, IondOptions*)> adjust_;
  bool expect_clean_ = true;
  bool held_until_closed_ = false;
  Nanos collective_deadline_ = net::JobOptions().collective_deadline;
  Nanos servers_collective_deadline_ = net::JobOptions().collective_deadline;
  std::atomic<bool> writes_held_ = false;  // on all ranks: they wait until it is not
  Mutex told_mutex_;
  std::vector<std::string> told_;  // what close said to each rank that lived
};

}  // namespace swale::iond::iond_test
