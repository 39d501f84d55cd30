// What the ways of a partition work on: which task is due, what it reads and where its bytes go.
#include <algorithm>
#include <cassert>
#include <utility>

#include "imd/write/partition.h"
#include "run/format.h"
#include "run/ordered_run_builder.h"

namespace swale::imd {

void Partition::Task::work() {
  switch (kind) {
    case Work::kPack:
      packer->work();
      break;
    case Work::kRun:
      produced = run->fill(out);
      if (extrema != nullptr) extrema->add_blocks({out.data(), produced});
      break;
    case Work::kSegment:
      produced = segment->fill(out);
      break;
    case Work::kExtrema:
      produced = extrema_segment->fill(out);
      break;
    case Work::kTable:
      sources->build();
      break;
    case Work::kNone:
      assert(false && "a task has work");
  }
}

bool Partition::Task::done() const {
  switch (kind) {
    case Work::kRun:
      return run->done();
    case Work::kSegment:
      return segment->done();
    case Work::kExtrema:
      return extrema_segment->done();
    default:
      return true;
  }
}

// Whether next_task would hand out a task for this way.
bool Partition::way_ready(const Way& way) const {
  if (way.task_out || free_output_.empty() || !failure_.ok()) return false;
  return way.work != Work::kNone || table_due(way) || can_start_run(way) || segment_due(way) != nullptr ||
         extrema_due(way) != nullptr;
}

// All blocks of the closing epoch have their place in the data log; those of the open one come after them.
bool Partition::closing_runs_placed() const {
  return std::all_of(ways_.begin(), ways_.end(), [this](const Way& way) {
    return way.filling_of == open_ && (way.full_of != closing_ || way.run);
  });
}

// Whether there is memory for the sketch of the way's next run.
bool Partition::sketch_fits(const Way& way) const { return way.sketch_memory->fits(run_sketch_bytes(way)); }

// Whether the group of the next run's epoch has room for it.
bool Partition::extrema_fit(const Way& way) const {
  const Share& share = way.full_of->shares[way.number];
  return !share.extrema || share.extrema->fits(run_blocks_max(way));
}

bool Partition::can_start_run(const Way& way) const {
  if (!way.has_work() || !sketch_fits(way) || !extrema_fit(way)) return false;
  return is_closing(way.full_of) || !closing() || closing_runs_placed();
}

// A segment is due when the closing epoch's runs are all written and durable, or when the sketches leave no
// memory for that of the next run: then one of this run's epoch. The open epoch waits for the closing one.
// nullptr: none is due.
Partition::Epoch* Partition::segment_due(const Way& way) const {
  if (state_ == State::kIndexing) {
    const Share& share = closing_->shares[way.number];
    return !share.has_segment || !share.sketches.empty() ? closing_ : nullptr;
  }
  const bool due = way.has_work() && !sketch_fits(way) && (is_closing(way.full_of) || !closing());
  return due ? way.full_of : nullptr;
}

// As segment_due.
Partition::Epoch* Partition::extrema_due(const Way& way) const {
  if (params_.indexed.empty()) return nullptr;
  if (state_ == State::kIndexing) return closing_->shares[way.number].extrema->empty() ? nullptr : closing_;
  const bool due = way.has_work() && !extrema_fit(way) && (is_closing(way.full_of) || !closing());
  return due ? way.full_of : nullptr;
}

std::optional<Partition::Task> Partition::next_task(uint32_t way_index) {
  Way& way = ways_[way_index];
  if (!way_ready(way)) return std::nullopt;
  if (way.work == Work::kNone) begin_work(way);
  Task task;
  task.kind = way.work;
  task.way = way_index;
  task.buffer = free_output_.back();
  free_output_.pop_back();
  task.packer = way.work == Work::kPack ? way.packer.get() : nullptr;
  task.run = way.run.get();
  task.segment = way.segment.get();
  task.sources = params_.sources;
  task.extrema_segment = way.extrema_segment.get();
  if (task.run != nullptr) task.extrema = way.work_of->shares[way.number].extrema.get();
  const size_t buffer_bytes = params_.memory.output_buffer_bytes;
  task.out = {output_memory_.data() + task.buffer * buffer_bytes, buffer_bytes};
  task.epoch = way.work_of->number;
  way.task_out = true;
  return task;
}

void Partition::begin_work(Way& way) {
  if (table_due(way)) {
    table_ = Table::kRuns;
    way.work = Work::kTable;
    way.work_of = closing_;
    return;
  }
  if (Epoch* const epoch = segment_due(way)) return start_segment(way, epoch);
  if (Epoch* const epoch = extrema_due(way)) return start_extrema(way, epoch);
  start_run(way);
}

// Whether it will be compressed is not known yet.
size_t Partition::run_sketch_bytes(const Way& way) const {
  const bool with_tails = params_.layout.filtered();
  const size_t bytes = way.shape().sketch_bytes(with_tails);
  if (params_.layout.compression == Codec::kNone) return bytes;
  return std::max(bytes, run::PackedRunBuilder::sketch_bytes(*way.full, with_tails));
}

uint32_t Partition::run_blocks_max(const Way& way) const {
  const run::RunShape shape = way.shape();
  const auto blocks = static_cast<uint32_t>(shape.blocks());
  return params_.layout.compression == Codec::kNone
             ? blocks
             : std::max(blocks, run::packed_blocks_max(shape.encoded_bytes));
}

// A run that is to be compressed gets its place when its size is known.
void Partition::start_run(Way& way) {
  assert(way.ordered || !way.full->empty());
  way.work_of = way.full_of;
  if (!way.packer) return place_run(way);
  way.packer->begin(*way.full, *way.scratch, *way.sketch_memory, params_.layout.filtered());
  way.work = Work::kPack;
}

// The run's place in the data log is taken now: its size is known before it is sorted.
void Partition::place_run(Way& way) {
  Epoch& epoch = *way.work_of;
  if (epoch.runs == 0) epoch.first_block = data_end_block_;
  run::RunPlacement placement;
  placement.partition = partition();
  placement.first_block = data_end_block_;
  placement.epoch = epoch.number;
  placement.epoch_id = epoch.id;
  placement.way = way.number;
  placement.run = epoch.runs++;
  placement.ranks = static_cast<uint32_t>(params_.size);
  placement.ways = static_cast<uint16_t>(params_.ways);
  placement.home = params_.by_hash ? run::HomeRule::kHash : run::HomeRule::kPartitioner;
  if (params_.layout.format == run::ShuffleFormat::kLossy) placement.home = run::HomeRule::kWriter;
  placement.values = params_.layout.values();
  placement.with_tails = params_.layout.filtered();
  if (way.packer) way.run = way.packer->take(placement);
  if (way.ordered) {
    way.run = std::make_unique<run::OrderedRunBuilder>(*way.ordered, *way.sketch_memory, placement);
  } else if (!way.run) {
    way.run = std::make_unique<run::RunBuilder>(*way.full, *way.scratch, *way.sketch_memory, placement);
  }
  const Share& share = epoch.shares[way.number];
  if (share.extrema) share.extrema->begin_run(data_end_block_, way.run->block_count());
  way.log_offset = data_end_block_ * run::kBlockBytes;
  data_end_block_ += way.run->block_count();
  epoch.end_block = data_end_block_;
  way.work = Work::kRun;
}

run::SegmentParams Partition::segment_params(const Way& way) const {
  const Epoch& epoch = *way.work_of;
  run::SegmentParams segment;
  segment.partition = partition();
  segment.epoch = epoch.number;
  segment.epoch_id = epoch.id;
  segment.way = way.number;
  segment.ways = static_cast<uint16_t>(params_.ways);
  segment.data_block = epoch.first_block;
  segment.data_blocks = static_cast<uint32_t>(epoch.end_block - epoch.first_block);
  segment.layout = params_.layout;
  return segment;
}

void Partition::start_segment(Way& way, Epoch* epoch) {
  way.work_of = epoch;
  const std::span<const run::RunSketch> sketches = epoch->shares[way.number].sketches;
  way.segment = std::make_unique<run::SegmentBuilder>(
      sketches.first(run::runs_of_segment(sketches.size(), params_.layout)), segment_params(way));
  way.log_offset = way.segment_offset = run::segment_offset(index_end_, way.segment->size_bytes());
  index_end_ = way.segment_offset + way.segment->size_bytes();
  way.work = Work::kSegment;
}

void Partition::start_extrema(Way& way, Epoch* epoch) {
  way.work_of = epoch;
  way.extrema_segment = std::make_unique<run::ExtremaSegmentBuilder>(*epoch->shares[way.number].extrema,
                                                                     segment_params(way), index_end_);
  way.log_offset = way.extrema_segment->record().index_offset;
  index_end_ = way.log_offset + way.extrema_segment->size_bytes();
  way.work = Work::kExtrema;
}

void Partition::finish_task(const Task& task) {
  Way& way = ways_[task.way];
  assert(way.task_out && way.work == task.kind);
  way.task_out = false;
  if (task.produced == 0) {
    free_output_.push_back(task.buffer);
  } else {
    const LogFile file = task.kind == Work::kRun ? LogFile::kData : LogFile::kIndex;
    queue_write({IoRequest::Kind::kWrite,
                 file,
                 way.log_offset,
                 {task.out.data(), task.produced},
                 task.buffer,
                 task.epoch});
    way.log_offset += task.produced;
  }
  if (task.done()) {
    switch (task.kind) {
      case Work::kPack:
        place_run(way);
        break;
      case Work::kRun:
        finish_run(way);
        break;
      case Work::kSegment:
        finish_segment(way);
        break;
      case Work::kExtrema:
        finish_extrema(way);
        break;
      case Work::kTable:
        finish_table();
        break;
      case Work::kNone:
        break;
    }
    if (task.kind != Work::kPack) {
      way.work = Work::kNone;
      way.work_of = nullptr;
    }
  }
  advance();
}

void Partition::finish_run(Way& way) {
  Epoch& epoch = *way.work_of;
  epoch.tally.records += way.run->record_count();
  epoch.tally.data_bytes += way.run->data_bytes();
  epoch.tally.digest += way.run->digest();
  epoch.shares[way.number].sketches.push_back(way.run->sketch());
  way.run.reset();
  way.full_of = nullptr;
  way.ordered.reset();
  if (!way.full) return;
  way.full->clear();
  way.spare = std::move(way.full);
}

void Partition::add_to_footer(const run::SegmentRecord& record) {
  if (Status status = footer_builder_.add(record); !status.ok() && failure_.ok()) failure_ = status;
}

void Partition::finish_segment(Way& way) {
  add_to_footer(way.segment->record(way.segment_offset));
  way.segment.reset();
  Share& share = way.work_of->shares[way.number];
  share.has_segment = true;
  const auto end = share.sketches.begin() +
                   static_cast<std::ptrdiff_t>(run::runs_of_segment(share.sketches.size(), params_.layout));
  for (auto sketch = share.sketches.begin(); sketch != end; ++sketch)
    way.sketch_memory->release(sketch->memory);
  share.sketches.erase(share.sketches.begin(), end);
}

// The group starts anew, and its totals are added to those of the epoch.
void Partition::finish_extrema(Way& way) {
  add_to_footer(way.extrema_segment->record());
  way.extrema_segment.reset();
  run::ExtremaGroup& group = *way.work_of->shares[way.number].extrema;
  for (size_t f = 0; f < group.fields(); ++f) way.work_of->extrema[f].add(group.totals(f));
  group.clear();
}

void Partition::finish_table() {
  if (failure_.ok()) failure_ = params_.sources->built();
  if (failure_.ok()) table_ = Table::kDone;
}

}  // namespace swale::imd
