// TlsNet: the ranks of a job with the product's transport `tls`, each on a host of its own, over the Wire:
// real TLS, simulated network, virtual time. A rank's turns come a little after something is ready, as those
// of a progress thread do.
//
// A rank can be killed, and stopped for a time. Threads: the simulation's one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/fabric/transport.h"
#include "sim/event_queue.h"
#include "sim/wire.h"

namespace swale::sim {

class TlsNet {
 public:
  struct Params {
    int32_t ranks = 2;
    Wire::Params wire;
    Nanos silence_deadline = seconds(30);  // of the job: half of the transport's patience
    uint64_t rekey_after = 0;              // 0: the product's
    bool in_clear = false;                 // for canaries: nobody finds out what is altered on the way
  };
  struct Events {
    std::function<void(net::Rank at, net::Rank from, Bytes header, Bytes payload)> on_frame;
    std::function<void(net::Rank at, uint64_t cookie)> on_sent;
    std::function<void(net::Rank at, net::Rank peer, const Status& why)> on_down;
  };
  TlsNet(EventQueue& events, const Params& params, Events told);
  ~TlsNet();

  Wire& wire() { return wire_; }
  // Hosts of ranks have their numbers, strangers' those from here on.
  int first_stranger() const { return params_.ranks; }
  net::Endpoint door(net::Rank rank) const;

  // The frame's bytes are kept until they are free. on_sent comes once, also if that is at once.
  void post(net::Rank from, net::Rank to, Bytes header, Bytes payload, uint64_t cookie);
  void drop(net::Rank at, net::Rank peer, const Status& why);
  void kill(net::Rank rank);
  void stop(net::Rank rank, Nanos until);
  bool alive(net::Rank rank) const;

  void begin_end(net::Rank rank);
  bool ended(net::Rank rank);
  void end_all(net::Rank rank);  // what is posted comes home

  size_t half_open(net::Rank rank);
  uint64_t rejected(net::Rank rank) const;
  uint64_t turns() const { return turns_; }
  // The most turns of a rank, one after the other, for which nothing had happened but the turn before: a
  // progress thread that spins.
  uint64_t longest_spin() const { return longest_spin_; }
  const Status& failure() const { return failure_; }  // of any rank's turn: want of memory

 private:
  class Member;
  void wake(net::Rank rank);  // something has happened
  void plan(net::Rank rank);  // the next turn
  void turn(net::Rank rank);
  Member& at(net::Rank rank) { return *members_[static_cast<size_t>(rank)]; }
  const Member& at(net::Rank rank) const { return *members_[static_cast<size_t>(rank)]; }

  EventQueue& events_;
  const Params params_;
  const Events told_;
  Wire wire_;
  std::vector<std::unique_ptr<Member>> members_;
  uint64_t turns_ = 0;
  uint64_t longest_spin_ = 0;
  Status failure_;
};

}  // namespace swale::sim
