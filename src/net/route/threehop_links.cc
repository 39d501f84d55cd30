#include "net/route/threehop_links.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace swale::net {
Result<HopLinks> HopLinks::create(const Params& params, Rank self, std::vector<Rank> peers) {
  assert(params.frame_bytes >= kHopFrameBytesMin);
  const size_t links = peers.size();
  const size_t send_frames = links == 0 ? 0 : links + params.shared_frames;
  SWALE_ASSIGN_OR_RETURN(Buffer send, Buffer::allocate(send_frames * params.frame_bytes));
  SWALE_ASSIGN_OR_RETURN(Buffer receive, Buffer::allocate(links * params.window * params.frame_bytes));
  return HopLinks(params, self, std::move(peers), std::move(send), std::move(receive));
}

HopLinks::HopLinks(const Params& params, Rank self, std::vector<Rank> peers, Buffer send, Buffer receive)
    : params_(params),
      self_(self),
      peers_(std::move(peers)),
      send_memory_(std::move(send)),
      receive_memory_(std::move(receive)),
      out_(peers_.size()),
      owner_(send_memory_.size() / params.frame_bytes),
      links_without_frame_(peers_.size()),
      in_(peers_.size()),
      router_(std::make_unique<Router>(Router::Params{.rank = static_cast<Rank>(peers_.size()),
                                                      .size = static_cast<int32_t>(peers_.size()) + 1,
                                                      .channel = params.channel,
                                                      .secret = params.secret,
                                                      .window = params.window})) {
  for (uint32_t frame = 0; frame < owner_.size(); ++frame) free_frames_.push_back(frame);
  const size_t slots = receive_memory_.size() / params.frame_bytes;
  for (uint32_t slot = 0; slot < slots; ++slot) free_slots_.push_back(slot);
}

uint64_t HopLinks::state_bytes() const {
  constexpr uint64_t kDequeBytes = 576;  // libstdc++'s: a block and its map
  return peers_.size() * (sizeof(Rank) + sizeof(Out) + kDequeBytes) + router_->memory_bytes() +
         (owner_.size() * 2 + free_slots_.capacity()) * sizeof(uint32_t);
}

// A link that has none yet takes the one that is kept for it.
bool HopLinks::frame_available(const Out& out) const {
  return out.frames == 0 || free_frames_.size() > links_without_frame_;
}

bool HopLinks::has_space(size_t link, size_t bytes) const {
  const Out& out = out_[link];
  return (out.frame != kNoFrame && out.used + bytes <= params_.frame_bytes) || frame_available(out);
}

bool HopLinks::take_frame(size_t link) {
  Out& out = out_[link];
  if (!frame_available(out)) return false;
  assert(!free_frames_.empty());
  if (out.frames == 0) --links_without_frame_;
  ++out.frames;
  out.frame = free_frames_.back();
  out.used = kHopTagBytes;
  free_frames_.pop_back();
  owner_[out.frame] = static_cast<uint32_t>(link);
  send_memory_.data()[out.frame * params_.frame_bytes] = static_cast<char>(tag_);
  return true;
}

void HopLinks::release(uint32_t frame) {
  Out& out = out_[owner_[frame]];
  if (--out.frames == 0) ++links_without_frame_;
  free_frames_.push_back(frame);
}

bool HopLinks::append(size_t link, Bytes head, Bytes body) {
  Out& out = out_[link];
  const size_t bytes = head.size() + body.size();
  assert(bytes < params_.frame_bytes);
  if (out.frame != kNoFrame && out.used + bytes > params_.frame_bytes) submit(link);
  if (out.frame == kNoFrame && !take_frame(link)) return false;
  char* const at = send_memory_.data() + out.frame * params_.frame_bytes + out.used;
  std::memcpy(at, head.data(), head.size());
  if (!body.empty()) std::memcpy(at + head.size(), body.data(), body.size());
  out.used += static_cast<uint32_t>(bytes);
  return true;
}

void HopLinks::submit(size_t link) {
  Out& out = out_[link];
  if (out.frame == kNoFrame) return;
  const Bytes payload(send_memory_.data() + out.frame * params_.frame_bytes, out.used);
  router_->submit(static_cast<Rank>(link), FrameKind::kData, payload, out.frame);
  ++data_frames_;
  data_bytes_ += out.used;
  out.frame = kNoFrame;
}

void HopLinks::submit_all() {
  for (size_t link = 0; link < out_.size(); ++link) submit(link);
}

bool HopLinks::idle() const { return free_frames_.size() == owner_.size() && router_->idle(); }

std::optional<Post> HopLinks::next_post() {
  std::optional<Post> post = router_->next_post();
  if (post.has_value()) post->to = peers_[static_cast<size_t>(post->to)];
  return post;
}

void HopLinks::on_sent(uint64_t cookie) {
  if (cookie != kNoCookie) release(static_cast<uint32_t>(cookie));
}

Status HopLinks::on_frame(size_t link, const FrameHeader& header) {
  Status status = router_->on_frame(static_cast<Rank>(link), header);
  if (status.ok()) return status;
  return status.with_context(
      fmt::format("rank {}, hop {}, link {} from rank {}", self_, params_.hop, link, peers_[link]));
}

void HopLinks::on_down(size_t link) {
  std::vector<uint64_t> dropped;
  router_->on_down(static_cast<Rank>(link), &dropped);
  for (const uint64_t cookie : dropped) on_sent(cookie);
}

void HopLinks::hold(size_t link, uint8_t tag, Bytes rest) {
  assert(!free_slots_.empty() && rest.size() <= params_.frame_bytes && "credits bound what comes");
  const uint32_t slot = free_slots_.back();
  in_[link].push_back({slot, static_cast<uint32_t>(rest.size()), 0, tag});
  free_slots_.pop_back();
  std::memcpy(receive_memory_.data() + slot * params_.frame_bytes, rest.data(), rest.size());
}

Bytes HopLinks::front(size_t link) const {
  const Held& held = in_[link].front();
  return {receive_memory_.data() + held.frame * params_.frame_bytes + held.read, held.bytes - held.read};
}

void HopLinks::pop(size_t link) {
  free_slots_.push_back(in_[link].front().frame);
  in_[link].pop_front();
  consumed(link);
}

}  // namespace swale::net
