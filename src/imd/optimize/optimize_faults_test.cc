// Passes that end in the middle: answers are those of the epochs, always.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/log.h"
#include "imd/check/verify.h"
#include "imd/format/cluster_list.h"
#include "imd/optimize/optimizer.h"
#include "imd/testing/test_free.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::optimize_faults_test {
namespace {

using test::Answers;
using test::ask_directory;
using test::kOptimized;
using test::small_pass;
using test::write_job;

constexpr uint64_t kKeys = 12;

// All files below a folder.
void list_files(io::Device& device, const std::string& path, std::vector<std::string>* files) {
  const auto names = device.list(path);
  if (!names.ok()) return files->push_back(path);
  for (const std::string& name : *names) list_files(device, path + "/" + name, files);
}

std::vector<std::string> files_of(io::Device& device, const std::string& path) {
  std::vector<std::string> files;
  list_files(device, path, &files);
  return files;
}

OptimizeOptions full_pass() {
  OptimizeOptions options = small_pass();
  options.full = true;
  return options;
}

class Passes {
 public:
  Passes() {
    set_log_level(LogLevel::kOff);
    write_job(device_, {.ranks = 2, .records = 60, .keys = kKeys}, 1);
    before_ = ask_directory(device_, kKeys);
    EXPECT_EQ(before_.problem, "");
  }

  ~Passes() { set_log_level(LogLevel::kWarn); }

  // A pass whose n-th call fails, and all after it: as if it were killed there. Then perhaps the power fails.
  // Returns whether the pass came to its end.
  bool end_at(uint64_t nth, const io::CrashMode* crash) {
    io::FaultDevice faulty(device_);
    faulty.inject({.nth = nth, .from_then_on = true});
    const bool ended = optimize_directory(faulty, kOptimized, full_pass()).ok() && faulty.faults() == 0;
    if (crash != nullptr) device_.crash(rng_, *crash);
    // The holder of the lock is this process, which would be taken for alive.
    static_cast<void>(device_.remove(clusters_folder(kOptimized) + "/optimize.lock"));
    EXPECT_TRUE(ask_directory(device_, kKeys) == before_) << "call " << nth;
    const auto next = optimize_directory(device_, kOptimized, full_pass());
    EXPECT_TRUE(next.ok()) << "call " << nth << ": " << next.status().to_string();
    EXPECT_TRUE(ask_directory(device_, kKeys) == before_) << "after the next pass, call " << nth;
    const auto list = load_clusters(device_, kOptimized);
    EXPECT_TRUE(list.ok() && list->clusters.size() == 1u && list->generation == next->number);
    const auto folders = device_.list(clusters_folder(kOptimized));
    EXPECT_THAT(*folders, testing::UnorderedElementsAreArray(test::names_of_one_cluster(next->number)))
        << "call " << nth << ": what was left is removed";
    return ended;
  }

  // How many calls were tried.
  uint64_t end_everywhere(const io::CrashMode* crash) {
    for (uint64_t nth = 1; nth < 5'000; ++nth) {
      if (end_at(nth, crash)) return nth;
      if (testing::Test::HasFailure()) break;
    }
    ADD_FAILURE() << "no pass came to its end";
    return 0;
  }

  io::MemoryDevice& device() { return device_; }
  const Answers& before() const { return before_; }

 private:
  io::MemoryDevice device_;
  Rng rng_{5};
  Answers before_;
};

TEST(OptimizeFaults, APassThatIsKilledAtAnyCallChangesNoAnswer) {
  Passes passes;
  const uint64_t calls = passes.end_everywhere(nullptr);
  fmt::print("killed at {} calls\n", calls);
  EXPECT_GT(calls, 60u);
}

TEST(OptimizeFaults, APowerCutAtAnyCallChangesNoAnswer) {
  for (const io::CrashMode mode : {io::CrashMode::kDropAll, io::CrashMode::kReorder}) {
    Passes passes;
    const uint64_t calls = passes.end_everywhere(&mode);
    fmt::print("power cut at {} calls\n", calls);
    EXPECT_GT(calls, 60u);
  }
}

// A pass that makes one cluster of three and of an epoch that none has, killed at any call, then perhaps
// without power. `freed`: only the three clusters have the other epochs.
uint64_t end_merges(bool freed, const io::CrashMode* crash) {
  set_log_level(LogLevel::kOff);
  io::MemoryDevice base;
  for (uint64_t job = 1; job <= 4; ++job) {
    write_job(base, {.epochs = 1, .records = 30, .keys = kKeys}, job);
    EXPECT_TRUE(job == 4 || optimize_directory(base, kOptimized, small_pass()).ok());
    EXPECT_TRUE(job != 3 || !freed || test::free_logs(base, "none").ok());
  }
  const Answers before = ask_directory(base, kKeys);
  EXPECT_EQ(before.problem, "");
  Rng rng(5);
  uint64_t nth = 1;
  for (bool ended = false; !ended && nth < 5'000 && !testing::Test::HasFailure(); ++nth) {
    io::MemoryDevice device;
    test::copy_tree(base, kOptimized, device);
    io::FaultDevice faulty(device);
    faulty.inject({.nth = nth, .from_then_on = true});
    ended = optimize_directory(faulty, kOptimized, small_pass()).ok() && faulty.faults() == 0;
    if (crash != nullptr) device.crash(rng, *crash);
    static_cast<void>(device.remove(clusters_folder(kOptimized) + "/optimize.lock"));
    EXPECT_TRUE(ask_directory(device, kKeys) == before) << "call " << nth;
    const auto next = optimize_directory(device, kOptimized, small_pass());
    EXPECT_TRUE(next.ok()) << "call " << nth << ": " << next.status().to_string();
    EXPECT_TRUE(ask_directory(device, kKeys) == before) << "after the next pass, call " << nth;
    EXPECT_EQ(load_clusters(device, kOptimized)->clusters.size(), 1u) << "call " << nth;
  }
  set_log_level(LogLevel::kWarn);
  return nth - 1;
}

TEST(OptimizeFaults, AMergeThatIsKilledAtAnyCallChangesNoAnswer) {
  const io::CrashMode drop = io::CrashMode::kDropAll;
  const io::CrashMode reorder = io::CrashMode::kReorder;
  for (const bool freed : {false, true}) {
    for (const io::CrashMode* crash : {static_cast<const io::CrashMode*>(nullptr), &drop, &reorder}) {
      const uint64_t calls = end_merges(freed, crash);
      fmt::print("a merge{} {} at {} calls\n", freed ? " of freed epochs" : "",
                 crash == nullptr ? "killed" : "without power", calls);
      EXPECT_GT(calls, 100u);
    }
  }
}

// The canary: a device that says that the cluster is durable when it is not. The answers are right even so,
// but verify must tell.
TEST(OptimizeFaults, ALyingDeviceIsNoticed) {
  Passes passes;
  io::FaultDevice lying(passes.device());
  lying.inject({.action = io::FaultAction::kDrop,
                .kind = io::CallKind::kSync,
                .path_part = "clusters/0001.part-",
                .from_then_on = true});
  ASSERT_TRUE(optimize_directory(lying, kOptimized, small_pass()).ok());
  Rng rng(1);
  passes.device().crash(rng, io::CrashMode::kDropAll);
  EXPECT_TRUE(ask_directory(passes.device(), kKeys) == passes.before());
  const auto reader = Reader::open(passes.device(), kOptimized, {});
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE(verify_directory(**reader, 10).problems.empty());
}

TEST(OptimizeFaults, AFullDiskChangesNothingAndGivesItsSpaceBack) {
  Passes passes;
  io::FaultDevice faulty(passes.device());
  uint64_t tried = 0;
  for (uint64_t nth = 1; nth < 1'000; ++nth, ++tried) {
    faulty.clear();
    faulty.inject({.kind = io::CallKind::kWrite,
                   .path_part = "clusters",
                   .nth = nth,
                   .from_then_on = true,
                   .status = error(Code::kNoSpace, Scope::kFile, "no space")});
    const auto report = optimize_directory(faulty, kOptimized, small_pass());
    if (report.ok()) break;
    EXPECT_TRUE(ask_directory(passes.device(), kKeys) == passes.before());
    EXPECT_TRUE(load_clusters(passes.device(), kOptimized)->clusters.empty());
    EXPECT_TRUE(files_of(passes.device(), clusters_folder(kOptimized)).empty()) << nth;
  }
  // The last write is the copy of the list: without it, readers take the list itself.
  EXPECT_GT(faulty.faults(), 0u);
  EXPECT_FALSE(*passes.device().exists(cluster_list_copy_path(kOptimized)));
  EXPECT_TRUE(ask_directory(passes.device(), kKeys) == passes.before());
  EXPECT_EQ(load_clusters(passes.device(), kOptimized)->clusters.size(), 1u);
  fmt::print("full at {} writes\n", tried);
  EXPECT_GT(tried, 8u);
}

}  // namespace
}  // namespace swale::imd::optimize_faults_test
