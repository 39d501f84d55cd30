#include "imd/partition.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/hash.h"
#include "run/format.h"
#include "run/record.h"

namespace swale::imd {

Partition::Partition(const PartitionParams& params, run::FooterBuilder footer)
    : params_(params),
      footer_(std::move(footer)),
      data_end_block_(params.data_end_block),
      index_end_(params.index_end) {}

Partition::~Partition() = default;

Result<std::unique_ptr<Partition>> Partition::create(const PartitionParams& params,
                                                     run::FooterBuilder footer) {
  std::unique_ptr<Partition> partition(new Partition(params, std::move(footer)));
  for (uint32_t index = 0; index < params.ways; ++index) {
    Way& way = partition->ways_.emplace_back();
    for (std::unique_ptr<run::Memtable>* slot : {&way.filling, &way.spare}) {
      SWALE_ASSIGN_OR_RETURN(run::Memtable memtable,
                             run::Memtable::create(params.memtable_bytes, params.memtable_records));
      *slot = std::make_unique<run::Memtable>(std::move(memtable));
    }
    SWALE_ASSIGN_OR_RETURN(run::RunScratch scratch, run::RunScratch::create(params.memtable_records));
    way.scratch = std::make_unique<run::RunScratch>(std::move(scratch));
  }
  for (uint32_t index = 0; index < params.output_buffers; ++index) {
    SWALE_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate(params.output_buffer_bytes));
    partition->output_.push_back(std::move(buffer));
    partition->free_output_.push_back(index);
  }
  return partition;
}

void Partition::begin_epoch(uint32_t epoch, uint64_t epoch_id) {
  assert(state_ == State::kIdle || state_ == State::kDurable);
  epoch_ = epoch;
  epoch_id_ = epoch_id;
  epoch_first_block_ = data_end_block_;
  run_sequence_ = 0;
  footer_written_ = false;
  tally_ = {};
  for (Way& way : ways_) way.segments_written = false;
  state_ = State::kFilling;
}

Result<Partition::Accepted> Partition::accept(Bytes batch) {
  assert(state_ == State::kFilling);
  Accepted accepted;
  while (accepted.bytes < batch.size()) {
    run::RecordView record;
    if (run::parse_record(batch.substr(accepted.bytes), &record) != run::RecordParse::kOk) {
      return error(Code::kCorruption, Scope::kPeer, "malformed record at byte {} of {}", accepted.bytes,
                   batch.size());
    }
    const HashChoice home = choose(hash_bytes(record.key), params_.ranks);
    if (home.index != params_.partition) {
      return error(
          Code::kCorruption, Scope::kPeer,
          "a record whose home is partition {} arrived at partition {}: ranks disagree on the partitioner",
          home.index, params_.partition);
    }
    const HashChoice way_choice = choose(home.rest, params_.ways);
    Way& way = ways_[way_choice.index];
    if (!way.filling->append(way_choice.rest, record)) {
      if (!rotate(way)) break;
      [[maybe_unused]] const bool fits = way.filling->append(way_choice.rest, record);
      assert(fits && "an empty memtable holds any record");
    }
    accepted.bytes += record.encoded.size();
    ++accepted.records;
  }
  return accepted;
}

// The full memtable waits to be made into a run and the spare one takes its place.
bool Partition::rotate(Way& way) {
  if (way.full || !way.spare) return false;
  way.full = std::exchange(way.filling, std::move(way.spare));
  return true;
}

void Partition::end_epoch() {
  assert(state_ == State::kFilling);
  state_ = State::kSealed;
  advance();
}

void Partition::Task::work() { produced = run != nullptr ? run->fill(out) : segment->fill(out); }

bool Partition::has_task() const {
  return std::any_of(ways_.begin(), ways_.end(), [this](const Way& way) { return way_ready(way); });
}

// Whether next_task would hand out a task for this way.
bool Partition::way_ready(const Way& way) const {
  if (way.task_out || free_output_.empty() || !failure_.ok()) return false;
  return way.run || way.segment || way.full || want_segment(way);
}

std::optional<Partition::Task> Partition::next_task(uint32_t way_index) {
  Way& way = ways_[way_index];
  if (!way_ready(way)) return std::nullopt;
  if (!way.run && !way.segment) {
    want_segment(way) ? start_segment(way_index) : start_run(way_index);
  }
  Task task;
  task.way = way_index;
  task.buffer = free_output_.back();
  free_output_.pop_back();
  task.run = way.run.get();
  task.segment = way.segment.get();
  task.out = output_[task.buffer].span();
  way.task_out = true;
  return task;
}

// The run's place in the data log is taken now: its size is known before it is sorted.
void Partition::start_run(uint32_t way_index) {
  Way& way = ways_[way_index];
  run::RunPlacement placement;
  placement.partition = params_.partition;
  placement.first_block = data_end_block_;
  placement.epoch = epoch_;
  placement.epoch_id = epoch_id_;
  placement.way = static_cast<uint16_t>(way_index);
  placement.run = run_sequence_++;
  way.run = std::make_unique<run::RunBuilder>(*way.full, *way.scratch, placement);
  way.log_offset = data_end_block_ * run::kBlockBytes;
  data_end_block_ += way.run->block_count();
}

// A segment is due when the epoch's runs are all written and durable, or when the sketches have outgrown their share.
bool Partition::want_segment(const Way& way) const {
  if (state_ == State::kIndexing) return !way.sketches.empty() || !way.segments_written;
  return way.sketch_bytes > params_.sketch_bytes / params_.ways;
}

void Partition::start_segment(uint32_t way_index) {
  Way& way = ways_[way_index];
  run::SegmentParams segment;
  segment.partition = params_.partition;
  segment.epoch = epoch_;
  segment.epoch_id = epoch_id_;
  segment.way = static_cast<uint16_t>(way_index);
  segment.ways = static_cast<uint16_t>(params_.ways);
  segment.data_block = epoch_first_block_;
  segment.data_blocks = static_cast<uint32_t>(data_end_block_ - epoch_first_block_);
  way.segment = std::make_unique<run::SegmentBuilder>(way.sketches, segment);
  way.log_offset = way.segment_offset = index_end_;
  index_end_ += way.segment->size_bytes();
}

void Partition::finish_task(const Task& task) {
  Way& way = ways_[task.way];
  way.task_out = false;
  const bool done = task.run != nullptr ? task.run->done() : task.segment->done();
  if (task.produced == 0) {
    free_output_.push_back(task.buffer);
  } else {
    const LogFile file = task.run != nullptr ? LogFile::kData : LogFile::kIndex;
    io_queue_.push_back(
        {IoRequest::Kind::kWrite, file, way.log_offset, {task.out.data(), task.produced}, task.buffer});
    way.log_offset += task.produced;
    ++writes_out_;
  }
  if (done) task.run != nullptr ? finish_run(way) : finish_segment(way);
  advance();
}

void Partition::finish_run(Way& way) {
  tally_.records += way.full->count();
  tally_.data_bytes += way.run->data_bytes();
  tally_.digest += way.run->digest();
  way.sketches.push_back(way.run->take_sketch());
  way.sketch_bytes += way.sketches.back().memory_bytes();
  way.run.reset();
  way.full->clear();
  way.spare = std::move(way.full);
}

void Partition::finish_segment(Way& way) {
  if (Status status = footer_.add(way.segment->record(way.segment_offset)); !status.ok() && failure_.ok()) {
    failure_ = status;
  }
  way.segments_written = true;
  way.segment.reset();
  way.sketches.clear();
  way.sketch_bytes = 0;
}

bool Partition::runs_done() const {
  return std::all_of(ways_.begin(), ways_.end(), [](const Way& way) {
    return !way.full && !way.run && !way.segment && way.filling->empty();
  });
}

bool Partition::segments_done() const {
  return std::all_of(ways_.begin(), ways_.end(), [](const Way& way) {
    return way.segments_written && way.sketches.empty() && !way.segment;
  });
}

// Goes as far as what has completed allows. Each state's condition says what its successor may rely on.
void Partition::advance() {
  if (!failure_.ok()) return;
  if (state_ == State::kSealed) {
    for (Way& way : ways_) {
      if (!way.filling->empty()) rotate(way);
    }
    if (runs_done() && writes_out_ == 0) {
      state_ = State::kSyncData;
      request_sync(LogFile::kData);
    }
  }
  if (state_ == State::kIndexing && segments_done() && !footer_written_) write_footer();
  if (state_ == State::kIndexing && footer_written_ && writes_out_ == 0) {
    state_ = State::kSyncIndex;
    request_sync(LogFile::kIndex);
  }
}

void Partition::request_sync(LogFile file) {
  io_queue_.push_back({IoRequest::Kind::kSync, file, 0, {}, kNoBuffer});
}

void Partition::write_footer() {
  footer_bytes_ = footer_.encode(index_end_);
  io_queue_.push_back({IoRequest::Kind::kWrite, LogFile::kIndex, index_end_, footer_bytes_, kNoBuffer});
  index_end_ += footer_bytes_.size();
  ++writes_out_;
  footer_written_ = true;
}

std::optional<IoRequest> Partition::next_io() {
  if (io_queue_.empty() || !failure_.ok()) return std::nullopt;
  IoRequest request = io_queue_.front();
  io_queue_.pop_front();
  return request;
}

void Partition::finish_io(const IoRequest& request, const Status& status) {
  if (!status.ok()) {
    if (failure_.ok()) failure_ = status;
    return;
  }
  if (request.kind == IoRequest::Kind::kWrite) {
    if (request.buffer != kNoBuffer) free_output_.push_back(request.buffer);
    --writes_out_;
  } else if (state_ == State::kSyncData) {
    state_ = State::kIndexing;
  } else if (state_ == State::kSyncIndex) {
    state_ = State::kDurable;
  }
  advance();
}

}  // namespace swale::imd
