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
#include "net/fabric/address_book.h"
#include "net/fabric/post_queue.h"
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

using SlotList = LinkedSlots<Slot>;

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
  void drop(Rank peer, const Status& why) override;
  uint64_t rejected_messages() const override { return rejected_.load(std::memory_order_relaxed); }

 private:
  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static void on_endpoint_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static void on_send_done(void* request, ucs_status_t status, void* slot);

  Status configure(const TransportOptions& options, ucp_config_t* config);
  Peer& peer(Rank rank) REQUIRES(fabric_mutex_);  // met, if it was not

  void put_prefix(char* out, MessageKind kind) const;
  void fill(Slot* slot, Rank to, MessageKind kind, Bytes header, Bytes payload, uint64_t cookie);
  void enqueue(Rank to, MessageKind kind, Bytes header, Bytes payload, uint64_t cookie);
  bool may_send_here() const;
  bool send_here(Rank to, Bytes header, Bytes payload, uint64_t cookie) REQUIRES(fabric_mutex_);

  bool send_queued() REQUIRES(fabric_mutex_);
  bool progress_fabric() REQUIRES(fabric_mutex_);
  bool turn(bool tell) override REQUIRES(seat_mutex_);
  bool has_posts() override { return !posts_.empty(); }
  bool arm() override;
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
  void wind_up() override REQUIRES(seat_mutex_);
  void part() override REQUIRES(seat_mutex_);
  bool all_ended() EXCLUDES(fabric_mutex_);
  void destroy() EXCLUDES(fabric_mutex_);

  const Rank rank_;
  const int32_t size_;
  uint64_t secret_ = 0;
  bool direct_ = false;
  std::shared_ptr<const AddressBook> book_;
  std::atomic<uint64_t> rejected_{0};

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;

  PostQueue<Slot> posts_;

  bool in_event_ = false;  // only the thread that has the seat looks: holds fabric_mutex_

  // Whoever calls UCX holds it, and for what follows. Threads that post only ever try it. Before that of
  // posts_.
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
  bool parting_ GUARDED_BY(fabric_mutex_) = false;  // endpoints are being closed: nobody is met any more
};

}  // namespace swale::net::ucx_internal
