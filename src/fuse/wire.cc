#include "fuse/wire.h"

#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "fuse/served.h"

namespace swale::fuse {
namespace {

constexpr uint32_t kDirectMapsFlag2 = 1 << 4;  // FUSE_DIRECT_IO_ALLOW_MMAP, bit 36: not in headers before 6.7

struct FirstRequest {
  uint64_t unique = 0;    // 0: this thread has not read it
  bool may_take = false;  // the kernel offers to leave privileges to us
  bool may_map = false;   // and to map files of whose pages it keeps none
};
thread_local FirstRequest first;
thread_local bool parallel_writes = false;

void note_first(const char* request, size_t bytes) {
  fuse_in_header header;
  fuse_init_in init = {};
  if (bytes < sizeof(header)) return;
  std::memcpy(&header, request, sizeof(header));
  if (header.opcode != FUSE_INIT) return;
  std::memcpy(&init, request + sizeof(header), std::min(sizeof(init), bytes - sizeof(header)));
  const bool extended = (init.flags & FUSE_INIT_EXT) != 0;
  first = {header.unique, (init.flags & FUSE_HANDLE_KILLPRIV_V2) != 0,
           extended && (init.flags2 & kDirectMapsFlag2) != 0};
}

ssize_t read_request(int fd, void* buffer, size_t bytes, void*) {
  const ssize_t got = ::read(fd, buffer, bytes);
  if (got > 0) note_first(static_cast<const char*>(buffer), static_cast<size_t>(got));
  return got;
}

void answer_first(const iovec& answer, Served* served) {
  auto* const init = static_cast<fuse_init_out*>(answer.iov_base);
  if (first.may_take) init->flags |= FUSE_HANDLE_KILLPRIV_V2;
  if (first.may_map) {
    init->flags |= FUSE_INIT_EXT;
    init->flags2 |= kDirectMapsFlag2;
  }
  served->maps_direct_files = first.may_map;
  first = {};
}

// An answer that opens a file ends so.
void allow_parallel_writes(const iovec& answer) {
  char* const at = static_cast<char*>(answer.iov_base) + answer.iov_len - sizeof(fuse_open_out);
  fuse_open_out open;
  std::memcpy(&open, at, sizeof(open));
  open.open_flags |= FOPEN_PARALLEL_DIRECT_WRITES;
  std::memcpy(at, &open, sizeof(open));
}

ssize_t write_answer(int fd, iovec* parts, int count, void* data) {
  if ((first.unique != 0 || parallel_writes) && count == 2 && parts[0].iov_len == sizeof(fuse_out_header)) {
    fuse_out_header header;
    std::memcpy(&header, parts[0].iov_base, sizeof(header));
    const bool is_first = first.unique != 0 && header.unique == first.unique;
    if (header.error == 0 && is_first && parts[1].iov_len >= sizeof(fuse_init_out))
      answer_first(parts[1], static_cast<Served*>(data));
    else if (header.error == 0 && parallel_writes && parts[1].iov_len >= sizeof(fuse_open_out))
      allow_parallel_writes(parts[1]);
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

ParallelWrites::ParallelWrites(bool allowed) { parallel_writes = allowed; }
ParallelWrites::~ParallelWrites() { parallel_writes = false; }

}  // namespace swale::fuse
