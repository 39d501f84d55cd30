// JobFs: bytes of files: written to this process's log, read from the logs of the node, or from the backing
// while no log has anything of the file.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/buffer.h"
#include "base/log.h"
#include "fs/job/insist.h"
#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"
#include "io/beneath.h"
#include "io/descriptor_path.h"

namespace swale::fs {
namespace {

constexpr int kOpenTries = 100;  // of a file whose name, or bytes on the backing, change meanwhile

// One buffer a thread, for the bytes of a write between the kernel's pipe and the log.
MutableBytes write_buffer() {
  thread_local Buffer buffer;
  if (buffer.size() == 0) {
    auto made = Buffer::allocate(kPieceBytesMax);
    if (!made.ok()) return {};
    buffer = std::move(*made);
  }
  return buffer.span();
}

}  // namespace

meta::NodeChange JobFs::modified_at(int64_t modified_ns) {
  meta::NodeChange change;
  if (modified_ns != 0) change.set = meta::kModified;
  change.modified_ns = change.now_ns = modified_ns;
  return change;
}

// For when the server of the name is lost. Without it the bytes are still kept, under the file's id.
void JobFs::note_path(const meta::FileId& file) noexcept {
  if (paths_ == nullptr) return;
  const Status noted = contain([&]() REQUIRES(mutex_) -> Status {
    const auto path = nodes_.path_of(file);
    return path ? paths_->put(file, *path) : Status();
  });
  if (!noted.ok())
    log_warn("{}; if another node is lost, a file of this one may be kept without its path", noted.message());
}

void JobFs::note_move(const meta::DirEntry& moved, const std::optional<std::string>& before) noexcept {
  if (paths_ == nullptr) return;
  if (moved.type != meta::NodeType::kDirectory) {
    if (paths_->has(moved.file)) note_path(moved.file);
    return;
  }
  const Status noted = contain([&]() REQUIRES(mutex_) -> Status {
    std::vector<std::pair<meta::FileId, std::string>> changed;
    if (before)
      for (const meta::FileId& file : paths_->beneath(*before))
        if (auto path = nodes_.path_of(file)) changed.emplace_back(file, std::move(*path));
    return paths_->put(changed);
  });
  if (!noted.ok())
    log_warn("{}; if another node is lost, files of this one may be kept with older paths", noted.message());
}

// The name may lead to a file that others have given a second name: bytes of ours would be seen by one.
int JobFs::expect_one_name(JobNode& node, io::File& there) {
  struct stat found;
  if (::fstat(there.descriptor(), &found) != 0 || found.st_nlink < 2) return 0;
  log_error("{}: it has {} names on the backing, so it can only be read here; copy it, and write the copy",
            nodes_.path_of(node.id).value_or(""), found.st_nlink);
  return EPERM;
}

bool JobFs::wait_for_move(const meta::FileId& id) {
  const RequestLock lock(mutex_, requests_);
  return moving_.settle(id);
}

int JobFs::look_there(JobNode& node, bool writes, bool logged, const NodeFiles& files, Found* found) {
  if (logged) {
    auto there = files.look_there(node.id);
    if (!there.ok()) return answer(there.status());
    found->there = std::move(*there);
    return writes && found->there.file != nullptr ? expect_one_name(node, *found->there.file) : 0;
  }
  const auto there = on_backing(node.id);
  if (!there.ok()) return answer(there.status());
  if (there->valid()) {
    found->own = io::Descriptor(::open(io::descriptor_path(*there).c_str(), O_RDONLY | O_CLOEXEC));
    return found->own.valid() ? 0 : errno;
  }
  const auto named = names_.stat(node.id);
  if (!named.ok()) return answer(named.status());
  return (named->mode & kOnBacking) != 0 ? ENOENT : 0;  // 0: another thread has just made it
}

template <class Look>
bool JobFs::looks_undisturbed(const JobNode& node, const Look& look) {
  const JobNodes::LookUp began(nodes_);
  const uint64_t changes = files_->changes_there();
  {
    const MutexUnlock meanwhile(mutex_);
    look();
  }
  return !moving_.has(node.id) && nodes_.is_unchanged(began, node.id) && files_->changes_there() == changes;
}

// What has changed meanwhile, of its names or by a drain, makes it look again.
int JobFs::find_bytes(JobNode& node, bool writes, io::Descriptor* own) {
  const NodeFiles::There nothing;
  for (int tries = 0; tries < kOpenTries; ++tries) {
    moving_.settle(node.id);
    if (node.in_logs) return own != nullptr ? 0 : answer(files_->open_file(node.id, &nothing));
    if (node.unlinked) return ESTALE;  // its bytes on the backing can be found no more
    const auto is_logged = [&]() REQUIRES(mutex_) {
      return own == nullptr || shared_ || writes || files_->size(node.id).ok();
    };
    const bool logged = is_logged();
    if (logged && !writes && !files_->wants_there(node.id))
      return answer(files_->open_file(node.id, &nothing));
    Found found;
    const NodeFiles& files = *files_;
    int failed = 0;
    const bool same =
        looks_undisturbed(node, [&] { failed = look_there(node, writes, logged, files, &found); });
    if (!same || node.in_logs || (!logged && is_logged())) continue;
    if (failed != 0) return failed;
    if (!found.own.valid()) return answer(files_->open_file(node.id, &found.there));
    *own = std::move(found.own);
    return 0;
  }
  log_error("{}: its name or bytes change on the backing whenever it is opened; try again",
            nodes_.path_of(node.id).value_or(text_of(node.id)));
  return EBUSY;
}

int JobFs::find_holes(JobNode& node) {
  for (int tries = 0; tries < kOpenTries; ++tries) {
    if (!files_->lacks_there(node.id)) return 0;
    moving_.settle(node.id);
    const NodeFiles& files = *files_;
    Result<NodeFiles::There> there = NodeFiles::There();
    if (!looks_undisturbed(node, [&] { there = files.look_there(node.id); })) continue;
    if (!there.ok()) return answer(there.status());
    if (there->file == nullptr) return ENOENT;
    files_->keep_there(node.id, *there, files_->changes_there());
  }
  return EBUSY;
}

// What is looked for on the backing by its name must have that there and here.
Result<NameTurn> JobFs::turn_to_find(JobNode& node) {
  RequestLock lock(mutex_, requests_);
  const bool looks = shared_ && !node.in_logs;
  lock.unlock();
  return NameTurn::take(looks ? turns_.get() : nullptr);
}

// The caller holds the file in the names. ESTALE: another node has taken its name since it was looked up; the
// kernel looks up again what has that name now.
// `by`: who has made it; null: it has been there.
int JobFs::opened(JobNode& node, int flags, std::unique_ptr<OpenFile>* file, Hold hold, const Making* by) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  auto made = std::make_unique<JobFile>(node);
  made->appends = (flags & O_APPEND) != 0;
  made->writes = (flags & O_ACCMODE) != O_RDONLY;
  made->holds = hold == Hold::kYes;
  {
    const auto turn = turn_to_find(node);
    if (!turn.ok()) return answer(turn.status());
    const RequestLock lock(mutex_, requests_);
    // The backing has nothing by its name: that was asked before, and no drain has brought anything there.
    if (!shared_ && by != nullptr && by->drains_before == drains_begun_ && !node.in_logs) {
      if (const int failed = answer(files_->open_new(node.id)); failed != 0) return failed;
      node.in_logs = true;
    }
    if (const int failed = find_bytes(node, writes, &made->own); failed != 0) return failed;
    if (!made->own.valid() && !node.in_logs) {
      node.in_logs = true;
      note_path(node.id);
    }
    ++node.opens;
    if (!made->holds) ++node.opens_unheld;
    made->without_pages = (flags & O_DIRECT) != 0 || grants_.has(node.id) || node.cuts_past_kernel > 0;
    if (!made->without_pages) ++node.opens_with_pages;
    set_may_map(*made, (flags & O_ACCMODE) == O_RDWR && (flags & O_DIRECT) == 0);
    if (!writes) open_sealed(*made);
  }
  JobFile& opened_file = *made;
  *file = std::move(made);
  if ((flags & O_TRUNC) == 0) return 0;
  const int failed = errno_of([&] { return truncate(node, 0); });
  if (failed != 0) let_go(opened_file);
  return failed;
}

int JobFs::open_file(Node& known, int flags, const Caller& caller, std::unique_ptr<OpenFile>* file) {
  return open_node(JobNode::of(known), flags, caller, Hold::kYes, file);
}

int JobFs::open_node(JobNode& node, int flags, const Caller& caller, Hold hold,
                     std::unique_ptr<OpenFile>* file) {
  if (node.type == meta::NodeType::kDirectory) return EISDIR;
  if (node.type == meta::NodeType::kLink) return ELOOP;
  const bool holds = hold == Hold::kYes;
  if (const int failed = holds ? answer(names_.hold(node.id)) : 0; failed != 0)
    return failed == ENOENT ? ESTALE : failed;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  std::unique_ptr<OpenFile> made;
  int failed = writes ? errno_of([&] { return count_writer(node, caller); }) : 0;
  const bool counted = writes && failed == 0;
  if (failed == 0)
    failed = errno_of([&] {
      const int refused = (flags & O_TRUNC) != 0 ? content_changes(node, caller) : 0;
      return refused != 0 ? refused : opened(node, flags, &made, hold);
    });
  if (failed == 0) {
    if (counted) JobFile::of(*made).writer = caller.thread;
    *file = std::move(made);
    return 0;
  }
  static_cast<void>(contain([&] {
    if (counted) end_writer(node, caller.thread);
    if (holds) static_cast<void>(answer(names_.release(node.id)));
  }));
  return failed;
}

// An open of it ends. Bytes of a file without a name go with the last one.
void JobFs::let_go(JobFile& file) {
  JobNode& node = file.node;
  RequestLock lock(mutex_, requests_);
  const bool seals = file.writer && end_writer_locked(node, *file.writer);
  if (!file.without_pages) --node.opens_with_pages;
  set_may_map(file, false);
  if (file.sealed_at != 0) --node.sealed_opens;
  if (!file.holds && --node.opens_unheld == 0) file.holds = std::exchange(node.held_for_unheld, false);
  if (--node.opens == 0) {
    if (node.in_logs) files_->close_file(node.id);
    node.in_logs = false;
    if (node.unlinked) static_cast<void>(insist([&]() REQUIRES(mutex_) { drop(node.id); }));
  }
  lock.unlock();
  if (seals) static_cast<void>(contain([&] { seal_at_close(node); }));
}

// Nobody repeats it: a step that fails leaves the others.
void JobFs::release(std::unique_ptr<OpenFile> file) {
  JobNode& node = JobFile::of(*file).node;
  static_cast<void>(insist([&] { revoke_grants(JobFile::of(*file)); }));
  static_cast<void>(errno_of([&] { return commit(node); }));  // of a process that was killed
  if (locks_) static_cast<void>(contain([&] { locks_->release(*file); }));
  static_cast<void>(errno_of([&] { return say_modified(node); }));
  static_cast<void>(insist([&] { end_mapping(JobFile::of(*file)); }));
  let_go(JobFile::of(*file));
  if (!JobFile::of(*file).holds) return;
  static_cast<void>(errno_of([&] { return answer(names_.release(node.id)); }));
}

int JobFs::read(OpenFile& opened, uint64_t offset, MutableBytes out, size_t* got) {
  JobFile& file = JobFile::of(opened);
  note_read(file);
  if (shared_) {
    auto count = shared_->read(file.node.id, offset, out);
    // Its name may be looked for on the backing.
    while (!count.ok() && wait_for_move(file.node.id)) count = shared_->read(file.node.id, offset, out);
    if (!count.ok()) return answer(count.status());
    *got = *count;
    return 0;
  }
  {
    RequestLock lock(mutex_, requests_);
    if (file.node.in_logs) {
      const int lacking = find_holes(file.node);
      NodeFiles::Holes holes;
      auto count = files_->read(file.node.id, offset, out, &holes);
      while (!count.ok() && moving_.settle(file.node.id)) {
        holes = {};
        count = files_->read(file.node.id, offset, out, &holes);
      }
      lock.unlock();
      if (!count.ok()) return lacking != 0 ? lacking : answer(count.status());
      if (const int failed = answer(holes.fill()); failed != 0) return failed;
      *got = *count;
      return 0;
    }
  }
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = io::continued([&] {
      return ::pread(file.own.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    });
    if (count < 0) return errno;
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  *got = done;
  return 0;
}

bool JobFs::read_in_place(OpenFile& opened, uint64_t offset, uint64_t length, const Give& give) {
  JobFile& file = JobFile::of(opened);
  if (shared_) return false;
  if (file.sealed_at != 0 && !file.has_read.load()) return false;  // read() notes the first one
  const RequestLock lock(mutex_, requests_);
  ShownBytes shown;
  if (!file.node.in_logs || !files_->show(file.node.id, offset, length, &shown)) return false;
  reads_.fetch_add(1, std::memory_order_relaxed);
  give(shown.parts);
  return true;
}

// A program that runs as its owner must not do so with another content; root's changes leave the bits.
int JobFs::content_changes(JobNode& node, const Caller& caller) {
  if (caller.user == 0 || !node.may_be_set_id.load()) return 0;
  const auto now = names_.stat(node.id);
  if (!now.ok()) return answer(now.status());
  const mode_t taken = S_ISUID | ((now->mode & S_IXGRP) != 0 ? S_ISGID : 0);
  if ((now->mode & taken) != 0)
    if (const int failed = change_mode(node, now->mode & 07777 & ~taken); failed != 0) return failed;
  node.may_be_set_id.store(false);
  return 0;
}

// The log has all of it, or says why not.
int JobFs::append(JobNode& node, uint64_t offset, Bytes bytes) {
  while (!bytes.empty()) {
    LogTrouble trouble;
    const int64_t written = writer_.write(node.id, offset, bytes.data(), bytes.size(), &trouble);
    if (written < 0) {
      log_error("{}", trouble.text);
      return static_cast<int>(-written);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  writes_.fetch_add(1, std::memory_order_relaxed);
  node.modified_ns.store(now_nanos());
  return 0;
}

// `offset`: where the bytes go, of a file that is appended to: behind those of all nodes.
int JobFs::begin_write(JobFile& file, uint64_t* offset, uint64_t length, const Caller& caller) {
  if (*offset > meta::kOffsetEnd || length > meta::kOffsetEnd - *offset) return EFBIG;
  if (const int failed = content_changes(file.node, caller); failed != 0) return failed;
  if (!caller.appends.value_or(file.appends)) return 0;
  const auto place = place_to_append(file.node, length);
  if (!place.ok()) return answer(place.status());
  *offset = place->value_or(*offset);
  return 0;
}

int JobFs::write(OpenFile& opened, uint64_t offset, uint64_t length, const Caller& caller, const Fill& fill) {
  JobNode& node = JobFile::of(opened).node;
  const MutableBytes buffer = write_buffer();
  if (buffer.empty()) return ENOMEM;
  if (const int failed = begin_write(JobFile::of(opened), &offset, length, caller); failed != 0)
    return failed;
  for (uint64_t done = 0; done < length;) {
    const MutableBytes part = buffer.first(std::min<uint64_t>(length - done, buffer.size()));
    if (const int failed = answer(fill(part)); failed != 0) return failed;
    if (const int failed = append(node, offset + done, view(part)); failed != 0) return failed;
    done += part.size();
  }
  return 0;
}

void JobFs::write(OpenFile& opened, uint64_t offset, uint64_t length, const Caller& caller, const Fill& fill,
                  const std::function<void(int)>& answered) {
  answered(write(opened, offset, length, caller, fill));
}

void JobFs::write_bytes(OpenFile& opened, uint64_t offset, Bytes bytes, const Caller& caller,
                        const std::function<void(int)>& answered) {
  JobFile& file = JobFile::of(opened);
  int failed = begin_write(file, &offset, bytes.size(), caller);
  if (failed == 0) failed = append(file.node, offset, bytes);
  answered(failed);
}

// A close, of one of its descriptors.
int JobFs::flush(OpenFile& opened) {
  JobNode& node = JobFile::of(opened).node;
  const int failed = commit_all(node);
  const int unsaid = say_modified(node);
  return failed != 0 ? failed : unsaid;
}

int JobFs::sync(OpenFile& opened) {
  JobFile& file = JobFile::of(opened);
  if (const int failed = take_granted(file.node); failed != 0) return failed;
  if (shared_ && !fsync_drains())
    if (const auto durable = sync_on_nodes(file.node)) return *durable;
  if (const int failed = commit(file.node); failed != 0) return failed;
  bool in_logs = false;
  {
    const RequestLock lock(mutex_, requests_);
    in_logs = file.node.in_logs;
  }
  if (in_logs && !fsync_drains() && !shared_) {
    if (const auto durable = sync_on_node(file.node)) return *durable;
  }
  if (const int failed = say_modified(file.node); failed != 0) return failed;
  if (!in_logs) return ::fsync(file.own.get()) == 0 ? 0 : errno;
  const auto drained = drain_file(file.node.id);
  if (!drained.ok()) return answer(drained.status());
  return *drained == Drain::Outcome::kKeptAside ? EIO : 0;  // the log of the program says where it is
}

// The disk has what the names have not synced and the bytes to write at the same time. Nothing: it takes a
// drain; a full buffer is no failure of the program's.
std::optional<int> JobFs::sync_on_node(JobNode& node) {
  const int64_t modified_ns = node.modified_ns.load();
  const bool said = modified_ns == node.kept_modified_ns.load();
  meta::NamesClient::Setting naming(names_, node.id, modified_at(0), meta::AnswerWait::kSynced);
  const auto kept = keep_on_node({node.id, said ? 0 : modified_ns});
  if (const int failed = answer(naming.end()); failed != 0) return failed;
  if (kept.status().code() == Code::kNoSpace) return {};
  if (!kept.ok()) return answer(kept.status());
  if (*kept == NodeLogs::Kept::kNotYet) return {};
  if (*kept == NodeLogs::Kept::kFiles && !said)
    return answer(sync_names(node.id, node.modified_ns.exchange(0)));
  node.kept_modified_ns.store(modified_ns);
  return 0;
}

// The same, of several nodes: the server of the names syncs meanwhile, and then the root of the file what it
// keeps, and with it the commit. The bytes come first, without hindering those who write; what comes then is
// little.
std::optional<int> JobFs::sync_on_nodes(JobNode& node) {
  {
    const RequestLock lock(mutex_, requests_);
    if (!node.in_logs) return {};
  }
  const int64_t modified_ns = node.modified_ns.exchange(0);
  meta::NamesClient::Setting naming(names_, node.id, modified_at(modified_ns), meta::AnswerWait::kSynced);
  const auto keep = [&] { return keep_committed(node.id); };
  Result<bool> synced = options_.share_rules.keeps_first ? keep() : Result<bool>(true);
  if (synced.ok() && *synced) synced = shared_->sync(node.id, keep);
  const Status named = naming.end();
  int64_t unsaid = 0;
  if (!named.ok() && modified_ns != 0) node.modified_ns.compare_exchange_strong(unsaid, modified_ns);
  if (const int failed = answer(named); failed != 0) return failed;
  if (const int failed = modified_ns != 0 ? written_time_follows(node) : 0; failed != 0) return failed;
  if (!synced.ok()) return answer(synced.status());
  if (!*synced) return {};
  return drop_pages_left(node);
}

// Where a file was cut too often since it was drained, it is drained.
int JobFs::truncate(JobNode& node, uint64_t size) {
  if (size > meta::kOffsetEnd) return EFBIG;
  const auto cut = [&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(const NameTurn turn, turn_to_find(node));
    RequestLock lock(mutex_, requests_);
    if (const int failed = find_bytes(node, true, nullptr); failed != 0)
      return errno_status(failed, "truncate");
    node.reserved_end = 0;
    Status done;
    if (shared_) {
      lock.unlock();
      done = shared_->truncate(node.id, size);
      lock.lock();
    } else {
      done = files_->truncate(node.id, size);
    }
    files_->close_file(node.id);
    return done;
  };
  Status done = cut();
  if (done.code() == Code::kResourceExhausted) {
    if (const auto drained = drain_file(node.id); !drained.ok()) return answer(drained.status());
    done = cut();
  }
  if (!done.ok()) return answer(done);
  node.modified_ns.store(now_nanos());
  return drop_pages_left(node);
}

// What was written here is seen on all nodes from now on.
int JobFs::commit(JobNode& node) {
  if (!shared_ || !options_.commits) return 0;
  const int failed = answer(shared_->commit(node.id));
  const int kept = drop_pages_left(node);
  return failed != 0 ? failed : kept;
}

int JobFs::commit_all(JobNode& node) {
  const int untaken = take_granted(node);
  const int failed = commit(node);
  return untaken != 0 ? untaken : failed;
}

}  // namespace swale::fs
