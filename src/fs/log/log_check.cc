#include "fs/log/log_check.h"

namespace swale::fs {

const char* check_entry(const EntryCopy& entry, const KnownChunk& chunk, uint64_t now_ns) {
  if ((entry.published & kPublished) == 0 || entry.check != check_of(entry, chunk.log))
    return "its checksum is wrong";
  if (entry.number != chunk.number) return "it is of another chunk";
  if (entry.length == 0 || entry.length > kPieceBytesMax) return "its length is none of a piece";
  if (entry.place > chunk.used || entry.length > chunk.used - entry.place)
    return "its bytes are not among those that are reserved";
  if (entry.offset > meta::kOffsetEnd || entry.length > meta::kOffsetEnd - entry.offset)
    return "it ends beyond 2^63";
  if (entry.file.none()) return "it names no file";
  if ((entry.published & ~kPublished) > now_ns + kClockSlackNanos) return "its time is in the future";
  return nullptr;
}

const char* check_reservation(const Reservation& now, const Reservation& before, uint64_t number,
                              uint64_t chunk_bytes, uint32_t entries_max) {
  if (now.number != Reservation::number_bits(number)) return "its number is another chunk's";
  if (now.used < before.used || now.entries < before.entries || (before.closed && !now.closed))
    return "it goes back";
  if (now.used + sizeof(LogEntry) * uint64_t{now.entries} + sizeof(ChunkHead) > chunk_bytes)
    return "it is longer than the chunk";
  if (now.entries > entries_max) return "it has more entries than the chunk has space for";
  return nullptr;
}

EntryCopy copy_of(const LogEntry& entry, uint64_t published) {
  return {
      published,  {entry.file_high, entry.file_low}, entry.offset, entry.length, entry.place, entry.number,
      entry.check};
}

}  // namespace swale::fs
