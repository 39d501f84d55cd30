// How two ranks come to have a connection, and what strangers get.
//
//   dials:    connect, handshake, introduction              welcome: open
//   accepts:           handshake,           introduction,   welcome: open
//
// If both ranks dial at once, the lower one refuses the higher one's introduction (kCrossed), and the higher
// one takes the lower one's in place of its own. A rank dials again when a connection that it has not been
// refused ends: the other one may be under attack, and drop the oldest connections that have not introduced
// themselves.
#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/coding.h"
#include "base/contain.h"
#include "base/log.h"
#include "net/fabric/secret.h"
#include "net/fabric/tls_internal.h"

namespace swale::net::tls_internal {
namespace {

constexpr uint32_t kMagic = 0x31545753;  // "SWT1"
constexpr int kAcceptsAtOnce = 16;       // then frames have their turn
constexpr Nanos kTick = milliseconds(20);
// Of an address among several that does not answer.
constexpr Nanos kConnectDeadline = seconds(3);
constexpr Nanos kRetryPause = milliseconds(40);
}  // namespace

size_t Tls::half_open_limit() const {
  return std::clamp(static_cast<size_t>(size_), kHalfOpenMin, kHalfOpenMax);
}

// ---- accepting

void Tls::accept_from(Watched* listener) {
  std::unique_ptr<Connection> made;
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    if (!made) made = std::make_unique<Connection>();  // before there is a descriptor that nobody would close
    const TlsListener::Accepted got = listener_->accept(listener->fd);
    if (got.exhausted) {
      watch_listeners(false);
      return set_timer();
    }
    if (got.refused && rejected_.fetch_add(1) == 0)
      log_warn("rank {}: dropped a connection from {}: this process has no descriptors left", rank_,
               got.from.text());
    if (got.refused) continue;
    if (got.fd < 0) return;
    sockets_.set_patience(got.fd, patience_);
    auto session = TlsSession::make(context_.get(), &buffers_, got.fd, TlsSession::Side::kAccepts, sockets_);
    if (!session.ok()) {
      events_->on_failure(session.status());
      continue;
    }
    made->session = *std::move(session);
    if (rekey_after_ != 0) made->session->rekey_after(rekey_after_);
    made->fd = got.fd;
    made->state = Connection::State::kHandshaking;
    made->accepted = true;
    made->remote = got.from;
    made->deadline = now() + kHandshakeDeadline;
    if (!add_watch(made.get(), EPOLLIN).ok()) {
      made.reset();  // closed: the rank dials again
      continue;
    }
    half_open_.push_back(std::move(made));
    set_timer();
    make_room_for_half_open();
  }
}

// First go those that have not shown that they have the key.
void Tls::make_room_for_half_open() {
  if (half_open_.size() <= half_open_limit()) return;
  const auto stranger = std::find_if(half_open_.begin(), half_open_.end(), [](const auto& each) {
    return each->state == Connection::State::kHandshaking;
  });
  reject((stranger != half_open_.end() ? *stranger : half_open_.front()).get(),
         "too many had not shown that they are of this job, it was the oldest");
}

void Tls::watch_listeners(bool on) {
  exhausted_ = !on;
  for (Watched& each : listeners_) watch_->change(each.fd, on ? uint32_t{EPOLLIN} : 0, &each);
}

std::unique_ptr<Connection> Tls::take_half_open(Connection* connection) {
  const auto at = std::find_if(half_open_.begin(), half_open_.end(),
                               [&](const auto& each) { return each.get() == connection; });
  assert(at != half_open_.end());
  std::unique_ptr<Connection> taken = std::move(*at);
  half_open_.erase(at);
  return taken;
}

// A stranger's, as far as can be known.
void Tls::reject(Connection* connection, const std::string& why) {
  if (!winding_up_.load() && rejected_.fetch_add(1) == 0) {
    static_cast<void>(contain([&] {
      log_warn("rank {}: dropped a connection from {} that is not of this job ({})", rank_,
               connection->remote.text(), why);
    }));
  }
  bury(take_half_open(connection));
}

// Closes it at once. Events of this round may still point to it.
void Tls::bury(std::unique_ptr<Connection> connection) {
  assert(connection->state != Connection::State::kDead);
  connection->state = Connection::State::kDead;
  std::erase(more_, connection.get());
  connection->session.reset();
  connection->partial = {};
  connection->next_dead = std::move(graveyard_);
  graveyard_ = std::move(connection);
}

void Tls::clear_graveyard() {
  while (graveyard_) graveyard_ = std::move(graveyard_->next_dead);
}

// What `why` has stopped half-way: the connection may be out of step. Needs no memory.
void Tls::break_off(Connection* connection, Status why) {
  if (connection->state == Connection::State::kDead) return;
  if (connection->state == Connection::State::kOpen) return fail(&peer(connection->peer), std::move(why));
  if (connection->accepted) return bury(take_half_open(connection));
  Peer& to = peer(connection->peer);
  assert(to.dial.get() == connection);
  bury(std::move(to.dial));
  to.retry_at = now() + kRetryPause;
}

// ---- dialling

void Tls::begin_dialling(Peer* to) {
  if (to->open || to->dialling || to->failing || parting_) return;
  const Result<RankAddress> address = book_->find(to->rank);
  if (!address.ok()) return fail(to, address.status());
  Result<std::vector<Endpoint>> endpoints = decode_endpoints(address->address);
  if (!endpoints.ok())
    return fail(to,
                endpoints.status().with_context(fmt::format("rank {} (host {})", to->rank, address->host)));
  to->endpoints = *std::move(endpoints);
  dialling_.push_back(to->rank);
  to->dialling = true;
  to->give_up_at = now() + patience_;
  set_timer();  // before what may lack memory: the next tick tries again
  dial(to);
}

// Tries one address. The next is tried when this one has failed.
void Tls::dial(Peer* to) {
  assert(to->dialling && !to->dial && !to->open);
  const Endpoint& endpoint = to->endpoints[to->next_endpoint];
  const int fd = sockets_.socket(endpoint.storage.ss_family);
  if (fd < 0) {
    // A kernel without IPv6 will not have it in a moment.
    const Dial how = errno == EAFNOSUPPORT ? Dial::kNobody : Dial::kLost;
    return dial_failed(to, how, errno_status(errno, "socket").to_string());
  }
  sockets_.set_patience(fd, patience_);
  auto session = TlsSession::make(context_.get(), &buffers_, fd, TlsSession::Side::kDials, sockets_);
  if (!session.ok()) return dial_failed(to, Dial::kLost, session.status().to_string());
  to->dial = std::make_unique<Connection>();
  Connection& made = *to->dial;
  made.session = *std::move(session);
  if (rekey_after_ != 0) made.session->rekey_after(rekey_after_);
  made.fd = fd;
  made.peer = to->rank;
  made.remote = endpoint;
  made.deadline = to->endpoints.size() > 1 ? now() + kConnectDeadline : to->give_up_at;
  if (sockets_.connect(fd, endpoint) != 0 && errno != EINPROGRESS)
    return dial_failed(to, Dial::kNobody, errno_status(errno, "connect").to_string());
  if (const Status status = add_watch(&made, EPOLLIN | EPOLLOUT); !status.ok())
    return dial_failed(to, Dial::kLost, status.to_string());
  made.watches_writing = true;
}

void Tls::dial_failed(Peer* to, Dial how, const std::string& why) {
  if (to->dial) bury(std::move(to->dial));
  if (!to->dialling || to->failing) return;
  const size_t count = to->endpoints.size();
  const uint32_t bit = uint32_t{1} << to->next_endpoint;
  to->last_try = fmt::format("{}: {}", to->endpoints[to->next_endpoint].text(), why);
  to->refused = how == Dial::kNobody ? to->refused | bit : to->refused & ~bit;
  if (to->refused == (uint32_t{1} << count) - 1) {
    return fail(to, error(Code::kUnavailable, Scope::kPeer,
                          "rank {} (host {}) is gone: its process or the network to it has ended (TLS, {})",
                          to->rank, book_->host_of(to->rank), to->last_try));
  }
  if (how != Dial::kLost) to->next_endpoint = (to->next_endpoint + 1) % count;
  to->retry_at = now() + (how == Dial::kLost ? kRetryPause : 0);
}

void Tls::connected(Connection* connection) {
  const int failure = sockets_.failure_of(connection->fd);
  if (failure != 0) return dial_failed(&peer(connection->peer), Dial::kNobody, std::strerror(failure));
  connection->state = Connection::State::kHandshaking;
  connection->deadline = now() + kHandshakeDeadline;
  watch(connection, false);
  if (connection->state != Connection::State::kDead) shake_hands(connection);
}

// ---- both

void Tls::shake_hands(Connection* connection) {
  const Step step = connection->session->handshake();
  const std::string why = connection->session->why();
  if (step == Step::kFailed) {
    static_cast<void>(connection->session->flush());  // the alert
    return lose(connection, step, why);
  }
  if (step == Step::kEnd) return lose(connection, step, why);
  flush(connection);
  if (step == Step::kAgain || connection->state == Connection::State::kDead) return;
  connection->state = Connection::State::kMeeting;
  if (connection->accepted) return receive(connection);  // OpenSSL may have read the introduction already
  // Whoever reads it may open the connection at once: if it were closed for want of an answer, a rank that
  // has only been stopped for a while would take this one for gone. So it is waited for as long as for
  // anything.
  connection->deadline = peer(connection->peer).give_up_at;
  std::string mine;
  append_u32(&mine, kMagic);
  append_u32(&mine, static_cast<uint32_t>(rank_));
  append_u32(&mine, static_cast<uint32_t>(connection->peer));
  append_u64(&mine, secret_);
  assert(mine.size() == kIntroductionBytes);
  say(connection, RecordKind::kIntroduction, mine);
}

// False: the connection is lost.
bool Tls::say(Connection* connection, RecordKind kind, Bytes payload) {
  std::string record;
  append_u32(&record, static_cast<uint32_t>(payload.size()));
  append_u8(&record, static_cast<uint8_t>(kind));
  append_u8(&record, 0);
  append_u16(&record, 0);
  record.append(payload);
  TlsSession& session = *connection->session;
  if (!session.room() || !session.put(record)) {
    lose(connection, session.put_failure(), session.why());
    return false;
  }
  flush(connection);
  return connection->state != Connection::State::kDead;
}

void Tls::refuse(Connection* connection, TlsRefusal why) {
  std::string payload;
  append_u32(&payload, static_cast<uint32_t>(why));
  if (say(connection, RecordKind::kRefusal, payload)) bury(take_half_open(connection));
}

// Its sender has the job's key.
void Tls::take_introduction(Connection* connection, Bytes payload) {
  Decoder in(payload);
  const bool known = in.u32() == kMagic;
  const uint32_t rank = in.u32();
  const uint32_t meant = in.u32();
  const uint64_t secret = in.u64();
  if (!in.finish("introduction").ok() || !known || !same_secret(secret, secret_) ||
      rank >= static_cast<uint32_t>(size_)) {
    return reject(connection, "it introduces itself as nobody of this job");
  }
  // Also said to oneself: another rank's address may be one of this node, too.
  if (meant != static_cast<uint32_t>(rank_)) return refuse(connection, TlsRefusal::kNotMe);
  if (static_cast<Rank>(rank) == rank_) return reject(connection, "it introduces itself as this rank");
  Peer& from = peer(static_cast<Rank>(rank));
  if (from.down || from.failing) return refuse(connection, TlsRefusal::kGivenUp);
  if (from.open) return bury(take_half_open(connection));  // its dial, which has lost against ours
  if (from.dial && !from.crossed && rank_ < from.rank) return refuse(connection, TlsRefusal::kCrossed);
  open(&from, take_half_open(connection));
}

// To our introduction.
void Tls::take_answer(Connection* connection, RecordKind kind, Bytes payload) {
  Peer& to = peer(connection->peer);
  assert(to.dial.get() == connection);
  if (kind == RecordKind::kWelcome) return open(&to, std::move(to.dial));
  switch (static_cast<TlsRefusal>(payload.size() == sizeof(uint32_t) ? get_u32(payload.data()) : 0)) {
    case TlsRefusal::kCrossed:
      to.crossed = true;
      return bury(std::move(to.dial));
    case TlsRefusal::kNotMe:
      return dial_failed(&to, Dial::kNobody, "another rank answers there");
    case TlsRefusal::kGivenUp:
      return fail(&to, error(Code::kUnavailable, Scope::kPeer, "rank {} (host {}) has given this rank up",
                             to.rank, book_->host_of(to.rank)));
  }
  dial_failed(&to, Dial::kNobody, "it refuses for a reason that this version does not know");
}

void Tls::open(Peer* to, std::unique_ptr<Connection> connection) {
  assert(!to->open && !to->down && connection->state == Connection::State::kMeeting);
  const bool accepted = connection->accepted;
  connection->peer = to->rank;
  connection->state = Connection::State::kOpen;
  if (to->dial) bury(std::move(to->dial));
  to->dialling = false;
  to->crossed = false;
  to->open = std::move(connection);
  if (accepted) say(to->open.get(), RecordKind::kWelcome, Bytes());
  if (winding_up_.load()) say_end(to);
  pump(to);
}

// ---- time

void Tls::tick() {
  const Nanos now = this->now();
  if (exhausted_) watch_listeners(true);
  while (!half_open_.empty() && half_open_.front()->deadline <= now)
    reject(half_open_.front().get(), "it did not show in time that it is of this job");
  tick_dials(now);
  set_timer();
}

void Tls::tick_dials(Nanos now) {
  // By number: fail and dial leave the list alone.
  for (const Rank rank : dialling_) {
    Peer& to = peer(rank);
    if (!to.dialling || to.failing || to.down) continue;
    if (to.dial && to.dial->deadline <= now) {
      dial_failed(&to, to.dial->state == Connection::State::kConnecting ? Dial::kNoAnswer : Dial::kLost,
                  "no answer");
    }
    if (to.failing) continue;
    if (to.give_up_at <= now) {
      fail(&to, error(Code::kUnavailable, Scope::kPeer, "rank {} (host {}) cannot be reached ({})", to.rank,
                      book_->host_of(to.rank), to.last_try.empty() ? "no answer" : to.last_try));
    } else if (!to.dial && !to.crossed && to.retry_at <= now) {
      dial(&to);
    }
  }
  std::erase_if(dialling_, [&](Rank rank) REQUIRES(fabric_mutex_) { return !peer(rank).dialling; });
}

// Runs while something has a deadline.
void Tls::set_timer() {
  const bool needed = exhausted_ || !half_open_.empty() || !dialling_.empty();
  if (needed == std::exchange(timer_runs_, needed)) return;
  watch_->tick(needed ? kTick : 0, &timer_);
}

}  // namespace swale::net::tls_internal
