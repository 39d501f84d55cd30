// Exchange: what the ranks of a job tell each other together, over its own transport, so that a rank that
// dies, stops or is cut off while others wait for it is found as anywhere else: by the fabric or by the
// liveness watch, within seconds, by name.
//
//   allgather   every rank gets what each has given: bytes and memory grow with the ranks
//   least       every rank gets the least of what was given, as bytes compare; they do not
//   given       every rank gets what those ranks gave that gave something: bytes and memory grow with these
//
// What the ranks give travels up a tree of fan-out 8, the answer down the same tree: a rank talks to at most
// nine others, and only these are met, and so watched, by it. Whoever learns that a neighbour in the tree is
// gone tells its other neighbours: removing a rank cuts the tree into pieces, and each piece has a neighbour
// of that rank. A failure is final for the life of the job.
//
//   ExchangeTree   passive: messages and events in, messages and an answer out. Threads: the owner serialises
//                  calls.
//   Exchange       makes it a blocking call. Threads: allgather by one thread at a time, the events by any.
// Format of a message (little-endian): u32 round, from 1 | u8 kind, then
//   1 up, 2 down   varint count | count x (u32 rank | sized bytes): what a rank's subtree gave, or all did
//   3 failed       a Status (status_codec.h)
//   4 up, 5 down   as 1 and 2, with the least of them alone, or none
//   6 up, 7 down   as 1 and 2, with those that are not empty
// Limits: Bootstrap::kBytesMax a rank, as for any allgather.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "net/fabric/lent_messages.h"
#include "net/fabric/transport.h"
#include "net/meeting/fan_out.h"

namespace swale::net {

class ExchangeTree {
 public:
  using Outgoing = std::pair<Rank, std::string>;
  enum class Answer : uint8_t { kAll, kLeast, kGiven };
  using Parts = std::map<Rank, std::string>;

  ExchangeTree(Rank rank, int32_t size) : tree_{rank, size}, rank_(rank), size_(size) {}

  // This rank comes to its next round. Requires that the last one is done. kLeast, kGiven: nothing is given
  // if `mine` is empty.
  void begin(Bytes mine, Answer wanted = Answer::kAll);
  // The round's answer by rank (kLeast: one or none), or the failure; nothing while it is under way.
  std::optional<Result<Parts>> take();

  // What cannot be decoded is a failure (kCorruption) that names the sender.
  void on_message(Rank from, Bytes message);
  // The peer will give nothing more: it is dead, silent, or has left the job.
  void on_gone(Rank peer, const Status& why);
  void fail(const Status& why);  // the first failure counts; the neighbours learn of it once this rank waits
  // This rank comes to no more rounds, and tells so at once.
  void give_up(const Status& why);
  void leave();  // the round under way, without an answer
  const Status& failure() const { return failure_; }
  // The failure that the neighbours are to be told of, if memory did not suffice for it before.
  void tell_failure();

  // What is to be sent, oldest first. Taken out by the owner.
  std::deque<Outgoing>& outgoing() { return outgoing_; }
  std::deque<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }

  // Whom this rank is waiting for: children that gave nothing in this round yet, else its parent.
  std::vector<Rank> awaited() const;

 private:
  void tell_neighbours(const std::string& message, Rank but = -1);
  struct Given {
    Answer wanted;
    Parts parts;
  };
  void receive_up(Rank from, uint32_t round, Given given);
  void receive_down(uint32_t round, Given given);
  void advance();  // sends up, or down, what is complete
  void keep_least(Parts* parts) const;
  std::string encode(uint8_t kind, const Parts& parts) const;
  std::string encode_failure() const;

  const FanOut tree_;
  const Rank rank_;
  const int32_t size_;
  uint32_t round_ = 0;
  bool under_way_ = false;
  bool sent_up_ = false;
  Answer wanted_ = Answer::kAll;
  Parts mine_;
  std::map<uint32_t, std::map<Rank, Given>> up_;  // round and child; a child is at most one round ahead
  std::optional<Parts> down_;
  Status failure_;
  bool failure_due_ = false;  // to the neighbours
  bool failure_told_ = false;
  Rank failure_from_ = -1;  // the neighbour that knows it
  std::deque<Outgoing> outgoing_;
};

class Exchange {
 public:
  struct Fabric {
    // As Job::post: false if the message is borrowed until on_sent(cookie).
    std::function<bool(Rank to, Bytes message, uint64_t cookie)> post;
    std::function<void(Rank peer)> watch;  // counts the peer as met
  };

  // `deadline` is for ranks that live and do not come: for each allgather.
  Exchange(Rank rank, int32_t size, Nanos deadline, Fabric fabric)
      : deadline_(deadline), fabric_(std::move(fabric)), tree_(rank, size), rank_(rank), size_(size) {}

  Result<std::vector<std::string>> allgather(Bytes mine);
  // Empty if every rank gave nothing, which is an empty string.
  Result<std::string> least(Bytes mine);
  Result<ExchangeTree::Parts> given(Bytes mine) { return exchange(mine, ExchangeTree::Answer::kGiven); }

  // None of these throws: what fails here fails the exchange.
  void on_message(Rank from, Bytes message) noexcept;
  void on_sent(uint64_t cookie) noexcept;
  void on_gone(Rank peer, const Status& why) noexcept;
  // This rank takes part no more: every rank learns why, those that wait at once.
  void give_up(const Status& why) noexcept;
  // Call now and then. Sends what could not be sent for want of memory.
  void retry() noexcept;
  Status failure();

 private:
  Result<ExchangeTree::Parts> exchange(Bytes mine, ExchangeTree::Answer wanted);
  std::optional<Result<ExchangeTree::Parts>> wait_for_all(const MutexLock& lock, Bytes mine,
                                                          ExchangeTree::Answer wanted) REQUIRES(mutex_);
  void post_all() REQUIRES(mutex_);  // what it has not posted when it throws, it posts the next time
  template <class Event>
  void handle(const Event& event) noexcept;

  const Nanos deadline_;
  const Fabric fabric_;
  Mutex mutex_;  // held while posting, so that messages to one peer keep their order
  CondVar changed_;
  ExchangeTree tree_ GUARDED_BY(mutex_);
  LentMessages lent_ GUARDED_BY(mutex_);
  const Rank rank_;
  const int32_t size_;
};

}  // namespace swale::net
