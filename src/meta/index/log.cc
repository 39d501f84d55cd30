#include "meta/index/log.h"

#include <algorithm>

#include "base/crc32c.h"
#include "meta/index/log_window.h"

namespace swale::meta {
namespace {

uint32_t record_crc(uint64_t owner, Bytes record) {
  char id[8];
  put_u64(id, owner);
  return crc32c_extend(crc32c(Bytes(id, sizeof(id))), record.substr(8));
}

Status check_header(Bytes bytes, const std::string& path, uint32_t shard, uint64_t owner) {
  if (get_u32(bytes.data()) != kLogMagic) return corruption("{}: no header of a log", path);
  if (get_u32(bytes.data() + 4) != crc32c(bytes.substr(8)))
    return corruption("{}: the header fails its checksum", path);
  const uint16_t version = get_u16(bytes.data() + 8);
  if (version != kLogVersion)
    return error(Code::kUnsupported, Scope::kFile, "{}: log of version {}; this build reads {}", path,
                 version, kLogVersion);
  if (get_u32(bytes.data() + 12) != shard || get_u64(bytes.data() + 16) != owner)
    return corruption("{}: expected the log {:016x} of shard {}, found {:016x} of shard {}", path, owner,
                      shard, get_u64(bytes.data() + 16), get_u32(bytes.data() + 12));
  return {};
}

struct RecordHead {
  uint64_t bytes = 0;  // of the whole record; 0: there is none
  uint64_t group = 0;
  Sequence sequence_end = 0;
};

// The record at `at`, if it is whole.
Result<RecordHead> whole_record(LogWindow* log, uint64_t at, uint64_t owner) {
  if (log->size() - at < kRecordHeadBytes) return RecordHead();
  SWALE_ASSIGN_OR_RETURN(const Bytes head, log->at(at, kRecordHeadBytes));
  const uint32_t crc = get_u32(head.data() + 4);
  const uint64_t payload = get_u64(head.data() + 8);
  const RecordHead record{kRecordHeadBytes + payload, get_u64(head.data() + 16), get_u64(head.data() + 24)};
  if (get_u32(head.data()) != kRecordMagic || payload > log->size() - at - kRecordHeadBytes)
    return RecordHead();
  char id[8];
  put_u64(id, owner);
  SWALE_ASSIGN_OR_RETURN(const uint32_t found,
                         log->checksum(crc32c(Bytes(id, sizeof(id))), at + 8, record.bytes - 8));
  return found == crc ? record : RecordHead();
}

// The offset of a whole record at or after `from`; the end of the log if there is none.
Result<uint64_t> find_record(LogWindow* log, uint64_t from, uint64_t owner) {
  for (uint64_t at = from;; ++at) {
    SWALE_ASSIGN_OR_RETURN(at, log->find(kRecordMagic, at));
    if (at == log->size()) return at;
    SWALE_ASSIGN_OR_RETURN(const RecordHead record, whole_record(log, at, owner));
    if (record.bytes != 0) return at;
  }
}

Status visit_extents(Decoder* decoder, Bytes payload, const std::string& where, LogVisitor* visitor) {
  const Bytes rest = payload.substr(decoder->offset());
  const size_t length = BlockView::length_of(rest);
  if (length == 0) return corruption("{}: no block at byte {}", where, decoder->offset());
  SWALE_ASSIGN_OR_RETURN(const BlockView block, BlockView::parse(rest.substr(0, length), where));
  decoder->bytes(length);
  return visitor->extents(block);
}

}  // namespace

void append_file_id(const FileId& id, std::string* out) {
  append_u64(out, id.low);
  append_u64(out, id.high);
}

FileId read_file_id(Decoder* decoder) {
  FileId id;
  id.low = decoder->u64();
  id.high = decoder->u64();
  return id;
}

void append_run(const Run& run, std::string* out) {
  append_varint(out, run.levels);
  append_varint(out, run.offset);
  append_varint(out, run.length);
  append_varint(out, run.place.log);
  append_varint(out, run.place.address);
  for (uint32_t l = 0; l < run.levels; ++l) {
    append_varint(out, run.level[l].count);
    append_varint(out, run.level[l].stride);
    append_varint(out, run.level[l].address_stride);
  }
}

bool read_run(Decoder* decoder, Run* out) {
  Run run;
  run.levels = decoder->varint32();
  run.offset = decoder->varint64();
  run.length = decoder->varint64();
  run.place.log = decoder->varint32();
  run.place.address = decoder->varint64();
  if (run.levels > kRunLevels) return false;
  for (uint32_t l = 0; l < run.levels; ++l) {
    run.level[l].count = decoder->varint64();
    run.level[l].stride = decoder->varint64();
    run.level[l].address_stride = decoder->varint64();
  }
  *out = run;
  return decoder->ok() && valid(run);
}

void append_relocation(const Relocation& relocation, std::string* out) {
  append_varint(out, relocation.from);
  append_varint(out, relocation.begin);
  append_varint(out, relocation.end);
  append_varint(out, relocation.to.log);
  append_varint(out, relocation.to.address);
}

Relocation read_relocation(Decoder* decoder) {
  Relocation relocation;
  relocation.from = decoder->varint32();
  relocation.begin = decoder->varint64();
  relocation.end = decoder->varint64();
  relocation.to.log = decoder->varint32();
  relocation.to.address = decoder->varint64();
  return relocation;
}

std::string log_header(uint32_t shard, uint64_t owner) {
  std::string header(kLogHeaderBytes, '\0');
  put_u32(header.data(), kLogMagic);
  put_u16(header.data() + 8, kLogVersion);
  put_u32(header.data() + 12, shard);
  put_u64(header.data() + 16, owner);
  put_u32(header.data() + 4, crc32c(Bytes(header).substr(8)));
  return header;
}

void seal_record(uint64_t owner, uint64_t group, Sequence sequence_end, std::string* record) {
  char* const head = record->data();
  put_u32(head, kRecordMagic);
  put_u64(head + 8, record->size() - kRecordHeadBytes);
  put_u64(head + 16, group);
  put_u64(head + 24, sequence_end);
  put_u32(head + 4, record_crc(owner, *record));
}

Status visit_payload(Bytes payload, const std::string& where, LogVisitor* visitor) {
  // Blocks are read with loads of eight bytes: the caller keeps kColumnSlackBytes after the payload.
  Decoder decoder(payload);
  while (decoder.remaining() > 0) {
    const size_t at = decoder.offset();
    const auto malformed = [&] { return corruption("{}: operation at byte {} is malformed", where, at); };
    const auto operation = static_cast<LogOperation>(decoder.u8());
    switch (operation) {
      case LogOperation::kRequest: {
        RequestKey key;
        key.client = decoder.varint64();
        key.number = decoder.varint64();
        if (!decoder.ok()) return malformed();
        SWALE_RETURN_IF_ERROR(visitor->request(key));
        break;
      }
      case LogOperation::kExtents:
        SWALE_RETURN_IF_ERROR(visit_extents(&decoder, payload, where, visitor));
        break;
      case LogOperation::kRun: {
        const FileId file = read_file_id(&decoder);
        const Sequence sequence = decoder.varint64();
        Run run;
        if (!read_run(&decoder, &run)) return malformed();
        SWALE_RETURN_IF_ERROR(visitor->run(file, sequence, run));
        break;
      }
      case LogOperation::kTruncate:
      case LogOperation::kRemove: {
        const FileId file = read_file_id(&decoder);
        const Sequence sequence = decoder.varint64();
        const uint64_t size = decoder.varint64();
        const uint64_t generation = decoder.varint64();
        if (!decoder.ok() || size > kOffsetEnd) return malformed();
        SWALE_RETURN_IF_ERROR(
            visitor->truncate(file, sequence, size, generation, operation == LogOperation::kRemove));
        break;
      }
      case LogOperation::kRelocate: {
        const Sequence sequence = decoder.varint64();
        const Relocation relocation = read_relocation(&decoder);
        if (!decoder.ok() || relocation.begin > relocation.end) return malformed();
        SWALE_RETURN_IF_ERROR(visitor->relocate(sequence, relocation));
        break;
      }
      default:
        return error(Code::kUnsupported, Scope::kFile,
                     "{}: operation {} at byte {} is unknown; read it with a newer swale", where,
                     static_cast<unsigned>(operation), at);
    }
  }
  return {};
}

Result<LogScan> replay_log(io::Device& device, const std::string& path, uint32_t shard, uint64_t owner,
                           uint64_t end, bool may_be_torn, uint64_t* group, LogVisitor* visitor) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(uint64_t size, file->size());
  size = std::min(size, end);
  LogWindow log(*file, size);
  LogScan scan;
  SWALE_ASSIGN_OR_RETURN(const Bytes front, log.at(0, std::min<uint64_t>(size, kLogHeaderBytes)));
  const Status header = size < kLogHeaderBytes ? corruption("{}: {} bytes are no log", path, size)
                                               : check_header(front, path, shard, owner);
  if (!header.ok() && (!may_be_torn || header.code() == Code::kUnsupported)) return header;
  uint64_t at = header.ok() ? kLogHeaderBytes : 0;
  while (header.ok() && at < size) {
    SWALE_ASSIGN_OR_RETURN(const RecordHead record, whole_record(&log, at, owner));
    if (record.bytes == 0) break;
    if (record.group != *group + 1)
      return corruption("{}: record at offset {}: expected group {}, found {}", path, at, *group + 1,
                        record.group);
    SWALE_ASSIGN_OR_RETURN(const Bytes payload,
                           log.at(at + kRecordHeadBytes, record.bytes - kRecordHeadBytes));
    SWALE_RETURN_IF_ERROR(
        visit_payload(payload, fmt::format("{}: group {} at offset {}", path, record.group, at), visitor));
    SWALE_RETURN_IF_ERROR(visitor->end_group(record.group, record.sequence_end));
    *group = record.group;
    ++scan.groups;
    at += record.bytes;
  }
  scan.bytes = at;
  scan.torn_bytes = size - at;
  if (scan.torn_bytes == 0) return scan;
  SWALE_ASSIGN_OR_RETURN(const uint64_t later, find_record(&log, at, owner));
  if (later != size)
    return corruption(
        "{}: the record at offset {} (after group {}) is damaged: a whole one follows at offset {}", path, at,
        *group, later);
  if (!may_be_torn)
    return corruption("{}: the record at offset {} (after group {}) is damaged, and a later log exists", path,
                      at, *group);
  return scan;
}

}  // namespace swale::meta
