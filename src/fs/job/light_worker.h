// LightWorker: a thread that serves programs which open files past the kernel, in rounds: it takes what has
// come from all of them, has it done together, and answers. Meanwhile more comes: so the more programs ask,
// the less each request costs.
//
// Threads: one of its own; the functions below by one other thread. Invariant: a program that is over is not
// touched any more.
// Errors: of open: what the system refuses. Memory that is missing ends the program whose request it was,
// with a line in the log.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "base/status.h"
#include "fs/job/light_program.h"
#include "io/descriptor.h"

namespace swale::fs {

class LightWorker {
 public:
  // What a program is to its worker.
  struct Seat {
    LightProgram program;
    std::atomic<bool> over = false;
  };

  // `on_over` is called when a program is over.
  static Result<std::unique_ptr<LightWorker>> open(JobFs& fs, std::function<void()> on_over);
  ~LightWorker();  // of the programs that are left, all is closed
  LightWorker(const LightWorker&) = delete;
  LightWorker& operator=(const LightWorker&) = delete;

  // The seat stays until it is over, or the worker ends.
  Status add(Seat* seat);
  size_t programs() const { return programs_.load(); }

 private:
  LightWorker(JobFs& fs, std::function<void()> on_over) : fs_(fs), on_over_(std::move(on_over)) {}
  void work() noexcept;
  bool serve_once();  // false: the end
  void take(Seat* seat);
  void leave(Seat* seat) noexcept;

  JobFs& fs_;
  const std::function<void()> on_over_;
  io::Descriptor ready_;  // epoll
  io::Descriptor end_;    // readable: work returns
  std::atomic<size_t> programs_ = 0;
  LightBatch batch_;
  std::vector<Seat*> leaving_;
  Mutex mutex_;
  std::vector<Seat*> seats_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace swale::fs
