#include "io/thread_queue.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/start_thread.h"

namespace swale::io {

struct ThreadQueue::Shared {
  explicit Shared(size_t depth_limit) : depth(depth_limit) {}

  // Run by each thread: carries out waiting operations until none is left and the queue is closing.
  void work() {
    MutexLock lock(mutex);
    while (true) {
      more_to_do.wait(lock, [&]() REQUIRES(mutex) { return !waiting.empty() || closing; });
      if (waiting.empty()) return;
      const Operation operation = waiting.front();
      waiting.pop_front();
      ++running;
      lock.unlock();
      Completion completion = execute(operation);
      lock.lock();
      --running;
      done.push_back(std::move(completion));
      more_done.notify_one();
    }
  }

  const size_t depth;
  std::vector<std::thread> threads;
  CondVar more_to_do;  // for the threads
  CondVar more_done;   // for the caller: a completion, which frees a slot; or a wake
  Mutex mutex;
  std::deque<Operation> waiting GUARDED_BY(mutex);
  size_t running GUARDED_BY(mutex) = 0;
  std::vector<Completion> done GUARDED_BY(mutex);
  bool woken GUARDED_BY(mutex) = false;
  bool closing GUARDED_BY(mutex) = false;
};

ThreadQueue::ThreadQueue(size_t depth, pid_t owner)
    : owner_(owner), shared_(std::make_unique<Shared>(depth)) {}

Result<std::unique_ptr<IoQueue>> ThreadQueue::make(size_t depth) {
  depth = std::max<size_t>(depth, 1);
  std::unique_ptr<ThreadQueue> queue(new ThreadQueue(depth, ::getpid()));
  SWALE_RETURN_IF_ERROR(queue->start(std::min(depth, kThreadsMax)));
  return std::unique_ptr<IoQueue>(std::move(queue));
}

Status ThreadQueue::start(size_t threads) {
  shared_->threads.reserve(threads);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // our threads must not run the application's signal handlers
  Status started;
  while (started.ok() && shared_->threads.size() < threads) {
    std::thread thread;
    started = start_thread(&thread, "a thread for storage", [shared = shared_.get()] { shared->work(); });
    if (!started.ok()) break;
    pthread_setname_np(thread.native_handle(), "swale-io");
    shared_->threads.push_back(std::move(thread));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return shared_->threads.empty() ? started : Status();  // with one thread the queue is slow, but works
}

ThreadQueue::~ThreadQueue() {
  if (inherited()) {
    // The threads exist only in the parent: a child has none to join and must not destroy shared state.
    static_cast<void>(shared_.release());  // NOLINT(bugprone-unused-return-value)
    return;
  }
  {
    const MutexLock lock(shared_->mutex);
    shared_->closing = true;
  }
  shared_->more_to_do.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
}

bool ThreadQueue::inherited() const { return ::getpid() != owner_; }

void ThreadQueue::submit(std::span<const Operation> operations) {
  if (inherited()) {
    for (const Operation& operation : operations) refused_.push_back(refused_after_fork(operation));
    return;
  }
  MutexLock lock(shared_->mutex);
  // The threads have no caller to report a lack of memory to.
  reserve_more(&shared_->done, in_flight_ + operations.size() - shared_->done.size());
  for (const Operation& operation : operations) {
    shared_->more_done.wait(lock, [&]() REQUIRES(shared_->mutex) {
      return shared_->waiting.size() + shared_->running < shared_->depth;
    });
    shared_->waiting.push_back(operation);
    ++in_flight_;
    shared_->more_to_do.notify_one();
  }
}

size_t ThreadQueue::wait(size_t at_least, std::vector<Completion>* out) {
  if (inherited()) return hand_out(&refused_, out);
  MutexLock lock(shared_->mutex);
  shared_->more_done.wait(lock, [&]() REQUIRES(shared_->mutex) {
    return shared_->woken || shared_->done.size() >= std::min(at_least, in_flight_);
  });
  shared_->woken = false;
  const size_t count = hand_out(&shared_->done, out);
  in_flight_ -= count;
  return count;
}

void ThreadQueue::wake() {
  if (inherited()) return;
  const MutexLock lock(shared_->mutex);
  shared_->woken = true;
  shared_->more_done.notify_one();
}

size_t ThreadQueue::in_flight() const { return inherited() ? refused_.size() : in_flight_; }

}  // namespace swale::io
