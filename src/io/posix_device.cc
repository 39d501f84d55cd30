#include "io/posix_device.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "io/advised_queue.h"
#include "io/descriptor.h"
#include "io/mapping.h"
#include "io/posix_file.h"
#include "io/private_files.h"
#include "io/thread_queue.h"
#include "io/uring_queue.h"

namespace swale::io {
namespace {

// Whether link has succeeded although it reports that the name is taken: NFS repeats a call whose answer was
// lost.
bool has_two_names(const PosixPath& at) {
  struct stat attributes;
  return ::fstatat(directory_of(at), at.rest.c_str(), &attributes, 0) == 0 && attributes.st_nlink == 2;
}

// After its removal, the system still finds the directory of an anchor as ".".
bool is_removed_anchor(const PosixPath& at) {
  struct stat attributes;
  return at.anchor && at.rest == "." && ::fstat(directory_of(at), &attributes) == 0 &&
         attributes.st_nlink == 0;
}

std::string_view kind_of_file(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

bool is_private(const PosixPath& at) { return at.anchor && at.anchor->directory.is_private; }

// In a private directory: through no link, and a new file is this user's alone, whatever the umask.
int open_private(const PosixPath& at, OpenMode mode) {
  const int flags = open_flags(mode) | O_NONBLOCK | O_NOFOLLOW;
  const bool makes = mode == OpenMode::kOpenOrCreate || mode == OpenMode::kCreate;
  constexpr int kTries = 16;  // somebody removes and makes it again meanwhile
  for (int i = 0; i < kTries; ++i) {
    int fd = -1;
    if (mode != OpenMode::kCreate)
      fd = continued([&] { return ::openat(directory_of(at), at.rest.c_str(), flags & ~O_CREAT); });
    if (fd >= 0 || (mode != OpenMode::kCreate && errno != ENOENT) || !makes) return fd;
    fd = continued([&] {
      return ::openat(directory_of(at), at.rest.c_str(), flags | O_CREAT | O_EXCL, kPrivateFileMode);
    });
    if (fd >= 0) {
      if (::fchmod(fd, kPrivateFileMode) == 0) return fd;
      const int failed = errno;
      ::close(fd);
      errno = failed;
      return -1;
    }
    if (errno != EEXIST || mode == OpenMode::kCreate) return fd;
  }
  return -1;
}

// Opens without blocking, whatever kind of file is there, and then accepts only a regular file.
Result<Descriptor> open_regular(const PosixPath& at, const std::string& path, OpenMode mode) {
  Descriptor fd(is_private(at) ? open_private(at, mode) : continued([&] {
    return ::openat(directory_of(at), at.rest.c_str(), open_flags(mode) | O_NONBLOCK, 0666);
  }));
  const int failed = fd.valid() ? 0 : errno;
  struct stat attributes;
  const int looked = fd.valid() ? ::fstat(fd.get(), &attributes)
                                : ::fstatat(directory_of(at), at.rest.c_str(), &attributes,
                                            is_private(at) ? AT_SYMLINK_NOFOLLOW : 0);
  if (looked == 0 && S_ISLNK(attributes.st_mode) && failed == ELOOP)
    return invalid_argument("{}: is a symbolic link, which is not followed; remove it", path);
  const bool special = looked == 0 && !S_ISREG(attributes.st_mode) && !S_ISDIR(attributes.st_mode);
  if (special && failed != EEXIST && failed != EACCES) {
    return error(Code::kIoError, Scope::kFile,
                 "{}: opening: it is {}, not a regular file; remove it, or restore the file", path,
                 kind_of_file(attributes.st_mode));
  }
  if (failed != 0) return errno_status(failed, path + ": opening");
  if (looked != 0) return errno_status(errno, path + ": opening");
  if (S_ISDIR(attributes.st_mode)) return errno_status(EISDIR, path + ": opening");
  if (is_private(at)) SWALE_RETURN_IF_ERROR(expect_private(fd.get(), path));
  // Blocking again from now on: with O_NONBLOCK a ring would return EAGAIN.
  if (::fcntl(fd.get(), F_SETFL, open_flags(mode)) != 0) return errno_status(errno, path + ": opening");
  return fd;
}

}  // namespace

std::shared_ptr<PosixDevice> PosixDevice::of_this_process(const PosixOptions& options) {
  static Mutex mutex;
  static std::vector<std::weak_ptr<PosixDevice>> devices;
  static pid_t process = 0;
  const MutexLock lock(mutex);
  if (std::exchange(process, ::getpid()) != ::getpid())
    devices.clear();  // a child's space is not its parent's
  for (const std::weak_ptr<PosixDevice>& each : devices) {
    if (auto device = each.lock(); device && device->options_ == options) return device;
  }
  std::erase_if(devices, [](const auto& each) { return each.expired(); });
  auto device = std::make_shared<PosixDevice>(options);
  devices.push_back(device);
  return device;
}

int directory_of(const PosixPath& path) {
  return path.anchor ? path.anchor->directory.descriptor.get() : AT_FDCWD;
}

Result<std::unique_ptr<Device>> PosixDevice::anchored(const std::string& directory) {
  const PosixPath place = at(directory);
  Descriptor fd(continued(
      [&] { return ::openat(directory_of(place), place.rest.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  if (!fd.valid()) return errno_status(errno, directory + ": opening the directory");
  auto anchor = std::make_shared<const PosixAnchor>(
      PosixAnchor{without_trailing_slashes(directory), {std::move(fd)}, anchor_});
  return std::unique_ptr<Device>(new PosixDevice(options_, rooms_, std::move(anchor)));
}

Result<std::unique_ptr<Device>> PosixDevice::anchored_private(const std::string& directory) {
  const std::string path = without_trailing_slashes(directory);  // one would follow a link
  const PosixPath place = at(path);
  SWALE_ASSIGN_OR_RETURN(Descriptor fd, open_private_directory(directory_of(place), place.rest, path));
  auto anchor = std::make_shared<const PosixAnchor>(PosixAnchor{path, {std::move(fd), true}, anchor_});
  return std::unique_ptr<Device>(new PosixDevice(options_, rooms_, std::move(anchor)));
}

Result<std::unique_ptr<IoQueue>> PosixDevice::make_read_queue(size_t depth, const File& file) {
  if (options_.engine == PosixOptions::Engine::kAuto && on_local_file_system(file))
    return std::unique_ptr<IoQueue>(std::make_unique<AdvisedQueue>());
  return make_queue(depth);
}

Result<std::unique_ptr<IoQueue>> PosixDevice::make_queue(size_t depth) {
  if (options_.engine == PosixOptions::Engine::kThreads) return ThreadQueue::make(depth);
  Result<std::unique_ptr<IoQueue>> ring = UringQueue::make(depth);
  if (ring.ok() || options_.engine == PosixOptions::Engine::kUring) return ring;
  log_debug("{}; using threads instead", ring.status().message());
  return ThreadQueue::make(depth);
}

Result<std::unique_ptr<File>> PosixDevice::open(const std::string& path, OpenMode mode) {
  PosixPath place = at(path);
  SWALE_ASSIGN_OR_RETURN(Descriptor fd, open_regular(place, path, mode));
  auto file =
      std::make_unique<PosixFile>(std::move(fd), std::move(place), path, mode, options_.direct, rooms_);
  if (options_.direct == PosixOptions::Direct::kAlways) SWALE_RETURN_IF_ERROR(file->open_direct());
  return std::unique_ptr<File>(std::move(file));
}

Status PosixDevice::make_directory(const std::string& path) {
  const PosixPath place = at(path);
  const mode_t mode = is_private(place) ? kPrivateDirectoryMode : 0777;
  if (::mkdirat(directory_of(place), place.rest.c_str(), mode) == 0) return {};
  const int failed = errno;
  return errno_status(is_removed_anchor(place) ? ENOENT : failed, path + ": making the directory");
}

Status PosixDevice::rename(const std::string& from, const std::string& to) {
  const PosixPath source = at(from);
  const PosixPath target = at(to);
  if (::renameat(directory_of(source), source.rest.c_str(), directory_of(target), target.rest.c_str()) == 0)
    return {};
  return errno_status(errno, from + ": renaming to " + to);
}

// By link and unlink, which every shared file system has; without hard links, by a rename that never replaces
// a file.
Status PosixDevice::rename_new(const std::string& from, const std::string& to) {
  const PosixPath source = at(from);
  const PosixPath target = at(to);
  const int source_fd = directory_of(source);
  const int target_fd = directory_of(target);
  if (::linkat(source_fd, source.rest.c_str(), target_fd, target.rest.c_str(), 0) == 0 ||
      (errno == EEXIST && has_two_names(source))) {
    if (::unlinkat(source_fd, source.rest.c_str(), 0) == 0) return {};
    return errno_status(errno, from + ": removing, after it became " + to);
  }
  const bool no_links = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK;
  if (no_links &&
      ::renameat2(source_fd, source.rest.c_str(), target_fd, target.rest.c_str(), RENAME_NOREPLACE) == 0)
    return {};
  return errno_status(errno, from + ": giving it the new name " + to);
}

Status PosixDevice::remove(const std::string& path) {
  const PosixPath place = at(path);
  if (::unlinkat(directory_of(place), place.rest.c_str(), 0) == 0) return {};
  if (errno == EISDIR && ::unlinkat(directory_of(place), place.rest.c_str(), AT_REMOVEDIR) == 0) return {};
  return errno_status(errno, path + ": removing");
}

Status PosixDevice::sync_directory(const std::string& path) {
  const PosixPath place = at(path);
  const Descriptor fd(continued(
      [&] { return ::openat(directory_of(place), place.rest.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  const int failed = !fd.valid() ? errno : is_removed_anchor(place) ? ENOENT : 0;
  if (failed != 0) return errno_status(failed, path + ": opening the directory");
  if (continued([&] { return ::fsync(fd.get()); }) == 0) return {};
  // EINVAL: this file system cannot sync directories.
  return errno == EINVAL ? Status() : errno_status(errno, path + ": syncing the directory");
}

Result<std::vector<std::string>> PosixDevice::list(const std::string& path) {
  const PosixPath place = at(path);
  const int fd = continued(
      [&] { return ::openat(directory_of(place), place.rest.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fd < 0 ? nullptr : ::fdopendir(fd), ::closedir);
  int failed = fd < 0 ? errno : is_removed_anchor(place) ? ENOENT : 0;
  if (fd >= 0 && !stream) {
    failed = ENOMEM;  // the only reason that is left
    ::close(fd);
  }
  std::vector<std::string> names;
  while (failed == 0) {
    errno = 0;
    const dirent* const entry = ::readdir(stream.get());
    failed = errno;
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (failed != 0) return errno_status(failed, path + ": listing the directory");
  std::sort(names.begin(), names.end());
  return names;
}

Result<bool> PosixDevice::exists(const std::string& path) {
  const PosixPath place = at(path);
  struct stat attributes;
  if (::fstatat(directory_of(place), place.rest.c_str(), &attributes, 0) == 0)
    return !is_removed_anchor(place);
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return errno_status(errno, path + ": looking it up");
}

}  // namespace swale::io
