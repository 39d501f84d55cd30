#include "tier/trace/trace_format.h"

#include <algorithm>
#include <array>

#include "base/coding.h"
#include "base/crc32c.h"

namespace swale::tier {
namespace {

constexpr uint32_t kHeaderMagic = 0x54775453;  // "STwT"
constexpr uint32_t kBlockMagic = 0x42775453;   // "STwB"
constexpr size_t kTraceCrcFrom = 8;
constexpr size_t kRecordBytesMax = 1 + 4 * kVarint64BytesMax;

void seal(std::string* bytes) { put_u32(bytes->data() + 4, crc32c(Bytes(*bytes).substr(kTraceCrcFrom))); }

bool has_length(TraceRecord::Kind kind) {
  return kind == TraceRecord::Kind::kRead || kind == TraceRecord::Kind::kWrite;
}
bool has_offset(TraceRecord::Kind kind) { return kind < TraceRecord::Kind::kRename; }

}  // namespace

std::string_view trace_kind_name(TraceRecord::Kind kind) {
  constexpr std::array<std::string_view, TraceRecord::kKinds> kNames = {"read",   "write",  "truncate",
                                                                        "unlink", "rename", "sync"};
  return kNames[static_cast<size_t>(kind) - 1];
}

std::string encode_trace_header(int64_t begun_ns) {
  std::string bytes;
  append_u32(&bytes, kHeaderMagic);
  append_u32(&bytes, 0);
  append_u16(&bytes, kTraceVersion);
  append_u16(&bytes, 0);
  append_u32(&bytes, 0);
  append_i64(&bytes, begun_ns);
  append_u64(&bytes, 0);
  seal(&bytes);
  return bytes;
}

Result<int64_t> decode_trace_header(Bytes bytes) {
  if (bytes.size() < kTraceHeaderBytes || get_u32(bytes.data()) != kHeaderMagic)
    return corruption("is no trace of a mount");
  bytes = bytes.substr(0, kTraceHeaderBytes);
  if (get_u32(bytes.data() + 4) != crc32c(bytes.substr(kTraceCrcFrom)))
    return corruption("the header of the trace fails its checksum");
  const uint16_t version = get_u16(bytes.data() + 8);
  if (version != kTraceVersion)
    return error(Code::kUnsupported, Scope::kFile, "a trace of version {}; this swale reads {}", version,
                 kTraceVersion);
  return static_cast<int64_t>(get_u64(bytes.data() + 16));
}

bool TraceBlockBuilder::add(const TraceRecord& record) {
  if (payload_.size() + kRecordBytesMax > kTracePayloadMax) return false;
  if (records_ == 0) begin_ = last_ = std::max<Nanos>(0, record.time);
  // Threads hand their requests in in turn, but look at the clock before: a step back counts as none.
  const Nanos step = std::max<Nanos>(0, record.time - last_);
  last_ += step;
  append_u8(&payload_, static_cast<uint8_t>(record.kind));
  append_varint(&payload_, static_cast<uint64_t>(step));
  append_varint(&payload_, record.file);
  if (has_offset(record.kind)) append_varint(&payload_, record.offset);
  if (has_length(record.kind)) append_varint(&payload_, record.length);
  ++records_;
  return true;
}

std::string TraceBlockBuilder::take(uint64_t dropped) {
  std::string bytes;
  bytes.reserve(kTraceBlockHeaderBytes + payload_.size());
  append_u32(&bytes, kBlockMagic);
  append_u32(&bytes, 0);
  append_u32(&bytes, static_cast<uint32_t>(payload_.size()));
  append_u32(&bytes, records_);
  append_u64(&bytes, static_cast<uint64_t>(begin_));
  append_u64(&bytes, dropped);
  bytes += payload_;
  seal(&bytes);
  payload_.clear();
  records_ = 0;
  return bytes;
}

Result<TraceBlockHeader> decode_trace_block_header(Bytes bytes) {
  if (bytes.size() < kTraceBlockHeaderBytes || get_u32(bytes.data()) != kBlockMagic)
    return corruption("no block of a trace");
  TraceBlockHeader header;
  header.payload_bytes = get_u32(bytes.data() + 8);
  header.records = get_u32(bytes.data() + 12);
  const uint64_t time = get_u64(bytes.data() + 16);
  header.dropped = get_u64(bytes.data() + 24);
  if (header.payload_bytes > kTracePayloadMax || header.records > header.payload_bytes ||
      time > static_cast<uint64_t>(kForever))
    return corruption("a block of a trace with {} bytes and {} records", header.payload_bytes,
                      header.records);
  header.time = static_cast<Nanos>(time);
  return header;
}

Status decode_trace_block(Bytes block, std::vector<TraceRecord>* out) {
  SWALE_ASSIGN_OR_RETURN(const TraceBlockHeader header, decode_trace_block_header(block));
  if (block.size() != kTraceBlockHeaderBytes + header.payload_bytes ||
      get_u32(block.data() + 4) != crc32c(block.substr(kTraceCrcFrom)))
    return corruption("a block of a trace fails its checksum");
  Decoder in(block.substr(kTraceBlockHeaderBytes));
  Nanos time = header.time;
  for (uint32_t i = 0; i < header.records; ++i) {
    const uint8_t kind = in.u8();
    const uint64_t step = in.varint64();
    if (in.ok() && (kind < 1 || kind > TraceRecord::kKinds || step > static_cast<uint64_t>(kForever - time)))
      return corruption("record {} of a block of a trace has kind {} and a step of {} ns", i, kind, step);
    TraceRecord record;
    record.kind = static_cast<TraceRecord::Kind>(kind);
    record.time = time += static_cast<Nanos>(step);
    record.file = in.varint64();
    if (has_offset(record.kind)) record.offset = in.varint64();
    if (has_length(record.kind)) record.length = in.varint64();
    SWALE_RETURN_IF_ERROR(in.status("a block of a trace"));
    out->push_back(record);
  }
  return in.finish("a block of a trace");
}

Result<TraceSummary> read_trace(io::File& file, const std::function<void(const TraceRecord&)>& visit) {
  std::string bytes(kTraceHeaderBytes, '\0');
  TraceSummary summary;
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file.size());
  SWALE_ASSIGN_OR_RETURN(const size_t got, file.pread(0, bytes));
  const auto begun = decode_trace_header(Bytes(bytes).substr(0, got));
  if (!begun.ok()) return begun.status().with_context(file.path());
  summary.begun_ns = *begun;
  uint64_t at = kTraceHeaderBytes;
  std::vector<TraceRecord> records;
  while (!summary.complete && at + kTraceBlockHeaderBytes <= size) {
    bytes.resize(kTraceBlockHeaderBytes);
    SWALE_RETURN_IF_ERROR(io::read_exactly(file, at, bytes));
    const auto header = decode_trace_block_header(bytes);
    if (!header.ok() || at + kTraceBlockHeaderBytes + header->payload_bytes > size) break;
    bytes.resize(kTraceBlockHeaderBytes + header->payload_bytes);
    SWALE_RETURN_IF_ERROR(io::read_exactly(file, at, bytes));
    records.clear();
    if (!decode_trace_block(bytes, &records).ok()) break;
    at += bytes.size();
    summary.complete = header->records == 0;
    summary.records += records.size();
    summary.dropped += header->dropped;
    for (const TraceRecord& record : records) visit(record);
  }
  summary.torn_bytes = size - at;
  return summary;
}

}  // namespace swale::tier
