#include "fs/log/spill_file.h"

#include <algorithm>
#include <charconv>

#include "base/coding.h"
#include "base/crc32c.h"
#include "fs/log/log_check.h"

namespace swale::fs {
namespace {

Status damaged(const std::string& path, uint64_t offset, const char* what) {
  return corruption("{}: spilled chunk at {}: {}; the bytes that only it had are lost", path, offset, what);
}

Result<SpilledEntry> decode_entry(Decoder* in, const KnownChunk& chunk, const std::string& path,
                                  uint64_t offset) {
  SpilledEntry out;
  EntryCopy& entry = out.entry;
  entry.published = in->u64();
  entry.file.high = in->u64();
  entry.file.low = in->u64();
  entry.offset = in->u64();
  entry.length = in->u32();
  entry.place = in->u32();
  entry.number = in->u64();
  entry.check = in->u64();
  const uint64_t order = in->u64();
  // The clock of its time may have begun anew since.
  const uint64_t stamp = entry.published & ~kPublished;
  if (const char* wrong = check_entry(entry, chunk, stamp)) return damaged(path, offset, wrong);
  if (!order_is_whole(order, entry.check) || order >> 16 == 0)
    return damaged(path, offset, "its order is damaged");
  out.order = order >> 16;
  return out;
}

}  // namespace

void append_entry(std::string* out, const SpilledEntry& spilled) {
  const EntryCopy& entry = spilled.entry;
  for (const uint64_t word : {entry.published, entry.file.high, entry.file.low, entry.offset})
    append_u64(out, word);
  append_u32(out, entry.length);
  append_u32(out, entry.place);
  append_u64(out, entry.number);
  append_u64(out, entry.check);
  append_u64(out, packed_order(spilled.order, entry.check));
}

Result<std::vector<SpilledEntry>> decode_entries(Bytes bytes, const KnownChunk& chunk,
                                                 const std::string& path, uint64_t offset) {
  std::vector<SpilledEntry> entries;
  entries.reserve(bytes.size() / sizeof(LogEntry));
  Decoder in(bytes);
  while (in.remaining() > 0) {
    SWALE_ASSIGN_OR_RETURN(const auto entry, decode_entry(&in, chunk, path, offset + in.offset()));
    entries.push_back(entry);
  }
  return entries;
}

std::string spill_name(uint32_t log, uint64_t number) {
  return fmt::format("{}{}-{}", kSpillPrefix, log, number);
}

bool parse_spill_name(const std::string& name, uint32_t* log, uint64_t* number) {
  const std::string_view prefix = kSpillPrefix;
  if (!name.starts_with(prefix)) return false;
  const char* const end = name.data() + name.size();
  const auto first = std::from_chars(name.data() + prefix.size(), end, *log);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return false;
  const auto second = std::from_chars(first.ptr + 1, end, *number);
  return second.ec == std::errc() && second.ptr == end && spill_name(*log, *number) == name;
}

std::string encode_spill_index(const SpillIndex& index) {
  std::string out;
  for (const SpilledEntry& entry : index.entries) append_entry(&out, entry);
  const uint32_t entries_crc = crc32c(out);
  const size_t checks_at = out.size();
  for (const uint32_t check : index.checks) append_u32(&out, check);
  const uint32_t checks_crc = crc32c(Bytes(out).substr(checks_at));
  const size_t trailer_at = out.size();
  append_u64(&out, kSpillMagic);
  append_u32(&out, kSpillVersion);
  append_u32(&out, index.log);
  append_u64(&out, index.number);
  for (const uint32_t word : {index.chunk_bytes, index.used, static_cast<uint32_t>(index.entries.size()),
                              entries_crc, checks_crc, 0u, 0u, 0u, 0u})
    append_u32(&out, word);
  append_u32(&out, crc32c(Bytes(out).substr(trailer_at)));
  return out;
}

Result<SpillIndex> decode_spill_index(Bytes tail, uint64_t tail_offset, const std::string& path) {
  const uint64_t end = tail_offset + tail.size();
  if (tail.size() < kSpillTrailerBytes) return damaged(path, end, "its trailer is missing");
  const Bytes trailer = tail.substr(tail.size() - kSpillTrailerBytes);
  const uint64_t trailer_at = end - kSpillTrailerBytes;
  if (get_u64(trailer.data()) != kSpillMagic || get_u32(trailer.data() + 60) != crc32c(trailer.substr(0, 60)))
    return damaged(path, trailer_at, "its trailer is damaged");
  if (const uint32_t version = get_u32(trailer.data() + 8); version != kSpillVersion)
    return error(Code::kUnsupported, Scope::kFile, "{}: version {} of a spilled chunk; this build reads {}",
                 path, version, kSpillVersion);
  Decoder fields(trailer.substr(12));
  SpillIndex index;
  index.log = fields.u32();
  index.number = fields.u64();
  index.chunk_bytes = fields.u32();
  index.used = fields.u32();
  const uint64_t entries = fields.u32();
  const uint32_t entries_crc = fields.u32(), checks_crc = fields.u32();
  const uint64_t checks = blocks_of_bytes(index.used);
  if (index.chunk_bytes < kChunkBytesMin || index.chunk_bytes > kChunkBytesMax ||
      index.used > index.chunk_bytes || entries > index.chunk_bytes / sizeof(LogEntry) ||
      trailer.substr(44, 16).find_first_not_of('\0') != Bytes::npos ||
      end != index.used + entries * sizeof(LogEntry) + checks * 4 + kSpillTrailerBytes)
    return damaged(path, trailer_at, "its lengths contradict each other");
  if (index.used < tail_offset) return damaged(path, trailer_at, "its index is longer than what was read");
  const Bytes entry_bytes = tail.substr(index.used - tail_offset, entries * sizeof(LogEntry));
  const Bytes check_bytes = tail.substr(index.used - tail_offset + entry_bytes.size(), checks * 4);
  if (crc32c(entry_bytes) != entries_crc) return damaged(path, index.used, "its entries are damaged");
  if (crc32c(check_bytes) != checks_crc)
    return damaged(path, index.used + entry_bytes.size(), "its checksums are damaged");
  const KnownChunk chunk{index.log, index.number, index.chunk_bytes, index.used};
  SWALE_ASSIGN_OR_RETURN(index.entries, decode_entries(entry_bytes, chunk, path, index.used));
  for (uint64_t i = 0; i < checks; ++i) index.checks.push_back(get_u32(check_bytes.data() + 4 * i));
  return index;
}

Result<SpillIndex> read_spill_index(io::File& file) {
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file.size());
  // Entries and checks of a chunk are smaller than the chunk.
  const uint64_t most = std::min<uint64_t>(size, 2 * uint64_t{kChunkBytesMax});
  std::string trailer(std::min<uint64_t>(size, kSpillTrailerBytes), '\0');
  SWALE_RETURN_IF_ERROR(io::read_exactly(file, size - trailer.size(), trailer));
  uint64_t from = size - trailer.size();
  if (trailer.size() == kSpillTrailerBytes) {
    const uint64_t used = get_u32(trailer.data() + 28);  // believed only when the trailer's check is right
    if (used < from && size - used <= most) from = used;
  }
  std::string tail(size - from, '\0');
  SWALE_RETURN_IF_ERROR(io::read_exactly(file, from, tail));
  return decode_spill_index(tail, from, file.path());
}

}  // namespace swale::fs
