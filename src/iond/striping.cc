#include "iond/striping.h"

#include <cassert>

namespace swale::iond {

Status Striping::check() const {
  if (stripe_bytes < kStripeBytesMin || stripe_bytes > kStripeBytesMax || stripe_bytes % 4096 != 0)
    return invalid_argument("stripes of {} bytes: expected {} to {}, a multiple of 4,096", stripe_bytes,
                            kStripeBytesMin, kStripeBytesMax);
  if (servers < 1 || servers > kServersMax || first >= servers)
    return invalid_argument("stripes from server {} of {}: expected 1 to {} servers", first, servers,
                            kServersMax);
  return {};
}

uint64_t Striping::part_bytes(uint32_t server, uint64_t offset) const {
  assert(check().ok() && server < servers);
  const uint64_t stripes = offset / stripe_bytes;  // whole ones
  const uint32_t turn = turn_of(server);
  const uint64_t own = (stripes + servers - 1 - turn) / servers;
  return own * stripe_bytes + (stripes % servers == turn ? offset % stripe_bytes : 0);
}

uint64_t Striping::place_of(uint32_t server, uint64_t at) const {
  assert(server < servers && first < servers && stripe_bytes > 0);
  return (at / stripe_bytes * servers + turn_of(server)) * stripe_bytes + at % stripe_bytes;
}

uint64_t Striping::end_of(uint32_t server, uint64_t part_size) const {
  return part_size == 0 ? 0 : place_of(server, part_size - 1) + 1;
}

}  // namespace swale::iond
