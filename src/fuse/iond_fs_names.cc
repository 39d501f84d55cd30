// IondFs: names and directories, which are server 0's.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "fuse/iond_node.h"

namespace swale::fuse {

using fs::Caller;
using fs::Entry;
using fs::Node;
using fs::OpenDirectory;
using iond::FileKind;

namespace {

constexpr off_t kDots = 2;

// A directory as it was when the reading began.
struct IondDirectory final : OpenDirectory {
  explicit IondDirectory(const IondNode& of_node) : node(of_node) {}
  static IondDirectory& of(OpenDirectory& opened) { return static_cast<IondDirectory&>(opened); }
  const IondNode& node;
  Mutex mutex;
  std::vector<iond::IondEntry> entries GUARDED_BY(mutex);
};

mode_t type_of(iond::IondEntryKind kind) {
  switch (kind) {
    case iond::IondEntryKind::kFile:
      return S_IFREG;
    case iond::IondEntryKind::kDirectory:
      return S_IFDIR;
    case iond::IondEntryKind::kSymlink:
      return S_IFLNK;
    case iond::IondEntryKind::kOther:
      break;
  }
  return 0;  // unknown
}

}  // namespace

int IondFs::path_of(const IondNode& node, std::string* path) const {
  const MutexLock lock(mutex_);
  if (!node.path) return ESTALE;
  *path = *node.path;
  return 0;
}

int IondFs::child_of(const Node& parent, const char* name, std::string* path) const {
  const std::string_view last = name;
  if (iond::is_private_name(last)) return EPERM;
  if (last.size() > NAME_MAX) return ENAMETOOLONG;
  if (const int failed = path_of(IondNode::of(parent), path); failed != 0) return failed;
  if (!path->empty()) path->push_back('/');
  path->append(last);
  return path->size() > iond::kIondNameBytesMax ? ENAMETOOLONG : 0;
}

// A new number of an inode is another file: its time differs.
void IondFs::enter(const iond::FileAttributes& found, const std::string& path, Entry* entry) {
  const MutexLock lock(mutex_);
  std::unique_ptr<IondNode>& node = nodes_[{found.key.inode, found.created_ns}];
  if (!node) {
    node = std::make_unique<IondNode>();
    node->inode = found.key.inode;
    node->created_ns = found.created_ns;
    node->kind = found.kind;
  }
  ++node->lookups;
  name_node(*node, &path);
  entry->node = node.get();
  fill_attributes(found, &entry->attributes);
}

int IondFs::enter_path(const std::string& path, Entry* entry) {
  const auto found = servers_.stat(path);
  if (!found.ok()) return answer(found.status());
  enter(*found, path, entry);
  return 0;
}

int IondFs::lookup(Node& parent, const char* name, Entry* entry) {
  std::string path;
  const int failed = child_of(parent, name, &path);
  if (failed != 0) return failed == EPERM ? ENOENT : failed;
  return enter_path(path, entry);
}

void IondFs::forget(Node* known, uint64_t count) {
  const MutexLock lock(mutex_);
  IondNode& node = IondNode::of(*known);
  node.lookups -= std::min(count, node.lookups);
  if (node.lookups > 0 || known == root_) return;
  name_node(node, nullptr);
  nodes_.erase({node.inode, node.created_ns});
}

// Null: it has none any more.
void IondFs::name_node(IondNode& node, const std::string* path) {
  if (node.path && path != nullptr && *node.path == *path) return;
  if (node.path) {
    auto [at, end] = by_path_.equal_range(*node.path);
    while (at != end && at->second != &node) ++at;
    if (at != end) by_path_.erase(at);
  }
  node.path.reset();
  if (path == nullptr) return;
  const auto at = by_path_.emplace(*path, &node);
  node.path = at->first;
}

// Its own, and what is in it.
std::vector<IondNode*> IondFs::nodes_below(const std::string& top) {
  std::vector<IondNode*> found;
  const auto [own, end] = by_path_.equal_range(top);
  for (auto at = own; at != end; ++at) found.push_back(at->second);
  const std::string inside = top + '/';
  for (auto at = by_path_.lower_bound(inside); at != by_path_.end() && at->first.starts_with(inside); ++at)
    found.push_back(at->second);
  return found;
}

void IondFs::gone(const std::string& path) {
  const MutexLock lock(mutex_);
  for (auto at = by_path_.find(path); at != by_path_.end(); at = by_path_.find(path))
    name_node(*at->second, nullptr);
}

void IondFs::moved(const std::string& from, const std::string& to, bool exchanged) {
  const MutexLock lock(mutex_);
  const std::vector<IondNode*> of_from = nodes_below(from), of_to = nodes_below(to);
  const auto rename_to = [this](IondNode& node, const std::string& old_top, const std::string& new_top)
                             REQUIRES(mutex_) {
                               const std::string path = new_top + node.path->substr(old_top.size());
                               name_node(node, &path);
                             };
  for (IondNode* const node : of_to) {
    if (exchanged)
      rename_to(*node, to, from);
    else
      name_node(*node, nullptr);
  }
  for (IondNode* const node : of_from) rename_to(*node, from, to);
}

int IondFs::make_node(Node& parent, const char* name, mode_t mode, dev_t, const Caller& caller,
                      Entry* entry) {
  if ((mode & S_IFMT) != S_IFREG && (mode & S_IFMT) != 0) return EPERM;
  std::unique_ptr<fs::OpenFile> file;
  return create(parent, name, mode & 07777, O_RDWR | O_EXCL, caller, entry, &file);
}

int IondFs::make_directory(Node& parent, const char* name, mode_t mode, const Caller& caller, Entry* entry) {
  std::string path;
  if (const int failed = child_of(parent, name, &path); failed != 0) return failed;
  const Status made = servers_.make_directory(path, mode & ~caller.umask & 07777, iond::kIondExactMode);
  return made.ok() ? enter_path(path, entry) : answer(made);
}

int IondFs::make_symlink(Node& parent, const char* name, const char* target, const Caller&, Entry* entry) {
  std::string path;
  if (const int failed = child_of(parent, name, &path); failed != 0) return failed;
  const Status made = servers_.make_symlink(target, path);
  return made.ok() ? enter_path(path, entry) : answer(made);
}

int IondFs::read_symlink(Node& node, std::string* target) {
  std::string path;
  if (const int failed = path_of(IondNode::of(node), &path); failed != 0) return failed;
  auto found = servers_.read_symlink(path);
  if (!found.ok()) return answer(found.status());
  *target = *std::move(found);
  return 0;
}

int IondFs::link(Node& known, Node& parent, const char* name, const Caller&, Entry* entry) {
  IondNode& node = IondNode::of(known);
  std::string from, path;
  if (const int failed = path_of(node, &from); failed != 0) return failed;
  if (const int failed = child_of(parent, name, &path); failed != 0) return failed;
  const Status made = servers_.link({from, nullptr, node.inode}, path);
  return made.ok() ? enter_path(path, entry) : answer(made);
}

int IondFs::unlink(Node& parent, const char* name, const Caller&) {
  std::string path;
  if (const int failed = child_of(parent, name, &path); failed != 0) return failed;
  const int failed = answer(servers_.remove(path));
  if (failed == 0) gone(path);
  return failed;
}

int IondFs::remove_directory(Node& parent, const char* name, const Caller&) {
  std::string path;
  if (const int failed = child_of(parent, name, &path); failed != 0) return failed;
  const int failed = answer(servers_.remove_directory(path));
  if (failed == 0) gone(path);
  return failed;
}

int IondFs::rename(Node& parent, const char* name, Node& new_parent, const char* new_name, unsigned flags,
                   const Caller&) {
  std::string from, to;
  if (const int failed = child_of(parent, name, &from); failed != 0) return failed;
  if (const int failed = child_of(new_parent, new_name, &to); failed != 0) return failed;
  if ((flags & ~unsigned{RENAME_NOREPLACE | RENAME_EXCHANGE}) != 0) return EINVAL;
  const bool exchanges = (flags & RENAME_EXCHANGE) != 0;
  const uint32_t how = (exchanges ? uint32_t{iond::kIondExchange} : 0) |
                       ((flags & RENAME_NOREPLACE) != 0 ? uint32_t{iond::kIondNoReplace} : 0);
  const int failed = answer(servers_.rename(from, to, how));
  if (failed == 0 && from != to) moved(from, to, exchanges);
  return failed;
}

int IondFs::open_directory(Node& node, const Caller&, std::unique_ptr<OpenDirectory>* directory) {
  const IondNode& known = IondNode::of(node);
  if (known.kind != FileKind::kDirectory) return ENOTDIR;
  *directory = std::make_unique<IondDirectory>(known);
  return 0;
}

int IondFs::read_directory(OpenDirectory& opened, off_t from,
                           const std::function<bool(const fs::DirectoryEntry&)>& add) {
  IondDirectory& directory = IondDirectory::of(opened);
  const MutexLock lock(directory.mutex);
  if (from == 0) {
    std::string path;
    if (const int failed = path_of(directory.node, &path); failed != 0) return failed;
    std::vector<iond::IondEntry> entries;
    const Status listed = servers_.list(path, [&](const iond::IondEntry& entry) {
      entries.push_back(entry);
      return true;
    });
    if (!listed.ok()) return answer(listed);
    directory.entries = std::move(entries);
  }
  for (off_t at = from; at < kDots; ++at)
    if (!add({at == 0 ? "." : "..", directory.node.inode, S_IFDIR, at + 1})) return 0;
  for (auto at = static_cast<size_t>(std::max(from, kDots) - kDots); at < directory.entries.size(); ++at) {
    const iond::IondEntry& entry = directory.entries[at];
    if (!add({entry.name, entry.inode, type_of(entry.kind), static_cast<off_t>(at) + kDots + 1})) break;
  }
  return 0;
}

int IondFs::sync_directory(OpenDirectory& opened) {
  std::string path;
  if (const int failed = path_of(IondDirectory::of(opened).node, &path); failed != 0) return failed;
  return answer(servers_.sync_directory(path));
}

}  // namespace swale::fuse
