// JobFs: times of files that programs set. With one node those of a file without bytes to drain change on the
// backing at once. With several a drain of any node would take that for a change by others: so the file gets
// a mark in its names, together with its times, and its next drain, which its root leads as any other, brings
// them. The node that has set them asks for one as for bytes; after a kill the root finds the mark.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"
#include "io/descriptor_path.h"

namespace swale::fs {

// Of a file or link. The drain takes a file that has another time than this node knows for one that others
// have changed.
int JobFs::set_times_there(JobNode& node, const timespec times[2]) {
  struct stat before = {}, now = {};
  const auto set = [&](const char* path) {
    if (::stat(path, &before) != 0 || ::utimensat(AT_FDCWD, path, times, 0) != 0) return -1;
    if (::stat(path, &now) == 0) return 0;
    now = before;
    if (times[1].tv_nsec != UTIME_OMIT) now.st_mtim = times[1];
    return 0;
  };
  bool is_there = false;
  if (const int failed = change_there(node, set, &is_there); failed != 0) return failed;
  if (!is_there || node.type != meta::NodeType::kFile) return 0;
  const RequestLock lock(mutex_, requests_);
  return answer(files_->retimed(node.id, stamp_of(before), stamp_of(now)));
}

// Those of a file with bytes to drain follow with these.
int JobFs::change_times(JobNode& node, const Change& wanted) {
  meta::NodeChange change;
  change.now_ns = now_nanos();
  timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
  const auto take = [&](const std::optional<timespec>& time, uint8_t field, int64_t* nanos, timespec* out) {
    if (!time) return;
    *nanos = time->tv_nsec == UTIME_NOW ? change.now_ns : nanos_of(*time);
    *out = timespec_of(*nanos);
    change.set |= field;
  };
  take(wanted.accessed, meta::kAccessed, &change.accessed_ns, &times[0]);
  take(wanted.modified, meta::kModified, &change.modified_ns, &times[1]);
  if (node.type == meta::NodeType::kDirectory) {
    const FilesInHand::Hold hold(in_hand_, {&node.id, 1});
    if (wanted.modified) node.modified_ns.store(0);
    const auto set = [&](const char* path) { return ::utimensat(AT_FDCWD, path, times, 0); };
    return change_there(node, set, nullptr, wanted.modified ? &times[1] : nullptr);
  }
  // What programs have written before would give it the time of its taking.
  if (wanted.modified && node.type == meta::NodeType::kFile)
    if (const int failed = take_granted(node); failed != 0) return failed;
  if (shared_ && node.type == meta::NodeType::kFile) return set_times_to_come(node, change);
  const FilesInHand::Hold hold(in_hand_, {&node.id, 1});
  if (wanted.modified) node.modified_ns.store(0);
  bool follows = false;  // with the next drain
  if (node.type == meta::NodeType::kFile) {
    const RequestLock lock(mutex_, requests_);
    if (const int failed = answer(files_->take()); failed != 0) return failed;
    follows = files_->is_undrained(node.id);
  }
  if (!follows)
    if (const int failed = set_times_there(node, times); failed != 0) return failed;
  return answer(names_.set_attributes(node.id, change).status());
}

// In a turn, which a drain has from when it looks at the times until it takes the mark away.
int JobFs::set_times_to_come(JobNode& node, meta::NodeChange change) {
  const auto turn = take_turn();
  if (!turn.ok()) return answer(turn.status());
  const auto now = names_.stat(node.id);
  if (!now.ok()) return answer(now.status());
  const bool says_times = change.set != 0;
  // A file that is not there yet gets them with its bytes.
  if ((now->mode & kOnBacking) != 0 && options_.brings_times) {
    const bool may = ::geteuid() == 0 || ::geteuid() == now->uid;
    if (!may) return says_times ? EPERM : 0;  // as the backing would say
    if (!says_times) change.now_ns = now->changed_ns;
    change.set |= meta::kMode;
    change.mode = now->mode | kRetimed;
    const RequestLock lock(mutex_, requests_);
    retimed_.insert(node.id);
  }
  if ((change.set & meta::kModified) != 0) node.modified_ns.store(0);
  return change.set == 0 ? 0 : answer(names_.set_attributes(node.id, change).status());
}

// The names have just heard when the file was written last. A drain may have brought these bytes before.
int JobFs::written_time_follows(JobNode& node) {
  if (!shared_) return 0;
  {
    const RequestLock lock(mutex_, requests_);
    if (const int failed = answer(files_->take()); failed != 0) return failed;
    if (files_->awaits_drain(node.id)) return 0;
  }
  return set_times_to_come(node, {});
}

// Of a server before this one, whichever node has set them.
Status JobFs::find_retimed() {
  if (!shared_) return {};
  for (const auto& [id, place] : nodes_.all_places()) {
    if (place.type != meta::NodeType::kFile || root_of(id) != peers_->own()) continue;
    const auto node = names_.stat(id);
    if (node.status().posix_error() == ENOENT) continue;
    SWALE_RETURN_IF_ERROR(node.status());
    if ((node->mode & kRetimed) == 0) continue;
    const MutexLock lock(mutex_);
    retimed_.insert(id);
  }
  return {};
}

// Of a file whose bytes are all there. What programs see has these times already.
Result<Drain::Outcome> JobFs::drain_times(const meta::FileId& file, std::optional<NameTurn>* publishing) {
  touched_ = {};
  const auto find = [&]() -> Result<std::optional<meta::TreeNode>> {
    auto node = names_.stat(file);
    if (node.status().posix_error() == ENOENT) return std::optional<meta::TreeNode>();
    SWALE_RETURN_IF_ERROR(node.status());
    if ((node->mode & kRetimed) == 0) return std::optional<meta::TreeNode>();
    return std::optional<meta::TreeNode>(*std::move(node));
  };
  SWALE_ASSIGN_OR_RETURN(auto node, find());
  if (!node) return Drain::Outcome::kNothing;
  const MutexLock changing(change_mutex_);
  SWALE_ASSIGN_OR_RETURN(NameTurn turn, take_turn());
  SWALE_ASSIGN_OR_RETURN(node, find());
  if (!node) return Drain::Outcome::kNothing;
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor there, on_backing(file));
  if (!there.valid()) return Drain::Outcome::kNothing;  // others have removed it
  SWALE_RETURN_IF_ERROR(put_times(file, *node, there));
  {
    const MutexLock lock(mutex_);
    const Status marked = set_mode(file, kRetimed, 0);
    if (!marked.ok() && marked.posix_error() != ENOENT) return marked;
  }
  publishing->emplace(std::move(turn));
  return Drain::Outcome::kDone;
}

// The root knows what the file becomes before it does: a drain after a kill must not take that for a change
// by others. A file that others have changed keeps its times.
Status JobFs::put_times(const meta::FileId& file, const meta::TreeNode& node, const io::Descriptor& there) {
  const std::string path = nodes_.path_of(file).value_or(text_of(file));
  struct stat now;
  if (::fstat(there.get(), &now) != 0) return errno_status(errno, path + ": its times on the backing");
  Stamp stamp = stamp_of(now);
  if (!S_ISREG(now.st_mode) || !lead_->is_known(stamp)) {
    log_info("{}: others have changed it on the backing; it keeps the times that it has there", path);
    return {};
  }
  stamp.modified_ns = node.modified_ns;
  const std::pair<meta::FileId, Stamp> ours(file, stamp);
  if (options_.drain_rules.mark) SWALE_RETURN_IF_ERROR(lead_->announce({&ours, 1}));
  const timespec times[2] = {timespec_of(node.accessed_ns), timespec_of(node.modified_ns)};
  if (::utimensat(AT_FDCWD, io::descriptor_path(there).c_str(), times, 0) != 0 ||
      ::fstat(there.get(), &now) != 0)
    return errno_status(errno, path + ": its times on the backing");
  const DrainSource::Done done{.file = file, .now = stamp_of(now)};
  return lead_->drained({&done, 1});
}

}  // namespace swale::fs
