// The kernel's requests (FUSE 3, low-level interface) as calls of a FileSystem.
//
// What the kernel may keep of names, attributes and pages: FileSystem::kernel_use. It keeps no writes back:
// each write comes at once, in its order, so that the file system sees what the program does.
//
// Threads: libfuse calls from many threads at a time. Errors: answered to the kernel.
#pragma once

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>

#include "fs/file_system.h"

namespace swale::fuse {

inline constexpr unsigned kRequestBytesMax = 1u << 20;

// The operations; a session's user data is its Served.
const fuse_lowlevel_ops& session_operations();

}  // namespace swale::fuse
