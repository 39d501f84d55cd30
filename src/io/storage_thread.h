// StorageThread: the thread that drives storage for all open directories of a device, so that ten directories need no more
// threads and queues than one.
//
// A client is asked for operations when it was woken, and told of each completion. Clients that were woken are asked in
// turn, one batch each; all their operations share one IoQueue, so that the device sees the requests of all directories.
//
// Threads: add, remove and wake by any thread, remove not by a client's callback. Callbacks come from the storage thread, one
// at a time. It starts with the first client, sleeps in the kernel while nothing is under way, and ends with the last one.
// After fork a child must not use its parent's StorageThread.
// Limits: `depth` operations in flight for all clients together; one client's batch at most kBatchMax.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "io/device.h"
#include "io/io_queue.h"

namespace swale::io {

class StorageClient {
 public:
  virtual ~StorageClient() = default;

  // Appends operations to start; their tags are the client's own and come back with the completions. May also use storage
  // itself, for as long as that takes (a commit does). True: ask again, when the others had their turn; false: not before
  // the next wake. What it throws goes to failed(), and nothing that it has appended is started.
  virtual bool start(std::vector<Operation>* operations) = 0;
  virtual void completed(const Completion& completion) = 0;
  // A callback has thrown, or the operations of a batch could not be started for want of memory: those of them that were
  // started complete, the others never do.
  virtual void failed(const Status& why) noexcept = 0;

 private:
  friend class StorageThread;
  enum class State { kIdle, kReady, kAsked, kAskedAndWoken };
  State state_ = State::kIdle;
  StorageClient* next_ = nullptr;  // in the queue of those that were woken
  size_t in_flight_ = 0;
};

class StorageThread {
 public:
  static constexpr size_t kBatchMax = 64;

  explicit StorageThread(Device& device, size_t depth = 64) : device_(device), depth_(depth) {}
  ~StorageThread();  // no client may be left

  // The one that all users of the device share; it ends with its last user. The device outlives it.
  static std::shared_ptr<StorageThread> of(Device& device);

  // kResourceExhausted if no thread can be started; failures of Device::make_queue.
  Status add(StorageClient* client);
  // Returns when none of the client's operations is in flight and no callback of it runs or will run.
  void remove(StorageClient* client);
  void wake(StorageClient* client);

 private:
  struct Running {
    StorageClient* client = nullptr;  // null: free
    uint64_t tag = 0;
  };

  // Of the thread. Callbacks and the queue's calls are made with the mutex unlocked.
  void run();
  void ask(StorageClient* client) REQUIRES(mutex_);
  void submit(StorageClient* client) REQUIRES(mutex_);
  void reap() REQUIRES(mutex_);
  Status take_slots(StorageClient* client) REQUIRES(mutex_);

  void push(StorageClient* client) REQUIRES(mutex_);
  StorageClient* pop() REQUIRES(mutex_);
  void take_out(StorageClient* client) REQUIRES(mutex_);
  void free_slots(const StorageClient* client) REQUIRES(mutex_);

  Device& device_;
  const size_t depth_;
  Mutex lifecycle_mutex_;  // taken first; guards the thread and the queue's existence
  std::thread thread_ GUARDED_BY(lifecycle_mutex_);
  std::unique_ptr<IoQueue> queue_;  // used by the thread; wake by others

  Mutex mutex_;  // guards also the state of all clients
  CondVar work_;
  CondVar idle_;
  StorageClient* ready_first_ GUARDED_BY(mutex_) = nullptr;
  StorageClient* ready_last_ GUARDED_BY(mutex_) = nullptr;
  std::vector<StorageClient*> clients_ GUARDED_BY(mutex_);
  bool in_queue_ GUARDED_BY(mutex_) = false;  // the thread waits in the queue, not for work_
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::vector<Running> running_ GUARDED_BY(mutex_);  // by the tag in the queue

  // Of the thread alone.
  std::vector<Operation> operations_;
  std::vector<Completion> completions_;
};

}  // namespace swale::io
