#include "tier/log/log_seal.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/coding.h"
#include "base/crc32c.h"
#include "tier/log/log_space.h"

namespace swale::tier {
namespace {

constexpr size_t kSealCrcFrom = 8;

Status damaged(const std::string& path, size_t offset, std::string_view what) {
  return corruption("{}: offset {}: {}", path, offset, what);
}

bool read_segment(Decoder* in, SegmentSeal* segment) {
  const uint64_t generation = in->varint64();
  const uint64_t count = in->varint64();
  if (!in->ok() || generation > kErasuresMax || count > in->remaining())
    return false;  // a byte a record, at least
  segment->generation = static_cast<uint32_t>(generation);
  segment->records.reserve(count);
  uint64_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t distance = in->varint64();
    if (!in->ok() || distance == 0 || distance > UINT32_MAX - at) return false;
    at += distance;
    segment->records.push_back(static_cast<uint32_t>(at));
  }
  return true;
}

}  // namespace

std::string encode_log_seal(const LogSeal& seal) {
  std::string out;
  append_u32(&out, kSealMagic);
  append_u32(&out, 0);
  append_u16(&out, kSealVersion);
  append_u8(&out, seal.closed);
  append_u8(&out, 0);
  append_u32(&out, static_cast<uint32_t>(seal.segments.size()));
  append_u64(&out, seal.log_id);
  append_u64(&out, seal.generation);
  for (const SegmentSeal& segment : seal.segments) {
    append_varint(&out, segment.generation);
    append_varint(&out, segment.records.size());
    uint32_t last = 0;
    for (const uint32_t each : segment.records) append_varint(&out, each - std::exchange(last, each));
  }
  append_varint(&out, seal.queues.size());
  for (const QueueSeal& queue : seal.queues) {
    append_sized(&out, queue.name);
    append_varint(&out, queue.records);
  }
  put_u32(out.data() + 4, crc32c(Bytes(out).substr(kSealCrcFrom)));
  return out;
}

Result<LogSeal> decode_log_seal(Bytes bytes, const std::string& path) {
  if (bytes.size() < kSealHeadBytes || get_u32(bytes.data()) != kSealMagic)
    return damaged(path, 0, "is no seal of a tier's log");
  if (get_u32(bytes.data() + 4) != crc32c(bytes.substr(kSealCrcFrom)))
    return damaged(path, 4, fmt::format("the seal of {} bytes fails its checksum", bytes.size()));
  Decoder in(bytes.substr(kSealCrcFrom));
  const uint16_t version = in.u16();
  if (version != kSealVersion)
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: offset 8: is of version {}, this build knows version {}; use a newer swale", path,
                 version, kSealVersion);
  LogSeal seal;
  seal.closed = in.u8() != 0;
  in.u8();
  const uint32_t segments = in.u32();
  seal.log_id = in.u64();
  seal.generation = in.u64();
  if (seal.generation > kOpeningsMax)
    return damaged(path, 24, fmt::format("generation {} is out of range", seal.generation));
  const auto here = [&] { return bytes.size() - in.remaining(); };
  for (uint32_t i = 0; i < segments; ++i) {
    SegmentSeal segment;
    if (!read_segment(&in, &segment))
      return damaged(path, here(), fmt::format("what the seal says of segment {} is malformed", i));
    seal.segments.push_back(std::move(segment));
  }
  const uint64_t queues = in.varint64();
  for (uint64_t i = 0; i < queues && in.ok(); ++i) {
    QueueSeal queue{std::string(in.sized()), 0};
    queue.records = in.varint64();
    seal.queues.push_back(std::move(queue));
  }
  if (!in.finished()) return damaged(path, here(), "the seal's list of queues is malformed");
  return seal;
}

Status check_belongs(const LogSeal& seal, const SegmentHeader& geometry, const std::string& ssd_directory) {
  if (seal.log_id == geometry.log_id && seal.segments.size() == geometry.segment_count) return {};
  return corruption(
      "{}: the seal is that of log {:016x} with {} segments, the log is {:016x} with {}: they do not belong "
      "together",
      ssd_directory, seal.log_id, seal.segments.size(), geometry.log_id, geometry.segment_count);
}

std::vector<Status> missing_records(const LogSeal& seal, const std::vector<SegmentScan>& segments,
                                    const std::string& path) {
  std::vector<Status> missing;
  for (const SegmentScan& scan : segments) {
    const uint64_t begin = scan.header.index * scan.header.segment_size;
    std::unordered_set<uint32_t> found;
    for (const RecordHeader& record : scan.records)
      found.insert(static_cast<uint32_t>((record.address - begin) / kRecordUnit));
    for (const DamagedRecord& record : scan.damaged)
      found.insert(static_cast<uint32_t>((record.header.address - begin) / kRecordUnit));
    const std::vector<uint32_t>& named = seal.segments[scan.header.index].records;
    const auto is_missing = [&](uint32_t each) { return !found.contains(each); };
    const auto first = std::find_if(named.begin(), named.end(), is_missing);
    if (first == named.end()) continue;
    missing.push_back(corruption(
        "{}: offset {}: {} of the {} records that the clean end of the log has sealed in segment {} are not "
        "there, this is the first one: acknowledged bytes are lost",
        path, begin + uint64_t{*first} * kRecordUnit, std::count_if(first, named.end(), is_missing),
        named.size(), scan.header.index));
  }
  return missing;
}

}  // namespace swale::tier
