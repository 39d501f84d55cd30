// IoQueue: storage operations in flight, many at a time, driven by one thread.
//
//   submit(operations) ─► [device] ─► wait() ─► completions, in any order
//
// Operations on one file that are in flight together must not depend on one another: whoever needs "synced
// after written" submits the sync once the writes have completed.
//
// Implementations: InlineQueue (any Device: each operation is carried out by submit itself, in order, so that
// fault injection stays deterministic), and what Device::make_queue of PosixDevice chooses: UringQueue or
// ThreadQueue.
//
// Threads: one thread calls submit, wait and the destructor; wake may be called by any thread. Another thread
// may take over (the caller sees to the order); one that has submitted does not end before its operations
// have completed.
// Fork: in the child a queue of the parent holds nothing, and whatever is submitted to it fails.
// Errors: an operation's failure is its completion's status, worded as File words it. submit and wait fail by
// std::bad_alloc alone: then in_flight still counts what was started and not handed out. Completing an operation
// allocates nothing, so the destructor waits for what is in flight whatever the state of the memory.
// Ownership: files and memory named by an operation belong to the caller and must outlive its completion.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "io/device.h"

namespace swale::io {

struct Operation {
  enum class Kind : uint8_t { kRead, kWrite, kSync };
  Kind kind = Kind::kRead;
  File* file = nullptr;
  uint64_t offset = 0;
  MutableBytes into;  // kRead: where the bytes go
  Bytes from;         // kWrite
  uint64_t tag = 0;   // the caller's, comes back with the completion
};

struct Completion {
  uint64_t tag = 0;
  size_t bytes = 0;  // kRead: bytes read; less than asked for only at the end of the file
  Status status;
};

class IoQueue {
 public:
  virtual ~IoQueue() = default;  // waits for what is in flight

  // Starts all of them. May block until earlier ones have made room.
  virtual void submit(std::span<const Operation> operations) = 0;

  // Appends completions to `out`, waiting until there are at least `at_least` of them, or nothing is in
  // flight, or wake was called. Returns how many were appended.
  virtual size_t wait(size_t at_least, std::vector<Completion>* out) = 0;

  // Makes the current wait, or else the next one, return at once. A wait for several completions may finish
  // first: it is one system call.
  virtual void wake() = 0;

  // Submitted and not yet handed out by wait.
  virtual size_t in_flight() const = 0;
};

// Carries out each operation inside submit.
class InlineQueue final : public IoQueue {
 public:
  void submit(std::span<const Operation> operations) override;
  size_t wait(size_t at_least, std::vector<Completion>* out) override;
  void wake() override {}  // wait never blocks
  size_t in_flight() const override { return done_.size(); }

 private:
  std::vector<Completion> done_;
};

// Room for `more` further items, so that push_back does not throw.
template <class T>
void reserve_more(std::vector<T>* items, size_t more) {
  const size_t wanted = items->size() + more;
  if (items->capacity() < wanted) items->reserve(std::max(wanted, 2 * items->capacity()));
}

// The failure that `make` words, or that there is no memory for its words.
template <class Make>
Status failure_without_throw(Make&& make) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
}

// Appends all of `done` to `out` and empties it; returns how many there were.
size_t hand_out(std::vector<Completion>* done, std::vector<Completion>* out);

// What a queue answers in a child of fork.
Completion refused_after_fork(const Operation& operation);

// One operation by the file's own blocking calls.
Completion execute(const Operation& operation) noexcept;

}  // namespace swale::io
