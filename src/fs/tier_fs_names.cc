// TierFs: names and directories, which are those of the backing directory.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "fs/tier_fs.h"
#include "io/beneath.h"
#include "io/descriptor_path.h"

namespace swale::fs {

bool TierFs::is_private(const TierNode& parent, std::string_view name) const {
  return &parent == root_ && name == tier::kPrivateDirectory;
}

// The node of a name, with its attributes.
int TierFs::enter(const TierNode& parent, const char* name, Entry* entry) {
  return enter(io::Descriptor(io::open_beneath(parent.path.get(), name, O_PATH)), parent, name, entry);
}

int TierFs::enter(io::Descriptor path, const TierNode& parent, const char* name, Entry* entry) {
  if (!path.valid()) return errno;
  struct stat attributes;
  if (const int failed = attributes_of(path.get(), &attributes); failed != 0) return failed;
  TierNode* const node = nodes_.enter(std::move(path), attributes, &parent, name);
  set_change_time(*node, &attributes);
  *entry = {node, attributes};
  return 0;
}

int TierFs::lookup(Node& known_parent, const char* name, Entry* entry) {
  TierNode& parent = TierNode::of(known_parent);
  if (is_private(parent, name)) return ENOENT;
  return enter(parent, name, entry);
}

// The backing file system gives what is made its owner, group, mode and ACLs, because the caller makes it.
// Nothing is set afterwards by the name: whoever may write to the directory can have put a link to another
// file there.
template <class Make>
int TierFs::make(TierNode& parent, const char* name, mode_t type, const Caller& caller, Entry* entry,
                 const Make& make) {
  if (is_private(parent, name)) return EPERM;
  if (!io::is_one_name(name)) return EINVAL;
  {
    const AsCaller as(identity_, caller);
    if (as.failed() != 0) return as.failed();
    if (make(parent.path.get()) != 0) return errno;
  }
  Entry there;
  int failed = enter(parent, name, &there);
  if (failed == 0 && TierNode::of(*there.node).type != type) {
    forget(there.node, 1);
    return ESTALE;  // replaced since
  }
  if (failed == 0) {
    *entry = there;
    return 0;
  }
  const AsCaller as(identity_, caller);
  if (as.failed() == 0) ::unlinkat(parent.path.get(), name, S_ISDIR(type) ? AT_REMOVEDIR : 0);
  return failed;
}

int TierFs::make_node(Node& known_parent, const char* name, mode_t mode, dev_t device, const Caller& caller,
                      Entry* entry) {
  TierNode& parent = TierNode::of(known_parent);
  const mode_t type = (mode & S_IFMT) == 0 ? S_IFREG : mode & S_IFMT;
  return make(parent, name, type, caller, entry,
              [&](int directory) { return ::mknodat(directory, name, mode, device); });
}

int TierFs::make_directory(Node& known_parent, const char* name, mode_t mode, const Caller& caller,
                           Entry* entry) {
  TierNode& parent = TierNode::of(known_parent);
  const int failed = make(parent, name, S_IFDIR, caller, entry,
                          [&](int directory) { return ::mkdirat(directory, name, mode); });
  if (failed == 0 && made_directory_) made_directory_(parent.path.get(), name, mode & 07777);
  return failed;
}

int TierFs::make_symlink(Node& known_parent, const char* name, const char* target, const Caller& caller,
                         Entry* entry) {
  TierNode& parent = TierNode::of(known_parent);
  return make(parent, name, S_IFLNK, caller, entry,
              [&](int directory) { return ::symlinkat(target, directory, name); });
}

int TierFs::read_symlink(Node& known, std::string* target) {
  TierNode& node = TierNode::of(known);
  char text[PATH_MAX];
  const ssize_t length = ::readlinkat(node.path.get(), "", text, sizeof(text));
  if (length < 0) return errno;
  target->assign(text, static_cast<size_t>(length));
  return 0;
}

// The new name is entered by the node, whatever has the name by now.
int TierFs::link(Node& known, Node& known_parent, const char* name, const Caller& caller, Entry* entry) {
  TierNode& node = TierNode::of(known);
  TierNode& parent = TierNode::of(known_parent);
  if (is_private(parent, name)) return EPERM;
  if (!io::is_one_name(name)) return EINVAL;
  {
    const AsCaller as(identity_, caller);
    if (as.failed() != 0) return as.failed();
    if (::linkat(AT_FDCWD, io::descriptor_path(node.path).c_str(), parent.path.get(), name,
                 AT_SYMLINK_FOLLOW) != 0)
      return errno;
  }
  if (const int failed =
          enter(io::Descriptor(::fcntl(node.path.get(), F_DUPFD_CLOEXEC, 0)), parent, name, entry);
      failed != 0) {
    take_back(parent, name, node.path, caller);
    return failed;
  }
  changed(node);
  set_change_time(node, &entry->attributes);
  return 0;
}

// A name of this file was taken away: if it was the last one, the store need not keep its bytes.
void TierFs::removed(const io::Descriptor& path) {
  struct stat attributes;
  if (!path.valid() || ::fstat(path.get(), &attributes) != 0 || !S_ISREG(attributes.st_mode)) return;
  if (trace_ != nullptr)
    trace_->add(tier::TraceRecord::Kind::kUnlink, attributes.st_ino, attributes.st_nlink);
  if (attributes.st_nlink == 0) store_.removed(path.get());
}

// Removes a name that was made for a call that has failed, if it still leads to that file.
void TierFs::take_back(TierNode& parent, const char* name, const io::Descriptor& made, const Caller& caller) {
  struct stat there, ours;
  if (::fstatat(parent.path.get(), name, &there, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::fstat(made.get(), &ours) != 0 || there.st_dev != ours.st_dev || there.st_ino != ours.st_ino)
    return;
  {
    const AsCaller as(identity_, caller);
    if (as.failed() != 0 || ::unlinkat(parent.path.get(), name, 0) != 0) return;
  }
  removed(made);
}

int TierFs::unlink(Node& known_parent, const char* name, const Caller& caller) {
  TierNode& parent = TierNode::of(known_parent);
  if (is_private(parent, name)) return ENOENT;
  if (!io::is_one_name(name)) return EINVAL;
  const io::Descriptor path(io::open_beneath(parent.path.get(), name, O_PATH));
  {
    const AsCaller as(identity_, caller);
    if (as.failed() != 0) return as.failed();
    if (::unlinkat(parent.path.get(), name, 0) != 0) return errno;
  }
  removed(path);
  return 0;
}

int TierFs::remove_directory(Node& known_parent, const char* name, const Caller& caller) {
  TierNode& parent = TierNode::of(known_parent);
  if (is_private(parent, name)) return ENOENT;
  if (!io::is_one_name(name)) return EINVAL;
  const AsCaller as(identity_, caller);
  if (as.failed() != 0) return as.failed();
  return ::unlinkat(parent.path.get(), name, AT_REMOVEDIR) == 0 ? 0 : errno;
}

int TierFs::rename(Node& known_parent, const char* name, Node& known_new_parent, const char* new_name,
                   unsigned flags, const Caller& caller) {
  TierNode& parent = TierNode::of(known_parent);
  TierNode& new_parent = TierNode::of(known_new_parent);
  if (is_private(parent, name)) return ENOENT;
  if (is_private(new_parent, new_name)) return EPERM;
  if (!io::is_one_name(name) || !io::is_one_name(new_name)) return EINVAL;
  struct stat moved;
  if (trace_ != nullptr && ::fstatat(parent.path.get(), name, &moved, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISREG(moved.st_mode))
    trace_->add(tier::TraceRecord::Kind::kRename, moved.st_ino);
  const io::Descriptor replaced(io::open_beneath(new_parent.path.get(), new_name, O_PATH));
  {
    const AsCaller as(identity_, caller);
    if (as.failed() != 0) return as.failed();
    if (::renameat2(parent.path.get(), name, new_parent.path.get(), new_name, flags) != 0) return errno;
  }
  removed(replaced);
  note_name(new_parent, new_name);
  if ((flags & RENAME_EXCHANGE) != 0) note_name(parent, name);
  return 0;
}

// What the kernel knows by this name from now on.
void TierFs::note_name(const TierNode& parent, const char* name) {
  struct stat there;
  if (::fstatat(parent.path.get(), name, &there, AT_SYMLINK_NOFOLLOW) == 0)
    nodes_.renamed({there.st_dev, there.st_ino}, &parent, name);
}

// By the descriptor: to read a directory's names needs no right to search it.
int TierFs::open_directory(Node& known, const Caller& caller, std::unique_ptr<OpenDirectory>* directory) {
  TierNode& node = TierNode::of(known);
  if (!S_ISDIR(node.type)) return ENOTDIR;
  int fd = -1;
  {
    const AsCaller as(identity_, caller);
    if (as.failed() != 0) return as.failed();
    fd = ::open(io::descriptor_path(node.path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
  }
  DIR* const stream = ::fdopendir(fd);
  if (stream == nullptr) {
    const int failed = errno;
    ::close(fd);
    return failed;
  }
  *directory = std::make_unique<TierDirectory>(node, stream);
  return 0;
}

int TierFs::read_directory(OpenDirectory& opened, off_t from,
                           const std::function<bool(const DirectoryEntry&)>& add) {
  TierDirectory& directory = TierDirectory::of(opened);
  const MutexLock lock(directory.mutex);
  if (from != directory.at) ::seekdir(directory.stream, from);
  directory.at = from;
  for (;;) {
    errno = 0;
    const dirent* const found = ::readdir(directory.stream);
    if (found == nullptr) return errno;
    if (!is_private(directory.node, found->d_name) &&
        !add({found->d_name, found->d_ino, static_cast<mode_t>(DTTOIF(found->d_type)), found->d_off})) {
      ::seekdir(directory.stream, directory.at);
      return 0;
    }
    directory.at = found->d_off;
  }
}

int TierFs::sync_directory(OpenDirectory& opened) {
  TierDirectory& directory = TierDirectory::of(opened);
  const MutexLock lock(directory.mutex);
  return ::fsync(::dirfd(directory.stream)) == 0 ? 0 : errno;
}

}  // namespace swale::fs
