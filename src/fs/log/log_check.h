// What the server believes of a process's memory: pure checks of copies, so that nobody changes what was
// checked.
//
// Threads: pure functions.
#pragma once

#include "fs/log/log_format.h"

namespace swale::fs {

// A chunk as the server itself knows it.
struct KnownChunk {
  uint32_t log = 0;
  uint64_t number = 0;
  uint64_t chunk_bytes = 0;
  uint32_t used = 0;  // bytes that are reserved now
};

// A stamp that is later than the server's clock by more than this was never a time.
inline constexpr uint64_t kClockSlackNanos = 1'000'000'000;

// What is wrong with a published entry; nullptr: nothing.
const char* check_entry(const EntryCopy& entry, const KnownChunk& chunk, uint64_t now_ns);

// What is wrong with a chunk's reservation, of which `before` was believed; nullptr: nothing.
const char* check_reservation(const Reservation& now, const Reservation& before, uint64_t number,
                              uint64_t chunk_bytes, uint32_t entries_max);

// Copies an entry whose `published` was loaded with acquire.
EntryCopy copy_of(const LogEntry& entry, uint64_t published);

}  // namespace swale::fs
