// The log-ring: who forwards to whom when many servers want to reach one (metakv, III-C), with a radix.
//
// Servers stand on a ring. The distance d = (root - server) mod servers is written in digits of the radix; a
// server forwards to the one that is nearer by the highest digit: d = 75 in radix 8 is 1|1|3, so the path
// goes 64, 8 and 3 further. It has at most as many hops as d has digits, and a server hears from at most
// (radix - 1) servers a digit.
//
// Radix 2 is the paper's ring: of 8 servers with root 0, server 1 forwards to 5, 5 to 7, 7 to 0, and the root
// hears from 4, 6 and 7. Where a hop costs more than receiving some messages, a larger radix is faster: with
// hops of 26 us and messages of 1 us 64 servers need 6 hops in radix 2 and 2 in radix 8
// (docs/design/metadata-store.md).
//
// Threads: free functions. Requires servers >= 1 and a radix of 2 or more.
#pragma once

#include <cstdint>
#include <vector>

namespace swale::meta {

inline constexpr uint32_t kRingRadix = 8;

inline uint32_t ring_distance(uint32_t server, uint32_t root, uint32_t servers) {
  return root >= server ? root - server : root + (servers - server);
}

// The next hop on the way to the root; the root itself if the server is the root.
inline uint32_t ring_parent(uint32_t server, uint32_t root, uint32_t servers, uint32_t radix = kRingRadix) {
  const uint32_t distance = ring_distance(server, root, servers);
  if (distance == 0) return root;
  uint64_t weight = 1;
  while (weight * radix <= distance) weight *= radix;
  return static_cast<uint32_t>((server + distance / weight * weight) % servers);
}

// Which servers forward to this one. For models and tests: a delegate never needs to know.
inline std::vector<uint32_t> ring_children(uint32_t server, uint32_t root, uint32_t servers,
                                           uint32_t radix = kRingRadix) {
  const uint32_t distance = ring_distance(server, root, servers);
  std::vector<uint32_t> children;
  uint64_t weight = 1;
  while (weight <= distance) weight *= radix;
  for (; distance + weight < servers; weight *= radix) {
    for (uint64_t digit = 1; digit < radix && distance + digit * weight < servers; ++digit)
      children.push_back(static_cast<uint32_t>((server + (servers - digit * weight % servers)) % servers));
  }
  return children;
}

}  // namespace swale::meta
