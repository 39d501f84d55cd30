#include "imd/write/epoch_protocol.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace swale::imd {
namespace {

// Other values that differ are printed differently.
std::string bits_of_nan(double time) {
  return std::isnan(time) ? fmt::format(" (bits {:016x})", std::bit_cast<uint64_t>(time)) : std::string();
}

}  // namespace

EpochProtocol::EpochProtocol(net::Rank rank, int32_t size, Ends ends)
    : tree_{rank, size, ends == Ends::kByRoute ? kRoutedChildrenMax : net::FanOut::kChildrenMax},
      rank_(rank),
      ends_(ends) {
  if (ends == Ends::kOfEachRank) {
    for (net::Rank each = 0; each < size; ++each) peers_.meet(each);
    return;
  }
  peers_.meet(rank);
  for (const net::Rank each : tree_.neighbours()) peers_.meet(each);
}

void EpochProtocol::open_epoch(EpochNumber epoch) {
  epoch_ = epoch;
  state_ = State::kOpen;
  ends_in_ = 0;
  route_complete_ = false;
  for (const net::Rank from : peers_.met()) {
    Peer& peer = *peers_.find(from);
    const std::optional<uint64_t> promised = peer.promised_next;
    const uint64_t delivered = peer.delivered_next;
    peer = Peer{};
    peer.delivered = delivered;
    if (promised) {
      peer.ended = true;
      peer.promised = *promised;
      ++ends_in_;
    }
  }
  merged_ = {};
  children_in_.clear();
  flush_wanted_ = false;
  commit_.reset();
}

void EpochProtocol::send(net::Rank to, const Message& message) { outgoing_.push_back({to, encode(message)}); }

void EpochProtocol::on_delivered(net::Rank from, uint64_t records) {
  Peer& peer = *peers_.find(from);
  if (drained()) {
    peer.delivered_next += records;
    return;
  }
  peer.delivered += records;
  advance();
}

void EpochProtocol::on_route_complete() {
  route_complete_ = true;
  advance();
}

void EpochProtocol::begin(int64_t step, double time, const std::vector<uint64_t>& records_per_rank,
                          const RecordTally& appended, const LargeTally& large, const net::CallStamp& call) {
  if (state_ == State::kDone) return;
  state_ = State::kDraining;
  merged_ = {epoch_, rank_, step, time, appended, RecordTally{}, {}, large, {}, 0};
  for (const net::Rank to : peers_.met()) {
    const uint64_t records = ends_ == Ends::kByRoute ? 0 : records_per_rank[static_cast<size_t>(to)];
    const EndMessage end{epoch_, records, call};
    if (to == rank_) {
      on_end(rank_, end);
    } else {
      send(to, end);
    }
  }
}

void EpochProtocol::on_message(net::Rank from, const Message& message) {
  if (const auto* end = std::get_if<EndMessage>(&message)) on_end(from, *end);
  if (const auto* durable = std::get_if<DurableMessage>(&message)) on_durable_message(from, *durable);
  if (const auto* committed = std::get_if<CommittedMessage>(&message)) on_committed(from, *committed);
}

void EpochProtocol::on_end(net::Rank from, const EndMessage& message) {
  Peer* const peer = peers_.find(from);
  if (peer != nullptr && message.epoch == epoch_ && !peer->ended) {
    peer->ended = true;
    peer->promised = message.records;
    ++ends_in_;
    advance();
  } else if (peer != nullptr && message.epoch == epoch_ + 1 && peer->ended && !peer->promised_next) {
    peer->promised_next = message.records;
  } else {
    fail(error(Code::kCorruption, Scope::kPeer, "rank {} ended epoch {} {}while rank {} is in epoch {}", from,
               message.epoch, peer != nullptr && peer->ended ? "again " : "", rank_, epoch_));
  }
}

bool EpochProtocol::everything_in() const {
  if (ends_in_ != ends_expected()) return false;
  if (ends_ == Ends::kByRoute) return route_complete_;
  return std::all_of(peers_.met().begin(), peers_.met().end(), [&](net::Rank from) {
    const Peer& peer = *peers_.find(from);
    return peer.delivered == peer.promised;
  });
}

void EpochProtocol::advance() {
  if (state_ == State::kDone) return;
  for (const net::Rank from : peers_.met()) {
    const Peer& peer = *peers_.find(from);
    if (ends_ == Ends::kOfEachRank && peer.ended && peer.delivered > peer.promised) {
      return fail(error(Code::kCorruption, Scope::kPeer,
                        "rank {} sent {} records to rank {} in epoch {} but promised {}: frames were doubled",
                        from, peer.delivered, rank_, epoch_, peer.promised));
    }
  }
  if (state_ == State::kDraining && everything_in()) {
    state_ = State::kFlushing;
    flush_wanted_ = true;
  }
}

void EpochProtocol::on_durable(const RecordTally& indexed, const ExtremaSummary& extrema,
                               const EpochStats& stats) {
  if (state_ != State::kFlushing) return;
  state_ = State::kReducing;
  merged_.indexed.add(indexed);
  merged_.extrema.merge(extrema);
  merged_.stats.merge(stats);
  reduce();
}

void EpochProtocol::on_durable_message(net::Rank from, const DurableMessage& message) {
  // No child can be durable before this rank has ended the epoch: it waits for this rank's END, too.
  if (!tree_.is_child(from) || message.epoch != epoch_ || state_ == State::kOpen ||
      std::find(children_in_.begin(), children_in_.end(), from) != children_in_.end()) {
    return fail(error(Code::kCorruption, Scope::kPeer,
                      "rank {} got an unexpected DURABLE of epoch {} from rank {}", rank_, message.epoch,
                      from));
  }
  children_in_.push_back(from);
  merge(message);
  reduce();
}

void EpochProtocol::merge(const DurableMessage& message) {
  const auto mine = std::bit_cast<uint64_t>(merged_.time);
  const auto theirs = std::bit_cast<uint64_t>(message.time);
  if (merged_.step != message.step || mine != theirs) {
    fail(error(
        Code::kInvalidArgument, Scope::kFatal,
        "epoch {} was ended with step {} and time {}{} by rank {}, but with step {} and time {}{} by rank "
        "{}: all ranks must give the same",
        epoch_, merged_.step, merged_.time, bits_of_nan(merged_.time), merged_.step_rank, message.step,
        message.time, bits_of_nan(message.time), message.step_rank));
  }
  merged_.appended.add(message.appended);
  merged_.large.add(message.large);
  merged_.indexed.add(message.indexed);
  merged_.extrema.merge(message.extrema);
  merged_.stats.merge(message.stats);
  merged_.keys += message.keys;
}

void EpochProtocol::reduce() {
  if (state_ != State::kReducing || children_awaited() > 0) return;
  if (!tree_.is_root()) {
    send(tree_.parent(), merged_);
    return;  // COMMITTED comes down the tree
  }
  if (merged_.appended != merged_.indexed) {
    return fail(
        error(Code::kCorruption, Scope::kFatal,
              "epoch {}: {} records (digest {:016x}) were appended but {} (digest {:016x}) indexed: records "
              "were lost, doubled or altered on the way; the epoch is not committed",
              epoch_, merged_.appended.records, merged_.appended.digest, merged_.indexed.records,
              merged_.indexed.digest));
  }
  if (merged_.keys != 0) {
    return fail(error(Code::kCorruption, Scope::kFatal,
                      "epoch {}: the keys that came to their homes are not those that were sent: some were "
                      "lost, doubled or altered on the way; the epoch is not committed",
                      epoch_));
  }
  state_ = State::kCommitting;
  commit_ = Commit{epoch_,          merged_.step,  merged_.time, merged_.indexed,
                   merged_.extrema, merged_.large, merged_.stats};
}

void EpochProtocol::on_commit_done(const Status& status) {
  if (state_ != State::kCommitting) return;
  if (!status.ok()) return fail(status.with_context(fmt::format("commit of epoch {}", epoch_)));
  finish();
}

void EpochProtocol::on_committed(net::Rank from, const CommittedMessage& message) {
  const bool expected =
      !tree_.is_root() && from == tree_.parent() && message.epoch == epoch_ && state_ == State::kReducing;
  if (!expected && state_ != State::kDone) {
    return fail(error(Code::kCorruption, Scope::kPeer,
                      "rank {} got an unexpected COMMITTED of epoch {} from rank {}", rank_, message.epoch,
                      from));
  }
  if (expected) finish();
}

void EpochProtocol::finish() {
  state_ = State::kDone;
  for (const net::Rank child : tree_.children()) send(child, CommittedMessage{epoch_});
}

void EpochProtocol::fail(const Status& status) noexcept {
  if (!failure_.ok() || status.ok()) return;
  failure_ = status;
  state_ = State::kDone;
}

bool EpochProtocol::take_flush() { return std::exchange(flush_wanted_, false); }
std::optional<EpochProtocol::Commit> EpochProtocol::take_commit() {
  return std::exchange(commit_, std::nullopt);
}

std::string EpochProtocol::waiting_for() const {
  switch (state_) {
    case State::kOpen:
      return "the application to end the epoch";
    case State::kDraining:
      for (const net::Rank from : peers_.met()) {
        const Peer& peer = *peers_.find(from);
        if (!peer.ended)
          return fmt::format("rank {} to end epoch {} ({} of {} ranks have)", from, epoch_, ends_in_,
                             ends_expected());
        if (peer.delivered != peer.promised) {
          return fmt::format("records of rank {}: {} of {}", from, peer.delivered, peer.promised);
        }
      }
      return ends_ == Ends::kByRoute ? "the route" : "nothing";
    case State::kFlushing:
      return "this rank's storage";
    case State::kReducing:
      return tree_.is_root() || children_awaited() > 0
                 ? fmt::format("the parts of {} of {} ranks below this one", children_awaited(),
                               tree_.child_count())
                 : "rank 0 to commit";
    case State::kCommitting:
      return "the commit of swale.json";
    case State::kDone:
      return "nothing";
  }
  return "nothing";
}

}  // namespace swale::imd
