// LightWorker: a thread that serves programs which open files past the kernel, in rounds: it takes what has
// come from all of them, has it done together, and answers. Meanwhile more comes: so the more programs ask,
// the less each request costs. While requests come by pages (fs/log/light_page.h) it looks at those, and
// sleeps in the kernel when none has come in a round: then a program rings.
//
// Threads: one of its own; the functions below by one other thread. Invariant: a program that is over is not
// touched any more.
// Errors: of open: what the system refuses. Memory that is missing ends the program whose request it was,
// with a line in the log.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
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
    io::Descriptor process = {};  // readable when it has ended; invalid: the kernel has no such thing
    std::atomic<bool> over = false;
    uint32_t quiet = 0;  // the worker's: sleeps since a request of its page
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
  bool hear();
  void wake_up(std::span<const epoll_event> ready);
  void look_at(Seat* seat);
  bool take_from_pages();
  bool may_sleep();
  void take(Seat* seat, bool (LightProgram::*by)(LightBatch*));
  void leave(Seat* seat) noexcept;

  JobFs& fs_;
  const std::function<void()> on_over_;
  io::Descriptor ready_;  // epoll
  io::Descriptor end_;    // readable: work returns
  std::atomic<size_t> programs_ = 0;
  LightBatch batch_;
  std::vector<Seat*> leaving_;
  std::vector<Seat*> looked_at_;  // whose pages are
  bool is_awake_ = false;         // requests come by them
  Mutex mutex_;
  std::vector<Seat*> seats_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace swale::fs
