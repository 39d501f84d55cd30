// Stats: what an engine has done since it was made, and how it stands. Threads: plain values.
#pragma once

#include <cstdint>

namespace swale::tier {

struct Stats {
  uint64_t writes = 0;
  uint64_t write_bytes = 0;
  uint64_t ssd_bytes = 0;     // payload that was sent to the log
  uint64_t direct_bytes = 0;  // payload that was sent to the backing device
  uint64_t flushed_bytes = 0;
  uint64_t gap_filled_bytes = 0;  // of flushed_bytes: in passing
  uint64_t log_waits = 0;         // writes that waited for space in the log
  uint64_t slot_waits = 0;        // writes that waited for a slot of the elevator
  uint64_t overlap_waits = 0;     // writes that waited for an overlapping one
  uint64_t overflows = 0;         // writes meant for a full log that went to the backing device
  uint64_t erasures = 0;          // of segments
  uint64_t slots_written = 0;     // operations of the backing device
  uint64_t append_errors = 0;
  uint64_t flush_errors = 0;
  uint64_t direct_errors = 0;
  // acknowledged writes that a newer one replaced before they were written anywhere
  uint64_t absorbed_bytes = 0;
  uint64_t diverted_bytes = 0;  // taken out of the queue to the backing device for the log: somebody waited
  // over bytes in the log, by writes that SSDUP+ would have sent elsewhere otherwise
  uint64_t forced_bytes = 0;
  uint64_t ssdup_plus_bytes = 0;  // SSDUP+ would have sent so many of the same writes to the log: the budget
  uint64_t lost_bytes = 0;        // acknowledged, and gone
  int64_t paused_ns = 0;          // there was something to flush, and a gate was closed
  int64_t stalled_ns = 0;         // writers waited for space in the log
  // As it stands.
  uint64_t log_capacity_bytes = 0;
  uint64_t log_used_bytes = 0;
  uint64_t dirty_bytes = 0;
  uint64_t elevator_depth = 0;
  uint64_t waiting = 0;  // requests that have begun and are not finished
  double random_percentage = 0;
  double random_percentage_mean = 0;
  double threshold = 0;
  bool flushing = false;
  bool log_failed = false;
  uint64_t reserved_bytes = 0;    // of memory, by the store
  double log_sync_ns = 0;         // measured
  double backing_sync_ns = 0;     // of a file for which the backing device had to write, measured
  double direct_ns_per_byte = 0;  // of the backing device, measured
  double flush_ns_per_byte = 0;
};

}  // namespace swale::tier
