// Tasks in batches, on one thread and on several: the order of their steps, and that batches overlap.
#include "stage/in_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace swale::stage::in_batches_test {
namespace {

constexpr size_t kTasks = 100, kBatch = 7;
constexpr Nanos kDeadline = seconds(60);

// What has happened to each task, and what must not.
class Book {
 public:
  BatchSteps steps() {
    return {.begin = [this](size_t first) { return begin(first); },
            .write = [this](size_t task, Buffer&) { step(task, Step::kNone, Step::kWritten); },
            .sync = [this](size_t first, size_t count) { sync(first, count); },
            .check = [this](size_t task, Buffer&) { step(task, Step::kSynced, Step::kChecked); }};
  }
  std::string mistakes() {
    const MutexLock lock(mutex_);
    if (std::count(steps_.begin(), steps_.end(), Step::kChecked) != kTasks) mistakes_ += "not all checked; ";
    return mistakes_;
  }

 private:
  enum class Step { kNone, kWritten, kSynced, kChecked };

  size_t begin(size_t first) {
    const MutexLock lock(mutex_);
    const size_t count = std::min(kBatch, kTasks - first);
    if (first != begun_) mistakes_ += fmt::format("batch {} begins after {}; ", first, begun_);
    begun_ = first + count;
    // Batches end in any order, but as many tasks as those of one more batch are never under way.
    if (begun_ - ended_ > kBatchesAtOnce * kBatch) mistakes_ += fmt::format("too many at {}; ", first);
    return count;
  }
  void step(size_t task, Step before, Step after) {
    const MutexLock lock(mutex_);
    if (steps_[task] != before) mistakes_ += fmt::format("{} comes too early; ", task);
    steps_[task] = after;
    ended_ += after == Step::kChecked ? 1 : 0;
  }
  void sync(size_t first, size_t count) {
    for (size_t task = first; task < first + count; ++task) step(task, Step::kWritten, Step::kSynced);
  }

  Mutex mutex_;
  std::vector<Step> steps_ GUARDED_BY(mutex_) = std::vector<Step>(kTasks);
  size_t begun_ GUARDED_BY(mutex_) = 0, ended_ GUARDED_BY(mutex_) = 0;
  std::string mistakes_ GUARDED_BY(mutex_);
};

TEST(InBatchesTest, EachTaskIsWrittenSyncedWithItsBatchAndChecked) {
  for (const size_t threads : {0, 1, 2, 3, 8}) {
    Book book;
    ASSERT_TRUE(in_batches(threads, Buffer::kPageBytes, book.steps()).ok());
    EXPECT_EQ(book.mistakes(), "") << threads << " threads";
  }
}

TEST(InBatchesTest, NoTaskNoStep) {
  const auto never = [](auto&&...) { FAIL(); };
  ASSERT_TRUE(
      in_batches(3, Buffer::kPageBytes,
                 {.begin = [](size_t) { return size_t{0}; }, .write = never, .sync = never, .check = never})
          .ok());
}

// A check that ends only when a later batch is written; and a write that ends only when an earlier one is
// checked.
TEST(InBatchesTest, ABatchIsCheckedWhileTheNextIsWritten) {
  Mutex mutex;
  CondVar changed;
  size_t written = 0, checked = 0;
  const auto wait = [&](const size_t& count, size_t wanted) {
    const MutexLock lock(mutex);
    return changed.wait_for(lock, kDeadline, [&] { return count >= wanted; });
  };
  const auto add = [&](size_t& count) {
    const MutexLock lock(mutex);
    ++count;
    changed.notify_all();
  };
  const Status ran = in_batches(2, Buffer::kPageBytes,
                                {.begin = [](size_t first) { return size_t{first < 3 ? 1u : 0u}; },
                                 .write =
                                     [&](size_t task, Buffer&) {
                                       EXPECT_TRUE(task != 2 || wait(checked, 1));
                                       add(written);
                                     },
                                 .sync = [](size_t, size_t) {},
                                 .check =
                                     [&](size_t task, Buffer&) {
                                       EXPECT_TRUE(task != 0 || wait(written, 2));
                                       add(checked);
                                     }});
  ASSERT_TRUE(ran.ok());
  EXPECT_EQ(checked, 3u);
}

}  // namespace
}  // namespace swale::stage::in_batches_test
