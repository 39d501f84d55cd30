// IoQueue: many storage operations in flight at a time, driven by one thread.
//
//   submit(operations) ─► [device] ─► wait() ─► completions, in any order
//
// Operations on one file that are in flight together must not depend on one another: to sync after writes,
// submit the sync when the writes have completed.
//
// Implementations: InlineQueue (for any Device: submit carries out each operation itself, in order, so that
// fault injection stays deterministic), and the queue that Device::make_queue of PosixDevice chooses:
// UringQueue or ThreadQueue.
//
// Threads: one thread calls submit, wait and the destructor; any thread may call wake. Another thread may
// take over (the caller synchronises the two). A thread that has submitted operations must not end before
// they have completed.
// Fork: in the child, a queue of the parent is empty, and every operation submitted to it fails.
// Errors: an operation's failure is its completion's status, with File's message. submit and wait throw only
// std::bad_alloc; in_flight then still counts the operations that were started and not returned by wait.
// Completing an operation allocates nothing, so the destructor can always wait for the operations in flight.
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
  virtual ~IoQueue() = default;  // waits for the operations in flight

  // Starts all of them. May block until earlier ones have completed.
  virtual void submit(std::span<const Operation> operations) = 0;

  // Waits until there are at least `at_least` completions, or nothing is in flight, or wake was called.
  // Appends the completions to `out` and returns their number.
  virtual size_t wait(size_t at_least, std::vector<Completion>* out) = 0;

  // Makes the current wait, or else the next one, return at once. A wait for several completions may still
  // complete first: it is one system call.
  virtual void wake() = 0;

  // Operations submitted and not yet returned by wait.
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

// Reserves space for `more` further items, so that push_back does not throw.
template <class T>
void reserve_more(std::vector<T>* items, size_t more) {
  const size_t wanted = items->size() + more;
  if (items->capacity() < wanted) items->reserve(std::max(wanted, 2 * items->capacity()));
}

// The failure that `make` returns, or out_of_memory if `make` runs out of memory.
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

// The completion of an operation that is submitted in a forked child.
Completion refused_after_fork(const Operation& operation);

// Carries out one operation by the file's own blocking calls.
Completion execute(const Operation& operation) noexcept;

}  // namespace swale::io
