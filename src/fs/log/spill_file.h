// A spilled chunk: a file of its own on node-local storage.
//
//   spill-LOG-NUMBER := payload entry* check* trailer
//   payload  the chunk's reserved bytes
//   entry    64 bytes: a LogEntry with its order, of each piece that was handed out
//   check    u32: crc32c of each kBlockBytes of the payload (the last one is shorter)
//   trailer  64 bytes: magic u64, version u32, log u32, number u64, chunk_bytes u32, used u32, entries u32,
//            crc of entries u32, crc of checks u32, 0 (u32 * 3), crc of the trailer's first 60 bytes u32
//
// The memory is freed after the file and its name were synced. So a file that does not end with a whole
// trailer was never finished, if its chunk is still in memory; else it is damaged.
//
// Threads: free functions. Errors: kCorruption names file and offset.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "fs/log/log_check.h"
#include "fs/log/log_format.h"
#include "io/device.h"

namespace swale::fs {

inline constexpr char kSpillPrefix[] = "spill-";
inline constexpr uint32_t kSpillVersion = 1;
inline constexpr uint64_t kSpillMagic = 0x6c6970736c617773;  // "swalspil"
inline constexpr size_t kSpillTrailerBytes = 64;

struct SpilledEntry {
  EntryCopy entry;
  uint64_t order = 0;
  friend bool operator==(const SpilledEntry& a, const SpilledEntry& b) {
    return a.order == b.order && a.entry.check == b.entry.check && a.entry.published == b.entry.published;
  }
};

struct SpillIndex {
  uint32_t log = 0;
  uint64_t number = 0;
  uint32_t chunk_bytes = 0;
  uint32_t used = 0;
  std::vector<SpilledEntry> entries;
  std::vector<uint32_t> checks;
};

constexpr uint64_t blocks_of_bytes(uint64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }

std::string spill_name(uint32_t log, uint64_t number);
// False: the name is none of a spilled chunk.
bool parse_spill_name(const std::string& name, uint32_t* log, uint64_t* number);

void append_entry(std::string* out, const SpilledEntry& spilled);
// Of `bytes` at `offset` of a file.
Result<std::vector<SpilledEntry>> decode_entries(Bytes bytes, const KnownChunk& chunk,
                                                 const std::string& path, uint64_t offset);

// What follows the payload.
std::string encode_spill_index(const SpillIndex& index);
// `tail`: the file from `tail_offset` on, which holds at least the index of a whole file.
Result<SpillIndex> decode_spill_index(Bytes tail, uint64_t tail_offset, const std::string& path);
Result<SpillIndex> read_spill_index(io::File& file);

}  // namespace swale::fs
