// What comes: events of epoll, records, frames.
#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/coding.h"
#include "base/contain.h"
#include "net/fabric/tls_internal.h"

namespace swale::net::tls_internal {
namespace {

constexpr int kEventsMax = 64;
constexpr size_t kPlainBytes = 160 * kKiB;
constexpr size_t kPlainBytesKept = kMiB;
// Of a rank that has only said, or is to say, who it is.
constexpr size_t kMeetingBytesMax = 64;

// What stands before a record.
struct Head {
  size_t payload_bytes;
  size_t header_bytes;
  uint8_t kind;
  uint16_t zero;

  static Head read(const char* in) {
    return {get_u32(in), static_cast<uint8_t>(in[5]), static_cast<uint8_t>(in[4]), get_u16(in + 6)};
  }
  bool possible() const {
    return payload_bytes <= TlsTransport::kPayloadBytesMax && header_bytes <= Transport::kHeaderBytesMax &&
           kind <= static_cast<uint8_t>(RecordKind::kRefusal) && zero == 0;
  }
  size_t bytes() const { return kHeadBytes + header_bytes + payload_bytes; }
};

}  // namespace

// True if there may be more to do.
bool Tls::poll_fabric() {
  bool did = !more_.empty();
  for (Connection* each : std::exchange(more_, {})) {
    if (!std::exchange(each->has_more, false) || each->state == Connection::State::kDead) continue;
    receive(each);
  }
  epoll_event events[kEventsMax];
  const int count = watch_->ready(events, kEventsMax);
  for (int i = 0; i < count; ++i) {
    auto* const watched = static_cast<Watched*>(events[i].data.ptr);
    switch (watched->what) {
      case Watched::What::kListener:
        accept_from(watched);
        break;
      case Watched::What::kTimer:
        if (watch_->take_tick()) tick();
        break;
      case Watched::What::kConnection:
        handle(static_cast<Connection*>(watched), events[i].events);
        break;
    }
    did = true;
    if (woken()) break;  // what the event has to send leaves before the next one
  }
  return did;
}

void Tls::handle(Connection* connection, uint32_t events) {
  Status status = contain([&]() REQUIRES(fabric_mutex_) { handle_whole(connection, events); });
  if (!status.ok()) break_off(connection, std::move(status));
}

void Tls::handle_whole(Connection* connection, uint32_t events) {
  switch (connection->state) {
    case Connection::State::kConnecting:
      if ((events & ~uint32_t{EPOLLIN}) != 0) connected(connection);
      return;
    case Connection::State::kHandshaking:
      return shake_hands(connection);
    case Connection::State::kMeeting:
    case Connection::State::kOpen:
      if ((events & EPOLLOUT) != 0) {
        connection->state == Connection::State::kOpen ? pump(&peer(connection->peer))
                                                      : static_cast<void>(flush(connection));
      }
      if (connection->state != Connection::State::kDead && (events & ~uint32_t{EPOLLOUT}) != 0)
        receive(connection);
      return;
    case Connection::State::kDead:  // by an event of this round
      return;
  }
}

// For the whole of the record that has begun, and one more of TLS.
void Tls::make_plain_room(const Connection& connection) {
  size_t wanted = kPlainBytes;
  if (connection.partial.size() >= kHeadBytes)
    wanted = std::max(wanted, Head::read(connection.partial.data()).bytes() + 2 * TlsSession::kPutMax);
  if (plain_.size() > std::max(wanted, kPlainBytesKept)) {
    plain_.resize(wanted);
    plain_.shrink_to_fit();
  }
  if (plain_.size() < wanted) plain_.resize(wanted);
}

// Where memory lacks, records may have been taken and their remains not been kept: what came next would be
// read as something that it is not. So the connection ends.
void Tls::receive(Connection* connection) {
  Status status = contain([&]() REQUIRES(fabric_mutex_) { receive_whole(connection); });
  if (!status.ok()) break_off(connection, std::move(status));
}

void Tls::receive_whole(Connection* connection) {
  make_plain_room(*connection);
  TlsSession& session = *connection->session;
  session.begin_reading();
  size_t have = connection->partial.size();
  assert(plain_.size() >= have + TlsSession::kPutMax);
  std::memcpy(plain_.data(), connection->partial.data(), have);
  connection->partial = {};
  Step step = Step::kDone;
  while (step == Step::kDone && plain_.size() - have >= TlsSession::kPutMax) {
    size_t got = 0;
    step = session.read(plain_.data() + have, plain_.size() - have, &got);
    have += got;
  }
  size_t used = 0;
  if (!take_records(connection, Bytes(plain_.data(), have), &used)) return;
  connection->partial.assign(plain_.data() + used, have - used);
  if (step == Step::kDone) {
    connection->has_more = true;
    more_.push_back(connection);
  } else if (step != Step::kAgain) {
    lose(connection, step, session.why());
  } else if (session.unsent() > 0 && !connection->watches_writing) {
    flush(connection);  // what OpenSSL had to answer
  }
}

bool Tls::take_records(Connection* connection, Bytes bytes, size_t* used) {
  while (bytes.size() - *used >= kHeadBytes) {
    const char* const in = bytes.data() + *used;
    const Head head = Head::read(in);
    const bool meeting = connection->state == Connection::State::kMeeting;
    if (!head.possible() || (meeting && head.bytes() > kMeetingBytesMax)) {
      lose(connection, Step::kFailed,
           fmt::format("a record of kind {} with {} and {} bytes, which cannot be", head.kind,
                       head.header_bytes, head.payload_bytes));
      return false;
    }
    if (bytes.size() - *used < head.bytes()) return true;
    *used += head.bytes();
    take_record(connection, static_cast<RecordKind>(head.kind), Bytes(in + kHeadBytes, head.header_bytes),
                Bytes(in + kHeadBytes + head.header_bytes, head.payload_bytes));
    if (connection->state == Connection::State::kDead) return false;
  }
  return true;
}

void Tls::take_record(Connection* connection, RecordKind kind, Bytes header, Bytes payload) {
  if (connection->state == Connection::State::kMeeting) {
    if (connection->accepted && kind == RecordKind::kIntroduction)
      return take_introduction(connection, payload);
    if (!connection->accepted && (kind == RecordKind::kWelcome || kind == RecordKind::kRefusal))
      return take_answer(connection, kind, payload);
  } else {
    Peer& from = peer(connection->peer);
    if (from.failing || from.down) return;
    if (kind == RecordKind::kFrame && !from.ended) return events_->on_frame(from.rank, header, payload);
    if (kind == RecordKind::kEnd) {
      from.ended = true;
      return;
    }
  }
  lose(connection, Step::kFailed, fmt::format("a record of kind {} out of turn", static_cast<int>(kind)));
}

// The connection has ended (kEnd), or is of no more use (kFailed). It may be buried when this returns.
void Tls::lose(Connection* connection, Step step, const std::string& why) {
  if (connection->state == Connection::State::kOpen) {
    Peer& lost = peer(connection->peer);
    const std::string host = book_->host_of(lost.rank);
    if (lost.ended) {
      return fail(&lost, error(Code::kUnavailable, Scope::kPeer, "rank {} (host {}) is gone: it has left",
                               lost.rank, host));
    }
    if (step == Step::kEnd) {
      return fail(&lost,
                  error(Code::kUnavailable, Scope::kPeer,
                        "rank {} (host {}) is gone: its process or the network to it has ended ({}, by TLS)",
                        lost.rank, host, why.empty() ? "connection closed" : why));
    }
    return fail(&lost,
                error(Code::kUnavailable, Scope::kPeer, "rank {} (host {}) is gone: {} (by TLS, from {})",
                      lost.rank, host, why, connection->remote.text()));
  }
  if (connection->accepted) {
    if (step != Step::kEnd) return reject(connection, why);
    return bury(take_half_open(connection));
  }
  dial_failed(&peer(connection->peer), step == Step::kFailed ? Dial::kNobody : Dial::kLost,
              why.empty() ? "it closed the connection" : why);
}

void Tls::watch(Connection* connection, bool writing) {
  if (connection->watches_writing == writing) return;
  const uint32_t events = EPOLLIN | (writing ? uint32_t{EPOLLOUT} : 0);
  if (watch_->change(connection->fd, events, static_cast<Watched*>(connection)) != 0)
    return lose(connection, Step::kFailed, errno_status(errno, "epoll_ctl").to_string());
  connection->watches_writing = writing;
}

}  // namespace swale::net::tls_internal
