// How long a store with a full log takes to open: the log is read once, all checksums are verified.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace swale::tierbench {

struct RecoveryCost {
  double open_s = 0;
  double open_cpu_s = 0;
  uint64_t log_bytes = 0;
  uint64_t payload_bytes = 0;
  uint64_t records = 0;
};
// Makes a store below `directory`, fills its log of a GiB, closes it, and opens it again while the page cache
// has the log.
Result<RecoveryCost> recovery_cost(const std::string& directory);

}  // namespace swale::tierbench
