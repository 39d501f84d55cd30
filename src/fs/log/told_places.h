// ToldPlaces: where logs have bytes of a file, as the server finds it, before it is published (map_format.h).
//
// Threads: plain data.
#pragma once

#include <cstdint>

#include "fs/log/map_format.h"

namespace swale::fs {

// A log that may be written.
struct LogMark {
  uint32_t log = 0;
  uint64_t current = 0;     // LogHead::current
  uint64_t reserve_at = 0;  // in the log's file: ChunkHead::reserve of that chunk; 0: it takes no writes
  uint64_t reserve = 0;     // what that was
};

struct ToldPlace {
  uint64_t offset = 0;    // in the file
  uint64_t chunk_at = 0;  // in the log's file
  uint32_t bytes = 0;
  uint32_t place = 0;  // in the chunk
  uint32_t used = 0;   // bytes of the chunk: where its last block ends
  uint32_t log = 0;
  uint32_t checks = 0;  // so many blocks, from that of `place` on, have a checksum
};

struct ToldPlaces {
  uint64_t offset = 0;  // asked for
  uint64_t end = 0;     // of what was told: beyond it there may be more
  uint64_t epoch = 0;   // NodePage::epoch
  uint32_t mark_count = 0;
  uint32_t place_count = 0;
  uint32_t check_count = 0;
  LogMark marks[kToldMarksMax];
  ToldPlace places[kToldPlacesMax];  // ascending in offset
  uint32_t checks[kToldChecksMax];   // crc32c of the blocks, one place after the other
};

}  // namespace swale::fs
