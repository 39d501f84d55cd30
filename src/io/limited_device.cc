#include "io/limited_device.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <span>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace swale::io {

// The virtual queue.
class LimitedDevice::Limit {
 public:
  Limit(uint64_t write_bytes_per_second, const Clock& clock)
      : clock_(clock), nanos_per_byte_(1e9 / static_cast<double>(write_bytes_per_second)) {}

  Nanos take_place(uint64_t bytes);  // returns its due time; for 0 bytes: that of the last one
  void wait_until(Nanos due);
  Nanos now() const { return clock_.now(); }

 private:
  const Clock& clock_;
  const double nanos_per_byte_;
  Mutex mutex_;
  Nanos due_ GUARDED_BY(mutex_) = 0;
};

class LimitedFile final : public File {
 public:
  LimitedFile(std::shared_ptr<LimitedDevice::Limit> limit, std::unique_ptr<File> file)
      : limit_(std::move(limit)), file_(std::move(file)) {}

  Status pwrite(uint64_t offset, Bytes data) override {
    const Nanos due = limit_->take_place(data.size());
    Status status = file_->pwrite(offset, data);
    limit_->wait_until(due);
    return status;
  }
  Status sync() override {
    const Nanos due = limit_->take_place(0);
    Status status = file_->sync();
    limit_->wait_until(due);
    return status;
  }
  Result<size_t> pread(uint64_t offset, MutableBytes out) override { return file_->pread(offset, out); }
  void read_many(std::span<ReadRequest> requests) override { file_->read_many(requests); }
  Result<uint64_t> size() override { return file_->size(); }
  Status truncate(uint64_t size) override { return file_->truncate(size); }
  void prefer_direct() override { file_->prefer_direct(); }
  size_t direct_alignment() const override { return file_->direct_alignment(); }
  void reserve(uint64_t end) override { file_->reserve(end); }
  bool give_back() override { return file_->give_back(); }
  void discard(uint64_t offset, uint64_t bytes) override { file_->discard(offset, bytes); }
  uint64_t next_data(uint64_t offset) override { return file_->next_data(offset); }
  const std::string& path() const override { return file_->path(); }

  File& below() { return *file_; }
  const LimitedDevice::Limit* limit() const { return limit_.get(); }

 private:
  const std::shared_ptr<LimitedDevice::Limit> limit_;
  const std::unique_ptr<File> file_;
};

// Passes operations to a queue of the device below at once, and holds back their completions until they are
// due.
class LimitedQueue final : public IoQueue {
 public:
  LimitedQueue(std::shared_ptr<LimitedDevice::Limit> limit, std::unique_ptr<IoQueue> below)
      : limit_(std::move(limit)), below_(std::move(below)) {}

  void submit(std::span<const Operation> operations) override {
    for (Operation operation : operations) {
      Nanos due = 0;
      auto* file = dynamic_cast<LimitedFile*>(operation.file);
      if (file != nullptr && file->limit() == limit_.get()) {
        operation.file = &file->below();
        if (operation.kind != Operation::Kind::kRead) due = limit_->take_place(operation.from.size());
      }
      const size_t index = take_slot();
      slots_[index] = {operation.tag, due, State::kBelow, {}};
      operation.tag = index;
      below_->submit({&operation, 1});
    }
  }

  size_t wait(size_t at_least, std::vector<Completion>* out) override {
    const size_t before = out->size();
    while (true) {
      below_->wait(0, &arrived_);
      const Nanos next = hand_out_what_is_due(out);
      const size_t count = out->size() - before;
      if (take_wake() || count >= at_least || in_flight() == 0) return count;
      if (below_may_come_before(next)) {
        below_->wait(1, &arrived_);
      } else {
        sleep_until(next);
      }
    }
  }

  void wake() override {
    {
      const MutexLock lock(mutex_);
      woken_ = true;
    }
    changed_.notify_one();
    below_->wake();
  }

  size_t in_flight() const override { return slots_.size() - free_.size(); }

 private:
  enum class State { kFree, kBelow, kHeld };
  struct Slot {
    uint64_t tag = 0;
    Nanos due = 0;
    State state = State::kFree;
    Completion completion;  // kHeld
  };

  size_t take_slot() {
    if (free_.empty()) {
      free_.push_back(slots_.size());
      slots_.emplace_back();
    }
    const size_t index = free_.back();
    free_.pop_back();
    return index;
  }

  // Returns when the next held completion is due; kForever: all the others are still in the device below.
  Nanos hand_out_what_is_due(std::vector<Completion>* out) {
    for (Completion& completion : arrived_) {
      Slot& slot = slots_[completion.tag];
      assert(slot.state == State::kBelow);
      slot.state = State::kHeld;
      slot.completion = std::move(completion);
      slot.completion.tag = slot.tag;
    }
    arrived_.clear();
    const Nanos now = limit_->now();
    Nanos next = kForever;
    for (size_t index = 0; index < slots_.size(); ++index) {
      Slot& slot = slots_[index];
      if (slot.state != State::kHeld) continue;
      if (slot.due > now) {
        next = std::min(next, slot.due);
        continue;
      }
      out->push_back(std::move(slot.completion));
      slot.state = State::kFree;
      free_.push_back(index);
    }
    return next;
  }

  bool below_may_come_before(Nanos next) const {
    return std::any_of(slots_.begin(), slots_.end(),
                       [&](const Slot& slot) { return slot.state == State::kBelow && slot.due < next; });
  }

  bool take_wake() {
    const MutexLock lock(mutex_);
    return std::exchange(woken_, false);
  }

  void sleep_until(Nanos due) {
    MutexLock lock(mutex_);
    const Nanos left = std::max<Nanos>(due - limit_->now(), 0);
    changed_.wait_for(lock, left, [&]() REQUIRES(mutex_) { return woken_; });
  }

  const std::shared_ptr<LimitedDevice::Limit> limit_;
  std::vector<Slot> slots_;
  std::vector<size_t> free_;
  std::vector<Completion> arrived_;
  CondVar changed_;
  Mutex mutex_;
  bool woken_ GUARDED_BY(mutex_) = false;
  const std::unique_ptr<IoQueue> below_;  // destroyed first: it waits for operations in flight
};

LimitedDevice::LimitedDevice(Device& device, uint64_t write_bytes_per_second, const Clock& clock)
    : device_(device), limit_(std::make_shared<Limit>(write_bytes_per_second, clock)) {
  assert(write_bytes_per_second > 0);
}

LimitedDevice::LimitedDevice(std::unique_ptr<Device> owned, std::shared_ptr<Limit> limit)
    : owned_(std::move(owned)), device_(*owned_), limit_(std::move(limit)) {}

Result<std::unique_ptr<Device>> LimitedDevice::anchored(const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(auto below, device_.anchored(directory));
  return std::unique_ptr<Device>(new LimitedDevice(std::move(below), limit_));
}

Result<std::unique_ptr<IoQueue>> LimitedDevice::make_queue(size_t depth) {
  SWALE_ASSIGN_OR_RETURN(auto below, device_.make_queue(depth));
  return std::unique_ptr<IoQueue>(std::make_unique<LimitedQueue>(limit_, std::move(below)));
}

Result<std::unique_ptr<File>> LimitedDevice::open(const std::string& path, OpenMode mode) {
  SWALE_ASSIGN_OR_RETURN(auto file, device_.open(path, mode));
  return std::unique_ptr<File>(std::make_unique<LimitedFile>(limit_, std::move(file)));
}

Nanos LimitedDevice::Limit::take_place(uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (bytes > 0)
    due_ = std::max(due_, clock_.now()) + static_cast<Nanos>(static_cast<double>(bytes) * nanos_per_byte_);
  return due_;
}

void LimitedDevice::Limit::wait_until(Nanos due) {
  // The clock need not be the system's: it tells how long to sleep, and afterwards whether that was
  // enough.
  for (Nanos now = clock_.now(); now < due; now = clock_.now())
    std::this_thread::sleep_for(std::chrono::nanoseconds(due - now));
}

}  // namespace swale::io
