// SeatedTransport: what transports have in common that have a progress thread and let waiting threads drive:
// who makes events, how they sleep and how they are woken. The fabric itself is in the functions that are
// left open here.
//
// Threads: as Transport. Order of locks: seat_mutex_ before the fabric's own.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "base/patience.h"
#include "net/fabric/polling.h"
#include "net/fabric/transport.h"

namespace swale::net {

// What a thread sleeps in when there is nothing to do: woken by the fabric's descriptor or by a doorbell.
struct Bed {
  ~Bed();
  Status init(int fabric_fd);
  void ring();  // any thread
  // Of its thread: a ring that nobody takes would end every sleep at once.
  void forget_rings();
  int epoll_fd = -1;
  int event_fd = -1;
  std::atomic<bool> asleep{false};
  std::atomic<uint64_t> sleeps{0};
  // Of its thread only.
  unsigned busy = 0;  // refusals of arm in a row
  Polling polling;    // before it sleeps
  bool came = false;  // a frame, since `polling` was told
};

class SeatedTransport : public Transport {
 public:
  // How often a thread has slept for want of anything to do. Any thread.
  struct Sleeps {
    uint64_t of_drivers = 0;
    uint64_t of_progress_thread = 0;
  };
  Sleeps sleeps() const { return {driver_bed_.sleeps.load(), bed_.sleeps.load()}; }

  void wake() final;
  bool drive(const std::function<bool()>& done, Nanos until) final;
  void expect_frame() final { expecting_.store(true); }
  Status close(Deadline deadline) final;

 protected:
  // `fabric_fd` can be read when turn has something to do.
  Status init_beds(int fabric_fd, Nanos poll);
  Status start_progress(TransportEvents* events);
  // The simulator's thread, which calls this, takes all turns.
  void start_without_thread(TransportEvents* events) {
    events_ = events;
    progress_thread_.store(std::this_thread::get_id());
  }

  // Called by the thread that has the seat. Sends, receives and, with `tell`, reports peers that are gone.
  // True: there may be more to do.
  virtual bool turn(bool tell) REQUIRES(seat_mutex_) = 0;
  // Whether something was posted or dropped that no turn has taken up.
  virtual bool has_posts() = 0;
  // May this thread sleep until the descriptor can be read? False: something is pending, try again soon.
  virtual bool arm() = 0;
  // The end: posted frames leave and peers part, as far as close_patience_ goes; then, whatever has failed,
  // all is freed.
  virtual void wind_up() REQUIRES(seat_mutex_) = 0;
  virtual void part() REQUIRES(seat_mutex_) = 0;

  // Any thread. Wakes whoever sleeps: of the progress thread and one that drives, the one that has the seat
  // will look.
  void kick();
  bool has_seat() const {  // whether this thread does
    return progress_thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  bool woken() const { return woken_.load(); }
  // Called by the thread that winds up. False if the deadline passed first.
  bool progress_until(const std::function<bool()>& done) REQUIRES(seat_mutex_);

  TransportEvents* events_ = nullptr;
  std::atomic<bool> closing_{false};
  std::atomic<bool> winding_up_{false};     // nobody but the thread that closes sends from here on
  std::optional<Patience> close_patience_;  // set before closing_, then the progress thread's
  Status close_status_;                     // set before the thread ends
  // Held by the thread that makes events: the progress thread, or one that drives.
  Mutex seat_mutex_;

 private:
  void run();
  bool work_once() REQUIRES(seat_mutex_);
  void sleep(Bed* bed, Nanos next);
  bool polls();
  bool take_seat() TRY_ACQUIRE(true, seat_mutex_);
  bool take_seat_to_drive() TRY_ACQUIRE(true, seat_mutex_);
  void stand_by();

  Bed bed_;         // of the progress thread
  Bed driver_bed_;  // of the thread in drive
  std::thread thread_;
  std::atomic<bool> woken_{false};
  std::atomic<bool> expecting_{false};              // expect_frame was called
  std::atomic<std::thread::id> progress_thread_{};  // who had the seat last
  Nanos next_ GUARDED_BY(seat_mutex_) = 0;          // when on_progress wants to be called
  Nanos last_call_ GUARDED_BY(seat_mutex_) = 0;     // of on_progress
  bool call_ GUARDED_BY(seat_mutex_) = true;        // something has happened since
  std::atomic<bool> driven_{false};                 // a thread is in drive
  std::atomic<Nanos> driven_at_{0};                 // the last one left
  std::atomic<Nanos> handover_{250'000};            // how long the progress thread stands by after that
  Nanos stand_by_ = 0;                              // the progress thread's: how long it stands by at least
  std::atomic<bool> standing_by_long_{false};       // the progress thread is to be told when it leaves
  std::atomic<bool> seat_wanted_{false};            // by a thread that comes to drive
};

}  // namespace swale::net
