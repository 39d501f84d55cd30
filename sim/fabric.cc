#include "sim/fabric.h"

#include <algorithm>

namespace swale::sim {
namespace {

FrameClass class_of(net::FrameKind kind) {
  switch (kind) {
    case net::FrameKind::kData:
      return FrameClass::kData;
    case net::FrameKind::kControl:
    case net::FrameKind::kCredit:
    case net::FrameKind::kAbort:
      return FrameClass::kControl;
    case net::FrameKind::kHeartbeat:
    case net::FrameKind::kGoodbye:
    case net::FrameKind::kExchange:
      break;
  }
  return FrameClass::kOwn;
}

}  // namespace

FrameFault Fabric::fault_of(const Frame& frame) {
  const FrameClass of = class_of(net::FrameHeader::decode(frame.header, secret_)->kind);
  const uint64_t number = frames_[static_cast<size_t>(of)]++;
  for (const FrameFaultPlan& plan : faults_) {
    const bool hit = plan.from_then_on ? number >= plan.number : number == plan.number;
    if (plan.of == of && hit) return plan.fault;
  }
  return FrameFault::kNone;
}

void Fabric::alter(Frame* frame) {
  std::string& bytes = frame->payload.empty() ? frame->header : frame->payload;
  bytes[events_.rng().below(bytes.size())] ^= static_cast<char>(1 << events_.rng().below(8));
}

void Fabric::send(net::Rank from, net::Rank to, Bytes header, Bytes payload) {
  Frame frame{std::string(header), std::string(payload)};
  Link& link = links_[{from, to}];
  switch (fault_of(frame)) {
    case FrameFault::kLose:
      return;
    case FrameFault::kDouble:
      deliver(from, to, frame);
      break;
    case FrameFault::kAlter:
      alter(&frame);
      break;
    case FrameFault::kSwapWithNext:
      link.held = std::move(frame);
      return;
    case FrameFault::kNone:
      break;
  }
  deliver(from, to, std::move(frame));
  if (link.held) deliver(from, to, *std::exchange(link.held, std::nullopt));
}

void Fabric::deliver(net::Rank from, net::Rank to, Frame frame) {
  Link& link = links_[{from, to}];
  link.last_arrival = std::max(link.last_arrival + 1, events_.now() + events_.delay(kFlightNanosMax));
  events_.at(link.last_arrival,
             [this, from, to, frame = std::move(frame)] { arrive_(from, to, frame.header, frame.payload); });
}

}  // namespace swale::sim
