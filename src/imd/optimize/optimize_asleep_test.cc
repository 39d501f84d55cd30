// Two passes, one asleep: a process that merges clusters is stopped at a call of its storage, other passes
// take its lock over and end, and it wakes. Answers are those of the epochs, the list of clusters stays that
// of the other passes, and no file of a live cluster changes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <map>
#include <string>

#include "base/log.h"
#include "imd/check/verify.h"
#include "imd/format/cluster_list.h"
#include "imd/testing/test_free.h"
#include "io/fault_device.h"
#include "io/lock_content.h"
#include "io/posix_device.h"

namespace swale::imd::optimize_asleep_test {
namespace {

using test::Answers;

constexpr uint64_t kKeys = 8;
constexpr uint32_t kClaim = 4;  // the number that the merging pass claims
constexpr uint64_t kStride = 7;

// When the pass fell asleep.
enum Phase : size_t { kBeforeClaim, kBeforeCommit, kAfterCommit, kPhases };
// What others do meanwhile.
enum class Others { kPass, kFailAndPass, kPassAndFree };

using Files = std::map<std::string, std::string>;

void read_tree(io::Device& device, const std::string& path, Files* files) {
  const auto names = device.list(path);
  if (names.ok()) {
    for (const std::string& name : *names) read_tree(device, path + "/" + name, files);
  } else if (const auto bytes = io::read_file(device, path, kGiB); bytes.ok()) {
    files->emplace(path, *bytes);
  }
}

// A lease that soon lapses. How long the lock of a pass that sleeps is watched is what the pass itself says.
OptimizeOptions pass_options(bool full) {
  OptimizeOptions options = test::small_pass();
  options.full = full;
  options.threads = 1;
  options.lease.lease = io::kLeaseMin;
  return options;
}

class Asleep : public testing::Test {
 protected:
  Asleep() {
    char path[] = "/tmp/swale_asleep_XXXXXX";
    folder_ = ::mkdtemp(path);
    set_log_level(LogLevel::kOff);
  }
  ~Asleep() override {
    set_log_level(LogLevel::kWarn);
    std::filesystem::remove_all(folder_);
  }

  // Three clusters of one epoch each, and an epoch that no cluster has: the next pass merges all. `freed`:
  // the first three epochs have no logs any more.
  void make_base(bool freed) {
    for (uint64_t job = 1; job <= 4; ++job) {
      test::write_job(device_, {.epochs = 1, .records = 30, .keys = kKeys}, job, base());
      if (job < 4) {
        ASSERT_TRUE(optimize_directory(device_, base(), pass_options(false)).ok());
      }
      if (job == 3 && freed) {
        ASSERT_TRUE(test::free_logs(device_, "none", base()).ok());
      }
    }
    before_ = test::ask_directory(device_, kKeys, base());
    ASSERT_EQ(before_.problem, "");
  }

  std::string base() const { return folder_ + "/base"; }
  std::string directory() const { return folder_ + "/dir"; }
  ClusterList list() { return load_clusters(device_, directory()).value(); }
  Answers ask() { return test::ask_directory(device_, kKeys, directory()); }

  Files live_files() {
    Files files;
    const ClusterList now = list();
    read_tree(device_, cluster_folder(directory(), now.generation), &files);
    for (const ClusterEntry& cluster : now.clusters) {
      const std::string folder = cluster_folder(directory(), cluster.number);
      read_tree(device_, folder, &files);
      for (const auto path_of : {data_log_path, index_log_path})
        read_tree(device_, path_of(folder, test::log_of_cluster()), &files);
    }
    return files;
  }

  // The process that makes the merging pass. Stops itself at the n-th call, those of locks not counted.
  pid_t start(uint64_t nth) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    io::PosixDevice posix({}, folder_);
    io::FaultDevice device(posix);
    std::atomic<uint64_t> calls{0};
    device.set_hook([&](const io::Call& call) {
      if (call.path.find(".lock") == std::string::npos && ++calls == nth) ::raise(SIGSTOP);
      return Status();
    });
    ::_exit(optimize_directory(device, directory(), pass_options(false)).ok() ? 0 : 1);
  }

  Phase phase() {
    if (list().generation >= kClaim) return kAfterCommit;
    return *device_.exists(cluster_folder(directory(), kClaim)) ? kBeforeCommit : kBeforeClaim;
  }

  void act(Others others) {
    if (others == Others::kFailAndPass) {
      io::FaultDevice full(device_);
      full.inject({.kind = io::CallKind::kWrite, .path_part = ".part-", .from_then_on = true});
      EXPECT_FALSE(optimize_directory(full, directory(), pass_options(true)).ok());
      EXPECT_GT(full.faults(), 0u);
    }
    const auto passed = optimize_directory(device_, directory(), pass_options(true));
    EXPECT_TRUE(passed.ok()) << passed.status().to_string();
    if (others != Others::kPassAndFree) return;
    const auto freed = test::free_logs(device_, "none", directory());
    EXPECT_TRUE(freed.ok()) << freed.status().to_string();
  }

  // Whether the pass came to its end without falling asleep.
  bool sleep_at(uint64_t nth, Others others) {
    std::filesystem::remove_all(directory());
    std::filesystem::copy(base(), directory(), std::filesystem::copy_options::recursive);
    const pid_t child = start(nth);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
    if (!WIFSTOPPED(status)) return true;
    ++points_[phase()];
    act(others);
    const ClusterList list_before = list();
    const Files files_before = live_files();
    ::kill(child, SIGCONT);
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    failed_ += WEXITSTATUS(status) == 0 ? 0 : 1;
    EXPECT_TRUE(list() == list_before) << "a pass that slept at call " << nth << " has changed the list";
    EXPECT_TRUE(live_files() == files_before) << "a pass that slept at call " << nth << " has changed files";
    EXPECT_TRUE(ask() == before_) << "call " << nth;
    const auto next = optimize_directory(device_, directory(), pass_options(true));
    EXPECT_TRUE(next.ok()) << "call " << nth << ": " << next.status().to_string();
    EXPECT_TRUE(ask() == before_) << "after the next pass, call " << nth;
    EXPECT_THAT(*device_.list(clusters_folder(directory())),
                testing::UnorderedElementsAreArray(test::names_of_one_cluster(next->number)))
        << "call " << nth;
    return false;
  }

  void sleep_everywhere(bool freed, Others others) {
    make_base(freed);
    for (uint64_t nth = 1 + static_cast<uint64_t>(others); nth < 2'000; nth += kStride) {
      if (sleep_at(nth, others) || HasFailure()) break;
    }
    fmt::print("asleep at {} calls before the claim, {} before the commit, {} after it; {} failed\n",
               points_[kBeforeClaim], points_[kBeforeCommit], points_[kAfterCommit], failed_);
    for (const uint64_t points : points_) EXPECT_GT(points, 0u);
    EXPECT_GE(failed_, points_[kBeforeCommit] / 2);
    const auto reader = Reader::open(device_, directory(), {});
    ASSERT_TRUE(reader.ok());
    for (const Status& problem : verify_directory(**reader, 10).problems)
      ADD_FAILURE() << problem.to_string();
  }

  std::string folder_;
  io::PosixDevice device_;
  Answers before_;
  std::array<uint64_t, kPhases> points_ = {};
  uint64_t failed_ = 0;
};

TEST_F(Asleep, AnotherPassEnds) { sleep_everywhere(false, Others::kPass); }
TEST_F(Asleep, AnotherPassEndsWithFreedEpochs) { sleep_everywhere(true, Others::kPass); }
TEST_F(Asleep, OnePassFailsAndAnotherEnds) { sleep_everywhere(false, Others::kFailAndPass); }
TEST_F(Asleep, OnePassFailsAndAnotherEndsWithFreedEpochs) { sleep_everywhere(true, Others::kFailAndPass); }
TEST_F(Asleep, TheLogsAreFreed) { sleep_everywhere(false, Others::kPassAndFree); }

// The canary: the checks see a pass that removes what is not its own.
TEST_F(Asleep, ALiveFileThatGoesIsNoticed) {
  make_base(true);
  std::filesystem::copy(base(), directory(), std::filesystem::copy_options::recursive);
  const Files before = live_files();
  EXPECT_TRUE(ask() == before_);
  std::filesystem::remove(data_log_path(cluster_folder(directory(), 2), test::log_of_cluster()));
  EXPECT_FALSE(live_files() == before);
  EXPECT_FALSE(ask() == before_);
}

}  // namespace
}  // namespace swale::imd::optimize_asleep_test
