// ChunkReads: reads of several streams that go on while others of their chunks are used, on the device's
// storage thread.
//
//   ask ─► waits for its turn ─► in flight (at most so many) ─► wait_for ─► the owner has its bytes
//
// Threads: one at a time; the storage thread does the reading.
// Ownership: a Read belongs to the caller, as its file and memory do; it stays where it is until wait_for, or
// until the ChunkReads end, which waits for what is in flight.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"
#include "io/device.h"
#include "io/storage_thread.h"

namespace swale::imd {

class ChunkReads final : private io::StorageClient {
 public:
  struct Read {
    io::File* file = nullptr;
    uint64_t offset = 0;
    MutableBytes into;

   private:
    friend class ChunkReads;
    bool done = false;
    size_t bytes = 0;
    Status status;
    Read* next = nullptr;
  };

  static Result<std::unique_ptr<ChunkReads>> start(io::Device& device, size_t in_flight_max);
  ~ChunkReads() override;
  ChunkReads(const ChunkReads&) = delete;
  ChunkReads& operator=(const ChunkReads&) = delete;

  // Allocates nothing. Several may be asked for before one `go`.
  void ask(Read* read);
  void go() { thread_->wake(this); }
  // Until the read is done. kCorruption: the file has fewer bytes.
  Status wait_for(Read* read);

 private:
  explicit ChunkReads(size_t in_flight_max) : in_flight_max_(in_flight_max), running_(in_flight_max) {}
  bool start(std::vector<io::Operation>* operations) override;
  void completed(const io::Completion& completion) override;
  void failed(const Status& why) noexcept override;

  const size_t in_flight_max_;
  std::shared_ptr<io::StorageThread> thread_;
  Mutex mutex_;
  CondVar done_;
  Read* first_ GUARDED_BY(mutex_) = nullptr;  // of those that wait for their turn
  Read* last_ GUARDED_BY(mutex_) = nullptr;
  std::vector<Read*> running_ GUARDED_BY(mutex_);  // by tag; nullptr: free
  Status failure_ GUARDED_BY(mutex_);              // of the storage thread: no read will be done any more
};

}  // namespace swale::imd
