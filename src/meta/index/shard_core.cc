#include "meta/index/shard_core.h"

#include <algorithm>
#include <new>

namespace swale::meta {
namespace {

constexpr size_t kFilesOfAGroup = 64;     // how far back a file is looked for before it is noted again
constexpr uint64_t kRemovalsMax = 8192;   // in the log, 100 bytes each, before a checkpoint cuts it
constexpr uint64_t kDeadRowsMin = 16384;  // fewer are no reason to merge everything
constexpr size_t kNumbersMin = 1024;      // of files: fewer are not worth renumbering

uint64_t extents_end(std::span<const Extent> extents) {
  uint64_t end = 0;
  for (const Extent& extent : extents) end = std::max(end, extent.offset + extent.length);
  return end;
}

}  // namespace

ShardCore::ShardCore(io::Device& device, const ShardOptions& options)
    : device_(device),
      options_(options),
      cache_(options.cache_bytes),
      active_(std::make_shared<Memtable>(options.write_buffer_entries)),
      records_(options.table, options.table_bytes_min) {
  open_.number = 1;
}

Status ShardCore::check_put(std::span<const Put> puts) const {
  uint64_t extents = 0;
  for (const Put& put : puts) {
    extents += put.extents.size();
    // Without branches: all but never is one wrong.
    bool wrong = false;
    for (const Extent& extent : put.extents) {
      wrong |= extent.length - 1 >= kOffsetEnd || extent.offset > kOffsetEnd - extent.length ||
               extent.place.log == kHoleLog;
    }
    if (wrong)
      return invalid_argument("file {:016x}{:016x}: an extent is empty, ends beyond 2^63 or has no log",
                              put.file.high, put.file.low);
    for (const Run& run : put.runs) {
      if (!valid(run) || run.place.log == kHoleLog)
        return invalid_argument("file {:016x}{:016x}: the run at offset {} is not valid", put.file.high,
                                put.file.low, run.offset);
    }
    if (!put.run_at.empty() &&
        (put.run_at.size() != put.runs.size() || !std::is_sorted(put.run_at.begin(), put.run_at.end()) ||
         put.run_at.back() > put.extents.size()))
      return invalid_argument("file {:016x}{:016x}: run_at names extents that are not there", put.file.high,
                              put.file.low);
  }
  const uint64_t bytes = (active_->size() - open_.entries_begin + extents) * sizeof(Entry);
  if (bytes > options_.group_bytes_max && !open_.empty())
    return error(Code::kBusy, Scope::kOperation,
                 "the open group has {} bytes already: commit it before the next put",
                 (active_->size() - open_.entries_begin) * sizeof(Entry));
  return {};
}

bool ShardCore::accepts() const {
  if (frozen_ != nullptr && active_->full()) return false;
  // A checkpoint that does not keep up.
  uint64_t tree_bytes = 0;
  for (const auto& tree : trees_) tree_bytes += tree->stored_bytes();
  return tree_bytes < 2 * options_.compression_buffer_bytes;
}

Status ShardCore::ready(const RequestKey& key, bool* duplicate) {
  *duplicate = false;
  if (!health_.ok()) return health_;
  if (key.client != 0) {
    const auto client = clients_.find(key.client);
    *duplicate = (client != clients_.end() && client->second.done(key.number)) ||
                 staged_requests_.contains({key.client, key.number});
    if (*duplicate) return {};
  }
  if (accepts()) return {};
  if (!blocked_.ok() && !background_) {  // nobody could say when there will be space: the caller tries again
    retry_background_ = true;
    return blocked_;
  }
  return error(Code::kBusy, Scope::kOperation,
               "shard {}: both write buffers are full: finish background work before the next put",
               options_.shard);
}

uint64_t ShardCore::last_group() const {
  return !open_.empty() ? open_.number : committing_ ? in_flight_.number : durable_group_;
}

void ShardCore::begin_request(const RequestKey& key) {
  if (key.client == 0) return;
  open_.requests.push_back(key);
  staged_requests_.emplace(key.client, key.number);  // last: it throws, or all is done
}

uint32_t ShardCore::state_of(const FileId& file) {
  const uint32_t index = files_.index_of(file);
  if (index >= states_.size()) {
    try {
      states_.resize(index + 1);
    } catch (const std::bad_alloc&) {
      files_.free(index);  // no number without a state
      throw;
    }
  }
  states_[index].free = false;
  return index;
}

ShardCore::Staged ShardCore::staged() const {
  return {active_->size(), open_.operations.size(), open_.files.size(), open_.requests.size(),
          next_sequence_};
}

// Vectors that become shorter allocate nothing.
void ShardCore::take_back(const Staged& before) {
  active_->shrink(before.entries);
  open_.operations.resize(before.operations);
  open_.files.resize(before.files);
  open_.requests.resize(before.requests);
  next_sequence_ = before.sequence;
}

// Space for `count` calls of note_file.
void ShardCore::reserve_marks(size_t count) {
  const size_t wanted = open_.files.size() + count;
  if (wanted > open_.files.capacity()) open_.files.reserve(std::max(wanted, 2 * open_.files.capacity()));
}

void ShardCore::note_file(const StagedFile& mark) {
  const size_t known = open_.files.size();
  for (size_t i = known; i-- > open_.files_begin && known - i <= kFilesOfAGroup;) {
    StagedFile& noted = open_.files[i];
    if (noted.file != mark.file) continue;
    noted.end = std::max(noted.end, mark.end);
    noted.last = mark.last;
    noted.rows += mark.rows;
    return;
  }
  open_.files.push_back(mark);
}

namespace {

void extend(StagedFile* mark, uint64_t end, Sequence first, Sequence last, uint64_t rows) {
  mark->end = std::max(mark->end, end);
  mark->rows += rows;
  if (mark->last == 0) mark->first = first;
  mark->last = last;
}

}  // namespace

void ShardCore::stage_extents(uint32_t local, std::span<const Extent> extents, StagedFile* mark) {
  if (extents.empty()) return;
  active_->append(extents, local, next_sequence_);
  extend(mark, extents_end(extents), next_sequence_, next_sequence_ + extents.size() - 1, extents.size());
  next_sequence_ += extents.size();
  counters_.extents += extents.size();
}

void ShardCore::stage_expanded(uint32_t local, const Run& run, StagedFile* mark) {
  const uint64_t blocks = blocks_of(run);
  for (uint64_t i = 0; i < blocks; ++i) {
    const Extent block = block_at(run, i);
    active_->append(
        {block.offset, block.length, block.place.address, next_sequence_, block.place.log, local});
  }
  extend(mark, end_of(run), next_sequence_, next_sequence_, blocks);
  ++next_sequence_;
  counters_.runs_expanded += 1;
}

// Layers are looked at as they are now: a group that is not durable yet may still add to them, so the bound
// on layers may be passed by as many as a group has. That costs time, not truth.
bool ShardCore::keep_as_run(uint32_t file, const Run& run) const {
  if (run.levels == 0) return false;
  const uint64_t blocks = blocks_of(run);
  if (blocks > options_.expand_blocks_max) return true;
  // Lattices upon lattices: what a group may become in memory is bounded, whatever the bound on layers says.
  const uint64_t entries = active_->size() - open_.entries_begin;
  if ((entries + blocks) * sizeof(Entry) > options_.group_bytes_max) return true;
  if (!options_.keep_runs || blocks < options_.run_blocks_min || runs_ >= options_.runs_max) return false;
  const RunLayers* const runs = states_[file].runs.get();
  return runs == nullptr || runs->fits(run, options_.layers_max);
}

void ShardCore::stage_run(uint32_t local, const Run& run, StagedFile* mark) {
  if (!keep_as_run(mark->file, run)) {
    stage_expanded(local, run, mark);
    return;
  }
  StagedOperation operation;
  operation.kind = LogOperation::kRun;
  operation.file = mark->file;
  operation.sequence = next_sequence_;
  operation.run = run;
  open_.operations.push_back(operation);
  ++next_sequence_;
  ++counters_.runs;
}

Status ShardCore::check_removed(const FileId& file) const {
  const uint32_t index = files_.find(file);
  const bool removing = index != FileTable::kNone && index < states_.size() && states_[index].removing;
  return removing || removed_.contains(file) ? was_removed(file) : ok_status();
}

Result<uint64_t> ShardCore::put(RequestKey key, std::span<const Put> puts) {
  bool duplicate = false;
  SWALE_RETURN_IF_ERROR(ready(key, &duplicate));
  if (duplicate) {
    ++counters_.duplicates;
    return last_group();
  }
  SWALE_RETURN_IF_ERROR(check_put(puts));
  for (const Put& put : puts) SWALE_RETURN_IF_ERROR(check_removed(put.file));
  if (files_.files() + puts.size() > options_.files_max) {
    size_t unknown = 0;
    for (const Put& put : puts) unknown += files_.find(put.file) == FileTable::kNone ? 1 : 0;
    if (files_.files() + unknown > options_.files_max)
      return error(Code::kResourceExhausted, Scope::kOperation,
                   "shard {}: {} files are the limit: use more servers", options_.shard, options_.files_max);
  }
  const Staged before = staged();
  try {
    marks_.clear();
    marks_.reserve(puts.size());
    reserve_marks(puts.size());
    for (const Put& put : puts) {
      StagedFile& mark = marks_.emplace_back();
      mark.file = state_of(put.file);
      const uint32_t local = active_->files().index_of(put.file);
      size_t done = 0;
      for (size_t i = 0; i < put.runs.size(); ++i) {
        const size_t until = put.run_at.empty() ? put.extents.size() : put.run_at[i];
        stage_extents(local, put.extents.subspan(done, until - done), &mark);
        done = until;
        stage_run(local, put.runs[i], &mark);
      }
      stage_extents(local, put.extents.subspan(done), &mark);
    }
    begin_request(key);
  } catch (const std::bad_alloc&) {
    take_back(before);
    return Status::out_of_memory();
  }
  for (const StagedFile& mark : marks_) {
    if (mark.last != 0) note_file(mark);
  }
  ++counters_.puts;
  settling_ = false;
  open_.entries_end = active_->size();
  open_.sequence_end = next_sequence_;
  return last_group();  // a put of nothing joins no group
}

Result<uint64_t> ShardCore::truncate(RequestKey key, const FileId& id, uint64_t size, uint64_t generation) {
  bool duplicate = false;
  SWALE_RETURN_IF_ERROR(ready(key, &duplicate));
  if (duplicate) {
    ++counters_.duplicates;
    return last_group();
  }
  if (size > kOffsetEnd) return invalid_argument("truncate to {} bytes: files end at 2^63", size);
  SWALE_RETURN_IF_ERROR(check_removed(id));
  const Staged before = staged();
  try {
    const uint32_t file = state_of(id);
    uint64_t newest = states_[file].generation;
    for (const Group* group : {&in_flight_, &open_}) {
      for (const StagedOperation& staged : group->operations) {
        if (staged.file == file && staged.kind == LogOperation::kTruncate)
          newest = std::max(newest, staged.generation);
      }
    }
    reserve_marks(1);
    if (generation > newest) {
      if (size < kOffsetEnd) {
        active_->append(
            {size, kOffsetEnd - size, 0, next_sequence_, kHoleLog, active_->files().index_of(id)});
      }
      StagedOperation operation;
      operation.kind = LogOperation::kTruncate;
      operation.file = file;
      operation.sequence = next_sequence_++;
      operation.size = size;
      operation.generation = generation;
      open_.operations.push_back(operation);
    }
    begin_request(key);
    if (generation > newest) {  // nothing below throws
      if (size < kOffsetEnd) note_file({file, 0, before.sequence, before.sequence, 1});
      open_.files_begin = open_.files.size();
    }
  } catch (const std::bad_alloc&) {
    take_back(before);
    return Status::out_of_memory();
  }
  open_.entries_end = active_->size();
  open_.sequence_end = next_sequence_;
  return last_group();
}

Result<uint64_t> ShardCore::remove(RequestKey key, const FileId& id, uint64_t generation) {
  bool duplicate = false;
  SWALE_RETURN_IF_ERROR(ready(key, &duplicate));
  if (duplicate || !check_removed(id).ok()) {
    counters_.duplicates += duplicate ? 1 : 0;
    return last_group();
  }
  const Staged before = staged();
  try {
    StagedOperation operation;
    operation.kind = LogOperation::kRemove;
    operation.file = state_of(id);
    operation.sequence = next_sequence_;
    operation.generation = generation;
    open_.operations.push_back(operation);
    begin_request(key);
    states_[operation.file].removing = true;
  } catch (const std::bad_alloc&) {
    take_back(before);
    return Status::out_of_memory();
  }
  ++next_sequence_;
  open_.files_begin = open_.files.size();
  open_.sequence_end = next_sequence_;
  return open_.number;
}

Result<uint64_t> ShardCore::relocate(RequestKey key, const Relocation& relocation) {
  constexpr size_t kRelocationsMax = 4096;
  bool duplicate = false;
  SWALE_RETURN_IF_ERROR(ready(key, &duplicate));
  if (duplicate) {
    ++counters_.duplicates;
    return last_group();
  }
  if (relocation.begin > relocation.end || relocation.from == kHoleLog || relocation.to.log == kHoleLog)
    return invalid_argument("relocation of log {} from {} to {}: no range of a log", relocation.from,
                            relocation.begin, relocation.end);
  if (relocations_.size() + open_.operations.size() >= kRelocationsMax)
    return error(Code::kResourceExhausted, Scope::kOperation, "shard {}: {} relocations are the limit",
                 options_.shard, kRelocationsMax);
  StagedOperation operation;
  operation.kind = LogOperation::kRelocate;
  operation.sequence = next_sequence_;
  operation.relocation = relocation;
  const Staged before = staged();
  try {
    open_.operations.push_back(operation);
    begin_request(key);
  } catch (const std::bad_alloc&) {
    take_back(before);
    return Status::out_of_memory();
  }
  ++next_sequence_;
  open_.sequence_end = next_sequence_;
  return open_.number;
}

uint64_t ShardCore::add_record(Bytes record) {
  if (record.empty()) return records_group_;
  TableRecords::join(record, &open_.records);
  return records_group_ = open_.number;
}

// Allocates nothing that it cannot do without, as all that makes a Status.
void ShardCore::fail(const Status& why) {
  if (!health_.ok()) return;
  health_ = why.with_context("the shard is read-only");
  // What the commit under way covers is settled when that ends (finish_commit).
  if (!committing_) take_back_records();
}

void ShardCore::open_next_group() {
  const uint64_t next = open_.number + 1;
  open_ = Group();
  open_.number = next;
  open_.entries_begin = open_.entries_end = active_->size();
  open_.sequence_end = next_sequence_;
}

// The table is as of the durable group.
void ShardCore::take_back_records() noexcept {
  records_.take_back();
  records_group_ = durable_group_;
}

// No group after the durable one exists any more. Allocates nothing.
void ShardCore::give_up_groups() {
  counters_.groups_void += 1 + (open_.empty() ? 0 : 1);
  for (const Group* group : {&in_flight_, &open_}) {
    for (const StagedOperation& operation : group->operations) {
      if (operation.kind == LogOperation::kRemove) states_[operation.file].removing = false;
    }
  }
  active_->shrink(active_->visible());
  take_back_records();
  staged_requests_.clear();
  next_sequence_ = visible_sequence_;
  in_flight_ = Group();
  open_ = Group();
  open_.number = durable_group_ + 1;
  open_.entries_begin = open_.entries_end = active_->size();
  open_.sequence_end = next_sequence_;
}

void ShardCore::apply_operation(const StagedOperation& operation) {
  if (operation.kind == LogOperation::kRelocate) {
    relocations_.push_back({operation.relocation, operation.sequence});
    barriers_.push_back(operation.sequence);
    if (options_.relocations_retire != 0 && relocations_.size() % options_.relocations_retire == 0)
      freeze_wanted_ = checkpoint_wanted_ = true;
    return;
  }
  FileState& state = states_[operation.file];
  if (operation.kind == LogOperation::kRun) {
    if (!state.runs) state.runs = std::make_unique<RunLayers>();
    const Sequence moved = relocations_.empty() ? 0 : relocations_.back().sequence;
    state.runs->insert(operation.run, operation.sequence, std::max(state.irregular_max, moved));
    state.known = true;
    state.size = std::max(state.size, end_of(operation.run));
    barriers_.push_back(operation.sequence);
    ++runs_;
    return;
  }
  if (operation.kind == LogOperation::kRemove) return apply_removal(operation);
  if (operation.generation <= state.generation) return;
  if (state.runs) {
    runs_ -= std::min(runs_, state.runs->runs());
    state.runs->truncate(operation.size);
    runs_ += state.runs->runs();
    if (state.runs->empty()) state.runs.reset();
  }
  state.generation = operation.generation;
  state.size = operation.size;
  state.known = true;
}

// No hole is needed: nothing asks for the id any more, and flushes and merges leave its rows out.
void ShardCore::apply_removal(const StagedOperation& operation) {
  removed_.add(files_.id(operation.file));
  FileState& state = states_[operation.file];
  if (state.runs) runs_ -= std::min(runs_, state.runs->runs());
  dead_rows_ += state.rows;
  state = FileState();
  state.free = true;
  files_.free(operation.file);
  ++removals_;
  want_space_back();
}

uint64_t ShardCore::rows() const {
  uint64_t rows = active_->size() + (frozen_ ? frozen_->size() : 0);
  for (const auto& tree : trees_) rows += tree->entries;
  for (const auto& table : tables_) rows += table->entries;
  return rows;
}

// What is rewritten for it is at most what was put and removed since the last time, or what a checkpoint
// takes anyway.
void ShardCore::want_space_back() {
  merge_all_wanted_ |= dead_rows_ >= kDeadRowsMin && dead_rows_ > rows() / 2;
  if (removals_ >= kRemovalsMax || merge_all_wanted_) freeze_wanted_ = checkpoint_wanted_ = true;
}

// Most numbers are nobody's: files get new ones, and the memory of the rest is given back. Without memory:
// another time.
void ShardCore::renumber_files() noexcept {
  if (files_.size() < kNumbersMin || files_.files() > files_.size() / 4 || committing_) return;
  try {
    FileTable files;
    std::vector<FileState> states(files_.files());
    std::vector<uint32_t> numbers(files_.size(), FileTable::kNone);
    for (uint32_t i = 0; i < states_.size(); ++i) {
      if (!states_[i].free) numbers[i] = files.index_of(files_.id(i));
    }
    if (files.size() != states.size()) return;  // some have a number and no state yet
    for (uint32_t i = 0; i < states_.size(); ++i) {
      if (numbers[i] != FileTable::kNone) states[numbers[i]] = std::move(states_[i]);
    }
    for (StagedOperation& operation : open_.operations) operation.file = numbers[operation.file];
    for (StagedFile& noted : open_.files) noted.file = numbers[noted.file];
    std::swap(files_, files);
    states_.swap(states);
  } catch (const std::bad_alloc&) {
  }
}

// The group is durable: it becomes visible whole. Extents and operations are applied in the order of their
// sequences.
void ShardCore::apply(const Group& group) {
  size_t done = 0;
  std::vector<StagedFile> files = group.files;
  std::sort(files.begin(), files.end(),
            [](const StagedFile& a, const StagedFile& b) { return a.first < b.first; });
  for (const StagedFile& noted : files) {
    states_[noted.file].irregular_max = std::max(states_[noted.file].irregular_max, noted.last);
    states_[noted.file].rows += noted.rows;
  }
  const auto apply_files_before = [&](Sequence sequence) {
    for (; done < files.size() && files[done].first < sequence; ++done) {
      if (files[done].end == 0) continue;
      FileState& state = states_[files[done].file];
      state.known = true;
      state.size = std::max(state.size, files[done].end);
    }
  };
  for (const StagedOperation& operation : group.operations) {
    if (operation.kind == LogOperation::kTruncate || operation.kind == LogOperation::kRemove)
      apply_files_before(operation.sequence);
    apply_operation(operation);
  }
  apply_files_before(~Sequence{0});
  for (const RequestKey& key : group.requests) {
    clients_[key.client].mark(key.number);
    staged_requests_.erase({key.client, key.number});
  }
  visible_sequence_ = group.sequence_end;
  durable_group_ = group.number;
}

FileSize ShardCore::size(const FileId& file) const {
  const uint32_t index = files_.find(file);
  if (index == FileTable::kNone || index >= states_.size()) return {};
  const FileState& state = states_[index];
  return {state.known, state.generation, state.known ? state.size : 0};
}

void ShardCore::list_files(const FileId* after, size_t files_max, std::vector<FileId>* out) const {
  std::vector<FileId> ids;
  for (uint32_t i = 0; i < states_.size(); ++i) {
    if (states_[i].known && (after == nullptr || files_.id(i) > *after)) ids.push_back(files_.id(i));
  }
  const size_t count = std::min(files_max, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count), ids.end());
  out->insert(out->end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count));
}

const ShardCounters& ShardCore::counters() const {
  counters_.reads = reads_.reads;
  counters_.read_bytes = reads_.bytes;
  counters_.blocks_wanted = reads_.wanted;
  counters_.blocks_read = reads_.read;
  counters_.cache_hits = reads_.hits;
  return counters_;
}

ShardState ShardCore::state() const {
  ShardState state;
  state.sequence = next_sequence_;
  state.files = files_.files();
  state.removed_ranges = removed_.ranges();
  state.relocations = relocations_.size();
  for (const FileState& file : states_) {
    if (!file.runs) continue;
    state.runs += file.runs->runs();
    state.run_layers_max = std::max<uint64_t>(state.run_layers_max, file.runs->layers());
    state.index_memory_bytes += file.runs->memory_bytes();
  }
  state.buffered_entries = active_->size() + (frozen_ ? frozen_->size() : 0);
  state.layers = (active_->size() != 0) + (frozen_ ? 1 : 0) + trees_.size() + tables_.size();
  state.buffer_memory_bytes =
      spare_.capacity() * sizeof(Entry) + active_->memory_bytes() + (frozen_ ? frozen_->memory_bytes() : 0);
  for (const auto& tree : trees_) {
    state.compressed_entries += tree->entries;
    state.buffer_memory_bytes += tree->memory_bytes();
  }
  for (const auto& table : tables_) {
    state.filed_entries += table->entries;
    state.file_bytes += table->stored_bytes();
    state.index_memory_bytes += table->memory_bytes();
  }
  state.index_memory_bytes += files_.memory_bytes() + states_.capacity() * sizeof(FileState) +
                              barriers_.capacity() * sizeof(Sequence) + clients_.size() * 48 +
                              removed_.ranges() * 72;
  state.log_bytes = logs_bytes_;
  state.snapshot_bytes = snapshot_bytes_;
  state.table_file_bytes = records_.file().bytes;
  state.table_tail_bytes = records_.tail().size();
  state.buffer_memory_bytes += records_.memory_bytes();
  state.cache_memory_bytes = cache_.memory_bytes();
  return state;
}

}  // namespace swale::meta
