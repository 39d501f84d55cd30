// JobFs: files that are made.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "fs/job/insist.h"
#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"
#include "io/beneath.h"

namespace swale::fs {

int JobFs::create(Node& known_parent, const char* name, mode_t mode, int flags, const Caller& caller,
                  Entry* entry, std::unique_ptr<OpenFile>* file) {
  JobNode& parent = JobNode::of(known_parent);
  if (const auto lent = take_lent(name)) return open_lent(*lent, flags, caller, entry, file);
  const auto open_existing = [&] {
    if (const int missing = lookup(parent, name, entry); missing != 0) return missing;
    const int refused = open_file(*entry->node, flags, caller, file);
    if (refused != 0) nodes_.forget(&JobNode::of(*entry->node), 1);
    return refused;
  };
  const bool asks = is_private(parent, name) || !io::is_one_name(name) || may_be_there(parent, name);
  int failed = asks ? keep_name(parent, name) : 0;
  if (failed == EEXIST && (flags & O_EXCL) == 0) return open_existing();
  if (failed != 0) return failed;
  struct stat above;
  if (::fstat(parent.directory.get(), &above) != 0) return errno;
  const meta::NewNode node = new_file(above, mode & 07777, caller);
  const Making by(*this, parent, name);
  auto made = names_.create(parent.id, name, node, true);
  if (made.status().posix_error() == EEXIST && !asks) {  // or others have removed it from the backing
    failed = keep_name(parent, name);
    if (failed != 0 && failed != EEXIST) return failed;
    if (failed == 0) made = names_.create(parent.id, name, node, true);
  }
  if (made.status().posix_error() == EEXIST && (flags & O_EXCL) == 0) return open_existing();
  if (!made.ok()) return answer(made.status());
  JobNode* known = nullptr;
  struct stat attributes;
  failed = open_made(by, *made, flags, caller, &known, &attributes, file);
  if (failed == 0) *entry = {known, attributes};
  return failed;
}

// What the backing does not have is made, or refused, by the names alone.
bool JobFs::may_be_there(const JobNode& parent, const char* name) const {
  struct stat found;
  return shared_ || ::fstatat(parent.directory.get(), name, &found, AT_SYMLINK_NOFOLLOW) == 0 ||
         errno != ENOENT;
}

// In the directory `above`.
meta::NewNode JobFs::new_file(const struct stat& above, mode_t mode, const Caller& caller) {
  const gid_t group = (above.st_mode & S_ISGID) != 0 ? above.st_gid : caller.group;
  return {mode & ~caller.umask, caller.user, group, now_nanos()};
}

JobFs::Making::Making(JobFs& fs, JobNode& in, std::string called, bool holds_it)
    : parent(in), name(std::move(called)), holds(holds_it), began(fs.nodes_) {
  const RequestLock lock(fs.mutex_, fs.requests_);
  seals_before = fs.seals_;
  drains_before = fs.drains_begun_;
}

int JobFs::open_entered(const Making& by, JobNode& node, const meta::TreeNode& made, int flags,
                        const Caller& caller, struct stat* attributes, std::unique_ptr<OpenFile>* file) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  int failed = writes ? errno_of([&] { return count_writer(node, caller, by.seals_before); }) : 0;
  const bool counted = writes && failed == 0;
  std::unique_ptr<OpenFile> own;
  const int access = (flags & O_ACCMODE) == O_WRONLY ? O_WRONLY : O_RDWR;
  if (failed == 0)
    failed = errno_of([&] {
      return opened(node, access | (flags & (O_APPEND | O_DIRECT)), &own, by.holds ? Hold::kYes : Hold::kNo,
                    &by);
    });
  if (failed != 0) {
    if (counted) static_cast<void>(contain([&] { end_writer(node, caller.thread); }));
    return failed;
  }
  JobFile& open = JobFile::of(*own);
  open.writes = writes;
  open.reads = (flags & O_ACCMODE) != O_WRONLY;
  if (counted) open.writer = caller.thread;
  if (attributes != nullptr) failed = errno_of([&] { return describe(node.id, made, &node, attributes); });
  if (failed != 0)
    let_go(open);
  else
    *file = std::move(own);
  return failed;
}

// What a create that the names have done still needs. A failure takes it back.
int JobFs::open_made(const Making& by, const meta::Opened& made, int flags, const Caller& caller,
                     JobNode** node, struct stat* attributes, std::unique_ptr<OpenFile>* file) {
  const meta::DirEntry there{made.file, meta::NodeType::kFile};
  JobNode* known = nullptr;
  const int failed = errno_of([&] {
    io::Descriptor none;
    known = nodes_.enter(made.file, there.type, &none);
    if (!nodes_.put_found(by.began, made.file, {by.parent.id, by.name, there.type})) {
      const RequestLock lock(mutex_, requests_);  // another node has removed it
      known->unlinked = true;
    }
    return open_entered(by, *known, made.node, flags, caller, attributes, file);
  });
  if (failed != 0) {
    static_cast<void>(contain([&] {
      if (by.holds) static_cast<void>(answer(names_.release(made.file)));
      // ESTALE: its name is another file's.
      if (failed != ESTALE) static_cast<void>(remove_entry(by.parent, by.name.c_str(), there));
    }));
    if (known != nullptr) nodes_.forget(known, 1);
    return failed;
  }
  changed(by.parent);
  *node = known;
  return 0;
}

}  // namespace swale::fs
