// JobFs: what a tree that is mounted nowhere asks of it (StandIns).
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"
#include "io/descriptor_path.h"

namespace swale::fs {

const meta::FileId& JobFs::file_id(Node& node) { return JobNode::of(node).id; }

Node* JobFs::know(const meta::FileId& id) { return nodes_.find(id); }

int JobFs::find_file(const meta::FileId& id, Entry* entry) {
  const auto path = nodes_.path_of(id);
  if (!path) return ENOENT;
  Entry found{root_, {}};
  for (std::string_view rest = *path; !rest.empty();) {
    const std::string name(rest.substr(0, rest.find('/')));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    Node* const above = found.node;
    const int failed = lookup(*above, name.c_str(), &found);
    if (above != root_) forget(above, 1);
    if (failed != 0) return failed;
  }
  const JobNode& node = JobNode::of(*found.node);
  if (node.id == id && node.type == meta::NodeType::kFile) {
    *entry = found;
    return 0;
  }
  if (found.node != root_) forget(found.node, 1);
  return ENOENT;
}

bool JobFs::has_name(Node& node) {
  const RequestLock lock(mutex_, requests_);
  return !JobNode::of(node).unlinked;
}

// Drained bytes stay in the logs until their space is wanted.
io::Descriptor JobFs::there(OpenFile& opened) {
  JobFile& file = JobFile::of(opened);
  if (shared_) return there_of_all(file.node.id);
  const auto is_drained = [&]() REQUIRES(mutex_) {
    return files_->take().ok() && !files_->is_undrained(file.node.id);
  };
  {
    const RequestLock lock(mutex_, requests_);
    if (!file.node.in_logs)
      return io::Descriptor(file.own.valid() ? ::fcntl(file.own.get(), F_DUPFD_CLOEXEC, 0) : -1);
    if (!is_drained()) return {};
  }
  const auto found = on_backing(file.node.id);
  if (!found.ok() || !found->valid()) return {};
  io::Descriptor made(::open(io::descriptor_path(*found).c_str(), O_RDONLY | O_CLOEXEC));
  const RequestLock lock(mutex_, requests_);
  return is_drained() ? std::move(made) : io::Descriptor();
}

bool JobFs::is_file(Node& node) { return JobNode::of(node).type == meta::NodeType::kFile; }

int JobFs::reserve(OpenFile& file, uint64_t bytes, uint64_t* place) {
  const auto reserved = place_to_append(JobFile::of(file).node, bytes);
  if (!reserved.ok()) return answer(reserved.status());
  *place = reserved->value_or(0);
  return 0;
}

// What the file's root knows counts, and that nobody has replaced it there.
io::Descriptor JobFs::there_of_all(const meta::FileId& id) {
  const auto seen = shared_->on_backing_alone(id);
  if (!seen.ok() || seen->inode == 0) return {};
  const auto found = on_backing(id);
  if (!found.ok() || !found->valid()) return {};
  io::Descriptor made(::open(io::descriptor_path(*found).c_str(), O_RDONLY | O_CLOEXEC));
  struct stat now;
  if (!made.valid() || ::fstat(made.get(), &now) != 0) return {};
  const bool is_same = now.st_ino == seen->inode && static_cast<uint64_t>(now.st_size) == seen->size;
  return is_same ? std::move(made) : io::Descriptor();
}

}  // namespace swale::fs
