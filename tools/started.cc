#include "tools/started.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "base/contain.h"
#include "base/hash.h"
#include "base/sealed_document.h"
#include "io/descriptor.h"
#include "io/private_files.h"
#include "tools/child.h"
#include "tools/drain_time.h"
#include "tools/node_keeper.h"
#include "tools/tree.h"

namespace swale::tools {
namespace {

constexpr char kMemory[] = "/dev/shm";
constexpr char kWord[] = "the tree is there";
constexpr char kLock[] = "lock", kDocument[] = "started.json", kLog[] = "log";
// What `swale run` has for a program: it ends well when it is told to, by the launcher, by `swale run`, or
// both. {}: kWord.
constexpr char kWaiting[] = "trap 'trap \"\" USR1; exit 0' USR1; echo '{}'; while :; do sleep 1; done";
constexpr int kMillisASecond = 1000;
constexpr int kLooksForEnd = 60;  // of a second, while servers end that came too late

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string folders_prefix() { return fmt::format("swale-start-{}-", ::geteuid()); }

// By which path a mountpoint was named does not matter. The tree itself is not asked: its server may hang.
std::string place_of(const std::string& mountpoint) {
  namespace files = std::filesystem;
  constexpr int kLinksMax = 40;  // as the kernel
  std::error_code failed;
  files::path path = mountpoint;
  for (int links = 0; links < kLinksMax; ++links) {
    if (!path.has_filename() && path.has_relative_path()) path = path.parent_path();
    const files::path folder = files::canonical(path.parent_path(), failed);
    if (failed || path.filename() == "..") return path.string();
    path = folder / path.filename();
    const files::path target = files::read_symlink(path, failed);
    if (failed) break;
    path = (folder / target).lexically_normal();
  }
  return path.string();
}

std::string folder_of(const std::string& mountpoint) {
  return fmt::format("{}/{}{}", kMemory, folders_prefix(), hex16(hash_bytes(Bytes(place_of(mountpoint)))));
}

void remove_folder(const std::string& folder) {
  for (const char* name : {kKeeperSocket, kDocument, kLog, kLock}) ::unlink((folder + "/" + name).c_str());
  ::rmdir(folder.c_str());
}

// The lock is of the open file, which a fork shares. `command`: F_OFD_SETLK takes it.
bool lock_file(const io::Descriptor& file, int command, struct flock* lock) {
  *lock = {};
  lock->l_type = F_WRLCK;
  return file.valid() && ::fcntl(file.get(), command, lock) == 0;
}

io::Descriptor open_lock(const io::Descriptor& folder) {
  return io::Descriptor(
      ::openat(folder.get(), kLock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, io::kPrivateFileMode));
}

// A look takes nothing, so it is in nobody's way.
bool keeper_lives(const io::Descriptor& folder) {
  struct flock found;
  return lock_file(open_lock(folder), F_OFD_GETLK, &found) && found.l_type != F_UNLCK;
}

Json document_of(const StartOptions& options) {
  Json json = options.document;
  json["mountpoint"] = options.mountpoint;
  json["since"] = unix_now();
  return json;
}

Status write_to(const std::string& folder, const Json& json) {
  std::ofstream stream(folder + "/" + kDocument);
  stream << json_line(json);
  stream.close();
  return stream.fail() ? errno_status(errno, folder + "/" + kDocument) : Status();
}

// The folder of a tree and its lock, which nobody else has then.
struct Claimed {
  std::string path;
  io::Descriptor folder;
  io::Descriptor lock;
};
Result<Claimed> claim_folder(const std::string& mountpoint) {
  Claimed claimed;
  claimed.path = folder_of(mountpoint);
  if (::mkdir(claimed.path.c_str(), io::kPrivateDirectoryMode) != 0 && errno != EEXIST)
    return errno_status(errno, claimed.path + ": making it");
  SWALE_ASSIGN_OR_RETURN(claimed.folder, io::open_private_directory(AT_FDCWD, claimed.path, claimed.path));
  claimed.lock = open_lock(claimed.folder);
  if (struct flock taken; lock_file(claimed.lock, F_OFD_SETLK, &taken)) return claimed;
  if (errno != EAGAIN && errno != EACCES) return errno_status(errno, claimed.path + ": its lock");
  return error(Code::kBusy, Scope::kFile, "{}: a tree was started there; swale stop {} ends it", mountpoint,
               mountpoint);
}

class StartKeeper {
 public:
  StartKeeper(const StartOptions& options, std::string folder, int tell)
      : options_(options), folder_(std::move(folder)), tell_(tell), drains_(options.drain_at) {}
  int run();

 private:
  Status start();
  [[noreturn]] void become_launcher(int out) const;
  void look(int64_t seconds_max);
  void hear_output();
  void hear_signals();
  void hear_connections(const std::vector<pollfd>& ready, size_t first);
  Status write_document(std::optional<int> exit_code) const;
  void tell_to_end();
  void drain_in_time();

  const StartOptions& options_;
  const std::string folder_;
  io::Descriptor tell_;
  sigset_t usual_ = {};
  io::Descriptor signals_, output_, listener_;
  std::string lines_;
  uint32_t mounted_ = 0;
  pid_t launcher_ = -1;
  bool told_ = false;  // to end
  bool ended_ = false;
  int exit_code_ = 0;
  std::vector<io::Descriptor> connections_;
  DrainTurns drains_;
  pid_t drain_ = -1;
};

void StartKeeper::become_launcher(int out) const {
  ::prctl(PR_SET_PDEATHSIG, SIGUSR1);  // without its keeper the tree ends, and is brought to the backing
  ::sigprocmask(SIG_SETMASK, &usual_, nullptr);
  ::dup2(out, STDOUT_FILENO);
  std::vector<std::string> words = options_.command;
  for (const char* word : {"--", "/bin/sh", "-c"}) words.emplace_back(word);
  words.push_back(fmt::format(kWaiting, kWord));
  ::_exit(become(words));
}

Status StartKeeper::start() {
  sigset_t awaited;
  ::sigemptyset(&awaited);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::sigaddset(&awaited, signal);
  ::sigprocmask(SIG_BLOCK, &awaited, &usual_);
  signals_ = io::Descriptor(::signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK));
  SWALE_ASSIGN_OR_RETURN(listener_, listen_for_programs(folder_));
  int ends[2];
  if (!signals_.valid() || ::pipe2(ends, O_CLOEXEC) != 0) return errno_status(errno, "making a pipe");
  output_ = io::Descriptor(ends[0]);
  const io::Descriptor out(ends[1]);
  ::fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  launcher_ = ::fork();
  if (launcher_ < 0) return errno_status(errno, "starting the servers");
  if (launcher_ == 0) become_launcher(out.get());
  return {};
}

Status StartKeeper::write_document(std::optional<int> exit_code) const {
  Json json = document_of(options_);
  json["keeper"] = ::getpid();
  json["log"] = folder_ + "/" + kLog;
  if (exit_code) json["exit_code"] = *exit_code;
  return write_to(folder_, json);
}

// Once: a second signal could meet a program without its trap.
void StartKeeper::tell_to_end() {
  if (!ended_ && !std::exchange(told_, true)) ::kill(launcher_, SIGUSR1);
}

void StartKeeper::hear_output() {
  char part[4096];
  ssize_t got = 0;
  while ((got = ::read(output_.get(), part, sizeof(part))) > 0) {
    lines_.append(part, static_cast<size_t>(got));
    for (size_t end; (end = lines_.find('\n')) != std::string::npos; lines_.erase(0, end + 1)) {
      const std::string line = lines_.substr(0, end);
      if (line.find(kWord) != std::string::npos)
        ++mounted_;
      else
        complain("{}", line);
    }
  }
  if (got == 0) output_ = io::Descriptor();
}

void StartKeeper::hear_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info))
    if (info.ssi_signo != SIGCHLD) tell_to_end();
  int state = 0;
  for (pid_t child = 0; (child = ::waitpid(-1, &state, WNOHANG)) > 0;) {
    if (child == drain_) drains_.ended();
    if (child != launcher_) continue;
    ended_ = true;
    exit_code_ = exit_code_of(state);
  }
}

// Who shuts its side down wants the end, and waits for its exit code.
void StartKeeper::hear_connections(const std::vector<pollfd>& ready, size_t first) {
  for (size_t i = first; i < ready.size(); ++i) {
    char byte = 0;
    io::Descriptor& each = connections_[i - first];
    if (ready[i].revents == 0 || ::recv(each.get(), &byte, 1, MSG_DONTWAIT) > 0) continue;
    tell_to_end();
  }
}

// From then on a program that is killed leaves little that is not on the backing. A drain may take long, and
// the keeper listens. It holds nothing of the keeper's, whose lock says that it lives, and ends with it.
void StartKeeper::drain_in_time() {
  if (!drains_.begins(unix_now())) return;
  const pid_t keeper = ::getpid();
  drain_ = ::fork();
  if (drain_ < 0) drains_.ended();
  if (drain_ != 0) return;
  ::close_range(static_cast<unsigned>(STDERR_FILENO + 1), ~0u, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != keeper) ::_exit(kExitFailure);
  if (const Status synced = command_sync(options_.mountpoint); !synced.ok()) complain("{}", synced.message());
  std::fflush(nullptr);
  ::_exit(0);
}

void StartKeeper::look(int64_t seconds_max) {
  std::vector<pollfd> ready = {{signals_.get(), POLLIN, 0},
                               {output_.valid() ? output_.get() : -1, POLLIN, 0},
                               {listener_.get(), POLLIN, 0}};
  const size_t first = ready.size();
  for (const io::Descriptor& each : connections_) ready.push_back({told_ ? -1 : each.get(), POLLIN, 0});
  const int millis =
      seconds_max < 0 ? -1 : static_cast<int>(std::min<int64_t>(seconds_max, 3600)) * kMillisASecond;
  if (::poll(ready.data(), ready.size(), millis) <= 0) return;
  if (ready[1].revents != 0) hear_output();
  if (ready[0].revents != 0) hear_signals();
  hear_connections(ready, first);
  if (ready[2].revents != 0)
    if (io::Descriptor program = accept_program(listener_); program.valid())
      connections_.push_back(std::move(program));
}

int StartKeeper::run() {
  if (const Status failed = start(); !failed.ok()) return fail(failed);
  const int64_t until = unix_now() + options_.patience_s;
  while (!ended_ && mounted_ < options_.nodes && unix_now() < until) look(1);
  if (!ended_ && mounted_ < options_.nodes) {
    complain("{}: after {} s it is mounted on {} of {} nodes; see --deadline", options_.mountpoint,
             options_.patience_s, mounted_, options_.nodes);
    ::kill(launcher_, SIGTERM);
    for (int looks = 0; !ended_ && looks < kLooksForEnd; ++looks) look(1);
    return kExitFailure;
  }
  if (ended_) return exit_code_ == 0 ? kExitFailure : exit_code_;
  if (const Status failed = write_document({}); !failed.ok()) {
    tell_to_end();
    return fail(failed);
  }
  static_cast<void>(::write(tell_.get(), "m", 1));
  tell_ = io::Descriptor();
  while (!ended_) {
    drain_in_time();
    look(drains_.wait(unix_now()).value_or(-1));
  }
  if (exit_code_ != 0) static_cast<void>(write_document(exit_code_));
  const char code = static_cast<char>(exit_code_);
  for (const io::Descriptor& each : connections_) ::send(each.get(), &code, 1, MSG_NOSIGNAL);
  return exit_code_;
}

Result<StartedTree> read_started(const std::string& folder) {
  StartedTree tree;
  tree.folder = folder;
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor opened, io::open_private_directory(AT_FDCWD, folder, folder));
  tree.lives = keeper_lives(opened);
  std::ifstream stream(folder + "/" + kDocument);
  tree.document = Json::parse(stream, nullptr, false);
  if (!tree.document.is_object() || !tree.document.contains("mountpoint"))
    return error(Code::kNotFound, Scope::kFile, "{}: no tree is there yet", folder);
  return tree;
}

// Of the caller's descriptors it keeps the lock alone: a launcher takes those for a living program.
[[noreturn]] void become_keeper(const StartOptions& options, const std::string& folder, int log, int lock,
                                int tell) {
  ::setsid();
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const std::array<int, 5> wanted = {nothing, log, log, lock, tell};
  std::array<int, 5> above;  // of the places where they are to be
  for (size_t i = 0; i < wanted.size(); ++i)
    above[i] = ::fcntl(wanted[i], F_DUPFD_CLOEXEC, static_cast<int>(wanted.size()));
  for (size_t i = 0; i < wanted.size(); ++i) {
    ::dup2(above[i], static_cast<int>(i));
    if (i > STDERR_FILENO) ::fcntl(static_cast<int>(i), F_SETFD, FD_CLOEXEC);
  }
  ::close_range(wanted.size(), ~0u, 0);
  static_cast<void>(::chdir("/"));  // a working directory in the tree would wait for itself
  int code = kExitFailure;
  static_cast<void>(contain([&] { code = StartKeeper(options, folder, wanted.size() - 1).run(); }));
  std::fflush(nullptr);
  if (code == 0) remove_folder(folder);
  ::_exit(code);
}

}  // namespace

Status start_tree(const StartOptions& options, std::string* cause) {
  SWALE_ASSIGN_OR_RETURN(const Claimed claimed, claim_folder(options.mountpoint));
  const std::string& folder = claimed.path;
  ::unlinkat(claimed.folder.get(), kDocument, 0);
  const io::Descriptor log(::openat(claimed.folder.get(), kLog,
                                    O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
                                    io::kPrivateFileMode));
  int ends[2];
  if (!log.valid() || ::pipe2(ends, O_CLOEXEC) != 0) return errno_status(errno, folder + ": its log");
  const io::Descriptor mounted(ends[0]);
  io::Descriptor tell(ends[1]);
  const pid_t keeper = ::fork();
  if (keeper < 0) return errno_status(errno, "starting the keeper of a tree");
  if (keeper == 0) become_keeper(options, folder, log.get(), claimed.lock.get(), tell.get());
  tell = io::Descriptor();
  char byte = 0;
  const bool started = io::continued([&] { return ::read(mounted.get(), &byte, 1); }) == 1;
  std::ifstream said(folder + "/" + kLog);
  for (std::string line; std::getline(said, line); repeat_complaint(line))
    if (cause->empty()) *cause = line;
  if (started) return {};
  int state = 0;
  ::waitpid(keeper, &state, 0);
  remove_folder(folder);
  return error(Code::kAborted, Scope::kNode, "{}: its servers did not start: exit status {}",
               options.mountpoint, exit_code_of(state));
}

Status note_fallback(const StartOptions& options, const std::string& why) {
  SWALE_ASSIGN_OR_RETURN(const Claimed claimed, claim_folder(options.mountpoint));
  Json json = document_of(options);
  json["state"] = "fallback";
  json["why"] = why;
  return write_to(claimed.path, json);
}

Result<std::vector<StartedTree>> find_started() {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(kMemory), ::closedir);
  if (!stream) return errno_status(errno, kMemory);
  std::vector<StartedTree> trees;
  while (const dirent* const entry = ::readdir(stream.get())) {
    if (!std::string_view(entry->d_name).starts_with(folders_prefix())) continue;
    if (auto tree = read_started(fmt::format("{}/{}", kMemory, entry->d_name)); tree.ok())
      trees.push_back(*std::move(tree));
  }
  std::sort(trees.begin(), trees.end(), [](const StartedTree& a, const StartedTree& b) {
    return a.document["mountpoint"] < b.document["mountpoint"];
  });
  return trees;
}

Result<StartedTree> find_started(const std::string& mountpoint) {
  const std::string folder = folder_of(mountpoint);
  if (::access(folder.c_str(), F_OK) == 0) return read_started(folder);
  return error(Code::kNotFound, Scope::kFile, "{}: swale start has started no tree there, on this node",
               mountpoint);
}

void forget_started(const StartedTree& tree) { remove_folder(tree.folder); }

}  // namespace swale::tools
