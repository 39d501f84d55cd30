// Index logs made anew from whole runs of the data log, for repair; and the check whether one needs it.
//
// Threads: one at a time. Memory: the sketches of one segment (kSketchBytes), the extrema of one group of runs.
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

// kCorruption if something of one epoch in an index log, whose footer ends at `index_end`, does not open: all segments
// are read.
Status check_segments(io::File& index, uint32_t partition, uint64_t index_end, const LogEpoch& epoch);

class IndexWriter {
 public:
  // Segments go to `index` from `offset` on. The files must outlive the writer.
  static Result<IndexWriter> create(io::File& data, io::File& index, uint64_t offset,
                                    run::FooterBuilder footer, const run::Layout& layout);

  // The segments of one epoch: `runs` are those of this partition, by place; `end_block` is where an epoch without runs
  // is said to begin. `totals`: of the indexed fields, added to.
  Status add_epoch(uint32_t partition, const JobEntry& job, const EpochEntry& epoch,
                   std::span<const FoundRun> runs, uint64_t end_block,
                   std::span<const run::FieldPlace> indexed, std::vector<run::FieldTotals>* totals);
  // Segments that are in the index log already.
  Status keep(const std::vector<run::SegmentRecord>& segments);
  // What the epoch has in the value log; nothing is also fine.
  Status add_values(const EpochEntry& epoch, const run::ValueRange& range);
  // Footer and sync.
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
