// Fabric: the simulated network between the ranks of one job. A link delivers in order; faults lose,
// duplicate or alter the frames with chosen numbers, or swap them with the next one.
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
  Fabric(EventQueue& events, uint64_t secret, std::vector<FrameFaultPlan> faults, Arrive arrive)
      : events_(events), secret_(secret), faults_(std::move(faults)), arrive_(std::move(arrive)) {}

  void send(net::Rank from, net::Rank to, Bytes header, Bytes payload);
  uint64_t frames(FrameClass of) const { return frames_[static_cast<size_t>(of)]; }

  static constexpr Nanos kFlightNanosMax = 50'000;

 private:
  struct Frame {
    std::string header;
    std::string payload;
  };
  struct Link {
    Nanos last_arrival = 0;  // keeps the order
    std::optional<Frame> held;
  };

  FrameFault fault_of(const Frame& frame);
  void alter(Frame* frame);
  void forge(Frame* frame);
  void deliver(net::Rank from, net::Rank to, Frame frame);

  EventQueue& events_;
  const uint64_t secret_;
  const std::vector<FrameFaultPlan> faults_;
  const Arrive arrive_;
  std::map<std::pair<net::Rank, net::Rank>, Link> links_;
  uint64_t frames_[3] = {};  // by class
};

}  // namespace swale::sim
