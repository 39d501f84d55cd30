// TierFs: names and directories, which are those of the backing directory.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "fs/descriptor_path.h"
#include "fs/tier_fs.h"

namespace swale::fs {

bool TierFs::is_private(const Node& parent, std::string_view name) const {
  return &parent == root_ && name == tier::kPrivateDirectory;
}

// The node of a name, with its attributes.
int TierFs::enter(int parent, const char* name, Entry* entry) {
  io::Descriptor path(::openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!path.valid()) return errno;
  struct stat attributes;
  if (const int failed = attributes_of(path.get(), &attributes); failed != 0) return failed;
  entry->node = nodes_.enter(std::move(path), attributes);
  set_change_time(*entry->node, &attributes);
  entry->attributes = attributes;
  return 0;
}

int TierFs::lookup(Node& parent, const char* name, Entry* entry) {
  if (is_private(parent, name)) return ENOENT;
  return enter(parent.path.get(), name, entry);
}

// Finishes what was made: its owner, and the mode that the caller wanted. On failure the name is taken away again.
int TierFs::made(Node& parent, const char* name, mode_t mode, const Caller& caller, Entry* entry) {
  struct stat attributes;
  const int directory = parent.path.get();
  int failed = ::fstatat(directory, name, &attributes, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
  struct stat above;
  if (failed == 0 && privileged_ && ::fstat(directory, &above) == 0) {
    const gid_t group = (above.st_mode & S_ISGID) != 0 ? above.st_gid : caller.group;
    if ((caller.user != attributes.st_uid || group != attributes.st_gid) &&
        ::fchownat(directory, name, caller.user, group, AT_SYMLINK_NOFOLLOW) != 0)
      failed = errno;
  }
  if (failed == 0 && !S_ISLNK(attributes.st_mode)) {
    // A directory keeps the S_ISGID that it has inherited.
    const mode_t wanted = (mode & 07777) | (S_ISDIR(attributes.st_mode) ? attributes.st_mode & S_ISGID : 0);
    if ((attributes.st_mode & 07777) != wanted && ::fchmodat(directory, name, wanted, 0) != 0) failed = errno;
  }
  if (failed == 0) failed = enter(directory, name, entry);
  if (failed != 0) ::unlinkat(directory, name, S_ISDIR(attributes.st_mode) ? AT_REMOVEDIR : 0);
  return failed;
}

int TierFs::make_node(Node& parent, const char* name, mode_t mode, dev_t device, const Caller& caller,
                      Entry* entry) {
  if (is_private(parent, name)) return EPERM;
  if (::mknodat(parent.path.get(), name, mode, device) != 0) return errno;
  return made(parent, name, mode, caller, entry);
}

int TierFs::make_directory(Node& parent, const char* name, mode_t mode, const Caller& caller, Entry* entry) {
  if (is_private(parent, name)) return EPERM;
  if (::mkdirat(parent.path.get(), name, mode) != 0) return errno;
  return made(parent, name, mode, caller, entry);
}

int TierFs::make_symlink(Node& parent, const char* name, const char* target, const Caller& caller,
                         Entry* entry) {
  if (is_private(parent, name)) return EPERM;
  if (::symlinkat(target, parent.path.get(), name) != 0) return errno;
  return made(parent, name, 0, caller, entry);
}

int TierFs::read_symlink(Node& node, std::string* target) {
  char text[PATH_MAX];
  const ssize_t length = ::readlinkat(node.path.get(), "", text, sizeof(text));
  if (length < 0) return errno;
  target->assign(text, static_cast<size_t>(length));
  return 0;
}

int TierFs::link(Node& node, Node& parent, const char* name, Entry* entry) {
  if (is_private(parent, name)) return EPERM;
  if (::linkat(AT_FDCWD, descriptor_path(node.path).c_str(), parent.path.get(), name, AT_SYMLINK_FOLLOW) != 0)
    return errno;
  changed(node);
  return enter(parent.path.get(), name, entry);
}

// A name of this file was taken away: if it was the last one, the store need not keep its bytes.
void TierFs::removed(const io::Descriptor& path) {
  struct stat attributes;
  if (!path.valid() || ::fstat(path.get(), &attributes) != 0 || !S_ISREG(attributes.st_mode)) return;
  if (trace_ != nullptr)
    trace_->add(tier::TraceRecord::Kind::kUnlink, attributes.st_ino, attributes.st_nlink);
  if (attributes.st_nlink == 0) store_.removed({attributes.st_dev, attributes.st_ino});
}

int TierFs::unlink(Node& parent, const char* name) {
  if (is_private(parent, name)) return ENOENT;
  const io::Descriptor path(::openat(parent.path.get(), name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (::unlinkat(parent.path.get(), name, 0) != 0) return errno;
  removed(path);
  return 0;
}

int TierFs::remove_directory(Node& parent, const char* name) {
  if (is_private(parent, name)) return ENOENT;
  return ::unlinkat(parent.path.get(), name, AT_REMOVEDIR) == 0 ? 0 : errno;
}

int TierFs::rename(Node& parent, const char* name, Node& new_parent, const char* new_name, unsigned flags) {
  if (is_private(parent, name)) return ENOENT;
  if (is_private(new_parent, new_name)) return EPERM;
  struct stat moved;
  if (trace_ != nullptr && ::fstatat(parent.path.get(), name, &moved, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISREG(moved.st_mode))
    trace_->add(tier::TraceRecord::Kind::kRename, moved.st_ino);
  const io::Descriptor replaced(::openat(new_parent.path.get(), new_name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (::renameat2(parent.path.get(), name, new_parent.path.get(), new_name, flags) != 0) return errno;
  removed(replaced);
  return 0;
}

int TierFs::open_directory(Node& node, std::unique_ptr<OpenDirectory>* directory) {
  const int fd = ::openat(node.path.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  DIR* const stream = ::fdopendir(fd);
  if (stream == nullptr) {
    const int failed = errno;
    ::close(fd);
    return failed;
  }
  *directory = std::make_unique<OpenDirectory>(node, stream);
  return 0;
}

int TierFs::read_directory(OpenDirectory& directory, off_t from,
                           const std::function<bool(const DirectoryEntry&)>& add) {
  const MutexLock lock(directory.mutex_);
  if (from != directory.at_) ::seekdir(directory.stream_, from);
  directory.at_ = from;
  for (;;) {
    errno = 0;
    const dirent* const found = ::readdir(directory.stream_);
    if (found == nullptr) return errno;
    if (!is_private(directory.node_, found->d_name) &&
        !add({found->d_name, found->d_ino, static_cast<mode_t>(DTTOIF(found->d_type)), found->d_off})) {
      ::seekdir(directory.stream_, directory.at_);
      return 0;
    }
    directory.at_ = found->d_off;
  }
}

int TierFs::sync_directory(OpenDirectory& directory) {
  const MutexLock lock(directory.mutex_);
  return ::fsync(::dirfd(directory.stream_)) == 0 ? 0 : errno;
}

}  // namespace swale::fs
