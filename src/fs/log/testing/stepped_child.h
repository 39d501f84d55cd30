// SteppedChild: a child process that is stopped before a piece of code and goes on one instruction at a
// time, so that a test can end or interrupt it at every instruction.
//
// Threads: one. Needs ptrace of own children; available() says whether the machine allows it.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>

namespace swale::fs {

class SteppedChild {
 public:
  // Forks; the child calls `prepare`, stops, calls `code`, and stops again.
  SteppedChild(const std::function<void()>& prepare, const std::function<void()>& code)
      : returned_(static_cast<std::atomic<bool>*>(
            ::mmap(nullptr, sizeof(bool), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
        pid_(::fork()) {
    if (pid_ != 0) {
      wait();
      return;
    }
    prepare();
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    code();
    returned_->store(true);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  ~SteppedChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::munmap(returned_, sizeof(bool));
  }
  SteppedChild(const SteppedChild&) = delete;
  SteppedChild& operator=(const SteppedChild&) = delete;

  static bool available() {
    const SteppedChild child([] {}, [] {});
    return child.stopped();
  }

  // Takes `instructions` steps, or fewer. True: the code has not returned.
  bool run(uint64_t instructions) {
    for (uint64_t i = 0; i < instructions && !returned(); ++i) {
      if (::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr) != 0) break;
      wait();
      if (!WIFSTOPPED(status_) || WSTOPSIG(status_) != SIGTRAP) break;
    }
    return !returned();
  }
  bool returned() const { return returned_->load(); }
  // Goes on with a signal until the code has ended. False: it ended otherwise.
  bool interrupt(int signal) {
    if (::ptrace(PTRACE_CONT, pid_, nullptr, reinterpret_cast<void*>(static_cast<intptr_t>(signal))) != 0)
      return false;
    wait();
    return stopped();
  }
  // It goes on by itself, until it is killed.
  void let_go() { static_cast<void>(::ptrace(PTRACE_CONT, pid_, nullptr, nullptr)); }
  bool stopped() const { return WIFSTOPPED(status_) && WSTOPSIG(status_) == SIGSTOP; }

 private:
  void wait() { ::waitpid(pid_, &status_, __WALL); }

  std::atomic<bool>* const returned_;  // shared with the child
  const pid_t pid_;
  int status_ = 0;
};

}  // namespace swale::fs
