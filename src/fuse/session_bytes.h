// The kernel's requests about the bytes of open files as calls of FileSystem.
//
// Threads: those of the session. Errors: answered to the kernel.
#pragma once

#include "fuse/session.h"

namespace swale::fuse {

void add_byte_operations(fuse_lowlevel_ops* table);

}  // namespace swale::fuse
