// HopLinks: the links of one hop of the three-hop route: frames to fill, frames that came and wait, order and
// credits.
//
// Sending: each link has a frame that no other link can take, and may have more from a pool that all links
// share. Messages for one link fill its frame; a full one leaves when the peer has given credit.
// Receiving: at most Params::window frames of each peer are unread here; they lie in a pool that all links
// share. Both pools are taken when the links are made: buffer_bytes(). The first byte of a frame is its tag:
// the low byte of the number of its epoch. All messages of a frame are of one epoch.
//
// Threads: none; the owner serialises calls. Errors: create: kResourceExhausted. on_frame: kCorruption (scope
// peer).
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
#include "net/route/router.h"

namespace swale::net {

inline constexpr size_t kHopFrameBytesMin = 1 * kKiB;
inline constexpr size_t kHopTagBytes = 1;

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
  // Sets the tag of the frames that are begun from now on. Requires that none is being filled.
  void set_tag(uint8_t tag) { tag_ = tag; }
  // Appends both to the link's frame. False: no frame is free; try again after on_sent.
  bool append(size_t link, Bytes head, Bytes body);
  bool has_space(size_t link, size_t bytes) const;
  // The frame that is being filled leaves, however little is in it.
  void submit(size_t link);
  void submit_all();
  bool idle() const;  // all frames are free and nothing waits
  // Every frame that was submitted has been read by its receiver.
  bool all_consumed() const { return router_->unconsumed() == 0; }
  uint64_t waits_for_credit() const { return router_->waits_for_credit(); }
  // Since the links were made.
  uint64_t data_frames() const { return data_frames_; }
  uint64_t data_bytes() const { return data_bytes_; }

  // -- The wire
  std::optional<Post> next_post();  // its `to` is a rank, its cookie a frame of these links
  void on_sent(uint64_t cookie);
  // The frame is counted as unread until consumed. After a failure the links are of no use any more.
  Status on_frame(size_t link, const FrameHeader& header);
  void consumed(size_t link) { router_->consumed(static_cast<Rank>(link)); }
  void flush_credits() { router_->flush_credits(); }
  void flush_credits(size_t link) { router_->flush_credits(static_cast<Rank>(link)); }
  void probe() { router_->probe(); }
  void on_down(size_t link);

  // -- Frames that wait to be read
  // `rest` of a frame with this tag.
  void hold(size_t link, uint8_t tag, Bytes rest);
  bool holds(size_t link) const { return !in_[link].empty(); }
  Bytes front(size_t link) const;
  uint8_t front_tag(size_t link) const { return in_[link].front().tag; }
  void advance(size_t link, size_t bytes) { in_[link].front().read += static_cast<uint32_t>(bytes); }
  void pop(size_t link);  // and consumed

 private:
  static constexpr uint32_t kNoFrame = UINT32_MAX;

  struct Held {
    uint32_t frame;
    uint32_t bytes;
    uint32_t read;
    uint8_t tag;
  };
  struct Out {
    uint32_t frame = kNoFrame;  // being filled
    uint32_t used = 0;
    uint32_t frames = 0;  // of this link, lent or waiting
  };

  HopLinks(const Params& params, Rank self, std::vector<Rank> peers, Buffer send, Buffer receive);
  bool take_frame(size_t link);
  void release(uint32_t frame);

  bool frame_available(const Out& out) const;

  Params params_;
  Rank self_;
  uint8_t tag_ = 0;
  uint64_t data_frames_ = 0;
  uint64_t data_bytes_ = 0;
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
