#include "base/hash.h"

namespace swale {

Hash hash_bytes_of_any_length(Bytes bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Hash hash_bytes_seeded(Bytes bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace swale
