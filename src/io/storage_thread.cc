#include "io/storage_thread.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

#include "base/contain.h"
#include "base/mutex.h"
#include "base/start_thread.h"

namespace swale::io {

std::shared_ptr<StorageThread> StorageThread::of(Device& device) {
  static Mutex mutex;
  static std::map<std::pair<pid_t, const Device*>, std::weak_ptr<StorageThread>> threads;
  const MutexLock lock(mutex);
  std::erase_if(threads, [](const auto& entry) { return entry.second.expired(); });
  // a forked child inherits objects, not threads
  std::weak_ptr<StorageThread>& shared = threads[{::getpid(), &device}];
  std::shared_ptr<StorageThread> thread = shared.lock();
  if (!thread) shared = thread = std::make_shared<StorageThread>(device);
  return thread;
}

StorageThread::~StorageThread() { assert(clients_.empty() && !thread_.joinable()); }

Status StorageThread::add(StorageClient* client) {
  const MutexLock lifecycle(lifecycle_mutex_);
  {
    const MutexLock lock(mutex_);
    reserve_more(&clients_, 1);
  }
  if (!thread_.joinable()) {
    SWALE_ASSIGN_OR_RETURN(queue_, device_.make_queue(depth_));
    {
      const MutexLock lock(mutex_);
      stopping_ = false;
    }
    if (Status started = start_thread(&thread_, "the storage thread", [this] { run(); }); !started.ok()) {
      queue_.reset();
      return started;
    }
  }
  const MutexLock lock(mutex_);
  clients_.push_back(client);  // there is space: a thread without a client would have nobody who ends it
  return {};
}

void StorageThread::remove(StorageClient* client) {
  const MutexLock lifecycle(lifecycle_mutex_);
  {
    MutexLock lock(mutex_);
    if (std::erase(clients_, client) == 0) return;
    take_out(client);
    idle_.wait(lock,
               [client] { return client->state_ == StorageClient::State::kIdle && client->in_flight_ == 0; });
    free_slots(client);
    if (!clients_.empty()) return;
    stopping_ = true;
  }
  work_.notify_one();
  thread_.join();
  queue_.reset();
}

void StorageThread::wake(StorageClient* client) {
  const MutexLock lock(mutex_);
  if (client->state_ == StorageClient::State::kAsked) client->state_ = StorageClient::State::kAskedAndWoken;
  if (client->state_ != StorageClient::State::kIdle) return;
  if (std::find(clients_.begin(), clients_.end(), client) == clients_.end()) return;
  push(client);
  in_queue_ ? queue_->wake() : work_.notify_one();
}

void StorageThread::push(StorageClient* client) {
  client->state_ = StorageClient::State::kReady;
  client->next_ = nullptr;
  (ready_last_ != nullptr ? ready_last_->next_ : ready_first_) = client;
  ready_last_ = client;
}

StorageClient* StorageThread::pop() {
  StorageClient* const client = ready_first_;
  if (client == nullptr) return nullptr;
  ready_first_ = client->next_;
  if (ready_first_ == nullptr) ready_last_ = nullptr;
  return client;
}

void StorageThread::take_out(StorageClient* client) {
  if (client->state_ != StorageClient::State::kReady) return;
  StorageClient* before = nullptr;
  for (StorageClient* at = ready_first_; at != client; at = at->next_) before = at;
  (before != nullptr ? before->next_ : ready_first_) = client->next_;
  if (ready_last_ == client) ready_last_ = before;
  client->state_ = StorageClient::State::kIdle;
}

void StorageThread::run() {
  MutexLock lock(mutex_);
  for (;;) {
    if (StorageClient* const client = pop()) ask(client);
    if (queue_->in_flight() != 0) {
      reap();
    } else if (ready_first_ == nullptr) {
      if (stopping_) return;
      work_.wait(lock);
    }
  }
}

void StorageThread::ask(StorageClient* client) {
  client->state_ = StorageClient::State::kAsked;
  mutex_.unlock();
  operations_.clear();
  bool more = false;
  const Status asked = contain([&] { more = client->start(&operations_); });
  if (!asked.ok()) {
    operations_.clear();
    client->failed(asked);
  }
  mutex_.lock();
  if (!operations_.empty()) submit(client);
  const bool again = more || client->state_ == StorageClient::State::kAskedAndWoken;
  client->state_ = StorageClient::State::kIdle;
  const bool stays = std::find(clients_.begin(), clients_.end(), client) != clients_.end();
  if (again && stays) push(client);
  if (!stays) idle_.notify_all();
}

void StorageThread::submit(StorageClient* client) {
  assert(operations_.size() <= kBatchMax);
  Status status = take_slots(client);
  const size_t before = queue_->in_flight();
  mutex_.unlock();
  if (status.ok()) status = contain([&] { queue_->submit(operations_); });
  if (!status.ok()) client->failed(status);
  mutex_.lock();
  client->in_flight_ += queue_->in_flight() - before;
}

// Gives each operation a tag of the queue. Slots of operations that are never started stay taken until
// remove(client).
Status StorageThread::take_slots(StorageClient* client) {
  const auto used = static_cast<size_t>(std::count_if(
      running_.begin(), running_.end(), [](const Running& one) { return one.client != nullptr; }));
  SWALE_RETURN_IF_ERROR(
      contain([&, running = &running_] {  // a pointer, as the analysis does not look into lambdas
        running->resize(std::max(running->size(), used + operations_.size()));
        reserve_more(&completions_, running->size());
      }));
  size_t slot = 0;
  for (Operation& operation : operations_) {
    while (running_[slot].client != nullptr) ++slot;
    running_[slot] = {client, std::exchange(operation.tag, slot)};
  }
  return {};
}

void StorageThread::free_slots(const StorageClient* client) {
  for (Running& one : running_)
    if (one.client == client) one.client = nullptr;
}

// Waits for a completion unless a woken client is waiting to be asked.
void StorageThread::reap() {
  const size_t at_least = ready_first_ == nullptr ? 1 : 0;
  in_queue_ = true;
  mutex_.unlock();
  completions_.clear();
  // The vector has capacity for all completions, so wait does not throw; if it did, it would be called again.
  static_cast<void>(contain([&] { queue_->wait(at_least, &completions_); }));
  mutex_.lock();
  in_queue_ = false;
  for (Completion& completion : completions_) {
    const Running done = std::exchange(running_[completion.tag], {});
    completion.tag = done.tag;
    mutex_.unlock();
    const Status told = contain([&] { done.client->completed(completion); });
    if (!told.ok()) done.client->failed(told);
    mutex_.lock();
    if (--done.client->in_flight_ == 0) idle_.notify_all();
  }
}

}  // namespace swale::io
