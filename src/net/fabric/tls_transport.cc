// Setting up, posting, sending, the end. Who meets whom is in tls_meeting.cc, what comes in tls_receive.cc.
#include "net/fabric/tls_transport.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/coding.h"
#include "base/contain.h"
#include "net/fabric/tls_internal.h"

namespace swale::net::tls_internal {
namespace {

// A frame of at most so many bytes is copied beside others into one record; the payloads of larger ones are
// encrypted from where they are, which saves a copy and costs a record more.
constexpr size_t kSmallBytes = 4 * kKiB;
// In so small a job each connection may keep its buffers: 5 MB.
constexpr int32_t kFewRanks = 64;

}  // namespace

// ---- the begin

Status Tls::add_watch(Watched* watched, uint32_t events) {
  if (watch_->add(watched->fd, events, watched) == 0) return {};
  return errno_status(errno, "epoll_ctl");
}

Status Tls::init(const TransportOptions& options) {
  direct_ = options.posting == Posting::kDirect;
  secret_ = options.secret;
  patience_ = 2 * std::clamp<Nanos>(options.silence_deadline, seconds(10), seconds(1e6));
  for (const auto& [name, value] : options.settings) {
    if (name != "REKEY_AFTER") return invalid_argument("the transport \"tls\" has no setting {}", name);
    rekey_after_ = std::strtoull(value.c_str(), nullptr, 10);
  }
  if (!options.in_clear) {
    const auto buffers = size_ <= kFewRanks ? TlsContext::Buffers::kKept : TlsContext::Buffers::kGivenBack;
    SWALE_ASSIGN_OR_RETURN(context_, TlsContext::make(options.key, buffers));
  }
  SWALE_ASSIGN_OR_RETURN(listener_, TlsListener::make(sockets_));
  SWALE_ASSIGN_OR_RETURN(watch_, sockets_.make_watch());
  for (const int socket : listener_->sockets()) {
    Watched& watched = listeners_.emplace_back(Watched::What::kListener);
    watched.fd = socket;
    SWALE_RETURN_IF_ERROR(add_watch(&watched, EPOLLIN));
  }
  const MutexLock fabric(fabric_mutex_);
  staged_.reserve(TlsSession::kPutMax);
  return init_beds(watch_->fd(), options.poll);
}

Status Tls::take_book(std::shared_ptr<const AddressBook> book) {
  if (book->ranks() != size_)
    return invalid_argument("TLS transport: {} addresses for {} ranks", book->ranks(), size_);
  book_ = std::move(book);
  return {};
}

Status Tls::start(std::shared_ptr<const AddressBook> book, TransportEvents* events) {
  SWALE_RETURN_IF_ERROR(take_book(std::move(book)));
  return start_progress(events);
}

Status Tls::begin(std::shared_ptr<const AddressBook> book, TransportEvents* events) {
  SWALE_RETURN_IF_ERROR(take_book(std::move(book)));
  start_without_thread(events);
  return {};
}

bool Tls::step(bool tell) {
  const MutexLock seat(seat_mutex_);
  return turn(tell);
}

void Tls::begin_end() {
  const MutexLock seat(seat_mutex_);
  say_ends();
}

bool Tls::ended() { return !has_posts() && all_ended(); }

void Tls::end_all() {
  const MutexLock seat(seat_mutex_);
  part();
}

// ---- any thread

Peer& Tls::peer(Rank rank) {
  Peer& met = peers_.meet(rank);
  met.rank = rank;
  return met;
}

void Tls::fill(Slot* slot, Rank to, RecordKind kind, Bytes header, Bytes payload, uint64_t cookie) {
  slot->to = to;
  slot->cookie = cookie;
  slot->payload = payload;
  slot->kind = kind;
  slot->header_bytes = kHeadBytes + header.size();
  slot->done = 0;
  slot->begun = false;
  slot->in_flight = true;
  put_u32(slot->header.data(), static_cast<uint32_t>(payload.size()));
  slot->header[4] = static_cast<char>(kind);
  slot->header[5] = static_cast<char>(header.size());
  put_u16(slot->header.data() + 6, 0);
  std::copy(header.begin(), header.end(), slot->header.begin() + kHeadBytes);
}

// The thread that has the seat may touch connections anyway, but not from inside an event.
bool Tls::may_send_here() const { return has_seat() ? !in_event_ : direct_; }

bool Tls::post(Rank to, Bytes header, Bytes payload, uint64_t cookie) {
  assert(to >= 0 && to != rank_ && to < size_ && header.size() <= kHeaderBytesMax);
  assert(payload.size() <= kPayloadBytesMax);
  // Only tried: who holds it may be in an event that waits for a lock of our caller's.
  if (may_send_here() && fabric_mutex_.try_lock()) {
    const MutexLock fabric(fabric_mutex_, std::adopt_lock);
    Peer* const receiver = peers_.find(to);
    if (receiver != nullptr && receiver->open && receiver->waiting.empty() && !receiver->failing &&
        sending_.empty() && !posts_.has_frames() && !winding_up_.load()) {
      return send_here(receiver, header, payload, cookie);
    }
  }
  posts_.post([&](Slot* slot) { fill(slot, to, RecordKind::kFrame, header, payload, cookie); });
  kick();
  return false;
}

// Under fabric_mutex_, by any thread; nothing waits before it. True: it is encrypted, so the payload is free.
// Throws only before it has done anything.
bool Tls::send_here(Peer* to, Bytes header, Bytes payload, uint64_t cookie) {
  if (spare_ == nullptr) spare_ = posts_.take_slot();
  fill(spare_, to->rank, RecordKind::kFrame, header, payload, cookie);
  ++in_flight_;
  to->waiting.push_back(spare_);
  sending_here_ = true;
  pump(to);
  sending_here_ = false;
  if (any_failing_) kick();
  if (!spare_->in_flight) return true;
  spare_ = nullptr;
  return false;
}

void Tls::drop(Rank rank, const Status& why) {
  posts_.drop(rank, why);
  wake();
}

bool Tls::arm() {
  const MutexLock fabric(fabric_mutex_);
  return !any_failing_ && more_.empty() && sending_.empty() && touched_ == nullptr;
}

TlsTransport::Connections Tls::connections() {
  const MutexLock fabric(fabric_mutex_);
  Connections count;
  count.half_open = half_open_.size();
  for (const std::unique_ptr<Peer>& each : peers_.items()) count.open += each->open ? 1 : 0;
  return count;
}

// ---- the thread that has the seat

bool Tls::turn(bool tell) {
  const MutexLock fabric(fabric_mutex_);
  in_event_ = true;
  bool did = false;
  clear_graveyard();
  // Each on its own: what lacks memory stops nothing else.
  const Status sent = contain([&]() REQUIRES(fabric_mutex_) { did |= send_queued(); });
  const Status polled = contain([&]() REQUIRES(fabric_mutex_) { did |= poll_fabric(); });
  const Status told = contain([&]() REQUIRES(fabric_mutex_) { take_failures(tell); });
  in_event_ = false;
  for (const Status* each : {&sent, &polled, &told}) {
    if (!each->ok()) events_->on_failure(*each);
  }
  return did;
}

// All frames go to where they wait before any is sent, so that small ones to one peer become one record.
// Where memory lacks, the next turn goes on: what is left is in sending_ and touched_.
bool Tls::send_queued() {
  posts_.take_all(&sending_, &done_,
                  [&](Rank gone, const Status& why) REQUIRES(fabric_mutex_) { fail(&peer(gone), why); });
  const bool did = !sending_.empty();
  while (!sending_.empty()) {
    Peer& to = peer(sending_.front()->to);
    Slot* slot = sending_.pop_front();
    ++in_flight_;
    if (to.down || to.failing) {
      finish(slot);
      continue;
    }
    to.waiting.push_back(slot);
    if (!std::exchange(to.touched, true)) to.next_touched = std::exchange(touched_, &to);
  }
  while (touched_ != nullptr) {
    Peer* const to = touched_;
    to->open ? pump(to) : begin_dialling(to);
    touched_ = to->next_touched;
    to->touched = false;
  }
  return did;
}

// Encrypts and sends what waits, as far as the socket takes it. Where that lacks memory nobody knows what was
// encrypted, so the peer fails; never throws.
void Tls::pump(Peer* to) {
  Status status = contain([&]() REQUIRES(fabric_mutex_) { send_waiting(to); });
  if (status.ok()) return;
  staged_.clear();
  fail(to, std::move(status));
}

void Tls::send_waiting(Peer* to) {
  while (to->open && !to->failing) {
    if (!encrypt_waiting(to)) {
      return lose(to->open.get(), to->open->session->put_failure(), to->open->session->why());
    }
    if (!flush(to->open.get()) || to->waiting.empty()) return;
  }
}

// False: the connection has failed.
bool Tls::encrypt_waiting(Peer* to) {
  TlsSession& session = *to->open->session;
  const auto put_staged = [&]() REQUIRES(fabric_mutex_) {
    if (staged_.empty()) return true;
    const bool put = session.put(staged_);
    staged_.clear();
    return put;
  };
  assert(staged_.empty());
  // Invariant: if anything is staged, there is room for it.
  while (!to->waiting.empty() && session.room()) {
    Slot* const slot = to->waiting.front();
    const bool small = slot->payload.size() <= kSmallBytes;
    if (!slot->begun) {
      if (staged_.size() + slot->header_bytes + (small ? slot->payload.size() : 0) > TlsSession::kPutMax) {
        if (!put_staged()) return false;
        continue;
      }
      staged_.append(slot->header.data(), slot->header_bytes);
      if (small) staged_.append(slot->payload);
      if (small) slot->done = slot->payload.size();
      slot->begun = true;
    }
    if (!small && (!put_staged() || !encrypt_payload(to, slot))) return false;
    if (slot->done < slot->payload.size()) break;
    to->waiting.pop_front();
    finish(slot);
  }
  return put_staged();
}

bool Tls::encrypt_payload(Peer* to, Slot* slot) {
  TlsSession& session = *to->open->session;
  while (slot->done < slot->payload.size() && session.room()) {
    const Bytes piece = slot->payload.substr(slot->done, TlsSession::kPutMax);
    if (!session.put(piece)) return false;
    slot->done += piece.size();
  }
  return true;
}

// True: all is sent. Else the socket is watched, or the connection is lost.
bool Tls::flush(Connection* connection) {
  const Step step = connection->session->flush();
  if (step == Step::kDone || step == Step::kAgain) {
    watch(connection, step == Step::kAgain);
    return step == Step::kDone;
  }
  lose(connection, step, connection->session->why());
  return false;
}

void Tls::finish(Slot* slot) {
  assert(slot->in_flight && in_flight_ > 0);
  --in_flight_;
  slot->in_flight = false;
  if (sending_here_) {
    assert(slot == spare_);
    return;
  }
  const bool frame = slot->kind == RecordKind::kFrame;
  const uint64_t cookie = slot->cookie;
  done_.push_back(slot);
  if (frame) events_->on_sent(cookie);
}

// Only notes it: nobody is told from inside of other work.
void Tls::fail(Peer* peer, Status why) {
  if (peer->down || peer->failing) return;
  peer->failing = true;
  peer->why = std::move(why);
  any_failing_ = true;
}

void Tls::take_failures(bool tell) {
  while (std::exchange(any_failing_, false)) {
    for (const std::unique_ptr<Peer>& gone : peers_.items()) {
      if (!gone->failing || gone->told) continue;
      any_failing_ = true;  // if this throws, the next turn goes on
      gone->down = true;
      gone->dialling = false;
      if (gone->open) bury(std::move(gone->open));
      if (gone->dial) bury(std::move(gone->dial));
      while (!gone->waiting.empty()) finish(gone->waiting.pop_front());
      gone->told = true;
      if (tell) events_->on_down(gone->rank, gone->why);
    }
  }
}

// ---- the end

bool Tls::all_ended() {
  const MutexLock fabric(fabric_mutex_);
  return in_flight_ == 0 && sending_.empty() &&
         std::all_of(peers_.items().begin(), peers_.items().end(), [](const auto& each) {
           return !each->open || each->down || (each->ended && each->open->session->unsent() == 0);
         });
}

void Tls::say_end(Peer* to) {
  if (std::exchange(to->end_said, true)) return;
  posts_.post([&](Slot* slot) { fill(slot, to->rank, RecordKind::kEnd, Bytes(), Bytes(), 0); });
}

void Tls::say_ends() {
  {
    const MutexLock fabric(fabric_mutex_);
    winding_up_.store(true);
  }
  turn(false);
  const MutexLock fabric(fabric_mutex_);
  for (const std::unique_ptr<Peer>& each : peers_.items()) {
    if ((each->open || each->dialling) && !each->down) say_end(each.get());
  }
}

// Everything posted goes out, then an end mark on every connection; both ends wait for the other's. Only then
// is nothing on its way any more that a closed socket would lose.
void Tls::wind_up() {
  say_ends();
  if (progress_until([this] { return !has_posts() && all_ended(); })) return;
  std::string late;
  const MutexLock fabric(fabric_mutex_);
  for (const std::unique_ptr<Peer>& each : peers_.items()) {
    if (each->open && !each->ended && !each->down)
      late += fmt::format(" {} (host {})", each->rank, book_->host_of(each->rank));
  }
  close_status_ =
      error(Code::kDeadlineExceeded, Scope::kPeer,
            "rank {}: at the deadline of closing, {} frames were not sent and no end had come from ranks{}",
            rank_, in_flight_, late);
}

// The last thing that the thread does, whatever has failed before.
void Tls::part() {
  const MutexLock fabric(fabric_mutex_);
  in_event_ = true;  // what an event posts here is queued
  parting_ = true;
  listener_->close();
  listeners_.clear();
  for (const std::unique_ptr<Peer>& each : peers_.items()) {
    each->open.reset();
    each->dial.reset();
    each->dialling = false;
  }
  half_open_.clear();
  more_.clear();
  clear_graveyard();
  // What is still in a list comes home.
  for (size_t i = 0; Slot* slot = posts_.slot_at(i); ++i) {
    if (!slot->in_flight) continue;
    slot->in_flight = false;
    if (slot->kind == RecordKind::kFrame) events_->on_sent(slot->cookie);
  }
}

Tls::~Tls() { static_cast<void>(close(Deadline{0})); }

}  // namespace swale::net::tls_internal

namespace swale::net {

Result<std::unique_ptr<TlsTransport>> tls_transport(Rank rank, int32_t size,
                                                    const TransportOptions& options) {
  auto transport = std::make_unique<tls_internal::Tls>(rank, size);
  SWALE_RETURN_IF_ERROR(transport->init(options));
  return std::unique_ptr<TlsTransport>(std::move(transport));
}

}  // namespace swale::net
