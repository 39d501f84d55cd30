// What a request of the kernel is about.
// Threads: any. Ownership: the session's and the kernel's.
#pragma once

#include <cassert>
#include <optional>
#include <utility>

#include "fuse/kernel_pages.h"
#include "fuse/served.h"
#include "fuse/session.h"

namespace swale::fuse {

inline Served& served_of(fuse_req_t request) { return *static_cast<Served*>(fuse_req_userdata(request)); }
inline fs::FileSystem& fs_of(fuse_req_t request) { return served_of(request).fs; }
// A call that may wait until the kernel has dropped pages: it must not take the place of its reads. The call
// has copies of all that it needs. number 0: a call about names; `mode`: that the file is to get.
template <class Call>
void run_or_aside(fuse_req_t request, fuse_ino_t number, std::optional<mode_t> mode, Call&& call) {
  Served& served = served_of(request);
  const auto* const node = reinterpret_cast<const fs::Node*>(number);
  if (number == FUSE_ROOT_ID || !served.fs.may_drop_pages(node, mode)) return call();
  served.pages->run_aside(std::forward<Call>(call));
}
template <class Call>
void run_or_aside(fuse_req_t request, fuse_ino_t number, Call&& call) {
  run_or_aside(request, number, {}, std::forward<Call>(call));
}

inline fs::OpenFile& file_of(const fuse_file_info* info) {
  assert(info != nullptr && info->fh != 0);  // set by open or create
  return *reinterpret_cast<fs::OpenFile*>(info->fh);
}

}  // namespace swale::fuse
