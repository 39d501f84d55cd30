// described(): attributes of a file as programs hear them that ask the server past the kernel.
// Threads: a pure function.
#pragma once

#include <sys/stat.h>

#include "fs/job/job_marks.h"
#include "fs/log/light_format.h"

namespace swale::fs {

inline LightStat described(const struct stat& found) {
  LightStat out;
  out.inode = found.st_ino;
  out.size = static_cast<uint64_t>(found.st_size);
  out.blocks = static_cast<uint64_t>(found.st_blocks);
  out.mode = found.st_mode;
  out.links = static_cast<uint32_t>(found.st_nlink);
  out.user = found.st_uid;
  out.group = found.st_gid;
  out.block_bytes = static_cast<uint32_t>(found.st_blksize);
  out.accessed_ns = nanos_of(found.st_atim);
  out.modified_ns = nanos_of(found.st_mtim);
  out.changed_ns = nanos_of(found.st_ctim);
  return out;
}

}  // namespace swale::fs
