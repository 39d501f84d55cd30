// A pass by processes over TLS, of which one is killed at a call of its storage: the others end, by name,
// answers are what they were, and the next pass, by another number of ranks, ends.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/log.h"
#include "imd/format/cluster_list.h"
#include "imd/optimize/optimizer.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/fault_device.h"
#include "io/posix_device.h"
#include "net/fabric/tls_fabric.h"
#include "net/job/job.h"
#include "net/meeting/rendezvous.h"

namespace swale::imd::ranks_process_test {
namespace {

// How a rank ends.
constexpr int kDone = 0;
constexpr int kNamed = 1;  // failed, and named the victim, or one that has ended because of it
constexpr int kOther = 2;

class RankProcesses : public testing::Test {
 protected:
  RankProcesses() {
    char path[] = "/tmp/swale_ranks_XXXXXX";
    folder_ = ::mkdtemp(path);
    directory_ = folder_ + "/dir";
    set_log_level(LogLevel::kOff);
    net::register_fabric(net::tls_fabric());
  }
  ~RankProcesses() override {
    set_log_level(LogLevel::kWarn);
    EXPECT_EQ(std::system(("rm -rf '" + folder_ + "'").c_str()), 0);
  }

  void write() {
    io::PosixDevice device({}, folder_);
    run_ranks(1, [&](net::Job& job) {
      WriterOptions options;
      options.memory_bytes = 20 * kMiB;
      auto writer = Writer::open(job, device, directory_, Create::kIfMissing, options);
      ASSERT_TRUE(writer.ok()) << writer.status().to_string();
      for (int epoch = 0; epoch < 3; ++epoch) {
        for (int key = 0; key < 300; ++key) {
          const std::string value = fmt::format("{} of {}", epoch, key);
          ASSERT_TRUE((*writer)->append(fmt::format("key {}", key), value).ok());
        }
        ASSERT_TRUE((*writer)->epoch_end(epoch, 0).ok());
      }
      ASSERT_TRUE((*writer)->close().ok());
    });
  }

  using Found = std::vector<std::tuple<std::string, uint32_t, std::string>>;
  Found ask() {
    io::PosixDevice device({}, folder_);
    Found all;
    const auto reader = Reader::open(device, directory_, {});
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    for (int key = 0; reader.ok() && key < 302; ++key) {
      const std::string name = fmt::format("key {}", key);
      const auto found = (*reader)->get(name, Reader::kAllEpochs);
      if (!found.ok()) continue;
      for (const Value& value : *found) all.emplace_back(name, value.epoch, value.bytes);
    }
    return all;
  }

  // One rank's part of a pass; the victim is killed at its n-th call.
  int pass(net::Rank rank, int32_t size, net::Rank victim, uint64_t nth) const {
    io::PosixDevice posix({}, folder_);
    io::FaultDevice device(posix);
    std::atomic<uint64_t> calls{0};
    if (rank == victim) {
      device.set_hook([&](const io::Call&) {
        if (++calls == nth) ::raise(SIGKILL);
        return Status();
      });
    }
    auto bootstrap = net::rendezvous_bootstrap({.directory = folder_ + "/meeting",
                                                .job_id = fmt::format("{}-{}", size, nth),
                                                .node_id = "one",
                                                .rank = rank,
                                                .size = size});
    if (!bootstrap.ok()) return say(bootstrap.status());
    net::JobOptions of_job;
    of_job.transport = "tls";
    auto job = net::Job::open(std::move(*bootstrap), of_job);
    if (!job.ok()) return say(job.status());
    OptimizeOptions options;
    options.memory_bytes = kOptimizeMemoryMin;
    options.full = true;
    options.threads = 1;
    options.job = job->get();
    const auto report = optimize_directory(device, directory_, options);
    Status ended = (*job)->close();
    if (!report.ok()) ended = report.status();
    if (ended.ok()) return kDone;
    return ended.message().find("rank ") != std::string_view::npos ? kNamed : say(ended);
  }

  // How each rank ended; -1: killed.
  std::vector<int> run(int32_t size, net::Rank victim, uint64_t nth) {
    std::vector<pid_t> children;
    for (net::Rank rank = 0; rank < size; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(pass(rank, size, victim, nth));
      children.push_back(child);
    }
    std::vector<int> ends;
    for (const pid_t child : children) {
      int status = 0;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      ends.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return ends;
  }

 private:
  static int say(const Status& status) {
    fmt::print(stderr, "{}\n", status.to_string());
    return kOther;
  }

  std::string folder_;
  std::string directory_;
};

TEST_F(RankProcesses, OneIsKilledAtACallOfItsStorage) {
  write();
  const Found before = ask();
  ASSERT_EQ(before.size(), 900u);
  uint64_t killed = 0;
  // Without a victim first: it says that a pass ends when nobody is killed.
  EXPECT_EQ(run(3, -1, 1), std::vector<int>(3, kDone));
  EXPECT_TRUE(ask() == before);
  for (const net::Rank victim : {0, 2}) {
    for (uint64_t nth = 1; nth < 2'000; nth += 23) {
      const std::vector<int> ends = run(3, victim, nth);
      if (ends[static_cast<size_t>(victim)] != -1) break;  // it makes fewer calls
      ++killed;
      for (net::Rank rank = 0; rank < 3; ++rank) {
        // Killed after the commit, or after all have agreed, it may leave others that are done.
        const int end = ends[static_cast<size_t>(rank)];
        EXPECT_TRUE(rank == victim || end == kNamed || end == kDone) << rank << " at " << nth << ": " << end;
      }
      EXPECT_TRUE(ask() == before) << "rank " << victim << " at call " << nth;
      EXPECT_EQ(run(2, -1, nth), std::vector<int>(2, kDone)) << "rank " << victim << " at call " << nth;
      EXPECT_TRUE(ask() == before) << "rank " << victim << " at call " << nth;
      if (HasFailure()) return;
    }
  }
  fmt::print("killed at {} calls\n", killed);
  EXPECT_GT(killed, 5u);
}

}  // namespace
}  // namespace swale::imd::ranks_process_test
