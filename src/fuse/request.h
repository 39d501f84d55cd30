// What a request of the kernel is about, and how it is answered.
// Threads: any. Ownership: the session's and the kernel's.
#pragma once

#include <array>
#include <cassert>
#include <optional>
#include <string_view>
#include <utility>

#include "base/contain.h"
#include "base/log.h"
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

// Before a change by another call than a write is answered: the kernel asks for no sync of those.
inline int sync_changed(fuse_req_t request, fs::OpenFile& file) {
  return file.synchronous ? fs_of(request).sync(file) : 0;
}

inline fs::Node& node_of(fuse_req_t request, fuse_ino_t number) {
  assert(number != 0);  // libfuse's word for a name that is not there
  return number == FUSE_ROOT_ID ? *fs_of(request).root() : *reinterpret_cast<fs::Node*>(number);
}
inline fs::Caller caller_of(fuse_req_t request) {
  const fuse_ctx* const context = fuse_req_ctx(request);
  return {context->uid, context->gid, context->pid, context->umask, {}};
}

// Calls whose first refusal by a server is a warning: what they ask for, a file system may not have at all,
// and the user of `ln` or `mkfifo` sees an errno alone.
inline constexpr std::array<std::string_view, 4> kWarnedCalls = {"link", "mknod", "chown",
                                                                 "setxattr of an ACL"};

// Which call of which file; the file system's own message, before it, says why.
void trace_refusal(fuse_req_t request, fuse_ino_t number, const char* call, int error) noexcept;

// No exception may leave for libfuse, which is C: it becomes the errno of the request.
template <class Body>
void guarded(fuse_req_t request, fuse_ino_t number, Body&& body, const char* call = __builtin_FUNCTION()) {
  int failed = 0;
  const Status status = contain([&] { failed = body(); });
  if (!status.ok()) failed = status.posix_error();
  assert(failed >= 0);      // an errno, not a negated one
  if (failed == 0) return;  // the body has answered
  trace_refusal(request, number, call, failed);
  fuse_reply_err(request, failed);
}

inline constexpr int kAnswered = 0;

// For requests whose success is an answer without content.
template <class Body>
void done_or_failed(fuse_req_t request, fuse_ino_t number, Body&& body,
                    const char* call = __builtin_FUNCTION()) {
  int failed = 0;
  const Status status = contain([&] { failed = body(); });
  if (!status.ok()) failed = status.posix_error();
  if (failed != 0) trace_refusal(request, number, call, failed);
  fuse_reply_err(request, failed);
}

}  // namespace swale::fuse
