// Rebuilds index logs from whole runs of the data log, for repair, and checks whether a log needs that.
//
// Threads: one at a time. Memory: the sketches of one segment (kSketchBytes), the extrema of one group of
// runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "imd/check/repair_facts.h"
#include "imd/check/repair_log.h"
#include "imd/format/manifest.h"
#include "io/device.h"
#include "run/extrema.h"
#include "run/footer.h"
#include "run/sketch.h"

namespace swale::imd {

// Reads all segments of one epoch in an index log whose footer ends at `index_end`; kCorruption if one does
// not open.
Status check_segments(io::File& index, PartitionNumber partition, uint64_t index_end, const LogEpoch& epoch);

class IndexWriter {
 public:
  // Segments go to `index` from `offset` on. The files must outlive the writer.
  static Result<IndexWriter> create(io::File& data, io::File& index, uint64_t offset,
                                    run::FooterBuilder footer, const run::Layout& layout);

  // Adds the segments of one epoch: `runs` are those of this partition, by place; `end_block` is the begin to
  // record for an epoch without runs. Adds to `totals` of the indexed fields.
  Status add_epoch(PartitionNumber partition, const JobEntry& job, const EpochEntry& epoch,
                   std::span<const FoundRun> runs, BlockNumber end_block,
                   std::span<const run::FieldPlace> indexed, std::vector<run::FieldTotals>* totals);
  // Adds segments that are in the index log already.
  Status keep(const std::vector<run::SegmentRecord>& segments);
  // Adds the epoch's range of the value log, which may be empty.
  Status add_values(const EpochEntry& epoch, const run::ValueRange& range);
  // Writes the footer and syncs.
  Status finish();

 private:
  IndexWriter(io::File& data, io::File& index, uint64_t offset, run::FooterBuilder footer,
              run::SketchArena arena, const run::Layout& layout)
      : data_(&data),
        index_(&index),
        offset_(offset),
        footer_(std::move(footer)),
        arena_(std::move(arena)),
        layout_(layout) {}

  Status add_way(const run::SegmentParams& params, const JobEntry& job, std::span<const FoundRun> runs,
                 std::span<const run::FieldPlace> indexed, std::vector<run::FieldTotals>* totals);
  Result<run::RunSketch> sketch(const FoundRun& found, const JobEntry& job, run::ExtremaGroup* extrema);
  Status write_segment(std::vector<run::RunSketch>* sketches, const run::SegmentParams& params);
  Status write_extrema(run::ExtremaGroup* group, const run::SegmentParams& params,
                       std::vector<run::FieldTotals>* totals);
  template <class Builder>
  Status drain(Builder& builder);

  io::File* data_;
  io::File* index_;
  uint64_t offset_;
  run::FooterBuilder footer_;
  run::SketchArena arena_;
  run::Layout layout_;
};

}  // namespace swale::imd
