// HopLinks: the links of one hop of the three-hop route: frames to fill, frames that came and wait, order and credits.
//
// Sending: each link has a frame that no other link can take, and may have more from a pool that all links share. Messages
// for one link fill its frame; a full one leaves when the peer has given credit.
// Receiving: at most Params::window frames of each peer are unread here; they lie in a pool that all links share.
// Both pools are taken when the links are made: buffer_bytes().
//
// Threads: none; the owner serialises calls. Errors: create: kResourceExhausted. on_frame: kCorruption (scope peer).
//   submit and on_frame may throw std::bad_alloc and have done nothing then.
// Limits: 2^20 frames a hop; frames of at least kHopFrameBytesMin.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "net/router.h"

namespace swale::net {

inline constexpr size_t kHopFrameBytesMin = 1 * kKiB;

class HopLinks {
 public:
  struct Params {
    int hop = 1;  // 1, 2, 3: for messages
    uint32_t channel = 0;
    uint64_t secret = 0;
    size_t frame_bytes = 16 * kKiB;
    uint32_t shared_frames = 8;  // for sending, beyond one a link
    uint16_t window = 1;         // unread frames a link; the same at both ends
  };
  // peers[link] is the rank at the other end; `self` only for messages.
  static Result<HopLinks> create(const Params& params, Rank self, std::vector<Rank> peers);

  size_t size() const { return peers_.size(); }
  Rank peer(size_t link) const { return peers_[link]; }
  size_t frame_bytes() const { return params_.frame_bytes; }
  uint64_t buffer_bytes() const { return send_memory_.size() + receive_memory_.size(); }
  uint64_t state_bytes() const;  // all the rest, about

  // -- Sending
  // Appends both to the link's frame. False: no frame is free; try again after on_sent.
  bool append(size_t link, Bytes head, Bytes body);
  // The frame that is being filled leaves, however little is in it.
  void submit(size_t link);
  void submit_all();
  bool idle() const;  // all frames are free and nothing waits

  // -- The wire
  std::optional<Post> next_post();  // its `to` is a rank, its cookie a frame of these links
  void on_sent(uint64_t cookie);
  // The frame is counted as unread until consumed. After a failure the links are of no use any more.
  Status on_frame(size_t link, const FrameHeader& header);
  void consumed(size_t link) { router_->consumed(static_cast<Rank>(link)); }
  void flush_credits() { router_->flush_credits(); }
  void probe() { router_->probe(); }
  void on_down(size_t link);

  // -- Frames that wait to be read
  void hold(size_t link, Bytes rest);
  bool holds(size_t link) const { return !in_[link].empty(); }
  Bytes front(size_t link) const;
  void advance(size_t link, size_t bytes) { in_[link].front().read += static_cast<uint32_t>(bytes); }
  void pop(size_t link);  // and consumed

 private:
  static constexpr uint32_t kNoFrame = UINT32_MAX;

  struct Held {
    uint32_t frame;
    uint32_t bytes;
    uint32_t read;
  };
  struct Out {
    uint32_t frame = kNoFrame;  // being filled
    uint32_t used = 0;
    uint32_t frames = 0;  // of this link, lent or waiting
  };

  HopLinks(const Params& params, Rank self, std::vector<Rank> peers, Buffer send, Buffer receive);
  bool take_frame(size_t link);
  void release(uint32_t frame);

  Params params_;
  Rank self_;
  std::vector<Rank> peers_;
  Buffer send_memory_;
  Buffer receive_memory_;
  std::vector<Out> out_;
  std::vector<uint32_t> free_frames_;
  std::vector<uint32_t> owner_;  // link of each frame in use
  size_t links_without_frame_;   // each of them has a right to one
  std::vector<std::deque<Held>> in_;
  std::vector<uint32_t> free_slots_;
  std::unique_ptr<Router> router_;  // whose ranks are links; this rank is the last
};

}  // namespace swale::net
