// SimJob: one rank's membership in a simulated job: the product's passive machines of net::Job (Liveness,
// ExchangeTree) over the Fabric, for one directory, whose channel is 1. Missing heartbeats reveal silent
// peers.
//
// Threads: the simulation's one; what Ranks calls by a Fiber's body.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "net/fabric/liveness.h"
#include "net/job/agree.h"
#include "net/meeting/exchange.h"
#include "net/route/router.h"
#include "sim/fabric.h"
#include "sim/fiber.h"

namespace swale::sim {

class SimJob {
 public:
  static constexpr uint32_t kChannel = 1;

  struct Params {
    net::Rank rank = 0;
    int32_t size = 1;
    uint64_t secret = 0;
    Nanos silence_deadline = seconds(5);
  };
  struct Events {
    // of the channel
    std::function<void(net::Rank from, const net::FrameHeader& header, Bytes payload)> on_frame;
    std::function<void(net::Rank peer, const Status& why)> on_down;
    std::function<void()> on_exchange;                  // an exchange may have its result
    std::function<void(const Status& why)> on_failure;  // the job cannot continue on this rank
    std::function<bool()> over;                         // whether heartbeats are no longer needed
  };

  SimJob(const Params& params, EventQueue& events, Fabric& fabric, Events told);

  // Starts heartbeats and the watch over peers; they end when over() is true.
  void start() { poll(); }

  void post(const net::Post& post);
  void arrive(net::Rank from, Bytes header, Bytes payload);
  // The fabric says so.
  void lose(net::Rank peer, const Status& why);

  // For blocking code on `fiber`; resume the fiber on on_exchange.
  net::Ranks ranks(Fiber& fiber);

 private:
  void poll();
  void post_own(net::Rank to, net::FrameKind kind, Bytes payload);
  void post_exchange();
  void give_up(const Status& why);
  Result<std::string> least(Fiber& fiber, Bytes mine);

  const Params params_;
  EventQueue& events_;
  Fabric& fabric_;
  const Events told_;
  net::Liveness liveness_;
  net::ExchangeTree tree_;
};

}  // namespace swale::sim
