// tier_session: the kernel's requests (FUSE 3, low-level interface) as calls of a TierFs.
//
// What the kernel may keep: names, attributes and pages for kKeepSeconds, because nobody but this mount
// changes the files. It keeps no writes back: each write comes at once, in its order, so that the store's
// detector sees what the program does.
//
// Threads: libfuse calls from many threads at a time. Errors: answered to the kernel.
#pragma once

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>

#include "fs/tier_fs.h"

namespace swale::fuse {

inline constexpr double kKeepSeconds = 3600;
inline constexpr unsigned kRequestBytesMax = 1u << 20;

// The operations; a session's user data is its TierFs.
const fuse_lowlevel_ops& tier_operations();

}  // namespace swale::fuse
