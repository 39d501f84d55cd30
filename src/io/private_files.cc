#include "io/private_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>

namespace swale::io {
namespace {

constexpr mode_t kOthers = 0077;

bool is_empty(int fd) {
  const int again = ::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(again < 0 ? nullptr : ::fdopendir(again), ::closedir);
  if (!stream) {
    if (again >= 0) ::close(again);
    return false;
  }
  while (const dirent* const entry = ::readdir(stream.get()))
    if (const std::string_view name = entry->d_name; name != "." && name != "..") return false;
  return true;
}

Status expect_private(const struct stat& found, const std::string& path) {
  const bool directory = S_ISDIR(found.st_mode);
  if (found.st_uid != ::geteuid())
    return invalid_argument(
        "{}: belongs to user {}, expected user {}, as whom this process runs: its owner could read and "
        "change bytes of all files; give another directory, or if you trust that user, and nobody else had "
        "access: chown -R {} (a network file system that squashes root cannot hold it for root)",
        path, found.st_uid, ::geteuid(), ::geteuid());
  if ((found.st_mode & kOthers) != 0)
    return invalid_argument(
        "{}: has mode {:04o}, expected {:04o}: other users could read or change bytes of all files; if "
        "nobody else had access: chmod {:o} {}",
        path, found.st_mode & 07777, directory ? kPrivateDirectoryMode : kPrivateFileMode,
        directory ? kPrivateDirectoryMode : kPrivateFileMode, path);
  return {};
}

}  // namespace

Result<Descriptor> open_private_directory(int at, const std::string& rest, const std::string& path) {
  Descriptor fd(
      continued([&] { return ::openat(at, rest.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
  if (!fd.valid()) {
    const int failed = errno;
    struct stat found;
    if (::fstatat(at, rest.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(found.st_mode))
      return invalid_argument(
          "{}: is a symbolic link, which is not followed: whoever made it could lead these files elsewhere; "
          "name the directory itself, or remove the link",
          path);
    // A directory without a right for its owner, or another user's.
    if (failed == EACCES && ::fstatat(at, rest.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0)
      SWALE_RETURN_IF_ERROR(expect_private(found, path));
    return errno_status(failed, path + ": opening the directory");
  }
  struct stat found;
  if (::fstat(fd.get(), &found) != 0) return errno_status(errno, path + ": looking at the directory");
  // What is empty has told nobody anything, and once it is closed nobody gets in.
  if (found.st_uid == ::geteuid() && (found.st_mode & 0777) != kPrivateDirectoryMode && is_empty(fd.get())) {
    if (::fchmod(fd.get(), kPrivateDirectoryMode) != 0 || ::fstat(fd.get(), &found) != 0)
      return errno_status(errno, path + ": closing the directory to other users");
    if (!is_empty(fd.get()))
      return invalid_argument(
          "{}: somebody made a file in it while it was still open to others; empty it, and start again",
          path);
  }
  SWALE_RETURN_IF_ERROR(expect_private(found, path));
  return fd;
}

Status expect_private(int fd, const std::string& path) {
  struct stat found;
  if (::fstat(fd, &found) != 0) return errno_status(errno, path + ": looking at the file");
  return expect_private(found, path);
}

}  // namespace swale::io
