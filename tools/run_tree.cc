// run_with_tree: a program, and beside it the server of the tree in which it works.
#include <mntent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>

#include "fs/log/unmounted_format.h"
#include "fuse/unmounted_trees.h"
#include "tools/child.h"
#include "tools/options.h"
#include "tools/started.h"
#include "tools/tree.h"
#include "tools/tree_engine.h"
#include "tools/tree_server.h"

namespace swale::tools {
namespace {

class WithTree {
 public:
  WithTree(const fuse::JobMountOptions& options, const std::vector<std::string>& words,
           const Fallback& fallback)
      : options_(options), words_(words), fallback_(fallback) {
    ::sigemptyset(&awaited_);
    ::sigaddset(&awaited_, SIGCHLD);
    for (const int signal : kForwarded) ::sigaddset(&awaited_, signal);
    ::sigprocmask(SIG_BLOCK, &awaited_, &usual_);
  }

  int run() {
    if (const int failed = server_.start(options_, usual_); failed != 0) {
      ::sigprocmask(SIG_SETMASK, &usual_, nullptr);
      return run_without_tree(fallback_, failed, words_);
    }
    if (options_.unmounted) {
      const auto place = fuse::place_of_unmounted(options_);
      if (!place.ok()) return end_server(fail(place.status()));
      ::setenv(fs::kUnmountedVariable, place->c_str(), 1);
    }
    program_ = start_beside(words_, usual_);
    if (program_ < 0) return end_server(fail(errno_status(errno, words_.front() + ": starting it")));
    wait_until([this] { return program_ended_; });
    server_.tell_to_end();
    wait_until([this] { return server_.ended(); });
    return program_exit_ != 0 ? program_exit_ : server_.exit_code();
  }

 private:
  int end_server(int failed) {
    server_.tell_to_end();
    wait_until([this] { return server_.ended(); });
    return failed;
  }

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
    for (bool lives = false; !lives;) {  // one that is killed while it starts has ended, too
      const bool again = restarts_++ < kServerRestartsMax;
      complain("the server of {} has ended while the program runs: what was open there fails; {}",
               options_.backing, again ? "it is started again" : "it is not started again");
      if (!again) return;
      lives = server_.start(options_, usual_) == 0;
    }
  }

  const fuse::JobMountOptions options_;
  const std::vector<std::string>& words_;
  const Fallback& fallback_;
  sigset_t awaited_ = {}, usual_ = {};
  TreeServer server_;
  pid_t program_ = -1;
  bool program_ended_ = false;
  int program_exit_ = 0;
  int restarts_ = 0;
};

// Of this user, on this node. A mount that does not answer is none.
Status expect_mounted_tree() {
  const std::unique_ptr<FILE, int (*)(FILE*)> table(::setmntent("/proc/self/mounts", "re"), ::endmntent);
  if (!table) return errno_status(errno, "/proc/self/mounts");
  while (const mntent* const mount = ::getmntent(table.get()))
    if (std::string_view(mount->mnt_type) == "fuse.swale" && ask_tree(mount->mnt_dir).ok()) return {};
  return error(Code::kNotFound, Scope::kNode,
               "no tree is mounted on this node: start one (swale start DIR), or give run --backing DIR");
}

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
                  const Fallback& fallback) {
  return WithTree(options, program, fallback).run();
}

int run_without_tree(const Fallback& fallback, int failed, const std::vector<std::string>& program) {
  if (!fallback.wanted()) return failed;
  if (const Status free = fallback.expect_free(); !free.ok()) return fail(free);
  complain("NO BUFFER: {} runs all the same (--fallback), and writes to {} itself", program.front(),
           fallback.backing());
  return become(program);
}

Result<std::string> find_started_unmounted(const std::string& backing) {
  SWALE_ASSIGN_OR_RETURN(const StartedTree started, find_started(backing));
  if (!started.lives || !started.document.value("no_mount", false))
    return error(Code::kNotFound, Scope::kFile, "{}: no tree without a mount was started there", backing);
  SWALE_ASSIGN_OR_RETURN(const fuse::UnmountedPlace place, fuse::find_unmounted(backing));
  return place.tree.variable();
}

Result<std::string> find_unmounted_here() {
  SWALE_ASSIGN_OR_RETURN(const std::vector<fuse::UnmountedTree> trees, fuse::find_unmounted_trees());
  if (trees.empty())
    return error(Code::kNotFound, Scope::kNode,
                 "no tree without a mount is on this node: start one (swale start --no-mount DIR), or give "
                 "run --no-mount --backing DIR");
  if (trees.size() == 1) return trees.front().variable();
  if (const auto place = fuse::find_unmounted("."); place.ok()) return place->tree.variable();
  return invalid_argument(
      "trees without a mount are on this node over {} and {}, among others: say by run --backing which of "
      "those that swale start has started, or start the program in one of them",
      trees[0].top, trees[1].top);
}

int run_in_mounted_tree(const std::vector<std::string>& program, bool fallback) {
  if (const Status mounted = expect_mounted_tree(); !mounted.ok()) {
    const int failed = fail(mounted);
    if (!fallback) return failed;
    complain("NO BUFFER: {} runs all the same (--fallback), and writes to its directories themselves",
             program.front());
  }
  return become(program);
}

}  // namespace swale::tools
