#include "imd/write/partition.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "run/format.h"
#include "run/record.h"

namespace swale::imd {

Partition::Partition(const PartitionParams& params, run::FooterBuilder footer)
    : params_(params),
      footer_builder_(std::move(footer)),
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
      memtable.touch();
      *slot = std::make_unique<run::Memtable>(std::move(memtable));
    }
    SWALE_ASSIGN_OR_RETURN(run::RunScratch scratch, run::RunScratch::create(params.memtable_records));
    way.scratch = std::make_unique<run::RunScratch>(std::move(scratch));
    if (params.layout.compression != Codec::kNone) {
      SWALE_ASSIGN_OR_RETURN(way.packer, RunPacker::create(params.layout.compression, params.memtable_bytes));
    }
    SWALE_ASSIGN_OR_RETURN(run::SketchArena arena,
                           run::SketchArena::create(params.sketch_bytes / params.ways));
    way.sketch_memory = std::make_unique<run::SketchArena>(std::move(arena));
    if (!params.indexed.empty()) {
      way.extrema = std::make_unique<ExtremaCollector>(params.indexed, params.extrema_blocks);
    }
  }
  // One block of memory for all output buffers: huge pages, and few of them.
  SWALE_ASSIGN_OR_RETURN(
      partition->output_memory_,
      Buffer::allocate(params.output_buffers * params.output_buffer_bytes, HugePages::kAdvise));
  partition->output_memory_.touch();
  for (uint32_t index = 0; index < params.output_buffers; ++index) partition->free_output_.push_back(index);
  return partition;
}

void Partition::begin_epoch(uint32_t epoch, uint64_t epoch_id) {
  assert(state_ == State::kNone);
  open_ =
      Epoch{.number = epoch, .id = epoch_id, .first_block = data_end_block_, .end_block = data_end_block_};
  open_.extrema.resize(params_.indexed.size());
  start_small();
}

Result<Partition::Accepted> Partition::accept(Bytes batch) {
  Accepted accepted;
  while (accepted.bytes < batch.size()) {
    run::RecordView record;
    if (run::parse_record(batch.substr(accepted.bytes), &record) != run::RecordParse::kOk) {
      return error(Code::kCorruption, Scope::kPeer, "malformed record at byte {} of {}", accepted.bytes,
                   batch.size());
    }
    const HashChoice home = choose(hash_bytes(record.key), params_.ranks);
    if (home.index != params_.partition && params_.by_hash) {
      return error(
          Code::kCorruption, Scope::kPeer,
          "a record whose home is partition {} arrived at partition {}: ranks disagree on the partitioner",
          home.index, params_.partition);
    }
    const HashChoice way_choice = choose(home.rest, params_.ways);
    Way& way = ways_[way_choice.index];
    if (!way.open) break;
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

void Partition::start_small() {
  for (Way& way : ways_) {
    if (!way.open || !way.filling->empty() || way.full) continue;
    way.filling->limit(way.filling->arena_bytes() / 4);
    way.next_is_half = true;
  }
}

// The full memtable waits to be made into a run and the spare one takes its place.
bool Partition::rotate(Way& way) {
  if (way.full || !way.spare) return false;
  way.full = std::exchange(way.filling, std::move(way.spare));
  if (std::exchange(way.next_is_half, false)) way.filling->limit(way.filling->arena_bytes() / 2);
  way.full_is_closing = !way.open;
  way.open = true;
  return true;
}

void Partition::end_epoch(uint32_t next_epoch, uint64_t next_epoch_id, const run::ValueRange& values) {
  assert(!closing());
  closing_ = open_;
  closing_.values = values;
  // Said once for all ways, should it stay without a run: blocks of the next epoch may follow at any time.
  if (closing_.runs == 0) closing_.first_block = closing_.end_block = data_end_block_;
  open_ = Epoch{.number = next_epoch, .id = next_epoch_id};
  open_.extrema.resize(params_.indexed.size());
  for (Way& way : ways_) {
    way.closing_sketches = std::move(way.open_sketches);
    way.open_sketches.clear();
    way.full_is_closing = way.full != nullptr;
    way.open = way.filling->empty();
    way.segments_written = way.segments_written_early;
    way.segments_written_early = false;
    if (way.extrema) way.extrema->end_epoch();
  }
  footer_written_ = false;
  state_ = State::kSealed;
  advance();
}

void Partition::Task::work() {
  if (packer != nullptr) {
    packer->work();
  } else if (run != nullptr) {
    produced = run->fill(out);
    if (extrema != nullptr) extrema->add_blocks({out.data(), produced});
  } else {
    produced = segment != nullptr ? segment->fill(out) : extrema_segment->fill(out);
  }
}

bool Partition::Task::done() const {
  if (packer != nullptr) return true;
  if (run != nullptr) return run->done();
  return segment != nullptr ? segment->done() : extrema_segment->done();
}

bool Partition::has_task() const {
  return std::any_of(ways_.begin(), ways_.end(), [this](const Way& way) { return way_ready(way); });
}

// Whether next_task would hand out a task for this way.
bool Partition::way_ready(const Way& way) const {
  if (way.task_out || free_output_.empty() || !failure_.ok()) return false;
  const bool busy =
      way.packing || way.run || way.segment || (way.extrema && way.extrema->segment() != nullptr);
  return busy || can_start_run(way) || want_segment(way) || want_extrema(way);
}

// All blocks of the closing epoch have their place in the data log; those of the open one come behind them.
bool Partition::closing_runs_placed() const {
  return std::all_of(ways_.begin(), ways_.end(),
                     [](const Way& way) { return way.open && (!way.full_is_closing || way.run); });
}

// Whether there is memory for the sketch of the way's full memtable.
bool Partition::sketch_fits(const Way& way) const {
  return way.sketch_memory->fits(run_sketch_bytes(*way.full));
}

bool Partition::can_start_run(const Way& way) const {
  if (!way.full || !sketch_fits(way) || !extrema_fit(way)) return false;
  return way.full_is_closing || !closing() || closing_runs_placed();
}

std::optional<Partition::Task> Partition::next_task(uint32_t way_index) {
  Way& way = ways_[way_index];
  if (!way_ready(way)) return std::nullopt;
  const bool extrema_begun = way.extrema && way.extrema->segment() != nullptr;
  if (!way.packing && !way.run && !way.segment && !extrema_begun) {
    if (want_segment(way)) {
      start_segment(way_index);
    } else {
      want_extrema(way) ? start_extrema(way_index) : start_run(way_index);
    }
  }
  Task task;
  task.way = way_index;
  task.buffer = free_output_.back();
  free_output_.pop_back();
  task.packer = way.packing ? way.packer.get() : nullptr;
  task.run = way.run.get();
  task.segment = way.segment.get();
  if (way.extrema) {
    task.extrema_segment = way.extrema->segment();
    task.extrema = &way.extrema->group(way.full_is_closing);
  }
  task.out = {output_memory_.data() + task.buffer * params_.output_buffer_bytes, params_.output_buffer_bytes};
  task.epoch = task.run != nullptr ? epoch_of(way.full_is_closing).number : epoch_of(closing()).number;
  way.task_out = true;
  return task;
}

// Whether it will be compressed is not known yet.
size_t Partition::run_sketch_bytes(const run::Memtable& memtable) const {
  const bool with_tails = params_.layout.filtered();
  const size_t bytes = run::RunBuilder::sketch_bytes(memtable, with_tails);
  if (params_.layout.compression == Codec::kNone) return bytes;
  return std::max(bytes, run::PackedRunBuilder::sketch_bytes(memtable, with_tails));
}

uint32_t Partition::run_blocks_max(const run::Memtable& memtable) const {
  const uint32_t blocks = run::RunBuilder::block_count(memtable);
  return params_.layout.compression == Codec::kNone
             ? blocks
             : std::max(blocks, run::packed_blocks_max(memtable.encoded_bytes()));
}

// A run that is to be compressed gets its place when its size is known.
void Partition::start_run(uint32_t way_index) {
  Way& way = ways_[way_index];
  if (!way.packer) return place_run(way_index);
  way.packer->begin(*way.full, *way.scratch, *way.sketch_memory, params_.layout.filtered());
  way.packing = true;
}

// The run's place in the data log is taken now: its size is known before it is sorted.
void Partition::place_run(uint32_t way_index) {
  Way& way = ways_[way_index];
  Epoch& epoch = epoch_of(way.full_is_closing);
  if (epoch.runs == 0) epoch.first_block = data_end_block_;
  run::RunPlacement placement;
  placement.partition = params_.partition;
  placement.first_block = data_end_block_;
  placement.epoch = epoch.number;
  placement.epoch_id = epoch.id;
  placement.way = static_cast<uint16_t>(way_index);
  placement.run = epoch.runs++;
  placement.with_tails = params_.layout.filtered();
  way.packing = false;
  if (way.packer) way.run = way.packer->take(placement);
  if (!way.run) {
    way.run = std::make_unique<run::RunBuilder>(*way.full, *way.scratch, *way.sketch_memory, placement);
  }
  if (way.extrema) {
    way.extrema->group(way.full_is_closing).begin_run(data_end_block_, way.run->block_count());
  }
  way.log_offset = data_end_block_ * run::kBlockBytes;
  data_end_block_ += way.run->block_count();
  epoch.end_block = data_end_block_;
}

// A segment is due when the closing epoch's runs are all written and durable, or when the sketches leave no room for
// the next run's: then of the closing epoch, while there is one.
bool Partition::want_segment(const Way& way) const {
  if (state_ == State::kIndexing) return !way.closing_sketches.empty() || !way.segments_written;
  return way.full && !sketch_fits(way) && (way.full_is_closing || !closing());
}

run::SegmentParams Partition::segment_params(uint32_t way_index) {
  const Epoch& epoch = epoch_of(closing());
  run::SegmentParams segment;
  segment.partition = params_.partition;
  segment.epoch = epoch.number;
  segment.epoch_id = epoch.id;
  segment.way = static_cast<uint16_t>(way_index);
  segment.ways = static_cast<uint16_t>(params_.ways);
  segment.data_block = epoch.first_block;
  segment.data_blocks = static_cast<uint32_t>(epoch.end_block - epoch.first_block);
  segment.layout = params_.layout;
  return segment;
}

void Partition::start_segment(uint32_t way_index) {
  Way& way = ways_[way_index];
  const std::span<const run::RunSketch> sketches = segment_sketches(way);
  way.segment = std::make_unique<run::SegmentBuilder>(
      sketches.first(run::runs_of_segment(sketches.size(), params_.layout)), segment_params(way_index));
  way.log_offset = way.segment_offset = run::segment_offset(index_end_, way.segment->size_bytes());
  index_end_ = way.segment_offset + way.segment->size_bytes();
}

// Whether the group of the next run's epoch has room for it.
bool Partition::extrema_fit(const Way& way) const {
  return !way.extrema || way.extrema->group(way.full_is_closing).fits(run_blocks_max(*way.full));
}

// As want_segment.
bool Partition::want_extrema(const Way& way) const {
  if (!way.extrema) return false;
  if (state_ == State::kIndexing) return !way.extrema->group(true).empty();
  if (!way.full || extrema_fit(way)) return false;
  return closing() ? way.full_is_closing : true;
}

void Partition::start_extrema(uint32_t way_index) {
  Way& way = ways_[way_index];
  way.extrema->start_segment(closing(), segment_params(way_index), index_end_);
  const run::ExtremaSegmentBuilder& segment = *way.extrema->segment();
  way.log_offset = segment.record().index_offset;
  index_end_ = way.log_offset + segment.size_bytes();
}

void Partition::finish_extrema(Way& way) {
  const run::SegmentRecord record = way.extrema->finish_segment(closing(), &epoch_of(closing()).extrema);
  if (Status status = footer_builder_.add(record); !status.ok() && failure_.ok()) failure_ = status;
}

void Partition::finish_task(const Task& task) {
  Way& way = ways_[task.way];
  way.task_out = false;
  if (task.produced == 0) {
    free_output_.push_back(task.buffer);
  } else {
    const LogFile file = task.run != nullptr ? LogFile::kData : LogFile::kIndex;
    queue_write({IoRequest::Kind::kWrite,
                 file,
                 way.log_offset,
                 {task.out.data(), task.produced},
                 task.buffer,
                 task.epoch});
    way.log_offset += task.produced;
  }
  if (task.done()) {
    if (task.packer != nullptr) {
      place_run(task.way);
    } else if (task.run != nullptr) {
      finish_run(way);
    } else {
      task.segment != nullptr ? finish_segment(way) : finish_extrema(way);
    }
  }
  advance();
}

void Partition::finish_run(Way& way) {
  RecordTally& tally = epoch_of(way.full_is_closing).tally;
  tally.records += way.full->count();
  tally.data_bytes += way.run->data_bytes();
  tally.digest += way.run->digest();
  (way.full_is_closing ? way.closing_sketches : way.open_sketches).push_back(way.run->sketch());
  way.run.reset();
  way.full->clear();
  way.full_is_closing = false;
  way.spare = std::move(way.full);
}

void Partition::finish_segment(Way& way) {
  if (Status status = footer_builder_.add(way.segment->record(way.segment_offset));
      !status.ok() && failure_.ok()) {
    failure_ = status;
  }
  (closing() ? way.segments_written : way.segments_written_early) = true;
  way.segment.reset();
  std::vector<run::RunSketch>& sketches = segment_sketches(way);
  const auto end =
      sketches.begin() + static_cast<std::ptrdiff_t>(run::runs_of_segment(sketches.size(), params_.layout));
  for (auto sketch = sketches.begin(); sketch != end; ++sketch) way.sketch_memory->release(sketch->memory);
  sketches.erase(sketches.begin(), end);
}

bool Partition::runs_done() const {
  return std::all_of(ways_.begin(), ways_.end(), [](const Way& way) {
    const bool extrema_begun = way.extrema && way.extrema->segment() != nullptr;
    return way.open && !way.full_is_closing && !way.segment && !extrema_begun;
  });
}

bool Partition::segments_done() const {
  return std::all_of(ways_.begin(), ways_.end(), [](const Way& way) {
    const bool extrema_done = !way.extrema || way.extrema->group(true).empty();
    return way.segments_written && way.closing_sketches.empty() && !way.segment && extrema_done;
  });
}

// Goes as far as what has completed allows. Each state's condition says what its successor may rely on.
void Partition::advance() {
  if (!failure_.ok()) return;
  if (state_ == State::kSealed) {
    for (Way& way : ways_) {
      if (!way.open) rotate(way);
    }
    if (runs_done() && closing_.writes_out == 0) {
      state_ = State::kSyncData;
      request_sync(LogFile::kData);
    }
  }
  if (state_ == State::kIndexing && segments_done() && !footer_written_) write_footer();
  if (state_ == State::kIndexing && footer_written_ && closing_.writes_out == 0) {
    state_ = State::kSyncIndex;
    request_sync(LogFile::kIndex);
  }
}

void Partition::queue_write(const IoRequest& request) {
  io_queue_.push_back(request);
  ++epoch_of(is_closing(request.epoch)).writes_out;
}

void Partition::request_sync(LogFile file) {
  io_queue_.push_back({IoRequest::Kind::kSync, file, 0, {}, kNoBuffer, closing_.number});
}

void Partition::write_footer() {
  if (closing_.values.values != 0) {
    failure_ = footer_builder_.add(run::values_segment(closing_.values, closing_.number, closing_.id));
    if (!failure_.ok()) return;
  }
  const std::string footer = footer_builder_.encode(index_end_);
  Result<Buffer> buffer = Buffer::allocate(footer.size());
  if (!buffer.ok()) {
    failure_ = buffer.status();
    return;
  }
  footer_bytes_ = std::move(*buffer);
  std::memcpy(footer_bytes_.data(), footer.data(), footer.size());
  queue_write({IoRequest::Kind::kWrite, LogFile::kIndex, index_end_, footer_bytes_.bytes(), kNoBuffer,
               closing_.number});
  index_end_ += footer.size();
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
    --epoch_of(is_closing(request.epoch)).writes_out;
  } else if (state_ == State::kSyncData) {
    state_ = State::kIndexing;
  } else if (state_ == State::kSyncIndex) {
    state_ = State::kDurable;
  }
  advance();
}

}  // namespace swale::imd
