// JobFs: sealed files. Nobody changes the bytes of a sealed file, on any node, until a chmod lets somebody
// write it. Also root does not: a mode says who may write, a seal that the bytes stay, and readers rely on it.
//
// A chmod to read-only seals a file that nobody has open to write; else the last close of its writers does:
// the kernel tells of a close after it has returned. Who opens one to write counts as its
// writer first, and looks at its mark in the names afterwards; who seals it looks at its writers first, and
// marks it in the same hold of the mutex: so one of the two sees the other.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"

namespace swale::fs {

int JobFs::refuse_sealed(const JobNode& node) const {
  log_warn("{}: it is sealed, and its bytes cannot change: chmod u+w lets them",
           nodes_.path_of(node.id).value_or(text_of(node.id)));
  return EPERM;
}

int JobFs::count_writer(JobNode& node, const Caller& caller, std::optional<uint64_t> seals_seen) {
  {
    const RequestLock lock(mutex_, requests_);
    node.writers.push_back(caller.thread);
    if (seals_seen == seals_) return 0;
  }
  const auto named = names_.stat(node.id);
  if (named.ok() && (named->mode & kSealed) == 0) return 0;
  end_writer(node, caller.thread);
  return named.ok() ? refuse_sealed(node) : answer(named.status());
}

void JobFs::end_writer(JobNode& node, pid_t thread) {
  const RequestLock lock(mutex_, requests_);
  end_writer_locked(node, thread);
}

void JobFs::end_writer_locked(JobNode& node, pid_t thread) {
  const auto at = std::find(node.writers.begin(), node.writers.end(), thread);
  if (at != node.writers.end()) node.writers.erase(at);
  if (!node.writers.empty() || !node.seals_at_close) return;
  node.seals_at_close = false;
  ++seals_;
  if (const Status sealed = set_mode(node.id, 0, kSealed); !sealed.ok() && sealed.posix_error() != ENOENT)
    log_error("{}: sealing it when its last writer has closed it: {}; chmod a-w seals it",
              nodes_.path_of(node.id).value_or(text_of(node.id)), sealed.message());
}

uint64_t JobFs::seals() {
  const RequestLock lock(mutex_, requests_);
  return seals_;
}

// The marks that a file with this mode has. The caller says so to the names before it lets the mutex go.
uint32_t JobFs::seal_of(JobNode& node, mode_t mode) {
  const bool seals = node.type == meta::NodeType::kFile && (mode & kMayWrite) == 0 && !shared_;
  node.seals_at_close = seals && options_.seals_wait && !node.writers.empty();
  if (!seals || node.seals_at_close) return 0;
  ++seals_;
  return kSealed;
}

// Of a file that is not sealed it says who is in the way of that.
int JobFs::tell_seal(JobNode& node, std::string* out) {
  if (shared_) return EOPNOTSUPP;
  SealState state;
  const auto named = names_.stat(node.id);
  if (!named.ok()) return answer(named.status());
  state.sealed = (named->mode & kSealed) != 0 ? 1 : 0;
  std::string who;
  {
    const RequestLock lock(mutex_, requests_);
    state.writers = static_cast<uint32_t>(node.writers.size());
    for (size_t i = 0; i < std::min(node.writers.size(), kWritersNamed); ++i)
      who += fmt::format("{}{}", i == 0 ? "" : ", ", node.writers[i]);
  }
  if (!who.empty()) {
    who = fmt::format("process {}{} of node {}", who, state.writers > kWritersNamed ? " and more" : "",
                      options_.logs.shape.node);
    who.copy(state.who, sizeof(state.who) - 1);
  }
  out->assign(reinterpret_cast<const char*>(&state), sizeof(state));
  return 0;
}

}  // namespace swale::fs
