// JobFs: names: how they are found and adopted, made and listed.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "base/log.h"
#include "fs/job/insist.h"
#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"
#include "io/beneath.h"
#include "io/descriptor_path.h"

namespace swale::fs {
namespace {

constexpr int kChanged = -1;       // no errno: other nodes have changed the name meanwhile
constexpr int kLookUpTries = 100;  // of a name that they change and change

meta::NewNode node_like(const struct stat& found, uint32_t mark) {
  return {(found.st_mode & 07777) | mark, found.st_uid, found.st_gid, nanos_of(found.st_mtim)};
}

}  // namespace

// An entry of the tree; none: it is to be taken from the backing, if that has it. Without the turn an entry
// that seems to have vanished may be one that another node is renaming.
Result<std::optional<meta::Named>> JobFs::find_known(JobNode& parent, const char* name, bool in_turn) {
  for (int tries = 0; tries < kLookUpTries; ++tries) {
    auto named = names_.look_up(parent.id, name);
    if (named.status().posix_error() == ENOENT) return std::optional<meta::Named>();
    SWALE_RETURN_IF_ERROR(named.status());
    SWALE_ASSIGN_OR_RETURN(bool gone, has_vanished(parent, name, *named));
    if (!gone) return std::optional<meta::Named>(std::move(*named));
    if (in_turn) {
      SWALE_ASSIGN_OR_RETURN(gone, remove_vanished(parent, name, *named));
    }
    if (gone) return std::optional<meta::Named>();
  }
  return errno_status(ESTALE, name);
}

// Of several nodes: in the turn. With one node another thread may be changing the name: it comes first, and
// the entry may be another one's then. False: nothing has vanished.
Result<bool> JobFs::remove_vanished(JobNode& parent, const char* name, const meta::Named& named) {
  const auto remove = [&]() -> Result<bool> {
    SWALE_RETURN_IF_ERROR(hold_unheld(named.entry));
    SWALE_RETURN_IF_ERROR(names_.unlink(parent.id, name, now_nanos()).status());
    nodes_.remove(named.entry.file);
    return true;
  };
  if (shared_) return remove();
  const MutexLock changing(change_mutex_);
  const auto now = names_.find(parent.id, name);
  if (!now.ok() && now.status().posix_error() != ENOENT) return now.status();
  if (!now.ok() || *now != named.entry) return false;
  SWALE_ASSIGN_OR_RETURN(const bool vanished, has_vanished(parent, name, named));
  return vanished ? remove() : false;
}

Result<meta::Named> JobFs::look_up(JobNode& parent, const char* name) {
  if (is_private(parent, name)) return errno_status(ENOENT, name);
  SWALE_ASSIGN_OR_RETURN(auto known, find_known(parent, name, !shared_));
  if (known) return *std::move(known);
  if (!shared_) return adopt(parent, name);
  struct stat there;
  const bool in_tree = names_.look_up(parent.id, name).ok();
  if (!in_tree && ::fstatat(parent.directory.get(), name, &there, AT_SYMLINK_NOFOLLOW) != 0)
    return errno_status(errno, name);
  SWALE_ASSIGN_OR_RETURN(const NameTurn turn, take_turn());
  SWALE_ASSIGN_OR_RETURN(known, find_known(parent, name, true));
  return known ? Result<meta::Named>(*std::move(known)) : adopt(parent, name);
}

// Others have removed it from the backing, and nothing of it is in the logs.
Result<bool> JobFs::has_vanished(JobNode& parent, const char* name, const meta::Named& named) {
  if (named.entry.type != meta::NodeType::kFile || (named.node.mode & kOnBacking) == 0) return false;
  struct stat found;
  if (::fstatat(parent.directory.get(), name, &found, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISREG(found.st_mode)) return false;
  } else if (errno != ENOENT) {
    return errno_status(errno, name);
  }
  if (shared_) {  // nothing of it is in the logs of any node either
    SWALE_ASSIGN_OR_RETURN(
        const ShareAnswer answer,
        remote_->ask({.node = peers_->own(), .file = named.entry.file, .span = {0, meta::kOffsetEnd}}));
    return answer.parts.empty();
  }
  const RequestLock lock(mutex_, requests_);
  return !files_->size(named.entry.file).ok();
}

// FIFOs, sockets and devices are not seen.
Result<meta::Named> JobFs::adopt(JobNode& parent, const char* name) {
  struct stat found;
  if (::fstatat(parent.directory.get(), name, &found, AT_SYMLINK_NOFOLLOW) != 0)
    return errno_status(errno, name);
  const meta::NewNode node = node_like(found, S_ISREG(found.st_mode) ? kOnBacking : 0);
  Result<meta::Named> named = errno_status(ENOENT, name);
  if (S_ISREG(found.st_mode)) {
    SWALE_ASSIGN_OR_RETURN(const meta::Opened made, names_.create(parent.id, name, node, false));
    SWALE_RETURN_IF_ERROR(names_.release(made.file));
    named = meta::Named{{made.file, meta::NodeType::kFile}, made.node};
  } else if (S_ISDIR(found.st_mode)) {
    named = names_.make_directory(parent.id, name, node);
  } else if (S_ISLNK(found.st_mode)) {
    std::string target(static_cast<size_t>(found.st_size) + 1, '\0');
    const ssize_t got = ::readlinkat(parent.directory.get(), name, target.data(), target.size());
    if (got < 0) return errno_status(errno, name);
    target.resize(static_cast<size_t>(got));
    named = names_.symlink(parent.id, name, target, node);
  }
  // Another thread has adopted it since.
  if (named.status().posix_error() == EEXIST) return names_.look_up(parent.id, name);
  if (!named.ok() || S_ISLNK(found.st_mode)) return named;
  const Status adopted = adopt_attributes(names_, parent.directory, name, named->entry.file);
  if (adopted.ok()) return named;
  // The next look-up adopts it whole: in the tree it would have no attributes for good.
  const Status removed = S_ISDIR(found.st_mode) ? names_.remove_directory(parent.id, name, now_nanos())
                                                : names_.unlink(parent.id, name, now_nanos()).status();
  if (!removed.ok()) log_warn("{}: it has lost attributes: {}", name, removed.message());
  return adopted;
}

// The directory on the backing that an entry leads to. Another node may be renaming either: the backing's
// name changes first. kChanged: the entry leads elsewhere now.
int JobFs::find_directory(JobNode& parent, const char* name, const meta::Named& named, io::Descriptor* out) {
  constexpr int kFlags = O_PATH | O_DIRECTORY;
  const auto turn = take_turn();
  if (!turn.ok()) return answer(turn.status());
  if (shared_) {
    const auto now = names_.find(parent.id, name);
    if (!now.ok()) return answer(now.status());
    if (*now != named.entry) return kChanged;
  }
  *out = io::Descriptor(io::open_beneath(parent.directory.get(), name, kFlags));
  if (!out->valid() && errno == ENOENT) {
    log_warn("{}: the directory was removed by others, and is made again", name);
    if (::mkdirat(parent.directory.get(), name, named.node.mode & 07777) != 0) return errno;
    *out = io::Descriptor(io::open_beneath(parent.directory.get(), name, kFlags));
  }
  return out->valid() ? 0 : errno;
}

// What the kernel knows from now on. `by` began before the names were asked; `directory`: if it is known.
// kChanged: the entry is gone since.
int JobFs::enter(const JobNodes::LookUp& by, JobNode& parent, const char* name, const meta::Named& named,
                 io::Descriptor directory, Entry* entry) {
  const meta::DirEntry& found = named.entry;
  JobNode* node = nodes_.find(found.file);
  if (node == nullptr) {
    if (found.type == meta::NodeType::kDirectory && !directory.valid())
      if (const int failed = find_directory(parent, name, named, &directory); failed != 0) return failed;
    node = nodes_.enter(found.file, found.type, &directory);
  }
  struct stat attributes;
  const int failed = errno_of([&] {
    if (!nodes_.put_found(by, found.file, {parent.id, name, found.type})) return kChanged;
    return node->type == meta::NodeType::kDirectory ? describe_directory(*node, &attributes)
                                                    : describe(found.file, named.node, node, &attributes);
  });
  if (failed != 0) {
    nodes_.forget(node, 1);
    return failed;
  }
  *entry = {node, attributes};
  return 0;
}

int JobFs::lookup(Node& known_parent, const char* name, Entry* entry) {
  JobNode& parent = JobNode::of(known_parent);
  for (int tries = 0; tries < kLookUpTries; ++tries) {
    const JobNodes::LookUp began(nodes_);
    const uint64_t seals_before = seals_.load();
    const auto named = look_up(parent, name);
    if (!named.ok()) return answer(named.status());
    const int failed = enter(began, parent, name, *named, {}, entry);
    if (failed == 0 && named->entry.type == meta::NodeType::kFile)
      note_seal(JobNode::of(*entry->node), named->node.mode, seals_before);
    if (failed != kChanged) return failed;
  }
  return ESTALE;
}

// A directory's time stays what it has been seen to be.
void JobFs::forget(Node* node, uint64_t count) {
  const std::unique_ptr<JobNode> last = nodes_.forget(&JobNode::of(*node), count);
  if (last && last->type == meta::NodeType::kDirectory) keep_time(*last);
}

void JobFs::keep_time(const JobNode& directory) {
  const timespec modified = timespec_of(directory.modified_ns.load());
  struct stat now;
  if (nanos_of(modified) == 0 || ::fstat(directory.directory.get(), &now) != 0 ||
      nanos_of(now.st_mtim) >= nanos_of(modified))
    return;
  io::Descriptor own(::fcntl(directory.directory.get(), F_DUPFD_CLOEXEC, 0));
  const HiddenTimes::Change sets(hidden_, directory.id, std::move(own), &modified);
}

int JobFs::keep_name(JobNode& parent, const char* name) {
  if (is_private(parent, name)) return EPERM;
  if (!io::is_one_name(name)) return EINVAL;
  const auto named = look_up(parent, name);
  if (named.ok()) return EEXIST;
  return named.status().posix_error() == ENOENT ? 0 : answer(named.status());
}

// An entry of it has come or gone; the backing's own time does not follow new files.
void JobFs::changed(JobNode& directory) {
  writes_.fetch_add(1, std::memory_order_relaxed);  // a program is at work: the drain waits
  directory.modified_ns.store(now_nanos());
}

int JobFs::make_node(Node& parent, const char* name, mode_t mode, dev_t, const Caller& caller, Entry* entry) {
  if (!S_ISREG(mode)) {
    log_info("{}: only files, directories and links can be made here", name);
    return EPERM;
  }
  std::unique_ptr<OpenFile> file;
  const int failed = create(parent, name, mode & 07777, O_RDWR | O_CREAT | O_EXCL, caller, entry, &file);
  if (failed == 0) release(std::move(file));
  return failed;
}

int JobFs::make_directory(Node& known_parent, const char* name, mode_t mode, const Caller& caller,
                          Entry* entry) {
  const LightGate::Closed apart(light_gate_);
  JobNode& parent = JobNode::of(known_parent);
  if (const int failed = keep_name(parent, name); failed != 0) return failed;
  const mode_t wanted = mode & 07777 & ~caller.umask;
  const auto turn = take_turn();
  if (!turn.ok()) return answer(turn.status());
  if (::mkdirat(parent.directory.get(), name, wanted) != 0) return errno;
  io::Descriptor made(io::open_beneath(parent.directory.get(), name, O_PATH | O_DIRECTORY));
  struct stat found;
  int failed = made.valid() && ::fstat(made.get(), &found) == 0 ? 0 : errno;
  const mode_t inherited = failed == 0 ? found.st_mode & S_ISGID : 0;
  if (failed == 0 && (found.st_mode & 07777) != (wanted | inherited)) {
    if (::chmod(io::descriptor_path(made).c_str(), wanted | inherited) != 0) failed = errno;
    found.st_mode = S_IFDIR | wanted | inherited;
  }
  if (failed == 0) {
    const JobNodes::LookUp began(nodes_);
    const auto named = names_.make_directory(parent.id, name, node_like(found, 0));
    failed = named.ok() ? enter(began, parent, name, *named, std::move(made), entry) : answer(named.status());
  }
  if (failed != 0) ::unlinkat(parent.directory.get(), name, AT_REMOVEDIR);
  if (failed == 0) changed(parent);
  return failed;
}

int JobFs::make_symlink(Node& known_parent, const char* name, const char* target, const Caller& caller,
                        Entry* entry) {
  const LightGate::Closed apart(light_gate_);
  JobNode& parent = JobNode::of(known_parent);
  if (const int failed = keep_name(parent, name); failed != 0) return failed;
  const auto turn = take_turn();
  if (!turn.ok()) return answer(turn.status());
  if (::symlinkat(target, parent.directory.get(), name) != 0) return errno;
  const meta::NewNode node{0777, caller.user, caller.group, now_nanos()};
  const JobNodes::LookUp began(nodes_);
  const auto named = names_.symlink(parent.id, name, target, node);
  const int failed = named.ok() ? enter(began, parent, name, *named, {}, entry) : answer(named.status());
  if (failed != 0) ::unlinkat(parent.directory.get(), name, 0);
  if (failed == 0) changed(parent);
  return failed;
}

int JobFs::read_symlink(Node& known, std::string* target) {
  JobNode& node = JobNode::of(known);
  if (node.type != meta::NodeType::kLink) return EINVAL;
  auto found = names_.read_link(node.id);
  if (!found.ok()) return answer(found.status());
  *target = std::move(*found);
  return 0;
}

int JobFs::open_directory(Node& known, const Caller&, std::unique_ptr<OpenDirectory>* directory) {
  JobNode& node = JobNode::of(known);
  if (node.type != meta::NodeType::kDirectory) return ENOTDIR;
  *directory = std::make_unique<JobDirectory>(node);
  return 0;
}

// All that the tree and the backing have.
Status JobFs::list(JobNode& node, std::vector<DirectoryEntry>* entries) {
  entries->clear();
  const auto add = [&](const std::string& name, const meta::FileId& id, meta::NodeType type) {
    entries->push_back({name, inode_of(id), mode_of(type), static_cast<off_t>(entries->size() + 1)});
  };
  const auto place = nodes_.place_of(node.id);
  add(".", node.id, node.type);
  add("..", place ? place->parent : node.id, node.type);
  std::set<std::string, std::less<>> known;
  meta::ListCursor cursor;
  while (!cursor.end()) {
    SWALE_ASSIGN_OR_RETURN(const auto found, names_.list(node.id, &cursor, kEntriesAsked));
    for (const meta::ListedEntry& each : found) {
      add(each.name, each.entry.file, each.entry.type);
      known.insert(each.name);
    }
  }
  const int fd = ::openat(node.directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fd < 0 ? nullptr : ::fdopendir(fd), ::closedir);
  if (!stream) return errno_status(errno, "reading a directory of the backing");
  for (;;) {
    errno = 0;
    const dirent* const found = ::readdir(stream.get());
    if (found == nullptr) break;
    const std::string name = found->d_name;
    if (name == "." || name == ".." || known.contains(name) || is_private(node, name)) continue;
    const auto named = shared_ ? look_up(node, name.c_str()) : adopt(node, name.c_str());
    if (named.status().posix_error() == ENOENT) continue;
    SWALE_RETURN_IF_ERROR(named.status());
    add(name, named->entry.file, named->entry.type);
  }
  return errno == 0 ? Status() : errno_status(errno, "reading a directory of the backing");
}

int JobFs::read_directory(OpenDirectory& opened, off_t from,
                          const std::function<bool(const DirectoryEntry&)>& add) {
  JobDirectory& directory = JobDirectory::of(opened);
  const MutexLock lock(directory.mutex);
  if (from == 0 || directory.entries.empty()) {
    if (const int failed = answer(list(directory.node, &directory.entries)); failed != 0) return failed;
  }
  for (auto at = static_cast<size_t>(from); at < directory.entries.size(); ++at)
    if (!add(directory.entries[at])) break;
  return 0;
}

// New files in it are on the backing afterwards: their names are durable only there.
int JobFs::sync_directory(OpenDirectory& opened) {
  JobNode& node = JobDirectory::of(opened).node;
  std::vector<meta::FileId> undrained;
  {
    const RequestLock lock(mutex_, requests_);
    if (const int failed = answer(files_->take()); failed != 0) return failed;
    undrained = files_->undrained();
  }
  std::erase_if(undrained, [&](const meta::FileId& id) {
    const auto place = nodes_.place_of(id);
    return !place || place->parent != node.id;
  });
  if (const int failed = answer(drain_each(undrained)); failed != 0) return failed;
  const io::Descriptor own(::openat(node.directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return own.valid() && ::fsync(own.get()) == 0 ? 0 : errno;
}

}  // namespace swale::fs
