#include "net/route/threehop_router.h"

#include <algorithm>
#include <cassert>

#include "base/coding.h"

namespace swale::net {
namespace {

constexpr uint64_t kCookieKinds = ThreeHopRouter::kChannels;  // frames of each hop, messages of the barriers

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

uint8_t tag_of(uint32_t epoch) { return static_cast<uint8_t>(epoch); }

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

Result<std::unique_ptr<ThreeHopRouter>> ThreeHopRouter::create(const Params& params, MessageSink* sink) {
  std::unique_ptr<ThreeHopRouter> router(new ThreeHopRouter(params, sink));
  SWALE_RETURN_IF_ERROR(router->make_links());
  return router;
}

ThreeHopRouter::ThreeHopRouter(const Params& params, MessageSink* sink)
    : params_(params),
      sink_(sink),
      seat_(params.nodes->seat(params.rank)),
      barrier_(params_.nodes.get(), params.rank),
      barrier_router_({.rank = params.rank,
                       .size = params.nodes->ranks(),
                       .channel = params.channel + kHops,
                       .secret = params.secret}) {}

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
  peers_ = local_peers;
  peers_.insert(peers_.end(), remote_peers.begin(), remote_peers.end());
  message_bytes_max_ = message_bytes_max(params_.hops);
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
    Hop& own = hops_[index_of(hop)];
    own.in.resize(links.size());
    own.waiting.reserve(links.size());
    own.out.resize(links.size());
    links_.push_back(std::move(links));
  }
  return ok_status();
}

uint64_t ThreeHopRouter::buffer_bytes() const {
  uint64_t bytes = 0;
  for (const HopLinks& links : links_) bytes += links.buffer_bytes();
  return bytes;
}

uint64_t ThreeHopRouter::state_bytes() const {
  uint64_t bytes = sizeof(*this) + peers_.capacity() * sizeof(Rank) + barrier_router_.memory_bytes();
  for (const HopLinks& links : links_) {
    bytes += links.state_bytes() + links.size() * (sizeof(InLink) + sizeof(OutLink) + sizeof(uint32_t));
  }
  return bytes;
}

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
  if (!links_[index_of(hop)].append(link, head, message)) return false;
  ++hops_[index_of(hop)].out[link].messages;
  return true;
}

bool ThreeHopRouter::send(Rank to, Bytes message) {
  assert(message.size() <= message_bytes_max_);
  if (!failure_.ok()) return false;
  const bool sent = !ending() && try_send(to, message);
  refused_ = refused_ || !sent;
  return sent;
}

bool ThreeHopRouter::try_send(Rank to, Bytes message) {
  if (to == params_.rank) return deliver(to, message) == Step::kTaken;
  const Seat seat = params_.nodes->seat(to);
  if (seat.node == seat_.node) {
    const Head head(static_cast<uint64_t>(params_.rank) + 1, message.size());
    return put(3, local_link(seat.local), head.bytes(), message);
  }
  const auto local = static_cast<uint64_t>(seat.local);
  const int32_t representative = params_.nodes->local_representative(seat_.node, seat.node);
  if (representative == seat_.local) {
    const Head head(local + 1, static_cast<uint64_t>(seat_.local), message.size());
    return put(2, node_link(seat.node), head.bytes(), message);
  }
  const Head head(static_cast<uint64_t>(seat.node) + 1, local, message.size());
  return put(1, local_link(representative), head.bytes(), message);
}

void ThreeHopRouter::flush() {
  for (HopLinks& links : links_) links.submit_all();
}

// -- The end of an epoch

void ThreeHopRouter::end_epoch() {
  assert(!ending());
  begin_end_of(1);
  pump();
}

// Nothing more is put into the frames of this hop: what feeds it has ended.
void ThreeHopRouter::begin_end_of(int hop) {
  Hop& own = hops_[index_of(hop)];
  ending_hop_ = hop;
  come_ = false;
  for (OutLink& to : own.out) {
    to.end_due = to.messages != 0;
    own.ends_due += to.end_due ? 1 : 0;
  }
  put_due_ends(hop);
}

void ThreeHopRouter::put_due_ends(int hop) {
  Hop& own = hops_[index_of(hop)];
  for (size_t link = 0; own.ends_due > 0 && link < own.out.size(); ++link) {
    OutLink& to = own.out[link];
    if (!to.end_due) continue;
    const Head head(0, to.messages);
    if (!links_[index_of(hop)].append(link, head.bytes(), Bytes())) continue;
    links_[index_of(hop)].submit(link);
    to = {};
    --own.ends_due;
  }
}

// True: frames that had to wait may be read now.
bool ThreeHopRouter::advance_end() {
  if (!ending()) return false;
  if (!come_) {
    if (hops_[index_of(ending_hop_)].ends_due != 0 || !links_[index_of(ending_hop_)].all_consumed())
      return false;
    come_ = true;
    barrier_.come(ending_hop_);
  }
  if (!barrier_.take_release()) return false;
  ending_hop_ < kHops ? begin_end_of(ending_hop_ + 1) : complete_epoch();
  return true;
}

void ThreeHopRouter::complete_epoch() {
  ending_hop_ = 0;
  const uint32_t complete = complete_epochs_++;
  for (HopLinks& links : links_) links.set_tag(tag_of(complete_epochs_));
  refused_ = true;  // sends were, or would have been
  sink_->epoch_complete(complete);
}

void ThreeHopRouter::post_barrier() {
  for (std::deque<HopBarrier::Outgoing>& outgoing = barrier_.outgoing(); !outgoing.empty();
       outgoing.pop_front()) {
    auto& [to, message] = outgoing.front();
    const uint32_t place = barrier_messages_.add(std::move(message));
    try {
      barrier_router_.submit(to, FrameKind::kControl, barrier_messages_.bytes(place), place);
    } catch (...) {
      message = barrier_messages_.release(place);
      throw;
    }
  }
}

Status ThreeHopRouter::on_barrier_frame(Rank from, const FrameHeader& header, Bytes payload) {
  SWALE_RETURN_IF_ERROR(barrier_router_.on_frame(from, header));
  return header.kind == FrameKind::kControl ? barrier_.on_message(from, payload) : ok_status();
}

std::string ThreeHopRouter::waiting_for() const {
  if (!ending()) return "nothing";
  if (!come_) return fmt::format("ranks to read what was sent by hop {}", ending_hop_);
  const Rank missing = barrier_.missing();
  return missing < 0 ? fmt::format("all ranks to end hop {}", ending_hop_)
                     : fmt::format("rank {} to end hop {}", missing, ending_hop_);
}

// -- Receiving

ThreeHopRouter::Step ThreeHopRouter::malformed(int hop, size_t link, const char* what) {
  fail(error(Code::kCorruption, Scope::kPeer, "rank {}, hop {}: a frame of rank {} {}", params_.rank, hop,
             links_[index_of(hop)].peer(link), what));
  return Step::kFailed;
}

ThreeHopRouter::Step ThreeHopRouter::deliver(Rank source, Bytes message) {
  return sink_->deliver(source, message) ? Step::kTaken : Step::kBlocked;
}

ThreeHopRouter::Step ThreeHopRouter::take_end(int hop, size_t link, Reading* in) {
  InLink& from = hops_[index_of(hop)].in[link];
  const uint64_t messages = in->varint();
  if (!in->ok) return malformed(hop, link, "is malformed");
  if (messages != from.messages) {
    fail(error(
        Code::kCorruption, Scope::kPeer,
        "rank {}, hop {}: rank {} has sent {} messages in epoch {}, and {} have come: do all ranks run the "
        "same version of Swale?",
        params_.rank, hop, links_[index_of(hop)].peer(link), messages, complete_epochs_, from.messages));
    return Step::kFailed;
  }
  from = {.messages = 0, .credit_due = true};
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
  if (local == seat_.local) return deliver(source, message);
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
    step = deliver(static_cast<Rank>(first - 1), message);
  }
  if (step == Step::kTaken) ++hops_[index_of(hop)].in[link].messages;
  return step;
}

size_t ThreeHopRouter::read(int hop, size_t link, Bytes bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    Reading in{bytes.data() + done, bytes.data() + bytes.size()};
    if (read_one(hop, link, &in) != Step::kTaken) break;
    done = static_cast<size_t>(in.at - bytes.data());
  }
  return done;
}

void ThreeHopRouter::on_frame(Rank from, const FrameHeader& header, Bytes payload) {
  if (!failure_.ok()) return;
  const int hop = static_cast<int>(header.channel - params_.channel) + 1;
  if (hop > kHops) {
    if (Status status = on_barrier_frame(from, header, payload); !status.ok()) return fail(status);
    return pump();
  }
  const auto link = find_link(hop, from);
  if (!link.ok()) return fail(link.status());
  if (Status status = links_[index_of(hop)].on_frame(*link, header); !status.ok()) return fail(status);
  if (header.kind == FrameKind::kData) take_data(hop, *link, payload);
  pump();
}

// Reads the frame, or as much of it as may be read now.
void ThreeHopRouter::take_data(int hop, size_t link, Bytes payload) {
  HopLinks& links = links_[index_of(hop)];
  if (payload.size() <= kHopTagBytes || payload.size() > links.frame_bytes()) {
    malformed(hop, link, "has an impossible length");
    return;
  }
  const auto tag = static_cast<uint8_t>(payload.front());
  const bool ahead = tag == tag_of(complete_epochs_ + 1);
  if (!ahead && tag != tag_of(complete_epochs_)) {
    malformed(hop, link, "is of another epoch");
    return;
  }
  const Bytes messages = payload.substr(kHopTagBytes);
  const bool holds = links.holds(link);
  const size_t done = holds || ahead ? 0 : read(hop, link, messages);
  if (!failure_.ok()) return;
  if (done == messages.size()) {
    links.consumed(link);
    return give_credit(hop, link);
  }
  links.hold(link, tag, messages.substr(done));
  if (!holds) hops_[index_of(hop)].waiting.push_back(static_cast<uint32_t>(link));
}

void ThreeHopRouter::give_credit(int hop, size_t link) {
  if (std::exchange(hops_[index_of(hop)].in[link].credit_due, false))
    links_[index_of(hop)].flush_credits(link);
}

void ThreeHopRouter::read_waiting(int hop) {
  std::vector<uint32_t>& waiting = hops_[index_of(hop)].waiting;
  HopLinks& links = links_[index_of(hop)];
  size_t kept = 0;
  for (size_t i = 0; i < waiting.size(); ++i) {
    const uint32_t link = waiting[i];
    while (failure_.ok() && links.holds(link) && links.front_tag(link) == tag_of(complete_epochs_)) {
      const Bytes front = links.front(link);
      const size_t done = read(hop, link, front);
      links.advance(link, done);
      if (done < front.size()) break;
      links.pop(link);
      give_credit(hop, link);
    }
    if (links.holds(link)) waiting[kept++] = link;
  }
  waiting.resize(kept);
  // Another one begins next time, so that none is always last.
  if (kept > 1) std::rotate(waiting.begin(), waiting.begin() + 1, waiting.end());
}

void ThreeHopRouter::pump() {
  do {
    for (int hop = kHops; hop >= 1 && failure_.ok(); --hop) {
      put_due_ends(hop);
      read_waiting(hop);
    }
  } while (failure_.ok() && advance_end());
  if (!failure_.ok()) return;
  post_barrier();
  if (!ending() && std::exchange(refused_, false)) sink_->may_send();
}

// -- The wire

std::optional<Post> ThreeHopRouter::next_post() {
  if (!failure_.ok()) return std::nullopt;
  std::optional<Post> post = barrier_router_.next_post();
  size_t kind = kHops;
  while (!post.has_value() && kind-- > 0) post = links_[kind].next_post();
  if (post.has_value() && post->cookie != kNoCookie) post->cookie = post->cookie * kCookieKinds + kind;
  return post;
}

void ThreeHopRouter::on_sent(uint64_t cookie) {
  if (cookie == kNoCookie) return;
  const uint64_t kind = cookie % kCookieKinds;
  if (kind == kHops) {
    barrier_messages_.release(static_cast<uint32_t>(cookie / kCookieKinds));
    return;
  }
  links_[kind].on_sent(cookie / kCookieKinds);
  if (failure_.ok()) pump();
}

void ThreeHopRouter::on_down(Rank peer, const Status& why) {
  std::vector<uint64_t> dropped;
  barrier_router_.on_down(peer, &dropped);
  for (const uint64_t place : dropped) barrier_messages_.release(static_cast<uint32_t>(place));
  for (int hop = 1; hop <= kHops; ++hop) {
    const auto link = find_link(hop, peer);
    if (!link.ok()) continue;
    links_[index_of(hop)].on_down(*link);
    fail(error(Code::kUnavailable, Scope::kPeer,
               "rank {}: rank {}, which carries messages of hop {} (node {}), is gone: {}", params_.rank,
               peer, hop, params_.nodes->seat(peer).node, why.message()));
  }
}

void ThreeHopRouter::flush_credits() {
  for (HopLinks& links : links_) links.flush_credits();
}

void ThreeHopRouter::probe() {
  for (HopLinks& links : links_) links.probe();
  barrier_router_.probe();
}

void ThreeHopRouter::resume() {
  if (failure_.ok()) pump();
}

void ThreeHopRouter::fail(const Status& why) {
  if (failure_.ok()) failure_ = why;
}

bool ThreeHopRouter::idle() const {
  return barrier_router_.idle() &&
         std::all_of(links_.begin(), links_.end(), [](const HopLinks& links) { return links.idle(); }) &&
         std::all_of(hops_.begin(), hops_.end(), [](const Hop& hop) { return hop.waiting.empty(); });
}

uint64_t ThreeHopRouter::waits_for_credit() const {
  return links_[0].waits_for_credit() + links_[1].waits_for_credit() + links_[2].waits_for_credit();
}

uint64_t ThreeHopRouter::data_frames() const {
  return links_[0].data_frames() + links_[1].data_frames() + links_[2].data_frames();
}

uint64_t ThreeHopRouter::data_bytes() const {
  return links_[0].data_bytes() + links_[1].data_bytes() + links_[2].data_bytes();
}

}  // namespace swale::net
