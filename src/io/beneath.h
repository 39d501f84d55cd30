// open_beneath: opens a name of a directory, and nothing that a link or a ".." in it leads to. Whoever may
// write to the directory can replace the name at any time, so what is opened is looked at and changed by its
// descriptor, never by the name again.
//
// The kernel refuses links by itself where it has openat2 (Linux 5.6). Without it (an old kernel, a filter of
// system calls), a name of one part that is opened with O_NOFOLLOW is as safe.
// Threads: any. Errors: -1 and errno. EINVAL: the name is none, or not one name.
#pragma once

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "io/descriptor.h"

namespace swale::io {

inline bool is_one_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos;
}

inline long openat2(int directory, const char* name, const open_how& how) {
  return ::syscall(SYS_openat2, directory, name, &how, sizeof(how));
}

inline int open_beneath(int directory, const char* name, int flags, mode_t mode = 0) {
  static const bool has_openat2 = [] {
    open_how how = {};
    how.flags = O_PATH | O_CLOEXEC;
    const long opened = openat2(AT_FDCWD, "/", how);
    if (opened >= 0) ::close(static_cast<int>(opened));
    return opened >= 0;
  }();
  if (!is_one_name(name)) {
    errno = EINVAL;
    return -1;
  }
  flags |= O_NOFOLLOW | O_CLOEXEC;
  if (!has_openat2) return ::openat(directory, name, flags, mode);
  open_how how = {};
  how.flags = static_cast<uint64_t>(flags);
  how.mode = (flags & O_CREAT) != 0 ? mode & 07777 : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;
  return static_cast<int>(openat2(directory, name, how));
}

// The same for a path of several names, none of which may be a link or leave the directory. It may be longer
// than the kernel takes at once. ENOSYS: this kernel cannot.
inline int open_path_beneath(int directory, const char* path, int flags) {
  open_how how = {};
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;
  std::string_view rest = path;
  Descriptor folder;
  while (rest.size() >= PATH_MAX) {
    const size_t slash = rest.rfind('/', PATH_MAX - 1);
    if (slash == 0 || slash == std::string_view::npos) break;  // the kernel says what is wrong
    how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    const std::string above(rest.substr(0, slash));
    folder =
        Descriptor(static_cast<int>(openat2(folder.valid() ? folder.get() : directory, above.c_str(), how)));
    if (!folder.valid()) return -1;
    rest.remove_prefix(slash + 1);
  }
  how.flags = static_cast<uint64_t>(flags) | O_CLOEXEC;
  return static_cast<int>(openat2(folder.valid() ? folder.get() : directory, rest.data(), how));
}

}  // namespace swale::io
