// A decoder that believes its input: the replay must fail on it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "fuzz/target.h"

namespace swale::canary_fuzz {

SWALE_FUZZ_TARGET(canary_fuzz) {
  if (size > 0 && data[0] != '{') std::exit(9);
  return 0;
}

}  // namespace swale::canary_fuzz
