// A job that writes while a pass works, or merges clusters: it appends an epoch, or drops the last ones and
// writes others under their numbers. Answers are those of the epochs, also for a reader that was open before,
// and the next pass leaves each epoch in one cluster.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "imd/check/verify.h"
#include "imd/format/cluster_list.h"
#include "imd/format/generation.h"
#include "imd/testing/test_free.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::optimize_beside_test {
namespace {

using test::Answers;
using test::ask_directory;
using test::ask_reader;
using test::copy_tree;
using test::kOptimized;
using test::small_pass;
using test::write_job;

constexpr uint64_t kKeys = 8;
constexpr uint64_t kStride = 5;

// What the job does.
enum class Deed { kAppends, kRewrites };

void write_one_epoch(io::Device& device, uint64_t seed, std::optional<int64_t> resume_after = {}) {
  test::JobShape shape{.epochs = 1, .records = 30, .keys = kKeys};
  shape.options.resume_after = resume_after;
  write_job(device, shape, seed);
}

// Without clusters.
Answers truth_of(io::Device& device) {
  io::MemoryDevice copy;
  const std::vector<std::string> names = device.list(kOptimized).value();
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", kOptimized, name);
    if (path == clusters_folder(kOptimized)) continue;
    EXPECT_TRUE(io::make_directories(copy, kOptimized).ok());
    copy_tree(device, path, copy);
  }
  return ask_directory(copy, kKeys);
}

class Beside : public testing::Test {
 protected:
  Beside() { set_log_level(LogLevel::kOff); }
  ~Beside() override { set_log_level(LogLevel::kWarn); }

  // Four epochs of which a pass takes all, or the last one and the three clusters of the others.
  void make_base(bool merge) {
    for (uint64_t job = 1; job <= 4; ++job) {
      write_one_epoch(base_, job);
      if (merge && job < 4) {
        ASSERT_TRUE(optimize_directory(base_, kOptimized, small_pass()).ok());
      }
    }
    before_ = ask_directory(base_, kKeys);
    ASSERT_EQ(before_.problem, "");
  }

  // Before the n-th call of the thread that makes the pass. Whether the pass makes so many.
  bool act_at(uint64_t nth, Deed deed) {
    io::MemoryDevice device;
    copy_tree(base_, kOptimized, device);
    const auto open_before = Reader::open(device, kOptimized, {}).value();
    io::FaultDevice watched(device);
    uint64_t calls = 0;
    device_at_work_ = std::this_thread::get_id();
    watched.set_hook([&](const io::Call&) {
      if (std::this_thread::get_id() == device_at_work_ && ++calls == nth)
        deed == Deed::kAppends ? write_one_epoch(device, 9) : write_one_epoch(device, 9, 2'000);
      return Status();
    });
    const auto report = optimize_directory(watched, kOptimized, small_pass());
    if (calls < nth) return false;
    aborted_ += report.ok() ? 0 : 1;
    const Answers truth = truth_of(device);
    EXPECT_EQ(truth.problem, "");
    EXPECT_FALSE(truth == before_) << "the canary: the job has changed answers";
    EXPECT_TRUE(ask_directory(device, kKeys) == truth) << "call " << nth;
    const Answers old = ask_reader(*open_before, kKeys);
    EXPECT_TRUE(old == before_ || old.problem != "") << "a reader that was open, call " << nth;
    EXPECT_TRUE(open_before->refresh().ok());
    EXPECT_TRUE(ask_reader(*open_before, kKeys) == truth) << "refreshed, call " << nth;
    pass_again(device, truth);
    return true;
  }

  void pass_again(io::Device& device, const Answers& truth) {
    const auto next = optimize_directory(device, kOptimized, small_pass());
    EXPECT_TRUE(next.ok()) << next.status().to_string();
    EXPECT_TRUE(ask_directory(device, kKeys) == truth);
    const Manifest manifest = load_manifest(device, kOptimized).value();
    const ClusterList list = test::list_of(device);
    std::set<uint32_t> covered;
    for (const ClusterEntry& cluster : list.clusters) {
      for (const ClusterEntry::Epoch& epoch : cluster.epochs) {
        EXPECT_NE(manifest.find_epoch(epoch.epoch, epoch.epoch_id), nullptr) << "a dead epoch";
        EXPECT_TRUE(covered.insert(epoch.epoch).second) << "an epoch in two clusters";
      }
    }
    EXPECT_EQ(covered.size(), manifest.epochs.size());
    const auto reader = Reader::open(device, kOptimized, {}).value();
    EXPECT_TRUE(verify_directory(*reader, 10).problems.empty());
  }

  void act_everywhere(bool merge, Deed deed) {
    make_base(merge);
    uint64_t points = 0;
    for (uint64_t nth = 1; act_at(nth, deed) && !HasFailure(); nth += kStride) ++points;
    fmt::print("a job at {} calls; {} passes were aborted\n", points, aborted_);
    EXPECT_GT(points, 10u);
  }

  io::MemoryDevice base_;
  Answers before_;
  std::thread::id device_at_work_;
  uint64_t aborted_ = 0;
};

TEST_F(Beside, APassAJobAppends) { act_everywhere(false, Deed::kAppends); }
TEST_F(Beside, APassAJobRewritesEpochs) { act_everywhere(false, Deed::kRewrites); }
TEST_F(Beside, AMergeAJobAppends) { act_everywhere(true, Deed::kAppends); }
TEST_F(Beside, AMergeAJobRewritesEpochs) { act_everywhere(true, Deed::kRewrites); }

// Then a pass makes one cluster of all epochs.
TEST_F(Beside, AReaderThatWasOpenedBeforeAsksAfterwards) {
  make_base(true);
  for (const bool asked : {false, true}) {
    io::MemoryDevice device;
    copy_tree(base_, kOptimized, device);
    const auto reader = Reader::open(device, kOptimized, {}).value();
    EXPECT_TRUE(!asked || ask_reader(*reader, kKeys) == before_);
    write_one_epoch(device, 9, 2'000);
    OptimizeOptions full = small_pass();
    full.full = true;
    ASSERT_TRUE(optimize_directory(device, kOptimized, full).ok());
    const Answers old = ask_reader(*reader, kKeys);
    EXPECT_TRUE(old == before_ || old.problem != "");
    EXPECT_TRUE(reader->refresh().ok());
    const Answers truth = truth_of(device);
    EXPECT_TRUE(ask_reader(*reader, kKeys) == truth);
    EXPECT_FALSE(truth == before_);
  }
}

}  // namespace
}  // namespace swale::imd::optimize_beside_test
