// AsCaller: while one lives, this thread makes its system calls as the process whose request it serves. The
// kernel then checks modes, ACLs and owners, gives new files their owner, group and inherited ACLs, and takes
// set-id bits away, as on the backing file system itself. docs/design/mount.md, "Who a request is".
//
//   {
//     const AsCaller as(identity_, caller);
//     if (as.failed() != 0) return as.failed();
//     if (::mkdirat(...) != 0) return errno;
//   }
//
// What changes: the file system user and group (setfsuid, setfsgid), the supplementary groups, the effective
// capabilities (none), and the umask. A caller that is root keeps the capabilities of this process. Only the
// file system ids change, because signals and ptrace look at the others: no caller may touch the thread that
// serves it.
//
// Threads: it changes the thread that makes it, and no other: its system calls are raw, because those of the
// C library change all threads. One at a time in a thread; it must not leave the thread.
// Invariants: (1) A thread without an AsCaller has the identity of its process. An identity that cannot be
// taken back ends the process: no request may ever run as somebody else. (2) While one lives, nothing of the
// store is called.
// Errors: failed(). The caller's groups are unknown if /proc does not show the caller: then it has none but
// its own.
#pragma once

#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <optional>
#include <vector>

#include "base/status.h"

namespace swale::fs {

// The process that makes a request.
struct Caller {
  uid_t user = 0;
  gid_t group = 0;
  pid_t thread = 0;  // whose supplementary groups count; 0: nobody's
  mode_t umask = 0;
  // Of a write: whether the descriptor has O_APPEND by now. The kernel writes pages of mappings through any
  // descriptor, at their places. None: as the file was opened.
  std::optional<bool> appends = {};

  static Caller this_thread();
};

using Capabilities = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;

// What this process is, and whether its threads can be somebody else.
class Identity {
 public:
  // kIoError: a thread may not have a umask of its own here.
  static Result<Identity> of_this_process();

  bool switches() const { return switches_; }
  // For the benchmark and for tests of ordinary mounts: all requests run as this process.
  void never_switch() { switches_ = false; }

 private:
  friend class AsCaller;

  bool switches_ = false;
  uid_t user_ = 0;
  gid_t group_ = 0;
  mode_t umask_ = 0;  // a thread that another one started has that one's caller's at first
  std::vector<gid_t> groups_;
  Capabilities capabilities_ = {};
};

class AsCaller {
 public:
  AsCaller(const Identity& own, const Caller& caller);
  ~AsCaller();
  AsCaller(const AsCaller&) = delete;
  AsCaller& operator=(const AsCaller&) = delete;

  int failed() const { return failed_; }  // 0: the thread is the caller

 private:
  void become(const Caller& caller);
  void become_again();

  const Identity& own_;
  int failed_ = 0;
  bool has_umask_ = false;
  bool has_groups_ = false;
  bool has_group_ = false;
  bool has_user_ = false;
};

// The supplementary groups of a thread that has this file system user and group; none if it is gone or is
// another one's.
std::vector<gid_t> groups_of(const Caller& caller);

// What the kernel asks when a process comes to a file of a file system without ACLs.
struct Credentials {
  uid_t user = 0;
  gid_t group = 0;
  pid_t thread = 0;
  std::vector<gid_t> groups = {};
  bool overrides = false;  // CAP_DAC_OVERRIDE: modes do not bind it, but for the execution of files

  // `wanted`: R_OK, W_OK and X_OK, of a directory.
  bool may(const struct stat& directory, int wanted) const;
};

// Of a process, as they are now. A root that another user namespace has made overrides nothing.
Result<Credentials> credentials_of(const Caller& caller);

// Takes a capability from this thread, and from those that it will start. Does nothing if there is none to
// take.
Status give_up_capability(int capability);

}  // namespace swale::fs
