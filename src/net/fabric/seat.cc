// Threads that do the progress thread's work while they wait, and the beds in which either sleeps.
//
// The seat (seat_mutex_) is held by whoever makes events. The progress thread takes it for each round of work
// and leaves it when it sleeps. A thread in drive keeps it until it leaves, also asleep. When the progress
// thread finds the seat taken it stands by. It takes the seat again only when nobody has driven for
// handover_: a thread that makes one call after another drives for each, and if the progress thread came in
// between, it would cost two changes of threads a call, and the two would meet at every mutex. handover_ is
// twice the time that the thread has been away before, from kHandoverMin to kHandoverMax. While drives follow
// one another it also looks less and less often (stand_by_): each look takes a core from somebody, and on a
// busy machine the answer that somebody waits for comes 100 us later. So what comes after the last drive may
// wait for kHandoverMax, once.
//
// Before they sleep they poll, as long as that pays (polling.h): a thread in drive for what it waits for, the
// progress thread for the next request after it has brought one (expect_frame). The progress thread takes the
// seat anew for each round, and leaves it to a thread that comes to drive.
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/contain.h"
#include "base/cpu.h"
#include "base/start_thread.h"
#include "net/fabric/seat.h"

namespace swale::net {
namespace {

constexpr Nanos kHandoverMin = 250'000;
constexpr Nanos kHandoverMax = 2'000'000;
constexpr Nanos kStandByMax = 100'000'000;
constexpr int kSeatTries = 1000;  // some 50 us
// arm may refuse for a while (UCX: while a shared-memory send is pending): yield a few times, then wait 50 us
// between tries, and 1 ms once that has gone on for 10 ms, because then the receiver is stuck.
constexpr unsigned kBusyYields = 16;
constexpr unsigned kBusyShortPauses = 200;
constexpr Nanos kBusyPauseShort = 50'000;
constexpr Nanos kBusyPauseLong = 1'000'000;
constexpr Nanos kCallInterval = milliseconds(1);  // of on_progress while there is always something to do

}  // namespace

Bed::~Bed() {
  if (epoll_fd >= 0) ::close(epoll_fd);
  if (event_fd >= 0) ::close(event_fd);
}

Status Bed::init(int fabric_fd) {
  epoll_fd = ::epoll_create1(EPOLL_CLOEXEC);
  event_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (epoll_fd < 0 || event_fd < 0) return errno_status(errno, "epoll_create1, eventfd");
  for (const int fd : {fabric_fd, event_fd}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) return errno_status(errno, "epoll_ctl");
  }
  return ok_status();
}

void Bed::ring() {
  const uint64_t one = 1;
  // Fails only if the counter is at its limit, and then the thread will wake anyway.
  [[maybe_unused]] const ssize_t written = ::write(event_fd, &one, sizeof(one));
}

void Bed::forget_rings() {
  uint64_t count;
  while (::read(event_fd, &count, sizeof(count)) > 0) {
  }
}

// Whether the progress thread, which has found nothing to do, looks again at once.
bool SeatedTransport::polls() {
  Polling& polling = bed_.polling;
  const Nanos now = system_clock().now();
  if (expecting_.exchange(false)) {
    polling.met();
    polling.begin(now);
  }
  if (std::exchange(bed_.came, false)) polling.came(now);
  if (!polling.go_on(now)) return false;
  cpu_relax();
  return true;
}

// The progress thread tries to take the seat. True: seat_mutex_ is locked.
bool SeatedTransport::take_seat() {
  if (seat_wanted_.load()) return false;
  const Nanos driven_at = driven_at_.load();
  if (driven_at != 0 && system_clock().now() - driven_at < handover_.load()) return false;
  if (!seat_mutex_.try_lock()) return false;
  progress_thread_.store(std::this_thread::get_id());
  stand_by_ = 0;
  return true;
}

// The longer one thread keeps the seat, the longer the progress thread leaves it alone; then that thread
// rings when it leaves.
void SeatedTransport::stand_by() {
  const Nanos handover = std::max(handover_.load(), stand_by_);
  Nanos wait = handover;
  for (Nanos left = driven_at_.load(); !closing_.load(); wait = std::min(2 * wait, kStandByMax)) {
    standing_by_long_.store(wait > handover);
    const bool driven = driven_.load();
    if (!driven && wait > handover) break;
    pollfd event{bed_.event_fd, POLLIN, 0};
    const timespec pause{0, wait};
    if (::ppoll(&event, 1, &pause, nullptr) > 0) bed_.forget_rings();
    if (driven_at_.load() != left) stand_by_ = std::min(2 * handover, kHandoverMax);
    if (!driven_.load() || driven_at_.load() != left) break;
  }
  standing_by_long_.store(false);
  bed_.forget_rings();
}

// Of a thread that comes to drive. True: seat_mutex_ is locked. A round of the progress thread takes less
// than a microsecond if it finds nothing.
bool SeatedTransport::take_seat_to_drive() {
  if (seat_mutex_.try_lock()) return true;
  if (driven_.load()) return false;
  seat_wanted_.store(true);
  bool taken = false;
  for (int tries = 0; tries < kSeatTries && !taken; ++tries) {
    cpu_relax();
    taken = seat_mutex_.try_lock();
  }
  seat_wanted_.store(false);
  return taken;
}

bool SeatedTransport::drive(const std::function<bool()>& done, Nanos until) {
  if (!take_seat_to_drive()) return false;
  const MutexLock seat(seat_mutex_, std::adopt_lock);
  if (closing_.load()) return false;
  driven_.store(true);
  const Nanos begin = system_clock().now();
  const Nanos away = begin - driven_at_.load();
  handover_.store(2 * away < kHandoverMax ? std::max(2 * away, kHandoverMin) : kHandoverMin);
  progress_thread_.store(std::this_thread::get_id());
  driver_bed_.busy = 0;
  driver_bed_.came = false;
  driver_bed_.polling.begin(begin);
  while (!closing_.load() && !done()) {
    bool did = false;
    const Status status = contain([&]() REQUIRES(seat_mutex_) { did = work_once(); });
    if (!status.ok()) events_->on_failure(status);
    if (did) {
      driver_bed_.busy = 0;
      driver_bed_.came = true;
      continue;
    }
    if (done()) break;
    const Nanos now = system_clock().now();
    if (now >= until) break;
    if (std::exchange(driver_bed_.came, false)) driver_bed_.polling.came(now);
    if (driver_bed_.polling.go_on(now)) {
      cpu_relax();
    } else {
      sleep(&driver_bed_, std::min(next_, until));
    }
  }
  done() ? driver_bed_.polling.met() : driver_bed_.polling.give_up();
  progress_thread_.store({});  // this thread's posts are an application's again
  if (woken_.load()) kick();   // by this thread's last events: wake has left it to this thread
  driven_at_.store(system_clock().now());
  driven_.store(false);
  if (standing_by_long_.exchange(false)) bed_.ring();
  return true;
}

void SeatedTransport::kick() {
  for (Bed* bed : {&driver_bed_, &bed_}) {
    if (bed->asleep.load() && bed->asleep.exchange(false)) bed->ring();
  }
}

void SeatedTransport::wake() {
  if (woken_.exchange(true)) return;
  // The thread that has the seat is awake.
  if (!has_seat()) kick();
}

// ---- the loop

void SeatedTransport::run() {
  while (!closing_.load()) {
    bool did = false;
    if (!take_seat()) {
      stand_by();
      continue;
    }
    const Status status = contain([&]() REQUIRES(seat_mutex_) { did = work_once(); });
    if (!status.ok()) events_->on_failure(status);
    const Nanos next = next_;
    seat_mutex_.unlock();
    if (did) {
      bed_.busy = 0;
      bed_.came = true;
    } else if (!polls()) {
      sleep(&bed_, next);
    }
  }
  const MutexLock seat(seat_mutex_);  // the last thread that drove leaves
  progress_thread_.store(std::this_thread::get_id());
  if (const Status status = contain([&]() REQUIRES(seat_mutex_) { wind_up(); }); close_status_.ok())
    close_status_ = status;
  part();
}

// With the seat. True if there may be more to do.
bool SeatedTransport::work_once() {
  const bool did = turn(true);
  call_ |= did;
  const Nanos now = system_clock().now();
  const bool woken = woken_.exchange(false);
  if (woken || now >= next_ || (call_ && (!did || now - last_call_ >= kCallInterval))) {
    next_ = events_->on_progress(now);
    last_call_ = now;
    call_ = false;
  }
  return did;
}

// Whoever posts after `asleep` is set sees it and rings; what came before is seen here.
void SeatedTransport::sleep(Bed* bed, Nanos next) {
  bed->asleep.store(true);
  bool rung = false;
  bool pending = woken_.load() || (closing_.load() && !winding_up_);
  pending = pending || has_posts();
  if (!pending) {
    const Nanos wait = next - system_clock().now();
    const bool armed = arm();
    if (!armed) ++bed->busy;
    if (!armed && bed->busy == 1) {
      // Most often the fabric (UCX) has only taken the signal of what was read before: the next try arms.
    } else if (!armed && bed->busy <= kBusyYields) {
      sched_yield();
    } else if (!armed) {
      pollfd event{bed->event_fd, POLLIN, 0};
      const timespec pause{0, bed->busy <= kBusyYields + kBusyShortPauses ? kBusyPauseShort : kBusyPauseLong};
      rung = ::ppoll(&event, 1, &pause, nullptr) > 0;
    } else {
      bed->busy = 0;
      const Nanos wait_ms = std::clamp<Nanos>(wait / 1'000'000 + 1, 0, 60'000);
      epoll_event events[2];
      bed->sleeps.fetch_add(1, std::memory_order_relaxed);
      const int woken = wait > 0 ? ::epoll_wait(bed->epoll_fd, events, 2, static_cast<int>(wait_ms)) : 0;
      rung = std::any_of(events, events + std::max(woken, 0),
                         [bed](const epoll_event& event) { return event.data.fd == bed->event_fd; });
    }
  }
  // A thread that has seen this one asleep may ring only after it has looked: the ring then ends the next
  // sleep, and only that.
  if (!bed->asleep.exchange(false) || rung) bed->forget_rings();
}

// False if the deadline passed first.
bool SeatedTransport::progress_until(const std::function<bool()>& done) {
  bed_.busy = 0;
  for (;;) {
    const bool did = turn(false);
    if (done()) return true;
    const Nanos now = system_clock().now();
    if (close_patience_->over(now)) return false;
    woken_.store(false);
    if (did) bed_.busy = 0;
    if (!did) sleep(&bed_, now + close_patience_->step());
  }
}

Status SeatedTransport::close(Deadline deadline) {
  if (!thread_.joinable()) return ok_status();
  const Nanos now = system_clock().now();
  close_patience_.emplace(deadline.at == kForever ? kForever : deadline.at - now, now);
  closing_.store(true);
  driver_bed_.ring();
  bed_.ring();
  thread_.join();
  return close_status_;
}

Status SeatedTransport::init_beds(int fabric_fd, Nanos poll) {
  bed_.polling = Polling(poll);
  driver_bed_.polling = Polling(poll);
  SWALE_RETURN_IF_ERROR(bed_.init(fabric_fd));
  return driver_bed_.init(fabric_fd);
}

Status SeatedTransport::start_progress(TransportEvents* events) {
  events_ = events;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the application's signals are not for our thread
  const Status started = start_thread(&thread_, "the progress thread", [this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started.ok()) pthread_setname_np(thread_.native_handle(), "swale-net");
  return started;
}

}  // namespace swale::net
