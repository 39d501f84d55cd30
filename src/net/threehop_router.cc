#include "net/threehop_router.h"

#include <algorithm>
#include <cassert>

#include "base/coding.h"

namespace swale::net {
namespace {

constexpr size_t kHeadBytesMax = 16;
constexpr uint32_t kSharedFrames = 8;
constexpr uint16_t kWindowMax = 8;

// What stands before a message on each hop; 0 in the first place is an END. A first place is at least 1.
class Head {
 public:
  Head(uint64_t first, uint64_t second) { add(first), add(second); }
  Head(uint64_t first, uint64_t second, uint64_t third) { add(first), add(second), add(third); }
  Bytes bytes() const { return {bytes_, used_}; }

 private:
  void add(uint64_t value) { used_ = static_cast<size_t>(put_varint(bytes_ + used_, value) - bytes_); }

  char bytes_[3 * kVarint64BytesMax];
  size_t used_ = 0;
};

size_t index_of(int hop) { return static_cast<size_t>(hop) - 1; }

struct Shape {
  uint64_t local_links = 0;   // of hops 1 and 3
  uint64_t remote_links = 0;  // of hop 2
};

// Of the ranks that have most.
Shape largest_shape(const NodeMap& nodes) {
  Shape shape;
  int32_t least = nodes.ranks();
  for (int32_t node = 0; node < nodes.nodes(); ++node) {
    least = std::min(least, nodes.ranks_on(node));
    shape.local_links =
        std::max<uint64_t>(shape.local_links, static_cast<uint64_t>(nodes.ranks_on(node)) - 1);
  }
  shape.remote_links = static_cast<uint64_t>((nodes.nodes() - 1 + least - 1) / least);
  return shape;
}

uint64_t buffers_of(uint64_t links, const ThreeHopRouter::HopParams& hop) {
  return links == 0 ? 0 : (links + hop.shared_frames + links * hop.window) * hop.frame_bytes;
}

}  // namespace

uint64_t ThreeHopRouter::Reading::varint() {
  uint64_t value = 0;
  const char* const after = ok ? get_varint64(at, end, &value) : nullptr;
  ok = after != nullptr;
  if (!ok) return 0;
  at = after;
  return value;
}

Bytes ThreeHopRouter::Reading::rest(uint64_t bytes) {
  ok = ok && bytes <= static_cast<uint64_t>(end - at);
  if (!ok) return {};
  const Bytes found(at, bytes);
  at += bytes;
  return found;
}

// A message with its length before it. Fails for one that another hop could not carry.
Bytes ThreeHopRouter::Reading::message(size_t bytes_max) {
  const uint64_t bytes = varint();
  ok = ok && bytes <= bytes_max;
  return rest(bytes);
}

std::array<ThreeHopRouter::HopParams, ThreeHopRouter::kHops> ThreeHopRouter::hops_within(
    const NodeMap& nodes, uint64_t budget_bytes) {
  const Shape shape = largest_shape(nodes);
  std::array<HopParams, kHops> hops;
  for (HopParams& hop : hops) hop.shared_frames = kSharedFrames;
  hops[1].frame_bytes = 32 * kKiB;
  const auto total = [&] {
    return buffers_of(shape.local_links, hops[0]) + buffers_of(shape.remote_links, hops[1]) +
           buffers_of(shape.local_links, hops[2]);
  };
  // The largest frames first: the remote hop's, and then all in turn.
  while (total() > budget_bytes) {
    size_t largest = 1;
    for (size_t i = 0; i < hops.size(); ++i) {
      if (hops[i].frame_bytes > hops[largest].frame_bytes) largest = i;
    }
    if (hops[largest].frame_bytes / 2 < kHopFrameBytesMin) break;
    hops[largest].frame_bytes /= 2;
  }
  for (size_t i : {size_t{1}, size_t{2}, size_t{0}}) {
    while (hops[i].window < kWindowMax) {
      ++hops[i].window;
      if (total() <= budget_bytes) continue;
      --hops[i].window;
      break;
    }
  }
  return hops;
}

Result<std::unique_ptr<ThreeHopRouter>> ThreeHopRouter::create(const Params& params, MessageSink* sink) {
  std::unique_ptr<ThreeHopRouter> router(new ThreeHopRouter(params, sink));
  SWALE_RETURN_IF_ERROR(router->make_links());
  return router;
}

ThreeHopRouter::ThreeHopRouter(const Params& params, MessageSink* sink)
    : params_(params), sink_(sink), seat_(params.nodes->seat(params.rank)) {}

Status ThreeHopRouter::make_links() {
  const NodeMap& nodes = *params_.nodes;
  const int32_t locals = nodes.ranks_on(seat_.node);
  std::vector<Rank> local_peers, remote_peers;
  for (int32_t local = 0; local < locals; ++local) {
    if (local != seat_.local) local_peers.push_back(nodes.rank_at(seat_.node, local));
  }
  for (int32_t distance = seat_.local == 0 ? locals : seat_.local; distance < nodes.nodes();
       distance += locals) {
    const int32_t node = (seat_.node + distance) % nodes.nodes();
    remote_peers.push_back(nodes.representative(node, seat_.node));
  }
  message_bytes_max_ = SIZE_MAX;
  for (int hop = 1; hop <= kHops; ++hop) {
    const HopParams& wanted = params_.hops[index_of(hop)];
    const HopLinks::Params hop_params{.hop = hop,
                                      .channel = params_.channel + static_cast<uint32_t>(index_of(hop)),
                                      .secret = params_.secret,
                                      .frame_bytes = wanted.frame_bytes,
                                      .shared_frames = wanted.shared_frames,
                                      .window = wanted.window};
    SWALE_ASSIGN_OR_RETURN(HopLinks links,
                           HopLinks::create(hop_params, params_.rank, hop == 2 ? remote_peers : local_peers));
    in_[index_of(hop)].links.resize(links.size());
    in_[index_of(hop)].waiting.reserve(links.size());
    out_[index_of(hop)].links.resize(links.size());
    hops_.push_back(std::move(links));
    message_bytes_max_ = std::min(message_bytes_max_, wanted.frame_bytes - kHeadBytesMax);
  }
  in_[0].expected = remote_peers.empty() ? 0 : local_peers.size();
  in_[1].expected = remote_peers.size();
  in_[2].expected = local_peers.size();
  return ok_status();
}

uint64_t ThreeHopRouter::buffer_bytes() const {
  uint64_t bytes = 0;
  for (const HopLinks& links : hops_) bytes += links.buffer_bytes();
  return bytes;
}

uint64_t ThreeHopRouter::state_bytes() const {
  uint64_t bytes = sizeof(*this);
  for (const HopLinks& links : hops_) {
    bytes += links.state_bytes() + links.size() * (sizeof(InLink) + sizeof(OutLink) + sizeof(uint32_t));
  }
  return bytes;
}

size_t ThreeHopRouter::peers() const { return hops_[0].size() + hops_[1].size(); }

size_t ThreeHopRouter::node_link(int32_t node) const {
  const int32_t nodes = params_.nodes->nodes();
  const int32_t locals = params_.nodes->ranks_on(seat_.node);
  const int32_t distance = (node - seat_.node + nodes) % nodes;
  return static_cast<size_t>(distance / locals - (seat_.local == 0 ? 1 : 0));
}

int32_t ThreeHopRouter::node_of(size_t link) const {
  const int32_t locals = params_.nodes->ranks_on(seat_.node);
  const int32_t round = static_cast<int32_t>(link) + (seat_.local == 0 ? 1 : 0);
  return (seat_.node + round * locals + seat_.local) % params_.nodes->nodes();
}

Result<size_t> ThreeHopRouter::find_link(int hop, Rank from) const {
  const NodeMap& nodes = *params_.nodes;
  if (from >= 0 && from < nodes.ranks() && from != params_.rank) {
    const Seat seat = nodes.seat(from);
    if (hop != 2 && seat.node == seat_.node) return local_link(seat.local);
    if (hop == 2 && seat.node != seat_.node && nodes.representative(seat.node, seat_.node) == from &&
        nodes.local_representative(seat_.node, seat.node) == seat_.local) {
      return node_link(seat.node);
    }
  }
  return error(
      Code::kCorruption, Scope::kPeer,
      "rank {}: a frame of hop {} came from rank {}, which has no such link: do all ranks know the same "
      "nodes?",
      params_.rank, hop, from);
}

// -- Sending

bool ThreeHopRouter::put(int hop, size_t link, Bytes head, Bytes message) {
  OutLink& out = out_[index_of(hop)].links[link];
  if (out.end_due || !hops_[index_of(hop)].append(link, head, message)) return false;
  ++out.messages;
  return true;
}

bool ThreeHopRouter::send(Rank to, Bytes message) {
  assert(message.size() <= message_bytes_max_);
  if (!failure_.ok()) return false;
  if (to == params_.rank) return deliver(own_epoch_, to, message) == Step::kTaken;
  const Seat seat = params_.nodes->seat(to);
  if (seat.node == seat_.node) {
    const Head head(static_cast<uint64_t>(params_.rank) + 1, message.size());
    return out_[2].epoch == own_epoch_ && put(3, local_link(seat.local), head.bytes(), message);
  }
  const auto local = static_cast<uint64_t>(seat.local);
  const int32_t representative = params_.nodes->local_representative(seat_.node, seat.node);
  if (representative == seat_.local) {
    const Head head(local + 1, static_cast<uint64_t>(seat_.local), message.size());
    return out_[1].epoch == own_epoch_ && put(2, node_link(seat.node), head.bytes(), message);
  }
  const Head head(static_cast<uint64_t>(seat.node) + 1, local, message.size());
  return out_[0].epoch == own_epoch_ && put(1, local_link(representative), head.bytes(), message);
}

void ThreeHopRouter::flush() {
  for (HopLinks& links : hops_) links.submit_all();
}

void ThreeHopRouter::end_epoch() {
  assert(!ending());
  ++own_epoch_;
  pump();
}

void ThreeHopRouter::end_outlet(int hop) {
  Outlet& out = out_[index_of(hop)];
  const int32_t nodes = params_.nodes->nodes();
  for (size_t link = 0; link < out.links.size(); ++link) {
    // On hop 1, only ranks that represent the node to another one wait for an END.
    const int32_t local = hop == 1 ? local_of(link) : 0;
    const int32_t nearest = local == 0 ? params_.nodes->ranks_on(seat_.node) : local;
    if (hop == 1 && nearest >= nodes) continue;
    out.links[link].end_due = true;
    ++out.ends_due;
  }
  ++out.epoch;
}

void ThreeHopRouter::put_due_ends(int hop) {
  Outlet& out = out_[index_of(hop)];
  for (size_t link = 0; out.ends_due > 0 && link < out.links.size(); ++link) {
    OutLink& to = out.links[link];
    if (!to.end_due) continue;
    const Head head(0, uint64_t{out.epoch} - 1, to.messages);
    if (!hops_[index_of(hop)].append(link, head.bytes(), Bytes())) continue;
    hops_[index_of(hop)].submit(link);
    to.end_due = false;
    to.messages = 0;
    --out.ends_due;
  }
}

// -- Receiving

ThreeHopRouter::Step ThreeHopRouter::malformed(int hop, size_t link, const char* what) {
  fail(error(Code::kCorruption, Scope::kPeer, "rank {}, hop {}: a frame of rank {} {}", params_.rank, hop,
             hops_[index_of(hop)].peer(link), what));
  return Step::kFailed;
}

ThreeHopRouter::Step ThreeHopRouter::deliver(uint32_t epoch, Rank source, Bytes message) {
  // Messages of the next epoch wait until the sink has all of this one.
  if (epoch != complete_epochs_) return Step::kBlocked;
  return sink_->deliver(source, message) ? Step::kTaken : Step::kBlocked;
}

ThreeHopRouter::Step ThreeHopRouter::take_end(int hop, size_t link, Reading* in) {
  Intake& intake = in_[index_of(hop)];
  InLink& from = intake.links[link];
  const uint64_t epoch = in->varint();
  const uint64_t messages = in->varint();
  if (!in->ok || epoch != intake.epoch) return malformed(hop, link, "ends another epoch");
  if (messages != from.messages) {
    fail(error(
        Code::kCorruption, Scope::kPeer,
        "rank {}, hop {}: rank {} has sent {} messages in epoch {}, and {} have come: do all ranks run the "
        "same version of Swale?",
        params_.rank, hop, hops_[index_of(hop)].peer(link), messages, epoch, from.messages));
    return Step::kFailed;
  }
  from.ended = true;
  from.messages = 0;
  ++intake.ended;
  return Step::kTaken;
}

ThreeHopRouter::Step ThreeHopRouter::from_local_to_node(size_t link, uint64_t first, Reading* in) {
  const uint64_t local = in->varint();
  const Bytes message = in->message(message_bytes_max_);
  const NodeMap& nodes = *params_.nodes;
  if (!in->ok || first > static_cast<uint64_t>(nodes.nodes())) return malformed(1, link, "is malformed");
  const auto node = static_cast<int32_t>(first - 1);
  if (node == seat_.node || nodes.local_representative(seat_.node, node) != seat_.local ||
      local >= static_cast<uint64_t>(nodes.ranks_on(node))) {
    return malformed(1, link, "is for a node that this rank does not represent its own to");
  }
  const Head head(local + 1, static_cast<uint64_t>(local_of(link)), message.size());
  return put(2, node_link(node), head.bytes(), message) ? Step::kTaken : Step::kBlocked;
}

ThreeHopRouter::Step ThreeHopRouter::from_node_to_local(size_t link, uint64_t first, Reading* in) {
  const uint64_t source_local = in->varint();
  const Bytes message = in->message(message_bytes_max_);
  const NodeMap& nodes = *params_.nodes;
  const int32_t source_node = node_of(link);
  if (!in->ok || first > static_cast<uint64_t>(nodes.ranks_on(seat_.node)) ||
      source_local >= static_cast<uint64_t>(nodes.ranks_on(source_node))) {
    return malformed(2, link, "is malformed");
  }
  const auto local = static_cast<int32_t>(first - 1);
  const Rank source = nodes.rank_at(source_node, static_cast<int32_t>(source_local));
  if (local == seat_.local) return deliver(in_[1].epoch, source, message);
  const Head head(static_cast<uint64_t>(source) + 1, message.size());
  return put(3, local_link(local), head.bytes(), message) ? Step::kTaken : Step::kBlocked;
}

ThreeHopRouter::Step ThreeHopRouter::read_one(int hop, size_t link, Reading* in) {
  const uint64_t first = in->varint();
  if (!in->ok) return malformed(hop, link, "is malformed");
  if (first == 0) return take_end(hop, link, in);
  Step step = Step::kFailed;
  if (hop == 1) {
    step = from_local_to_node(link, first, in);
  } else if (hop == 2) {
    step = from_node_to_local(link, first, in);
  } else {
    const Bytes message = in->message(message_bytes_max_);
    if (!in->ok || first > static_cast<uint64_t>(params_.nodes->ranks()))
      return malformed(3, link, "is malformed");
    step = deliver(in_[2].epoch, static_cast<Rank>(first - 1), message);
  }
  if (step == Step::kTaken) ++in_[index_of(hop)].links[link].messages;
  return step;
}

size_t ThreeHopRouter::read(int hop, size_t link, Bytes bytes) {
  const InLink& from = in_[index_of(hop)].links[link];
  size_t done = 0;
  while (done < bytes.size() && !from.ended) {
    Reading in{bytes.data() + done, bytes.data() + bytes.size()};
    if (read_one(hop, link, &in) != Step::kTaken) break;
    done = static_cast<size_t>(in.at - bytes.data());
  }
  return done;
}

void ThreeHopRouter::on_frame(Rank from, const FrameHeader& header, Bytes payload) {
  if (!failure_.ok()) return;
  const int hop = static_cast<int>(header.channel - params_.channel) + 1;
  const auto link = find_link(hop, from);
  if (!link.ok()) return fail(link.status());
  HopLinks& links = hops_[index_of(hop)];
  if (Status status = links.on_frame(*link, header); !status.ok()) return fail(status);
  if (header.kind == FrameKind::kData) {
    if (payload.size() > links.frame_bytes()) {
      malformed(hop, *link, "is too long");
      return;
    }
    const bool must_wait = links.holds(*link);
    const size_t done = must_wait ? 0 : read(hop, *link, payload);
    if (!failure_.ok()) return;
    if (done == payload.size()) {
      links.consumed(*link);
    } else {
      links.hold(*link, payload.substr(done));
      if (!must_wait) in_[index_of(hop)].waiting.push_back(static_cast<uint32_t>(*link));
    }
  }
  pump();
}

void ThreeHopRouter::read_waiting(int hop) {
  Intake& intake = in_[index_of(hop)];
  HopLinks& links = hops_[index_of(hop)];
  size_t kept = 0;
  for (size_t i = 0; i < intake.waiting.size(); ++i) {
    const uint32_t link = intake.waiting[i];
    while (failure_.ok() && links.holds(link)) {
      const Bytes front = links.front(link);
      const size_t done = read(hop, link, front);
      links.advance(link, done);
      if (done < front.size()) break;
      links.pop(link);
    }
    if (links.holds(link)) intake.waiting[kept++] = link;
  }
  intake.waiting.resize(kept);
  // Another one begins next time, so that none is always last.
  if (kept > 1) std::rotate(intake.waiting.begin(), intake.waiting.begin() + 1, intake.waiting.end());
}

bool ThreeHopRouter::intake_ended(int hop, uint32_t epoch) const {
  const Intake& intake = in_[index_of(hop)];
  return intake.epoch == epoch && intake.ended == intake.expected;
}

void ThreeHopRouter::next_epoch_of(Intake* intake) {
  for (InLink& link : intake->links) link.ended = false;
  intake->ended = 0;
  ++intake->epoch;
}

// An outlet ends when this rank and the hop before have ended; then that hop's next epoch may come in.
bool ThreeHopRouter::advance_epochs() {
  bool moved = false;
  for (int hop = 1; hop <= kHops; ++hop) {
    Outlet& out = out_[index_of(hop)];
    if (own_epoch_ == out.epoch || out.ends_due != 0) continue;
    if (hop > 1 && !intake_ended(hop - 1, out.epoch)) continue;
    end_outlet(hop);
    if (hop > 1) next_epoch_of(&in_[index_of(hop - 1)]);
    put_due_ends(hop);
    moved = true;
  }
  if (own_epoch_ != complete_epochs_ && in_[1].epoch > complete_epochs_ &&
      intake_ended(3, complete_epochs_)) {
    next_epoch_of(&in_[2]);
    sink_->epoch_complete(complete_epochs_++);
    moved = true;
  }
  return moved;
}

void ThreeHopRouter::pump() {
  do {
    for (int hop = kHops; hop >= 1 && failure_.ok(); --hop) {
      put_due_ends(hop);
      read_waiting(hop);
    }
  } while (failure_.ok() && advance_epochs());
}

// -- The wire

std::optional<Post> ThreeHopRouter::next_post() {
  if (!failure_.ok()) return std::nullopt;
  for (size_t i = kHops; i-- > 0;) {
    std::optional<Post> post = hops_[i].next_post();
    if (!post.has_value()) continue;
    if (post->cookie != kNoCookie) post->cookie = post->cookie * kHops + i;
    return post;
  }
  return std::nullopt;
}

void ThreeHopRouter::on_sent(uint64_t cookie) {
  if (cookie == kNoCookie) return;
  hops_[cookie % kHops].on_sent(cookie / kHops);
  if (failure_.ok()) pump();
}

void ThreeHopRouter::on_down(Rank peer, const Status& why) {
  for (int hop = 1; hop <= kHops; ++hop) {
    const auto link = find_link(hop, peer);
    if (!link.ok()) continue;
    hops_[index_of(hop)].on_down(*link);
    fail(error(Code::kUnavailable, Scope::kPeer,
               "rank {}: rank {}, which carries messages of hop {} (node {}), is gone: {}", params_.rank,
               peer, hop, params_.nodes->seat(peer).node, why.message()));
  }
}

void ThreeHopRouter::flush_credits() {
  for (HopLinks& links : hops_) links.flush_credits();
}

void ThreeHopRouter::probe() {
  for (HopLinks& links : hops_) links.probe();
}

void ThreeHopRouter::resume() {
  if (failure_.ok()) pump();
}

void ThreeHopRouter::fail(const Status& why) {
  if (failure_.ok()) failure_ = why;
}

bool ThreeHopRouter::idle() const {
  return std::all_of(hops_.begin(), hops_.end(), [](const HopLinks& links) { return links.idle(); }) &&
         std::all_of(in_.begin(), in_.end(), [](const Intake& intake) { return intake.waiting.empty(); });
}

}  // namespace swale::net
