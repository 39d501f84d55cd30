// Inside of tls_transport.cc, tls_receive.cc and tls_meeting.cc: the class that they implement.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "net/fabric/address_book.h"
#include "net/fabric/post_queue.h"
#include "net/fabric/sockets.h"
#include "net/fabric/sparse_per_rank.h"
#include "net/fabric/tls_listener.h"
#include "net/fabric/tls_session.h"
#include "net/fabric/tls_transport.h"

namespace swale::net::tls_internal {

constexpr size_t kHeadBytes = 8;  // before each record's header
// DO NOT CHANGE THESE VALUES: they travel.
enum class RecordKind : uint8_t { kFrame = 0, kEnd = 1, kIntroduction = 2, kWelcome = 3, kRefusal = 4 };
enum class TlsRefusal : uint32_t {
  kCrossed = 1,  // the rank that refuses dials, too, and its connection wins
  kNotMe = 2,    // the address has led to another rank
  kGivenUp = 3,  // the rank that refuses has given the other one up
};
constexpr size_t kIntroductionBytes = 20;

// What epoll's events point to.
struct Watched {
  enum class What : uint8_t { kListener, kTimer, kConnection };
  explicit Watched(What is) : what(is) {}
  const What what;
  int fd = -1;
};

struct Connection : Watched {
  enum class State : uint8_t {
    kConnecting,   // dialled; TCP's answer is awaited
    kHandshaking,  // TLS
    kMeeting,      // TLS is done; the introduction (of one that was accepted) or the answer to it is awaited
    kOpen,         // frames may be sent
    kDead,         // closed; in the graveyard
  };
  Connection() : Watched(What::kConnection) {}
  std::unique_ptr<TlsSession> session;
  State state = State::kConnecting;
  bool accepted = false;
  bool watches_writing = false;
  bool has_more = false;  // the session may hold bytes of which epoll knows nothing
  Rank peer = -1;         // of one that was dialled, or is open
  Nanos deadline = 0;     // of one that is not open
  std::string partial;    // the begin of a record
  Endpoint remote;
  std::unique_ptr<Connection> next_dead;  // in the graveyard
};

// One frame on its way.
struct Slot {
  Rank to = -1;
  uint64_t cookie = 0;
  Bytes payload;
  RecordKind kind = RecordKind::kFrame;
  size_t header_bytes = 0;
  size_t done = 0;         // bytes of the payload that are encrypted
  bool begun = false;      // the header is encrypted
  bool in_flight = false;  // stands in a list
  Slot* next = nullptr;
  std::array<char, kHeadBytes + Transport::kHeaderBytesMax> header;
};
using SlotList = LinkedSlots<Slot>;

// A rank that was met.
struct Peer {
  Rank rank = -1;
  std::unique_ptr<Connection> open;
  std::unique_ptr<Connection> dial;  // ours, unanswered
  bool dialling = false;             // stands in dialling_
  bool crossed = false;              // its own dial is awaited
  std::vector<Endpoint> endpoints;
  size_t next_endpoint = 0;
  uint32_t refused = 0;  // a bit for each endpoint at which the last try found nobody
  Nanos retry_at = 0;    // of the next dial
  Nanos give_up_at = 0;  // dialling
  std::string last_try;  // why the last dial failed
  SlotList waiting;
  bool touched = false;  // has new frames in waiting, and stands in the list of those
  Peer* next_touched = nullptr;
  bool end_said = false;
  bool ended = false;    // its end mark has come
  bool failing = false;  // to be taken down, for this reason
  Status why;
  bool down = false;
  bool told = false;  // that it is down
};

class Tls final : public TlsTransport {
 public:
  Tls(Rank rank, int32_t size, Sockets& sockets = kernel_sockets())
      : rank_(rank), size_(size), sockets_(sockets) {}
  ~Tls() override;

  Status init(const TransportOptions& options);

  std::string address() const override { return encode_endpoints(listener_->endpoints()); }
  Status start(std::shared_ptr<const AddressBook> book, TransportEvents* events) override;
  bool post(Rank to, Bytes header, Bytes payload, uint64_t cookie) override;
  void drop(Rank peer, const Status& why) override;
  uint64_t rejected_messages() const override { return rejected_.load(std::memory_order_relaxed); }
  Connections connections() override;

  // For the simulator, whose thread is the progress thread of all ranks. In place of start and close:
  Status begin(std::shared_ptr<const AddressBook> book, TransportEvents* events);
  bool step(bool tell = true);  // one turn; false: nothing to do until the watch or a post says so
  bool rests() { return !has_posts() && arm(); }
  void begin_end();  // posted frames leave, then end marks; steps go on until
  bool ended();      // all have come,
  void end_all();    // or nobody waits any longer: everything comes home

 private:
  using Step = TlsSession::Step;
  // Why a dial came to nothing.
  enum class Dial {
    kNobody,    // this address is of no use
    kNoAnswer,  // perhaps another one is
    kLost,      // it ended for want of something that may be there in a moment
  };

  bool turn(bool tell) override REQUIRES(seat_mutex_);
  bool has_posts() override { return !posts_.empty(); }
  bool arm() override;
  void wind_up() override REQUIRES(seat_mutex_);
  void part() override REQUIRES(seat_mutex_);

  Status take_book(std::shared_ptr<const AddressBook> book);

  // Posting and sending (tls_transport.cc).
  Peer& peer(Rank rank) REQUIRES(fabric_mutex_);
  void fill(Slot* slot, Rank to, RecordKind kind, Bytes header, Bytes payload, uint64_t cookie);
  bool may_send_here() const;
  bool send_here(Peer* to, Bytes header, Bytes payload, uint64_t cookie) REQUIRES(fabric_mutex_);
  bool send_queued() REQUIRES(fabric_mutex_);
  void say_end(Peer* to);
  void say_ends() REQUIRES(seat_mutex_);
  void pump(Peer* to) REQUIRES(fabric_mutex_);
  void send_waiting(Peer* to) REQUIRES(fabric_mutex_);
  bool encrypt_waiting(Peer* to) REQUIRES(fabric_mutex_);
  bool encrypt_payload(Peer* to, Slot* slot) REQUIRES(fabric_mutex_);
  bool flush(Connection* connection) REQUIRES(fabric_mutex_);
  void finish(Slot* slot) REQUIRES(fabric_mutex_);
  void fail(Peer* peer, Status why) REQUIRES(fabric_mutex_);
  void take_failures(bool tell) REQUIRES(fabric_mutex_);
  bool all_ended() EXCLUDES(fabric_mutex_);

  // Receiving (tls_receive.cc).
  bool poll_fabric() REQUIRES(fabric_mutex_);
  void make_plain_room(const Connection& connection) REQUIRES(fabric_mutex_);
  void handle(Connection* connection, uint32_t events) REQUIRES(fabric_mutex_);
  void handle_whole(Connection* connection, uint32_t events) REQUIRES(fabric_mutex_);
  void receive(Connection* connection) REQUIRES(fabric_mutex_);
  void receive_whole(Connection* connection) REQUIRES(fabric_mutex_);
  // The bytes that were used; false: the connection is dead.
  bool take_records(Connection* connection, Bytes bytes, size_t* used) REQUIRES(fabric_mutex_);
  void take_record(Connection* connection, RecordKind kind, Bytes header, Bytes payload)
      REQUIRES(fabric_mutex_);
  void lose(Connection* connection, Step step, const std::string& why) REQUIRES(fabric_mutex_);
  void watch(Connection* connection, bool writing) REQUIRES(fabric_mutex_);

  // Meeting (tls_meeting.cc).
  void accept_from(Watched* listener) REQUIRES(fabric_mutex_);
  void begin_dialling(Peer* to) REQUIRES(fabric_mutex_);
  void dial(Peer* to) REQUIRES(fabric_mutex_);
  void dial_failed(Peer* to, Dial how, const std::string& why) REQUIRES(fabric_mutex_);
  void connected(Connection* connection) REQUIRES(fabric_mutex_);
  void shake_hands(Connection* connection) REQUIRES(fabric_mutex_);
  void take_answer(Connection* connection, RecordKind kind, Bytes payload) REQUIRES(fabric_mutex_);
  void take_introduction(Connection* connection, Bytes payload) REQUIRES(fabric_mutex_);
  bool say(Connection* connection, RecordKind kind, Bytes payload) REQUIRES(fabric_mutex_);
  void refuse(Connection* connection, TlsRefusal why) REQUIRES(fabric_mutex_);
  void open(Peer* to, std::unique_ptr<Connection> connection) REQUIRES(fabric_mutex_);
  void reject(Connection* connection, const std::string& why) REQUIRES(fabric_mutex_);
  void break_off(Connection* connection, Status why) REQUIRES(fabric_mutex_);
  void bury(std::unique_ptr<Connection> connection) REQUIRES(fabric_mutex_);
  void clear_graveyard() REQUIRES(fabric_mutex_);
  void make_room_for_half_open() REQUIRES(fabric_mutex_);
  std::unique_ptr<Connection> take_half_open(Connection* connection) REQUIRES(fabric_mutex_);
  void tick() REQUIRES(fabric_mutex_);
  void tick_dials(Nanos now) REQUIRES(fabric_mutex_);
  void set_timer() REQUIRES(fabric_mutex_);
  void watch_listeners(bool on) REQUIRES(fabric_mutex_);
  size_t half_open_limit() const;
  Status add_watch(Watched* watched, uint32_t events);
  Nanos now() const { return sockets_.clock().now(); }

  const Rank rank_;
  const int32_t size_;
  Sockets& sockets_;
  uint64_t secret_ = 0;
  bool direct_ = false;
  uint64_t rekey_after_ = 0;  // 0: TlsSession's
  Nanos patience_ = 0;        // with a peer that does not answer; the job's is shorter
  std::shared_ptr<const AddressBook> book_;
  std::atomic<uint64_t> rejected_{0};
  std::unique_ptr<TlsContext> context_;  // nullptr: in clear
  std::unique_ptr<TlsListener> listener_;
  std::unique_ptr<SocketWatch> watch_;
  std::deque<Watched> listeners_;
  Watched timer_{Watched::What::kTimer};

  PostQueue<Slot> posts_;

  bool in_event_ = false;  // only the thread that has the seat looks: holds fabric_mutex_

  // Whoever touches a connection holds it, and for what follows. Threads that post only ever try it. Before
  // that of posts_.
  Mutex fabric_mutex_;
  TlsBuffers buffers_ GUARDED_BY(fabric_mutex_);
  SparsePerRank<Peer> peers_ GUARDED_BY(fabric_mutex_);
  std::list<std::unique_ptr<Connection>> half_open_ GUARDED_BY(fabric_mutex_);  // accepted; the oldest first
  std::vector<Rank> dialling_ GUARDED_BY(fabric_mutex_);
  // Until no event points to them. A list through its items: burying needs no memory.
  std::unique_ptr<Connection> graveyard_ GUARDED_BY(fabric_mutex_);
  std::vector<Connection*> more_ GUARDED_BY(fabric_mutex_);  // has_more
  std::vector<char> plain_ GUARDED_BY(fabric_mutex_);        // what was decrypted last
  std::string staged_ GUARDED_BY(fabric_mutex_);             // small frames that become one record
  Slot* spare_ GUARDED_BY(fabric_mutex_) = nullptr;          // for send_here
  bool sending_here_ GUARDED_BY(fabric_mutex_) = false;      // inside send_here: no events
  SlotList sending_ GUARDED_BY(fabric_mutex_);               // taken from posts_, in no peer's list yet
  Peer* touched_ GUARDED_BY(fabric_mutex_) = nullptr;  // the list of peers that have new frames in waiting
  SlotList done_ GUARDED_BY(fabric_mutex_);
  bool any_failing_ GUARDED_BY(fabric_mutex_) = false;
  bool timer_runs_ GUARDED_BY(fabric_mutex_) = false;
  bool exhausted_ GUARDED_BY(fabric_mutex_) = false;  // listeners are not watched, for want of descriptors
  bool parting_ GUARDED_BY(fabric_mutex_) = false;    // nobody is met any more
  size_t in_flight_ GUARDED_BY(fabric_mutex_) = 0;
};

}  // namespace swale::net::tls_internal
