// TierFs: attributes, which are those of the backing files, but for what the store knows better: size and times of files that it
// has.
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fs/descriptor_path.h"
#include "fs/tier_fs.h"
#include "tier/store/stats_text.h"

namespace swale::fs {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kBlockBytes = 512;  // of st_blocks
constexpr size_t kAttributeBytesMax = 65536;

int64_t nanos_of(const timespec& time) { return time.tv_sec * kSecondNs + time.tv_nsec; }
timespec timespec_of(int64_t nanos) {
  const int64_t rest = (nanos % kSecondNs + kSecondNs) % kSecondNs;
  return {(nanos - rest) / kSecondNs, rest};
}
timespec time_now() {
  timespec time = {};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return time;
}

}  // namespace

int TierFs::attributes_of(int path, struct stat* attributes) {
  struct stat found;
  if (::fstatat(path, "", &found, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) return errno;
  if (S_ISREG(found.st_mode)) {
    const tier::FileKey key{found.st_dev, found.st_ino};
    auto view = store_.view(key);
    // If the store gave the file up meanwhile, it has set the times right since we looked.
    if (!view && ::fstatat(path, "", &found, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) return errno;
    if (!view) view = store_.view(key);
    if (view) {
      found.st_size = static_cast<off_t>(view->size);
      found.st_mtim = timespec_of(view->modified_ns);
      found.st_ctim = timespec_of(view->changed_ns);
      // Programs take a file with few blocks for one with holes.
      const auto blocks = static_cast<blkcnt_t>((view->size + kBlockBytes - 1) / kBlockBytes);
      found.st_blocks = std::max(found.st_blocks, blocks);
    }
  }
  *attributes = found;
  return 0;
}

void TierFs::changed(Node& node) {
  timespec time = {};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &time);
  node.changed_ns = nanos_of(time);
}

// A program that runs as its owner must not do so with another content. The kernel leaves this to us (src/fuse/wire.h).
int TierFs::content_changes(Node& node) const {
  changed(node);
  if (!node.may_be_set_id.load(std::memory_order_acquire)) return 0;
  const MutexLock lock(node.mutex);
  struct stat found;
  if (::fstatat(node.path.get(), "", &found, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) return errno;
  // S_ISGID without the group's right to execute once meant mandatory locks.
  const mode_t taken = S_ISUID | ((found.st_mode & S_IXGRP) != 0 ? S_ISGID : 0);
  if ((found.st_mode & taken) != 0 &&
      ::chmod(descriptor_path(node.path).c_str(), found.st_mode & 07777 & ~taken) != 0)
    return errno;
  node.may_be_set_id.store(false, std::memory_order_release);
  return 0;
}

void TierFs::set_change_time(Node& node, struct stat* attributes) {
  if (S_ISREG(node.type)) attributes->st_ctim = timespec_of(node.changed_ns);
}

int TierFs::attributes(Node& node, struct stat* attributes) {
  if (const int failed = attributes_of(node.path.get(), attributes); failed != 0) return failed;
  set_change_time(node, attributes);
  return 0;
}

int TierFs::change(Node& node, const Change& change, struct stat* attributes) {
  const std::string path = descriptor_path(node.path);
  changed(node);
  if (change.mode) {
    const MutexLock lock(node.mutex);
    node.may_be_set_id.store(true, std::memory_order_release);
    if (::chmod(path.c_str(), *change.mode & 07777) != 0) return errno;
  }
  if ((change.user || change.group) &&
      ::fchownat(node.path.get(), "", change.user.value_or(static_cast<uid_t>(-1)),
                 change.group.value_or(static_cast<gid_t>(-1)), AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0)
    return errno;
  if (change.size)
    if (const int failed = truncate(node, *change.size); failed != 0) return failed;
  if (change.accessed || change.modified) {
    constexpr timespec kOmit = {0, UTIME_OMIT};
    timespec times[2] = {change.accessed.value_or(kOmit), change.modified.value_or(kOmit)};
    if (change.modified) {
      if (times[1].tv_nsec == UTIME_NOW) times[1] = time_now();
      store_.set_modified(node.key, nanos_of(times[1]));
    }
    if (::utimensat(node.path.get(), "", times, AT_EMPTY_PATH) != 0) return errno;
  }
  return this->attributes(node, attributes);
}

int TierFs::statistics(struct statvfs* statistics) {
  if (::fstatvfs(root_->path.get(), statistics) != 0) return errno;
  // What is in the log will need space.
  const uint64_t dirty = store_.stats().dirty_bytes / std::max<uint64_t>(1, statistics->f_frsize);
  statistics->f_bfree -= std::min<uint64_t>(dirty, statistics->f_bfree);
  statistics->f_bavail -= std::min<uint64_t>(dirty, statistics->f_bavail);
  return 0;
}

int TierFs::get_attribute(Node& node, const char* name, std::string* value) {
  if (S_ISLNK(node.type) || std::strcmp(name, tier::kIdAttribute) == 0) return ENODATA;
  if (&node == root_ && std::strcmp(name, kStatsAttribute) == 0) {
    *value = tier::stats_text(store_.stats());
    return 0;
  }
  std::string bytes(kAttributeBytesMax, '\0');
  const ssize_t size = ::getxattr(descriptor_path(node.path).c_str(), name, bytes.data(), bytes.size());
  if (size < 0) return errno;
  bytes.resize(static_cast<size_t>(size));
  *value = std::move(bytes);
  return 0;
}

int TierFs::list_attributes(Node& node, std::string* names) {
  names->clear();
  if (S_ISLNK(node.type)) return 0;  // no system call takes a symlink by its descriptor
  std::string bytes(kAttributeBytesMax, '\0');
  const ssize_t size = ::listxattr(descriptor_path(node.path).c_str(), bytes.data(), bytes.size());
  if (size < 0) return errno;
  bytes.resize(static_cast<size_t>(size));
  for (size_t at = 0; at < bytes.size();) {
    const std::string name = bytes.c_str() + at;
    at += name.size() + 1;
    if (name != tier::kIdAttribute) names->append(name).push_back('\0');
  }
  return 0;
}

int TierFs::set_attribute(Node& node, const char* name, Bytes value, int flags) {
  if (S_ISLNK(node.type) || std::strcmp(name, tier::kIdAttribute) == 0 ||
      std::strcmp(name, kStatsAttribute) == 0)
    return EPERM;
  changed(node);
  return ::setxattr(descriptor_path(node.path).c_str(), name, value.data(), value.size(), flags) == 0 ? 0
                                                                                                      : errno;
}

int TierFs::remove_attribute(Node& node, const char* name) {
  if (S_ISLNK(node.type) || std::strcmp(name, tier::kIdAttribute) == 0) return ENODATA;
  changed(node);
  return ::removexattr(descriptor_path(node.path).c_str(), name) == 0 ? 0 : errno;
}

}  // namespace swale::fs
