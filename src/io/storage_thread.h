// StorageThread: the thread that drives storage for all open directories of a device, so that ten directories
// need no more threads and queues than one.
//
// A client wakes the thread; the thread then asks the client for operations and reports each completion to
// it. Woken clients are asked in turn, one batch each; their operations share one IoQueue, so the device sees
// the requests of all directories.
//
// Threads: any thread may call add, remove and wake, but a client's callback must not call remove. The
// storage thread makes all callbacks, one at a time. It starts with the first client, sleeps in the kernel
// while idle, and ends with the last one. After fork a child must not use its parent's StorageThread.
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

  // Appends operations to start; their tags are the client's own and come back with the completions. May also
  // make blocking storage calls (a commit does). True: ask again after the other clients; false: not before
  // the next wake. If it throws, failed() gets the exception as a Status, and none of the appended operations
  // is started.
  virtual bool start(std::vector<Operation>* operations) = 0;
  virtual void completed(const Completion& completion) = 0;
  // A callback has thrown, or memory ran out while a batch was being started: its started operations will
  // complete, the others never will.
  virtual void failed(const Status& why) noexcept = 0;

 private:
  friend class StorageThread;
  enum class State { kIdle, kReady, kAsked, kAskedAndWoken };
  State state_ = State::kIdle;
  StorageClient* next_ = nullptr;  // in the queue of woken clients
  size_t in_flight_ = 0;
};

class StorageThread {
 public:
  static constexpr size_t kBatchMax = 64;

  explicit StorageThread(Device& device, size_t depth = 64) : device_(device), depth_(depth) {}
  ~StorageThread();  // no client may be left

  // The thread that all users of the device share; it ends with its last user. The device must outlive it.
  static std::shared_ptr<StorageThread> of(Device& device);

  // kResourceExhausted if no thread can be started; else the failures of Device::make_queue.
  Status add(StorageClient* client);
  // Returns when none of the client's operations is in flight and no callback of it runs or will run.
  void remove(StorageClient* client);
  void wake(StorageClient* client);

 private:
  struct Running {
    StorageClient* client = nullptr;  // null: free
    uint64_t tag = 0;
  };

  // Run by the thread. It makes callbacks and the queue's calls with the mutex unlocked.
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
  Mutex lifecycle_mutex_;  // taken before mutex_; guards the thread and the queue's existence
  std::thread thread_ GUARDED_BY(lifecycle_mutex_);
  std::unique_ptr<IoQueue> queue_;  // used by the thread; other threads only call wake

  Mutex mutex_;  // guards also the state of all clients
  CondVar work_;
  CondVar idle_;
  StorageClient* ready_first_ GUARDED_BY(mutex_) = nullptr;
  StorageClient* ready_last_ GUARDED_BY(mutex_) = nullptr;
  std::vector<StorageClient*> clients_ GUARDED_BY(mutex_);
  bool in_queue_ GUARDED_BY(mutex_) = false;  // the thread waits in the queue, not for work_
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::vector<Running> running_ GUARDED_BY(mutex_);  // by the tag in the queue

  // Used only by the thread.
  std::vector<Operation> operations_;
  std::vector<Completion> completions_;
};

}  // namespace swale::io
