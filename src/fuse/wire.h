// wire: how a session reads requests from the kernel and answers them, where libfuse does not know how yet.
//
// The answer to the kernel's first request gets two flags.
// - FUSE_HANDLE_KILLPRIV_V2 (Linux 5.11): the file system itself takes privileges away when a file is written
//   or cut, as TierFs and JobFs do. Else the kernel asks for the attribute security.capability before each
//   write.
// - FUSE_DIRECT_IO_ALLOW_MMAP (Linux 6.7): programs may map files of whose pages the kernel keeps none.
//   Served::maps_direct_files says that the kernel knows it.
// An answer that opens a file may get FOPEN_PARALLEL_DIRECT_WRITES (Linux 6.2): writes to a file come at
// the same time, unless they pass the end that the kernel knows (ends_ahead.h).
//
// Threads: those of the session; an answer to INIT comes from the thread that has read it. Errors: those of
// read and writev.
#pragma once

#include "fuse/session.h"

namespace swale::fuse {

// Of a session that is mounted, before it serves; its data is a Served. Status: no memory.
Status use_wire(fuse_session* session);

// While one lives, answers of this thread that open a file allow parallel writes.
class ParallelWrites {
 public:
  explicit ParallelWrites(bool allowed);
  ~ParallelWrites();
  ParallelWrites(const ParallelWrites&) = delete;
  ParallelWrites& operator=(const ParallelWrites&) = delete;
};

}  // namespace swale::fuse
