// check_trust: whether a mount that runs all requests as one ordinary user may serve others.
//
// Such a mount does what others ask for with its own user's rights. Who can also write into the backing tree
// directly can put another file in a name's place between the kernel's check and the mount's call. So either
// nobody else can write there, or the user says that these others are trusted.
//
// Threads: any. Errors: kInvalidArgument, with the first directory that somebody else may write to, why, and
// what to do.
// Limits: looks at most at kDirectoriesMax directories; a larger tree must be trusted by the user's word. A
// group counts as others.
#pragma once

#include <string>

#include "base/status.h"

namespace swale::fuse {

inline constexpr size_t kDirectoriesMax = 100'000;

Status check_trust(const std::string& backing_directory, size_t directories_max = kDirectoriesMax);

}  // namespace swale::fuse
