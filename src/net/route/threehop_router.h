// ThreeHopRouter: messages from any rank to any rank of a large job, with links to few of them: to the ranks
// of its own node, and to one rank of each node that this rank represents its node to (node_map.h).
//
//   hop 1  source -> representative of its node towards the destination's node      (shared memory)
//   hop 2  -> representative of the destination's node towards the source's node    (network)
//   hop 3  -> destination                                                          (shared memory)
//
// A hop between a rank and itself is skipped; messages within a node take hop 3 alone. Messages for different
// ranks share the frames of a link, and are sorted out where it ends. A passive machine: messages, frames and
// events in; posts and deliveries out.
//
// No deadlock: a frame of hop h that cannot be forwarded waits for a frame of hop h + 1, and one of hop 3 for
// the sink; every link has a frame and a credit that no other link can take, and each hop has pools of its
// own. So the waits have an order, 1 before 2 before 3 before the sink (docs/design/three-hop.md).
//
// Epochs end hop by hop. On a hop that carried messages, an END mark with their count goes after them on each
// link, in the last frame. A frame's credit is given when all of it has been read; so a rank whose credits
// are all back knows that its part of the hop is over. When this holds for all ranks that feed the next hop
// (hop_barrier.h), that hop may end. Every frame says its epoch; those of the next epoch wait. A quiet link
// takes no message, and the number of ranks does not show in the number of messages.
// MessageSink::epoch_complete says that every message of the epoch that is for this rank has been delivered.
//
// Invariants: (1) messages from one rank to another are delivered once, in the order of send. (2) Memory is
//   buffer_bytes() + state_bytes(), whatever the traffic. (3) deliver is not called after a failure.
// Threads: none; the owner serialises calls. Channels: from `channel` on kChannels: one a hop, and one for
// the barriers.
// Errors: failure() keeps the first one: kCorruption or kUnavailable, which name the hop and the rank. Then
// send refuses,
//   and the owner tells the peers (Conversation). std::bad_alloc may be thrown: then fail() and give up.
// Limits: messages of message_bytes_max(); one epoch may end at a time, and none is sent meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "net/fabric/lent_messages.h"
#include "net/meeting/node_map.h"
#include "net/route/hop_barrier.h"
#include "net/route/threehop_links.h"

namespace swale::net {

class MessageSink {
 public:
  virtual ~MessageSink() = default;
  // False: no space now; call ThreeHopRouter::resume when there is. `message` lives only during the call.
  // Makes no call of the router.
  virtual bool deliver(Rank source, Bytes message) = 0;
  // Makes no call of the router.
  virtual void epoch_complete(uint32_t epoch) = 0;
  // A send that was refused may succeed now. May call send and end_epoch.
  virtual void may_send() {}
};

class ThreeHopRouter {
 public:
  static constexpr int kHops = 3;
  static constexpr uint32_t kChannels = kHops + 1;

  struct HopParams {
    size_t frame_bytes = 16 * kKiB;
    uint32_t shared_frames = 8;
    uint16_t window = 1;
  };
  using Hops = std::array<HopParams, kHops>;
  struct Params {
    Rank rank = 0;
    std::shared_ptr<const NodeMap> nodes;
    uint32_t channel = 0;
    uint64_t secret = 0;
    Hops hops;  // the same on all ranks
  };

  // Sizes of frames and windows with which no rank's buffers take more than the budget: frames of the remote
  // hop are halved from 32 KiB, and the others from 16 KiB, until all fits; the least ones are returned where
  // nothing does. What is left is given to windows. Depends on the job alone, so that all ranks choose the
  // same.
  static Hops hops_within(const NodeMap& nodes, uint64_t budget_bytes);
  // What the rank's buffers take that has most links.
  static uint64_t buffer_bytes(const NodeMap& nodes, const Hops& hops);
  static size_t message_bytes_max(const Hops& hops);

  // kResourceExhausted if the memory of the frames is not to be had. `sink` outlives the router.
  static Result<std::unique_ptr<ThreeHopRouter>> create(const Params& params, MessageSink* sink);
  // Before the first send and the first frame.
  void set_sink(MessageSink* sink) { sink_ = sink; }

  uint64_t buffer_bytes() const;
  uint64_t state_bytes() const;
  // The ranks that this one has links with. Whoever tells all of them something that each tells on, tells all
  // ranks.
  const std::vector<Rank>& peers() const { return peers_; }
  size_t links(int hop) const { return links_[static_cast<size_t>(hop) - 1].size(); }
  size_t message_bytes_max() const { return message_bytes_max_; }

  // -- Sending
  // False: no space now, or an epoch is ending: the sink's may_send says when to try again.
  // Requires message.size() <= message_bytes_max().
  bool send(Rank to, Bytes message);
  // Frames that are partly filled leave now. Call when a message must not wait for more; end_epoch does it by
  // itself.
  void flush();
  // All messages of this rank's epoch have been sent. Requires !ending().
  void end_epoch();
  // From end_epoch until epoch_complete.
  bool ending() const { return ending_hop_ != 0; }
  uint32_t complete_epochs() const { return complete_epochs_; }
  // For people: what the ending epoch waits for.
  std::string waiting_for() const;

  // -- The wire
  // The next frame that may leave; its memory is lent until on_sent(cookie).
  std::optional<Post> next_post();
  void on_sent(uint64_t cookie);
  // Which of the channels are this router's.
  bool is_mine(uint32_t channel) const { return channel - params_.channel < kChannels; }
  void on_frame(Rank from, const FrameHeader& header, Bytes payload);
  void on_down(Rank peer, const Status& why);
  void flush_credits();
  void probe();

  // The sink has space again.
  void resume();

  const Status& failure() const { return failure_; }
  void fail(const Status& why);
  bool idle() const;  // nothing is on its way from here
  // Since the router was made, all hops together.
  uint64_t waits_for_credit() const;
  uint64_t data_frames() const;
  uint64_t data_bytes() const;

 private:
  struct InLink {
    uint64_t messages = 0;    // of the epoch
    bool credit_due = false;  // its END has been read: the sender waits for the credit of that frame
  };
  struct OutLink {
    uint64_t messages = 0;  // of the epoch
    bool end_due = false;   // its END has not been put in yet
  };
  // One hop, as this rank sees it.
  struct Hop {
    std::vector<InLink> in;
    std::vector<uint32_t> waiting;  // links that hold frames, in the order in which they are tried
    std::vector<OutLink> out;
    size_t ends_due = 0;
  };
  enum class Step { kTaken, kBlocked, kFailed };
  // One message, as it is read.
  struct Reading {
    const char* at;
    const char* end;
    uint64_t varint();
    Bytes rest(uint64_t bytes);
    Bytes message(size_t bytes_max);
    bool ok = true;
  };

  ThreeHopRouter(const Params& params, MessageSink* sink);

  Status make_links();
  Result<size_t> find_link(int hop, Rank from) const;
  // Links of hops 1 and 3 are the other ranks of the node, in order; those of hop 2 are the nodes this rank
  // represents its node to, in order of distance.
  size_t local_link(int32_t local) const {
    return static_cast<size_t>(local < seat_.local ? local : local - 1);
  }
  int32_t local_of(size_t link) const {
    return static_cast<int32_t>(link) + (static_cast<int32_t>(link) < seat_.local ? 0 : 1);
  }
  size_t node_link(int32_t node) const;
  int32_t node_of(size_t link) const;

  bool try_send(Rank to, Bytes message);
  bool put(int hop, size_t link, Bytes head, Bytes message);

  // The end of an epoch.
  void begin_end_of(int hop);
  void put_due_ends(int hop);
  bool advance_end();
  void complete_epoch();
  void post_barrier();
  Status on_barrier_frame(Rank from, const FrameHeader& header, Bytes payload);

  // Reads messages from `bytes` until one has to wait, and returns how many bytes were read.
  size_t read(int hop, size_t link, Bytes bytes);
  Step read_one(int hop, size_t link, Reading* in);
  Step take_end(int hop, size_t link, Reading* in);
  Step from_local_to_node(size_t link, uint64_t first, Reading* in);
  Step from_node_to_local(size_t link, uint64_t first, Reading* in);
  Step deliver(Rank source, Bytes message);
  Step malformed(int hop, size_t link, const char* what);
  void take_data(int hop, size_t link, Bytes payload);
  void give_credit(int hop, size_t link);
  void read_waiting(int hop);
  void pump();

  Params params_;
  MessageSink* sink_;
  Seat seat_;
  std::vector<Rank> peers_;
  std::vector<HopLinks> links_;  // of hop h at h - 1
  std::array<Hop, kHops> hops_;  // likewise
  HopBarrier barrier_;
  Router barrier_router_;
  LentMessages barrier_messages_;
  int ending_hop_ = 0;            // 0: no epoch ends
  bool come_ = false;             // to the barrier of ending_hop_
  bool refused_ = false;          // a send, since may_send was called last
  uint32_t complete_epochs_ = 0;  // delivered here; the number of the open or ending one
  size_t message_bytes_max_ = 0;
  Status failure_;
};

}  // namespace swale::net
