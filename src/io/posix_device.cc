#include "io/posix_device.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "io/advised_queue.h"
#include "io/descriptor.h"
#include "io/mapping.h"
#include "io/posix_file.h"
#include "io/thread_queue.h"
#include "io/uring_queue.h"

namespace swale::io {
namespace {

// Did link do its work although it says that the name is taken? NFS repeats a call whose answer was lost.
bool has_two_names(const std::string& path) {
  struct stat attributes;
  return ::stat(path.c_str(), &attributes) == 0 && attributes.st_nlink == 2;
}

}  // namespace

Result<std::unique_ptr<IoQueue>> PosixDevice::make_read_queue(size_t depth, const File& file) {
  if (options_.engine == PosixOptions::Engine::kAuto && on_local_file_system(file))
    return std::unique_ptr<IoQueue>(std::make_unique<AdvisedQueue>());
  return make_queue(depth);
}

Result<std::unique_ptr<IoQueue>> PosixDevice::make_queue(size_t depth) {
  if (options_.engine == PosixOptions::Engine::kThreads) return ThreadQueue::make(depth);
  Result<std::unique_ptr<IoQueue>> ring = UringQueue::make(depth);
  if (ring.ok() || options_.engine == PosixOptions::Engine::kUring) return ring;
  log_debug("{}; going on with threads", ring.status().message());
  return ThreadQueue::make(depth);
}

Result<std::unique_ptr<File>> PosixDevice::open(const std::string& path, OpenMode mode) {
  Descriptor fd(continued([&] { return ::open(path.c_str(), open_flags(mode), 0666); }));
  if (!fd.valid()) return errno_status(errno, path + ": opening");
  if (mode == OpenMode::kRead) {  // the other modes cannot open a directory
    struct stat attributes;
    if (::fstat(fd.get(), &attributes) != 0) return errno_status(errno, path + ": opening");
    if (S_ISDIR(attributes.st_mode)) return errno_status(EISDIR, path + ": opening");
  }
  auto file = std::make_unique<PosixFile>(std::move(fd), path, mode, options_.direct);
  if (options_.direct == PosixOptions::Direct::kAlways) SWALE_RETURN_IF_ERROR(file->open_direct());
  return std::unique_ptr<File>(std::move(file));
}

Status PosixDevice::make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return {};
  return errno_status(errno, path + ": making the directory");
}

Status PosixDevice::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return errno_status(errno, from + ": renaming to " + to);
}

// By link and unlink, which every shared file system has; where there are no links, by a rename that replaces nothing.
Status PosixDevice::rename_new(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0 || (errno == EEXIST && has_two_names(from))) {
    if (::unlink(from.c_str()) == 0) return {};
    return errno_status(errno, from + ": removing, after it became " + to);
  }
  const bool no_links = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK;
  if (no_links && ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  return errno_status(errno, from + ": giving it the new name " + to);
}

Status PosixDevice::remove(const std::string& path) {
  if (std::remove(path.c_str()) == 0) return {};
  return errno_status(errno, path + ": removing");
}

Status PosixDevice::sync_directory(const std::string& path) {
  const Descriptor fd(continued([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!fd.valid()) return errno_status(errno, path + ": opening the directory");
  if (continued([&] { return ::fsync(fd.get()); }) == 0) return {};
  // EINVAL: this file system does not sync directories, and nobody can make it.
  return errno == EINVAL ? Status() : errno_status(errno, path + ": syncing the directory");
}

Result<std::vector<std::string>> PosixDevice::list(const std::string& path) {
  std::vector<std::string> names;
  std::error_code failed;
  std::filesystem::directory_iterator entry(path, failed);
  for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed))
    names.push_back(entry->path().filename().string());
  if (failed) return errno_status(failed.value(), path + ": listing the directory");
  std::sort(names.begin(), names.end());
  return names;
}

Result<bool> PosixDevice::exists(const std::string& path) {
  struct stat attributes;
  if (::stat(path.c_str(), &attributes) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return errno_status(errno, path + ": looking it up");
}

}  // namespace swale::io
