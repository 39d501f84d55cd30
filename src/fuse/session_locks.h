// The kernel's requests about locks (fcntl, OFD, flock) as calls of FileLocks. One that waits keeps no
// thread: it is answered when it is granted, interrupted, or when the session ends.
//
// A flock or OFD lock that ends because its file is closed ends soon after the close, which does not wait for
// it: the kernel tells of the last close in the background.
//
// Threads: those of the session. Errors: answered to the kernel.
#pragma once

#include "fuse/session.h"

namespace swale::fuse {

void add_lock_operations(fuse_lowlevel_ops* table);
// At each close: the errno.
int end_locks_of_closer(fuse_req_t request, const fuse_file_info* info);

}  // namespace swale::fuse
