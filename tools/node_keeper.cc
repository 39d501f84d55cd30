#include "tools/node_keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/contain.h"
#include "base/process_identity.h"
#include "io/unix_address.h"
#include "tools/child.h"
#include "tools/options.h"
#include "tools/tree.h"
#include "tools/tree_server.h"

namespace swale::tools {
namespace {

constexpr int kNanosAMilli = 1'000'000;
constexpr Nanos kLookForStopped = seconds(5);  // a rank that is stopped twice in turn is named

struct Address {
  explicit Address(const std::string& folder)
      : directory(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)),
        name(io::unix_address(directory, kKeeperSocket)) {}

  const io::Descriptor directory;
  const sockaddr_un name;
};

class Keeper {
 public:
  explicit Keeper(const NodeKeeperOptions& options, const sigset_t& usual, int tell)
      : options_(options), mount_(options.mount), usual_(usual), tell_(tell) {}
  int run();

 private:
  struct Rank {
    io::Descriptor connection;
    ProcessIdentity process;  // its wrapper
    bool ended = false;
    int stopped = 0;  // looks in turn that found it so
  };

  Status listen();
  int start_server();
  void keep();
  void look(Nanos patience);
  void hear_signals();
  void hear_server_end();
  void accept();
  void hear(Rank* rank);
  void look_for_stopped();
  bool programs_have_ended() const;

  const NodeKeeperOptions& options_;
  fuse::JobMountOptions mount_;
  const sigset_t usual_;
  io::Descriptor tell_;
  io::Descriptor signals_, listener_;
  TreeServer server_;
  int starts_ = 0;
  std::vector<Rank> ranks_;
  bool told_to_end_ = false;  // by a signal
  bool ending_ = false;
};

Status Keeper::listen() {
  sigset_t awaited;
  ::sigemptyset(&awaited);
  for (const int signal : {SIGCHLD, SIGTERM}) ::sigaddset(&awaited, signal);
  ::sigprocmask(SIG_BLOCK, &awaited, nullptr);
  signals_ = io::Descriptor(::signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return errno_status(errno, "a descriptor for signals");
  SWALE_ASSIGN_OR_RETURN(listener_, listen_for_programs(options_.folder));
  return {};
}

// The servers of a start have a word of their own: one that is left from the start before meets nobody.
int Keeper::start_server() {
  ++starts_;
  if (mount_.nodes) {
    mount_.nodes->meeting = fmt::format("{}.{}", options_.mount.nodes->meeting, starts_);
    mount_.nodes->again = starts_ > 1;
  }
  return server_.start(mount_, usual_);
}

int Keeper::run() {
  if (const Status failed = listen(); !failed.ok()) return fail(failed);
  if (const int failed = start_server(); failed != 0) return failed;
  static_cast<void>(::write(tell_.get(), "m", 1));
  tell_ = io::Descriptor();
  keep();
  ending_ = true;
  server_.tell_to_end();
  while (!server_.ended()) look(-1);
  const char code = static_cast<char>(server_.exit_code());
  for (const Rank& each : ranks_) ::send(each.connection.get(), &code, 1, MSG_NOSIGNAL);
  const Address address(options_.folder);
  if (address.directory.valid()) ::unlinkat(address.directory.get(), kKeeperSocket, 0);
  return server_.exit_code();
}

// Until the last program has ended. A rank that is gone before it has connected is not waited for.
void Keeper::keep() {
  const Nanos until = system_clock().now() + options_.patience;
  const Nanos every = std::min(kLookForStopped, options_.patience / 3);
  Nanos next_look = system_clock().now() + every;
  while (!told_to_end_ && !programs_have_ended()) {
    const bool waits = ranks_.size() < options_.programs;
    const Nanos left = until - system_clock().now();
    if (waits && left <= 0) {
      const bool others_have_ended =
          std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return each.ended; });
      if (others_have_ended) {
        complain("{} of the {} programs of this node have never come to its server",
                 options_.programs - ranks_.size(), options_.programs);
        return;
      }
    }
    const Nanos pause = std::max<Nanos>(next_look - system_clock().now(), 0);
    look(waits && left > 0 ? std::min(left, pause) : pause);
    if (system_clock().now() < next_look) continue;
    look_for_stopped();
    next_look = system_clock().now() + every;
  }
}

bool Keeper::programs_have_ended() const {
  return ranks_.size() == options_.programs &&
         std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return each.ended; });
}

// For something to happen. < 0: for as long as it takes.
void Keeper::look(Nanos patience) {
  std::vector<pollfd> ready = {{signals_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  for (const Rank& each : ranks_) ready.push_back({each.ended ? -1 : each.connection.get(), POLLIN, 0});
  const int millis = patience < 0 ? -1 : static_cast<int>(patience / kNanosAMilli) + 1;
  if (::poll(ready.data(), ready.size(), millis) <= 0) return;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (ready[i + 2].revents != 0) hear(&ranks_[i]);
  if (ready[1].revents != 0) accept();
  if (ready[0].revents != 0) hear_signals();
}

// Within the patience of those that wait for it. One that goes on, and is stopped again, is named again.
void Keeper::look_for_stopped() {
  for (Rank& each : ranks_) {
    const bool stopped = !each.ended && look_for(each.process).state == ProcessState::kStopped;
    each.stopped = stopped ? each.stopped + 1 : 0;
    if (each.stopped == 2)
      complain(
          "process {}, which runs a program of this node, is stopped: the tree of {} does not end before "
          "that goes on or ends (kill -CONT {}, or kill -KILL)",
          each.process.pid, options_.mount.backing, each.process.pid);
  }
}

void Keeper::accept() {
  pid_t process = 0;
  if (io::Descriptor connection = accept_program(listener_, &process); connection.valid())
    ranks_.push_back({std::move(connection), process_of(process)});
}

// Nobody sends anything: it is the end.
void Keeper::hear(Rank* rank) {
  char byte = 0;
  const ssize_t got = ::recv(rank->connection.get(), &byte, 1, 0);
  rank->ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

void Keeper::hear_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info))
    if (info.ssi_signo == SIGTERM) told_to_end_ = true;
  int state = 0;
  for (pid_t child = 0; (child = ::waitpid(-1, &state, WNOHANG)) > 0;)
    if (server_.heard(child, state) && !ending_) hear_server_end();
}

// The keepers of all nodes count alike: the servers of a start end together.
void Keeper::hear_server_end() {
  do {
    const bool again = starts_ <= kServerRestartsMax;
    complain("the server of {} has ended while programs run: what was open there fails; {}{}",
             options_.mount.backing, again ? "it is started again" : "it is not started again",
             again && mount_.nodes ? ", with those of all nodes" : "");
    if (!again) return;
  } while (start_server() != 0);
}

}  // namespace

Result<io::Descriptor> listen_for_programs(const std::string& folder) {
  const Address address(folder);
  io::Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (address.directory.valid()) ::unlinkat(address.directory.get(), kKeeperSocket, 0);
  if (listener.valid() && ::bind(listener.get(), io::general(address.name), sizeof(address.name)) == 0 &&
      ::listen(listener.get(), SOMAXCONN) == 0)
    return listener;
  return errno_status(errno, folder + ": a socket for the programs of this node");
}

io::Descriptor accept_program(const io::Descriptor& listener, pid_t* process) {
  io::Descriptor connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  const bool ours = connection.valid() &&
                    ::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
                    peer.uid == ::geteuid();
  if (ours && process != nullptr) *process = peer.pid;
  return ours ? std::move(connection) : io::Descriptor();
}

Result<pid_t> start_keeper(const NodeKeeperOptions& options, const sigset_t& usual) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_status(errno, "making a pipe");
  const io::Descriptor mounted(ends[0]);
  io::Descriptor tell(ends[1]);
  const pid_t keeper = ::fork();
  if (keeper < 0) return errno_status(errno, "starting the keeper of the node's tree");
  if (keeper == 0) {
    ::setsid();
    ignore_signals_for_programs();
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    // Not the launcher's own connections, by whose end it knows that the program has ended.
    const int kept = ::dup2(tell.get(), STDERR_FILENO + 1);
    ::close_range(static_cast<unsigned>(STDERR_FILENO + 2), ~0u, 0);
    ::fcntl(kept, F_SETFD, FD_CLOEXEC);
    static_cast<void>(::chdir("/"));
    int code = kExitFailure;
    static_cast<void>(contain([&] { code = Keeper(options, usual, kept).run(); }));
    std::fflush(nullptr);
    ::_exit(code);
  }
  tell = io::Descriptor();
  char byte = 0;
  if (io::continued([&] { return ::read(mounted.get(), &byte, 1); }) == 1) return keeper;
  int state = 0;
  ::waitpid(keeper, &state, 0);
  return error(Code::kAborted, Scope::kNode, "the server of this node did not start: exit status {}",
               exit_code_of(state));
}

Result<io::Descriptor> connect_to_keeper(const std::string& folder) {
  const Address address(folder);
  io::Descriptor connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connection.valid() && io::continued([&] {
                              return ::connect(connection.get(), io::general(address.name),
                                               sizeof(address.name));
                            }) == 0)
    return connection;
  return errno_status(errno,
                      fmt::format("{}/{}: the server of this node does not listen there; have all ranks "
                                  "of the node the same --buffer?",
                                  folder, kKeeperSocket));
}

int end_at_keeper(const io::Descriptor& connection) {
  ::shutdown(connection.get(), SHUT_WR);
  char code = 0;
  if (io::continued([&] { return ::recv(connection.get(), &code, 1, 0); }) == 1)
    return static_cast<unsigned char>(code);
  complain(
      "the keeper of this node's tree has ended without a word: swale fs recover brings what is missing");
  return kExitFailure;
}

}  // namespace swale::tools
