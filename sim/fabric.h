// Fabric: the simulated network between the ranks of one job. A link delivers in order; faults lose,
// duplicate or alter the frames with chosen numbers, or swap them with the next one. A fabric of another kind
// carries them in its own way (tls_fabric.h), and may say that a peer is gone.
//
// Threads: the simulation's one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/route/router.h"
#include "sim/event_queue.h"

namespace swale::sim {

// kAlter flips one bit, of anything but magic and secret. kForge flips one and corrects the checksum, so that
// no rank can notice it (for canaries).
enum class FrameFault { kNone, kLose, kDouble, kAlter, kSwapWithNext, kForge };

// The class of a frame: data, control of the conversation (messages, credits, failure reports), or the job's
// own (heartbeats and exchanges).
enum class FrameClass { kData, kControl, kOwn };

struct FrameFaultPlan {
  FrameFault fault = FrameFault::kNone;
  uint64_t number = 0;  // counted over all frames of the class, from 0
  FrameClass of = FrameClass::kData;
  bool from_then_on = false;
};

class Fabric {
 public:
  // Calls `arrive` for every frame that reaches a rank.
  using Arrive = std::function<void(net::Rank from, net::Rank to, Bytes header, Bytes payload)>;
  // A fabric that notices it calls this, at most once for each peer of a rank.
  using Lose = std::function<void(net::Rank at, net::Rank peer, const Status& why)>;
  Fabric(EventQueue& events, uint64_t secret, std::vector<FrameFaultPlan> faults, Arrive arrive)
      : events_(events), secret_(secret), faults_(std::move(faults)), arrive_(std::move(arrive)) {}
  virtual ~Fabric() = default;

  void send(net::Rank from, net::Rank to, Bytes header, Bytes payload);
  virtual void kill(net::Rank) {}  // the process of that rank
  // Rank `at` has found its peer silent. True: the fabric tells it later that the peer is gone, as a
  // transport does.
  virtual bool drop(net::Rank /*at*/, net::Rank /*peer*/, const Status& /*why*/) { return false; }
  uint64_t frames(FrameClass of) const { return frames_[static_cast<size_t>(of)]; }

  static constexpr Nanos kFlightNanosMax = 50'000;

 protected:
  struct Frame {
    std::string header;
    std::string payload;
  };
  virtual void deliver(net::Rank from, net::Rank to, Frame frame);

 private:
  struct Link {
    Nanos last_arrival = 0;  // keeps the order
    std::optional<Frame> held;
  };

  FrameFault fault_of(const Frame& frame);
  void alter(Frame* frame);
  void forge(Frame* frame);

  EventQueue& events_;
  const uint64_t secret_;
  const std::vector<FrameFaultPlan> faults_;
  const Arrive arrive_;
  std::map<std::pair<net::Rank, net::Rank>, Link> links_;
  uint64_t frames_[3] = {};  // by class
};

}  // namespace swale::sim
