// The records that come to a partition, the end of an epoch, and what it asks of storage. What its ways work
// on: partition_work.cc.
#include "imd/write/partition.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "run/format.h"
#include "run/record.h"

namespace swale::imd {

namespace {
RecordTally counts_of(const run::Memtable& memtable) { return {memtable.count(), memtable.data_bytes(), 0}; }
}  // namespace

Partition::Partition(const PartitionParams& params) : params_(params), footer_builder_(partition()) {}

Partition::~Partition() = default;

Result<Partition::Way> Partition::make_way(const PartitionParams& params, uint16_t number) {
  const MemoryPlan& memory = params.memory;
  Way way;
  way.number = number;
  for (std::unique_ptr<run::Memtable>* slot : {&way.filling, &way.spare}) {
    SWALE_ASSIGN_OR_RETURN(run::Memtable memtable,
                           run::Memtable::create(memory.memtable_bytes, memory.memtable_records));
    memtable.touch();
    *slot = std::make_unique<run::Memtable>(std::move(memtable));
  }
  SWALE_ASSIGN_OR_RETURN(run::RunScratch scratch, run::RunScratch::create(memory.memtable_records));
  way.scratch = std::make_unique<run::RunScratch>(std::move(scratch));
  if (params.layout.compression != Codec::kNone) {
    SWALE_ASSIGN_OR_RETURN(way.packer, RunPacker::create(params.layout.compression, memory.memtable_bytes));
  }
  SWALE_ASSIGN_OR_RETURN(run::SketchArena arena, run::SketchArena::create(memory.sketch_bytes / params.ways));
  way.sketch_memory = std::make_unique<run::SketchArena>(std::move(arena));
  return way;
}

Result<std::unique_ptr<Partition>> Partition::create(const PartitionParams& params) {
  assert(params.rank >= 0 && params.rank < params.size && params.ways > 0);
  std::unique_ptr<Partition> partition(new Partition(params));
  for (uint32_t number = 0; number < params.ways; ++number) {
    SWALE_ASSIGN_OR_RETURN(Way way, make_way(params, static_cast<uint16_t>(number)));
    partition->ways_.push_back(std::move(way));
  }
  for (Epoch& epoch : partition->epochs_) {
    epoch.shares.resize(params.ways);
    if (params.indexed.empty()) continue;
    for (Share& share : epoch.shares)
      share.extrema = std::make_unique<run::ExtremaGroup>(params.indexed, params.memory.extrema_blocks);
  }
  // One block of memory for all output buffers: huge pages, and few of them.
  const MemoryPlan& memory = params.memory;
  SWALE_ASSIGN_OR_RETURN(
      partition->output_memory_,
      Buffer::allocate(memory.output_buffers * memory.output_buffer_bytes, HugePages::kAdvise));
  partition->output_memory_.touch();
  for (uint32_t index = 0; index < memory.output_buffers; ++index) partition->free_output_.push_back(index);
  return partition;
}

void Partition::begin_epoch(EpochNumber epoch, uint64_t epoch_id) {
  assert(state_ == State::kNone && open_->runs == 0);
  open_next(epoch, epoch_id);
  open_->first_block = open_->end_block = data_end_block_;
  for (Way& way : ways_) way.filling_of = open_;
  start_small();
}

// Makes `open_` a new epoch, in place of one of which nothing is left to be written.
void Partition::open_next(EpochNumber number, uint64_t id) {
  assert(open_->writes_out == 0);
  std::vector<Share> shares = std::move(open_->shares);
  for (Share& share : shares) {
    assert(share.sketches.empty() && (!share.extrema || share.extrema->empty()));
    share.has_segment = false;
  }
  *open_ = Epoch{.number = number, .id = id, .shares = std::move(shares)};
  open_->extrema.resize(params_.indexed.size());
}

Result<Partition::Accepted> Partition::accept(Bytes batch) {
  Accepted accepted;
  while (accepted.bytes < batch.size()) {
    run::RecordView record;
    if (run::parse_record(batch.substr(accepted.bytes), &record) != run::RecordParse::kOk) {
      return error(Code::kCorruption, Scope::kPeer, "malformed record at byte {} of {}", accepted.bytes,
                   batch.size());
    }
    const HashChoice home = choose(hash_bytes(record.key), static_cast<uint32_t>(params_.size));
    if (home.index != partition() && params_.by_hash) {
      return error(
          Code::kCorruption, Scope::kPeer,
          "a record whose home is partition {} arrived at partition {}: ranks disagree on the partitioner",
          home.index, partition());
    }
    const HashChoice way_choice = choose(home.rest, params_.ways);
    Way& way = ways_[way_choice.index];
    if (way.filling_of != open_) break;
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
    if (way.filling_of != open_ || !way.filling->empty() || way.has_work()) continue;
    way.filling->limit(way.filling->arena_bytes() / 4);
    way.spare->limit(way.spare->arena_bytes() / 2);
  }
}

// The full memtable waits to be made into a run and the spare one takes its place.
bool Partition::rotate(Way& way) {
  if (way.has_work() || !way.spare) return false;
  way.filling_of->taken.add(counts_of(*way.filling));
  way.full = std::exchange(way.filling, std::move(way.spare));
  way.full_of = std::exchange(way.filling_of, open_);
  return true;
}

void Partition::append_run(std::unique_ptr<run::OrderedRecords> records) {
  assert(room_for_run() && params_.size == 1 && params_.ways == 1 && !records->empty());
  assert(params_.indexed.empty() && params_.layout.compression == Codec::kNone && !params_.layout.filtered());
  Way& way = ways_.front();
  open_->taken.add({records->shape().records, records->shape().data_bytes, 0});
  way.ordered = std::move(records);
  way.full_of = open_;
}

RecordTally Partition::taken() const {
  RecordTally taken = open_->taken;
  for (const Way& way : ways_) {
    if (way.filling_of == open_) taken.add(counts_of(*way.filling));
  }
  return taken;
}

void Partition::end_epoch(EpochNumber next_epoch, uint64_t next_epoch_id, const run::ValueRange& values) {
  assert(!closing() && intake_open());
  std::swap(open_, closing_);
  closing_->values = values;
  // Said once for all ways, should it stay without a run: blocks of the next epoch may follow at any time.
  if (closing_->runs == 0) closing_->first_block = closing_->end_block = data_end_block_;
  open_next(next_epoch, next_epoch_id);
  for (Way& way : ways_) {
    if (way.filling->empty()) way.filling_of = open_;
  }
  state_ = State::kSealed;
  table_ = params_.sources != nullptr ? Table::kWaits : Table::kNone;
  advance();
}

bool Partition::runs_done() const {
  return std::all_of(ways_.begin(), ways_.end(), [this](const Way& way) {
    return way.filling_of == open_ && way.full_of != closing_ && way.work_of != closing_;
  });
}

bool Partition::segments_done() const {
  return std::all_of(closing_->shares.begin(), closing_->shares.end(),
                     [](const Share& share) { return share.written(); });
}

// Goes as far as what has completed allows. Each state's condition says what its successor may rely on.
void Partition::advance() {
  if (!failure_.ok()) return;
  if (state_ == State::kSealed) {
    for (Way& way : ways_) {
      if (way.filling_of == closing_) rotate(way);
    }
    if (runs_done() && closing_->writes_out == 0) {
      state_ = State::kSyncData;
      request_sync(LogFile::kData);
    }
  }
  const bool table_done = table_ == Table::kNone || table_ == Table::kDone;
  if (state_ == State::kIndexing && segments_done() && table_done) write_footer();
  if (state_ == State::kFooter && closing_->writes_out == 0) {
    state_ = State::kSyncIndex;
    request_sync(LogFile::kIndex);
  }
}

void Partition::queue_write(const IoRequest& request) {
  io_queue_.push_back(request);
  ++epoch_numbered(request.epoch).writes_out;
}

void Partition::request_sync(LogFile file) {
  io_queue_.push_back({IoRequest::Kind::kSync, file, 0, {}, kNoBuffer, closing_->number});
}

void Partition::write_footer() {
  if (closing_->values.values != 0)
    add_to_footer(run::values_segment(closing_->values, closing_->number, closing_->id));
  if (params_.sources != nullptr)
    add_to_footer(run::table_segment(params_.sources->table(), closing_->number, closing_->id));
  if (!failure_.ok()) return;
  const std::string footer = footer_builder_.encode(index_end_);
  Result<Buffer> buffer = Buffer::allocate(footer.size());
  if (!buffer.ok()) {
    failure_ = buffer.status();
    return;
  }
  footer_bytes_ = std::move(*buffer);
  std::memcpy(footer_bytes_.data(), footer.data(), footer.size());
  queue_write({IoRequest::Kind::kWrite, LogFile::kIndex, index_end_, footer_bytes_.bytes(), kNoBuffer,
               closing_->number});
  index_end_ += footer.size();
  state_ = State::kFooter;
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
    Epoch& epoch = epoch_numbered(request.epoch);
    assert(epoch.writes_out > 0);
    --epoch.writes_out;
  } else if (state_ == State::kSyncData) {
    state_ = State::kIndexing;
  } else if (state_ == State::kSyncIndex) {
    state_ = State::kDurable;
  }
  advance();
}

}  // namespace swale::imd
