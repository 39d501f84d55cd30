// Liveness: which peers of a job still live. A passive state machine: it is told that frames went and came,
// asked now and then what is due, and answers with heartbeats to send and peers that have been silent for too
// long.
//
// Only peers that have been met (a frame went to them or came from them) are watched: a job of 100,000 ranks
// in which a rank talks to 60 sends 60 heartbeats, and keeps a page of flags for each 256 ranks among which
// one was met. Time is counted on a *watched clock*, which goes forward by at most two ticks per poll: if our
// own process was stopped, the machine slept, or an event held the progress thread, that time counts against
// nobody.
//
// Cost: note_sent and note_heard set a flag and read no clock; a poll harvests the flags once a tick (a
// quarter of the heartbeat interval, so a silence is found up to two ticks late). Threads: note_sent and
// note_heard by any thread; the rest by one thread at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "net/fabric/rank_flags.h"
#include "net/fabric/transport.h"

namespace swale::net {

class Liveness {
 public:
  struct Params {
    Rank rank = 0;
    int32_t size = 1;
    std::function<std::string(Rank)> host_of;  // for messages
    Nanos heartbeat_interval = 1'000'000'000;
    Nanos silence_deadline = 30'000'000'000;  // more than two heartbeat intervals
  };
  struct Silent {
    Rank peer;
    Status why;  // kUnavailable, scope peer: rank, host, how long
  };
  struct Due {
    std::vector<Rank> heartbeats;  // peers to send a heartbeat to, now
    std::vector<Silent> silent;    // each peer at most once; it is watched no more
    Nanos next = 0;                // when to poll again at the latest
  };

  explicit Liveness(Params params);

  // A frame (a heartbeat too) was posted to, or has come from, the peer.
  void note_sent(Rank peer) { note(peer, kSent); }
  void note_heard(Rank peer) { note(peer, kHeard | kAnswered); }

  bool met(Rank peer) const { return is_met(flags_.of(peer)); }  // also of peers that have left or are gone
  std::vector<Rank> met_peers() const;
  // Something has come from the peer, now or before.
  bool has_answered(Rank peer) const { return (flags_.of(peer) & kAnswered) != 0; }

  // The peer will say nothing more by its own will: it still gets heartbeats (it waits for us), but may be
  // silent.
  void on_goodbye(Rank peer);
  bool left(Rank peer) const { return (flags_.of(peer) & kLeft) != 0; }
  // The peer is gone, no matter how that was found.
  void on_down(Rank peer);

  Due poll(Nanos now);

 private:
  static constexpr uint8_t kSent = 1;
  static constexpr uint8_t kHeard = 2;
  static constexpr uint8_t kMet = 4;
  static constexpr uint8_t kLeft = 8;
  static constexpr uint8_t kDown = 16;
  static constexpr uint8_t kAnswered = 32;
  struct Watch {
    Rank peer;
    Nanos last_sent;
    Nanos last_heard;
  };

  static bool is_met(uint8_t flags) { return (flags & (kSent | kHeard | kMet)) != 0; }

  // Once a tick is enough; the frames between only look.
  void note(Rank peer, uint8_t what) {
    std::atomic<uint8_t>& known = flags_[peer];
    if ((known.load(std::memory_order_relaxed) & what) != what)
      known.fetch_or(what, std::memory_order_relaxed);
  }
  void harvest();
  Status silence_status(const Watch& watch) const;

  const Params params_;
  const Nanos tick_;
  RankFlags flags_;
  std::vector<Watch> watched_;  // met and not down
  Nanos last_poll_ = -1;
  Nanos clock_ = 0;  // the watched clock
};

}  // namespace swale::net
