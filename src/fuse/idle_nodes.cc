#include "fuse/idle_nodes.h"

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "fuse/kernel_pages.h"
#include "fuse/mounted.h"

namespace swale::fuse {
namespace {

constexpr size_t kNamesAtATime = 256;
// After names of which the kernel let none go: they are in use.
constexpr int kPauseMs = 1'000;

}  // namespace

size_t nodes_max_of(size_t descriptors) { return std::max<size_t>(descriptors / 2, 16); }
size_t store_files_max_of(size_t descriptors) { return std::max<size_t>(descriptors / 4, 16); }

IdleNodes::IdleNodes(fs::FileSystem* fs, fuse_session* session, size_t nodes_max)
    : fs_(fs), session_(session), nodes_max_(nodes_max) {}

IdleNodes::~IdleNodes() {
  assert(!thread_.joinable());
  if (doorbell_ >= 0) ::close(doorbell_);
}

Status IdleNodes::start() {
  doorbell_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (doorbell_ < 0) return errno_status(errno, "eventfd");
  const SignalsBlocked blocked;
  SWALE_RETURN_IF_ERROR(start_thread(&thread_, "the thread that lets the kernel forget files", [this] {
    run();
    ended_.store(true);
  }));
  fs_->call_above(nodes_max_, [this] {
    if (!crowded_.exchange(true)) ::eventfd_write(doorbell_, 1);
  });
  return {};
}

void IdleNodes::run() {
  while (!stopping_.load()) {
    pollfd event{doorbell_, POLLIN, 0};
    ::poll(&event, 1, -1);
    eventfd_t rings = 0;
    ::eventfd_read(doorbell_, &rings);
    const Status status = contain([this] { forget_some(); });
    if (!status.ok()) log_warn("idle files keep their descriptors: {}", status.message());
    crowded_.store(false);  // only now: while this thread is at it, lookups have nothing to ring for
  }
}

// Down to three quarters, so that the next lookups do not ring at once.
void IdleNodes::forget_some() {
  const size_t enough = nodes_max_ / 4 * 3;
  while (!stopping_.load()) {
    const size_t before = fs_->nodes_known();
    if (before <= enough) return;
    const auto names = fs_->take_idle(std::min(before - enough, kNamesAtATime));
    for (const fs::IdleName& each : names) {
      if (stopping_.load()) return;
      const auto parent =
          each.parent == fs_->root() ? fuse_ino_t{FUSE_ROOT_ID} : reinterpret_cast<fuse_ino_t>(each.parent);
      // ENOENT: the kernel has let it go, or knows it by another name.
      fuse_lowlevel_notify_inval_entry(session_, parent, each.name.c_str(), each.name.size());
    }
    if (fs_->nodes_known() < before) continue;
    pollfd event{doorbell_, POLLIN, 0};
    ::poll(&event, 1, kPauseMs);  // ended by stop() alone
  }
}

void IdleNodes::stop() {
  if (!thread_.joinable()) return;
  fs_->call_above(0, nullptr);
  stopping_.store(true);
  ::eventfd_write(doorbell_, 1);
  serve_until(session_, [this] { return ended_.load(); });
  thread_.join();
}

}  // namespace swale::fuse
