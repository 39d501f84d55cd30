#include "net/fabric/liveness.h"

#include <algorithm>

namespace swale::net {

Liveness::Liveness(Params params)
    : params_(std::move(params)),
      tick_(std::max<Nanos>(1, params_.heartbeat_interval / 4)),
      flags_(params_.size) {}

std::vector<Rank> Liveness::met_peers() const {
  std::vector<Rank> met;
  flags_.each([&](Rank peer) {
    if (is_met(flags_.of(peer))) met.push_back(peer);
  });
  return met;
}

void Liveness::on_goodbye(Rank peer) { flags_[peer].fetch_or(kLeft, std::memory_order_relaxed); }

void Liveness::on_down(Rank peer) { flags_[peer].fetch_or(kDown, std::memory_order_relaxed); }

// Moves what the flags say into the watches, and takes on peers met since the last tick.
void Liveness::harvest() {
  std::erase_if(watched_, [&](const Watch& each) { return (flags_.of(each.peer) & kDown) != 0; });
  for (Watch& each : watched_) {
    const uint8_t was = flags_[each.peer].fetch_and(static_cast<uint8_t>(~(kSent | kHeard)));
    if ((was & kSent) != 0) each.last_sent = clock_;
    if ((was & kHeard) != 0) each.last_heard = clock_;
  }
  flags_.each([&](Rank peer) {
    const uint8_t now = flags_.of(peer);
    if ((now & (kSent | kHeard)) == 0 || (now & (kMet | kDown)) != 0) return;
    const uint8_t was = flags_[peer].fetch_and(static_cast<uint8_t>(~(kSent | kHeard)));
    flags_[peer].fetch_or(kMet, std::memory_order_relaxed);
    // One that only spoke to us gets its first heartbeat at once: it connects us to it, so that the fabric's
    // own failure detection works in both directions.
    const Nanos last_sent = (was & kSent) != 0 ? clock_ : clock_ - params_.heartbeat_interval;
    watched_.push_back({peer, last_sent, clock_});
  });
}

Status Liveness::silence_status(const Watch& watch) const {
  return error(
      Code::kUnavailable, Scope::kPeer,
      "rank {} (host {}) has been silent for {:.1f} s (net.silence_deadline_s = {:g}): its process is "
      "stopped or swapping, or the network between {} and {} is cut; raise the deadline only if such pauses "
      "are expected",
      watch.peer, params_.host_of(watch.peer), static_cast<double>(clock_ - watch.last_heard) * 1e-9,
      static_cast<double>(params_.silence_deadline) * 1e-9, params_.host_of(params_.rank),
      params_.host_of(watch.peer));
}

Liveness::Due Liveness::poll(Nanos now) {
  Due due;
  if (last_poll_ >= 0 && now < last_poll_ + tick_) {
    due.next = last_poll_ + tick_;
    return due;
  }
  if (last_poll_ >= 0) clock_ += std::min(now - last_poll_, 2 * tick_);
  last_poll_ = now;
  harvest();
  for (Watch& each : watched_) {
    const bool left = (flags_.of(each.peer) & kLeft) != 0;
    if (!left && clock_ - each.last_heard >= params_.silence_deadline) {
      due.silent.push_back({each.peer, silence_status(each)});
      on_down(each.peer);
    } else if (clock_ - each.last_sent >= params_.heartbeat_interval) {
      due.heartbeats.push_back(each.peer);
      each.last_sent = clock_;
    }
  }
  due.next = now + tick_;
  return due;
}

}  // namespace swale::net
