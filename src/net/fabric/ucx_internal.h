// Inside of ucx_transport.cc, ucx_setup.cc and ucx_meeting.cc: the class that they implement.
#pragma once

#include <sys/types.h>
#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/patience.h"
#include "net/fabric/address_book.h"
#include "net/fabric/polling.h"
#include "net/fabric/sparse_per_rank.h"
#include "net/fabric/ucx_transport.h"

namespace swale::net::ucx_internal {

constexpr size_t kPrefixBytes = 20;
// DO NOT CHANGE THESE VALUES: they travel.
enum class MessageKind : uint32_t { kFrame = 0, kEnd = 1, kHello = 2, kKnock = 3 };
constexpr uint32_t kMessageKinds = 4;

// How far two ranks are with meeting each other (ucx_meeting.cc); each side of them has its own.
enum class Meeting : uint8_t {
  kNone,        // no endpoint
  kConnecting,  // an endpoint, which does not take messages yet
  kSaidHello,   // it took our hello
  kKnocking,    // it has our knock
  kKnocked,     // our knock has left
  kOpen,        // frames may be sent
};

class Ucx;

// What a thread sleeps in when there is nothing to do: woken by UCX's descriptor or by a doorbell.
struct Bed {
  ~Bed();
  Status init(int worker_fd);
  void ring();  // any thread
  // Of its thread: a ring that nobody takes would end every sleep at once.
  void forget_rings();
  int epoll_fd = -1;
  int event_fd = -1;
  std::atomic<bool> asleep{false};
  std::atomic<uint64_t> sleeps{0};
  // Of its thread only.
  unsigned busy = 0;  // tries of ucp_worker_arm in a row that were refused
  Polling polling;    // before it sleeps
};

// One frame on its way. The AM header must stay in place until UCX is done with it.
struct Slot {
  Ucx* owner = nullptr;
  Rank to = -1;
  uint64_t cookie = 0;
  Bytes payload;
  MessageKind kind = MessageKind::kFrame;
  size_t header_bytes = 0;
  bool in_flight = false;
  Slot* next = nullptr;  // in the one list that it stands in
  std::array<char, kPrefixBytes + Transport::kHeaderBytesMax> header;
};

// Slots in the order in which they came. Moving a slot from list to list needs no memory: it can not fail.
class SlotList {
 public:
  bool empty() const { return first_ == nullptr; }
  void push_back(Slot* slot) {
    slot->next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = slot;
    last_ = slot;
  }
  Slot* pop_front() {
    Slot* slot = first_;
    first_ = slot->next;
    if (first_ == nullptr) last_ = nullptr;
    return slot;
  }
  void append(SlotList* more) {
    if (more->empty()) return;
    (last_ == nullptr ? first_ : last_->next) = more->first_;
    last_ = more->last_;
    *more = {};
  }

 private:
  Slot* first_ = nullptr;
  Slot* last_ = nullptr;
};

// A rank that was met: its address is looked up when the endpoint is made.
struct Peer {
  Ucx* owner = nullptr;
  Rank rank = -1;
  ucp_ep_h endpoint = nullptr;
  Meeting meeting = Meeting::kNone;
  bool greeted = false;  // its hello has come
  SlotList waiting;      // for kOpen
  bool heard = false;    // it has an endpoint to us, so its end mark will come
  bool end_said = false;
  bool ended = false;    // its end mark has come
  bool failing = false;  // to be taken down, for this reason
  Status why;
  void* close_request = nullptr;  // of its endpoint, until UCX has done it
  bool down = false;
};

class Ucx final : public UcxTransport {
 public:
  Ucx(Rank rank, int32_t size) : rank_(rank), size_(size) {}
  ~Ucx() override;

  Status init(const TransportOptions& options);

  std::string address() const override;
  Status start(std::shared_ptr<const AddressBook> book, TransportEvents* events) override;
  bool post(Rank to, Bytes header, Bytes payload, uint64_t cookie) override;
  void wake() override;
  void drop(Rank peer, const Status& why) override;
  bool drive(const std::function<bool()>& done, Nanos until) override;
  void expect_frame() override { expecting_.store(true); }
  Status close(Deadline deadline) override;
  uint64_t rejected_messages() const override { return rejected_.load(std::memory_order_relaxed); }
  Sleeps sleeps() const override { return {driver_bed_.sleeps.load(), bed_.sleeps.load()}; }

 private:
  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static void on_endpoint_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static void on_send_done(void* request, ucs_status_t status, void* slot);

  Status configure(const TransportOptions& options, ucp_config_t* config);
  Peer& peer(Rank rank) REQUIRES(fabric_mutex_);  // met, if it was not

  Slot* take_slot() REQUIRES(mutex_);
  Slot* slot_at(size_t index) EXCLUDES(mutex_);
  void put_prefix(char* out, MessageKind kind) const;
  void fill(Slot* slot, Rank to, MessageKind kind, Bytes header, Bytes payload, uint64_t cookie);
  void enqueue(Rank to, MessageKind kind, Bytes header, Bytes payload, uint64_t cookie) EXCLUDES(mutex_);
  bool may_send_here() const;
  bool send_here(Rank to, Bytes header, Bytes payload, uint64_t cookie) REQUIRES(fabric_mutex_);
  void kick();

  void run();
  bool send_queued() REQUIRES(fabric_mutex_);
  bool progress_fabric() REQUIRES(fabric_mutex_);
  bool turn(bool tell) REQUIRES(seat_mutex_);
  bool work_once() REQUIRES(seat_mutex_);
  bool arm();
  void sleep(Bed* bed, Nanos next);
  bool polls();
  bool take_seat() TRY_ACQUIRE(true, seat_mutex_);
  bool take_seat_to_drive() TRY_ACQUIRE(true, seat_mutex_);
  void stand_by();
  void send(Slot* slot) REQUIRES(fabric_mutex_);
  void* start_send(Slot* slot) REQUIRES(fabric_mutex_);
  bool meet() REQUIRES(fabric_mutex_);
  void begin_meeting(Peer* with) REQUIRES(fabric_mutex_);
  bool advance(Peer* with) REQUIRES(fabric_mutex_);
  bool connect(Peer* to) REQUIRES(fabric_mutex_);
  bool say_hello(Peer* to) REQUIRES(fabric_mutex_);
  bool knock(Peer* at) REQUIRES(fabric_mutex_);
  void open(Peer* to) REQUIRES(fabric_mutex_);
  void say_end(Peer* to);
  void finish(Slot* slot) REQUIRES(fabric_mutex_);
  void fail(Peer* peer, const Status& why) REQUIRES(fabric_mutex_);
  void fail(Peer* peer, ucs_status_t status, std::string_view what) REQUIRES(fabric_mutex_);
  void take_failures(bool tell) REQUIRES(fabric_mutex_);
  void finish_closes() REQUIRES(fabric_mutex_);
  void close_endpoint(Peer* peer, unsigned flags) REQUIRES(fabric_mutex_);

  void receive(Rank sender, const char* header, size_t header_bytes, Bytes payload, bool by_rendezvous)
      REQUIRES(fabric_mutex_);
  void wind_up() REQUIRES(seat_mutex_);
  void part() REQUIRES(seat_mutex_);
  bool all_ended() EXCLUDES(fabric_mutex_);
  bool progress_until(const std::function<bool()>& done) REQUIRES(seat_mutex_);
  void destroy() EXCLUDES(fabric_mutex_);

  const Rank rank_;
  const int32_t size_;
  uint64_t secret_ = 0;
  bool direct_ = false;
  TransportEvents* events_ = nullptr;
  std::shared_ptr<const AddressBook> book_;
  std::atomic<uint64_t> rejected_{0};

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  Bed bed_;         // of the progress thread
  Bed driver_bed_;  // of the thread in drive
  std::thread thread_;

  Mutex mutex_;
  std::deque<Slot> slots_ GUARDED_BY(mutex_);
  SlotList free_ GUARDED_BY(mutex_);
  SlotList queue_ GUARDED_BY(mutex_);
  std::vector<std::pair<Rank, Status>> dropped_ GUARDED_BY(mutex_);  // by drop, to be taken down
  std::atomic<bool> queued_{false};  // queue_ is not empty; frames posted now go behind it
  std::atomic<bool> woken_{false};
  std::atomic<bool> expecting_{false};  // expect_frame was called
  std::atomic<bool> closing_{false};
  std::optional<Patience> close_patience_;  // set before closing_, then the progress thread's
  Status close_status_;                     // set before the thread ends

  // Who makes events holds it, and for what follows (ucx_drive.cc): the progress thread, or one that drives. Before
  // fabric_mutex_.
  Mutex seat_mutex_;
  std::atomic<std::thread::id> progress_thread_{};  // who had the seat last
  bool in_event_ = false;                           // only that thread looks: holds fabric_mutex_
  Nanos next_ GUARDED_BY(seat_mutex_) = 0;          // when on_progress wants to be called
  Nanos last_call_ GUARDED_BY(seat_mutex_) = 0;     // of on_progress
  bool call_ GUARDED_BY(seat_mutex_) = true;        // something has happened since
  std::atomic<bool> driven_{false};                 // a thread is in drive
  std::atomic<Nanos> driven_at_{0};                 // the last one left
  std::atomic<Nanos> handover_{250'000};            // how long the progress thread stands by after that
  Nanos stand_by_ = 0;                              // the progress thread's: how long it stands by at least
  std::atomic<bool> standing_by_long_{false};       // the progress thread is to be told when it leaves
  std::atomic<bool> seat_wanted_{false};            // by a thread that comes to drive

  // Whoever calls UCX holds it, and for what follows. Threads that post only ever try it. Before mutex_.
  Mutex fabric_mutex_;
  SparsePerRank<Peer> peers_ GUARDED_BY(fabric_mutex_);
  Slot* spare_ GUARDED_BY(fabric_mutex_) = nullptr;      // for send_here
  bool sending_here_ GUARDED_BY(fabric_mutex_) = false;  // inside send_here: events have to wait
  SlotList late_ GUARDED_BY(fabric_mutex_);  // came home meanwhile: their cookies are still to be told
  SlotList sending_ GUARDED_BY(fabric_mutex_);
  SlotList done_ GUARDED_BY(fabric_mutex_);
  bool any_failing_ GUARDED_BY(fabric_mutex_) = false;
  size_t closes_ GUARDED_BY(fabric_mutex_) = 0;          // endpoints' close requests
  std::vector<Rank> meeting_ GUARDED_BY(fabric_mutex_);  // peers between kNone and kOpen
  size_t in_flight_ GUARDED_BY(fabric_mutex_) = 0;
  std::atomic<bool> winding_up_{false};             // set under it
  bool parting_ GUARDED_BY(fabric_mutex_) = false;  // endpoints are being closed: nobody is met any more
};

}  // namespace swale::net::ucx_internal
