// UringQueue: an IoQueue on a ring of the Linux kernel (io_uring, 5.7 and later). Operations on files of a
// PosixDevice go through the ring; an operation on any other File is carried out by submit itself.
//
//   submit ─► slots ─► submission ring ─► kernel ─► completion ring ─► wait
//                 ▲                                        │
//                 └── the rest of a short transfer ◄───────┘
//
// A transfer that the kernel cuts short is continued; one that it interrupts or cannot queue (EINTR, EAGAIN)
// is finished by a blocking call; a direct one that a file system refuses is repeated through the page cache; a
// write that finds no space is repeated once if the device has room to give back.
//
// Threads: as IoQueue says; it has none of its own. What the kernel cannot do without blocking (fdatasync,
// some buffered writes) it gives to threads of its own inside this process, which end with the queue.
// Wake: a read of an event descriptor stands in the ring while wait sleeps for one completion. Waits for
// several are not interrupted by it.
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

  // Fails where the kernel has no ring for us: too old, switched off, forbidden, out of locked memory.
  // Tests may give a function that changes what the kernel answers (bytes, or -errno) before it is looked at.
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
    bool direct = false;      // the transfer under way bypasses the page cache
    bool made_space = false;  // it has been tried again after File::give_back
  };
  enum class Wake : int { kNone, kSleeping, kWoken };

  UringQueue(size_t depth, std::unique_ptr<Ring> ring, Descriptor event, ChangeAnswer change);

  bool inherited() const;
  bool goes_through_ring(const Operation& operation) const;
  void start(size_t index);                          // puts the slot's transfer into the submission ring
  void enter(size_t at_least);                       // submits, and sleeps until that many have completed
  void sleep(size_t at_least);                       // enter, with an ear for wake
  void reap();                                       // takes what has completed
  void complete(size_t index, int result);           // the kernel's answer for a slot
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
  std::vector<Completion> refused_;  // by a child of fork
  Status broken_;                    // the ring itself has failed
};

}  // namespace swale::io
