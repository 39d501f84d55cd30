#include "fs/job/light_worker.h"

#include <poll.h>
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
constexpr uint64_t kRings = 1;                          // beside a seat: its bell, not its socket
constexpr uint32_t kQuietMax = 64;                      // sleeps

bool is_over(const LightWorker::Seat& seat) {
  pollfd each[] = {{seat.process.get(), POLLIN, 0}, {seat.program.socket(), POLLIN, 0}};
  if (io::continued([&] { return ::poll(each, std::size(each), 0); }) < 0) return true;
  return each[0].revents != 0 || (each[1].revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace

Result<std::unique_ptr<LightWorker>> LightWorker::open(JobFs& fs, std::function<void()> on_over) {
  std::unique_ptr<LightWorker> made(new LightWorker(fs, std::move(on_over)));
  made->ready_ = io::Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  made->end_ = io::Descriptor(::eventfd(0, EFD_CLOEXEC));
  epoll_event end = {.events = EPOLLIN, .data = {.u64 = 0}};
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
  const auto wait_for = [&](int fd, uint32_t events, uint64_t which) {
    epoll_event event = {.events = events, .data = {.u64 = reinterpret_cast<uint64_t>(seat) | which}};
    return ::epoll_ctl(ready_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  // A bell is not read: each ring is an event.
  const ProgramPage* const page = seat->program.page();
  if ((page != nullptr && !wait_for(page->bell().get(), EPOLLIN | EPOLLET, kRings)) ||
      !wait_for(seat->program.socket(), EPOLLIN, 0)) {
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
  const bool goes_on = hear();
  is_awake_ = take_from_pages();
  batch_.serve(fs_);
  for (Seat* const seat : std::exchange(leaving_, {})) leave(seat);
  if (!is_awake_) is_awake_ = !may_sleep();
  return goes_on;
}

// What has come by sockets, and who has rung. False: the end.
bool LightWorker::hear() {
  std::array<epoll_event, kReadyMax> ready;
  const int patience_ms = is_awake_ ? 0 : -1;
  const int count =
      io::continued([&] { return ::epoll_wait(ready_.get(), ready.data(), kReadyMax, patience_ms); });
  if (!is_awake_) wake_up({ready.data(), static_cast<size_t>(std::max(count, 0))});
  bool goes_on = true;
  for (int i = 0; i < count; ++i) {
    const uint64_t who = ready[static_cast<size_t>(i)].data.u64;
    auto* const seat = reinterpret_cast<Seat*>(who & ~kRings);
    if (seat == nullptr)
      goes_on = false;
    else if ((who & kRings) != 0)
      look_at(seat);
    else
      take(seat, &LightProgram::take);
  }
  return goes_on;
}

// Nobody needs to ring any more. Who has asked, and has not rung, may have been killed before it could:
// others may know by now that it is over, and must not see it do anything.
void LightWorker::wake_up(std::span<const epoll_event> ready) {
  for (Seat* const seat : looked_at_) {
    seat->program.page()->listen(true);
    const uint64_t rings = reinterpret_cast<uint64_t>(seat) | kRings;
    const bool has_rung = std::any_of(ready.begin(), ready.end(),
                                      [&](const epoll_event& each) { return each.data.u64 == rings; });
    if (!has_rung && seat->program.page()->has_come() && is_over(*seat)) leaving_.push_back(seat);
  }
  for (Seat* const seat : leaving_) std::erase(looked_at_, seat);
}

void LightWorker::look_at(Seat* seat) {
  seat->program.page()->listen(true);
  if (std::find(looked_at_.begin(), looked_at_.end(), seat) == looked_at_.end()) looked_at_.push_back(seat);
}

// Closes after all requests: what a program has closed before it spoke to another one is closed before that
// one's request is done. True: something has come.
bool LightWorker::take_from_pages() {
  bool any = false;
  for (Seat* const seat : looked_at_) {
    if (!seat->program.page()->has_come()) continue;
    any = true;
    seat->quiet = 0;
    take(seat, &LightProgram::take_from_page);
  }
  if (any)
    for (Seat* const seat : looked_at_) take(seat, &LightProgram::take_closes);
  return any;
}

// All ring from now on. False: something has come before.
bool LightWorker::may_sleep() {
  for (Seat* const seat : looked_at_) seat->program.page()->listen(false);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool any = std::any_of(looked_at_.begin(), looked_at_.end(),
                               [](Seat* seat) { return seat->program.page()->has_come(); });
  if (any) {
    for (Seat* const seat : looked_at_) seat->program.page()->listen(true);
  } else {
    std::erase_if(looked_at_, [](Seat* seat) { return ++seat->quiet > kQuietMax; });
  }
  return !any;
}

void LightWorker::take(Seat* seat, bool (LightProgram::*by)(LightBatch*)) {
  bool stays = false;
  const Status taken = contain([&] { stays = (seat->program.*by)(&batch_); });
  if (!taken.ok())
    log_warn("process {} makes files past the kernel no more: {}", seat->program.who().thread,
             taken.message());
  if ((!taken.ok() || !stays) && std::find(leaving_.begin(), leaving_.end(), seat) == leaving_.end())
    leaving_.push_back(seat);
}

// It is not touched after it is over.
void LightWorker::leave(Seat* seat) noexcept {
  ::epoll_ctl(ready_.get(), EPOLL_CTL_DEL, seat->program.socket(), nullptr);
  if (const ProgramPage* const page = seat->program.page(); page != nullptr)
    ::epoll_ctl(ready_.get(), EPOLL_CTL_DEL, page->bell().get(), nullptr);
  std::erase(looked_at_, seat);
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
