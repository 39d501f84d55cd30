// The shared memory of a process's log, as its two sides see it: the process that writes (log_writer.h) and
// the server of its node (node_logs.h).
//
//   FOLDER (0700) := node bell log-N*          node: NodePage, locked by the living server; bell: Bell
//   log-N         := LogHead chunk-slot*       LogHead: a page; slots: as many as the server has reserved, at
//                                              slot_begin: those of large pages begin with one
//   chunk-slot    := payload free entry* ChunkHead     payload grows up, entries grow down
//
// A chunk has a number that no other chunk of its log gets; the slot that it stands in is used again. Byte p
// of chunk n has the address n * chunk_bytes + p in the log.
//
// A slot that is used again keeps the payload of the chunk before: only where entries go are zeros.
//
// A write makes three stores that others see: `reserve` (compare and swap: space and an entry), the bytes,
// and `published` (release: the write is there). A process that ends in between leaves a reservation, and
// nothing else.
//
// Who writes what: the server LogHead's and ChunkHead's constants, `grant`, `grants`, `ended`, `refused`,
// ChunkHead::reserve when a chunk begins, and LogEntry::order; the process all else. The process can write
// every byte of its own log: the server believes no number of it that it has not checked (check_entry).
//
// Memory order: `published` is a release store after the bytes, read with acquire. `reserve` is changed by
// sequentially consistent compare-and-swaps: what a thread published before is visible to all before it
// reads its next stamp, so stamps order writes of which one began after the other had returned.
//
// Needs: nothing but the compiler (the client's half goes into a preload library).
// Limits: chunks of at most kChunkBytesMax, kSlotsMax slots a log. Native byte order: it never leaves a node.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "meta/index/types.h"

namespace swale::fs {

inline constexpr uint64_t kLogMagic = 0x676f6c656c617773;    // "swalelog"
inline constexpr uint64_t kNodeMagic = 0x65646f6e6c617773;   // "swalnode"
inline constexpr uint64_t kChunkMagic = 0x6b6e7568636c7773;  // "swlchunk"
inline constexpr uint32_t kLogVersion = 2;
inline constexpr uint32_t kPageBytes = 4096;
inline constexpr uint32_t kLargePageBytes = 2 << 20;
inline constexpr uint32_t kBlockBytes = 64 << 10;          // what a checksum covers
inline constexpr uint32_t kPieceBytesMax = 1 << 20;        // what is written whole or not at all
inline constexpr uint32_t kChunkBytes = (4 << 20) + 4096;  // four pieces and their entries
inline constexpr uint32_t kChunkBytesMin = 2 * kPageBytes;
inline constexpr uint32_t kChunkBytesMax = 16 << 20;  // Reservation::used has 24 bits
inline constexpr uint32_t kSlotsMax = 256;
inline constexpr uint64_t kPublished = uint64_t{1} << 63;  // set in every `published` but 0

inline constexpr char kNodeName[] = "node";
inline constexpr char kBellName[] = "bell";
inline constexpr char kLogPrefix[] = "log-";

// One piece of a write.
struct LogEntry {
  std::atomic<uint64_t> published;  // 0: not yet; else kPublished | stamp
  uint64_t file_high;
  uint64_t file_low;
  uint64_t offset;  // in the file
  uint32_t length;
  uint32_t place;               // in the chunk
  uint64_t number;              // of the chunk
  uint64_t check;               // check_of
  std::atomic<uint64_t> order;  // the server's: 0: not handed out; else packed_order
};
static_assert(sizeof(LogEntry) == 64 && std::atomic<uint64_t>::is_always_lock_free);

// A copy of an entry that nobody else can change.
struct EntryCopy {
  uint64_t published = 0;
  meta::FileId file;
  uint64_t offset = 0;
  uint32_t length = 0;
  uint32_t place = 0;
  uint64_t number = 0;
  uint64_t check = 0;
};

// Each step is a bijection of the state for a given word, and of the word for a given state: a change of one
// word always changes the result.
constexpr uint64_t mixed(uint64_t state, uint64_t word) {
  state = (state ^ word) * 0x9e3779b97f4a7c15;
  return state ^ (state >> 32);
}
constexpr uint64_t check_of(const EntryCopy& entry, uint32_t log) {
  uint64_t state = mixed(kLogMagic, entry.published);
  state = mixed(state, entry.file.high);
  state = mixed(state, entry.file.low);
  state = mixed(state, entry.offset);
  state = mixed(state, uint64_t{entry.length} << 32 | entry.place);
  state = mixed(state, entry.number);
  return mixed(state, log);
}

// The server's order of an entry: 48 bits, and 16 that tell whether the word is whole.
inline constexpr uint64_t kOrderMax = (uint64_t{1} << 48) - 1;
constexpr uint64_t packed_order(uint64_t order, uint64_t check) {
  return order << 16 | (mixed(check, order) & 0xffff);
}
constexpr bool order_is_whole(uint64_t packed, uint64_t check) {
  return packed == packed_order(packed >> 16, check);
}

// ChunkHead::reserve.
struct Reservation {
  uint32_t used = 0;     // bytes of payload
  uint32_t entries = 0;  // below 2^18
  uint32_t number = 0;   // the chunk's, lowest 21 bits
  bool closed = false;   // nothing more is reserved

  static constexpr uint32_t number_bits(uint64_t number) { return number & 0x1fffff; }
  static constexpr Reservation of(uint64_t word) {
    return {static_cast<uint32_t>(word & 0xffffff), static_cast<uint32_t>(word >> 24 & 0x3ffff),
            number_bits(word >> 42), word >> 63 != 0};
  }
  constexpr uint64_t packed() const {
    return uint64_t{used} | uint64_t{entries} << 24 | uint64_t{number} << 42 | uint64_t{closed} << 63;
  }
};
inline constexpr uint64_t kClosed = uint64_t{1} << 63;

// The last 64 bytes of a chunk.
struct ChunkHead {
  std::atomic<uint64_t> reserve;
  uint64_t magic;  // 0: the slot is free
  uint64_t number;
  uint64_t check;        // of magic, number and the log
  uint32_t entries_max;  // so many are zeros when the chunk begins; more it cannot have
  uint32_t warm;         // 1: the server has written to its pages
  uint64_t unused[3];
};
static_assert(sizeof(ChunkHead) == 64);
constexpr uint32_t entries_that_fit(uint64_t chunk_bytes) {
  return static_cast<uint32_t>((chunk_bytes - sizeof(ChunkHead)) / sizeof(LogEntry));
}

// Bytes that a piece of a page and more leaves free before it, so that it does not begin where a page does.
// The kernel copies with `rep movsb`. Zen 3 and 4 need three times as long for a page whose place is up to 32
// bytes ahead of its source, both counted within their pages (1 MiB: 130 us for 50 at 16 bytes). malloc gives
// large buffers 16 bytes behind a page's beginning: so reads of pieces there would be slow.
inline constexpr uint32_t kSkipBytes = 64;
constexpr uint32_t skip_before(uint32_t used, uint64_t length) {
  const uint32_t ahead = (used + kSkipBytes) % kPageBytes;  // of the last bytes of a page before
  return length < kPageBytes || ahead >= 2 * kSkipBytes ? 0 : 2 * kSkipBytes - ahead;
}

// Whether a piece of `length` bytes has space in a chunk that stands so.
constexpr bool has_space(const Reservation& now, uint64_t length, uint64_t chunk_bytes,
                         uint32_t entries_max) {
  return now.entries < entries_max &&
         now.used + length + sizeof(LogEntry) * (uint64_t{now.entries} + 1) + sizeof(ChunkHead) <=
             chunk_bytes;
}
// The writer rings then, and the server grants the next chunk.
constexpr bool is_half_full(const Reservation& now, uint64_t chunk_bytes, uint32_t entries_max) {
  return now.used + sizeof(LogEntry) * uint64_t{now.entries} > chunk_bytes / 2 ||
         now.entries > entries_max / 2;
}
inline ChunkHead* head_of(char* chunk, uint64_t chunk_bytes) {
  return reinterpret_cast<ChunkHead*>(chunk + chunk_bytes - sizeof(ChunkHead));
}
inline LogEntry* entry_of(char* chunk, uint64_t chunk_bytes, uint64_t index) {
  return reinterpret_cast<LogEntry*>(chunk + chunk_bytes - sizeof(ChunkHead) -
                                     sizeof(LogEntry) * (index + 1));
}

// The first page of a log.
struct LogHead {
  uint64_t magic;
  uint32_t version;
  uint32_t log;
  uint32_t chunk_bytes;
  uint32_t slots;
  uint64_t wait_ns;                           // how long a writer waits for a chunk
  char node[64];                              // the host's name, for messages; ends with 0
  uint64_t check;                             // of the fields before
  alignas(64) std::atomic<uint64_t> current;  // the chunk that is written: a hint of the process for itself
  alignas(64) std::atomic<uint32_t> grants;   // changes with each grant: writers sleep on it
  std::atomic<uint32_t> ended;                // the process is over: nothing of it is read any more
  std::atomic<uint32_t> refused;              // the errno that a writer without a chunk gets
  std::atomic<uint32_t> mapped;               // the kernel has pages of a file that the process may write
  alignas(64) std::atomic<uint64_t> grant[kSlotsMax];  // of chunk n, at n % kSlotsMax: packed_grant
};
static_assert(sizeof(LogHead) <= kPageBytes);

constexpr uint64_t packed_grant(uint64_t number, uint32_t slot) { return number << 16 | (slot + 1); }
// Where chunk `number` stands, or kSlotsMax.
constexpr uint32_t granted_slot(uint64_t word, uint64_t number) {
  return word >> 16 == number && (word & 0xffff) != 0 ? static_cast<uint32_t>(word & 0xffff) - 1 : kSlotsMax;
}
// In the log's file. What lies between slots has no memory.
constexpr uint64_t slot_begin(uint64_t slot, uint64_t chunk_bytes) {
  const uint64_t page = chunk_bytes < kLargePageBytes ? kPageBytes : kLargePageBytes;
  return page + slot * ((chunk_bytes + page - 1) / page * page);
}
inline char* slot_of(LogHead* log, uint32_t slot, uint64_t chunk_bytes) {
  return reinterpret_cast<char*>(log) + slot_begin(slot, chunk_bytes);
}
constexpr uint64_t log_file_bytes(uint32_t slots, uint64_t chunk_bytes) {
  return slot_begin(slots - uint64_t{1}, chunk_bytes) + chunk_bytes;
}

inline uint64_t check_of(const LogHead& head) {
  uint64_t state = mixed(kLogMagic, uint64_t{head.version} << 32 | head.log);
  state = mixed(state, uint64_t{head.chunk_bytes} << 32 | head.slots);
  state = mixed(state, head.wait_ns);
  for (const char c : head.node) state = mixed(state, static_cast<unsigned char>(c));
  return state;
}
inline bool head_is_whole(const LogHead& head, uint32_t log) {
  return head.magic == kLogMagic && head.version == kLogVersion && head.log == log &&
         head.check == check_of(head) && head.slots >= 1 && head.slots <= kSlotsMax &&
         head.chunk_bytes >= kChunkBytesMin && head.chunk_bytes <= kChunkBytesMax &&
         head.chunk_bytes % kPageBytes == 0;
}
constexpr uint64_t check_of_chunk(uint64_t number, uint32_t log) {
  return mixed(mixed(kChunkMagic, number), log);
}

struct NodeHead {
  uint64_t magic;
  uint32_t version;
  uint32_t next_log;  // numbers of logs are not used again while this file is there
};
// The page that it begins. `epoch` changes before places of logs that were told (map_format.h) have other
// bytes, and before a file changes without a write to a log. A server begins with a number of its own.
struct NodePage {
  NodeHead head;
  alignas(64) std::atomic<uint64_t> epoch;
};
static_assert(sizeof(NodePage) <= kPageBytes);

// Writers ring when they need, have taken, or have half filled a chunk. Garbage in it wakes the server in
// vain, or lets it sleep for as long as it wanted to.
struct Bell {
  std::atomic<uint32_t> rung;
  std::atomic<uint32_t> asleep;
};

}  // namespace swale::fs
