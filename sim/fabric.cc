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
  const FrameClass of = class_of(net::FrameHeader::decode(frame.header, frame.payload, secret_)->kind);
  const uint64_t number = frames_[static_cast<size_t>(of)]++;
  for (const FrameFaultPlan& plan : faults_) {
    const bool hit = plan.from_then_on ? number >= plan.number : number == plan.number;
    if (plan.of == of && hit) return plan.fault;
  }
  return FrameFault::kNone;
}

void Fabric::alter(Frame* frame) {
  // Without magic and secret a frame is a stranger's, which is dropped and counted: that fault is kLose.
  const auto is_identity = [](uint64_t at) { return at < 4 || (at >= 8 && at < 16); };
  uint64_t place = 0;
  while (is_identity(place)) place = events_.rng().below(frame->header.size() + frame->payload.size());
  char& byte =
      place < frame->header.size() ? frame->header[place] : frame->payload[place - frame->header.size()];
  byte = static_cast<char>(byte ^ (1 << events_.rng().below(8)));
}

void Fabric::forge(Frame* frame) {
  net::FrameHeader header = *net::FrameHeader::decode(frame->header, frame->payload, secret_);
  if (frame->payload.empty()) {
    header.credits = static_cast<uint16_t>(header.credits ^ 1);
  } else {
    char& byte = frame->payload[events_.rng().below(frame->payload.size())];
    byte = static_cast<char>(byte ^ (1 << events_.rng().below(8)));
  }
  const auto bytes = header.encode(frame->payload);
  frame->header.assign(bytes.data(), bytes.size());
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
    case FrameFault::kForge:
      forge(&frame);
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
