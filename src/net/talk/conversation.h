// Conversation: one rank's end of a channel, as a passive machine: the frames that it fills, the messages
// that it has lent to the transport, order and flow control (Router), and the failure of the whole
// conversation.
//
//   in:  take_frame and send (data), send_control (messages), on_frame, consumed, on_sent, on_down, fail
//   out: next_post (to the transport), failure
//
// Data goes in frames of a pool. At most `window` data frames per peer are unread there, so that a receiver
// can reserve the memory for them; the receiver calls consumed when it has read one. Control messages have
// memory of their own and a window of their own (kControlWindow per peer); the receiver reads them inside
// on_frame. Data and control messages to one peer arrive in the order in which they were sent.
// With Params::hops data goes by three hops instead (route()), message by message and not frame by frame, and
// in no order with control messages. The pool then has frames_per_rank frames for one destination, 0, for
// whatever use.
//
// Failure: the first failure counts, be it of this rank (fail) or another rank's news of its own failure.
// Then data that waits for credit is dropped, every peer is told once (FrameKind::kAbort, the encoded
// Status), and nothing that comes is taken any more. A rank that a peer has told of a failure tells nobody:
// the peer does that. With three hops a rank tells the ranks that it has links with, and each of these tells
// its own: they reach all ranks, also where one is dead. A peer that is down is no failure of the
// conversation by itself: the owner decides.
//
// ConversationDriver gives a conversation threads and a job's channel; the simulation drives the same object.
// Threads: none; the owner serialises calls.
// Errors: send, send_control and next_post throw std::bad_alloc and have done nothing then; call next_post
// again later.
// Limits: 2^31 frames in the pool, 2^30 control messages at a time; the Router's limits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/fabric/lent_messages.h"
#include "net/route/router.h"
#include "net/route/threehop_router.h"
#include "net/talk/frame_pool.h"
#include "net/talk/inbox.h"

namespace swale::net {

class Conversation {
 public:
  struct Params {
    Rank rank = 0;
    int32_t size = 1;
    uint32_t channel = 0;
    uint64_t secret = 0;
    uint16_t window = 4;           // unread data frames per peer
    uint32_t frames_per_rank = 5;  // in the pool
    size_t frame_bytes = 32 * kKiB;
    // Three hops: what they are, and which ranks share nodes. It takes kRoutedChannels numbers, `channel` the
    // first.
    std::optional<ThreeHopRouter::Hops> hops = {};
    std::shared_ptr<const NodeMap> nodes = {};
  };
  static constexpr uint32_t kRoutedChannels = 1 + ThreeHopRouter::kChannels;

  // kResourceExhausted if the memory of the frames is not to be had.
  static Result<Conversation> create(const Params& params);

  Rank rank() const { return params_.rank; }
  int32_t size() const { return params_.size; }

  // -- Sending
  bool frame_available(Rank to) const { return pool_.available(to); }
  Frame take_frame(Rank to) { return pool_.take(to); }  // requires frame_available
  // The pool has the frame back once it is sent, or at once if it is empty; a frame to this rank itself goes
  // to the inbox, and the pool has it back once it is read.
  void send(Rank to, const Frame& frame);
  void send_control(Rank to, std::string message);
  // nullptr: data goes directly. Messages are sent, and epochs ended, through the router itself.
  ThreeHopRouter* route() { return route_.get(); }
  const ThreeHopRouter* route() const { return route_.get(); }

  // -- The wire
  // The next frame that may leave now. Its memory is lent until on_sent(cookie). Tells the peers of a
  // failure, too.
  std::optional<Post> next_post();
  void on_sent(uint64_t cookie);

  enum class Came { kNothing, kData, kControl };
  // A frame of this channel has come. kData: read it now and call consumed, or call keep. kControl: read it
  // now. kNothing: it was for the Conversation itself, or there is a failure: look at failure().
  Came on_frame(Rank from, const FrameHeader& header, Bytes payload);
  void consumed(Rank from) { router_.consumed(from); }
  // Data that is read later: what of a frame is left, and what this rank sent to itself. Call finish_front,
  // which gives its credit or its frame back, when inbox().front() is read.
  void keep(Rank from, Bytes rest) { inbox_.push(from, rest); }
  Inbox& inbox() { return inbox_; }
  const Inbox& inbox() const { return inbox_; }
  void finish_front();
  // Gives back all credits, however few. Call before a long wait.
  void flush_credits();
  // Call about once a second while this rank waits for peers: makes sure that they notice a lost frame
  // (Router::probe).
  void probe();
  // The peer is gone; frames that wait for it go back to the pool. A failure if it carries messages of
  // others.
  void on_down(Rank peer, const Status& why = {});

  // -- Failure and parting
  const Status& failure() const { return failure_; }
  // Later failures are ignored. next_post tells the peers.
  void fail(const Status& why) noexcept;
  // Peers are still to be told of the failure.
  bool owes_news() const { return news_next_ < news_end_; }
  // Posts whose memory the transport still has. The Conversation must outlive them.
  uint64_t frames_lent() const { return frames_lent_; }
  bool idle() const { return router_.idle() && (!route_ || route_->idle()); }  // nothing waits to leave
  // Everything that was to be said has left, the news of a failure too.
  bool all_said() const { return !owes_news() && router_.idle() && frames_lent_ == 0; }
  uint64_t memory_bytes() const;

  // -- Statistics
  // The most frames that were lent at once since the last call.
  uint64_t take_frames_lent_max();
  // How often frames had to wait for credit, since construction.
  uint64_t waits_for_credit() const {
    return router_.waits_for_credit() + (route_ ? route_->waits_for_credit() : 0);
  }

 private:
  Conversation(const Params& params, FramePool pool);

  void release(uint64_t cookie);
  void release(const std::vector<uint64_t>& cookies);
  void hear_news(Rank from, Bytes news);
  void owe_news(Rank but) noexcept;
  Rank news_peer(int32_t index) const;
  void tell_failure();

  Params params_;
  FramePool pool_;
  Inbox inbox_;
  LentMessages messages_;
  Router router_;
  std::unique_ptr<ThreeHopRouter> route_;
  uint64_t frames_lent_ = 0;
  uint64_t frames_lent_max_ = 0;
  Status failure_;
  bool data_abandoned_ = false;  // since the failure
  std::string news_;             // the encoded failure, for all peers
  int32_t news_next_ = 0;        // the next peer to be told of the failure, by number; news_end_: none
  int32_t news_end_ = 0;
  Rank news_but_ = -1;  // knows it
};

}  // namespace swale::net
