#include "fs/as_caller.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/log.h"
#include "io/descriptor.h"

namespace swale::fs {
namespace {

constexpr size_t kStatusBytes = 4096;
constexpr size_t kStatusBytesMax = 1u << 20;  // 65,536 groups, the kernel's most
constexpr size_t kOpenStatuses = 4;           // of a thread that serves requests

__user_cap_header_struct this_thread_header() { return {_LINUX_CAPABILITY_VERSION_3, 0}; }

bool set_capabilities(const Capabilities& wanted) {
  auto header = this_thread_header();
  return ::syscall(SYS_capset, &header, wanted.data()) == 0;
}

bool set_groups(const std::vector<gid_t>& groups) {
  return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

// Both answer the id before: a second call with an id that cannot be tells whether the first one did it.
bool set_user(uid_t user) {
  ::syscall(SYS_setfsuid, user);
  return static_cast<uid_t>(::syscall(SYS_setfsuid, -1)) == user;
}
bool set_group(gid_t group) {
  ::syscall(SYS_setfsgid, group);
  return static_cast<gid_t>(::syscall(SYS_setfsgid, -1)) == group;
}

// Threads share their umask until one asks for its own.
bool own_umask() {
  thread_local bool has_own = false;
  if (!has_own) has_own = ::unshare(CLONE_FS) == 0;
  return has_own;
}

// The text of an open status file; "" if its thread is gone.
std::string read_status(const io::Descriptor& file) {
  std::string text(kStatusBytes, '\0');
  size_t used = 0;
  for (;;) {
    const ssize_t got = io::continued([&] {
      return ::pread(file.get(), text.data() + used, text.size() - used, static_cast<off_t>(used));
    });
    if (got < 0 || used == kStatusBytesMax) return "";
    if (got == 0) break;
    used += static_cast<size_t>(got);
    if (used == text.size()) text.resize(std::min(2 * used, kStatusBytesMax));
  }
  text.resize(used);
  return text;
}

// The text of /proc/THREAD/task/THREAD/status; "" if there is none. To open the file costs more than to read
// it, so a thread that serves requests keeps some open. An open file is its thread's for ever: when the
// thread is gone it gives an error, also if another thread has the number by then.
std::string status_of(pid_t thread) {
  struct Open {
    pid_t thread = 0;
    io::Descriptor file;
  };
  thread_local std::array<Open, kOpenStatuses> open;
  thread_local size_t oldest = 0;
  for (const Open& one : open) {
    if (one.thread != thread || !one.file.valid()) continue;
    if (std::string text = read_status(one.file); !text.empty()) return text;
  }
  const std::string number = std::to_string(thread);
  io::Descriptor file(
      ::open(("/proc/" + number + "/task/" + number + "/status").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return "";
  std::string text = read_status(file);
  open[oldest] = {thread, std::move(file)};
  oldest = (oldest + 1) % kOpenStatuses;
  return text;
}

// The numbers of a line "Name:\t1 2 3".
std::vector<uint32_t> numbers_of(std::string_view text, std::string_view name) {
  std::vector<uint32_t> numbers;
  size_t at = text.find(name);
  if (at == std::string_view::npos) return numbers;
  at += name.size();
  const std::string_view line = text.substr(at, text.find('\n', at) - at);
  for (const char* next = line.data(); next < line.data() + line.size();) {
    uint32_t number = 0;
    const auto [end, failed] = std::from_chars(next, line.data() + line.size(), number);
    if (failed == std::errc()) numbers.push_back(number);
    next = failed == std::errc() ? end : next + 1;
  }
  return numbers;
}

[[noreturn]] void end_process(const char* what, int failed) {
  log_error(
      "a thread that served a request cannot become this process again ({}: {}); the process ends, because "
      "its next request would run as another user; nothing that was acknowledged is lost: mount again",
      what, std::strerror(failed));
  std::abort();
}

}  // namespace

Caller Caller::this_thread() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return {::geteuid(), ::getegid(), static_cast<pid_t>(::syscall(SYS_gettid)), mask};
}

std::vector<gid_t> groups_of(const Caller& caller) {
  if (caller.thread <= 0) return {};
  const std::string status = status_of(caller.thread);
  // Real, effective, saved and file system's. Another one's number: the caller is not in this process's
  // /proc.
  const auto users = numbers_of(status, "\nUid:");
  const auto groups = numbers_of(status, "\nGid:");
  if (users.size() != 4 || groups.size() != 4 || users[3] != caller.user || groups[3] != caller.group)
    return {};
  return numbers_of(status, "\nGroups:");
}

bool Credentials::may(const struct stat& directory, int wanted) const {
  if (overrides) return true;
  const auto bits = static_cast<int>(directory.st_mode);
  if (directory.st_uid == user) return (bits >> 6 & wanted) == wanted;
  const bool is_member =
      directory.st_gid == group || std::find(groups.begin(), groups.end(), directory.st_gid) != groups.end();
  return ((is_member ? bits >> 3 : bits) & wanted) == wanted;
}

Result<Credentials> credentials_of(const Caller& caller) {
  const std::string status = status_of(caller.thread);
  const auto users = numbers_of(status, "\nUid:");
  const auto groups = numbers_of(status, "\nGid:");
  if (users.size() != 4 || groups.size() != 4 || users[3] != caller.user || groups[3] != caller.group)
    return error(Code::kUnavailable, Scope::kOperation,
                 "/proc does not show process {} as one of user {} and group {}", caller.thread, caller.user,
                 caller.group);
  Credentials found{caller.user, caller.group, caller.thread, numbers_of(status, "\nGroups:"), false};
  constexpr std::string_view kEffective = "\nCapEff:\t";
  const size_t at = status.find(kEffective);
  if (at == std::string::npos || caller.user != 0) return found;
  uint64_t capabilities = 0;
  std::from_chars(status.data() + at + kEffective.size(), status.data() + status.size(), capabilities, 16);
  std::error_code failed;
  const auto own = std::filesystem::read_symlink("/proc/self/ns/user", failed);
  const auto theirs =
      std::filesystem::read_symlink("/proc/" + std::to_string(caller.thread) + "/ns/user", failed);
  found.overrides = (capabilities >> CAP_DAC_OVERRIDE & 1) != 0 && !failed && own == theirs;
  return found;
}

Status give_up_capability(int capability) {
  Capabilities now = {};
  auto header = this_thread_header();
  if (::syscall(SYS_capget, &header, now.data()) != 0) return errno_status(errno, "reading the capabilities");
  auto& part = now[CAP_TO_INDEX(static_cast<unsigned>(capability))];
  const uint32_t mask = CAP_TO_MASK(static_cast<unsigned>(capability));
  if ((part.permitted & mask) == 0) return {};
  part.permitted &= ~mask;
  part.effective &= ~mask;
  if (!set_capabilities(now)) return errno_status(errno, "giving up a capability");
  return {};
}

Result<Identity> Identity::of_this_process() {
  if (!own_umask())
    return errno_status(
        errno,
        "a umask for each thread (unshare(CLONE_FS)), which files need that are made by several "
        "users; allow this system call to the process");
  Identity own;
  own.user_ = ::geteuid();
  own.group_ = ::getegid();
  own.umask_ = ::umask(077);
  ::umask(own.umask_);
  const int count = ::getgroups(0, nullptr);
  if (count < 0) return errno_status(errno, "reading the groups of this process");
  own.groups_.resize(static_cast<size_t>(count));
  if (count > 0 && ::getgroups(count, own.groups_.data()) < 0)
    return errno_status(errno, "reading the groups of this process");
  auto header = this_thread_header();
  if (::syscall(SYS_capget, &header, own.capabilities_.data()) != 0)
    return errno_status(errno, "reading the capabilities of this process");
  constexpr uint32_t kNeeded = CAP_TO_MASK(CAP_SETUID) | CAP_TO_MASK(CAP_SETGID) | CAP_TO_MASK(CAP_CHOWN) |
                               CAP_TO_MASK(CAP_DAC_OVERRIDE) | CAP_TO_MASK(CAP_FOWNER);
  own.switches_ = own.user_ == 0 && (own.capabilities_[0].effective & kNeeded) == kNeeded;
  return own;
}

AsCaller::AsCaller(const Identity& own, const Caller& caller) : own_(own) {
  if (!own_umask()) {
    failed_ = EPERM;
    return;
  }
  ::umask(caller.umask & 0777);
  has_umask_ = true;
  if (!own_.switches_) return;
  become(caller);
  if (failed_ != 0) become_again();
}

// The capabilities go last: the steps before need them.
void AsCaller::become(const Caller& caller) {
  if (caller.user != own_.user_) {
    const std::vector<gid_t> groups = groups_of(caller);
    if (!set_groups(groups)) {
      failed_ = EPERM;
      return;
    }
    has_groups_ = true;
  }
  if (caller.group != own_.group_) {
    has_group_ = true;
    if (!set_group(caller.group)) {
      failed_ = EPERM;
      return;
    }
  }
  if (caller.user == own_.user_) return;
  has_user_ = true;
  Capabilities none = own_.capabilities_;
  for (auto& part : none) part.effective = 0;
  if (!set_user(caller.user) || !set_capabilities(none)) failed_ = EPERM;
}

AsCaller::~AsCaller() { become_again(); }

void AsCaller::become_again() {
  const int before = errno;  // of the system call that was made as the caller
  if (std::exchange(has_user_, false)) {
    if (!set_capabilities(own_.capabilities_)) end_process("capset", errno);
    if (!set_user(own_.user_)) end_process("setfsuid", EPERM);
  }
  if (std::exchange(has_group_, false) && !set_group(own_.group_)) end_process("setfsgid", EPERM);
  if (std::exchange(has_groups_, false) && !set_groups(own_.groups_)) end_process("setgroups", errno);
  if (std::exchange(has_umask_, false)) ::umask(own_.umask_);
  errno = before;
}

}  // namespace swale::fs
