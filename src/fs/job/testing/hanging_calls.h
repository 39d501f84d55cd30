// HangingCalls: a thread whose n-th call to the kernel about files of a directory hangs, until it is let go:
// as on a file system whose server does not answer; or fails, as where a quota ends. The kernel tells of the
// calls (a seccomp filter of that thread alone), so whatever code makes them is found.
//
// Threads: one makes and uses it. Limits: calls by a descriptor through io_uring, and those of threads that
// the body hands its work to, do not hang.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "io/descriptor.h"

namespace swale::fs {

class HangingCalls {
 public:
  // `nth`: from 1. `error`: an errno with which it fails; 0: it hangs.
  HangingCalls(std::string root, size_t nth, std::function<void()> body, int error = 0)
      : root_(std::move(root)), nth_(nth), error_(error), body_(std::move(body)) {
    caller_ = std::thread([this] { call(); });
    keeper_ = std::thread([this] { keep(); });
  }
  ~HangingCalls() { let_go(); }
  HangingCalls(const HangingCalls&) = delete;
  HangingCalls& operator=(const HangingCalls&) = delete;

  // Waits until it hangs, or has failed: true; or the body is over.
  bool hangs() {
    const MutexLock lock(mutex_);
    changed_.wait(lock, [&]() REQUIRES(mutex_) { return hung_ || over_; });
    return hung_;
  }
  // "openat2 of PATH"; "": none has hung.
  std::string where() {
    const MutexLock lock(mutex_);
    return where_;
  }
  // Until the body is over.
  void let_go() {
    let_go_on();
    if (caller_.joinable()) caller_.join();
    if (keeper_.joinable()) keeper_.join();
  }

 private:
  enum class By { kDirectory, kDescriptor, kPath, kSecondDirectory };
  struct Kind {
    long number;
    const char* name;
    By by;  // what the first argument is
  };
  static const std::vector<Kind>& kinds() {
    static const std::vector<Kind> all = {
        {SYS_openat, "openat", By::kDirectory},
        {SYS_openat2, "openat2", By::kDirectory},
        {SYS_newfstatat, "fstatat", By::kDirectory},
        {SYS_statx, "statx", By::kDirectory},
        {SYS_mkdirat, "mkdirat", By::kDirectory},
        {SYS_unlinkat, "unlinkat", By::kDirectory},
        {SYS_renameat2, "renameat2", By::kDirectory},
        {SYS_readlinkat, "readlinkat", By::kDirectory},
        {SYS_utimensat, "utimensat", By::kDirectory},
        {SYS_fchmodat, "fchmodat", By::kDirectory},
        {SYS_symlinkat, "symlinkat", By::kSecondDirectory},
        {SYS_fstat, "fstat", By::kDescriptor},
        {SYS_lseek, "lseek", By::kDescriptor},
        {SYS_pread64, "pread", By::kDescriptor},
        {SYS_pwrite64, "pwrite", By::kDescriptor},
        {SYS_ftruncate, "ftruncate", By::kDescriptor},
        {SYS_fchmod, "fchmod", By::kDescriptor},
        {SYS_fsetxattr, "fsetxattr", By::kDescriptor},
        {SYS_fsync, "fsync", By::kDescriptor},
        {SYS_fdatasync, "fdatasync", By::kDescriptor},
        {SYS_getdents64, "getdents", By::kDescriptor},
        {SYS_listxattr, "listxattr", By::kPath},
        {SYS_getxattr, "getxattr", By::kPath},
        {SYS_setxattr, "setxattr", By::kPath},
        {SYS_removexattr, "removexattr", By::kPath},
#ifdef SYS_open
        {SYS_open, "open", By::kPath},
        {SYS_chmod, "chmod", By::kPath},
        {SYS_rename, "rename", By::kPath},
        {SYS_unlink, "unlink", By::kPath},
#endif
    };
    return all;
  }

  void let_go_on() {
    const MutexLock lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  void end() {
    const MutexLock lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  // The filter is this thread's, and of those that it starts.
  void call() {
    std::vector<sock_filter> filter;
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
    for (const Kind& kind : kinds()) {
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(kind.number), 0, 1));
      filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    EXPECT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    const long listener =
        ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    EXPECT_GE(listener, 0) << "a filter of system calls: " << std::strerror(errno);
    {
      const MutexLock lock(mutex_);
      listener_ = static_cast<int>(listener);
      changed_.notify_all();
    }
    body_();
    end();
  }

  void keep() {
    io::Descriptor listener;
    {
      const MutexLock lock(mutex_);
      changed_.wait(lock, [&]() REQUIRES(mutex_) { return listener_ >= 0; });
      listener = io::Descriptor(listener_);
    }
    for (;;) {
      pollfd ready{listener.get(), POLLIN, 0};
      if (::poll(&ready, 1, kLookEveryMs) == 0) {
        const MutexLock lock(mutex_);
        if (over_) return;
        continue;
      }
      seccomp_notif call = {};
      if (::ioctl(listener.get(), SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) return;
      seccomp_notif_resp answer = {};
      answer.id = call.id;
      answer.error = -look(call.data);
      if (answer.error == 0) answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
      static_cast<void>(::ioctl(listener.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer));
    }
  }

  int look(const seccomp_data& call) {
    for (const Kind& kind : kinds()) {
      if (kind.number != call.nr) continue;
      const std::string path = path_of(kind.by, call);
      if (path != root_ && !path.starts_with(root_ + "/")) return 0;
      if (++calls_ != nth_) return 0;
      const MutexLock lock(mutex_);
      where_ = std::string(kind.name) + " of " + path;
      hung_ = true;
      changed_.notify_all();
      if (error_ != 0) return error_;
      changed_.wait(lock, [&]() REQUIRES(mutex_) { return released_; });
    }
    return 0;
  }

  // Of a thread of this process, which waits. The kernel reads it: nobody was told of what the thread wrote.
  static std::string text_at(uint64_t address) {
    constexpr uint64_t kPage = 4096;
    if (address == 0) return {};
    std::string text(2 * kPage, '\0');
    const uint64_t rest = kPage - address % kPage;
    const iovec here{text.data(), text.size()};
    const iovec there[] = {{reinterpret_cast<void*>(address), rest},  // the page after it may not be there
                           {reinterpret_cast<void*>(address + rest), kPage}};
    const ssize_t got = ::process_vm_readv(::getpid(), &here, 1, there, 2, 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return text.substr(0, text.find('\0'));
  }

  static std::string path_of(By by, const seccomp_data& call) {
    const auto of_descriptor = [](int fd) {
      std::string path(4096, '\0');
      const std::string link = "/proc/self/fd/" + std::to_string(fd);
      const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
      path.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
      return path;
    };
    if (by == By::kDescriptor) return of_descriptor(static_cast<int>(call.args[0]));
    const size_t first = by == By::kSecondDirectory ? 1 : 0;
    const std::string path = text_at(call.args[by == By::kPath ? 0 : first + 1]);
    constexpr std::string_view kByDescriptor = "/proc/self/fd/";
    if (path.starts_with(kByDescriptor)) return of_descriptor(std::atoi(path.c_str() + kByDescriptor.size()));
    if (path.starts_with("/") || by == By::kPath) return path;
    const std::string above = of_descriptor(static_cast<int>(call.args[first]));
    return path.empty() ? above : above + "/" + path;
  }

  static constexpr int kLookEveryMs = 20;

  const std::string root_;
  const size_t nth_;
  const int error_;
  const std::function<void()> body_;
  size_t calls_ = 0;  // of the thread that keeps
  Mutex mutex_;
  CondVar changed_;
  int listener_ GUARDED_BY(mutex_) = -1;  // tells of the calls
  std::string where_ GUARDED_BY(mutex_);
  bool hung_ GUARDED_BY(mutex_) = false, released_ GUARDED_BY(mutex_) = false,
             over_ GUARDED_BY(mutex_) = false;
  std::thread caller_, keeper_;
};

}  // namespace swale::fs
