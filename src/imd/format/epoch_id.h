// The id of an epoch: stands in all that the epoch consists of, and no two epochs have the same. A job makes
// it of its own id, so it also tells repair whose epoch it is.
//
// Format: docs/formats/epochs.md. Threads: a free function.
#pragma once

#include <cstdint>

#include "base/coding.h"
#include "base/hash.h"
#include "base/numbers.h"

namespace swale::imd {

// Tells an epoch from one of the same number that another job, or an earlier life of this one, never
// committed.
inline uint64_t epoch_id(uint64_t job_id, EpochNumber epoch) {
  char bytes[12];
  put_u64(bytes, job_id);
  put_u32(bytes + 8, epoch);
  return hash_bytes({bytes, sizeof bytes});
}

}  // namespace swale::imd
