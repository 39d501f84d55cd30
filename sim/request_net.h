// RequestNet: the simulated network between clients and servers that talk in requests and answers. It delays
// both and loses them by lot, knows which servers are up, and ends every call once.
//
// A call ends with its answer, with kDeadlineExceeded after kPatience, or with kUnavailable a moment after
// the network has found its server down: when the server goes down, or when the request arrives at a server
// that is down or was started again since it was sent. An answer for a server that went down meanwhile is
// dropped.
// The order in which delays and losses are drawn is the order of the calls below: a seed is one schedule.
//
// Threads: the simulation's one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/event_queue.h"

namespace swale::sim {

class RequestNet {
 public:
  static constexpr Nanos kDelay = 50'000;  // of a message, at most
  static constexpr Nanos kPatience = 2'000'000;

  // Who waits for an answer: a client, or a server in one of its lives.
  struct Caller {
    enum class Kind { kClient, kServer } kind;
    uint32_t index;
    uint64_t tag;  // the caller's own word for the call
    uint64_t life = 0;
  };
  using Answered = std::function<void(const Caller& caller, const Result<std::string>& answer)>;

  // All servers are down.
  RequestNet(EventQueue& events, uint32_t servers, uint32_t lose_per_mille, Answered answered)
      : events_(events), lose_per_mille_(lose_per_mille), servers_(servers), answered_(std::move(answered)) {}

  static Caller client(uint32_t index, uint64_t tag) { return {Caller::Kind::kClient, index, tag}; }
  Caller server(uint32_t index, uint64_t tag) const {
    return {Caller::Kind::kServer, index, tag, servers_[index].life};
  }

  void up(uint32_t server) { servers_[server].up = true; }
  void down(uint32_t server);
  uint64_t life(uint32_t server) const { return servers_[server].life; }
  // Whether the server is up, and was since it had that life.
  bool lives(uint32_t server, uint64_t life) const {
    return servers_[server].up && servers_[server].life == life;
  }

  // Opens a call of server `to`; its number is for carry() and the answer.
  uint64_t open(const Caller& caller, uint32_t to);
  // The number of a call that nobody waits for.
  uint64_t stray() { return next_++; }
  // Draws whether a message is lost.
  bool lose();
  // The request arrives later: `arrive` hands it to the server.
  void carry(uint64_t call, std::function<void()> arrive);
  // Another copy of a request arrives up to `delay` later, at whatever life the server has then.
  void carry_copy(uint32_t to, Nanos delay, std::function<void()> arrive);
  // The server's answer; it may be lost.
  void answer(uint64_t call, Result<std::string> response);
  // The call ends so a moment later; no lot is drawn.
  void end(uint64_t call, Result<std::string> result);

  uint64_t lost() const { return lost_; }

 private:
  struct Server {
    bool up = false;
    uint64_t life = 0;
  };
  struct Call {
    Caller caller;
    uint32_t to;
    uint64_t to_life;
  };

  void fail(uint64_t call);
  void complete(uint64_t call, const Result<std::string>& result);

  EventQueue& events_;
  const uint32_t lose_per_mille_;
  std::vector<Server> servers_;
  const Answered answered_;
  std::map<uint64_t, Call> open_;
  uint64_t next_ = 1;
  uint64_t lost_ = 0;
};

}  // namespace swale::sim
