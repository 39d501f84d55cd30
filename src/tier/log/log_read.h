// Reads of the log that verify what they read: a record's header (or its end, if the header is damaged), its
// checks, and the blocks of the payload that the read touches.
//
// Cost: a read of n bytes reads at most 1,088 bytes of head and 8,190 bytes at its edges more, and computes
// the checksum of what it reads: 0.1 ns a byte.
// Threads: pure functions. Errors: damage is an answer, not an error; errors are those of the device.
#pragma once

#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "tier/log/log_format.h"
#include "tier/log/log_space.h"

namespace swale::tier {

// What is damaged of the bytes that were asked for, counted from the first of them. Empty: nothing.
struct LogDamage {
  std::vector<PayloadRange> ranges;
  const char* why = "";
};

using ReadLogBytes = std::function<Status(uint64_t address, MutableBytes out)>;

// Reads `out.size()` bytes of one record's payload, from `address` on.
Result<LogDamage> read_payload(const ReadLogBytes& read, uint64_t log_id, const RecordPlace& place,
                               uint64_t address, MutableBytes out);

// How many bytes of the record, from its begin, verify_payload needs for these bytes of its payload.
uint64_t verify_bytes(const RecordPlace& place, uint64_t address, uint64_t length);
// The same for bytes that are in memory: `record` begins at place.address. `read` is asked for the record's
// end alone.
Result<LogDamage> verify_payload(const ReadLogBytes& read, uint64_t log_id, const RecordPlace& place,
                                 Bytes record, uint64_t address, uint64_t length);

}  // namespace swale::tier
