#include "run/extrema_reader.h"

#include <algorithm>
#include <optional>

#include "base/coding.h"
#include "base/crc32c.h"
#include "run/block.h"
#include "run/packed_block.h"
#include "run/record.h"

namespace swale::run {
namespace {

Status damaged(std::string_view path, uint64_t offset, std::string_view what) {
  return corruption("{}: offset {}: {}; run `swale verify`", path, offset, what);
}

Status check_sum(Bytes bytes, uint32_t seed, uint64_t offset, std::string_view what, std::string_view path) {
  const uint32_t found = crc32c_extend(seed, bytes.substr(4));
  const uint32_t expected = get_u32(bytes.data());
  if (found == expected) return {};
  return damaged(path, offset, fmt::format("{} has checksum {:08x}, expected {:08x}", what, found, expected));
}

bool possible(const Extrema& extrema, bool listed) { return listed == !extrema.empty(); }

bool possible_run(const GroupRun& run) {
  const uint64_t row_bytes = run.key_bytes + uint64_t{run.value_bytes};
  if (run.blocks == 0 || run.records == 0 || run.records > kRunRecordsMax) return false;
  if (run.kind == RunKind::kVariable || run.kind == RunKind::kPacked) return row_bytes == 0;
  return run.kind == RunKind::kUniform && run.key_bytes > 0 && row_bytes <= kRowBytesMax;
}

Result<GroupField> decode_field(const char* at, uint32_t blocks, uint64_t offset, std::string_view path) {
  const auto stored = get_fixed<ExtremaField>(at);
  if (!is_field_type(static_cast<uint8_t>(stored.type))) {
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: offset {}: extrema of a field of unknown type {}; read it with a newer swale", path,
                 offset, static_cast<int>(stored.type));
  }
  GroupField field;
  field.type = stored.type;
  field.offset = stored.offset;
  field.listed = stored.listed;
  field.totals = {{stored.minimum, stored.maximum}, stored.nans, stored.absent};
  if (stored.offset > kValueBytesMax || stored.listed > blocks ||
      !possible(field.totals.extrema, stored.listed > 0)) {
    return damaged(path, offset, "the extrema of a field have impossible numbers");
  }
  return field;
}

Result<std::vector<GroupRun>> decode_runs(const SegmentRecord& segment, const std::vector<GroupField>& fields,
                                          const char* at, std::string_view path) {
  std::vector<GroupRun> runs;
  uint64_t group_block = 0;
  uint64_t records = 0;
  uint64_t log_end = 0;
  for (uint32_t i = 0; i < segment.runs; ++i) {
    const auto stored = get_fixed<ExtremaRun>(at);
    at += sizeof(ExtremaRun);
    GroupRun& run = runs.emplace_back();
    run.first_block = segment.data_block + stored.first_block;
    run.group_block = static_cast<uint32_t>(group_block);
    run.blocks = stored.blocks;
    run.records = stored.records;
    run.value_bytes = stored.value_bytes;
    run.kind = stored.kind;
    run.key_bytes = stored.key_bytes;
    for (size_t f = 0; f < fields.size(); ++f, at += 16) {
      run.extrema.push_back({get_u64(at), get_u64(at + 8)});
      Extrema whole = fields[f].totals.extrema;
      whole.add(run.extrema.back());
      if (whole != fields[f].totals.extrema)
        return damaged(path, segment.index_offset, "a run exceeds its group's extrema");
    }
    group_block += run.blocks;
    records += run.records;
    const uint64_t run_end = uint64_t{stored.first_block} + stored.blocks;
    if (!possible_run(run) || stored.first_block < log_end || run_end > segment.data_blocks ||
        group_block > segment.value_bytes) {
      return damaged(path, segment.index_offset,
                     fmt::format("run {} of the extrema has impossible numbers", i));
    }
    log_end = run_end;
  }
  if (group_block != segment.value_bytes || records != segment.records) {
    return damaged(path, segment.index_offset, "the runs of the extrema are not those of the segment");
  }
  return runs;
}

}  // namespace

bool is_extrema_segment(const SegmentRecord& segment) { return segment.flags == kExtremaFlags; }

Status check_extrema_segment(const SegmentRecord& segment, uint64_t index_end, std::string_view path) {
  const bool possible =
      segment.key_bytes >= 1 && segment.key_bytes <= kIndexedFieldsMax && segment.runs >= 1 &&
      segment.runs <= segment.value_bytes && segment.value_bytes <= kGroupBlocksMax &&
      segment.slice_bits == 0 && segment.way < segment.ways &&
      segment.stride == extrema_head_bytes(segment.runs, segment.key_bytes) &&
      segment.data_block <= uint64_t{1} << 51 && segment.index_offset % kIndexUnit == 0 &&
      segment.index_offset <= index_end && segment_bytes(segment) <= index_end - segment.index_offset;
  if (possible) return {};
  return damaged(path, segment.index_offset,
                 fmt::format("the record of the extrema of epoch {}, way {}, has impossible numbers",
                             segment.epoch, segment.way));
}

const GroupRun& GroupHead::run_of(uint32_t group_block) const {
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), group_block,
                       [](uint32_t block, const GroupRun& run) { return block < run.group_block; });
  return *(after - 1);
}

Result<GroupHead> decode_extrema_head(const SegmentRecord& segment, PartitionNumber partition, Bytes bytes,
                                      std::string_view path) {
  const uint64_t offset = segment.index_offset;
  if (bytes.size() != segment.stride || bytes.size() < sizeof(ExtremaHead)) {
    return damaged(path, offset,
                   fmt::format("expected a head of {} bytes, found {}", segment.stride, bytes.size()));
  }
  SWALE_RETURN_IF_ERROR(
      check_sum(bytes, extrema_seed(partition, segment, kHeadPart), offset, "the head of extrema", path));
  const auto stored = get_fixed<ExtremaHead>(bytes.data());
  if (stored.magic != kExtremaMagic || stored.head_bytes != segment.stride ||
      stored.blocks != segment.value_bytes || stored.runs != segment.runs ||
      stored.fields != segment.key_bytes || stored.records != segment.records ||
      stored.head_bytes != extrema_head_bytes(stored.runs, stored.fields)) {
    return damaged(path, offset, "the head of extrema is not that of its segment");
  }
  GroupHead head;
  head.segment = segment;
  uint64_t lists_offset = offset + segment.stride;
  const char* at = bytes.data() + sizeof(ExtremaHead);
  for (uint32_t f = 0; f < stored.fields; ++f, at += sizeof(ExtremaField)) {
    SWALE_ASSIGN_OR_RETURN(GroupField field, decode_field(at, stored.blocks, offset, path));
    field.lists_offset = lists_offset;
    lists_offset += 2 * uint64_t{list_bytes(field.listed)};
    head.fields.push_back(field);
  }
  if (lists_offset > offset + segment.stride + uint64_t{segment.overflow_units} * kStrideUnit) {
    return damaged(path, offset, "the lists of the extrema exceed their segment");
  }
  SWALE_ASSIGN_OR_RETURN(head.runs, decode_runs(segment, head.fields, at, path));
  return head;
}

PiecePlace piece_place(const GroupHead& head, size_t field, Extreme which, uint32_t piece) {
  const GroupField& of = head.fields[field];
  const ListPieceShape shape = list_piece_shape(of.listed, piece);
  const uint64_t list = of.lists_offset + (which == Extreme::kLargest ? 0 : list_bytes(of.listed));
  return {list + shape.offset, shape.bytes()};
}

Result<std::vector<PieceEntry>> decode_extrema_piece(const GroupHead& head, PartitionNumber partition,
                                                     size_t field, Extreme which, uint32_t piece, Bytes bytes,
                                                     std::string_view path) {
  const GroupField& of = head.fields[field];
  const ListPieceShape shape = list_piece_shape(of.listed, piece);
  const PiecePlace place = piece_place(head, field, which, piece);
  if (bytes.size() != place.bytes) {
    return damaged(path, place.offset,
                   fmt::format("expected {} bytes of extrema, found {}", place.bytes, bytes.size()));
  }
  const uint32_t part = piece_part(static_cast<uint32_t>(field), which, piece);
  SWALE_RETURN_IF_ERROR(
      check_sum(bytes, extrema_seed(partition, head.segment, part), place.offset, "a list of extrema", path));
  const char* const bounds = bytes.data() + kPieceHeaderBytes;
  const char* const blocks = bounds + 8 * size_t{shape.bounds()};
  std::vector<PieceEntry> entries(shape.entries);
  OrderKey score = score_of(which, of.totals.extrema.best(which));
  for (uint32_t i = 0; i < shape.entries; ++i) {
    entries[i] = {get_u64(bounds + 8 * size_t{i / shape.step}), get_u16(blocks + 2 * size_t{i})};
    if (score_of(which, entries[i].bound) > score || entries[i].block >= head.segment.value_bytes) {
      return damaged(path, place.offset, fmt::format("entry {} of a list of extrema is impossible", i));
    }
    score = score_of(which, entries[i].bound);
  }
  return entries;
}

namespace {

Result<uint32_t> uniform_records(const GroupRun& run, BlockNumber block_number, Bytes block,
                                 const BlockRecordFn& fn, std::string_view path) {
  const BlockTrailer trailer = block_trailer(block.data());
  const uint64_t row_bytes = run.key_bytes + uint64_t{run.value_bytes};
  if (trailer.count > 0 && trailer.first_start + trailer.count * row_bytes > kPayloadBytes) {
    return damaged(path, block_number * kBlockBytes, "the block's rows are not those of its run");
  }
  const char* row = block.data() + trailer.first_start;
  for (uint32_t i = 0; i < trailer.count; ++i, row += row_bytes) {
    fn(i, {.key = {row, run.key_bytes}, .value = {row + run.key_bytes, run.value_bytes}, .encoded = {}});
  }
  return 0;
}

// The stream of records, starting at the front of the first block.
Result<std::vector<char>> join(Bytes blocks, bool packed, BlockNumber block_number, std::string_view path) {
  std::vector<char> joined;
  for (; !blocks.empty(); blocks.remove_prefix(kBlockBytes), ++block_number) {
    const Bytes block = blocks.substr(0, kBlockBytes);
    if (packed) {
      SWALE_RETURN_IF_ERROR(append_piece(block, block_number, path, &joined));
    } else {
      joined.insert(joined.end(), block.begin(), block.begin() + kPayloadBytes);
    }
  }
  return joined;
}

}  // namespace

Result<uint32_t> records_of_block(const GroupRun& run, BlockNumber block_number, Bytes blocks,
                                  const BlockRecordFn& fn, std::string_view path) {
  if (blocks.empty() || blocks.size() % kBlockBytes != 0) {
    return damaged(path, block_number * kBlockBytes, "the block is cut off");
  }
  if (run.kind == RunKind::kUniform)
    return uniform_records(run, block_number, blocks.substr(0, kBlockBytes), fn, path);
  const BlockTrailer trailer = block_trailer(blocks.data());
  if (trailer.count == 0) return 0;
  SWALE_ASSIGN_OR_RETURN(const std::vector<char> joined,
                         join(blocks, run.kind == RunKind::kPacked, block_number, path));
  if (trailer.first_start >= joined.size())
    return damaged(path, block_number * kBlockBytes, "a record starts behind the payload");
  std::vector<RecordView> records(trailer.count);
  Bytes rest(joined.data() + trailer.first_start, joined.size() - trailer.first_start);
  for (RecordView& record : records) {
    const RecordParse parse = parse_record(rest, &record);
    const uint64_t read_blocks = blocks.size() / kBlockBytes;
    const bool last_of_run = block_number + read_blocks >= run.first_block + run.blocks;
    if (parse == RecordParse::kCutOff && &record == &records.back() && !last_of_run &&
        read_blocks < kCandidateBlocksMax) {
      return 1;
    }
    if (parse != RecordParse::kOk)
      return damaged(path, block_number * kBlockBytes, "a record in the block is malformed");
    rest.remove_prefix(record.encoded.size());
  }
  for (uint32_t i = 0; i < records.size(); ++i) fn(i, records[i]);
  return 0;
}

Result<GroupContent> decode_extrema_group(const SegmentRecord& segment, PartitionNumber partition,
                                          Bytes bytes, std::string_view path) {
  GroupContent group;
  SWALE_ASSIGN_OR_RETURN(group.head,
                         decode_extrema_head(segment, partition, bytes.substr(0, segment.stride), path));
  for (size_t field = 0; field < group.head.fields.size(); ++field) {
    for (const Extreme which : {Extreme::kLargest, Extreme::kSmallest}) {
      std::vector<PieceEntry>& list = group.lists.emplace_back();
      for (uint32_t piece = 0; piece < piece_count(group.head.fields[field].listed); ++piece) {
        const PiecePlace place = piece_place(group.head, field, which, piece);
        SWALE_ASSIGN_OR_RETURN(
            const std::vector<PieceEntry> entries,
            decode_extrema_piece(group.head, partition, field, which, piece,
                                 bytes.substr(place.offset - segment.index_offset, place.bytes), path));
        list.insert(list.end(), entries.begin(), entries.end());
      }
    }
  }
  return group;
}

Status check_group_fields(const GroupHead& head, std::span<const FieldPlace> indexed, std::string_view path) {
  const bool same = std::equal(indexed.begin(), indexed.end(), head.fields.begin(), head.fields.end(),
                               [](const FieldPlace& place, const GroupField& field) {
                                 return place.type == field.type && place.offset == field.offset;
                               });
  return same ? Status()
              : damaged(path, head.segment.index_offset, "extrema of other fields than the manifest names");
}

}  // namespace swale::run
