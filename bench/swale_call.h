// check(swale_...(...)): ends the benchmark with what the library said when a call fails.
#pragma once

#include <fmt/format.h>

#include "bench/arguments.h"
#include "swale/swale.h"

namespace swale::bench {

inline void check(int code) {
  if (code != SWALE_OK) die(fmt::format("{}: {}", swale_code_name(code), swale_last_error()));
}

}  // namespace swale::bench
