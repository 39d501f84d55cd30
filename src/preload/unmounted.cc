// Where paths lead, and how the server is asked (unmounted.h).
#include "preload/unmounted.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/log/attach_client.h"
#include "preload/light.h"
#include "preload/messages.h"
#include "preload/next_calls.h"

namespace swale::preload {

constinit std::atomic<Unmounted> unmounted = Unmounted::kNotLooked;

namespace {

using fs::kUnmountedPathMax;
using fs::UnmountedAnswer;
using fs::UnmountedRequest;

constexpr int kLinksMax = 40;  // as the kernel
constexpr int kServerWaitSeconds = 10;
constexpr int kServersWaitSeconds = 60;  // of several nodes: all are started anew
constexpr long kAskAgainNanos = 20'000'000;
constexpr int64_t kSecondNanos = 1'000'000'000;
constexpr int kProgramIsWrong = 78;  // EX_CONFIG

constinit std::atomic<bool> is_looking = false;
constinit char socket_path[kUnmountedPathMax] = "";
constinit char top[kUnmountedPathMax] = "";
constinit size_t top_bytes = 0;
constinit dev_t top_device = 0;
constinit bool is_on_nodes = false;

// Of which process, in the upper half: a child has its own, also one of vfork, which has this memory.
constinit std::atomic<uint64_t> known_umask = 0;
constinit std::atomic<uint32_t> umask_changes = 0;
constexpr uint64_t kProcessShift = 32;
constexpr uint32_t kUmaskBits = 0777;

// "SOCKET:TOP", or "nodes:SOCKET:TOP".
bool parse(const char* value) {
  constexpr size_t kNodesBytes = sizeof(fs::kUnmountedOnNodes) - 1;
  is_on_nodes = ::strncmp(value, fs::kUnmountedOnNodes, kNodesBytes) == 0;
  if (is_on_nodes) value += kNodesBytes;
  const char* const colon = ::strchr(value, ':');
  if (colon == nullptr || colon[1] != '/') return false;
  const auto socket_bytes = static_cast<size_t>(colon - value);
  top_bytes = ::strlen(colon + 1);
  if (socket_bytes >= sizeof(socket_path) || top_bytes >= sizeof(top)) return false;
  ::memcpy(socket_path, value, socket_bytes);
  ::memcpy(top, colon + 1, top_bytes + 1);
  return true;
}

// Going on would put files beside the tree.
[[noreturn]] void give_up(const char* why) {
  tell("%s=%s: %s: this program is ended, as it would write beside the tree", fs::kUnmountedVariable,
       ::getenv(fs::kUnmountedVariable), why);
  ::_exit(kProgramIsWrong);
}

Unmounted look() {
  const char* const value = ::getenv(fs::kUnmountedVariable);
  if (value == nullptr || *value == '\0') return Unmounted::kNo;
  if (!parse(value)) give_up("it is not what swale run --no-mount sets");
  struct statx found;
  if (raw(SYS_statx, AT_FDCWD, top, 0L, static_cast<long>(STATX_BASIC_STATS), &found) != 0)
    return Unmounted::kNo;  // no path leads there
  top_device = ::makedev(found.stx_dev_major, found.stx_dev_minor);
  char here[2];
  if (raw(SYS_readlinkat, AT_FDCWD, "/proc/self/cwd", here, sizeof(here)) <= 0) give_up("/proc is not there");
  return Unmounted::kYes;
}

// A directory's path; 0: it has none.
size_t path_of(const char* link, char* out, size_t space) {
  const long got = raw(SYS_readlinkat, AT_FDCWD, link, out, space);
  if (got <= 0 || got >= static_cast<long>(space) || out[0] != '/') return 0;
  out[got] = '\0';
  return static_cast<size_t>(got);
}

size_t path_of(int fd, char* out, size_t space) {
  if (fd == AT_FDCWD) return path_of("/proc/self/cwd", out, space);
  char link[32];
  ::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  return path_of(link, out, space);
}

// A whole path at the top, or below it: what follows the top, without a slash; null: it is elsewhere.
const char* below_top(const char* path) {
  if (::strncmp(path, top, top_bytes) != 0) return nullptr;
  if (path[top_bytes] == '\0') return path + top_bytes;
  return path[top_bytes] == '/' ? path + top_bytes + 1 : nullptr;
}

// A path whose folder the kernel resolves, link after link.
class Resolved {
 public:
  Resolved(int at, const char* path) : at_(at) {
    const size_t bytes = path == nullptr ? 0 : ::strnlen(path, sizeof(path_));
    if (bytes == 0 || bytes >= sizeof(path_)) return;
    ::memcpy(path_, path, bytes + 1);
  }
  ~Resolved() { leave(); }
  Resolved(const Resolved&) = delete;
  Resolved& operator=(const Resolved&) = delete;

  // True: it is a name below the top, and out has that, without a slash at its end.
  bool find(Links links, char* out, uint32_t* out_bytes) {
    for (int i = 0; i < kLinksMax && split(); ++i) {
      if (links == Links::kFollowed && follow()) continue;
      return is_below(out, out_bytes);
    }
    return false;
  }
  bool had_slash() const { return had_slash_; }

 private:
  void leave() {
    if (folder_ >= 0) raw(SYS_close, folder_);
    folder_ = -1;
  }
  // Opens the folder; false: the path is no name in one, or the kernel will say what is wrong.
  bool split() {
    size_t bytes = ::strlen(path_);
    if (bytes == 0) return false;
    if (path_[bytes - 1] == '/') had_slash_ = true;
    while (bytes > 1 && path_[bytes - 1] == '/') path_[--bytes] = '\0';
    char* const slash = ::strrchr(path_, '/');
    name_ = slash == nullptr ? path_ : slash + 1;
    if (*name_ == '\0' || ::strcmp(name_, ".") == 0 || ::strcmp(name_, "..") == 0) return false;
    if (slash == nullptr) return true;
    long opened = open_until(name_);
    // A file that the backing lacks may stand in the way: the server knows, of what is below the last folder
    // that is there.
    while (opened < 0 && errno == ENOENT && name_ != path_) {
      char* above = name_ - 1;
      while (above > path_ && above[-1] == '/') --above;
      while (above > path_ && above[-1] != '/') --above;
      if (is_dots(above)) return false;
      name_ = above;
      opened =
          name_ == path_ ? raw(SYS_openat, at_, ".", O_PATH | O_DIRECTORY | O_CLOEXEC) : open_until(name_);
    }
    leave();
    if (opened < 0) return false;
    folder_ = at_ = static_cast<int>(opened);
    return true;
  }
  long open_until(char* end) {
    const char first = *end;
    *end = '\0';
    const long opened = raw(SYS_openat, at_, path_, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *end = first;
    return opened;
  }
  static bool is_dots(const char* name) {
    return name[0] == '.' && (name[1] == '/' || (name[1] == '.' && name[2] == '/'));
  }
  // What the name says, if it is a link, is the path now.
  bool follow() {
    char target[kUnmountedPathMax];
    const long got = raw(SYS_readlinkat, at_, name_, target, sizeof(target));
    if (got <= 0 || got >= static_cast<long>(sizeof(target))) return false;
    ::memcpy(path_, target, static_cast<size_t>(got));
    path_[got] = '\0';
    return true;
  }
  bool is_below(char* out, uint32_t* out_bytes) const {
    char folder[kUnmountedPathMax];
    if (path_of(at_, folder, sizeof(folder)) == 0) return false;
    const char* const below = below_top(folder);
    if (below == nullptr) return false;
    const int bytes = ::snprintf(out, kUnmountedPathMax, "%s%s%s", below, *below == '\0' ? "" : "/", name_);
    if (bytes <= 0 || bytes >= static_cast<int>(kUnmountedPathMax)) return false;
    uint32_t end = 0;
    for (int i = 0; i < bytes; ++i)
      if (out[i] != '/' || (end > 0 && out[end - 1] != '/')) out[end++] = out[i];
    *out_bytes = end;
    return true;
  }

  int at_;
  int folder_ = -1;
  bool had_slash_ = false;
  char* name_ = path_;
  char path_[kUnmountedPathMax] = "";
};

// The answer, and its descriptor.
int hear(int socket, UnmountedAnswer* answer, int* fd) {
  iovec part = {answer, sizeof(*answer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  long got = 0;
  do {
    got = raw(SYS_recvmsg, socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && (errno == EINTR || errno == EAGAIN));  // a sync takes what it takes
  int passed = -1;
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (got > 0 && head != nullptr && head->cmsg_type == SCM_RIGHTS)
    ::memcpy(&passed, CMSG_DATA(head), sizeof(passed));
  const bool is_right = got == static_cast<long>(sizeof(*answer)) && answer->magic == fs::kUnmountedMagic &&
                        answer->version == fs::kUnmountedVersion;
  if (passed >= 0 && (fd == nullptr || !is_right || answer->error != 0)) {
    raw(SYS_close, passed);
    passed = -1;
  }
  if (!is_right) return EPROTO;
  if (fd != nullptr) *fd = passed;
  if (answer->error == 0 && (message.msg_flags & MSG_CTRUNC) != 0) return EMFILE;
  return answer->error;
}

// 0, or an errno; EPROTO: it may have been done, or not.
int ask_once(const UnmountedRequest& request, UnmountedAnswer* answer, int* fd) {
  int socket = -1;
  const int apart = -fs::connect_to_server(socket_path, &socket, nullptr);
  if (apart != 0) return apart == EMFILE || apart == ENFILE || apart == ENOMEM ? apart : ECONNREFUSED;
  const auto bytes = static_cast<long>(fs::kUnmountedHeadBytes + request.path_bytes + request.other_bytes);
  const bool sent = raw(SYS_sendto, socket, &request, bytes, MSG_NOSIGNAL, 0L, 0L) == bytes;
  const int failed = sent ? hear(socket, answer, fd) : ECONNREFUSED;
  raw(SYS_close, socket);
  return failed;
}

// Which is no directory: the server is to say so. Else the kernel knows.
bool is_file_with_slash(UnmountedRequest* request) {
  UnmountedRequest look;
  UnmountedAnswer answer;
  look.call = fs::UnmountedCall::kLook;
  look.path_bytes = request->path_bytes;
  ::memcpy(look.paths, request->paths, look.path_bytes);
  if (request->path_bytes + 2 >= kUnmountedPathMax || ask_unmounted(look, &answer) != 0 ||
      answer.kind != S_IFREG)
    return false;
  ::memcpy(request->paths + request->path_bytes, "/.", 2);
  request->path_bytes += 2;
  return true;
}

// What is done twice is as if it had come later.
bool may_come_again(const UnmountedRequest& request) {
  switch (request.call) {
    case fs::UnmountedCall::kLook:
    case fs::UnmountedCall::kList:
    case fs::UnmountedCall::kSync:
    case fs::UnmountedCall::kSyncAll:
    case fs::UnmountedCall::kStats:
    case fs::UnmountedCall::kGetAttribute:
    case fs::UnmountedCall::kListAttributes:
      return true;
    case fs::UnmountedCall::kOpen:
      return (request.flags & O_EXCL) == 0;
    default:
      return false;
  }
}

__attribute__((constructor)) void look_early() { static_cast<void>(is_unmounted()); }

}  // namespace

bool look_for_unmounted() noexcept {
  if (unmounted.load() != Unmounted::kNotLooked) return unmounted.load() == Unmounted::kYes;
  const int kept = errno;
  if (!is_looking.exchange(true)) {
    unmounted.store(look(), std::memory_order_release);
  } else {  // another thread does, or a handler has interrupted it: it waits no longer than that takes
    for (int i = 0; i < 1000 && unmounted.load() == Unmounted::kNotLooked; ++i) raw(SYS_sched_yield);
  }
  errno = kept;
  return unmounted.load() == Unmounted::kYes;
}

bool place_unmounted(int at, const char* path, Links links, UnmountedRequest* request) noexcept {
  const int kept = errno;
  const bool cuts = request->call == fs::UnmountedCall::kMakeDirectory ||
                    request->call == fs::UnmountedCall::kRemoveDirectory ||
                    request->call == fs::UnmountedCall::kRename;
  Resolved resolved(at, path);
  bool found = resolved.find(links, request->paths, &request->path_bytes);
  if (found && resolved.had_slash() && !cuts) found = is_file_with_slash(request);
  errno = kept;
  return found;
}

bool other_place_unmounted(int at, const char* path, UnmountedRequest* request) noexcept {
  const int kept = errno;
  const bool found =
      Resolved(at, path).find(Links::kStay, request->paths + request->path_bytes, &request->other_bytes);
  errno = kept;
  return found;
}

bool directory_unmounted(int fd, UnmountedRequest* request) noexcept {
  const int kept = errno;
  char path[kUnmountedPathMax];
  const char* const below = path_of(fd, path, sizeof(path)) == 0 ? nullptr : below_top(path);
  if (below != nullptr) {
    request->path_bytes = static_cast<uint32_t>(::strlen(below));
    ::memcpy(request->paths, below, request->path_bytes);
  }
  errno = kept;
  return below != nullptr;
}

bool is_directory_unmounted(int at, const char* path) noexcept {
  const long fd =
      is_unmounted() && path != nullptr ? raw(SYS_openat, at, path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  UnmountedRequest request;
  const bool is_ours = fd >= 0 && directory_unmounted(static_cast<int>(fd), &request);
  if (fd >= 0) raw(SYS_close, fd);
  return is_ours;
}

int ask_unmounted(const UnmountedRequest& request, UnmountedAnswer* answer, int* fd) noexcept {
  const int kept = errno;
  const timespec pause = {0, kAskAgainNanos};
  int failed = 0;
  const int seconds = is_on_nodes ? kServersWaitSeconds : kServerWaitSeconds;
  for (int64_t waited = 0; waited < seconds * kSecondNanos; waited += kAskAgainNanos) {
    failed = ask_once(request, answer, fd);
    const bool again = failed == ECONNREFUSED || (failed == EPROTO && may_come_again(request));
    if (!again) break;
    raw(SYS_nanosleep, &pause, 0L);
  }
  if (failed == ECONNREFUSED || failed == EPROTO) {
    tell("the server of the tree %s does not answer: %.*s fails", top, static_cast<int>(request.path_bytes),
         request.paths);
    failed = EIO;
  }
  errno = kept;
  return failed;
}

bool is_file_unmounted(int at, const char* path, Links links, UnmountedAnswer* answer) noexcept {
  UnmountedRequest request;
  request.call = fs::UnmountedCall::kLook;
  return place_unmounted(at, path, links, &request) && ask_unmounted(request, answer) == 0 &&
         answer->kind == S_IFREG;
}

bool refuse_unmounted(const char* call, const char* path, int error, int* result) noexcept {
  tell("%s of %s is refused: %s, in a tree that is mounted nowhere", call, path == nullptr ? "" : path,
       error == EPERM ? "nobody can do so" : "it is not known how to do so");
  *result = -1;
  errno = error;
  return true;
}

void translate_unmounted(const fs::LightStat& from, struct stat* to) noexcept {
  const auto time = [](int64_t nanos) {
    const int64_t rest = (nanos % kSecondNanos + kSecondNanos) % kSecondNanos;
    return timespec{static_cast<time_t>((nanos - rest) / kSecondNanos), static_cast<long>(rest)};
  };
  *to = {};
  to->st_dev = top_device;
  to->st_ino = from.inode;
  to->st_mode = from.mode;
  to->st_nlink = from.links;
  to->st_uid = from.user;
  to->st_gid = from.group;
  to->st_size = static_cast<off_t>(from.size);
  to->st_blksize = static_cast<blksize_t>(from.block_bytes);
  to->st_blocks = static_cast<blkcnt_t>(from.blocks);
  to->st_atim = time(from.accessed_ns);
  to->st_mtim = time(from.modified_ns);
  to->st_ctim = time(from.changed_ns);
}

uint32_t umask_unmounted() noexcept {
  const auto process = static_cast<uint64_t>(raw(SYS_getpid)) << kProcessShift;
  const uint64_t known = known_umask.load(std::memory_order_acquire);
  if (known >> kProcessShift << kProcessShift == process) return static_cast<uint32_t>(known) & kUmaskBits;
  const int kept = errno;
  const uint32_t changes = umask_changes.load();
  const uint32_t found = read_umask();
  errno = kept;
  if (found == fs::kUnknownUmask) return found;
  known_umask.store(process | found, std::memory_order_release);
  if (umask_changes.load() != changes) known_umask.store(0);  // another thread has another one by now
  return found & kUmaskBits;
}

void forget_umask_unmounted() noexcept {
  umask_changes.fetch_add(1);
  known_umask.store(0);
}

const char* top_unmounted() noexcept { return top; }

bool is_on_nodes_unmounted() noexcept { return is_unmounted() && is_on_nodes; }

const timespec* times_of(const timeval* times, timespec out[2]) noexcept {
  if (times == nullptr) return nullptr;
  for (int i = 0; i < 2; ++i) out[i] = {times[i].tv_sec, times[i].tv_usec * 1000};
  return out;
}

// A stand-in says so by its mode; a descriptor of the backing's file by its place.
void restat_unmounted(int fd, struct stat* found) noexcept {
  if (!S_ISREG(found->st_mode)) return;
  UnmountedRequest request;
  request.call = fs::UnmountedCall::kLook;
  UnmountedAnswer answer;
  if ((found->st_mode & 07777) == fs::kStandInMode)
    request.stand_in = found->st_ino;
  else if (found->st_dev != top_device || !directory_unmounted(fd, &request) || request.path_bytes == 0)
    return;
  if (ask_unmounted(request, &answer) == 0 && answer.kind == S_IFREG) translate_unmounted(answer.stat, found);
}

}  // namespace swale::preload
