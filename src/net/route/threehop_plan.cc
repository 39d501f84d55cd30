// What the frames of the three hops take, and how large they may be: before there are any.
#include <algorithm>

#include "net/route/threehop_router.h"

namespace swale::net {
namespace {

constexpr size_t kHeadBytesMax = 16;  // before a message, its length among them
constexpr uint32_t kSharedFrames = 8;
constexpr uint16_t kWindowMax = 8;

struct Shape {
  uint64_t local_links = 0;   // of hops 1 and 3
  uint64_t remote_links = 0;  // of hop 2
};

// The greatest numbers of links that any rank has.
Shape largest_shape(const NodeMap& nodes) {
  Shape shape;
  int32_t least = nodes.ranks();
  for (int32_t node = 0; node < nodes.nodes(); ++node) {
    least = std::min(least, nodes.ranks_on(node));
    shape.local_links =
        std::max<uint64_t>(shape.local_links, static_cast<uint64_t>(nodes.ranks_on(node)) - 1);
  }
  shape.remote_links = static_cast<uint64_t>((nodes.nodes() - 1 + least - 1) / least);
  return shape;
}

uint64_t buffers_of(uint64_t links, const ThreeHopRouter::HopParams& hop) {
  return links == 0 ? 0 : (links + hop.shared_frames + links * hop.window) * hop.frame_bytes;
}

}  // namespace

uint64_t ThreeHopRouter::buffer_bytes(const NodeMap& nodes, const Hops& hops) {
  const Shape shape = largest_shape(nodes);
  return buffers_of(shape.local_links, hops[0]) + buffers_of(shape.remote_links, hops[1]) +
         buffers_of(shape.local_links, hops[2]);
}

size_t ThreeHopRouter::message_bytes_max(const Hops& hops) {
  size_t least = SIZE_MAX;
  for (const HopParams& hop : hops) least = std::min(least, hop.frame_bytes);
  return least - kHopTagBytes - kHeadBytesMax;
}

ThreeHopRouter::Hops ThreeHopRouter::hops_within(const NodeMap& nodes, uint64_t budget_bytes) {
  const Shape shape = largest_shape(nodes);
  Hops hops;
  for (HopParams& hop : hops) hop.shared_frames = kSharedFrames;
  hops[1].frame_bytes = 32 * kKiB;
  const auto total = [&] {
    return buffers_of(shape.local_links, hops[0]) + buffers_of(shape.remote_links, hops[1]) +
           buffers_of(shape.local_links, hops[2]);
  };
  // The largest frames first: the remote hop's, and then all in turn.
  while (total() > budget_bytes) {
    size_t largest = 1;
    for (size_t i = 0; i < hops.size(); ++i) {
      if (hops[i].frame_bytes > hops[largest].frame_bytes) largest = i;
    }
    if (hops[largest].frame_bytes / 2 < kHopFrameBytesMin) break;
    hops[largest].frame_bytes /= 2;
  }
  for (size_t i : {size_t{1}, size_t{2}, size_t{0}}) {
    while (hops[i].window < kWindowMax) {
      ++hops[i].window;
      if (total() <= budget_bytes) continue;
      --hops[i].window;
      break;
    }
  }
  return hops;
}

}  // namespace swale::net
