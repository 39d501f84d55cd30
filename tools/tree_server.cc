#include "tools/tree_server.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "io/descriptor.h"
#include "tools/child.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

// A session of its own: what ends the program and its group leaves the server, which ends when it is told, or
// when nobody is left to tell it.
[[noreturn]] void serve(const fuse::JobMountOptions& options, const sigset_t& usual, pid_t parent, int tell) {
  ::setsid();
  ignore_signals_for_programs();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kExitFailure);
  ::sigprocmask(SIG_SETMASK, &usual, nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  static_cast<void>(::chdir("/"));  // a working directory in the tree would wait for itself
  // Nothing of what this process has of launchers and programs, who would take it for living.
  const int kept = ::dup2(tell, STDERR_FILENO + 1);
  ::close_range(static_cast<unsigned>(STDERR_FILENO + 2), ~0u, 0);
  ::fcntl(kept, F_SETFD, FD_CLOEXEC);
  fuse::JobMountOptions wanted = options;
  wanted.ready = [kept](const std::string& remark) {
    if (!remark.empty()) complain("{}", remark);
    static_cast<void>(::write(kept, "m", 1));
    ::close(kept);
  };
  const Status ended = fuse::run_job_mount(wanted);
  std::fflush(nullptr);
  ::_exit(ended.ok() ? kExitOk : fail(ended));
}

}  // namespace

int TreeServer::start(const fuse::JobMountOptions& options, const sigset_t& usual) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(errno_status(errno, "making a pipe"));
  const io::Descriptor mounted(ends[0]);
  io::Descriptor tell(ends[1]);
  const pid_t parent = ::getpid();
  ended_ = false;
  process_ = ::fork();
  if (process_ < 0) {
    ended_ = true;
    return exit_code_ = fail(errno_status(errno, "starting the server of the tree"));
  }
  if (process_ == 0) serve(options, usual, parent, tell.get());
  tell = io::Descriptor();
  char byte = 0;
  if (io::continued([&] { return ::read(mounted.get(), &byte, 1); }) == 1) return 0;
  int state = 0;
  ::waitpid(process_, &state, 0);
  ended_ = true;
  return exit_code_ = exit_code_of(state) == 0 ? kExitFailure : exit_code_of(state);
}

bool TreeServer::heard(pid_t child, int state) {
  if (ended_ || child != process_) return false;
  ended_ = true;
  exit_code_ = exit_code_of(state);
  return true;
}

void TreeServer::tell_to_end() const {
  if (!ended_) ::kill(process_, SIGTERM);
}

}  // namespace swale::tools
