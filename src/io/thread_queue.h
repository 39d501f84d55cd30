// ThreadQueue: an IoQueue whose threads make the files' own blocking calls. For systems that do not allow
// io_uring, and for any File.
//
// Threads: as IoQueue says, and min(depth, kThreadsMax) of its own, which sleep while idle and block all
// signals.
// Limits: `depth` operations are waiting or running; submit blocks while there are so many.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <vector>

#include "io/io_queue.h"

namespace swale::io {

class ThreadQueue final : public IoQueue {
 public:
  // 16 threads keep a device busy; each costs a stack.
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
  std::unique_ptr<Shared> shared_;   // a forked child must not touch it: a thread may have held its mutex
  size_t in_flight_ = 0;             // operations of the threads; only the caller's thread counts them
  std::vector<Completion> refused_;  // submitted in a forked child
};

}  // namespace swale::io
