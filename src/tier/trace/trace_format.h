// The trace of a mount's requests as bytes. What a reader must know besides: docs/formats/tier-trace.md.
//
//   trace  := header block* end?
//   header := 32 bytes: magic u32, crc u32, version u16, 0 u16, 0 u32, begun i64, 0 u64
//   block  := magic u32, crc u32, payload_bytes u32, records u32, time u64, dropped u64, then the payload:
//          records
//   end    := a block of no records and no payload
//   record := kind u8, time varint, file varint, then by kind:
//             read, write: offset varint, length varint; truncate: size varint; unlink: names varint; rename,
//             sync: nothing
//
// A crc is CRC-32C of what follows it: of the header, or of the block with its payload. A time is in
// nanoseconds since the trace began; a record's is a step from the record before it, the first one's from the
// block's. So every block can be read alone.
//
// Threads: pure functions, and a TraceBlockBuilder that belongs to one thread at a time. Errors: kCorruption,
// and kUnsupported for a newer version; lengths are never trusted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "io/device.h"

namespace swale::tier {

inline constexpr size_t kTraceHeaderBytes = 32;
inline constexpr size_t kTraceBlockHeaderBytes = 32;
inline constexpr size_t kTracePayloadMax = 64 * kKiB;
inline constexpr uint16_t kTraceVersion = 1;

struct TraceRecord {
  // DO NOT CHANGE THESE VALUES: they stand in traces.
  enum class Kind : uint8_t { kRead = 1, kWrite = 2, kTruncate = 3, kUnlink = 4, kRename = 5, kSync = 6 };
  static constexpr uint8_t kKinds = 6;
  Kind kind = Kind::kWrite;
  Nanos time = 0;       // since the trace began
  uint64_t file = 0;    // inode on the backing file system; after the unlink of its last name, another file's
  uint64_t offset = 0;  // read, write; truncate: the new size; unlink: how many names are left
  uint64_t length = 0;  // read, write

  bool operator==(const TraceRecord&) const = default;
};
std::string_view trace_kind_name(TraceRecord::Kind kind);

std::string encode_trace_header(int64_t begun_ns);
Result<int64_t> decode_trace_header(Bytes bytes);

class TraceBlockBuilder {
 public:
  // False: the block is full, and the record belongs to the next one.
  bool add(const TraceRecord& record);
  bool empty() const { return records_ == 0; }
  // The block's bytes; begins the next one. `dropped`: records that were lost right before this block. Empty:
  // the end.
  std::string take(uint64_t dropped);

 private:
  std::string payload_;
  uint32_t records_ = 0;
  Nanos begin_ = 0;
  Nanos last_ = 0;
};

struct TraceBlockHeader {
  uint32_t payload_bytes = 0;
  uint32_t records = 0;
  Nanos time = 0;
  uint64_t dropped = 0;
};
// Of the first kTraceBlockHeaderBytes bytes of a block; does not check the crc, which covers the payload,
// too.
Result<TraceBlockHeader> decode_trace_block_header(Bytes bytes);
// Of a whole block, appended to `out`.
Status decode_trace_block(Bytes block, std::vector<TraceRecord>* out);

struct TraceSummary {
  int64_t begun_ns = 0;  // since 1970
  uint64_t records = 0;
  uint64_t dropped = 0;     // lost because the trace could not be written as quickly
  bool complete = false;    // has its end
  uint64_t torn_bytes = 0;  // after the last whole block
};
// Reads a trace block by block; a torn tail, as a kill leaves it, ends it. kCorruption if it is no trace.
// Memory: one block.
Result<TraceSummary> read_trace(io::File& file, const std::function<void(const TraceRecord&)>& visit);

}  // namespace swale::tier
