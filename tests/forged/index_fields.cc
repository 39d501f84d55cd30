// The numbers of an index log: slices, minima and maxima, segment records, footers.
#include <set>

#include "base/coding.h"
#include "base/crc32c.h"
#include "run/extrema_reader.h"
#include "run/footer.h"
#include "run/segment_reader.h"
#include "tests/forged/imd_fields.h"

namespace swale::forged {
namespace {

using run::SegmentRecord;

constexpr size_t kTrailerBytes = sizeof(run::FooterTrailer);
constexpr size_t kSegmentsMax = 5;  // whose fields are forged; of all others only the last one's

bool is_sketch(const SegmentRecord& segment) { return !run::is_auxiliary(segment) && segment.runs > 0; }

// The checksum of slice `number`, whose bytes lie where `place` says, as a slice of `sealed`.
void seal_slice(std::string* log, PartitionNumber partition, const SegmentRecord& place,
                const SegmentRecord& sealed, uint64_t number) {
  const size_t at = place.index_offset + number * place.stride;
  if (at + sizeof(run::SliceHeader) > log->size()) return;
  const uint64_t told = std::min<uint64_t>(get_u32(log->data() + at + 4), place.stride);
  const size_t covered = std::clamp<uint64_t>(told, sizeof(run::SliceHeader), log->size() - at);
  put_u32(log->data() + at,
          crc32c_extend(run::segment_seed(partition, sealed), Bytes(*log).substr(at + 4, covered - 4)));
}

void seal_head(std::string* log, PartitionNumber partition, const SegmentRecord& place,
               const SegmentRecord& sealed) {
  put_u32(log->data() + place.index_offset,
          crc32c_extend(run::extrema_seed(partition, sealed, run::kHeadPart),
                        Bytes(*log).substr(place.index_offset + 4, place.stride - 4)));
}

// All parts of a segment that `record` is, as parts of `sealed`: their checksums have its numbers in their
// seeds.
void seal_segment(std::string* log, PartitionNumber partition, const SegmentRecord& record,
                  const SegmentRecord& sealed) {
  if (is_sketch(record)) {
    for (uint64_t slice = 0; slice < uint64_t{1} << record.slice_bits; ++slice)
      seal_slice(log, partition, record, sealed, slice);
  } else if (record.flags == run::kExtremaFlags) {
    seal_head(log, partition, record, sealed);
  }
}

void add_slice(Fields* fields, const Content& content, PartitionNumber partition,
               const SegmentRecord& segment, uint64_t slice) {
  const size_t begin = segment.index_offset + slice * segment.stride;
  const std::string what = fmt::format("slice {} at {}", slice, begin);
  const Reseal reseal = [=](std::string* log) { seal_slice(log, partition, segment, segment, slice); };
  add_parts(fields, what, content, begin, {{"total_bytes", 4, 4}, {"overflow_unit", 8, 4}, {"slice", 12, 4}},
            reseal);
  const bool filtered = run::is_filter_segment(segment);
  const bool uniform = (segment.flags & run::kUniformSegment) != 0;
  const size_t piece_bytes = uniform && !filtered ? 8 : 16;
  const std::vector<Part> parts =
      filtered  ? std::vector<Part>{{"block", 0, 4},        {"records", 4, 4},    {"fences", 8, 2},
                                    {"value_bytes", 10, 2}, {"key_bytes", 12, 1}, {"packed", 13, 1}}
      : uniform ? std::vector<Part>{{"virtual_ordinal", 0, 4}, {"records", 4, 3}, {"bucket_bits", 7, 1}}
                : std::vector<Part>{{"block", 0, 4},        {"ordinal", 4, 4},  {"records", 8, 3},
                                    {"bucket_bits", 11, 1}, {"advance", 12, 2}, {"key_bytes", 14, 1},
                                    {"packed", 15, 1}};
  for (const uint32_t piece : std::set<uint32_t>{0, std::min(1u, segment.runs - 1), segment.runs - 1})
    add_parts(fields, fmt::format("{}: piece {}", what, piece), content, begin + 16 + piece * piece_bytes,
              parts, reseal);
  const size_t arrays = begin + 16 + segment.runs * piece_bytes;
  const size_t end = begin + std::min(get_u32(content->data() + begin + 4), segment.stride);
  for (const size_t at : std::set<size_t>{arrays, arrays + 1, arrays + 7, (arrays + end) / 2, end - 1}) {
    if (at >= arrays && at < end)
      add_field(fields, fmt::format("{}: byte {}", what, at - begin), content, at, 1, reseal);
  }
}

void add_overflow(Fields* fields, const Content& content, PartitionNumber partition,
                  const SegmentRecord& segment, uint64_t slice) {
  const size_t header = segment.index_offset + slice * segment.stride;
  const uint32_t total = get_u32(content->data() + header + 4);
  if (total <= segment.stride) return;
  const size_t begin = segment.index_offset + (uint64_t{segment.stride} << segment.slice_bits) +
                       uint64_t{get_u32(content->data() + header + 8)} * run::kStrideUnit;
  const size_t bytes = round_up(total - segment.stride + 4, run::kStrideUnit);
  const Reseal reseal = [=](std::string* log) {
    char number[4];
    put_u32(number, static_cast<uint32_t>(slice));
    const uint32_t seed = crc32c_extend(run::segment_seed(partition, segment), {number, 4});
    put_u32(log->data() + begin, crc32c_extend(seed, Bytes(*log).substr(begin + 4, total - segment.stride)));
  };
  for (const size_t at : {begin + 4, begin + bytes / 2})
    add_field(fields, fmt::format("overflow of slice {}: byte {}", slice, at - begin), content, at, 1,
              reseal);
}

void add_extrema(Fields* fields, const Content& content, PartitionNumber partition,
                 const SegmentRecord& segment) {
  const size_t begin = segment.index_offset;
  const Reseal head = [=](std::string* log) { seal_head(log, partition, segment, segment); };
  const std::string what = fmt::format("extrema at {}", begin);
  add_parts(fields, what, content, begin,
            {{"magic", 4, 4},
             {"head_bytes", 8, 4},
             {"blocks", 12, 4},
             {"runs", 16, 4},
             {"fields", 20, 4},
             {"records", 24, 8}},
            head);
  const auto decoded =
      run::decode_extrema_head(segment, partition, Bytes(*content).substr(begin, segment.stride), "forged");
  if (!decoded.ok()) return;
  const size_t field_count = decoded->fields.size();
  for (size_t f = 0; f < field_count; ++f) {
    add_parts(fields, fmt::format("{}: field {}", what, f), content, begin + 64 + 64 * f,
              {{"type", 0, 1},
               {"offset", 4, 4},
               {"nans", 8, 8},
               {"absent", 16, 8},
               {"minimum", 24, 8},
               {"maximum", 32, 8},
               {"listed", 40, 4}},
              head);
    for (const run::Extreme which : {run::Extreme::kLargest, run::Extreme::kSmallest}) {
      const auto field = static_cast<uint32_t>(f);
      for (uint32_t piece = 0; piece < run::piece_count(decoded->fields[f].listed); ++piece) {
        const run::PiecePlace place = run::piece_place(*decoded, field, which, piece);
        const size_t at = place.offset;
        const Reseal reseal = [=](std::string* log) {
          put_u32(log->data() + at,
                  crc32c_extend(run::extrema_seed(partition, segment, run::piece_part(field, which, piece)),
                                Bytes(*log).substr(at + 4, place.bytes - 4)));
        };
        add_parts(fields,
                  fmt::format("{}: field {}, list {}, piece {}", what, f, static_cast<int>(which), piece),
                  content, at, {{"first bound", 8, 8}, {"last block", place.bytes - 8, 2}}, reseal);
      }
    }
  }
  const size_t run_bytes = 24 + 16 * field_count;
  for (const uint32_t run : std::set<uint32_t>{0, segment.runs - 1}) {
    add_parts(fields, fmt::format("{}: run {}", what, run), content,
              begin + 64 + 64 * field_count + run * run_bytes,
              {{"first_block", 0, 4},
               {"blocks", 4, 4},
               {"records", 8, 4},
               {"value_bytes", 12, 4},
               {"kind", 16, 1},
               {"key_bytes", 17, 1},
               {"minimum", 24, 8},
               {"maximum", 32, 8}},
              head);
  }
}

// One segment record of the last footer. Footers are coded, so that the whole footer is made anew.
void add_segment_record(Fields* fields, const Content& content, PartitionNumber partition,
                        const run::FooterPart& part, uint64_t footer_offset, size_t index) {
  for (const Part& field :
       {Part{"index_offset", 0, 8}, Part{"data_block", 8, 8}, Part{"epoch_id", 16, 8}, Part{"records", 24, 8},
        Part{"epoch", 32, 4}, Part{"data_blocks", 36, 4}, Part{"runs", 40, 4}, Part{"stride", 44, 4},
        Part{"overflow_units", 48, 4}, Part{"slice_bits", 52, 1}, Part{"flags", 53, 1},
        Part{"key_bytes", 54, 1}, Part{"filter_bits", 55, 1}, Part{"way", 56, 2}, Part{"ways", 58, 2},
        Part{"value_bytes", 60, 4}}) {
    std::string record(sizeof(SegmentRecord), '\0');
    put_fixed(record.data(), part.records[index]);
    const auto forge = [=](uint64_t number) {
      std::string changed = record;
      put_number(&changed, field.offset, field.bytes, number);
      run::FooterPart forged = part;
      forged.records[index] = get_fixed<SegmentRecord>(changed.data());
      std::string log = content->substr(0, footer_offset);
      seal_segment(&log, partition, part.records[index], forged.records[index]);
      return log + run::encode_footer(forged);
    };
    fields->push_back({fmt::format("segment record {}: {}", index, field.name), field.bytes,
                       number_at(record, field.offset, field.bytes), forge});
  }
}

void add_footer(Fields* fields, const Content& content, PartitionNumber partition,
                const run::FooterPart& part) {
  const size_t end = content->size();
  const size_t trailer = end - kTrailerBytes;
  const size_t begin = part.trailer.offset;
  const Reseal reseal = [=](std::string* log) {
    const uint32_t seed = run::partition_seed(partition);
    put_u32(log->data() + end - 8, crc32c_extend(seed, Bytes(*log).substr(begin, trailer - begin)));
    put_u32(log->data() + end - 4, crc32c_extend(seed, Bytes(*log).substr(trailer, kTrailerBytes - 4)));
  };
  add_parts(fields, "footer", content, trailer,
            {{"version", 8, 4},
             {"incompatible", 12, 4},
             {"compatible", 16, 4},
             {"partition", 20, 4},
             {"offset", 24, 8},
             {"bytes", 32, 4},
             {"record_bytes", 36, 4},
             {"first_record", 40, 4},
             {"record_count", 44, 4},
             {"extent_count", 48, 4}},
            reseal);
  for (size_t at = begin; at < begin + std::min<size_t>(part.trailer.record_bytes, 24); ++at)
    add_field(fields, fmt::format("footer: byte {} of the records", at - begin), content, at, 1, reseal);
  const size_t extents = trailer - part.extents.size() * sizeof(run::FooterExtent);
  for (size_t i = 0; i < part.extents.size(); ++i) {
    add_parts(fields, fmt::format("extent {}", i), content, extents + i * sizeof(run::FooterExtent),
              {{"offset", 0, 8}, {"bytes", 8, 4}, {"first_record", 12, 4}}, reseal);
  }
}

}  // namespace

Fields index_log_fields(const Content& content, PartitionNumber partition) {
  Fields fields;
  if (content->size() < kTrailerBytes) return fields;
  const auto trailer = get_fixed<run::FooterTrailer>(content->data() + content->size() - kTrailerBytes);
  if (trailer.magic != run::kFooterMagic || trailer.offset >= content->size()) return fields;
  const auto part =
      run::decode_footer(Bytes(*content).substr(trailer.offset), partition, trailer.offset, "forged");
  if (!part.ok()) return fields;
  add_footer(&fields, content, partition, *part);
  for (size_t i = 0; i < part->records.size(); ++i) {
    if (i >= kSegmentsMax && i + 1 < part->records.size()) continue;
    const SegmentRecord& segment = part->records[i];
    add_segment_record(&fields, content, partition, *part, trailer.offset, i);
    if (segment.flags == run::kExtremaFlags) add_extrema(&fields, content, partition, segment);
    if (!is_sketch(segment)) continue;
    const uint64_t slices = uint64_t{1} << segment.slice_bits;
    for (const uint64_t slice : std::set<uint64_t>{0, std::min<uint64_t>(1, slices - 1), slices - 1}) {
      add_slice(&fields, content, partition, segment, slice);
      add_overflow(&fields, content, partition, segment, slice);
    }
  }
  return fields;
}

}  // namespace swale::forged
