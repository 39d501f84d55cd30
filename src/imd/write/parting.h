// Parting: the collective close of a massive directory, as a state machine: over() once every rank has said
// that it sends nothing more; then nobody sends here any more.
//
// kEachToEach: CLOSE is one message per pair of ranks, as END is. kByTree: a rank tells its neighbours in the
// tree that it has come (so whoever waits knows for whom, and ranks that make different calls find out), and
// tells its parent once all below it have; the root then tells everybody, down the tree: 2 x 9 messages of a
// rank at most.
//
// Threads: none; the owner serialises calls. Errors: on_message: kCorruption (scope peer).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "base/status.h"
#include "imd/format/messages.h"
#include "net/fabric/sparse_per_rank.h"
#include "net/meeting/fan_out.h"

namespace swale::imd {

class Parting {
 public:
  enum class Words : uint8_t { kEachToEach, kByTree };

  Parting(net::Rank rank, int32_t size, Words words);

  // This rank sends nothing more.
  void begin(const net::CallStamp& call);
  Status on_message(net::Rank from, const CloseMessage& message);

  bool begun() const { return begun_; }
  // Somebody has come, this rank or another.
  bool under_way() const { return came_ != 0; }
  bool over() const { return over_; }
  // This rank has come, and knows of one that has not.
  bool awaits_ranks() const { return begun_ && came_ < expected(); }
  std::string waiting_for() const;

  using Outgoing = std::pair<net::Rank, std::string>;
  std::deque<Outgoing>& outgoing() { return outgoing_; }

 private:
  struct Peer {
    bool came = false;
    bool all_below = false;
  };

  int32_t expected() const { return static_cast<int32_t>(peers_.met().size()) + 1; }
  void advance();
  void tell(net::Rank to, CloseWord word, const net::CallStamp& call = {});

  const net::FanOut tree_;
  const Words words_;
  net::SparsePerRank<Peer> peers_;  // that tell this rank that they have come
  int32_t came_ = 0;
  int32_t subtrees_ = 0;  // of children, that have come
  bool begun_ = false;
  bool told_parent_ = false;
  bool over_ = false;
  std::deque<Outgoing> outgoing_;
};

}  // namespace swale::imd
