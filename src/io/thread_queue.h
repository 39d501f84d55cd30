// ThreadQueue: an IoQueue whose threads make the files' own blocking calls. For systems that do not let us
// have a ring, and for any File.
//
// Threads: as IoQueue says, and min(depth, kThreadsMax) of its own, which sleep when there is nothing to do
// and take no signals.
// Limits: `depth` operations wait or are carried out; submit blocks for room.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <vector>

#include "io/io_queue.h"

namespace swale::io {

class ThreadQueue final : public IoQueue {
 public:
  // A device is kept busy by 16; each costs a stack.
  static constexpr size_t kThreadsMax = 16;

  static Result<std::unique_ptr<IoQueue>> make(size_t depth);
  ~ThreadQueue() override;

  void submit(std::span<const Operation> operations) override;
  size_t wait(size_t at_least, std::vector<Completion>* out) override;
  void wake() override;
  size_t in_flight() const override;

 private:
  struct Shared;

  ThreadQueue(size_t depth, pid_t owner);
  Status start(size_t threads);
  bool inherited() const;

  const pid_t owner_;
  std::unique_ptr<Shared> shared_;   // not touched by a child of fork: a thread may have held its mutex
  size_t in_flight_ = 0;             // of the threads; the caller's thread alone counts
  std::vector<Completion> refused_;  // by a child of fork
};

}  // namespace swale::io
