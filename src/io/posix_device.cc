#include "io/posix_device.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "io/advised_queue.h"
#include "io/beneath.h"
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
bool has_two_names(int directory, const std::string& name) {
  struct stat attributes;
  return ::fstatat(directory, name.c_str(), &attributes, AT_SYMLINK_NOFOLLOW) == 0 &&
         attributes.st_nlink == 2;
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

constexpr char kOpening[] = ": opening the directory";

// None: a name of the path may be a link, or it cannot be told. Allocates nothing.
std::optional<bool> is_there(int directory, const std::string& path) {
  const std::optional<OpenedBelow> opened = open_linkless(directory, path, O_PATH | O_CLOEXEC);
  if (!opened) return {};
  if (opened->failed == 0) return true;
  if (opened->failed == ENOENT || opened->failed == ENOTDIR) return false;
  return {};
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

// Without blocking, whatever kind of file is there.
OpenedBelow open_any(const PosixPath& at, OpenMode mode, LinksOf links) {
  const int flags = open_flags(mode) | O_NONBLOCK;
  if (at.anchor && !is_private(at)) return open_below(directory_of(at), at.rest, flags, 0666, links);
  Descriptor fd(is_private(at) ? open_private(at, mode) : continued([&] {
    return ::openat(directory_of(at), at.rest.c_str(), flags, 0666);
  }));
  const int failed = fd.valid() ? 0 : errno;
  return {std::move(fd), failed};
}

// Accepts only a regular file.
Result<Descriptor> regular(OpenedBelow opened, const PosixPath& at, const std::string& path, OpenMode mode) {
  if (!opened.link.empty()) return refused_link(opened, path, at.rest);
  Descriptor fd = std::move(opened.fd);
  const int failed = opened.failed;
  struct stat attributes;
  const int looked = fd.valid() ? ::fstat(fd.get(), &attributes)
                                : ::fstatat(directory_of(at), at.rest.c_str(), &attributes,
                                            at.anchor ? AT_SYMLINK_NOFOLLOW : 0);
  if (looked == 0 && S_ISLNK(attributes.st_mode) && failed == ELOOP)
    return invalid_argument("{}: is a symbolic link, which is not followed; remove it", path);
  const bool special = looked == 0 && !S_ISREG(attributes.st_mode) && !S_ISDIR(attributes.st_mode) &&
                       !S_ISLNK(attributes.st_mode);
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

bool PosixDevice::is_within(const std::string& path) const {
  if (within_.empty() || !is_in(path, within_) || (anchor_ && resolve(anchor_, path).anchor)) return false;
  return path.find_first_not_of('/', within_.size()) != std::string::npos;  // else the directory itself
}

Result<PosixPath> PosixDevice::at(const std::string& path, const char* doing) const {
  if (!is_within(path)) return resolve(anchor_, path);
  const size_t begin = path.find_first_not_of('/', within_.size());
  Descriptor fd(continued([&] { return ::open(within_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  if (!fd.valid()) return errno_status(errno, path + doing);
  return PosixPath{std::make_shared<const PosixAnchor>(PosixAnchor{within_, {std::move(fd)}, nullptr}),
                   path.substr(begin)};
}

// Where a path's last name is.
struct PosixDevice::Name {
  PosixPath place;
  Descriptor folder;  // none: in the place's directory
  std::string last;

  int directory() const { return folder.valid() ? folder.get() : directory_of(place); }
};

Result<PosixDevice::Name> PosixDevice::name_of(const std::string& path, LinksOf trusted,
                                               const char* doing) const {
  Name name;
  SWALE_ASSIGN_OR_RETURN(name.place, at(path, doing));
  name.last = name.place.rest;
  if (!name.place.anchor) return name;
  const std::string rest = without_trailing_slashes(name.last);
  const size_t slash = rest.rfind('/');
  if (slash == std::string::npos) return name;
  OpenedBelow opened = open_below(directory_of(name.place), rest.substr(0, slash),
                                  O_PATH | O_DIRECTORY | O_CLOEXEC, 0, links(trusted));
  if (!opened.link.empty()) return refused_link(opened, path, name.last);
  if (opened.failed != 0) return errno_status(opened.failed, path + doing);
  name.folder = std::move(opened.fd);
  name.last = rest.substr(slash + 1);
  return name;
}

Result<Descriptor> PosixDevice::open_folder(const std::string& path, int flags, PosixPath* place,
                                            const char* doing) const {
  flags |= O_DIRECTORY | O_CLOEXEC;
  if (is_within(path)) {
    if (auto opened = open_linkless(AT_FDCWD, path, flags)) {
      if (opened->failed != 0) return errno_status(opened->failed, path + doing);
      return std::move(opened->fd);
    }
  }
  SWALE_ASSIGN_OR_RETURN(*place, at(path, doing));
  if (place->anchor) {
    OpenedBelow opened =
        open_below(directory_of(*place), place->rest, flags, 0, links(LinksOf::kUserAndOwner));
    if (!opened.link.empty()) return refused_link(opened, path, place->rest);
    if (opened.failed != 0) return errno_status(opened.failed, path + doing);
    return std::move(opened.fd);
  }
  Descriptor fd(continued([&] { return ::open(place->rest.c_str(), flags); }));
  if (!fd.valid()) return errno_status(errno, path + doing);
  return fd;
}

Result<std::unique_ptr<Device>> PosixDevice::anchored(const std::string& directory) {
  PosixPath place;
  SWALE_ASSIGN_OR_RETURN(Descriptor fd, open_folder(directory, O_PATH, &place, kOpening));
  auto anchor = std::make_shared<const PosixAnchor>(
      PosixAnchor{without_trailing_slashes(directory), {std::move(fd)}, anchor_});
  return std::unique_ptr<Device>(new PosixDevice(*this, std::move(anchor)));
}

Result<std::unique_ptr<Device>> PosixDevice::anchored_private(const std::string& directory) {
  const std::string path = without_trailing_slashes(directory);  // one would follow a link
  SWALE_ASSIGN_OR_RETURN(const PosixPath place, at(path, kOpening));
  SWALE_ASSIGN_OR_RETURN(Descriptor fd, open_private_directory(directory_of(place), place.rest, path));
  auto anchor = std::make_shared<const PosixAnchor>(PosixAnchor{path, {std::move(fd), true}, anchor_});
  return std::unique_ptr<Device>(new PosixDevice(*this, std::move(anchor)));
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
  PosixPath place = {nullptr, path};
  std::optional<OpenedBelow> opened;
  const bool within = is_within(path);
  if (within) opened = open_linkless(AT_FDCWD, path, open_flags(mode) | O_NONBLOCK, 0666);
  if (!opened) {
    SWALE_ASSIGN_OR_RETURN(place, at(path, ": opening"));
    opened = open_any(place, mode, links(mode == OpenMode::kRead ? LinksOf::kUserAndOwner : LinksOf::kUser));
  }
  SWALE_ASSIGN_OR_RETURN(Descriptor fd, regular(*std::move(opened), place, path, mode));
  if (within) place = {nullptr, path};  // the file need not keep the directory
  auto file =
      std::make_unique<PosixFile>(std::move(fd), std::move(place), path, mode, options_.direct, rooms_);
  if (options_.direct == PosixOptions::Direct::kAlways) SWALE_RETURN_IF_ERROR(file->open_direct());
  return std::unique_ptr<File>(std::move(file));
}

Status PosixDevice::make_directory(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const Name name, name_of(path, LinksOf::kUser, ": making the directory"));
  const mode_t mode = is_private(name.place) ? kPrivateDirectoryMode : 0777;
  if (::mkdirat(name.directory(), name.last.c_str(), mode) == 0) return {};
  const int failed = errno;
  return errno_status(is_removed_anchor(name.place) ? ENOENT : failed, path + ": making the directory");
}

Status PosixDevice::rename(const std::string& from, const std::string& to) {
  SWALE_ASSIGN_OR_RETURN(const Name source, name_of(from, LinksOf::kUser, ": renaming"));
  SWALE_ASSIGN_OR_RETURN(const Name target, name_of(to, LinksOf::kUser, ": renaming to it"));
  if (::renameat(source.directory(), source.last.c_str(), target.directory(), target.last.c_str()) == 0)
    return {};
  return errno_status(errno, from + ": renaming to " + to);
}

// By link and unlink, which every shared file system has; without hard links, by a rename that never replaces
// a file.
Status PosixDevice::rename_new(const std::string& from, const std::string& to) {
  SWALE_ASSIGN_OR_RETURN(const Name source, name_of(from, LinksOf::kUser, ": giving it a new name"));
  SWALE_ASSIGN_OR_RETURN(const Name target, name_of(to, LinksOf::kUser, ": giving a file this name"));
  const char* const old_name = source.last.c_str();
  const char* const new_name = target.last.c_str();
  if (::linkat(source.directory(), old_name, target.directory(), new_name, 0) == 0 ||
      (errno == EEXIST && has_two_names(source.directory(), source.last))) {
    if (::unlinkat(source.directory(), old_name, 0) == 0) return {};
    return errno_status(errno, from + ": removing, after it became " + to);
  }
  const bool no_links = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK;
  if (no_links &&
      ::renameat2(source.directory(), old_name, target.directory(), new_name, RENAME_NOREPLACE) == 0)
    return {};
  return errno_status(errno, from + ": giving it the new name " + to);
}

Status PosixDevice::remove(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const Name name, name_of(path, LinksOf::kUser, ": removing"));
  if (::unlinkat(name.directory(), name.last.c_str(), 0) == 0) return {};
  if (errno == EISDIR && ::unlinkat(name.directory(), name.last.c_str(), AT_REMOVEDIR) == 0) return {};
  return errno_status(errno, path + ": removing");
}

Status PosixDevice::sync_directory(const std::string& path) {
  PosixPath place;
  SWALE_ASSIGN_OR_RETURN(const Descriptor fd, open_folder(path, O_RDONLY, &place, kOpening));
  if (is_removed_anchor(place)) return errno_status(ENOENT, path + kOpening);
  if (continued([&] { return ::fsync(fd.get()); }) == 0) return {};
  // EINVAL: this file system cannot sync directories.
  return errno == EINVAL ? Status() : errno_status(errno, path + ": syncing the directory");
}

Result<std::vector<std::string>> PosixDevice::list(const std::string& path) {
  PosixPath place;
  SWALE_ASSIGN_OR_RETURN(Descriptor folder, open_folder(path, O_RDONLY, &place, ": listing the directory"));
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(folder.get()), ::closedir);
  if (!stream) return errno_status(ENOMEM, path + ": listing the directory");  // the only reason that is left
  folder.release();                                                            // the stream's
  int failed = is_removed_anchor(place) ? ENOENT : 0;
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
  if (is_within(path)) {
    if (const std::optional<bool> there = is_there(AT_FDCWD, path)) return *there;
  } else if (const PosixPath place = resolve(anchor_, path); place.anchor) {
    if (const std::optional<bool> there = is_there(directory_of(place), place.rest))
      return *there && !is_removed_anchor(place);
  }
  const Result<Name> name = name_of(path, LinksOf::kUserAndOwner, ": looking it up");
  if (!name.ok() && name.status().code() == Code::kNotFound) return false;
  SWALE_RETURN_IF_ERROR(name.status());
  struct stat attributes;
  // Below an anchor a link takes the name, wherever it leads.
  const int flags = name->place.anchor ? AT_SYMLINK_NOFOLLOW : 0;
  if (::fstatat(name->directory(), name->last.c_str(), &attributes, flags) == 0)
    return !is_removed_anchor(name->place);
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return errno_status(errno, path + ": looking it up");
}

// Kernels before 5.12 cannot tell.
bool PosixDevice::knows(const std::string& path) {
#ifdef RESOLVE_CACHED
  const PosixPath place = resolve(anchor_, path);
  open_how how = {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_CACHED;
  const Descriptor fd(static_cast<int>(openat2(directory_of(place), place.rest.c_str(), how)));
  return fd.valid() || errno != EAGAIN;
#else
  return Device::knows(path);
#endif
}

}  // namespace swale::io
