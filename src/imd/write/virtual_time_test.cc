// A partition that writes to a disk in virtual time takes exactly the time that the model predicts for its
// requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "imd/write/partition.h"
#include "imd/write/partition_files.h"
#include "io/memory_device.h"
#include "io/virtual_device.h"
#include "run/footer.h"
#include "run/testing/run_test_support.h"

namespace swale::imd::virtual_time_test {
namespace {

constexpr size_t kInFlight = 4;

// One partition whose computing takes no time, and its files.
class VirtualPartition {
 public:
  explicit VirtualPartition(const io::DiskModel& model) : model_(model), device_(memory_, model, clock_) {
    PartitionParams params;
    params.memory.memtable_bytes = kMiB;
    params.memory.memtable_records = 30'000;
    params.memory.output_buffer_bytes = 256 * kKiB;
    params.memory.output_buffers = 4;
    params.memory.sketch_bytes = 4 * kMiB;
    partition_ = Partition::create(params).value();
    EXPECT_TRUE(io::make_directories(memory_, "/d/p000").ok());
    files_.emplace(PartitionFiles::create(device_, "/d", {}).value());
    queue_ = device_.make_queue(kInFlight).value();
    opened_ = clock_.now();
  }

  void write_epoch(uint32_t epoch, uint64_t records) {
    if (epoch == 0) partition_->begin_epoch(EpochNumber(0), 100);
    for (uint64_t i = 0; i < records; ++i) {
      const std::string key = run::test::random_bytes(rng_, 8);
      while (partition_->append(hash_bytes(key), key, value_).row == nullptr) {
        EXPECT_TRUE(partition_->make_room(0));
        settle();
      }
    }
    partition_->end_epoch(EpochNumber(epoch + 1), 101 + epoch);
    settle();
    EXPECT_TRUE(partition_->durable());
  }

  Nanos taken() const { return clock_.now() - opened_; }
  Nanos predicted() const { return predicted_; }
  uint64_t written_bytes() const { return written_bytes_; }

 private:
  void settle() {
    for (bool busy = true; busy;) {
      busy = false;
      while (auto task = partition_->next_task(0)) {
        task->work();
        partition_->finish_task(*task);
        busy = true;
      }
      while (running_.size() < kInFlight && start_io()) busy = true;
      if (!running_.empty()) {
        finish_io();
        busy = true;
      }
    }
    EXPECT_TRUE(partition_->failure().ok());
  }

  bool start_io() {
    auto request = partition_->next_io();
    if (!request) return false;
    predict(*request);
    const io::Operation operation = files_->operation(*request, ++tag_);
    running_.emplace_back(tag_, *request);
    queue_->submit({&operation, 1});
    return true;
  }

  void finish_io() {
    std::vector<io::Completion> completions;
    queue_->wait(1, &completions);
    for (const io::Completion& completion : completions) {
      const auto found = std::find_if(running_.begin(), running_.end(),
                                      [&](const auto& running) { return running.first == completion.tag; });
      const IoRequest request = found->second;
      running_.erase(found);
      partition_->finish_io(request, completion.status);
    }
  }

  // By hand: one request after the other, in the order of their arrival; each file is one piece of the disk,
  // the one that is written first is the first. Nothing overlaps a sync here: it is asked for when all else
  // is done.
  void predict(const IoRequest& request) {
    if (request.kind == IoRequest::Kind::kSync) {
      EXPECT_TRUE(running_.empty());
      predicted_ += model_.sync_latency;
      return;
    }
    auto [at, is_new] = begin_.try_emplace(request.file, begin_.size() * io::VirtualDevice::kPieceBytes);
    const uint64_t place = at->second + request.offset;
    const uint64_t gap = place > head_ ? place - head_ : head_ - place;
    if (gap != 0 && model_.capacity_bytes != 0) {
      const auto seek = static_cast<double>(model_.settle + model_.rotation) +
                        static_cast<double>(model_.stroke) *
                            std::sqrt(static_cast<double>(gap) / static_cast<double>(model_.capacity_bytes));
      const double pass = place > head_ ? static_cast<double>(gap) / model_.write_bytes_per_s * 1e9 : seek;
      predicted_ += model_.fixed + std::llround(std::min(seek, pass));
    }
    predicted_ += model_.write_latency +
                  std::llround(static_cast<double>(request.data.size()) / model_.write_bytes_per_s * 1e9);
    head_ = place + request.data.size();
    written_bytes_ += request.data.size();
  }

  const io::DiskModel model_;
  Rng rng_{21};
  const std::string value_ = std::string(40, 'v');
  io::MemoryDevice memory_;
  ManualClock clock_;
  io::VirtualDevice device_;
  std::unique_ptr<Partition> partition_;
  std::optional<PartitionFiles> files_;
  std::unique_ptr<io::IoQueue> queue_;
  std::vector<std::pair<uint64_t, IoRequest>> running_;
  uint64_t tag_ = 0;
  std::map<LogFile, uint64_t> begin_;
  uint64_t head_ = 0;
  Nanos opened_ = 0;
  Nanos predicted_ = 0;
  uint64_t written_bytes_ = 0;
};

TEST(VirtualTime, APartitionTakesExactlyWhatTheModelPredicts) {
  for (const char* name : {"paper-physical", "modern", "paper-ssd"}) {
    io::DiskModel model = *io::disk_model(name);
    model.order = io::DiskModel::Order::kArrival;
    model.write_done = io::DiskModel::WriteDone::kServed;
    model.merge_bytes_max = 0;
    model.sync_latency = milliseconds(5);
    VirtualPartition partition(model);
    for (uint32_t epoch = 0; epoch < 3; ++epoch) partition.write_epoch(epoch, 100'000);
    EXPECT_GT(partition.written_bytes(), 14u * 1'000'000);
    // a rounding a request
    EXPECT_NEAR(static_cast<double>(partition.taken()), static_cast<double>(partition.predicted()), 200.0)
        << name;
    EXPECT_GT(partition.taken(), milliseconds(30));
    // Again: to the nanosecond.
    VirtualPartition twin(model);
    for (uint32_t epoch = 0; epoch < 3; ++epoch) twin.write_epoch(epoch, 100'000);
    EXPECT_EQ(twin.taken(), partition.taken());
  }
}

// The elevator of a rotating disk, which acknowledges at once: the partition waits for its syncs alone, and
// the disk is busy no longer than without one.
TEST(VirtualTime, AnElevatorThatAcknowledgesAtOnceTakesNoLonger) {
  io::DiskModel served = *io::disk_model("paper-fitted");
  served.write_done = io::DiskModel::WriteDone::kServed;
  VirtualPartition waits(served), goes_on(*io::disk_model("paper-fitted"));
  waits.write_epoch(0, 100'000);
  goes_on.write_epoch(0, 100'000);
  EXPECT_LE(goes_on.taken(), waits.taken());
  EXPECT_GT(goes_on.taken(), waits.taken() / 2);
}

}  // namespace
}  // namespace swale::imd::virtual_time_test
