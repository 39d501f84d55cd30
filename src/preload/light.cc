#include "preload/light.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/log/attach_client.h"
#include "fs/log/light_caller.h"
#include "preload/log_reads.h"
#include "preload/log_right.h"
#include "preload/next_calls.h"
#include "preload/signals_blocked.h"

namespace swale::preload {

constinit std::atomic<uint32_t> light_placeholders = 0;

namespace {

using fs::LightAnswer;
using fs::LightCall;
using fs::LightRequest;

enum LightState : uint32_t { kFree, kMeeting, kMet, kFailed };

constexpr int kFirstOfOurs = 3;
constexpr uint32_t kUnknown = ~uint32_t{0};
constexpr mode_t kModes = 0777;
// With any other flag the kernel is asked.
constexpr int kFlags = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW;
constexpr int64_t kSecondNanos = 1'000'000'000;

enum Own : uint32_t { kSocket, kTop, kNothing, kBell };  // kNothing: what placeholders are
static_assert(kBell + 1 == kLightOwn);

struct Light {
  std::atomic<int> own[kLightOwn] = {-1, -1, -1, -1};
  std::atomic<fs::LightPage*> page = nullptr;
  std::atomic<bool> busy = false;
  std::atomic<bool> is_lost = false;   // the server has not answered
  std::atomic<bool> has_read = false;  // a file of the tree
  std::atomic<uint32_t> umask = kUnknown;
  uint64_t device = 0;
  long user = 0, group = 0;
  uint32_t capabilities = 0;
  size_t top_bytes = 0;
  char top[4096] = "";
  char attach[kPlaceBytesMax + 1] = "";  // the other socket of the server
};
constinit Light light;

int own(Own which) { return light.own[which].load(std::memory_order_relaxed); }

fs::SystemCall system_call() { return next<long(long, ...)>(calls::syscall); }
fs::LightWay way() {
  return {system_call(), own(kSocket), own(kBell), light.page.load(std::memory_order_relaxed)};
}

// This thread talks to the server; a handler cannot come between.
class Talk {
 public:
  enum class If { kFree, kWaits };
  explicit Talk(If when) {
    for (;;) {
      has_ = !light.busy.exchange(true, std::memory_order_acquire);
      if (has_ || when == If::kFree) return;
      raw(SYS_sched_yield);
    }
  }
  ~Talk() {
    if (has_) light.busy.store(false, std::memory_order_release);
  }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;
  explicit operator bool() const { return has_; }

  // 0, or an errno. ETIMEDOUT: it may have been done, or be done later. `argument` gets what follows the
  // answer.
  int ask(const LightRequest& request, LightAnswer* answer, void* argument = nullptr, size_t size = 0) {
    if (light.is_lost.load()) return ENOTCONN;
    bool lost = false;
    const int failed = fs::ask_light(way(), request, answer, argument, size, &lost);
    return lost ? this->lost(failed) : failed;
  }

 private:
  // Nobody asks by this connection again. It stays: the server, if it lives, closes nothing that logs write.
  static int lost(int why) {
    light.is_lost.store(true);
    forget_umask();
    return why;
  }

  bool has_ = false;
};

// A directory on the tree: its inode, or 0. Costs no request to the server.
uint64_t directory_on_tree(int at, const char* path, uint64_t device) {
  struct statx found;
  constexpr long kHow = AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT;
  if (raw(SYS_statx, at, path, kHow, static_cast<long>(STATX_TYPE | STATX_INO), &found) != 0) return 0;
  if (!S_ISDIR(found.stx_mode)) return 0;
  return (uint64_t{found.stx_dev_major} << 32 | found.stx_dev_minor) == device ? found.stx_ino : 0;
}

// Of root, which a process can lose without another number; the first 32, among them those of files.
uint32_t capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  return raw(SYS_capget, &header, sets) == 0 ? sets[0].effective : 0;
}

bool keep_own(Own which, long fd) {
  if (fd < 0) return false;
  const long high = raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, kOwnDescriptorsBegin);
  raw(SYS_close, fd);
  light.own[which].store(static_cast<int>(high));
  return high >= 0;
}

// The name of the other socket, in the same folder.
bool beside(const char* attach, char* path, size_t space) {
  const char* const slash = ::strrchr(attach, '/');
  if (slash == nullptr || static_cast<size_t>(slash - attach) + 1 + sizeof(fs::kLightSocket) > space)
    return false;
  const size_t folder = static_cast<size_t>(slash - attach) + 1;
  ::memcpy(path, attach, folder);
  ::memcpy(path + folder, fs::kLightSocket, sizeof(fs::kLightSocket));
  return true;
}

bool meet(int fd, uint64_t device) {
  char value[kPlaceBytesMax + 1], path[kPlaceBytesMax + 1];
  const ssize_t bytes = ::fgetxattr(fd, fs::kAttachAttribute, value, kPlaceBytesMax);
  fs::AttachPlace place;
  if (bytes <= 0 || fs::parse_attach_place(value, static_cast<size_t>(bytes), &place) != 0) return false;
  if (!beside(place.socket, path, sizeof(path))) return false;
  int socket = -1;
  if (fs::connect_to_server(path, &socket, nullptr) != 0 || !keep_own(kSocket, socket)) return false;
  fs::LightWelcome said;
  int bell = -1;
  fs::LightPage* page = nullptr;
  if (fs::hear_welcome(system_call(), own(kSocket), &said, &bell, &page) != 0) return false;
  if (page != nullptr && !keep_own(kBell, bell)) return false;
  light.page.store(page);
  said.top[sizeof(said.top) - 1] = '\0';
  if (directory_on_tree(AT_FDCWD, said.top, device) == 0) return false;  // it is elsewhere in this namespace
  constexpr int kPath = O_PATH | O_DIRECTORY | O_CLOEXEC;
  if (!keep_own(kTop, raw(SYS_openat, AT_FDCWD, said.top, kPath))) return false;
  if (!keep_own(kNothing, raw(SYS_openat, AT_FDCWD, "/dev/null", O_PATH | O_CLOEXEC))) return false;
  ::memcpy(light.attach, place.socket, ::strlen(place.socket) + 1);
  light.device = device;
  light.capabilities = capabilities();
  light.user = raw(SYS_geteuid);
  light.group = raw(SYS_getegid);
  light.top_bytes = ::strlen(said.top);
  ::memcpy(light.top, said.top, light.top_bytes + 1);
  light.umask.store(read_umask());
  return light.umask.load() != kUnknown;
}

// A whole path that is not below the top: costs no call of the kernel.
bool is_elsewhere(const char* path) {
  return *path == '/' && (::strncmp(path, light.top, light.top_bytes) != 0 || path[light.top_bytes] != '/');
}

// What the path is below a directory, and that directory's inode; 0: the kernel is to be asked.
uint64_t place_of(int at, const char** path) {
  if (**path != '/') return directory_on_tree(at, "", light.device);
  *path += light.top_bytes;
  while (**path == '/') ++*path;
  return directory_on_tree(AT_FDCWD, light.top, light.device);
}

// As the server has seen this process when they met; one that has changed asks the kernel.
bool is_who_met() {
  return raw(SYS_geteuid) == light.user && raw(SYS_getegid) == light.group &&
         (light.user != 0 || capabilities() == light.capabilities);
}

// False: the kernel is to be asked.
bool put_path(int at, const char* path, LightRequest* request) {
  request->directory = place_of(at, &path);
  request->path_bytes = static_cast<uint32_t>(::strnlen(path, fs::kLightPathMax + 1));
  if (request->directory == 0 || request->path_bytes == 0 || request->path_bytes > fs::kLightPathMax)
    return false;
  ::memcpy(request->path, path, request->path_bytes);
  return true;
}

// Signals are blocked, and this thread talks. 0, or an errno; ENOSYS: the kernel is to be asked.
int open_here(Memory& all, Talk& talk, int at, const char* path, int flags, mode_t mode, int* fd) {
  LightRequest request;
  request.umask = light.umask.load(std::memory_order_relaxed);
  if (request.umask == kUnknown || !is_who_met() || !put_path(at, path, &request)) return ENOSYS;
  const long number_call = (flags & O_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD;
  const long placeholder = raw(SYS_fcntl, own(kNothing), number_call, 0L);
  if (placeholder < 0) return ENOSYS;
  int failed = ENOSYS;
  Description* made = nullptr;
  if (placeholder >= kFirstOfOurs && placeholder < static_cast<long>(kDescriptorsMax))
    made = begin_description(all, light.device);
  if (made != nullptr) {
    request.flags = static_cast<uint32_t>(flags);
    request.mode = mode;
    LightAnswer answer;
    failed = talk.ask(request, &answer);
    if (failed == 0) {
      made->access.store(static_cast<uint8_t>(flags & O_ACCMODE));
      made->appends.store((flags & O_APPEND) != 0);
      made->light.store(answer.handle, std::memory_order_release);
      if ((flags & O_ACCMODE) != O_WRONLY) begin_reads(*made);
      if ((flags & O_ACCMODE) == O_RDONLY) refuse_log(*made);
      light_placeholders.fetch_add(1);
      *fd = static_cast<int>(placeholder);
      share(all, *fd, made);
    }
    leave(all, made);
  }
  if (failed != 0) raw(SYS_close, placeholder);
  return failed == 0 || failed == ETIMEDOUT ? failed : ENOSYS;
}

void translate(const fs::LightStat& found, struct stat* out) {
  const auto time = [](int64_t nanos) {
    const int64_t rest = (nanos % kSecondNanos + kSecondNanos) % kSecondNanos;  // also before 1970
    return timespec{static_cast<time_t>((nanos - rest) / kSecondNanos), static_cast<long>(rest)};
  };
  *out = {};
  out->st_dev = ::makedev(static_cast<unsigned>(light.device >> 32), static_cast<unsigned>(light.device));
  out->st_ino = found.inode;
  out->st_mode = found.mode;
  out->st_nlink = found.links;
  out->st_uid = found.user;
  out->st_gid = found.group;
  out->st_size = static_cast<off_t>(found.size);
  out->st_blksize = static_cast<blksize_t>(found.block_bytes);
  out->st_blocks = static_cast<blkcnt_t>(found.blocks);
  out->st_atim = time(found.accessed_ns);
  out->st_mtim = time(found.modified_ns);
  out->st_ctim = time(found.changed_ns);
}

constexpr int kIsReal = -1;

// Asks about a placeholder: 0, or an errno; kIsReal: it is none any more. While this thread talks the handle
// is of this file: nobody closes it but behind a question about it.
int ask_of(Description& held, LightRequest* request, LightAnswer* answer, void* argument = nullptr,
           size_t size = 0) {
  if (held.light.load(std::memory_order_acquire) == 0) return kIsReal;
  const SignalsBlocked blocked;
  for (;;) {
    {
      Talk talk(Talk::If::kWaits);
      request->handle = held.light.load(std::memory_order_acquire);
      if (request->handle == 0) return kIsReal;
      if (request->handle != kGoingReal) {
        const int failed = talk.ask(*request, answer, argument, size);
        const bool grants = request->flags == static_cast<uint32_t>(fs::kAskShortCut);
        if (grants && failed == 0) held.light_granted.store(true);
        return failed;
      }
    }
    raw(SYS_sched_yield);  // another thread, which nothing interrupts
  }
}

// The kernel opens what was lent, by the number of the placeholder.
bool open_lent(const char* name, const Description& held, int fd) {
  const int flags = held.access.load() | (held.appends.load() ? O_APPEND : 0) | O_CREAT;
  const int mark = (raw(SYS_fcntl, fd, F_GETFD, 0L) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0;
  long real = raw(SYS_openat, own(kTop), name, flags | O_CLOEXEC, 0600L);
  if (real < 0 && errno == EMFILE) {  // so its own number is the lowest
    raw(SYS_close, fd);
    real = raw(SYS_openat, own(kTop), name, flags | mark, 0600L);
    if (real < 0) raw(SYS_openat, AT_FDCWD, "/dev/null", O_PATH | mark);
  }
  if (real < 0 || real == fd) return real >= 0;
  const bool done = raw(SYS_dup3, real, fd, mark) == fd;
  raw(SYS_close, real);
  return done;
}

bool become_real(int fd, Description& held, uint32_t handle) {
  Talk talk(Talk::If::kWaits);
  LightRequest request;
  request.call = LightCall::kReopen;
  request.handle = handle;
  LightAnswer answer;
  if (talk.ask(request, &answer) != 0) return false;
  answer.name[sizeof(answer.name) - 1] = '\0';
  return open_lent(answer.name, held, fd);
}

void go_real(Memory& all, Description& held, int fd, uint32_t handle) {
  if (!become_real(fd, held, handle)) {
    held.place.store(kKernels);
    refuse_log(held);
    held.light.store(handle, std::memory_order_release);
    return;
  }
  light_placeholders.fetch_sub(1);
  if (held.appends.load()) {
    held.place.store(kKernels);
    refuse_log(held);
  }
  // Another thread may be writing by what the handle was granted.
  const bool keeps = held.light_granted.load();
  if (keeps) held.light_kept.store(handle);
  held.light.store(0, std::memory_order_release);
  if (held.right.load() == kNotAsked) promise(all, held, fd);
  if (!keeps) close_light(handle);
}

}  // namespace

void meet_light(Memory& all, int fd, uint64_t device, int access) noexcept {
  uint32_t state = all.own.light.load(std::memory_order_relaxed);
  if (state != kFree) return;
  if (access == O_RDONLY && !light.has_read.exchange(true)) return;  // one alone is not worth it
  if (!all.own.light.compare_exchange_strong(state, kMeeting)) return;
  const bool met = wants_light() && meet(fd, device);
  all.own.light.store(met ? kMet : kFailed, std::memory_order_release);
}

bool has_met_light(const Memory& all) noexcept {
  return all.own.light.load(std::memory_order_acquire) == kMet;
}

bool open_light(Memory& all, int at, const char* path, int flags, mode_t mode, int* fd) noexcept {
  if ((flags & O_CREAT) == 0) mode = 0;  // nobody has said one
  if ((flags & ~kFlags) != 0 || (flags & O_ACCMODE) == O_ACCMODE || (mode & ~kModes & 07777) != 0 ||
      path == nullptr || is_elsewhere(path) || is_borrowed(all))
    return false;
  const int kept = errno;
  int failed = ENOSYS;
  {
    const SignalsBlocked blocked;
    if (Talk talk(Talk::If::kFree); talk) failed = open_here(all, talk, at, path, flags, mode & kModes, fd);
  }
  errno = kept;
  if (failed == 0) return true;
  if (failed != ETIMEDOUT) return false;
  errno = EIO;
  *fd = -1;
  return true;
}

void make_real(Memory& all, Description& held, int fd) noexcept {
  if (is_borrowed(all)) return;
  const int kept = errno;
  {
    const SignalsBlocked blocked;
    for (;;) {
      uint32_t handle = held.light.load(std::memory_order_acquire);
      if (handle == 0) break;
      if (handle == kGoingReal) {  // another thread, which nothing interrupts
        raw(SYS_sched_yield);
        continue;
      }
      if (!held.light.compare_exchange_strong(handle, kGoingReal)) continue;
      go_real(all, held, fd, handle);
      break;
    }
  }
  errno = kept;
}

void make_all_real() noexcept {
  Memory* const all = memory.load(std::memory_order_acquire);
  if (all == nullptr || light_placeholders.load() == 0 || is_borrowed(*all)) return;
  const uint32_t end = all->descriptors_end.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < end; ++i) const Held held(static_cast<int>(i));
}

void before_reopening(const char* path) noexcept {
  if (light_placeholders.load(std::memory_order_relaxed) == 0 || path == nullptr) return;
  if (::strncmp(path, "/proc/", 6) == 0 || ::strncmp(path, "/dev/", 5) == 0) make_all_real();
}

bool stat_light(Description& held, struct stat* out, int* result) noexcept {
  LightRequest request;
  request.call = LightCall::kStat;
  LightAnswer answer;
  const int kept = errno;
  const int failed = ask_of(held, &request, &answer);
  if (failed == kIsReal) return false;
  errno = failed != 0 ? EBADF : kept;
  *result = failed != 0 ? -1 : 0;
  if (failed != 0) return true;
  translate(answer.stat, out);
  return true;
}

int ask_tree(Description& held, int fd, unsigned long command, void* argument, size_t bytes) noexcept {
  LightRequest request;
  request.call = LightCall::kAsk;
  request.flags = static_cast<uint32_t>(command);
  request.path_bytes = static_cast<uint32_t>(bytes);
  ::memcpy(request.path, argument, bytes);
  LightAnswer answer;
  const int failed = ask_of(held, &request, &answer, argument, bytes);
  if (failed == kIsReal) return static_cast<int>(raw(SYS_ioctl, fd, static_cast<long>(command), argument));
  if (failed != 0) errno = failed;
  return failed != 0 ? -1 : 0;
}

int commit_light(Description& held) noexcept {
  if (!held.light_granted.load(std::memory_order_acquire)) return 0;
  LightRequest request;
  request.call = LightCall::kAsk;
  request.flags = static_cast<uint32_t>(fs::kAskCommit);
  LightAnswer answer;
  const int kept = errno;
  const int failed = ask_of(held, &request, &answer);
  errno = kept;
  return failed == kIsReal ? 0 : failed;  // the kernel's close does so
}

const char* attach_socket_of_light(uint64_t device) noexcept {
  Memory* const all = memory.load(std::memory_order_acquire);
  return all != nullptr && has_met_light(*all) && light.device == device ? light.attach : nullptr;
}

bool look_light(Memory& all, int at, const char* path, int access, struct stat* found) noexcept {
  if (path == nullptr || is_elsewhere(path) || is_borrowed(all)) return false;
  const int kept = errno;
  bool looked = false;
  {
    const SignalsBlocked blocked;
    LightRequest request;
    request.call = LightCall::kLook;
    request.mode = static_cast<uint32_t>(access);
    LightAnswer answer;
    Talk talk(Talk::If::kFree);
    looked = talk && is_who_met() && put_path(at, path, &request) && talk.ask(request, &answer) == 0;
    if (looked && found != nullptr) translate(answer.stat, found);
  }
  errno = kept;
  return looked;
}

// No answer: it needs no turn.
void close_light(uint32_t handle) noexcept {
  Memory* const all = memory.load(std::memory_order_acquire);
  if (all != nullptr && has_met_light(*all)) fs::close_light(way(), handle);
}

void note_umask(mode_t mask) noexcept {
  Memory* const all = memory.load(std::memory_order_acquire);
  if (all == nullptr || !has_met_light(*all) || is_borrowed(*all)) return;
  if (light.umask.load() != kUnknown) light.umask.store(mask & kModes);
}

void forget_umask() noexcept { light.umask.store(kUnknown); }

uint32_t read_umask() noexcept {
  char text[4096];
  const long file = raw(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return kUnknown;
  const long got = raw(SYS_read, file, text, sizeof(text) - 1);
  raw(SYS_close, file);
  if (got <= 0) return kUnknown;
  text[got] = '\0';
  constexpr char kUmask[] = "\nUmask:\t";
  const char* const at = ::strstr(text, kUmask);
  return at == nullptr ? kUnknown : static_cast<uint32_t>(::strtoul(at + sizeof(kUmask) - 1, nullptr, 8));
}

int light_descriptor(const Memory& all, uint32_t which) noexcept {
  return has_met_light(all) ? light.own[which].load(std::memory_order_relaxed) : -1;
}

void move_light_descriptor(uint32_t which, int other) noexcept { light.own[which].store(other); }

void drop_light_of_parent() noexcept {
  for (auto& each : light.own)
    if (const int fd = each.exchange(-1); fd >= 0) raw(SYS_close, fd);
  light.page.store(nullptr);  // it is not mapped here
  light.busy.store(false);
  light.is_lost.store(false);
  light_placeholders.store(0);
}

}  // namespace swale::preload
