#include "stage/in_batches.h"

#include <algorithm>
#include <array>

#include "base/mutex.h"
#include "stage/in_parallel.h"

namespace swale::stage {
namespace {

class Batches {
 public:
  explicit Batches(const BatchSteps& steps) : steps_(steps) {}

  // Until all is done: a lone thread does everything.
  void work(bool checks_first, Buffer& buffer) {
    const MutexLock lock(mutex_);
    while (!is_over()) {
      const bool found =
          checks_first ? check_one(buffer) || write_one(buffer) : write_one(buffer) || check_one(buffer);
      if (!found && !is_over()) changed_.wait(mutex_);
    }
  }

 private:
  struct Batch {
    size_t first = 0, count = 0;
    size_t begun = 0, written = 0;  // tasks
    size_t looked_at = 0, checked = 0;
    bool synced = false;
  };

  Batch& nth(size_t index) REQUIRES(mutex_) { return ring_[(ended_batches_ + index) % kBatchesAtOnce]; }
  size_t at_once() REQUIRES(mutex_) { return begun_batches_ - ended_batches_; }
  Batch* to_write() REQUIRES(mutex_) {
    if (at_once() == 0) return nullptr;
    Batch& last = nth(at_once() - 1);
    return last.begun < last.count ? &last : nullptr;
  }
  Batch* to_check() REQUIRES(mutex_) {
    for (size_t i = 0; i < at_once(); ++i)
      if (Batch& batch = nth(i); batch.synced && batch.looked_at < batch.count) return &batch;
    return nullptr;
  }
  bool may_begin() REQUIRES(mutex_) { return !no_more_ && at_once() < kBatchesAtOnce; }
  bool is_over() REQUIRES(mutex_) { return no_more_ && at_once() == 0; }

  bool write_one(Buffer& buffer) REQUIRES(mutex_) {
    if (to_write() == nullptr && may_begin()) begin_one();
    Batch* const batch = to_write();
    if (batch == nullptr) return false;
    const size_t task = batch->first + batch->begun++;
    {
      const MutexUnlock meanwhile(mutex_);
      steps_.write(task, buffer);
    }
    if (++batch->written < batch->count) return true;
    {
      const MutexUnlock meanwhile(mutex_);
      steps_.sync(batch->first, batch->count);
    }
    batch->synced = true;
    changed_.notify_all();
    return true;
  }

  void begin_one() REQUIRES(mutex_) {
    const size_t count = steps_.begin(next_);
    no_more_ = count == 0;
    if (!no_more_) ring_[begun_batches_++ % kBatchesAtOnce] = {.first = next_, .count = count};
    next_ += count;
    changed_.notify_all();
  }

  bool check_one(Buffer& buffer) REQUIRES(mutex_) {
    Batch* const batch = to_check();
    if (batch == nullptr) return false;
    const size_t task = batch->first + batch->looked_at++;
    {
      const MutexUnlock meanwhile(mutex_);
      steps_.check(task, buffer);
    }
    if (++batch->checked < batch->count) return true;
    while (at_once() > 0 && nth(0).checked == nth(0).count) ++ended_batches_;
    changed_.notify_all();
    return true;
  }

  const BatchSteps& steps_;
  Mutex mutex_;
  CondVar changed_;
  std::array<Batch, kBatchesAtOnce> ring_ GUARDED_BY(mutex_);
  size_t begun_batches_ GUARDED_BY(mutex_) = 0, ended_batches_ GUARDED_BY(mutex_) = 0;
  size_t next_ GUARDED_BY(mutex_) = 0;  // task
  bool no_more_ GUARDED_BY(mutex_) = false;
};

}  // namespace

Status in_batches(size_t threads, size_t buffer_bytes, const BatchSteps& steps) {
  Batches batches(steps);
  const auto work = [&](size_t index, Buffer& buffer) { batches.work(index % 2 == 1, buffer); };
  return in_parallel(threads, std::max<size_t>(threads, 1), buffer_bytes, work);
}

}  // namespace swale::stage
