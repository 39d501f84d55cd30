#include "meta/server/messages.h"

#include <algorithm>

#include "meta/index/lattice.h"

namespace swale::meta {
namespace {

constexpr std::string_view kNames[] = {
    "put",        "get",   "get runs",        "scan",      "trim",    "forget", "relocate", "collect",
    "attributes", "stats", "relocate tables", "relocated", "removed", "names"};

void put_extent(char* bytes, const Extent& extent) {
  put_u64(bytes, extent.offset);
  put_u64(bytes + 8, extent.length);
  put_u64(bytes + 16, extent.place.address);
  put_u32(bytes + 24, extent.place.log);
}

void append_extent(std::string* out, const Extent& extent) {
  char bytes[kExtentWireBytes];
  put_extent(bytes, extent);
  out->append(bytes, sizeof(bytes));
}

void append_extents(std::string* out, std::span<const Extent> extents) {
  const size_t at = out->size();
  out->resize(at + extents.size() * kExtentWireBytes);
  char* place = out->data() + at;
  for (const Extent& extent : extents) {
    put_extent(place, extent);
    place += kExtentWireBytes;
  }
}

Extent extent_at(const char* bytes) {
  return {get_u64(bytes), get_u64(bytes + 8), {get_u32(bytes + 24), get_u64(bytes + 16)}};
}

Status read_extents(Decoder* in, uint64_t count, std::vector<Extent>* out) {
  if (count > kItemsMax + kPiecesMax) return corruption("{} extents in a message: too many", count);
  const Bytes bytes = in->bytes(count * kExtentWireBytes);
  SWALE_RETURN_IF_ERROR(in->status("extents of a message"));
  const size_t first = out->size();
  out->resize(first + count);
  for (uint64_t i = 0; i < count; ++i) (*out)[first + i] = extent_at(bytes.data() + i * kExtentWireBytes);
  return {};
}

Status check_extent(const Extent& extent) {
  if (extent.length == 0)
    return invalid_argument("a segment of 0 bytes at offset {}: expected 1 or more", extent.offset);
  if (extent.offset > kOffsetEnd || extent.length > kOffsetEnd - extent.offset) {
    return invalid_argument("a segment of {} bytes at offset {}: expected an end of at most 2^63",
                            extent.length, extent.offset);
  }
  if (extent.place.log == kHoleLog)
    return invalid_argument("a segment in log {}: that number stands for holes", kHoleLog);
  return {};
}

std::string start(Server to, const FileId& file) {
  std::string out;
  append_u32(&out, to);
  append_file(&out, file);
  return out;
}

// u32 answered | u8 whether it is to be resumed | u64 where | u32 ends | u32 each | u32 extents | extents
std::string encode_found(const Found& found, size_t first, size_t count, size_t answered,
                         const std::optional<uint64_t>& resume) {
  const size_t begin = first == 0 ? 0 : found.ends[first - 1];
  // What is left out of the ends is the beginning of a range that is to be resumed.
  size_t end = begin;
  if (first + count == found.ends.size()) {
    end = found.extents.size();
  } else if (count > 0) {
    end = found.ends[first + count - 1];
  }
  std::string out;
  out.reserve(21 + 4 * count + kExtentWireBytes * (end - begin));
  append_u32(&out, static_cast<uint32_t>(answered));
  append_u8(&out, resume ? 1 : 0);
  append_u64(&out, resume.value_or(0));
  append_u32(&out, static_cast<uint32_t>(count));
  const size_t at = out.size();
  out.resize(at + 4 * count);
  for (size_t i = 0; i < count; ++i)
    put_u32(out.data() + at + 4 * i, static_cast<uint32_t>(found.ends[first + i] - begin));
  append_u32(&out, static_cast<uint32_t>(end - begin));
  append_extents(&out, std::span(found.extents).subspan(begin, end - begin));
  return out;
}

// Unlike in logs (meta/index/log.h), of fixed sizes: so few bytes of a message never ask for much memory.
// u64 offset | u64 length | u64 address | u32 log | u8 levels | levels x (u64 count | u64 stride | u64
// address stride)
void append_wire_run(const Run& run, std::string* out) {
  append_extent(out, {run.offset, run.length, run.place});
  append_u8(out, static_cast<uint8_t>(run.levels));
  for (uint32_t i = 0; i < run.levels; ++i) {
    append_u64(out, run.level[i].count);
    append_u64(out, run.level[i].stride);
    append_u64(out, run.level[i].address_stride);
  }
}

// It may be invalid.
Run read_wire_run(Decoder* in) {
  Run run;
  const Bytes bytes = in->bytes(kExtentWireBytes);
  if (!in->ok()) return run;
  const Extent first = extent_at(bytes.data());
  run.offset = first.offset;
  run.length = first.length;
  run.place = first.place;
  run.levels = in->u8();
  for (uint32_t i = 0; i < std::min(run.levels, kRunLevels); ++i) {
    run.level[i].count = in->u64();
    run.level[i].stride = in->u64();
    run.level[i].address_stride = in->u64();
  }
  return run;
}

}  // namespace

std::vector<std::string> method_names() { return {std::begin(kNames), std::end(kNames)}; }
std::string_view method_name(Method method) { return kNames[static_cast<size_t>(method)]; }

Server server_of_message(Bytes message) { return message.size() < 4 ? ~0u : get_u32(message.data()); }

std::string encode_put(Server to, const FileId& file, const RequestName& from, const DetectedBatch& items) {
  std::string out;
  out.reserve(64 + items.extents.size() * kExtentWireBytes + items.runs.size() * 110);
  append_u32(&out, to);
  append_file(&out, file);
  append_u64(&out, from.client);
  append_u64(&out, from.number);
  append_u32(&out, static_cast<uint32_t>(items.extents.size()));
  append_u32(&out, static_cast<uint32_t>(items.runs.size()));
  append_extents(&out, items.extents);
  for (size_t i = 0; i < items.runs.size(); ++i) {
    append_u32(&out, static_cast<uint32_t>(items.run_at[i]));
    append_wire_run(items.runs[i], &out);
  }
  return out;
}

Result<PutMessage> decode_put(Bytes message) {
  Decoder in(message);
  PutMessage put;
  in.u32();
  put.file = decode_file_id(&in);
  put.from.client = in.u64();
  put.from.number = in.u64();
  const uint32_t extents = in.u32();
  const uint32_t runs = in.u32();
  SWALE_RETURN_IF_ERROR(in.status("a put"));
  if (extents > kItemsMax || runs > kItemsMax) {
    return invalid_argument("a put of {} extents and {} runs: expected at most {} of each", extents, runs,
                            kItemsMax);
  }
  SWALE_RETURN_IF_ERROR(read_extents(&in, extents, &put.items.extents));
  for (const Extent& extent : put.items.extents) SWALE_RETURN_IF_ERROR(check_extent(extent));
  uint32_t before = 0;
  for (uint32_t i = 0; i < runs && in.ok(); ++i) {
    const uint32_t at = in.u32();
    const Run run = read_wire_run(&in);
    if (!in.ok()) break;
    if (at < before || at > extents) return corruption("a put: run {} stands at {} of {}", i, at, extents);
    if (!valid(run) || run.place.log == kHoleLog) {
      return invalid_argument("a put: run {} at offset {} overlaps itself or ends beyond 2^63", i,
                              run.offset);
    }
    before = at;
    put.items.run_at.push_back(at);
    put.items.runs.push_back(run);
  }
  SWALE_RETURN_IF_ERROR(in.finish("a put"));
  return put;
}

namespace {

template <class AnyRange>
std::string encode_ranges(Server to, const FileId& file, size_t pieces_max,
                          std::span<const AnyRange> ranges) {
  std::string out;
  out.reserve(28 + 16 * ranges.size());
  append_u32(&out, to);
  append_file(&out, file);
  append_u32(&out, static_cast<uint32_t>(pieces_max));
  append_u32(&out, static_cast<uint32_t>(ranges.size()));
  const size_t at = out.size();
  out.resize(at + 16 * ranges.size());
  char* place = out.data() + at;
  for (const AnyRange& range : ranges) {
    put_u64(place, range.offset);
    put_u64(place + 8, range.length);
    place += 16;
  }
  return out;
}

}  // namespace

std::string encode_get(Server to, const GetMessage& message) {
  return encode_ranges(to, message.file, message.pieces_max, std::span<const Range>(message.ranges));
}

std::string encode_get(Server to, const FileId& file, size_t pieces_max, std::span<const ByteRange> ranges) {
  return encode_ranges(to, file, pieces_max, ranges);
}

Result<GetMessage> decode_get(Bytes message) {
  Decoder in(message);
  GetMessage get;
  in.u32();
  get.file = decode_file_id(&in);
  get.pieces_max = std::min<size_t>(in.u32(), kPiecesMax);
  const uint32_t count = in.u32();
  const Bytes ranges = in.bytes(uint64_t{count} * 16);
  SWALE_RETURN_IF_ERROR(in.finish("a get"));
  if (count > kItemsMax) return invalid_argument("a get of {} ranges: expected at most {}", count, kItemsMax);
  get.ranges.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const Range range{get.file, get_u64(ranges.data() + 16 * i), get_u64(ranges.data() + 16 * i + 8)};
    if (range.length == 0 || range.offset > kOffsetEnd || range.length > kOffsetEnd - range.offset) {
      return invalid_argument(
          "a get of {} bytes at offset {}: expected 1 or more, and an end of at most 2^63", range.length,
          range.offset);
    }
    get.ranges.push_back(range);
  }
  return get;
}

std::string encode_found(const Found& found) {
  return encode_found(found, 0, found.ends.size(), found.answered, found.resume);
}

std::string encode_found_part(const Found& found, size_t first, size_t count) {
  return encode_found(found, first, count, count, std::nullopt);
}

Result<Found> decode_found(Bytes bytes, size_t ranges) {
  Decoder in(bytes);
  Found found;
  found.answered = in.u32();
  const bool resumed = in.u8() != 0;
  const uint64_t resume = in.u64();
  if (resumed) found.resume = resume;
  const uint32_t ends = in.u32();
  SWALE_RETURN_IF_ERROR(in.status("an answer to a get"));
  if (ends > ranges || found.answered > ranges || (found.answered < ranges) != resumed ||
      ends < found.answered)
    return corruption("an answer to a get of {} ranges: {} ends, {} answered", ranges, ends, found.answered);
  const Bytes all_ends = in.bytes(uint64_t{ends} * 4);
  SWALE_RETURN_IF_ERROR(in.status("an answer to a get"));
  found.ends.resize(ends);
  size_t before = 0;
  for (uint32_t i = 0; i < ends; ++i) {
    const size_t end = get_u32(all_ends.data() + 4 * size_t{i});
    if (end < before) return corruption("an answer to a get: its ends do not ascend");
    found.ends[i] = before = end;
  }
  const uint32_t extents = in.u32();
  if (extents < before)
    return corruption("an answer to a get: {} extents, the last end is {}", extents, before);
  SWALE_RETURN_IF_ERROR(read_extents(&in, extents, &found.extents));
  SWALE_RETURN_IF_ERROR(in.finish("an answer to a get"));
  return found;
}

std::string encode_runs(std::span<const Run> runs) {
  std::string out;
  append_u32(&out, static_cast<uint32_t>(runs.size()));
  for (const Run& run : runs) append_wire_run(run, &out);
  return out;
}

Result<std::vector<Run>> decode_runs(Bytes bytes) {
  Decoder in(bytes);
  const uint32_t count = in.u32();
  if (count > bytes.size() / kExtentWireBytes) return corruption("{} runs in {} bytes", count, bytes.size());
  std::vector<Run> runs;
  runs.reserve(count);
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    runs.push_back(read_wire_run(&in));
    if (in.ok() && !valid(runs.back())) {
      return invalid_argument("run {} at offset {} overlaps itself or ends beyond 2^63", i,
                              runs.back().offset);
    }
  }
  SWALE_RETURN_IF_ERROR(in.finish("a list of runs"));
  return runs;
}

std::string encode_runs_query(Server to, const FileId& file, std::span<const Run> queries) {
  return start(to, file) + encode_runs(queries);
}

Result<RunsMessage> decode_runs_query(Bytes message) {
  Decoder in(message);
  RunsMessage query;
  in.u32();
  query.file = decode_file_id(&in);
  SWALE_RETURN_IF_ERROR(in.status("a query of runs"));
  SWALE_ASSIGN_OR_RETURN(query.queries, decode_runs(in.rest()));
  if (query.queries.size() > kItemsMax)
    return invalid_argument("a query of {} runs: expected at most {}", query.queries.size(), kItemsMax);
  return query;
}

// u32 queries | u32 each | runs
std::string encode_found_runs(const FoundRuns& found) {
  std::string out;
  append_u32(&out, static_cast<uint32_t>(found.ends.size()));
  for (const size_t end : found.ends) append_u32(&out, static_cast<uint32_t>(end));
  return out + encode_runs(found.runs);
}

Result<FoundRuns> decode_found_runs(Bytes bytes, size_t queries) {
  Decoder in(bytes);
  FoundRuns found;
  const uint32_t ends = in.u32();
  SWALE_RETURN_IF_ERROR(in.status("an answer to queries of runs"));
  if (ends != queries) return corruption("an answer to {} queries of runs has {} ends", queries, ends);
  found.ends.reserve(ends);
  for (uint32_t i = 0; i < ends; ++i) {
    found.ends.push_back(in.u32());
    if (i > 0 && found.ends[i] < found.ends[i - 1])
      return corruption("an answer to queries of runs: its ends do not ascend");
  }
  SWALE_RETURN_IF_ERROR(in.status("an answer to queries of runs"));
  SWALE_ASSIGN_OR_RETURN(found.runs, decode_runs(in.rest()));
  if (found.runs.size() != (ends == 0 ? 0 : found.ends.back()))
    return corruption("an answer to queries of runs: {} runs, the last end is {}", found.runs.size(),
                      ends == 0 ? 0 : found.ends.back());
  return found;
}

std::string encode_scan(Server to, const ScanMessage& message) {
  std::string out = start(to, message.file);
  append_u64(&out, message.from);
  append_u32(&out, static_cast<uint32_t>(message.pieces_max));
  return out;
}

Result<ScanMessage> decode_scan(Bytes message) {
  Decoder in(message);
  ScanMessage scan;
  in.u32();
  scan.file = decode_file_id(&in);
  scan.from = in.u64();
  scan.pieces_max = std::clamp<size_t>(in.u32(), 1, kPiecesMax);
  SWALE_RETURN_IF_ERROR(in.finish("a scan"));
  return scan;
}

std::string encode_scanned(const Scanned& scanned) {
  std::string out;
  append_u64(&out, scanned.next);
  append_u32(&out, static_cast<uint32_t>(scanned.extents.size()));
  append_extents(&out, scanned.extents);
  return out;
}

Result<Scanned> decode_scanned(Bytes bytes) {
  Decoder in(bytes);
  Scanned scanned;
  scanned.next = in.u64();
  const uint32_t count = in.u32();
  SWALE_RETURN_IF_ERROR(in.status("an answer to a scan"));
  SWALE_RETURN_IF_ERROR(read_extents(&in, count, &scanned.extents));
  SWALE_RETURN_IF_ERROR(in.finish("an answer to a scan"));
  return scanned;
}

std::string encode_file(Server to, const FileMessage& message) {
  std::string out = start(to, message.file);
  append_u64(&out, message.size);
  append_u64(&out, message.generation);
  return out;
}

Result<FileMessage> decode_file(Bytes message) {
  Decoder in(message);
  FileMessage file;
  in.u32();
  file.file = decode_file_id(&in);
  file.size = in.u64();
  file.generation = in.u64();
  SWALE_RETURN_IF_ERROR(in.finish("a request about a file"));
  if (file.size > kOffsetEnd) return invalid_argument("a size of {}: expected at most 2^63", file.size);
  return file;
}

std::string encode_relocate(Server to, const RelocateMessage& message) {
  std::string out;
  append_u32(&out, to);
  append_u64(&out, message.from.client);
  append_u64(&out, message.from.number);
  append_u32(&out, message.relocation.from);
  append_u64(&out, message.relocation.begin);
  append_u64(&out, message.relocation.end);
  append_u32(&out, message.relocation.to.log);
  append_u64(&out, message.relocation.to.address);
  return out;
}

Result<RelocateMessage> decode_relocate(Bytes message) {
  Decoder in(message);
  RelocateMessage relocate;
  in.u32();
  relocate.from.client = in.u64();
  relocate.from.number = in.u64();
  relocate.relocation.from = in.u32();
  relocate.relocation.begin = in.u64();
  relocate.relocation.end = in.u64();
  relocate.relocation.to.log = in.u32();
  relocate.relocation.to.address = in.u64();
  SWALE_RETURN_IF_ERROR(in.finish("a relocation"));
  return relocate;
}

std::string encode_removed(const FileId& file) {
  std::string out;
  append_file(&out, file);
  return out;
}

Result<FileId> decode_removed(Bytes message) {
  Decoder in(message);
  const FileId file = decode_file_id(&in);
  SWALE_RETURN_IF_ERROR(in.finish("the news of a removal"));
  return file;
}

std::string encode_attributes(Server to, const AttributeRequest& request) {
  std::string out;
  append_u32(&out, to);
  append_request(&out, request);
  return out;
}

Result<AttributeRequest> decode_attributes(Bytes message) {
  Decoder in(message);
  in.u32();
  SWALE_ASSIGN_OR_RETURN(AttributeRequest request, read_request(&in));
  SWALE_RETURN_IF_ERROR(in.finish("a request for attributes"));
  return request;
}

std::string encode_collected(const Collected& collected) {
  std::string out;
  append_u64(&out, collected.bytes);
  append_u8(&out, collected.complete ? 1 : 0);
  return out + encode_runs(collected.runs);
}

Result<Collected> decode_collected(Bytes bytes) {
  Decoder in(bytes);
  Collected collected;
  collected.bytes = in.u64();
  collected.complete = in.u8() != 0;
  SWALE_RETURN_IF_ERROR(in.status("a server's part of a table of runs"));
  SWALE_ASSIGN_OR_RETURN(collected.runs, decode_runs(in.rest()));
  return collected;
}

}  // namespace swale::meta
