// run_with_tree: a program, and beside it the server of the tree in which it works.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tools/child.h"
#include "tools/options.h"
#include "tools/tree.h"
#include "tools/tree_server.h"

namespace swale::tools {
namespace {

class WithTree {
 public:
  WithTree(const fuse::JobMountOptions& options, const std::vector<std::string>& words, bool fallback)
      : options_(options), words_(words), fallback_(fallback) {
    ::sigemptyset(&awaited_);
    ::sigaddset(&awaited_, SIGCHLD);
    for (const int signal : kForwarded) ::sigaddset(&awaited_, signal);
    ::sigprocmask(SIG_BLOCK, &awaited_, &usual_);
  }

  int run() {
    if (const int failed = server_.start(options_, usual_); failed != 0) {
      if (!fallback_) return failed;
      ::sigprocmask(SIG_SETMASK, &usual_, nullptr);
      return run_without_tree(options_.backing, words_);
    }
    program_ = start_beside(words_, usual_);
    if (program_ < 0) {
      const int failed = fail(errno_status(errno, words_.front() + ": starting it"));
      server_.tell_to_end();
      wait_until([this] { return server_.ended(); });
      return failed;
    }
    wait_until([this] { return program_ended_; });
    server_.tell_to_end();
    wait_until([this] { return server_.ended(); });
    return program_exit_ != 0 ? program_exit_ : server_.exit_code();
  }

 private:
  template <class Done>
  void wait_until(const Done& done) {
    while (!done()) {
      const int signal = ::sigwaitinfo(&awaited_, nullptr);
      if (signal < 0) continue;
      if (signal != SIGCHLD) {
        if (!program_ended_ && program_ > 0) ::kill(program_, signal);
        continue;
      }
      int state = 0;
      for (pid_t ended = 0; (ended = ::waitpid(-1, &state, WNOHANG)) > 0;) heard(ended, state);
    }
  }

  void heard(pid_t ended, int state) {
    if (ended == program_) {
      program_ended_ = true;
      program_exit_ = exit_code_of(state);
    }
    if (!server_.heard(ended, state) || program_ended_ || program_ <= 0) return;
    complain("the server of {} has ended while the program runs: what was open there fails; {}",
             options_.backing,
             restarts_ < kServerRestartsMax ? "it is started again" : "it is not started again");
    if (restarts_++ < kServerRestartsMax) server_.start(options_, usual_);
  }

  const fuse::JobMountOptions options_;
  const std::vector<std::string>& words_;
  const bool fallback_;
  sigset_t awaited_ = {}, usual_ = {};
  TreeServer server_;
  pid_t program_ = -1;
  bool program_ended_ = false;
  int program_exit_ = 0;
  int restarts_ = 0;
};

}  // namespace

// The working directory is entered anew: where the mount lies over it, the program is to see the mount.
pid_t start_beside(const std::vector<std::string>& words, const sigset_t& usual,
                   const std::function<void()>& first) {
  char* const buffer = ::getcwd(nullptr, 0);
  const std::string here = buffer == nullptr ? "" : buffer;
  ::free(buffer);
  const pid_t program = ::fork();
  if (program != 0) return program;
  if (first) first();
  ::sigprocmask(SIG_SETMASK, &usual, nullptr);
  if (!here.empty()) static_cast<void>(::chdir(here.c_str()));
  ::_exit(become(words));
}

int run_with_tree(const fuse::JobMountOptions& options, const std::vector<std::string>& program,
                  bool fallback) {
  return WithTree(options, program, fallback).run();
}

int run_without_tree(const std::string& backing, const std::vector<std::string>& program) {
  complain("NO BUFFER: {} runs all the same (--fallback), and writes to {} itself", program.front(), backing);
  return become(program);
}

}  // namespace swale::tools
