// What a JobFs is opened with, and what it says of itself.
// Threads: plain values.
#pragma once

#include <sys/statvfs.h>

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "fs/log/node_logs.h"
#include "fs/node/drain.h"
#include "fs/share/file_roots.h"

namespace swale::fs {

// Attributes of the root that are not listed: how the server stands, as a JSON object; and one that takes
// "sync", which returns when all is on the backing, of all nodes.
inline constexpr const char* kJobStatsAttribute = "user.swale.fs";
inline constexpr const char* kJobCommandAttribute = "user.swale.command";

struct JobFsOptions {
  std::string backing;       // the directory; what is mounted over it later does not matter
  std::string job;           // one name; the same for each server of a tree
  std::string state_folder;  // on node-local storage
  NodeLogsOptions logs;
  Nanos idle = seconds(1);   // without writes, after which closed files are drained; open ones later
  bool drains_alone = true;  // false: only when asked, or when memory is short
  // False: fsync returns when bytes and name are durable in the folders of the nodes, which must then be on
  // disks. True, or if that cannot be: when the file is on the backing. The same on all nodes.
  bool fsync_drains = true;
  DrainRules drain_rules;
  // Of several nodes: whether the backing is still this server's. Asked in each turn that may change it.
  std::function<Status()> expect_own;
  // For tests: what is left out, which they must notice; and what happens between the backing and the names.
  bool intents = true;
  bool commits = true;               // false: a close, and what else commits, does not
  bool refuses_kept_pages = true;    // false: programs append by themselves where the kernel keeps pages, too
  bool seals_wait = true;            // false: files that are open to write are sealed, too
  bool light_looks_at_modes = true;  // false: an open past the kernel asks no mode for permission
  bool holds_late = true;            // false: a file that was opened past the kernel ends with its name
  bool dresses_again = true;         // false: what a drain has found of a file beside its bytes is the last
  bool changes_apart = true;         // false: attributes change on the backing with the mutex held
  bool shows_to_mappings = true;     // false: what logs get later is not seen in mappings of before
  bool unseal_takes_back = true;     // false: nodes go on with what they have kept of a sealed file
  bool brings_times = true;          // false: of several nodes, times alone are nothing to drain
  ShareRules share_rules;
  std::function<void()> between;
  std::function<int(int descriptor, struct statvfs* space)> look_for_space = ::fstatvfs;  // of the backing
};

struct JobFsStats {
  bool fsync_drains = false;
  uint64_t undrained_files = 0;  // that have a name
  uint64_t undrained_bytes = 0, memory_bytes = 0, spilled_bytes = 0, spilled_chunks = 0;
  uint64_t ready_bytes = 0;  // of memory, for writes to come; large pages among them are not in memory_bytes
  uint64_t drained_files = 0, kept_aside = 0, failed_drains = 0;
  uint64_t lost_attributes = 0;  // of files that the backing has, which cannot keep them
  uint64_t program_writes = 0;   // that came by logs of programs
  uint64_t light_creates = 0;    // files that programs made past the kernel
  uint64_t light_looks = 0;      // at paths, that the kernel was not asked for
  uint64_t light_opens = 0;      // of files that were there, past the kernel
  uint64_t light_open = 0;       // files that are open so now
  uint64_t reads = 0;            // that the kernel has asked for
  uint64_t asked_roots = 0;      // questions about files to the servers of their names
  std::string last_failure;

  std::string json() const;
};

}  // namespace swale::fs
