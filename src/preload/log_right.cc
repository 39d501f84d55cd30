#include "preload/log_right.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/log/attach_client.h"
#include "preload/light.h"
#include "preload/next_calls.h"

namespace swale::preload {
namespace {

constexpr uint32_t kDevicesMax = 8;
constexpr uint64_t kIsKnown = uint64_t{1} << 63;
constexpr uint64_t kIsTree = uint64_t{1} << 62;
constexpr uint64_t kDeviceBits = kIsTree - 1;

// A meeting with the server costs as much as so many writes of up to 32 KiB through the mount.
constexpr uint32_t kMeetingWrites = 32;
constexpr uint32_t kRealWrites = 8;  // what it takes to become real
constexpr unsigned kBytesShift = 15;
constexpr uint32_t kAgainWrites = 64;

enum LogState : uint32_t { kFree, kMeeting, kMet, kFailed };

struct Log {
  std::atomic<uint64_t> device = 0;
  std::atomic<int> socket = -1;
  fs::AttachToken token;
  fs::LogWriter writer;
};

constinit Log logs[kTreesMax];
constinit std::atomic<uint64_t> devices[kDevicesMax] = {};
constinit std::atomic<uint32_t> next_device = 0;
constinit std::atomic<uint32_t> mounted_writes = 0;
constinit std::atomic<bool> has_mapped = false;

// A device that is unmounted may come again as another one: then requests fail, and files are the kernel's.
bool is_tree(uint64_t device, int fd) {
  for (const auto& each : devices) {
    const uint64_t known = each.load(std::memory_order_relaxed);
    if ((known & kIsKnown) != 0 && (known & kDeviceBits) == device) return (known & kIsTree) != 0;
  }
  char value[kPlaceBytesMax];
  const bool found = ::fgetxattr(fd, fs::kAttachAttribute, value, sizeof(value)) > 0;
  const uint32_t index = next_device.fetch_add(1, std::memory_order_relaxed) % kDevicesMax;
  devices[index].store(kIsKnown | (found ? kIsTree : 0) | device, std::memory_order_relaxed);
  return found;
}

// 0, or the errno.
int ask(Description& held, int fd, const fs::AttachToken& token) {
  fs::GrantRequest request;
  request.token = token;
  if (ask_tree(held, fd, fs::kAskShortCut, &request, sizeof(request)) != 0) return errno;
  held.file = {request.file_high, request.file_low};
  return 0;
}

bool meet(Log& log, const Description& held, int fd) {
  char value[kPlaceBytesMax + 1];
  fs::AttachPlace place;
  place.socket = attach_socket_of_light(held.device);
  if (place.socket == nullptr) {
    const ssize_t bytes = ::fgetxattr(fd, fs::kAttachAttribute, value, kPlaceBytesMax);
    if (bytes <= 0 || fs::parse_attach_place(value, static_cast<size_t>(bytes), &place) != 0) return false;
  }
  fs::ServerConnection connection;
  if (fs::attach_to_server(place.socket, &log.writer, &connection, nullptr) != 0) return false;
  const long high = raw(SYS_fcntl, connection.socket, F_DUPFD_CLOEXEC, kOwnDescriptorsBegin);
  if (high >= 0) {
    raw(SYS_close, connection.socket);
    connection.socket = static_cast<int>(high);
  }
  log.token = connection.token;
  log.device.store(held.device, std::memory_order_relaxed);
  log.socket.store(connection.socket, std::memory_order_release);
  return true;
}

// Of the tree, or kTreesMax: there is none. *failed: there will be none.
uint32_t find_log(const Memory& all, uint64_t device, bool* failed) {
  for (uint32_t i = 0; i < kTreesMax; ++i) {
    const uint32_t state = all.own.logs[i].load(std::memory_order_acquire);
    if (state < kMet || logs[i].device.load(std::memory_order_relaxed) != device) continue;
    if (state == kMet) return i;
    *failed = true;
  }
  return kTreesMax;
}

uint32_t make_log(Memory& all, const Description& held, int fd, bool* failed) {
  for (uint32_t i = 0; i < kTreesMax; ++i) {
    uint32_t state = kFree;
    if (!all.own.logs[i].compare_exchange_strong(state, kMeeting)) {
      if (state == kMeeting) return kTreesMax;  // perhaps the same tree's
      continue;
    }
    logs[i].device.store(held.device, std::memory_order_relaxed);
    const bool met = meet(logs[i], held, fd);
    all.own.logs[i].store(met ? kMet : kFailed, std::memory_order_release);
    *failed = !met;
    return met ? i : kTreesMax;
  }
  *failed = true;
  return kTreesMax;
}

// The kernel checks the limit only in writes that it sees.
bool may_grow() {
  rlimit limit = {};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

// What the description's right becomes.
uint32_t asked(Memory& all, Description& held, int fd, uint32_t log) {
  const int failed = ask(held, fd, logs[log].token);
  if (failed == 0) return kGranted + log;
  if (failed == EBUSY) {
    held.ask_after.store(mounted_writes.load(std::memory_order_relaxed) + kAgainWrites);
    return kNotAsked;
  }
  if (failed != EPERM) return kRefused;
  // The server has come anew: the log is none of its own.
  all.own.logs[log].store(kFailed, std::memory_order_release);
  logs[log].device.store(0, std::memory_order_relaxed);
  return kNotAsked;
}

}  // namespace

uint64_t device_on_tree(int fd) noexcept {
  struct statx found;
  constexpr long kHow = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;  // no request to any server
  if (raw(SYS_statx, fd, "", kHow, static_cast<long>(STATX_TYPE), &found) != 0) return 0;
  if (!S_ISREG(found.stx_mode)) return 0;
  const uint64_t device = (uint64_t{found.stx_dev_major} << 32 | found.stx_dev_minor) & kDeviceBits;
  return is_tree(device, fd) ? device : 0;
}

void learn_size(int fd) noexcept {
  struct statx found;
  constexpr long kHow = AT_EMPTY_PATH | AT_STATX_FORCE_SYNC;
  raw(SYS_statx, fd, "", kHow, static_cast<long>(STATX_SIZE), &found);
}

void promise(Memory& all, Description& held, int fd) noexcept {
  uint32_t right = kRefused;
  if (!has_mapped.load(std::memory_order_relaxed)) {
    bool failed = false;
    const uint32_t log = find_log(all, held.device, &failed);
    if (log < kTreesMax && may_grow())
      right = asked(all, held, fd, log);
    else if (ask(held, fd, {}) == 0)
      right = kNotAsked;
  }
  held.right.store(right, std::memory_order_release);
}

fs::LogWriter* log_for(Memory& all, Description& held, int fd, uint64_t bytes) noexcept {
  uint32_t right = held.right.load(std::memory_order_acquire);
  if (right >= kGranted) return &logs[right - kGranted].writer;
  if (right != kNotAsked) return nullptr;
  if (has_mapped.load(std::memory_order_relaxed)) {
    refuse_log(held);
    return nullptr;
  }
  bool failed = false;
  uint32_t log = find_log(all, held.device, &failed);
  const bool is_light = held.light.load(std::memory_order_relaxed) != 0;
  const auto cost = static_cast<uint32_t>((is_light ? kRealWrites : 1) + (bytes >> kBytesShift));
  const uint32_t writes = mounted_writes.fetch_add(cost, std::memory_order_relaxed) + cost;
  if (writes < held.ask_after.load(std::memory_order_relaxed)) return nullptr;
  if (log == kTreesMax && !failed && writes < kMeetingWrites) return nullptr;
  if (!held.right.compare_exchange_strong(right, kBeingAsked)) return nullptr;
  const int kept = errno;
  uint32_t now = kNotAsked;
  if (!may_grow()) failed = true;
  if (log == kTreesMax && !failed) log = make_log(all, held, fd, &failed);
  if (failed) now = kRefused;
  if (log < kTreesMax && !failed) now = asked(all, held, fd, log);
  held.right.store(now, std::memory_order_release);
  errno = kept;
  return now >= kGranted ? &logs[now - kGranted].writer : nullptr;
}

// A server that is gone has ended the mappings, too.
void show(Description& held, int fd) noexcept {
  const int kept = errno;
  char none = 0;
  static_cast<void>(ask_tree(held, fd, fs::kAskShow, &none, 0));
  errno = kept;
}

void refuse_all_logs() noexcept {
  has_mapped.store(true, std::memory_order_relaxed);
  Memory* const all = memory.load(std::memory_order_acquire);
  if (all == nullptr) return;
  const uint32_t end = all->descriptors_end.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < end; ++i)
    if (const Held held(static_cast<int>(i)); held) refuse_log(*held);
}

static_assert(kOwnDescriptors == kTreesMax + kLightOwn);

int own_descriptor(const Memory& all, uint32_t which) noexcept {
  if (which >= kTreesMax) return light_descriptor(all, which - kTreesMax);
  return all.own.logs[which].load(std::memory_order_acquire) >= kMet ? logs[which].socket.load() : -1;
}

bool is_own(const Memory& all, int fd) noexcept {
  for (uint32_t i = 0; i < kOwnDescriptors; ++i)
    if (fd >= 0 && own_descriptor(all, i) == fd) return true;
  return false;
}

void move_own(Memory& all, int fd) noexcept {
  for (uint32_t i = 0; i < kOwnDescriptors; ++i) {
    if (own_descriptor(all, i) != fd) continue;
    const auto other = static_cast<int>(raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, kOwnDescriptorsBegin));
    if (other < 0) continue;
    if (i < kTreesMax)
      logs[i].socket.store(other);
    else
      move_light_descriptor(i - kTreesMax, other);
  }
}

// Its connections are not to outlive it here.
void drop_logs_of_parent() noexcept {
  for (Log& each : logs) {
    if (const int socket = each.socket.exchange(-1); socket >= 0) raw(SYS_close, socket);
    each.device.store(0, std::memory_order_relaxed);
  }
  mounted_writes.store(0, std::memory_order_relaxed);
  drop_light_of_parent();
}

}  // namespace swale::preload
