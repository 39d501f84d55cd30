#include "fs/job/light_worker.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "fs/job/program_socket.h"

namespace swale::fs {
namespace {

constexpr size_t kReadyMax = LightBatch::kRequestsMax;  // of a batch; each asks for one open

}  // namespace

Result<std::unique_ptr<LightWorker>> LightWorker::open(JobFs& fs, std::function<void()> on_over) {
  std::unique_ptr<LightWorker> made(new LightWorker(fs, std::move(on_over)));
  made->ready_ = io::Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  made->end_ = io::Descriptor(::eventfd(0, EFD_CLOEXEC));
  epoll_event end = {.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (!made->ready_.valid() || !made->end_.valid() ||
      ::epoll_ctl(made->ready_.get(), EPOLL_CTL_ADD, made->end_.get(), &end) != 0)
    return errno_status(errno, "descriptors of a thread that makes files");
  SWALE_RETURN_IF_ERROR(start_thread(&made->thread_, "a thread that makes files for programs",
                                     [self = made.get()] { self->work(); }));
  return made;
}

LightWorker::~LightWorker() {
  if (!thread_.joinable()) return;
  ring(end_);
  thread_.join();
}

Status LightWorker::add(Seat* seat) {
  const MutexLock lock(mutex_);
  seats_.push_back(seat);
  epoll_event event = {.events = EPOLLIN, .data = {.ptr = seat}};
  if (::epoll_ctl(ready_.get(), EPOLL_CTL_ADD, seat->program.socket(), &event) != 0) {
    seats_.pop_back();
    return errno_status(errno, "waiting for a program");
  }
  ++programs_;
  return {};
}

void LightWorker::work() noexcept {
  bool goes_on = true;
  while (goes_on) {
    const Status served = contain([&] { goes_on = serve_once(); });
    if (!served.ok()) log_warn("serving programs that make files: {}", served.message());
  }
  for (;;) {
    Seat* seat = nullptr;
    {
      const MutexLock lock(mutex_);
      if (seats_.empty()) return;
      seat = seats_.back();
    }
    leave(seat);
  }
}

bool LightWorker::serve_once() {
  std::array<epoll_event, kReadyMax> ready;
  const int count = io::continued([&] { return ::epoll_wait(ready_.get(), ready.data(), kReadyMax, -1); });
  bool goes_on = true;
  for (int i = 0; i < count; ++i) {
    auto* const seat = static_cast<Seat*>(ready[static_cast<size_t>(i)].data.ptr);
    if (seat == nullptr) {
      goes_on = false;
    } else {
      take(seat);
    }
  }
  batch_.serve(fs_);
  for (Seat* const seat : std::exchange(leaving_, {})) leave(seat);
  return goes_on;
}

void LightWorker::take(Seat* seat) {
  bool stays = false;
  const Status taken = contain([&] { stays = seat->program.take(&batch_); });
  if (!taken.ok())
    log_warn("process {} makes files past the kernel no more: {}", seat->program.who().thread,
             taken.message());
  if (!taken.ok() || !stays) leaving_.push_back(seat);
}

// It is not touched after it is over.
void LightWorker::leave(Seat* seat) noexcept {
  ::epoll_ctl(ready_.get(), EPOLL_CTL_DEL, seat->program.socket(), nullptr);
  const Status ended = contain([&] {
    seat->program.end(&batch_);
    batch_.serve(fs_);
  });
  if (!ended.ok()) log_warn("closing what a program that has ended had open: {}", ended.message());
  {
    const MutexLock lock(mutex_);
    std::erase(seats_, seat);
  }
  --programs_;
  seat->over.store(true);
  on_over_();
}

}  // namespace swale::fs
