// JobFs: names that go, and renames: on the backing first, then in the tree, under an intent.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "fs/job/insist.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"
#include "io/beneath.h"

namespace swale::fs {
namespace {

constexpr int kRenameTries = 8;  // of a rename whose file others change on the backing meanwhile

// What has the name on the backing; inode 0: nothing.
struct There {
  dev_t device = 0;
  ino_t inode = 0;
  explicit operator bool() const { return inode != 0; }
  bool operator==(const There&) const = default;
};
Result<There> there_at(const JobNode& parent, const char* name) {
  struct stat found;
  if (::fstatat(parent.directory.get(), name, &found, AT_SYMLINK_NOFOLLOW) == 0)
    return There{found.st_dev, found.st_ino};
  if (errno == ENOENT) return There{};
  return errno_status(errno, name);
}

}  // namespace

struct JobFs::Rename {
  JobNode& parent;
  const char* name;
  JobNode& new_parent;
  const char* new_name;
  unsigned flags;
  meta::DirEntry moved;
  std::optional<meta::DirEntry> other;  // that has the new name
  bool exchanges() const { return (flags & RENAME_EXCHANGE) != 0; }
};

// What one node has opened past the kernel, the names keep from when its name is to go: most close before.
Status JobFs::hold_unheld(const meta::DirEntry& entry) {
  if (entry.type != meta::NodeType::kFile || !options_.holds_late) return {};
  const RequestLock lock(mutex_, requests_);
  JobNode* const node = nodes_.find(entry.file);
  if (node == nullptr) return {};
  Status held;
  if (node->opens_unheld > 0 && !node->held_for_unheld) {
    held = contain([&] { return names_.hold(entry.file); });
    node->held_for_unheld = held.ok();
  }
  nodes_.forget(node, 1);
  return held;
}

// No entry leads to it any more. What is open lives on.
void JobFs::name_is_gone(const meta::DirEntry& entry) {
  const meta::FileId& id = entry.file;
  nodes_.remove(id);
  bool open = false;
  if (JobNode* const node = nodes_.find(id)) {
    node->unlinked = true;
    open = node->opens > 0;
    nodes_.forget(node, 1);
  }
  if (entry.type != meta::NodeType::kFile) return;
  if (open) {
    nodes_.add_nameless(id);
    return;
  }
  drop(id);
}

// Bytes of a file that no name leads to, and that nobody on this node has open. Other nodes may.
void JobFs::drop(const meta::FileId& id) {
  if (shared_ && is_held(id)) {
    nodes_.add_nameless(id);
    kept_nameless_.insert(id);
    return;
  }
  nodes_.remove_nameless(id);
  if (paths_ != nullptr) paths_->forget(id);
  if (const Status removed = insist([&]() REQUIRES(mutex_) { return files_->remove(id); }); !removed.ok())
    log_error("{}; its bytes are dropped at the next start", removed.message());
}

// Who has it open may write, and sync what he has written, before the change is over.
meta::AnswerWait JobFs::wait_of(const meta::DirEntry& entry) {
  if (fsync_drains()) return meta::AnswerWait::kWritten;
  if (shared_) return meta::AnswerWait::kSynced;  // another node may have its bytes
  const RequestLock lock(mutex_, requests_);
  bool has_bytes = entry.type == meta::NodeType::kDirectory || files_->is_undrained(entry.file);
  if (JobNode* const node = has_bytes ? nullptr : nodes_.find(entry.file)) {
    has_bytes = !node->writers.empty();
    nodes_.forget(node, 1);
  }
  return has_bytes ? meta::AnswerWait::kSynced : meta::AnswerWait::kWritten;
}

int JobFs::expect_empty(const meta::FileId& directory) {
  meta::ListCursor cursor;
  while (!cursor.end()) {
    const auto found = names_.list(directory, &cursor, 1);
    if (!found.ok()) return answer(found.status());
    if (!found->empty()) return ENOTEMPTY;
  }
  return 0;
}

int JobFs::unlink(Node& known_parent, const char* name, const Caller&) {
  const LightGate::Closed apart(light_gate_);
  JobNode& parent = JobNode::of(known_parent);
  const auto named = look_up(parent, name);
  if (!named.ok()) return answer(named.status());
  if (named->entry.type == meta::NodeType::kDirectory) return EISDIR;
  const int failed = remove_entry(parent, name, named->entry);
  if (failed == 0) changed(parent);
  return failed;
}

int JobFs::remove_directory(Node& known_parent, const char* name, const Caller&) {
  const LightGate::Closed apart(light_gate_);
  JobNode& parent = JobNode::of(known_parent);
  const auto named = look_up(parent, name);
  if (!named.ok()) return answer(named.status());
  if (named->entry.type != meta::NodeType::kDirectory) return ENOTDIR;
  if (const int failed = expect_empty(named->entry.file); failed != 0) return failed;
  const int failed = remove_entry(parent, name, named->entry);
  if (failed == 0) changed(parent);
  return failed;
}

// Other nodes may have changed the entry since it was looked up: what it is in this node's turn counts.
int JobFs::look_again(JobNode& parent, const char* name, meta::DirEntry* entry) {
  if (!shared_) return 0;
  const auto now = names_.find(parent.id, name);
  if (!now.ok()) return answer(now.status());
  const bool was_directory = entry->type == meta::NodeType::kDirectory;
  if (was_directory != (now->type == meta::NodeType::kDirectory)) return was_directory ? ENOTDIR : EISDIR;
  *entry = *now;
  return was_directory ? expect_empty(entry->file) : 0;
}

int JobFs::remove_entry(JobNode& parent, const char* name, const meta::DirEntry& seen) {
  const MutexLock changing(change_mutex_);
  const auto turn = take_turn();
  if (!turn.ok()) return answer(turn.status());
  meta::DirEntry entry = seen;
  if (const int failed = look_again(parent, name, &entry); failed != 0) return failed;
  const MovingNames::Move move(moving_, {entry.file, {}});
  if (const int failed = answer(hold_unheld(entry)); failed != 0) return failed;
  const bool directory = entry.type == meta::NodeType::kDirectory;
  const auto looked = there_at(parent, name);
  if (!looked.ok()) return answer(looked.status());
  const There found = *looked;
  const meta::AnswerWait wait = directory ? meta::AnswerWait::kWritten : wait_of(entry);
  if (found) {
    NameChange change;
    change.op = directory ? NameChange::Op::kRemoveDirectory : NameChange::Op::kUnlink;
    change.from = path_in(parent, name);
    change.file = entry.file;
    change.inode = found.inode;
    if (options_.intents)
      if (const int failed = answer(intent_->put(change, wait)); failed != 0) return failed;
    if (const int failed = take_from_backing(parent, name, entry); failed != 0 && failed != ENOENT) {
      intent_->clear();
      return failed;
    }
    if (options_.between) options_.between();
  }
  bool again = false;
  const auto remove = [&] {
    return directory ? names_.remove_directory(parent.id, name, now_nanos(), wait)
                     : names_.unlink(parent.id, name, now_nanos(), wait).status();
  };
  Status removed = insist(remove, &again);
  if (again && removed.posix_error() == ENOENT) removed = {};
  if (!removed.ok()) {  // the intent stays, unless the backing is as before
    if (found && directory && is_refusal(removed) && give_back(parent, name, entry)) intent_->clear();
    return answer(removed);
  }
  if (found && directory) static_cast<void>(insist([&] { remove_taken(parent, name, entry); }));
  if (found) intent_->clear();
  {
    const RequestLock lock(mutex_, requests_);
    static_cast<void>(insist([&]() REQUIRES(mutex_) { name_is_gone(entry); }));
  }
  return answer(insist([&] { return tell_gone(entry); }));
}

int JobFs::rename(Node& known_parent, const char* name, Node& known_new_parent, const char* new_name,
                  unsigned flags, const Caller&) {
  const LightGate::Closed apart(light_gate_);
  JobNode& parent = JobNode::of(known_parent);
  JobNode& new_parent = JobNode::of(known_new_parent);
  if ((flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE)) != 0 || flags == (RENAME_NOREPLACE | RENAME_EXCHANGE))
    return EINVAL;
  if (is_private(new_parent, new_name)) return EPERM;
  for (int tries = 0; tries < kRenameTries; ++tries) {
    const JobNodes::LookUp began(nodes_);
    const auto moved = look_up(parent, name);
    if (!moved.ok()) return answer(moved.status());
    if (!nodes_.put_found(began, moved->entry.file, {parent.id, name, moved->entry.type})) continue;
    const auto other = look_up(new_parent, new_name);
    if (!other.ok() && other.status().posix_error() != ENOENT) return answer(other.status());
    Rename wanted{parent, name, new_parent, new_name, flags, moved->entry, {}};
    if (other.ok()) wanted.other = other->entry;
    if (other.ok() &&
        !nodes_.put_found(began, other->entry.file, {new_parent.id, new_name, other->entry.type}))
      continue;
    if (const int failed = check_rename(wanted); failed != 0) return failed;
    if (wanted.other && wanted.other->file == wanted.moved.file) return 0;
    if (shared_ && wanted.moved.type == meta::NodeType::kFile)
      if (const int failed = commit_moved(wanted.moved.file); failed != 0) return failed;
    const auto drain_first = rename_locked(wanted);
    if (drain_first.status().code() == Code::kAborted && drain_first.status().error_number() == 0) continue;
    if (!drain_first.ok()) return answer(drain_first.status());
    if (!*drain_first) {
      changed(parent);
      changed(new_parent);
      return 0;
    }
    if (const auto drained = drain_file(**drain_first); !drained.ok()) return answer(drained.status());
  }
  log_error("{} and {}: others change them on the backing while they are renamed; try again",
            path_in(parent, name), path_in(new_parent, new_name));
  return EBUSY;
}

// The node is there if programs of this one have the file open.
int JobFs::commit_moved(const meta::FileId& file) {
  JobNode* const node = nodes_.find(file);
  if (node == nullptr) return answer(shared_->commit(file));
  const int failed = commit(*node);
  forget(node, 1);
  return failed;
}

// As the server of the names does, before the backing is changed.
int JobFs::check_rename(const Rename& wanted) {
  if (!wanted.other) return wanted.exchanges() ? ENOENT : 0;
  if ((wanted.flags & RENAME_NOREPLACE) != 0) return EEXIST;
  if (wanted.exchanges() || wanted.other->file == wanted.moved.file) return 0;
  const bool directory = wanted.moved.type == meta::NodeType::kDirectory;
  const bool onto_directory = wanted.other->type == meta::NodeType::kDirectory;
  if (directory != onto_directory) return directory ? ENOTDIR : EISDIR;
  return directory ? expect_empty(wanted.other->file) : 0;
}

// kAborted: other nodes have changed the entries since they were looked up.
Status JobFs::expect_same(const Rename& wanted) {
  if (!shared_) return {};
  const auto moved = names_.find(wanted.parent.id, wanted.name);
  const auto other = names_.find(wanted.new_parent.id, wanted.new_name);
  for (const auto* const each : {&moved, &other})
    if (!each->ok() && each->status().posix_error() != ENOENT) return each->status();
  const bool same = moved.ok() && *moved == wanted.moved && other.ok() == wanted.other.has_value() &&
                    (!other.ok() || *other == *wanted.other);
  if (!same) return Status(Code::kAborted, Scope::kOperation, "renamed or removed by another node");
  const int failed = check_rename(wanted);
  return failed == 0 ? Status() : errno_status(failed, wanted.new_name);
}

// A new file takes the place of one on the backing only when it is there itself: so the backing has the old
// one or the new one, whoever is killed. So do both of an exchange.
Result<std::optional<meta::FileId>> JobFs::rename_locked(const Rename& wanted) {
  const MutexLock changing(change_mutex_);
  SWALE_ASSIGN_OR_RETURN(const NameTurn turn, take_turn());
  SWALE_RETURN_IF_ERROR(expect_same(wanted));
  const MovingNames::Move move(moving_,
                               {wanted.moved.file, wanted.other ? wanted.other->file : meta::FileId{}});
  SWALE_ASSIGN_OR_RETURN(const There moved, there_at(wanted.parent, wanted.name));
  SWALE_ASSIGN_OR_RETURN(const There other, there_at(wanted.new_parent, wanted.new_name));
  if (!moved && other && wanted.moved.type == meta::NodeType::kFile)
    return std::optional<meta::FileId>(wanted.moved.file);
  if (wanted.exchanges() && moved && !other && wanted.other->type == meta::NodeType::kFile)
    return std::optional<meta::FileId>(wanted.other->file);
  if (moved && moved == other)
    return std::optional<meta::FileId>();  // two names of one file: as POSIX has it
  const auto moved_from = nodes_.path_of(wanted.moved.file);
  const auto other_from = wanted.other ? nodes_.path_of(wanted.other->file) : std::nullopt;
  if (wanted.other && !wanted.exchanges()) SWALE_RETURN_IF_ERROR(hold_unheld(*wanted.other));
  SWALE_RETURN_IF_ERROR(rename_both(wanted, moved.inode));
  const auto note = [&]() REQUIRES(mutex_) {
    if (wanted.other && wanted.exchanges())
      nodes_.put(wanted.other->file, {wanted.parent.id, wanted.name, wanted.other->type});
    if (wanted.other && !wanted.exchanges()) name_is_gone(*wanted.other);
    nodes_.put(wanted.moved.file, {wanted.new_parent.id, wanted.new_name, wanted.moved.type});
  };
  {
    const RequestLock lock(mutex_, requests_);
    static_cast<void>(insist(note));
    note_move(wanted.moved, moved_from);
    if (wanted.other && wanted.exchanges()) note_move(*wanted.other, other_from);
  }
  if (wanted.other)
    SWALE_RETURN_IF_ERROR(insist([&] {
      return wanted.exchanges() ? tell_place(*wanted.other, wanted.parent, wanted.name)
                                : tell_gone(*wanted.other);
    }));
  SWALE_RETURN_IF_ERROR(insist([&] { return tell_place(wanted.moved, wanted.new_parent, wanted.new_name); }));
  return std::optional<meta::FileId>();
}

// In the names. Of one that was done again, the first time may have done all.
Status JobFs::rename_entry(const Rename& wanted, meta::AnswerWait wait) {
  // Creates wait for no turn: what takes the new name first is looked at before it is replaced.
  const uint8_t flags = wanted.exchanges() ? meta::kExchange : wanted.other ? 0 : meta::kNoReplace;
  bool again = false;
  const Status renamed = insist(
      [&] {
        return names_.rename(wanted.parent.id, wanted.name, wanted.new_parent.id, wanted.new_name, flags,
                             now_nanos(), wait);
      },
      &again);
  if (!again || renamed.posix_error() != ENOENT) return renamed;
  const auto there = names_.find(wanted.new_parent.id, wanted.new_name);
  return there.ok() && *there == wanted.moved ? Status() : renamed;
}

// `inode`: of the one that moves, on the backing; 0: it is not there, nor is the other one. kAborted: another
// node has made a file of the new name meanwhile; all is as before.
Status JobFs::rename_both(const Rename& wanted, uint64_t inode) {
  const meta::AnswerWait wait =
      std::max(wait_of(wanted.moved), wanted.other ? wait_of(*wanted.other) : meta::AnswerWait::kWritten);
  if (inode != 0) {
    NameChange change;
    change.op = wanted.exchanges() ? NameChange::Op::kExchange : NameChange::Op::kRename;
    change.from = path_in(wanted.parent, wanted.name);
    change.to = path_in(wanted.new_parent, wanted.new_name);
    change.file = wanted.moved.file;
    change.inode = inode;
    if (options_.intents) SWALE_RETURN_IF_ERROR(intent_->put(change, wait));
    if (const int failed = replaces_directory(wanted)
                               ? take_from_backing(wanted.new_parent, wanted.new_name, *wanted.other)
                               : 0;
        failed != 0 && failed != ENOENT) {
      intent_->clear();
      return errno_status(failed, change.to);
    }
    if (::renameat2(wanted.parent.directory.get(), wanted.name, wanted.new_parent.directory.get(),
                    wanted.new_name, wanted.flags & RENAME_EXCHANGE) != 0) {
      const Status failed = errno_status(errno, change.from + ": renaming it to " + change.to);
      if (replaces_directory(wanted)) give_back(wanted.new_parent, wanted.new_name, *wanted.other);
      intent_->clear();
      return failed;
    }
    if (options_.between) options_.between();
  }
  const Status renamed = rename_entry(wanted, wait);
  const bool refused = !renamed.ok() && is_refusal(renamed);
  if (inode != 0 && (renamed.ok() || (refused && rename_back(wanted)))) {
    if (replaces_directory(wanted) && renamed.ok())
      static_cast<void>(insist([&] { remove_taken(wanted.new_parent, wanted.new_name, *wanted.other); }));
    else if (replaces_directory(wanted))
      give_back(wanted.new_parent, wanted.new_name, *wanted.other);
    intent_->clear();
  }
  if (refused && renamed.posix_error() == EEXIST)
    return Status(Code::kAborted, Scope::kOperation, "made by another node meanwhile");
  return renamed;
}

bool JobFs::rename_back(const Rename& wanted) {
  const bool back =
      ::renameat2(wanted.new_parent.directory.get(), wanted.new_name, wanted.parent.directory.get(),
                  wanted.name, wanted.exchanges() ? RENAME_EXCHANGE : RENAME_NOREPLACE) == 0;
  if (!back)
    log_error("{}",
              errno_status(errno, path_in(wanted.new_parent, wanted.new_name) + ": it cannot be renamed back")
                  .message());
  return back;
}

bool JobFs::replaces_directory(const Rename& wanted) const {
  return shared_ && wanted.other && !wanted.exchanges() && wanted.other->type == meta::NodeType::kDirectory;
}

}  // namespace swale::fs
