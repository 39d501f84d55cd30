// IondFs: what files are.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include "fuse/iond_node.h"

namespace swale::fuse {

using fs::Caller;
using fs::Change;
using fs::Node;
using iond::FileKind;

namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kBlock = 512;      // what st_blocks counts
constexpr uint64_t kUnit = 4 * kKiB;  // of statfs

timespec time_of(int64_t nanoseconds) {
  const int64_t part = (nanoseconds % kSecond + kSecond) % kSecond;
  return {static_cast<time_t>((nanoseconds - part) / kSecond), static_cast<long>(part)};
}

int64_t nanoseconds_of(timespec time) {
  if (time.tv_nsec == UTIME_NOW) ::clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

bool is_users(const char* name) { return std::strncmp(name, "user.", 5) == 0; }

}  // namespace

void fill_attributes(const iond::FileAttributes& found, struct stat* attributes) {
  *attributes = {};
  attributes->st_ino = found.key.inode;
  attributes->st_mode = found.mode | (found.kind == FileKind::kDirectory ? S_IFDIR
                                      : found.kind == FileKind::kSymlink ? S_IFLNK
                                                                         : S_IFREG);
  attributes->st_nlink = found.links;
  attributes->st_uid = ::geteuid();
  attributes->st_gid = ::getegid();
  attributes->st_size = static_cast<off_t>(found.size);
  attributes->st_blocks = static_cast<blkcnt_t>((found.size + kBlock - 1) / kBlock);
  attributes->st_blksize = iond::kStripeBytesMin;
  attributes->st_atim = attributes->st_mtim = time_of(found.modified_ns);
  attributes->st_ctim = time_of(std::max(found.changed_ns, found.modified_ns));
}

int IondFs::target_of(IondNode& node, iond::IondTarget* target, std::shared_ptr<Opened>* opened) const {
  *opened = opened_of(node);
  if (*opened) {
    *target = {(*opened)->file.name, &(*opened)->file, 0};
    return 0;
  }
  target->inode = node.inode;
  return path_of(node, &target->name);
}

int IondFs::attributes(Node& known, struct stat* attributes) {
  IondNode& node = IondNode::of(known);
  const std::shared_ptr<Opened> opened = opened_of(node);
  std::string path;
  if (!opened)
    if (const int failed = path_of(node, &path); failed != 0) return failed;
  const auto found = opened ? servers_.attributes(opened->file) : servers_.stat(path);
  if (!found.ok()) return answer(found.status());
  if (found->key.inode != node.inode) return ESTALE;
  fill_attributes(*found, attributes);
  return 0;
}

int IondFs::change(Node& known, const Change& change, const Caller&, struct stat* found) {
  IondNode& node = IondNode::of(known);
  if (change.user && *change.user != ::geteuid()) return EPERM;
  if (change.group && *change.group != ::getegid()) return EPERM;
  if (change.size)
    if (const int failed = truncate(node, *change.size); failed != 0) return failed;
  iond::AttributeChange wanted;
  if (change.mode) wanted.mode = *change.mode & 07777;
  if (change.modified) wanted.modified_ns = nanoseconds_of(*change.modified);
  if (wanted.mode || wanted.modified_ns) {
    iond::IondTarget target;
    std::shared_ptr<Opened> opened;
    int failed = target_of(node, &target, &opened);
    if (failed == 0) failed = answer(servers_.set_attributes(target, wanted));
    if (failed != 0) return failed;
  }
  return attributes(node, found);
}

int IondFs::statistics(struct statvfs* statistics) {
  const auto space = servers_.space();
  if (!space.ok()) return answer(space.status());
  *statistics = {};
  statistics->f_bsize = statistics->f_frsize = kUnit;
  statistics->f_blocks = space->bytes / kUnit;
  statistics->f_bfree = space->free / kUnit;
  statistics->f_bavail = space->available / kUnit;
  statistics->f_files = space->files;
  statistics->f_ffree = statistics->f_favail = space->files_free;
  statistics->f_namemax = NAME_MAX;
  return 0;
}

// The kernel asks for capabilities before most writes: there are none.
int IondFs::get_attribute(Node& node, const char* name, const Caller&, std::string* value) {
  if (!is_users(name)) return ENODATA;
  iond::IondTarget target;
  std::shared_ptr<Opened> opened;
  if (const int failed = target_of(IondNode::of(node), &target, &opened); failed != 0) return failed;
  auto found = servers_.get_attribute(target, name);
  if (!found.ok()) return answer(found.status());
  *value = *std::move(found);
  return 0;
}

int IondFs::list_attributes(Node& node, const Caller&, std::string* names) {
  iond::IondTarget target;
  std::shared_ptr<Opened> opened;
  if (const int failed = target_of(IondNode::of(node), &target, &opened); failed != 0) return failed;
  auto found = servers_.list_attributes(target);
  if (!found.ok()) return answer(found.status());
  *names = *std::move(found);
  return 0;
}

int IondFs::set_attribute(Node& node, const char* name, Bytes value, int flags, const Caller&) {
  if (!is_users(name)) return EOPNOTSUPP;
  iond::IondTarget target;
  std::shared_ptr<Opened> opened;
  if (const int failed = target_of(IondNode::of(node), &target, &opened); failed != 0) return failed;
  const uint32_t how = ((flags & XATTR_CREATE) != 0 ? uint32_t{iond::kIondExclusive} : 0) |
                       ((flags & XATTR_REPLACE) != 0 ? uint32_t{iond::kIondReplace} : 0);
  return answer(servers_.put_attribute(target, name, value, how));
}

int IondFs::remove_attribute(Node& node, const char* name, const Caller&) {
  if (!is_users(name)) return ENODATA;
  iond::IondTarget target;
  std::shared_ptr<Opened> opened;
  if (const int failed = target_of(IondNode::of(node), &target, &opened); failed != 0) return failed;
  return answer(servers_.remove_attribute(target, name));
}

}  // namespace swale::fuse
