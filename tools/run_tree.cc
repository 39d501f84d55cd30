// run_with_tree: a program, and beside it the server of the tree in which it works.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "io/descriptor.h"
#include "tools/child.h"
#include "tools/options.h"
#include "tools/tree.h"

namespace swale::tools {
namespace {

constexpr int kRestartsMax = 3;  // of a server that is killed again and again

class WithTree {
 public:
  WithTree(const fuse::JobMountOptions& options, const std::vector<std::string>& words)
      : options_(options), words_(words) {
    ::sigemptyset(&awaited_);
    ::sigaddset(&awaited_, SIGCHLD);
    for (const int signal : kForwarded) ::sigaddset(&awaited_, signal);
    ::sigprocmask(SIG_BLOCK, &awaited_, &usual_);
  }

  int run() {
    if (const int failed = start_server(); failed != 0) return failed;
    if (const int failed = start_program(); failed != 0) {
      ::kill(server_, SIGTERM);
      wait_until([this] { return server_ended_; });
      return failed;
    }
    wait_until([this] { return program_ended_; });
    if (!server_ended_) ::kill(server_, SIGTERM);
    wait_until([this] { return server_ended_; });
    return program_exit_ != 0 ? program_exit_ : server_exit_;
  }

 private:
  // Returns when the mount is there. Else the server has said why.
  int start_server() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return fail(errno_status(errno, "making a pipe"));
    const io::Descriptor mounted(ends[0]);
    io::Descriptor tell(ends[1]);
    const pid_t parent = ::getpid();
    server_ended_ = false;
    server_ = ::fork();
    if (server_ < 0) return fail(errno_status(errno, "starting the server of the tree"));
    if (server_ == 0) serve(parent, tell.get());
    tell = io::Descriptor();
    char byte = 0;
    if (io::continued([&] { return ::read(mounted.get(), &byte, 1); }) == 1) return 0;
    int state = 0;
    ::waitpid(server_, &state, 0);
    server_ended_ = true;
    return exit_code_of(state) == 0 ? kExitFailure : exit_code_of(state);
  }

  // A session of its own: what ends the program and its group leaves the server, which ends when it is told,
  // or when nobody is left to tell it.
  [[noreturn]] void serve(pid_t parent, int tell) {
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(kExitFailure);
    ::sigprocmask(SIG_SETMASK, &usual_, nullptr);
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    static_cast<void>(::chdir("/"));  // a working directory in the tree would wait for itself
    fuse::JobMountOptions wanted = options_;
    wanted.ready = [tell](const std::string& remark) {
      if (!remark.empty()) complain("{}", remark);
      static_cast<void>(::write(tell, "m", 1));
      ::close(tell);
    };
    const Status ended = fuse::run_job_mount(wanted);
    std::fflush(nullptr);
    ::_exit(ended.ok() ? kExitOk : fail(ended));
  }

  // The working directory is entered anew: where the mount lies over it, the program is to see the mount.
  int start_program() {
    const std::string here = working_directory();
    program_ = ::fork();
    if (program_ < 0) return fail(errno_status(errno, words_.front() + ": starting it"));
    if (program_ > 0) return 0;
    ::sigprocmask(SIG_SETMASK, &usual_, nullptr);
    if (!here.empty()) static_cast<void>(::chdir(here.c_str()));
    ::_exit(become(words_));
  }
  static std::string working_directory() {
    char* const here = ::getcwd(nullptr, 0);
    const std::string path = here == nullptr ? "" : here;
    ::free(here);
    return path;
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
    if (ended != server_) return;
    server_ended_ = true;
    server_exit_ = exit_code_of(state);
    if (program_ended_ || program_ <= 0) return;
    complain("the server of {} has ended while the program runs: what was open there fails; {}",
             options_.backing, restarts_ < kRestartsMax ? "it is started again" : "it is not started again");
    if (restarts_++ < kRestartsMax) start_server();
  }

  const fuse::JobMountOptions options_;
  const std::vector<std::string>& words_;
  sigset_t awaited_ = {}, usual_ = {};
  pid_t server_ = -1, program_ = -1;
  bool server_ended_ = true, program_ended_ = false;
  int server_exit_ = 0, program_exit_ = 0;
  int restarts_ = 0;
};

}  // namespace

int run_with_tree(const fuse::JobMountOptions& options, const std::vector<std::string>& program) {
  return WithTree(options, program).run();
}

}  // namespace swale::tools
