#include "net/route/router.h"

#include <algorithm>
#include <cassert>

#include "base/coding.h"
#include "base/crc32c.h"
#include "net/fabric/secret.h"

namespace swale::net {
namespace {

constexpr uint32_t kFrameMagic = 0x32465753;  // "SWF2"

constexpr size_t kCheckedBytes = FrameHeader::kBytes - 4;

}  // namespace

uint32_t FrameHeader::checksum(Bytes bytes, Bytes payload) const {
  const uint32_t of_header = crc32c(bytes.substr(0, kCheckedBytes));
  return kind == FrameKind::kData ? of_header : crc32c_extend(of_header, payload);
}

std::array<char, FrameHeader::kBytes> FrameHeader::encode(Bytes payload) const {
  std::array<char, kBytes> bytes;
  put_u32(&bytes[0], kFrameMagic);
  put_u32(&bytes[4], channel);
  put_u64(&bytes[8], secret);
  put_u32(&bytes[16], sequence);
  put_u16(&bytes[20], credits);
  bytes[22] = static_cast<char>(kind);
  bytes[23] = static_cast<char>(control_credits);
  put_u32(&bytes[kCheckedBytes], checksum({bytes.data(), bytes.size()}, payload));
  return bytes;
}

Result<FrameHeader> FrameHeader::decode(Bytes bytes, Bytes payload, uint64_t expected_secret) {
  if (bytes.size() != kBytes) {
    return error(Code::kCorruption, Scope::kOperation, "frame header: expected {} bytes, found {}", kBytes,
                 bytes.size());
  }
  Decoder in(bytes);
  const uint32_t magic = in.u32();
  FrameHeader header;
  header.channel = in.u32();
  header.secret = in.u64();
  if (magic != kFrameMagic) {
    return error(Code::kCorruption, Scope::kOperation, "frame header: expected magic {:08x}, found {:08x}",
                 kFrameMagic, magic);
  }
  if (!same_secret(header.secret, expected_secret)) {
    return error(
        Code::kCorruption, Scope::kOperation,
        "frame header: not the secret of this job: a process of another job sent it, or of an earlier one");
  }
  header.sequence = in.u32();
  header.credits = in.u16();
  const uint8_t kind = in.u8();
  header.control_credits = in.u8();
  header.kind = static_cast<FrameKind>(kind);
  const uint32_t expected = in.u32();
  if (const uint32_t found = header.checksum(bytes, payload); found != expected) {
    return error(Code::kCorruption, Scope::kPeer,
                 "a frame of {} bytes is damaged: its checksum is {:08x}, expected {:08x}; a link or memory "
                 "changes bits; if it happens again, report it with the fabric in use (UCX_TLS, "
                 "UCX_NET_DEVICES)",
                 payload.size(), found, expected);
  }
  if (kind > static_cast<uint8_t>(FrameKind::kAbort) || header.control_credits > Router::kControlWindow) {
    return error(Code::kCorruption, Scope::kPeer,
                 "frame header: unknown kind {} (last byte {}): do all ranks run the same version of Swale?",
                 kind, header.control_credits);
  }
  return header;
}

Router::Router(const Params& params) : params_(params) {
  assert(params.window >= 1 && params.window <= 1024);
}

Router::Peer& Router::peer(Rank rank) {
  assert(rank >= 0 && rank < params_.size && rank != params_.rank);
  if (Peer* const known = peers_.find(rank)) return *known;
  // A place in the ring first: if one of the two throws, nothing has changed.
  if (ready_.size() == peers_.met().size()) {
    std::vector<Rank> larger(2 * ready_.size() + 8);
    for (size_t i = 0; i < ready_count_; ++i) larger[i] = ready_[(ready_first_ + i) % ready_.size()];
    ready_ = std::move(larger);
    ready_first_ = 0;
  }
  Peer& made = peers_.meet(rank);
  made.credits = params_.window;
  return made;
}

Router::Peer& Router::known_peer(Rank rank) {
  Peer* const known = peers_.find(rank);
  assert(known != nullptr);
  return *known;
}

uint64_t Router::memory_bytes() const {
  constexpr uint64_t kDequeBytes = 576;  // libstdc++'s: a block and its map
  return sizeof(*this) + peers_.memory_bytes() + peers_.met().size() * kDequeBytes +
         ready_.capacity() * sizeof(Rank);
}

bool Router::head_may_leave(const Peer& peer) const {
  if (peer.queue.empty()) return false;
  if (peer.down) return true;
  const FrameKind kind = peer.queue.front().kind;
  if (kind == FrameKind::kData) return peer.credits > 0;
  return kind != FrameKind::kControl || peer.control_credits > 0;
}

bool Router::credit_frame_due(const Peer& peer) const {
  if (peer.down) return false;
  if (peer.probe || peer.control_owed >= kControlWindow / 2) return true;
  if (peer.owed == 0) return false;
  return peer.flush || peer.owed >= std::max(1, params_.window / 2);
}

void Router::make_ready(Rank rank) {
  Peer& p = peer(rank);
  if (p.ready || !(head_may_leave(p) || credit_frame_due(p))) return;
  p.ready = true;
  ready_[(ready_first_ + ready_count_++) % ready_.size()] = rank;
}

void Router::submit(Rank to, FrameKind kind, Bytes payload, uint64_t cookie) {
  peer(to).queue.push_back({kind, payload, cookie});
  ++queued_;
  if (kind == FrameKind::kData && !peer(to).down) ++unconsumed_;
  make_ready(to);
}

Post Router::stamp(Rank to, FrameKind kind, Bytes payload, uint64_t cookie) {
  Peer& p = peer(to);
  FrameHeader header;
  header.channel = params_.channel;
  header.secret = params_.secret;
  header.sequence = p.sequence_out++;
  header.credits = p.owed;
  header.control_credits = p.control_owed;
  header.kind = kind;
  p.owed = 0;
  p.control_owed = 0;
  p.flush = false;
  p.probe = false;
  return {to, header.encode(payload), payload, cookie};
}

std::optional<Post> Router::next_post() {
  while (ready_count_ != 0) {
    const Rank to = ready_[ready_first_];
    ready_first_ = (ready_first_ + 1) % ready_.size();
    --ready_count_;
    Peer& p = peer(to);
    p.ready = false;
    std::optional<Post> post;
    if (head_may_leave(p)) {
      const Outgoing next = p.queue.front();
      p.queue.pop_front();
      --queued_;
      if (next.kind == FrameKind::kData && !p.down) --p.credits;
      if (next.kind == FrameKind::kControl && !p.down) --p.control_credits;
      post = stamp(to, next.kind, next.payload, next.cookie);
    } else if (credit_frame_due(p)) {
      post = stamp(to, FrameKind::kCredit, Bytes(), kNoCookie);
    } else {
      continue;  // its reason to be here left with an earlier frame, or it went down
    }
    make_ready(to);
    return post;
  }
  if (queued_ > 0) ++waits_for_credit_;
  return std::nullopt;
}

Status Router::on_frame(Rank from, const FrameHeader& header) {
  if (from < 0 || from >= params_.size || from == params_.rank) {
    return error(Code::kCorruption, Scope::kPeer, "rank {}: a frame claims to come from rank {} of {}",
                 params_.rank, from, params_.size);
  }
  Peer& p = peer(from);
  if (p.down) return ok_status();
  if (header.sequence != p.sequence_in) {
    return error(
        Code::kCorruption, Scope::kPeer,
        "rank {}, channel {}: expected frame {} from rank {}, found frame {}: the fabric lost, doubled or "
        "reordered a frame; if it happens again, report it with the fabric in use (UCX_TLS, UCX_NET_DEVICES)",
        params_.rank, params_.channel, p.sequence_in, from, header.sequence);
  }
  ++p.sequence_in;
  SWALE_RETURN_IF_ERROR(take_credits(from, header));
  if (header.kind == FrameKind::kData) {
    if (p.held + p.owed >= params_.window) return without_credit(from, header, params_.window);
    ++p.held;
  } else if (header.kind == FrameKind::kControl) {
    if (p.control_owed >= kControlWindow) return without_credit(from, header, kControlWindow);
    ++p.control_owed;
  }
  make_ready(from);
  return ok_status();
}

Status Router::take_credits(Rank from, const FrameHeader& header) {
  Peer& p = peer(from);
  if (p.credits + header.credits > params_.window ||
      p.control_credits + header.control_credits > kControlWindow) {
    return error(Code::kCorruption, Scope::kPeer,
                 "rank {}, channel {}: rank {} gave {} credits and {} for control in frame {}, at most {} of "
                 "the window of {} and {} of {} were out",
                 params_.rank, params_.channel, from, header.credits, header.control_credits, header.sequence,
                 params_.window - p.credits, params_.window, kControlWindow - p.control_credits,
                 kControlWindow);
  }
  p.credits = static_cast<uint16_t>(p.credits + header.credits);
  unconsumed_ -= header.credits;
  p.control_credits = static_cast<uint8_t>(p.control_credits + header.control_credits);
  return ok_status();
}

Status Router::without_credit(Rank from, const FrameHeader& header, int window) const {
  return error(
      Code::kCorruption, Scope::kPeer,
      "rank {}, channel {}: rank {} sent {} frame {} without credit (window {}; do all ranks run with "
      "the same options?)",
      params_.rank, params_.channel, from, header.kind == FrameKind::kData ? "data" : "control",
      header.sequence, window);
}

void Router::consumed(Rank from) {
  Peer& p = known_peer(from);
  assert(p.held > 0 && "consumed more data frames than arrived");
  --p.held;
  ++p.owed;
  make_ready(from);
}

void Router::flush_credits() {
  for (const Rank rank : peers_.met()) flush_credits(rank);
}

void Router::flush_credits(Rank to) {
  Peer& p = known_peer(to);
  if (p.owed == 0) return;
  p.flush = true;
  make_ready(to);
}

void Router::probe() {
  for (const Rank rank : peers_.met()) {
    if (known_peer(rank).sequence_out == 0) continue;
    known_peer(rank).probe = true;
    make_ready(rank);
  }
}

void Router::on_down(Rank rank, std::vector<uint64_t>* dropped) {
  Peer& p = peer(rank);
  if (p.down) return;
  dropped->reserve(dropped->size() + p.queue.size());
  p.down = true;
  queued_ -= p.queue.size();
  unconsumed_ -= params_.window - p.credits;
  for (const Outgoing& frame : p.queue) {
    unconsumed_ -= frame.kind == FrameKind::kData ? 1 : 0;
    if (frame.cookie != kNoCookie) dropped->push_back(frame.cookie);
  }
  p.queue.clear();
}

void Router::abandon_data(std::vector<uint64_t>* dropped) {
  dropped->reserve(dropped->size() + queued_);
  for (const Rank rank : peers_.met()) {
    std::deque<Outgoing>& queue = known_peer(rank).queue;
    const auto first = std::stable_partition(
        queue.begin(), queue.end(), [](const Outgoing& frame) { return frame.kind != FrameKind::kData; });
    for (auto frame = first; frame != queue.end(); ++frame) {
      if (frame->cookie != kNoCookie) dropped->push_back(frame->cookie);
    }
    queued_ -= static_cast<size_t>(queue.end() - first);
    if (!known_peer(rank).down) unconsumed_ -= static_cast<uint64_t>(queue.end() - first);
    queue.erase(first, queue.end());
    make_ready(rank);
  }
}

}  // namespace swale::net
