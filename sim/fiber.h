// Fiber: runs blocking code as steps of a simulation, on a stack of its own: resume lets it run and returns
// when it waits or has ended. So blocking code of the product (opening a directory, taking a lock, repair)
// runs unchanged in a simulation, and a seed stays one schedule.
//
// Threads: all of it runs on the simulation's thread, the body too; the body calls wait, the simulation all
// else. The body may use kStackBytes of stack; beyond lies a page that ends the process.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace swale::sim {

class Fiber {
 public:
  static constexpr size_t kStackBytes = 1 << 20;

  // The body starts with the first resume. It throws nothing.
  explicit Fiber(std::function<void(Fiber&)> body);
  // Makes the body's waits fail until it ends.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  bool done() const { return done_; }
  void cancel() { cancelled_ = true; }
  void resume();

  // The body calls it to let the simulation continue. False: cancelled; the body must end without waiting
  // again.
  bool wait();

 private:
  // One side of a switch, with what the sanitizers are told of it.
  struct Side {
    ucontext_t context{};
    const void* stack = nullptr;
    size_t stack_bytes = 0;
    void* fake_stack = nullptr;  // AddressSanitizer's
    void* thread = nullptr;      // ThreadSanitizer's
  };
  static void run();  // what the stack begins with
  void make_stack();
  static void change(Side& from, Side& to, bool ends = false);

  const std::function<void(Fiber&)> body_;
  bool done_ = false;
  bool cancelled_ = false;
  char* memory_ = nullptr;  // the page that ends the process, then the stack; mapped by the first resume
  Side simulation_, own_;
};

}  // namespace swale::sim
