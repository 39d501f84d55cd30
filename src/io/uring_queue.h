// UringQueue: an IoQueue on a ring of the Linux kernel (io_uring, 5.7 and later). Operations on files of a
// PosixDevice go through the ring; submit itself carries out operations on any other File.
//
//   submit ─► slots ─► submission ring ─► kernel ─► completion ring ─► wait
//                 ▲                                        │
//                 └── the rest of a short transfer ◄───────┘
//
// A transfer that the kernel cuts short is continued. A blocking call finishes a transfer that the kernel
// interrupts or cannot queue (EINTR, EAGAIN). A direct transfer that the file system refuses is repeated
// through the page cache. A write that finds no space is repeated once if the device could free some
// (File::give_back).
//
// Threads: as IoQueue says; it starts none. For operations that the kernel cannot do without blocking
// (fdatasync, some buffered writes) the kernel adds worker threads to this process, which end with the queue.
// Wake: while wait sleeps for one completion, the ring contains a read of an event descriptor. A wake does
// not interrupt a wait for several completions.
// Limits: depth 1 to kDepthMax; 96 to 192 bytes of locked memory for each.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "io/descriptor.h"
#include "io/io_queue.h"

namespace swale::io {

class UringQueue final : public IoQueue {
 public:
  static constexpr size_t kDepthMax = 1024;

  // Fails if the kernel gives us no ring: too old, switched off, forbidden, out of locked memory.
  // Tests may pass a function that changes the kernel's result (bytes, or -errno) before the queue sees it.
  using ChangeAnswer = std::function<int(const Operation&, int answer)>;
  static Result<std::unique_ptr<IoQueue>> make(size_t depth, ChangeAnswer change = {});
  ~UringQueue() override;

  void submit(std::span<const Operation> operations) override;
  size_t wait(size_t at_least, std::vector<Completion>* out) override;
  void wake() override;
  size_t in_flight() const override;

 private:
  struct Ring;
  struct Slot {
    Operation operation;
    size_t done = 0;          // bytes
    bool direct = false;      // the transfer in flight bypasses the page cache
    bool made_space = false;  // it was retried after File::give_back
  };
  enum class Wake : int { kNone, kSleeping, kWoken };

  UringQueue(size_t depth, std::unique_ptr<Ring> ring, Descriptor event, ChangeAnswer change);

  bool inherited() const;
  bool goes_through_ring(const Operation& operation) const;
  void start(size_t index);                          // puts the slot's transfer into the submission ring
  void enter(size_t at_least);                       // submits, and sleeps until that many have completed
  void sleep(size_t at_least);                       // enter, but wake ends it
  void reap();                                       // takes the completed transfers
  void complete(size_t index, int result);           // the kernel's result for a slot
  void finish(size_t index, Completion completion);  // frees the slot
  void fail_all(const Status& status);
  bool take_wake();
  size_t busy() const { return slots_.size() - free_.size(); }

  const pid_t owner_;
  const std::unique_ptr<Ring> ring_;
  const Descriptor event_;
  const ChangeAnswer change_;
  uint64_t event_count_ = 0;  // where the kernel puts what it read from event_
  bool event_awaited_ = false;
  std::atomic<Wake> wake_{Wake::kNone};
  std::vector<Slot> slots_;
  std::vector<size_t> free_;
  std::vector<Completion> done_;
  std::vector<Completion> refused_;  // submitted in a forked child
  Status broken_;                    // the ring itself has failed
};

}  // namespace swale::io
