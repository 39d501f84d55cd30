// TierFs: attributes, which are those of the backing files, but for what the store knows better: size and
// times of files that it has.
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "fs/tier_fs.h"
#include "io/descriptor_path.h"
#include "tier/store/tier_counters.h"

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
// The store's own, of either kind: a mount by root hides what an ordinary user's has left, too.
bool is_id(std::string_view name) { return name == tier::kIdAttribute || name == tier::kTrustedIdAttribute; }
timespec time_now() {
  timespec time = {};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return time;
}

bool is_acl(std::string_view name) {
  return name == "system.posix_acl_access" || name == "system.posix_acl_default";
}

// Everybody may read an ACL, and the kernel asks for it and for capabilities in any caller's name, before
// most requests.
bool needs_no_permission(std::string_view name) { return is_acl(name) || name == "security.capability"; }

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
      // Programs take a file with few blocks for one with holes (and ask for them by lseek), and one with
      // none for a hole: so never fewer than it has, and more than its size needs only if the backing file
      // has more.
      const auto full = static_cast<blkcnt_t>((view->size + kBlockBytes - 1) / kBlockBytes);
      const auto known =
          found.st_blocks + static_cast<blkcnt_t>((view->written_bytes + kBlockBytes - 1) / kBlockBytes);
      found.st_blocks = std::max(found.st_blocks, std::min(full, known));
    }
  }
  *attributes = found;
  return 0;
}

void TierFs::changed(TierNode& node) {
  timespec time = {};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &time);
  node.changed_ns = nanos_of(time);
}

// A program that runs as its owner must not do so with another content. The kernel leaves this to us
// (src/fuse/wire.h). As on any file system, changes by root leave the bits, and so do pages that the kernel
// writes for a mapping, as root.
int TierFs::content_changes(TierNode& node, const Caller& caller) const {
  if (caller.user == 0) return 0;
  if (!node.may_be_set_id.load(std::memory_order_acquire)) return 0;
  const MutexLock lock(node.mutex);
  struct stat found;
  if (::fstatat(node.path.get(), "", &found, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) return errno;
  // S_ISGID without the group's right to execute once meant mandatory locks.
  const mode_t taken = S_ISUID | ((found.st_mode & S_IXGRP) != 0 ? S_ISGID : 0);
  if ((found.st_mode & taken) != 0 &&
      ::chmod(io::descriptor_path(node.path).c_str(), found.st_mode & 07777 & ~taken) != 0)
    return errno;
  node.may_be_set_id.store(false, std::memory_order_release);
  return 0;
}

void TierFs::set_change_time(TierNode& node, struct stat* attributes) {
  if (S_ISREG(node.type)) attributes->st_ctim = timespec_of(node.changed_ns);
}

int TierFs::attributes(Node& known, struct stat* attributes) {
  TierNode& node = TierNode::of(known);
  if (const int failed = attributes_of(node.path.get(), attributes); failed != 0) return failed;
  set_change_time(node, attributes);
  return 0;
}

// All of it, or nothing: a part that fails takes back those before it. The size comes last, because no other
// part can bring back what it cuts off; whether the caller may change it is asked first.
int TierFs::change(Node& known, const Change& change, const Caller& caller, struct stat* attributes) {
  TierNode& node = TierNode::of(known);
  struct stat before;
  if (const int failed = attributes_of(node.path.get(), &before); failed != 0) return failed;
  if (change.size && !change.size_by_handle) {
    io::Descriptor may_write;
    if (const int failed = open_as(node, O_WRONLY, caller, &may_write); failed != 0) return failed;
  }
  const bool owner = change.user || change.group;
  // A truncate by path says "modified now", which it will have done; who may write, but is not the owner, may
  // say no more.
  const bool said =
      change.size && !change.accessed && change.modified && change.modified->tv_nsec == UTIME_NOW;
  const bool times = (change.accessed || change.modified) && !said;
  int failed = change.mode ? change_mode(node, *change.mode, &caller) : 0;
  if (failed == 0 && owner) failed = change_owner(node, change.user, change.group, &caller);
  const bool owner_changed = owner && failed == 0;
  if (failed == 0 && times) failed = change_times(node, change.accessed, change.modified, &caller);
  if (failed == 0 && change.size) failed = change_size(node, *change.size, change.modified, caller);
  if (failed == 0) {
    changed(node);
    return this->attributes(node, attributes);
  }
  if (owner_changed) static_cast<void>(change_owner(node, before.st_uid, before.st_gid, nullptr));
  if (change.mode || owner_changed) static_cast<void>(change_mode(node, before.st_mode, nullptr));
  if (times) static_cast<void>(change_times(node, before.st_atim, before.st_mtim, nullptr));
  return failed;
}

// The store has the file until its time is set, which a truncate makes that of now; then it gives that time
// to the backing file.
int TierFs::change_size(TierNode& node, uint64_t size, std::optional<timespec> modified,
                        const Caller& caller) {
  if (const int failed = hold(node, true); failed != 0) return failed;
  const int failed = truncate(node, size, caller);
  if (failed == 0 && modified && modified->tv_nsec != UTIME_NOW)
    store_.set_modified(node.key, nanos_of(*modified));
  let_go(node);
  return failed;
}

int TierFs::change_mode(TierNode& node, mode_t mode, const Caller* caller) {
  const MutexLock lock(node.mutex);
  node.may_be_set_id.store(true, std::memory_order_release);
  std::optional<AsCaller> as;
  if (caller != nullptr && as.emplace(identity_, *caller).failed() != 0) return as->failed();
  return ::chmod(io::descriptor_path(node.path).c_str(), mode & 07777) == 0 ? 0 : errno;
}

int TierFs::change_owner(TierNode& node, std::optional<uid_t> user, std::optional<gid_t> group,
                         const Caller* caller) {
  const MutexLock lock(node.mutex);
  std::optional<AsCaller> as;
  if (caller != nullptr && as.emplace(identity_, *caller).failed() != 0) return as->failed();
  const int changed = ::fchownat(node.path.get(), "", user.value_or(static_cast<uid_t>(-1)),
                                 group.value_or(static_cast<gid_t>(-1)), AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
  return changed == 0 ? 0 : errno;
}

// The backing file's, so that its file system decides; then the store's, which will set them again after a
// flush.
int TierFs::change_times(TierNode& node, std::optional<timespec> accessed, std::optional<timespec> modified,
                         const Caller* caller) {
  constexpr timespec kOmit = {0, UTIME_OMIT};
  const timespec times[2] = {accessed.value_or(kOmit), modified.value_or(kOmit)};
  {
    std::optional<AsCaller> as;
    if (caller != nullptr && as.emplace(identity_, *caller).failed() != 0) return as->failed();
    if (::utimensat(node.path.get(), "", times, AT_EMPTY_PATH) != 0) return errno;
  }
  if (modified)
    store_.set_modified(node.key, nanos_of(times[1].tv_nsec == UTIME_NOW ? time_now() : times[1]));
  return 0;
}

int TierFs::statistics(struct statvfs* statistics) {
  if (::fstatvfs(tier_root_->path.get(), statistics) != 0) return errno;
  // What is in the log will need space.
  const uint64_t dirty = store_.stats().dirty_bytes / std::max<uint64_t>(1, statistics->f_frsize);
  statistics->f_bfree -= std::min<uint64_t>(dirty, statistics->f_bfree);
  statistics->f_bavail -= std::min<uint64_t>(dirty, statistics->f_bavail);
  return 0;
}

int TierFs::get_attribute(Node& known, const char* name, const Caller& caller, std::string* value) {
  TierNode& node = TierNode::of(known);
  if (S_ISLNK(node.type) || is_id(name)) return ENODATA;
  if (&node == root_ && std::strcmp(name, kStatsAttribute) == 0) {
    *value = tier::tier_counters(store_).json();
    return 0;
  }
  if (is_acl(name) && !acls_) return EOPNOTSUPP;
  std::string bytes(kAttributeBytesMax, '\0');
  ssize_t size = -1;
  if (needs_no_permission(name)) {
    size = ::getxattr(io::descriptor_path(node.path).c_str(), name, bytes.data(), bytes.size());
  } else {
    const AsCaller as(identity_, caller);
    if (as.failed() != 0) return as.failed();
    size = ::getxattr(io::descriptor_path(node.path).c_str(), name, bytes.data(), bytes.size());
  }
  // The kernel takes another answer for a refusal of each access.
  if (size < 0) return errno == EOPNOTSUPP && is_acl(name) ? ENODATA : errno;
  bytes.resize(static_cast<size_t>(size));
  *value = std::move(bytes);
  return 0;
}

int TierFs::list_attributes(Node& known, const Caller& caller, std::string* names) {
  TierNode& node = TierNode::of(known);
  names->clear();
  if (S_ISLNK(node.type)) return 0;  // no system call takes a symlink by its descriptor
  std::string bytes(kAttributeBytesMax, '\0');
  ssize_t size = -1;
  {
    const AsCaller as(identity_, caller);
    if (as.failed() != 0) return as.failed();
    size = ::listxattr(io::descriptor_path(node.path).c_str(), bytes.data(), bytes.size());
    if (size < 0) return errno;
  }
  bytes.resize(static_cast<size_t>(size));
  for (size_t at = 0; at < bytes.size();) {
    const std::string name = bytes.c_str() + at;
    at += name.size() + 1;
    if (!is_id(name) && (acls_ || !is_acl(name))) names->append(name).push_back('\0');
  }
  return 0;
}

int TierFs::set_attribute(Node& known, const char* name, Bytes value, int flags, const Caller& caller) {
  TierNode& node = TierNode::of(known);
  if (S_ISLNK(node.type) || is_id(name) || std::strcmp(name, kStatsAttribute) == 0) return EPERM;
  if (is_acl(name) && !acls_) return EOPNOTSUPP;
  {
    const MutexLock lock(node.mutex);  // an ACL changes the mode
    const AsCaller as(identity_, caller);
    if (as.failed() != 0) return as.failed();
    if (::setxattr(io::descriptor_path(node.path).c_str(), name, value.data(), value.size(), flags) != 0)
      return errno;
  }
  changed(node);
  return 0;
}

int TierFs::remove_attribute(Node& known, const char* name, const Caller& caller) {
  TierNode& node = TierNode::of(known);
  if (S_ISLNK(node.type) || is_id(name)) return ENODATA;
  if (is_acl(name) && !acls_) return EOPNOTSUPP;
  {
    const MutexLock lock(node.mutex);
    const AsCaller as(identity_, caller);
    if (as.failed() != 0) return as.failed();
    if (::removexattr(io::descriptor_path(node.path).c_str(), name) != 0) return errno;
  }
  changed(node);
  return 0;
}

}  // namespace swale::fs
