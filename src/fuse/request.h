// What a request of the kernel is about.
// Threads: any. Ownership: the session's and the kernel's.
#pragma once

#include <cassert>

#include "fuse/served.h"
#include "fuse/session.h"

namespace swale::fuse {

inline Served& served_of(fuse_req_t request) { return *static_cast<Served*>(fuse_req_userdata(request)); }
inline fs::FileSystem& fs_of(fuse_req_t request) { return served_of(request).fs; }
inline fs::OpenFile& file_of(const fuse_file_info* info) {
  assert(info != nullptr && info->fh != 0);  // set by open or create
  return *reinterpret_cast<fs::OpenFile*>(info->fh);
}

}  // namespace swale::fuse
