// Private files: a directory and its files that no other user may enter, read or change
// (Device::anchored_private).
//
// Threads: free functions. Errors: kInvalidArgument names the path, its owner or mode, and what to do.
#pragma once

#include <string>

#include "base/status.h"
#include "io/descriptor.h"

namespace swale::io {

inline constexpr unsigned kPrivateFileMode = 0600;
inline constexpr unsigned kPrivateDirectoryMode = 0700;

// Opens `rest` below the directory `at`, not through a link. An empty directory of this user's is closed to
// others first. `path`: for messages.
Result<Descriptor> open_private_directory(int at, const std::string& rest, const std::string& path);

// An open file is this user's, and its mode lets nobody else in.
Status expect_private(int fd, const std::string& path);

}  // namespace swale::io
