// EpochProtocol: the collective end of an epoch as a state machine: everything received → everything durable
// → one rank commits → everybody knows. docs/design/epoch-commit.md has the reasons and the crash cases.
//
//   kOpen ──begin──► kDraining ──all ENDs in, all records in──► kFlushing ──local part durable──► kReducing
//   ──own and all children's DURABLE merged──► (rank 0: kCommitting ──epoch's record durable──►)
//   ──COMMITTED──► kDone any state ──fail──► kDone with the failure, of which the owner tells the other ranks
//
// DURABLE travels up a tree of fan-out 8 and COMMITTED down the same tree, so rank 0 handles 8 messages, not
// one per rank. END is one message per pair of ranks, as data was.
// Ends::kByRoute: the three-hop route says by itself when all records are in (on_route_complete). Then END
// goes to the neighbours in the tree alone, without a count: so that somebody knows of each rank that has not
// come. The tree has a fan-out of 3: with the route's own messages, 13 at most, an epoch's end takes a rank
// 21.
//
// Threads: none; the owner serialises calls. Invariants: (1) a rank answers OK only after rank 0 has made the
// epoch's record durable; (2) rank 0 writes it only if every rank's part is durable and the tallies of
// records appended and records indexed agree; (3) after a failure no state but kDone is reached.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "imd/format/messages.h"
#include "net/fabric/sparse_per_rank.h"
#include "net/fabric/transport.h"
#include "net/meeting/fan_out.h"

namespace swale::imd {

class EpochProtocol {
 public:
  enum class Ends { kOfEachRank, kByRoute };
  static constexpr int32_t kRoutedChildrenMax = 3;
  enum class State { kOpen, kDraining, kFlushing, kReducing, kCommitting, kDone };

  struct Outgoing {
    net::Rank to;
    std::string payload;
  };

  // What rank 0 has to write into the epoch log before commit_done.
  struct Commit {
    EpochNumber epoch = {};
    int64_t step = 0;
    double time = 0;
    RecordTally tally;
    ExtremaSummary extrema = {};
    LargeTally large = {};
    EpochStats stats = {};
  };

  EpochProtocol(net::Rank rank, int32_t size, Ends ends = Ends::kOfEachRank);

  void open_epoch(EpochNumber epoch);

  // Every record that has been delivered to this rank's partition, by the rank that appended it. Once
  // everything of the epoch is in (kFlushing and later) it is of the next one.
  void on_delivered(net::Rank from, uint64_t records);

  // kByRoute, instead of on_delivered: every record of the epoch that ends has been delivered.
  void on_route_complete();

  // The application's call. `records_per_rank[r]` (kByRoute: empty) records were sent to r in this epoch;
  // `appended` in all; `large`: of these, those whose values this rank has written to its value log. `call`:
  // for ENDs. All ranks must give the same step and the same bits of time: NaN agrees with the same NaN, 0.0
  // not with -0.0.
  void begin(int64_t step, double time, const std::vector<uint64_t>& records_per_rank,
             const RecordTally& appended, const LargeTally& large = {}, const net::CallStamp& call = {});

  // Where keys go by three hops: digests of what this rank has sent in the epoch, and less those of what it
  // has got. Call both after begin and before on_durable. The sum over all ranks must be 0.
  void add_keys(uint64_t digests) { merged_.keys += digests; }

  // A control message. Impossible ones are failures. A peer that knows of the commit sooner may end the next
  // epoch before this rank has heard of it: its END is kept for open_epoch.
  void on_message(net::Rank from, const Message& message);
  // Everything of this epoch is in: what is delivered from then on belongs to the next.
  bool drained() const { return state_ > State::kDraining; }
  // Whether the peer's END of this epoch has come: what it sends from then on belongs to the next.
  bool ended(net::Rank from) const { return peers_.find(from)->ended; }
  // What comes from this peer is of an epoch that this rank takes nothing of yet: the next one while this one
  // is not drained, or the one after it, if the peer heard of this epoch's commit first and has ended the
  // next.
  bool is_ahead(net::Rank from) const {
    const Peer& peer = *peers_.find(from);
    return drained() ? peer.promised_next.has_value() : peer.ended;
  }

  // The partition has everything of this epoch on stable storage.
  void on_durable(const RecordTally& indexed, const ExtremaSummary& extrema = {},
                  const EpochStats& stats = {});

  void on_commit_done(const Status& status);

  // Something failed, here or on another rank: nothing goes on. The first failure counts.
  void fail(const Status& status) noexcept;

  State state() const { return state_; }
  // OK in kDone: the epoch is committed.
  const Status& failure() const { return failure_; }
  // True once: the partition is to be told that nothing more comes.
  bool take_flush();
  bool has_commit() const { return commit_.has_value(); }
  std::optional<Commit> take_commit();
  // Messages to be sent, oldest first. Taken out by the owner, once sent: nothing is lost if sending one
  // throws.
  std::deque<Outgoing>& outgoing() { return outgoing_; }

  // Whether this rank waits for ranks that have not ended the epoch, which may take them any time; and which.
  bool awaits_ends() const { return state_ == State::kDraining && ends_in_ < ends_expected(); }

  // For people: what the epoch's end is waiting for ("records of rank 3: 120 of 4096").
  std::string waiting_for() const;

 private:
  struct Peer {
    bool ended = false;
    uint64_t promised = 0;
    uint64_t delivered = 0;
    std::optional<uint64_t> promised_next;  // its END of the next epoch
    uint64_t delivered_next = 0;
  };

  int32_t ends_expected() const { return static_cast<int32_t>(peers_.met().size()); }
  void on_end(net::Rank from, const EndMessage& message);
  void on_durable_message(net::Rank from, const DurableMessage& message);
  void on_committed(net::Rank from, const CommittedMessage& message);
  void advance();
  bool everything_in() const;
  void merge(const DurableMessage& message);
  void reduce();
  void finish();
  void send(net::Rank to, const Message& message);

  int32_t children_awaited() const { return tree_.child_count() - static_cast<int32_t>(children_in_.size()); }

  const net::FanOut tree_;
  const net::Rank rank_;
  const Ends ends_;
  EpochNumber epoch_;
  State state_ = State::kOpen;
  net::SparsePerRank<Peer> peers_;  // whose ENDs this rank gets, itself among them
  bool route_complete_ = false;
  int32_t ends_in_ = 0;
  DurableMessage merged_;
  std::vector<net::Rank> children_in_;
  bool flush_wanted_ = false;
  std::optional<Commit> commit_;
  std::deque<Outgoing> outgoing_;
  Status failure_;
};

}  // namespace swale::imd
