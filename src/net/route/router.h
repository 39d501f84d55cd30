// Router: the direct route of one channel. Gives frames to send an order, a window and a sequence number, and
// gives credits back for what the receiver has consumed. A passive state machine: bytes and events in, posts
// out.
//
// Data frames are flow-controlled per peer: at most `window` of them are unconsumed at the receiver, so a
// receiver needs at most window * (size - 1) frames of memory. Control frames have a window of their own,
// kControlWindow, and are consumed when they arrive: a sender cannot fill the receiver's memory while its
// progress thread is busy. Both kinds keep one order per peer. Credits ride on every frame going the other
// way, and travel alone once half a window is owed. The news of a failure (kAbort) needs no credit: there is
// one per peer.
//
// A frame submitted to a peer that is down leaves at once and without credit: the transport, which knows
// better, gives its cookie back.
//
// Invariants, per peer: credits we hold + frames of ours it has not consumed + credits it owes = window;
//   `held` (its frames not consumed here) + `owed` <= window. The same for control frames, of which none is
//   held.
// Memory grows with the peers that have exchanged a frame with this rank, not with the ranks of the job.
// Threads: none of its own; the owner serialises calls. The posts taken by next_post for one peer must reach
// Transport::post in the order taken.
// Format of a frame header (28 bytes, little-endian):
//   u32 magic "SWF2" | u32 channel | u64 job secret | u32 sequence (per peer, channel) | u16 credits | u8
//   kind | u8 control credits | u32 crc32c of these 24 bytes and, of all frames but data, of the payload
// (What a data frame carries is checked by its reader: records by the digests at the end of the epoch.)
// Limits: window 1..1024.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/fabric/sparse_per_rank.h"
#include "net/fabric/transport.h"

namespace swale::net {

// DO NOT CHANGE THESE VALUES: ranks of one job may run different builds.
enum class FrameKind : uint8_t {
  kData = 0,       // counted against the window
  kControl = 1,    // a message of the protocol above; the payload says which; counted against kControlWindow
  kCredit = 2,     // nothing but the header's credits
  kHeartbeat = 3,  // Liveness; channel 0
  kGoodbye = 4,    // orderly leave; channel 0
  kExchange = 5,   // an allgather of the job (exchange.h); channel 0
  kAbort = 6,      // the sender has failed: the payload is its encoded Status (status_codec.h)
};

struct FrameHeader {
  static constexpr size_t kBytes = 28;
  uint32_t channel = 0;
  uint64_t secret = 0;
  uint32_t sequence = 0;
  uint16_t credits = 0;
  FrameKind kind = FrameKind::kData;
  uint8_t control_credits = 0;

  std::array<char, kBytes> encode(Bytes payload) const;
  // kCorruption. Of scope operation for a frame that is not of this job (its length, magic or secret is
  // wrong): drop it.
  // These are looked at first: whoever does not know the secret has no other field believed, nor its checksum
  // computed. Of scope peer for one of this job whose checksum is wrong, or of an unknown kind, or with more
  // control credits than can be out: nothing that its sender says can be relied on.
  static Result<FrameHeader> decode(Bytes bytes, Bytes payload, uint64_t expected_secret);

 private:
  uint32_t checksum(Bytes bytes, Bytes payload) const;  // `bytes`: of the header, before the checksum
};

// One frame for Transport::post.
struct Post {
  Rank to = -1;
  std::array<char, FrameHeader::kBytes> header;
  Bytes payload;        // memory of whoever submitted it
  uint64_t cookie = 0;  // as submitted; kNoCookie for frames of the Router's own
};

inline constexpr uint64_t kNoCookie = ~uint64_t{0};

class Router {
 public:
  static constexpr uint8_t kControlWindow = 32;  // unconsumed control frames per peer

  struct Params {
    Rank rank = 0;
    int32_t size = 1;
    uint32_t channel = 0;
    uint64_t secret = 0;
    uint16_t window = 4;  // unconsumed data frames per peer
  };

  explicit Router(const Params& params);

  // Queues a frame. The payload's memory is borrowed until Transport's on_sent(cookie).
  void submit(Rank to, FrameKind kind, Bytes payload, uint64_t cookie);

  // The next frame that may leave now, in submission order per peer and round-robin over peers; none if all
  // queues are empty or wait for credit.
  std::optional<Post> next_post();

  // A frame has arrived (its header already decoded by the owner, who dispatches on channel). Takes its
  // credits and checks its sequence number: kCorruption (scope peer) names peer, expected and found, for a
  // lost, doubled or reordered frame, and for a peer that breaks the window. After such a failure the peer is
  // to be given up.
  Status on_frame(Rank from, const FrameHeader& header);

  // The data frame from `from` has been consumed: its credit is owed back.
  void consumed(Rank from);

  // Owes go out now, however few (before a long wait): to all peers, or to one.
  void flush_credits();
  void flush_credits(Rank to);

  // Sends an empty frame to every peer that has had frames from here. A lost frame shows by the sequence
  // number of the next one; where nothing follows (the window is used up, or all has been said) this is the
  // next one.
  void probe();

  // The peer is gone: its queue is emptied; `dropped` gets the cookies of frames that will never be posted.
  // Like abandon_data and submit: if it throws, for want of memory, nothing has changed.
  void on_down(Rank peer, std::vector<uint64_t>* dropped);

  // The conversation has failed: data frames that wait for credit will never leave, so that control frames
  // after them (the news of the failure) do. `dropped` gets their cookies.
  void abandon_data(std::vector<uint64_t>* dropped);

  // Data frames that were submitted and that their receivers have not given credit for. 0: all have been
  // consumed.
  uint64_t unconsumed() const { return unconsumed_; }
  uint64_t memory_bytes() const;

  bool idle() const { return queued_ == 0; }  // nothing waits to be posted (owed credits do not count)
  uint64_t waits_for_credit() const {
    return waits_for_credit_;
  }  // how often next_post found frames but no credit

 private:
  struct Outgoing {
    FrameKind kind;
    Bytes payload;
    uint64_t cookie;
  };
  struct Peer {
    std::deque<Outgoing> queue;
    uint32_t sequence_out = 0;
    uint32_t sequence_in = 0;
    uint16_t credits = 0;  // data frames we may still send; set when the peer is met
    uint16_t owed = 0;     // data frames consumed here and not yet credited
    uint16_t held = 0;     // data frames arrived here and not yet consumed
    uint8_t control_credits = kControlWindow;
    uint8_t control_owed = 0;
    bool flush = false;  // what is owed goes out however little it is
    bool probe = false;  // an empty frame is due, whatever is owed
    bool ready = false;  // stands in ready_
    bool down = false;
  };

  Peer& peer(Rank rank);        // made if there is none
  Peer& known_peer(Rank rank);  // requires that there is one
  bool head_may_leave(const Peer& peer) const;
  bool credit_frame_due(const Peer& peer) const;
  Status take_credits(Rank from, const FrameHeader& header);
  Status without_credit(Rank from, const FrameHeader& header, int window) const;
  void make_ready(Rank rank);
  Post stamp(Rank to, FrameKind kind, Bytes payload, uint64_t cookie);

  Params params_;
  SparsePerRank<Peer> peers_;
  // Peers with something that may leave, each at most once: a ring with a place for each peer that was met.
  std::vector<Rank> ready_;
  size_t ready_first_ = 0;
  size_t ready_count_ = 0;
  size_t queued_ = 0;  // frames in all queues
  uint64_t unconsumed_ = 0;
  uint64_t waits_for_credit_ = 0;
};

}  // namespace swale::net
