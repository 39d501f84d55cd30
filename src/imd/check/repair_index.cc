#include "imd/check/repair_index.h"

#include <algorithm>
#include <utility>

#include "run/extrema_reader.h"
#include "run/record.h"
#include "run/segment_builder.h"
#include "run/segment_reader.h"
#include "run/value_format.h"

namespace swale::imd {
namespace {

constexpr size_t kSketchBytes = 64 * kMiB;
constexpr size_t kOutputBytes = kMiB;

// `bytes`: all of the segment.
Status check_content(const run::SegmentRecord& segment, PartitionNumber partition, Bytes bytes,
                     std::string_view path) {
  return run::is_extrema_segment(segment)
             ? run::decode_extrema_group(segment, partition, bytes, path).status()
             : run::open_slices(segment, partition, bytes, path).status();
}

}  // namespace

Status check_segments(io::File& index, PartitionNumber partition, uint64_t index_end, const LogEpoch& epoch) {
  for (const run::SegmentRecord& segment : epoch.segments) {
    const bool extrema = run::is_extrema_segment(segment);
    if (extrema) SWALE_RETURN_IF_ERROR(run::check_extrema_segment(segment, index_end, index.path()));
    if (!extrema && (run::is_auxiliary(segment) || segment.runs == 0)) continue;
    std::vector<char> bytes(run::segment_bytes(segment));
    SWALE_RETURN_IF_ERROR(io::read_exactly(index, segment.index_offset, bytes));
    SWALE_RETURN_IF_ERROR(check_content(segment, partition, Bytes(bytes.data(), bytes.size()), index.path()));
  }
  return {};
}

Result<IndexWriter> IndexWriter::create(io::File& data, io::File& index, uint64_t offset,
                                        run::FooterBuilder footer, const run::Layout& layout) {
  SWALE_ASSIGN_OR_RETURN(run::SketchArena arena, run::SketchArena::create(kSketchBytes));
  return IndexWriter(data, index, offset, std::move(footer), std::move(arena), layout);
}

template <class Builder>
Status IndexWriter::drain(Builder& builder) {
  std::vector<char> buffer(kOutputBytes);
  while (const size_t produced = builder.fill(buffer)) {
    SWALE_RETURN_IF_ERROR(index_->pwrite(offset_, {buffer.data(), produced}));
    offset_ += produced;
  }
  return {};
}

Status IndexWriter::write_segment(std::vector<run::RunSketch>* sketches, const run::SegmentParams& params) {
  std::span<const run::RunSketch> left = *sketches;
  do {
    const size_t count = run::runs_of_segment(left.size(), layout_);
    run::SegmentBuilder builder(left.first(count), params);
    const uint64_t offset = offset_ = run::segment_offset(offset_, builder.size_bytes());
    SWALE_RETURN_IF_ERROR(drain(builder));
    SWALE_RETURN_IF_ERROR(footer_.add(builder.record(offset)));
    left = left.subspan(count);
  } while (!left.empty());
  sketches->clear();
  arena_.clear();
  return {};
}

Status IndexWriter::write_extrema(run::ExtremaGroup* group, const run::SegmentParams& params,
                                  std::vector<run::FieldTotals>* totals) {
  run::ExtremaSegmentBuilder builder(*group, params, offset_);
  offset_ = builder.record().index_offset;
  SWALE_RETURN_IF_ERROR(drain(builder));
  totals->resize(group->fields());
  for (size_t f = 0; f < group->fields(); ++f) (*totals)[f].add(group->totals(f));
  group->clear();
  return footer_.add(builder.record());
}

Result<run::RunSketch> IndexWriter::sketch(const FoundRun& found, const JobEntry& job,
                                           run::ExtremaGroup* extrema) {
  run::RunSketch sketch;
  sketch.first_block = found.first_block;
  sketch.blocks = found.header.blocks;
  sketch.records = found.header.records;
  sketch.kind = found.header.kind;
  sketch.key_bytes = found.header.key_bytes;
  sketch.value_bytes = found.header.value_bytes;
  run::SketchBuilder builder(&sketch, arena_, layout_.filtered());
  const auto add = [&](const run::ScannedRecord& record) {
    const HashChoice home = choose(hash_bytes(record.key), job.ranks);
    const Hash rest = choose(home.rest, job.ways).rest;
    builder.add(rest);
    if (builder.with_tails()) builder.add_tails(&rest, record.ordinal, 1);
    if (run::is_stream(sketch.kind))
      builder.add_end(static_cast<uint32_t>(record.end_block - found.first_block));
  };
  if (extrema != nullptr) extrema->begin_run(found.first_block, found.header.blocks);
  SWALE_RETURN_IF_ERROR(walk_run(*data_, found, add, [&](Bytes blocks) {
    if (extrema != nullptr) extrema->add_blocks(blocks);
  }));
  builder.finish();
  return sketch;
}

Status IndexWriter::add_way(const run::SegmentParams& params, const JobEntry& job,
                            std::span<const FoundRun> runs, std::span<const run::FieldPlace> indexed,
                            std::vector<run::FieldTotals>* totals) {
  run::ExtremaGroup group(indexed, run::kGroupBlocksMax);
  std::vector<run::RunSketch> sketches;
  bool written = false;
  for (const FoundRun& found : runs) {
    if (found.header.way != params.way) continue;
    const size_t bytes = run::sketch_memory_bytes(found.header.records, found.header.blocks,
                                                  found.header.kind, layout_.filtered());
    if (!arena_.fits(bytes)) SWALE_RETURN_IF_ERROR(write_segment(&sketches, params));
    if (!indexed.empty() && !group.fits(found.header.blocks))
      SWALE_RETURN_IF_ERROR(write_extrema(&group, params, totals));
    SWALE_ASSIGN_OR_RETURN(run::RunSketch made, sketch(found, job, indexed.empty() ? nullptr : &group));
    sketches.push_back(made);
    written = true;
  }
  if (!sketches.empty() || !written) SWALE_RETURN_IF_ERROR(write_segment(&sketches, params));
  return group.empty() ? Status() : write_extrema(&group, params, totals);
}

Status IndexWriter::add_epoch(PartitionNumber partition, const JobEntry& job, const EpochEntry& epoch,
                              std::span<const FoundRun> runs, BlockNumber end_block,
                              std::span<const run::FieldPlace> indexed,
                              std::vector<run::FieldTotals>* totals) {
  run::SegmentParams params;
  params.partition = partition;
  params.epoch = epoch.epoch;
  params.epoch_id = epoch.epoch_id;
  params.ways = static_cast<uint16_t>(job.ways);
  params.layout = layout_;
  params.data_block = runs.empty() ? end_block : runs.front().first_block;
  params.data_blocks = runs.empty() ? 0 : static_cast<uint32_t>(runs.back().end_block() - params.data_block);
  for (uint32_t way = 0; way < job.ways; ++way) {
    params.way = static_cast<uint16_t>(way);
    SWALE_RETURN_IF_ERROR(add_way(params, job, runs, indexed, totals));
  }
  return {};
}

Status IndexWriter::keep(const std::vector<run::SegmentRecord>& segments) {
  for (const run::SegmentRecord& segment : segments) SWALE_RETURN_IF_ERROR(footer_.add(segment));
  return {};
}

Status IndexWriter::add_values(const EpochEntry& epoch, const run::ValueRange& range) {
  if (range.bytes == 0) return {};
  return footer_.add(run::values_segment(range, epoch.epoch, epoch.epoch_id));
}

Status IndexWriter::finish() {
  SWALE_RETURN_IF_ERROR(index_->pwrite(offset_, footer_.encode(offset_)));
  return index_->sync();
}

}  // namespace swale::imd
