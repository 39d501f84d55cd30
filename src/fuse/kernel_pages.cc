#include "fuse/kernel_pages.h"

#include <poll.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"

namespace swale::fuse {
namespace {

constexpr int kServeMs = 20;

}  // namespace

void serve_until(fuse_session* session, const std::function<bool()>& done) {
  fuse_buf request = {};
  while (!done()) {
    pollfd event{fuse_session_fd(session), POLLIN, 0};
    if (::poll(&event, 1, kServeMs) <= 0) continue;
    fuse_session_reset(session);  // one that is to end drops what it receives
    const int received = fuse_session_receive_buf(session, &request);
    if (received > 0) fuse_session_process_buf(session, &request);
    if (received < 0 && received != -EINTR && received != -EAGAIN) break;  // unmounted: notices end, too
  }
  std::free(request.mem);
}

void KernelPages::start() {
  fs_->drop_pages_by([this](fs::Node& node) { drop(node); });
}

// False: the mount goes, and its pages with it.
bool KernelPages::begin_one() {
  const MutexLock lock(mutex_);
  if (!stopping_) ++under_way_;
  return !stopping_;
}

// A refusal costs speed alone: the kernel does not know the node any more, or has no memory.
void KernelPages::show_end(fuse_ino_t number, uint64_t end) noexcept {
  if (!begin_one()) return;
  char byte = 0;
  fuse_bufvec last = {};
  last.count = 1;
  last.buf[0].size = 1;
  last.buf[0].mem = &byte;
  last.buf[0].fd = -1;
  static_cast<void>(fuse_lowlevel_notify_store(session_, number, static_cast<off_t>(end - 1), &last,
                                               static_cast<fuse_buf_copy_flags>(0)));
  end_one();
}

void KernelPages::drop(fs::Node& node) {
  if (!begin_one()) return;
  const fuse_ino_t number =
      &node == fs_->root() ? fuse_ino_t{FUSE_ROOT_ID} : reinterpret_cast<fuse_ino_t>(&node);
  // ENOENT: the kernel does not know it any more.
  const int failed = fuse_lowlevel_notify_inval_inode(session_, number, 0, 0);
  if (failed != 0 && failed != -ENOENT)
    static_cast<void>(contain([&] {
      log_warn("{}: its pages: {}", fs_->name_of(node), errno_status(-failed, "dropping").message());
    }));
  end_one();
}

void KernelPages::end_one() {
  const MutexLock lock(mutex_);
  if (--under_way_ == 0) idle_.notify_all();
}

bool KernelPages::is_idle() {
  const MutexLock lock(mutex_);
  return under_way_ == 0;
}

void KernelPages::run_aside(std::function<void()> call) noexcept {
  {
    const MutexLock lock(mutex_);
    ++under_way_;
  }
  const Status started = contain([&]() -> Status {
    std::thread thread;
    SWALE_RETURN_IF_ERROR(start_thread(&thread, "a thread that waits for the kernel's pages", [this, call] {
      call();
      end_one();
    }));
    thread.detach();
    return {};
  });
  if (started.ok()) return;
  call();
  end_one();
}

void KernelPages::stop() noexcept {
  fs_->drop_pages_by({});
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  static_cast<void>(contain([this] { serve_until(session_, [this] { return is_idle(); }); }));
  const MutexLock lock(mutex_);
  idle_.wait(lock, [&]() REQUIRES(mutex_) { return under_way_ == 0; });
}

}  // namespace swale::fuse
