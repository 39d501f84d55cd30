#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "base/coding.h"
#include "run/extrema_reader.h"
#include "run/footer.h"
#include "run/segment_reader.h"
#include "run/value_format.h"
#include "tools/bytes_text.h"
#include "tools/dump.h"

namespace swale::tools {
namespace {

Json segment_json(const run::SegmentRecord& segment) {
  return {{"what", run::is_extrema_segment(segment) ? "extrema" : "segment"},
          {"offset", segment.index_offset},
          {"epoch", segment.epoch.value()},
          {"epoch_id", hex16(segment.epoch_id)},
          {"way", segment.way},
          {"ways", segment.ways},
          {"runs", segment.runs},
          {"records", segment.records},
          {"data_block", segment.data_block.value()},
          {"data_blocks", segment.data_blocks},
          {"stride", segment.stride},
          {"slice_bits", segment.slice_bits},
          {"overflow_units", segment.overflow_units},
          {"flags", segment.flags},
          {"filter_bits", segment.filter_bits},
          {"key_bytes", segment.key_bytes},
          {"value_bytes", segment.value_bytes}};
}

class IndexLogDump {
 public:
  IndexLogDump(io::File& file, PartitionNumber partition, DumpOutput* out)
      : file_(file), partition_(partition), out_(*out) {}

  Status run() {
    SWALE_ASSIGN_OR_RETURN(size_, file_.size());
    SWALE_RETURN_IF_ERROR(find_footers());
    if (footers_.empty()) out_.damage(0, corruption("{}: holds no footer", file_.path()));
    for (const auto& [place, segment] : segments_) {
      show_footers(segment.index_offset);
      show_segment(segment);
    }
    show_footers(size_);
    for (const auto& [offset, cause] : damaged_footers_) out_.damage(offset, cause);
    return {};
  }

 private:
  // Shows all footers, including those of uncommitted epochs, and the segments that they list.
  Status find_footers() {
    return run::each_footer(file_, partition_, [this](uint64_t offset, const Result<run::FooterPart>& part) {
      if (!part.ok()) {
        damaged_footers_.emplace(offset, part.status());
        return;
      }
      for (const run::SegmentRecord& segment : part->records) {
        if (!run::is_values_segment(segment) && !run::is_table_segment(segment))
          segments_[{segment.index_offset, segment.epoch_id, segment.way}] = segment;
      }
      footers_.emplace(offset, *part);
    });
  }

  // Shows those before `to` that were not shown yet.
  void show_footers(uint64_t to) {
    for (auto it = footers_.begin(); it != footers_.end() && it->first < to; it = footers_.erase(it)) {
      const run::FooterTrailer& trailer = it->second.trailer;
      out_.line({{"what", "footer"},
                 {"offset", it->first},
                 {"bytes", trailer.bytes},
                 {"version", trailer.version},
                 {"incompatible_features", trailer.incompatible_features},
                 {"compatible_features", trailer.compatible_features},
                 {"partition", trailer.partition.value()},
                 {"first_record", trailer.first_record},
                 {"records", trailer.record_count},
                 {"extents", trailer.extent_count}});
      for (const run::SegmentRecord& segment : it->second.records) show_values(segment);
      for (const run::FooterExtent& extent : it->second.extents) {
        out_.line({{"what", "extent"},
                   {"offset", extent.offset},
                   {"bytes", extent.bytes},
                   {"first_record", extent.first_record}});
      }
    }
  }

  // Shows ranges of the value log, each once, with the first footer that has it.
  void show_values(const run::SegmentRecord& segment) {
    const run::ValueRange range = run::range_of(segment);
    if (run::is_table_segment(segment) && tables_shown_.insert(segment.epoch_id).second) {
      out_.line({{"what", "table-place"},
                 {"epoch", segment.epoch.value()},
                 {"epoch_id", hex16(segment.epoch_id)},
                 {"pairs", range.values},
                 {"first_offset", range.offset},
                 {"bytes", range.bytes}});
    }
    if (!run::is_values_segment(segment) || !values_shown_.insert(segment.epoch_id).second) return;
    out_.line({{"what", "values"},
               {"epoch", segment.epoch.value()},
               {"epoch_id", hex16(segment.epoch_id)},
               {"values", range.values},
               {"first_offset", range.offset},
               {"bytes", range.bytes}});
  }

  void show_segment(const run::SegmentRecord& segment) {
    out_.line(segment_json(segment));
    if (segment.runs == 0) return;
    const bool extrema = run::is_extrema_segment(segment);
    if (!extrema && run::is_auxiliary(segment)) return;
    const Status possible = extrema ? run::check_extrema_segment(segment, size_, file_.path()) : Status();
    if (!possible.ok()) return out_.damage(segment.index_offset, possible);
    bytes_.resize(run::segment_bytes(segment));
    const Status read = io::read_exactly(file_, segment.index_offset, bytes_);
    if (!read.ok()) return out_.damage(segment.index_offset, read);
    if (extrema) {
      show_extrema(segment);
    } else {
      for (uint32_t slice = 0; slice >> segment.slice_bits == 0; ++slice) show_slice(segment, slice);
    }
  }

  Bytes part(const run::SegmentRecord& segment, uint64_t offset, uint64_t bytes) const {
    return Bytes(bytes_.data(), bytes_.size()).substr(offset - segment.index_offset, bytes);
  }

  void show_slice(const run::SegmentRecord& segment, uint32_t number) {
    const run::SliceLocation place = run::slice_location(segment, number);
    const Bytes bytes = part(segment, place.offset, place.bytes);
    auto slice = run::Slice::open(segment, partition_, place, bytes, file_.path());
    if (!slice.ok()) return out_.damage(place.offset, slice.status());
    if (const auto rest = slice->overflow()) {
      const Status attached = slice->attach_overflow(part(segment, rest->offset, rest->bytes));
      if (!attached.ok()) return out_.damage(rest->offset, attached);
    }
    const auto header = get_fixed<run::SliceHeader>(bytes.data());
    out_.line({{"what", "slice"},
               {"offset", place.offset},
               {"slice", number},
               {"bytes", header.total_bytes},
               {"overflow_unit", header.overflow_unit},
               {"pieces", slice->piece_count()},
               {"records", slice->records()},
               {"crc32c", fmt::format("{:08x}", header.crc32c)}});
    const bool filtered = run::is_filter_segment(segment);
    const bool uniform = (segment.flags & run::kUniformSegment) != 0;
    const size_t piece_bytes = uniform ? sizeof(run::UniformPieceHeader) : sizeof(run::MixedPieceHeader);
    for (uint32_t piece = 0; piece < slice->piece_count(); ++piece) {
      const size_t at = sizeof(run::SliceHeader) + piece * piece_bytes;
      if (at + piece_bytes > bytes.size()) return;  // it is in the overflow
      if (filtered) {
        show_filter_piece(bytes.data() + at, place.offset + at, piece);
        continue;
      }
      show_piece(uniform, bytes.data() + at, place.offset + at, piece);
    }
  }

  void show_filter_piece(const char* bytes, uint64_t offset, uint32_t piece) {
    const auto header = get_fixed<run::FilterPieceHeader>(bytes);
    out_.line({{"what", "filter-piece"},
               {"offset", offset},
               {"piece", piece},
               {"records", header.records},
               {"block", header.block},
               {"fences", header.fences},
               {"key_bytes", header.key_bytes},
               {"value_bytes", header.value_bytes},
               {"packed", header.packed}});
  }

  void show_piece(bool uniform, const char* bytes, uint64_t offset, uint32_t piece) {
    if (uniform) {
      const auto header = get_fixed<run::UniformPieceHeader>(bytes);
      return out_.line({{"what", "piece"},
                        {"offset", offset},
                        {"piece", piece},
                        {"records", header.records_bucket_bits & 0xffffff},
                        {"bucket_bits", header.records_bucket_bits >> 24},
                        {"virtual_ordinal", header.virtual_ordinal}});
    }
    const auto header = get_fixed<run::MixedPieceHeader>(bytes);
    out_.line({{"what", "piece"},
               {"offset", offset},
               {"piece", piece},
               {"records", header.records_bucket_bits & 0xffffff},
               {"bucket_bits", header.records_bucket_bits >> 24},
               {"block", header.block},
               {"ordinal", header.ordinal},
               {"key_bytes", header.key_bytes},
               {header.key_bytes == 0 ? "advance" : "value_bytes", header.value_bytes}});
  }

  void show_extrema(const run::SegmentRecord& segment) {
    const auto head = run::decode_extrema_head(
        segment, partition_, part(segment, segment.index_offset, segment.stride), file_.path());
    if (!head.ok()) return out_.damage(segment.index_offset, head.status());
    for (size_t f = 0; f < head->fields.size(); ++f) {
      const run::GroupField& field = head->fields[f];
      out_.line({{"what", "field"},
                 {"offset", segment.index_offset},
                 {"field", f},
                 {"type", run::type_name(field.type)},
                 {"value_offset", field.offset},
                 {"nans", field.totals.nans},
                 {"absent", field.totals.absent},
                 {"minimum_key", hex16(field.totals.extrema.minimum)},
                 {"maximum_key", hex16(field.totals.extrema.maximum)},
                 {"listed_blocks", field.listed}});
      for (const run::Extreme which : {run::Extreme::kLargest, run::Extreme::kSmallest})
        show_list(*head, segment, f, which);
    }
    for (const run::GroupRun& run : head->runs) {
      out_.line({{"what", "group-run"},
                 {"first_block", run.first_block.value()},
                 {"blocks", run.blocks},
                 {"records", run.records}});
    }
  }

  void show_list(const run::GroupHead& head, const run::SegmentRecord& segment, size_t field,
                 run::Extreme which) {
    for (uint32_t piece = 0; piece < run::piece_count(head.fields[field].listed); ++piece) {
      const run::PiecePlace place = run::piece_place(head, field, which, piece);
      const auto entries = run::decode_extrema_piece(head, partition_, field, which, piece,
                                                     part(segment, place.offset, place.bytes), file_.path());
      if (!entries.ok()) {
        out_.damage(place.offset, entries.status());
        continue;
      }
      out_.line({{"what", "list-piece"},
                 {"offset", place.offset},
                 {"field", field},
                 {"of", which == run::Extreme::kLargest ? "maxima" : "minima"},
                 {"piece", piece},
                 {"entries", entries->size()},
                 {"best_block", entries->empty() ? 0 : entries->front().block},
                 {"best_key", hex16(entries->empty() ? 0 : entries->front().bound)}});
    }
  }

  io::File& file_;
  const PartitionNumber partition_;
  DumpOutput& out_;
  uint64_t size_ = 0;
  std::map<uint64_t, run::FooterPart> footers_;
  std::map<uint64_t, Status> damaged_footers_;
  std::map<std::tuple<uint64_t, uint64_t, uint16_t>, run::SegmentRecord> segments_;
  std::set<uint64_t> values_shown_;  // epoch ids
  std::set<uint64_t> tables_shown_;  // epoch ids
  std::vector<char> bytes_;          // of the segment being shown
};

}  // namespace

Status dump_index_log(io::Device& device, const std::string& path, PartitionNumber partition,
                      DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  return IndexLogDump(*file, partition, out).run();
}

}  // namespace swale::tools
