#include "fuse/wire.h"

#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

namespace swale::fuse {
namespace {

struct FirstRequest {
  uint64_t unique = 0;    // 0: this thread has not read it
  bool may_take = false;  // the kernel offers to leave privileges to us
};
thread_local FirstRequest first;

void note_first(const char* request, size_t bytes) {
  fuse_in_header header;
  fuse_init_in init = {};
  if (bytes < sizeof(header)) return;
  std::memcpy(&header, request, sizeof(header));
  if (header.opcode != FUSE_INIT) return;
  std::memcpy(&init, request + sizeof(header), std::min(sizeof(init), bytes - sizeof(header)));
  first = {header.unique, (init.flags & FUSE_HANDLE_KILLPRIV_V2) != 0};
}

ssize_t read_request(int fd, void* buffer, size_t bytes, void*) {
  const ssize_t got = ::read(fd, buffer, bytes);
  if (got > 0) note_first(static_cast<const char*>(buffer), static_cast<size_t>(got));
  return got;
}

ssize_t write_answer(int fd, iovec* parts, int count, void*) {
  if (first.unique != 0 && count == 2 && parts[0].iov_len == sizeof(fuse_out_header)) {
    fuse_out_header header;
    std::memcpy(&header, parts[0].iov_base, sizeof(header));
    if (header.unique == first.unique && header.error == 0 && parts[1].iov_len >= sizeof(fuse_init_out)) {
      auto* const init = static_cast<fuse_init_out*>(parts[1].iov_base);
      if (first.may_take) init->flags |= FUSE_HANDLE_KILLPRIV_V2;
      first = {};
    }
  }
  return ::writev(fd, parts, count);
}

}  // namespace

Status use_wire(fuse_session* session) {
  fuse_custom_io calls = {};
  calls.read = read_request;
  calls.writev = write_answer;
  const int failed = fuse_session_custom_io(session, &calls, fuse_session_fd(session));
  return failed == 0 ? Status() : errno_status(-failed, "the FUSE session");
}

}  // namespace swale::fuse
