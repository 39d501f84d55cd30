#include "tools/node_turn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/hash.h"
#include "net/meeting/topology.h"

namespace swale::tools {
namespace {

constexpr useconds_t kLookEveryUs = 20'000;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<io::Descriptor> open_private(const std::string& path) {
  io::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  return file.valid() ? Result<io::Descriptor>(std::move(file)) : errno_status(errno, path);
}

}  // namespace

Result<NodeTurn> NodeTurn::take(const std::string& mountpoint) {
  NodeTurn turn;
  const std::string meeting = variable("SWALE_JOB_RENDEZVOUS");
  if (meeting.empty()) return turn;  // not by `swale run`: there are no others
  const std::string node = variable("SWALE_JOB_NODE");
  const std::string key = fmt::format("{}\n{}\n{}", variable("SWALE_JOB_ID"),
                                      node.empty() ? net::this_node_id() : node, mountpoint);
  turn.path_ = fmt::format("{}/iond-mount-{:016x}", meeting, hash_bytes(key));
  SWALE_ASSIGN_OR_RETURN(turn.mounts_, open_private(turn.path_));
  SWALE_ASSIGN_OR_RETURN(turn.used_, open_private(turn.path_ + ".used"));
  if (::flock(turn.mounts_.get(), LOCK_EX | LOCK_NB) == 0) return turn;
  if (errno != EWOULDBLOCK) return errno_status(errno, turn.path_ + ": locking it");
  turn.first_ = false;
  if (::flock(turn.used_.get(), LOCK_SH) != 0) return errno_status(errno, turn.path_ + ".used: locking it");
  return turn;
}

void NodeTurn::tell_mounted() const {
  if (mounts_.valid()) static_cast<void>(::pwrite(mounts_.get(), "m", 1, 0));
}

Status NodeTurn::wait_until_mounted(Nanos deadline) const {
  const Nanos until = system_clock().now() + deadline;
  for (;;) {
    char byte = 0;
    if (::pread(mounts_.get(), &byte, 1, 0) == 1) return {};
    if (::flock(mounts_.get(), LOCK_SH | LOCK_NB) == 0)
      return error(Code::kUnavailable, Scope::kNode,
                   "the rank that mounts the I/O servers' files on this node has ended; it has said why");
    if (system_clock().now() >= until)
      return error(Code::kDeadlineExceeded, Scope::kNode,
                   "the I/O servers' files are not mounted on this node after {:.0f} s",
                   static_cast<double>(deadline) / 1e9);
    ::usleep(kLookEveryUs);
  }
}

void NodeTurn::end() const {
  if (!used_.valid()) return;
  if (!first_) {  // also what a child has of this lock: that one waits for the first rank
    ::flock(used_.get(), LOCK_UN);
    return;
  }
  while (::flock(used_.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  ::unlink(path_.c_str());
  ::unlink((path_ + ".used").c_str());
}

}  // namespace swale::tools
