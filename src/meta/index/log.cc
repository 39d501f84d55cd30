#include "meta/index/log.h"

#include "store/log_window.h"

namespace swale::meta {
namespace {

static_assert(kColumnSlackBytes <= store::kWindowSlackBytes);

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
        if (!read_run(&decoder, &run) || sequence > kSequenceMax) return malformed();
        SWALE_RETURN_IF_ERROR(visitor->run(file, sequence, run));
        break;
      }
      case LogOperation::kTruncate:
      case LogOperation::kRemove: {
        const FileId file = read_file_id(&decoder);
        const Sequence sequence = decoder.varint64();
        const uint64_t size = decoder.varint64();
        const uint64_t generation = decoder.varint64();
        if (!decoder.ok() || sequence > kSequenceMax || size > kOffsetEnd) return malformed();
        SWALE_RETURN_IF_ERROR(
            visitor->truncate(file, sequence, size, generation, operation == LogOperation::kRemove));
        break;
      }
      case LogOperation::kRelocate: {
        const Sequence sequence = decoder.varint64();
        const Relocation relocation = read_relocation(&decoder);
        if (!decoder.ok() || sequence > kSequenceMax || relocation.begin > relocation.end) return malformed();
        SWALE_RETURN_IF_ERROR(visitor->relocate(sequence, relocation));
        break;
      }
      case LogOperation::kRecords: {
        const Bytes records = decoder.sized();
        if (!decoder.ok()) return malformed();
        SWALE_RETURN_IF_ERROR(visitor->records(records));
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

Result<bool> is_unused_log(io::Device& device, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file->size());
  return size <= store::kLogHeaderBytes;
}

Result<store::LogScan> replay_log(io::Device& device, const std::string& path, uint32_t shard, uint64_t owner,
                                  uint64_t end, store::LogTail tail, uint64_t* group, LogVisitor* visitor) {
  return store::read_log(
      device, path, {kShardLogKind, shard, owner}, end, tail, group,
      [&](const store::Record& record) -> Status {
        const std::string where =
            fmt::format("{}: group {} at offset {}", path, record.sequence, record.offset);
        if (record.kind != kGroupRecord) {
          return error(Code::kUnsupported, Scope::kFile,
                       "{}: a record of kind {}, which is unknown; read it with a newer swale", where,
                       record.kind);
        }
        if (record.payload.size() < sizeof(uint64_t)) return corruption("{}: has no sequence", where);
        if (const uint64_t after = get_u64(record.payload.data()); after > kSequenceMax)
          return corruption("{}: ends at sequence {}, which is out of range", where, after);
        SWALE_RETURN_IF_ERROR(visit_payload(record.payload.substr(sizeof(uint64_t)), where, visitor));
        return visitor->end_group(record.sequence, get_u64(record.payload.data())).with_context(where);
      });
}

}  // namespace swale::meta
