// What JobFs hands out: one open of a file, one of a directory; and the attributes of a file that it adopts.
// Threads: as FileSystem says.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "fs/file_system.h"
#include "fs/job/job_nodes.h"
#include "io/descriptor.h"
#include "meta/client/names_client.h"

namespace swale::fs {

struct JobFile final : OpenFile {
  explicit JobFile(JobNode& of_node) : node(of_node) {}
  static JobFile& of(OpenFile& file) { return static_cast<JobFile&>(file); }

  JobNode& node;
  io::Descriptor own;  // of the backing, for while the logs do not have the file
  bool appends = false;
  bool writes = false;
  bool reads = true;
  bool holds = true;                    // the names keep the file for it; false: see JobNode::opens_unheld
  std::optional<pid_t> writer;          // whose it is, if it keeps the file from being sealed
  bool without_pages = false;           // the kernel keeps none of it for this open, but those of a mapping
  std::atomic<bool> is_mapped = false;  // it has read some of those
  bool may_map = false;                 // and nobody has promised that it is not mapped to be written
  uint64_t sealed_at = 0;               // not 0: it reads through the kernel's pages (job_fs_pages.cc)
  bool keeps_earlier = false;           // also those of earlier opens
  std::atomic<bool> has_read = false;
  std::vector<uint32_t> granted;  // logs that may write it; guarded by the mutex of JobFs
};

struct JobDirectory final : OpenDirectory {
  explicit JobDirectory(JobNode& of_node) : node(of_node) {}
  static JobDirectory& of(OpenDirectory& directory) { return static_cast<JobDirectory&>(directory); }

  JobNode& node;
  Mutex mutex;
  std::vector<DirectoryEntry> entries GUARDED_BY(mutex);  // as they were when the reading began
};

// Takes the "user." attributes of what the backing has into the names.
Status adopt_attributes(meta::NamesClient& names, const io::Descriptor& parent, const char* name,
                        const meta::FileId& id);

}  // namespace swale::fs
