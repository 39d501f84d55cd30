#include "net/fabric/ucx_transport.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/coding.h"
#include "base/contain.h"
#include "base/log.h"
#include "net/fabric/secret.h"
#include "net/fabric/ucx_internal.h"

namespace swale::net::ucx_internal {
namespace {

constexpr uint32_t kMagic = 0x32555753;  // "SWU2"
// Where the fields of the prefix stand (ucx_transport.h).
constexpr size_t kRankAt = 4;
constexpr size_t kSecretAt = 8;
constexpr size_t kKindAt = 16;

constexpr int kProgressBatch = 64;

}  // namespace

// ---- any thread
// ---------------------------------------------------------------------------------------------------

Peer& Ucx::peer(Rank rank) {
  Peer& met = peers_.meet(rank);
  met.owner = this;
  met.rank = rank;
  return met;
}

void Ucx::put_prefix(char* out, MessageKind kind) const {
  put_u32(out, kMagic);
  put_u32(out + kRankAt, static_cast<uint32_t>(rank_));
  put_u64(out + kSecretAt, secret_);
  put_u32(out + kKindAt, static_cast<uint32_t>(kind));
}

void Ucx::fill(Slot* slot, Rank to, MessageKind kind, Bytes header, Bytes payload, uint64_t cookie) {
  slot->owner = this;
  slot->to = to;
  slot->cookie = cookie;
  slot->payload = payload;
  slot->kind = kind;
  slot->header_bytes = kPrefixBytes + header.size();
  slot->in_flight = true;
  put_prefix(slot->header.data(), kind);
  std::copy(header.begin(), header.end(), slot->header.begin() + kPrefixBytes);
}

void Ucx::enqueue(Rank to, MessageKind kind, Bytes header, Bytes payload, uint64_t cookie) {
  posts_.post([&](Slot* slot) { fill(slot, to, kind, header, payload, cookie); });
  kick();
}

// The progress thread calls UCX anyway, but not from inside a callback of UCX.
bool Ucx::may_send_here() const { return has_seat() ? !in_event_ : direct_; }

bool Ucx::post(Rank to, Bytes header, Bytes payload, uint64_t cookie) {
  assert(to >= 0 && to != rank_ && to < size_ && header.size() <= kHeaderBytesMax);
  // Only tried: who holds it may be in an event that waits for a lock of our caller's.
  if (may_send_here() && fabric_mutex_.try_lock()) {
    const MutexLock fabric(fabric_mutex_, std::adopt_lock);
    const Peer* const receiver = peers_.find(to);
    if (receiver != nullptr && receiver->meeting == Meeting::kOpen && !receiver->failing &&
        !posts_.has_frames() && !winding_up_) {
      return send_here(to, header, payload, cookie);
    }
  }
  enqueue(to, MessageKind::kFrame, header, payload, cookie);
  return false;
}

// Under fabric_mutex_, by any thread.
bool Ucx::send_here(Rank to, Bytes header, Bytes payload, uint64_t cookie) {
  if (spare_ == nullptr) spare_ = posts_.take_slot();
  fill(spare_, to, MessageKind::kFrame, header, payload, cookie);
  sending_here_ = true;
  void* request = start_send(spare_);
  sending_here_ = false;
  const bool pending = UCS_PTR_IS_PTR(request);
  if (pending) {
    ++in_flight_;
    spare_ = nullptr;
  } else {
    spare_->in_flight = false;
  }
  // A pending send needs progress, and so does what could not be told here.
  if (pending || any_failing_ || !late_.empty()) kick();
  return !pending;
}

void Ucx::drop(Rank rank, const Status& why) {
  posts_.drop(rank, why);
  wake();
}

// ---- the progress thread
// ------------------------------------------------------------------------------------------

// Sends, receives, tells of peers that are gone. True if there may be more to do.
bool Ucx::turn(bool tell) {
  const MutexLock fabric(fabric_mutex_);
  in_event_ = true;
  bool did = false;
  const Status status = contain([&]() REQUIRES(fabric_mutex_) {
    did |= send_queued();
    did |= progress_fabric();
    did |= meet();
    take_failures(tell);
  });
  in_event_ = false;
  if (!status.ok()) events_->on_failure(status);
  return did;
}

bool Ucx::send_queued() {
  posts_.take_all(&sending_, &done_,
                  [&](Rank gone, const Status& why) REQUIRES(fabric_mutex_) { fail(&peer(gone), why); });
  const bool did = !sending_.empty();
  while (!sending_.empty()) send(sending_.pop_front());
  while (!late_.empty()) {
    Slot* slot = late_.pop_front();
    events_->on_sent(slot->cookie);
    done_.push_back(slot);
  }
  return did;
}

bool Ucx::progress_fabric() {
  bool did = false;
  for (int i = 0; i < kProgressBatch && ucp_worker_progress(worker_) != 0; ++i) {
    did = true;
    if (woken()) break;  // what the event has to send leaves before the next one
  }
  return did;
}

bool Ucx::arm() {
  const MutexLock fabric(fabric_mutex_);
  if (any_failing_ || !late_.empty()) return false;  // by a send_here since the last turn
  return ucp_worker_arm(worker_) != UCS_ERR_BUSY;
}

void Ucx::send(Slot* slot) {
  Peer& to = peer(slot->to);
  ++in_flight_;
  if (to.down || to.failing) return finish(slot);
  if (to.meeting != Meeting::kOpen) {
    to.waiting.push_back(slot);
    return begin_meeting(&to);
  }
  if (!UCS_PTR_IS_PTR(start_send(slot))) finish(slot);
}

// A request of UCX, if the send is pending; a failure is noted.
void* Ucx::start_send(Slot* slot) {
  Peer& to = peer(slot->to);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = on_send_done;
  param.user_data = slot;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  if (slot->kind == MessageKind::kKnock) param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(to.endpoint, kActiveMessageId, slot->header.data(), slot->header_bytes,
                      slot->payload.data(), slot->payload.size(), &param);
  if (UCS_PTR_IS_ERR(request)) fail(&to, UCS_PTR_STATUS(request), "sending");
  return request;
}

void Ucx::on_send_done(void* request, ucs_status_t status, void* user_data) {
  ucp_request_free(request);
  auto* slot = static_cast<Slot*>(user_data);
  Ucx* self = slot->owner;
  self->fabric_mutex_.assert_held();
  Peer& to = self->peer(slot->to);
  if (status != UCS_OK) self->fail(&to, status, "sending");
  if (status == UCS_OK && slot->kind == MessageKind::kKnock && !to.down) to.meeting = Meeting::kKnocked;
  self->finish(slot);
}

void Ucx::finish(Slot* slot) {
  --in_flight_;
  slot->in_flight = false;
  if (slot->kind == MessageKind::kFrame && sending_here_) return late_.push_back(slot);
  const bool frame = slot->kind == MessageKind::kFrame;
  const uint64_t cookie = slot->cookie;
  done_.push_back(slot);
  if (frame) events_->on_sent(cookie);
}

ucs_status_t Ucx::on_message(void* arg, const void* header, size_t header_bytes, void* data, size_t bytes,
                             const ucp_am_recv_param_t* param) {
  auto* self = static_cast<Ucx*>(arg);
  const auto* in = static_cast<const char*>(header);
  const bool ours = header_bytes >= kPrefixBytes && get_u32(in) == kMagic &&
                    same_secret(get_u64(in + kSecretAt), self->secret_);
  const uint32_t sender = header_bytes >= kPrefixBytes ? get_u32(in + kRankAt) : 0;
  if (!ours || header_bytes > kPrefixBytes + kHeaderBytesMax ||
      sender >= static_cast<uint32_t>(self->size_) || static_cast<Rank>(sender) == self->rank_ ||
      get_u32(in + kKindAt) >= kMessageKinds) {
    if (self->rejected_.fetch_add(1) == 0) {
      log_warn("rank {}: dropped a UCX message that is not of this job ({} bytes of header, claims rank {})",
               self->rank_, header_bytes, sender);
    }
    return UCS_OK;
  }
  // UCX knows no exceptions.
  self->fabric_mutex_.assert_held();
  const Status status = contain([&]() REQUIRES(self->fabric_mutex_) {
    self->receive(static_cast<Rank>(sender), in, header_bytes,
                  bytes == 0 ? Bytes() : Bytes(static_cast<const char*>(data), bytes),
                  (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
  });
  if (!status.ok()) self->events_->on_failure(status);
  return UCS_OK;
}

void Ucx::receive(Rank sender, const char* header, size_t header_bytes, Bytes payload, bool by_rendezvous) {
  Peer& from = peer(sender);
  if (from.down || from.failing) return;
  if (by_rendezvous) {
    return fail(&from, error(Code::kCorruption, Scope::kPeer,
                             "rank {} (host {}) sent {} bytes by rendezvous, expected eager messages only",
                             from.rank, book_->host_of(from.rank), payload.size()));
  }
  from.heard = true;
  switch (static_cast<MessageKind>(get_u32(header + kKindAt))) {
    case MessageKind::kEnd:
      from.ended = true;
      break;
    case MessageKind::kHello:
      from.greeted = true;
      begin_meeting(&from);
      break;
    case MessageKind::kKnock:
      break;
    case MessageKind::kFrame:
      events_->on_frame(from.rank, Bytes(header + kPrefixBytes, header_bytes - kPrefixBytes), payload);
      break;
  }
}

void Ucx::on_endpoint_error(void* arg, ucp_ep_h, ucs_status_t status) {
  auto* peer = static_cast<Peer*>(arg);
  peer->owner->fabric_mutex_.assert_held();
  peer->owner->fail(peer, status, peer->ended ? "it has left" : "its process or the network to it has ended");
}

void Ucx::fail(Peer* peer, ucs_status_t status, std::string_view what) {
  if (status == UCS_ERR_UNREACHABLE) {
    return fail(
        peer, error(Code::kUnavailable, Scope::kPeer,
                    "rank {} (host {}) cannot be reached by UCX: {} ({}). Are both nodes on one network that "
                    "UCX_TLS and UCX_NET_DEVICES leave to it? job.transport=tls needs TCP alone",
                    peer->rank, book_->host_of(peer->rank), what, ucs_status_string(status)));
  }
  fail(peer, error(Code::kUnavailable, Scope::kPeer, "rank {} (host {}) is gone: {} ({}, by UCX)", peer->rank,
                   book_->host_of(peer->rank), what, ucs_status_string(status)));
}

// Only notes it: endpoints are not closed, and nobody is told, from inside a callback of UCX.
void Ucx::fail(Peer* peer, const Status& why) {
  if (peer->down || peer->failing) return;
  peer->failing = true;
  peer->why = why;
  any_failing_ = true;
}

void Ucx::take_failures(bool tell) {
  while (std::exchange(any_failing_, false)) {
    for (const std::unique_ptr<Peer>& gone : peers_.items()) {
      if (!gone->failing || gone->down) continue;
      gone->down = true;
      gone->meeting = Meeting::kNone;
      close_endpoint(gone.get(), UCP_EP_CLOSE_FLAG_FORCE);
      while (!gone->waiting.empty()) finish(gone->waiting.pop_front());
      if (tell) events_->on_down(gone->rank, gone->why);
    }
  }
  if (closes_ != 0) finish_closes();
}

void Ucx::finish_closes() {
  for (const std::unique_ptr<Peer>& each : peers_.items()) {
    if (each->close_request == nullptr || ucp_request_check_status(each->close_request) == UCS_INPROGRESS)
      continue;
    ucp_request_free(std::exchange(each->close_request, nullptr));
    --closes_;
  }
}

void Ucx::close_endpoint(Peer* peer, unsigned flags) {
  if (peer->endpoint == nullptr) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = flags;
  void* request = ucp_ep_close_nbx(peer->endpoint, &param);
  peer->endpoint = nullptr;
  if (!UCS_PTR_IS_PTR(request)) return;
  peer->close_request = request;  // the only one: a peer that is closed is met no more
  ++closes_;
}

// ---- the end
// ------------------------------------------------------------------------------------------------------

bool Ucx::all_ended() {
  const MutexLock fabric(fabric_mutex_);
  return in_flight_ == 0 && std::all_of(peers_.items().begin(), peers_.items().end(), [](const auto& each) {
           return !each->heard || each->ended || each->down;
         });
}

void Ucx::say_end(Peer* to) {
  if (!std::exchange(to->end_said, true)) enqueue(to->rank, MessageKind::kEnd, Bytes(), Bytes(), 0);
}

// Everything posted goes out, then an end mark on every endpoint; those who have sent to us send theirs. Only
// then does nobody need our progress any more: closing earlier gives the others time-outs.
void Ucx::wind_up() {
  {
    const MutexLock fabric(fabric_mutex_);
    winding_up_ = true;  // nobody but this thread sends from here on
  }
  turn(false);
  {
    const MutexLock fabric(fabric_mutex_);
    for (const std::unique_ptr<Peer>& each : peers_.items()) {
      if (each->meeting != Meeting::kNone && !each->down) say_end(each.get());
    }
  }
  if (!progress_until([this] { return all_ended(); })) {
    std::string late;
    const MutexLock fabric(fabric_mutex_);
    for (const std::unique_ptr<Peer>& each : peers_.items()) {
      if (each->heard && !each->ended && !each->down)
        late += fmt::format(" {} (host {})", each->rank, book_->host_of(each->rank));
    }
    close_status_ =
        error(Code::kDeadlineExceeded, Scope::kPeer,
              "rank {}: at the deadline of closing, {} frames were not sent and no end had come from ranks{}",
              rank_, in_flight_, late);
  }
}

// The last thing that the thread does, whatever has failed before.
void Ucx::part() {
  const bool clean = close_status_.ok();
  {
    const MutexLock fabric(fabric_mutex_);
    parting_ = true;
    for (const std::unique_ptr<Peer>& each : peers_.items())
      close_endpoint(each.get(), clean && !each->failing ? 0 : UCP_EP_CLOSE_FLAG_FORCE);
  }
  if (!clean) close_patience_.emplace(milliseconds(100), system_clock().now());  // forced closes end at once
  const auto all_closed = [this] {
    const MutexLock fabric(fabric_mutex_);
    return closes_ == 0;
  };
  static_cast<void>(contain([&]() REQUIRES(seat_mutex_) { progress_until(all_closed); }));
  destroy();
  // What UCX still held of ours it holds no more.
  const MutexLock fabric(fabric_mutex_);
  for (size_t i = 0; Slot* slot = posts_.slot_at(i); ++i) {
    if (slot->in_flight) finish(slot);
  }
}

void Ucx::destroy() {
  const MutexLock fabric(fabric_mutex_);
  // Closes that did not end in time: UCX aborts the process if it finds requests that we have not let go of.
  for (const std::unique_ptr<Peer>& each : peers_.items()) {
    if (each->close_request != nullptr) ucp_request_free(std::exchange(each->close_request, nullptr));
  }
  closes_ = 0;
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
  worker_ = nullptr;
  context_ = nullptr;
}

Ucx::~Ucx() {
  static_cast<void>(close(Deadline{0}));
  destroy();
}

}  // namespace swale::net::ucx_internal
