// Fiber: runs blocking code as steps of a simulation. It has its own thread, which never runs at the same time as the
// simulation: resume lets it run and returns when it waits or has ended. So blocking code of the product (opening a
// directory, taking a lock, repair) runs unchanged in a simulation, and a seed stays one schedule.
//
// Threads: the simulation's thread resumes and destroys it; the body calls wait.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace swale::sim {

class Fiber {
 public:
  // The body starts with the first resume.
  explicit Fiber(std::function<void(Fiber&)> body) : body_(std::move(body)) {}
  // Makes the body's waits fail until it ends.
  ~Fiber() {
    cancelled_ = true;
    while (thread_.joinable() && !done_) resume();
    if (thread_.joinable()) thread_.join();
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  bool done() const { return done_; }
  void cancel() { cancelled_ = true; }

  void resume() {
    if (done_) return;
    if (!thread_.joinable()) {
      if (cancelled_) return;
      turn_is_bodys_ = true;
      thread_ = std::thread([this] {
        await_turn(true);
        body_(*this);
        done_ = true;
        pass_turn(false);
      });
    } else {
      pass_turn(true);
    }
    await_turn(false);
  }

  // The body calls it to let the simulation continue. False: cancelled; the body must end without waiting again.
  bool wait() {
    if (cancelled_) return false;
    pass_turn(false);
    await_turn(true);
    return !cancelled_;
  }

 private:
  void pass_turn(bool to_body) {
    const std::lock_guard lock(mutex_);
    turn_is_bodys_ = to_body;
    changed_.notify_all();
  }
  void await_turn(bool bodys) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_is_bodys_ == bodys; });
  }

  const std::function<void(Fiber&)> body_;
  bool done_ = false;  // these two belong to the running thread
  bool cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool turn_is_bodys_ = false;
  std::thread thread_;
};

}  // namespace swale::sim
