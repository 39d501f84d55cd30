#include "iond/beneath.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "io/beneath.h"
#include "io/descriptor_path.h"

namespace swale::iond {
namespace {

constexpr int kDirectory = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

std::string_view kind_of(mode_t mode) {
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// What open(2) says of it, with O_NOFOLLOW.
int errno_of(mode_t mode) {
  if (S_ISLNK(mode)) return ELOOP;
  return S_ISDIR(mode) ? EISDIR : ENXIO;
}

}  // namespace

Result<Beneath> Beneath::open(const std::string& root, Lookup lookup) {
  io::Descriptor fd(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return errno_status(errno, root + ": opening the directory that is served");
  return Beneath(std::move(fd), root, lookup);
}

// Part by part. O_NOFOLLOW with O_DIRECTORY refuses a link (ENOTDIR), and ".." is no part of a name.
int Beneath::walk(const std::string& name) const {
  io::Descriptor at(::openat(root_.get(), ".", kDirectory));
  for (size_t begin = 0; at.valid() && begin < name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") {
      errno = EXDEV;
      return -1;
    }
    at = io::Descriptor(::openat(at.get(), part.c_str(), kDirectory));
    begin = end + 1;
  }
  return at.valid() ? ::fcntl(at.get(), F_DUPFD_CLOEXEC, 0) : -1;
}

int Beneath::open_directory(const std::string& name) const {
  if (lookup_ == Lookup::kByWalk) return walk(name);
  const int fd = io::open_path_beneath(root_.get(), name.empty() ? "." : name.c_str(), kDirectory);
  // EPERM: a filter of system calls that was made before there was openat2.
  return fd < 0 && (errno == ENOSYS || errno == EPERM) ? walk(name) : fd;
}

Result<Beneath::Place> Beneath::place_of(const std::string& name) const {
  const size_t slash = name.rfind('/');
  const std::string above = slash == std::string::npos ? "" : name.substr(0, slash);
  Place place;
  place.last = slash == std::string::npos ? name : name.substr(slash + 1);
  place.full = fmt::format("{}/{}", path_, name);
  if (name.empty() || name.front() == '/' || place.last.empty() || place.last == "." || place.last == "..")
    return invalid_argument("{}: expected a name below {}", name, path_);
  place.directory = io::Descriptor(open_directory(above));
  if (place.directory.valid()) return place;
  const int failed = errno;
  if (failed == ELOOP || failed == EXDEV || failed == ENOTDIR)
    return invalid_argument(
               "{}: {} is no directory below {}, or there is a symbolic link on the way, which is not "
               "followed; name the directory itself",
               place.full, above, path_)
        .with_error_number(failed);
  return errno_status(failed, place.full + ": looking it up");
}

Result<io::Descriptor> Beneath::look(const Place& place) const { return look(place, false, false); }

Result<io::Descriptor> Beneath::look_at_any(const Place& place) const { return look(place, true, false); }

Result<io::Descriptor> Beneath::look_at_name(const Place& place) const { return look(place, true, true); }

Result<io::Descriptor> Beneath::look(const Place& place, bool directories, bool links) const {
  io::Descriptor fd(::openat(place.directory.get(), place.last.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat found;
  if (!fd.valid() || ::fstat(fd.get(), &found) != 0) return errno_status(errno, place.full);
  if (!S_ISREG(found.st_mode) && !(directories && S_ISDIR(found.st_mode)) &&
      !(links && S_ISLNK(found.st_mode)))
    return invalid_argument("{}: is {}, not a regular file", place.full, kind_of(found.st_mode))
        .with_error_number(errno_of(found.st_mode));
  return fd;
}

Result<io::Descriptor> Beneath::open_to_list(const std::string& name) const {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  Place top;
  if (name.empty()) {
    top.last = ".";
    top.full = path_;
  }
  SWALE_ASSIGN_OR_RETURN(const Place place, name.empty() ? Result<Place>(std::move(top)) : place_of(name));
  const int in = name.empty() ? root_.get() : place.directory.get();
  io::Descriptor fd(::openat(in, place.last.c_str(), kFlags));
  if (fd.valid()) return fd;
  if (errno == ENOTDIR || errno == ELOOP)
    return invalid_argument("{}: is no directory", place.full).with_error_number(ENOTDIR);
  return errno_status(errno, place.full + ": opening it to list it");
}

Result<bool> Beneath::make(const Place& place, mode_t mode) const {
  const io::Descriptor made(::openat(place.directory.get(), place.last.c_str(),
                                     O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (made.valid()) return true;
  if (errno == EEXIST) return false;
  return errno_status(errno, place.full + ": making it");
}

Status Beneath::make_directory(const Place& place, mode_t mode) const {
  if (::mkdirat(place.directory.get(), place.last.c_str(), mode) == 0 || errno == EEXIST) return {};
  return errno_status(errno, place.full + ": making the directory");
}

Status Beneath::sync_directory(const Place& place) {
  const io::Descriptor fd(::openat(place.directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid() && ::fsync(fd.get()) == 0) return {};
  // EINVAL: this file system cannot sync directories.
  return fd.valid() && errno == EINVAL ? Status()
                                       : errno_status(errno, place.full + ": sync of its directory");
}

}  // namespace swale::iond
