// How a shard hands out work and takes it back: commits, flushes, checkpoints (shard_work.h has the works).
#include <algorithm>

#include "base/contain.h"
#include "meta/index/shard_work.h"

namespace swale::meta {
namespace {

constexpr size_t kTablesMax = 4;  // of sorted files; a checkpoint merges more

}  // namespace

std::string ShardCore::encode_group(const Group& group) {
  std::string record(store::kRecordHeadBytes, '\0');
  append_u64(&record, group.sequence_end);
  for (const RequestKey& key : group.requests) {
    append_u8(&record, static_cast<uint8_t>(LogOperation::kRequest));
    append_varint(&record, key.client);
    append_varint(&record, key.number);
  }
  for (const StagedOperation& operation : group.operations) {
    append_u8(&record, static_cast<uint8_t>(operation.kind));
    if (operation.kind == LogOperation::kRelocate) {
      append_varint(&record, operation.sequence);
      append_relocation(operation.relocation, &record);
      continue;
    }
    append_file_id(files_.id(operation.file), &record);
    append_varint(&record, operation.sequence);
    if (operation.kind == LogOperation::kRun) {
      append_run(operation.run, &record);
    } else {
      append_varint(&record, operation.size);
      append_varint(&record, operation.generation);
    }
  }
  if (!group.records.empty()) {
    append_u8(&record, static_cast<uint8_t>(LogOperation::kRecords));
    append_sized(&record, group.records);
  }
  constexpr size_t kLogBlockBytes = 64 * kKiB;
  std::span<const Entry> rest =
      active_->entries().subspan(group.entries_begin, group.entries_end - group.entries_begin);
  while (!rest.empty()) {
    append_u8(&record, static_cast<uint8_t>(LogOperation::kExtents));
    rest = rest.subspan(log_encoder_->encode(rest, active_->files(), kLogBlockBytes, &record));
  }
  return record;
}

std::unique_ptr<Work> ShardCore::next_commit() {
  if (committing_ || open_.empty() || !health_.ok()) return nullptr;
  try {
    auto work = std::make_unique<CommitWork>(*claim_, log_, open_.number, encode_group(open_));
    records_.begin_commit(open_.records);
    in_flight_ = std::move(open_);
    open_.number = in_flight_.number;
    open_next_group();
    committing_ = true;
    return work;
  } catch (const std::bad_alloc&) {
    fail(error(Code::kResourceExhausted, Scope::kFile, "shard {}: no memory for the record of group {}",
               options_.shard, open_.number));
    return nullptr;
  }
}

// The log after this one; this one if it is not in use yet, so that numbers have no gaps.
std::shared_ptr<LogFile> ShardCore::next_log() const {
  if (log_ != nullptr && current_log_bytes_ == 0) return log_;
  const uint32_t number = log_ ? log_->number() + 1 : first_log_;
  const store::LogIdentity identity{kShardLogKind, options_.shard, owner_of(job(), number)};
  return std::make_shared<LogFile>(number, device_, path_of(ShardFileKind::kLog, number), identity,
                                   options_.sync_log);
}

// The visible entries leave the write buffer, and what comes later goes to another log. False: not now. What
// throws comes first.
bool ShardCore::freeze() {
  if (frozen_ != nullptr || committing_) return false;
  std::shared_ptr<LogFile> log = next_log();
  std::shared_ptr<Memtable> next;
  if (active_->visible() != 0) {
    next = std::make_shared<Memtable>(options_.write_buffer_entries, std::move(spare_));
    for (const Entry& entry : active_->entries().subspan(active_->visible())) {
      Entry moved = entry;
      moved.file = next->files().index_of(active_->files().id(entry.file));
      next->append(moved);
    }
  }
  replaced_logs_.insert(replaced_logs_.end(), earlier_logs_.begin(), earlier_logs_.end());
  earlier_logs_.clear();  // the next checkpoint has what they say
  frozen_group_ = durable_group_;
  if (log != log_) current_log_bytes_ = 0;
  log_ = std::move(log);
  if (next == nullptr) return true;
  active_->shrink(active_->visible());
  frozen_ = std::move(active_);
  active_ = std::move(next);
  open_.entries_begin = 0;
  open_.entries_end = active_->size();
  return true;
}

std::vector<Sequence> ShardCore::barriers_between(Sequence first, Sequence last) const {
  const auto begin = std::lower_bound(barriers_.begin(), barriers_.end(), first);
  const auto end = std::upper_bound(begin, barriers_.end(), last);
  return {begin, end};
}

void ShardCore::prune_barriers() {
  std::vector<Sequence> alive;
  runs_ = 0;
  for (const FileState& state : states_) {
    if (!state.runs) continue;
    state.runs->for_each([&](const Run&, Sequence sequence) {
      ++runs_;
      alive.push_back(sequence);
    });
  }
  for (const SequencedRelocation& relocation : relocations_) alive.push_back(relocation.sequence);
  std::sort(alive.begin(), alive.end());
  alive.erase(std::unique(alive.begin(), alive.end()), alive.end());
  barriers_.swap(alive);
}

// About what a checkpoint would write, without the table beside the index.
uint64_t ShardCore::checkpoint_bytes() const {
  constexpr uint64_t kRowBytes = 4;  // of a compressed one
  uint64_t bytes = snapshot_bytes_ + active_->size() * kRowBytes;
  for (const auto& tree : trees_) bytes += tree->stored_bytes();
  return bytes;
}

std::unique_ptr<Work> ShardCore::start_flush() {
  return std::make_unique<FlushWork>(frozen_,
                                     barriers_between(frozen_->sequence_min(), frozen_->sequence_max()),
                                     options_.codec, removed_.list());
}

// How many of the oldest relocations a checkpoint that merges all trees and tables may put into effect: those
// before everything that stays in the write buffer, until one that moves a run in part.
size_t ShardCore::rules_to_retire() const {
  const Sequence unmerged = active_->size() > 0 ? active_->sequence_min() : visible_sequence_;
  const auto newer = std::find_if(relocations_.begin(), relocations_.end(),
                                  [&](const SequencedRelocation& each) { return each.sequence >= unmerged; });
  auto count = static_cast<size_t>(newer - relocations_.begin());
  for (const FileState& state : states_) {
    if (count == 0) break;
    if (!state.runs) continue;
    state.runs->for_each([&](const Run& run, Sequence sequence) {
      Place unused;
      count = rules_for_whole(std::span(relocations_).first(count), run, sequence, &unused);
    });
  }
  return count;
}

std::string ShardCore::encode_snapshot(uint64_t owner, size_t retired, bool with_tail) const {
  SnapshotBuilder builder(options_.shard, owner, visible_sequence_);
  for (uint32_t i = 0; i < states_.size(); ++i) {
    const FileState& state = states_[i];
    if (state.free) continue;
    SnapshotFile file{files_.id(i), state.known, state.generation, state.size, state.irregular_max,
                      state.rows,   {}};
    if (state.runs) {
      state.runs->for_each([&](const Run& run, Sequence sequence) {
        StoredRun& stored = file.runs.emplace_back(run, sequence);
        rules_for_whole(std::span(relocations_).first(retired), run, sequence, &stored.run.place);
      });
      std::stable_sort(file.runs.begin(), file.runs.end(),
                       [](const StoredRun& a, const StoredRun& b) { return a.sequence < b.sequence; });
    }
    builder.add(file);
  }
  for (const SequencedRelocation& relocation : std::span(relocations_).subspan(retired))
    builder.add(relocation);
  builder.add_records(durable_group_, with_tail ? Bytes(records_.tail()) : Bytes());
  for (const auto& [client, window] : clients_) builder.add(SnapshotClient{client, window});
  for (const RemovedRange& range : removed_.list()) builder.add(range);
  return builder.finish();
}

uint64_t ShardCore::earlier_bytes() const {
  uint64_t bytes = 0;
  for (const ManifestLog& log : earlier_logs_) bytes += log.bytes;
  return bytes;
}

// Merges all trees, and as many of the newest tables as are not twice as large as what is merged anyway:
// tables stay in geometric sizes, so that a lookup meets few and each entry is rewritten a logarithmic number
// of times.
std::unique_ptr<Work> ShardCore::start_checkpoint(bool all) {
  prune_barriers();
  auto work = std::make_unique<CheckpointWork>(*this);
  if (options_.relocations_retire != 0 && (all || relocations_.size() >= options_.relocations_retire))
    work->retired = rules_to_retire();
  all |= work->retired > 0 || merge_all_wanted_;
  work->removals = removals_;
  work->dead_rows = all ? dead_rows_ : 0;
  work->request.removed = removed_.list();
  work->request.rules.assign(relocations_.begin(),
                             relocations_.begin() + static_cast<ptrdiff_t>(work->retired));
  work->trees = trees_.size();
  work->request.tables = trees_;
  uint64_t bytes = 0;
  for (const auto& tree : trees_) bytes += tree->stored_bytes();
  size_t merged = 0;
  while (merged < tables_.size() && (!trees_.empty() || all) &&
         (all || tables_[merged]->stored_bytes() <= 2 * bytes || tables_.size() - merged >= kTablesMax)) {
    bytes += tables_[merged]->stored_bytes();
    work->request.tables.push_back(tables_[merged++]);
  }
  if (all && trees_.empty() && merged == 1 && work->retired == 0 && dead_rows_ == 0)
    merged = 0, work->request.tables.clear();  // one table stays as it is
  work->kept.assign(tables_.begin() + static_cast<ptrdiff_t>(merged), tables_.end());
  work->taken.assign(tables_.begin(), tables_.begin() + static_cast<ptrdiff_t>(merged));
  work->request.barriers = barriers_;
  work->request.codec = options_.codec;
  work->request.drop_holes = work->kept.empty();

  ShardManifest& manifest = work->manifest;
  manifest.shard = options_.shard;
  manifest.job = job();
  manifest.group = frozen_group_;
  manifest.sequence = visible_sequence_;
  manifest.first_log = log_->number();
  work->log = log_;  // the work makes it, if no commit has: the manifest promises its header at least
  manifest.first_log_bytes = store::kLogHeaderBytes + (options_.sync_log ? current_log_bytes_ : 0);
  manifest.earlier_logs = earlier_logs_;
  work->freed_log_bytes = logs_bytes_ - std::min(logs_bytes_, current_log_bytes_ + earlier_bytes());
  manifest.snapshot = {job(), next_file_++};
  manifest.attributes = records_.file();
  if (records_.wants_file() && records_durable()) {
    const uint32_t number = next_file_++;
    work->attributes = records_.encode_file(options_.shard, owner_of(job(), number));
    work->tail_bytes = records_.tail().size();
    manifest.attributes = {job(), number, work->attributes.size()};
    if (records_.file().number != 0)
      work->obsolete.push_back(
          path_of(records_.file().job, ShardFileKind::kAttributes, records_.file().number));
  }
  work->next_file = next_file_;
  work->snapshot =
      encode_snapshot(owner_of(job(), manifest.snapshot.number), work->retired, work->attributes.empty());

  for (uint32_t number = first_log_; number < log_->number(); ++number)
    work->obsolete.push_back(path_of(ShardFileKind::kLog, number));
  for (const ManifestLog& log : replaced_logs_)
    work->obsolete.push_back(path_of(log.job, ShardFileKind::kLog, log.number));
  if (snapshot_number_ != 0)
    work->obsolete.push_back(path_of(snapshot_job_, ShardFileKind::kSnapshot, snapshot_number_));
  for (const auto& table : work->taken) {
    for (const auto& set : table->sets) work->obsolete.push_back(static_cast<const SortedFile&>(*set).path());
  }
  return work;
}

// Else work that needs a moment without a commit would never come while there is always another commit.
bool ShardCore::background_first() const {
  return records_.overdue() || logs_bytes_ > options_.log_bytes_max + options_.log_bytes_max / 2;
}

std::unique_ptr<Work> ShardCore::next_background() {
  records_wait_ = false;
  if (background_ || !health_.ok() || (!blocked_.ok() && !retry_background_)) return nullptr;
  try {
    if (frozen_ == nullptr && (freeze_wanted_ || active_->full() || logs_bytes_ > options_.log_bytes_max)) {
      if (logs_bytes_ > options_.log_bytes_max) checkpoint_wanted_ = true;
      if (freeze()) freeze_wanted_ = false;
    }
    std::unique_ptr<Work> work;
    uint64_t tree_bytes = 0;
    for (const auto& tree : trees_) tree_bytes += tree->stored_bytes();
    if (frozen_ != nullptr) {
      work = start_flush();
    } else if (tree_bytes >= options_.compression_buffer_bytes || (checkpoint_wanted_ && !freeze_wanted_)) {
      // Trees that were replayed from logs: a checkpoint must not name these logs any more.
      if (!earlier_logs_.empty() && !freeze()) {
        freeze_wanted_ = true;
        return nullptr;
      }
      // The file of the table is made of what the table has, which must be durable: its changes wait for
      // that.
      records_wait_ = frozen_ == nullptr && records_.wants_file() && !records_durable();
      if (records_wait_) return nullptr;
      work = frozen_ != nullptr ? start_flush() : start_checkpoint(false);
    }
    background_ = work != nullptr;
    if (background_) retry_background_ = false;
    return work;
  } catch (const std::bad_alloc&) {
    // Not at once again: encoding a table costs time.
    static_cast<void>(background_failed(Status::out_of_memory()));
    return nullptr;
  }
}

bool ShardCore::settle() {
  if (!health_.ok() || !blocked_.ok()) return false;
  const uint64_t rows = active_->visible() + (frozen_ != nullptr ? frozen_->visible() : 0);
  uint64_t bytes = rows * sizeof(Entry);
  for (const auto& tree : trees_) bytes += tree->stored_bytes();
  // What the checkpoint writes anew: the snapshot, and at four tables the newest one, whatever its size.
  uint64_t again = snapshot_bytes_;
  if (tables_.size() >= kTablesMax) again += tables_[0]->stored_bytes();
  if (bytes == 0 || bytes < again / 4) return false;
  settling_ = true;
  drop_spare();
  if (active_->visible() != 0) freeze_wanted_ = true;
  checkpoint_wanted_ = true;
  return true;
}

// A failure that may pass: the shard has lost nothing, and makes another attempt when the write buffer is
// full again or a put finds no space in memory.
Status ShardCore::background_failed(const Status& why) {
  if (why.code() != Code::kNoSpace && why.code() != Code::kResourceExhausted) {
    fail(why);
    return health_;
  }
  ++counters_.background_failures;
  blocked_ = why;
  retry_background_ = false;
  return why;
}

Status ShardCore::finish(std::unique_ptr<Work> done) {
  return contain([&] {
    switch (done->kind()) {
      case WorkKind::kCommit:
        return finish_commit(static_cast<CommitWork*>(done.get()));
      case WorkKind::kFlush:
        return finish_flush(static_cast<FlushWork*>(done.get()));
      default:
        return finish_checkpoint(static_cast<CheckpointWork*>(done.get()));
    }
  });
}

Status ShardCore::finish_commit(CommitWork* work) {
  committing_ = false;
  if (!work->status().ok()) {
    const Status why = work->status().with_context("the log could not be written");
    if (work->taken_back()) {
      give_up_groups();
      return why;
    }
    take_back_records();
    fail(why);
    return health_;
  }
  const Status applied = contain([&] {
    apply(in_flight_);
    active_->show_until(in_flight_.entries_end);
  });
  records_.durable(in_flight_.records);
  if (!applied.ok()) {
    fail(applied);
    unreadable_ = health_;
    return health_;
  }
  ++counters_.groups;
  counters_.log_syncs += options_.sync_log ? 1 : 0;
  counters_.log_bytes += work->bytes();
  logs_bytes_ += work->bytes();
  current_log_bytes_ += work->bytes();
  in_flight_ = Group();
  if (!health_.ok())
    take_back_records();  // background work has failed meanwhile: no commit comes after this one
  if (records_.wants_checkpoint(checkpoint_bytes()))
    freeze_wanted_ = checkpoint_wanted_ = retry_background_ = true;
  renumber_files();
  if (active_->full()) retry_background_ = true;
  // At once, because another commit may be under way whenever background work is asked for.
  if ((freeze_wanted_ || active_->visible() >= options_.write_buffer_entries) && frozen_ == nullptr)
    static_cast<void>(contain([this] { freeze_wanted_ &= !freeze(); }));  // else next_background does it
  return {};
}

Status ShardCore::finish_flush(FlushWork* work) {
  background_ = false;
  if (!work->status().ok()) return background_failed(work->status());
  if (!work->table()->sets.empty()) {
    const Status kept = contain([&] { trees_.insert(trees_.begin(), work->table()); });
    if (!kept.ok()) return background_failed(kept);
  }
  blocked_ = {};
  dead_rows_ -= std::min(dead_rows_, work->dropped());
  counters_.rows_dropped += work->dropped();
  if (!settling_) spare_ = frozen_->release();
  frozen_.reset();
  ++counters_.flushes;
  counters_.flushed_bytes += work->table()->stored_bytes();
  return {};
}

// After what can throw, all of it changes.
Status ShardCore::finish_checkpoint(CheckpointWork* work) {
  background_ = false;
  next_file_ = std::max(next_file_, work->next_file);
  if (!work->status().ok()) {
    const Status why = work->status().with_context("a checkpoint failed");
    if (work->log->usable()) return background_failed(why);
    fail(why);  // of the log that it could not make: no commit can follow
    return health_;
  }
  if (work->merged && !work->merged->sets.empty()) {
    const Status kept = contain([&] { work->kept.insert(work->kept.begin(), work->merged); });
    if (!kept.ok()) {
      fail(kept);  // the manifest has it, and so has the next job
      return health_;
    }
  }
  blocked_ = {};
  trees_.erase(trees_.end() - static_cast<ptrdiff_t>(work->trees), trees_.end());
  tables_ = std::move(work->kept);
  const auto retired = relocations_.begin() + static_cast<ptrdiff_t>(work->retired);
  for (const FileState& state : states_) {
    if (state.runs && work->retired > 0) state.runs->relocate({relocations_.begin(), retired});
  }
  relocations_.erase(relocations_.begin(), retired);
  replaced_logs_.clear();
  first_log_ = work->manifest.first_log;
  snapshot_number_ = work->manifest.snapshot.number;
  snapshot_job_ = job();
  if (!work->attributes.empty()) records_.filed(work->manifest.attributes, work->tail_bytes, committing_);
  records_.checkpointed();
  snapshot_bytes_ = work->snapshot.size();
  logs_bytes_ -= std::min(logs_bytes_, work->freed_log_bytes);
  checkpoint_wanted_ = merge_all_wanted_ = false;
  removals_ -= work->removals;
  // Counts of rows are of what was put, and rows that another one covers are gone: a merge of all has all.
  dead_rows_ -= std::min(dead_rows_, std::max(work->dead_rows, work->counters.dropped));
  counters_.rows_dropped += work->counters.dropped;
  ++counters_.checkpoints;
  counters_.checkpoint_bytes += work->snapshot.size();
  if (work->merged) {
    ++counters_.merges;
    counters_.merged_bytes += work->merged_bytes;
    counters_.blocks_merged += work->counters.blocks_decoded;
    counters_.blocks_copied += work->counters.blocks_copied;
  }
  return {};
}

Status ShardCore::commit() {
  if (std::unique_ptr<Work> work = next_commit()) {
    work->run();
    SWALE_RETURN_IF_ERROR(finish(std::move(work)));
  }
  return health_;
}

Status ShardCore::tidy() {
  constexpr uint64_t kRemovalsKept = 256;  // 25 KB of the log
  SWALE_RETURN_IF_ERROR(commit());
  merge_all_wanted_ |= dead_rows_ >= kRemovalsKept && dead_rows_ > rows() / 2;
  if (removals_ < kRemovalsKept && !merge_all_wanted_) return {};
  return merge(merge_all_wanted_);
}

Status ShardCore::drain() {
  SWALE_RETURN_IF_ERROR(commit());
  return merge(true);
}

// Everything goes to sorted files, and the log is empty after it. `all`: into one table.
Status ShardCore::merge(bool all) {
  const auto run = [this](std::unique_ptr<Work> work) {
    background_ = true;
    work->run();
    return finish(std::move(work));
  };
  return contain([&]() -> Status {
    for (int buffers = 0; buffers < 2; ++buffers) {
      drop_spare();  // else the next buffer would keep the memory of an older one
      freeze();
      if (frozen_ != nullptr) SWALE_RETURN_IF_ERROR(run(start_flush()));
    }
    drop_spare();
    return run(start_checkpoint(all));
  });
}

}  // namespace swale::meta
