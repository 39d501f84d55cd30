// The work that a shard hands out: commits of groups, flushes of write buffers, checkpoints.
//
// Order of writes. A commit: record, sync of the log (for its first record also of the directory); then the fence; then the
// group is durable. A checkpoint: sorted files and snapshot, each synced; the directory; the fence; the manifest, replaced
// atomically; only then are the files that it no longer names removed, those of this job alone.
#include <algorithm>

#include "base/contain.h"
#include "meta/shard_core.h"

namespace swale::meta {

class CommitWork final : public Work {
 public:
  CommitWork(const ShardCore& shard, std::shared_ptr<LogFile> log, std::string record)
      : Work(WorkKind::kCommit),
        device_(shard.device_),
        options_(shard.options_),
        log_(std::move(log)),
        record_(std::move(record)) {}

  void run() noexcept override {
    status_ = contain([this] { return write(); });
  }

  const Status& status() const { return status_; }
  uint64_t bytes() const { return record_.size(); }

 private:
  Status write() {
    const bool fresh = log_->file == nullptr;
    if (fresh) {
      SWALE_ASSIGN_OR_RETURN(log_->file, device_.open(log_->path, io::OpenMode::kCreate));
      record_.insert(0, log_header(options_.shard, log_->owner));
    }
    SWALE_RETURN_IF_ERROR(log_->file->pwrite(log_->bytes, record_));
    if (options_.sync_log) SWALE_RETURN_IF_ERROR(log_->file->sync());
    if (fresh) SWALE_RETURN_IF_ERROR(device_.sync_directory(options_.directory));
    log_->bytes += record_.size();
    return options_.fence ? options_.fence() : ok_status();
  }

  io::Device& device_;
  const ShardOptions& options_;
  const std::shared_ptr<LogFile> log_;
  std::string record_;
  Status status_;
};

class FlushWork final : public Work {
 public:
  FlushWork(std::shared_ptr<const Memtable> from, std::vector<Sequence> barriers, BlockCodec codec)
      : Work(WorkKind::kFlush), from_(std::move(from)), barriers_(std::move(barriers)), codec_(codec) {}

  void run() noexcept override {
    status_ = contain([this] { return encode(); });
  }

  const Status& status() const { return status_; }
  const std::shared_ptr<Table>& table() const { return table_; }

 private:
  Status encode() {
    std::vector<Entry> entries = from_->sorted();
    auto tree = std::make_shared<Tree>();
    table_ = std::make_shared<Table>();
    table_->sequence_min = from_->sequence_min();
    table_->sequence_max = from_->sequence_max();
    raise_sequences(entries, barriers_, table_->sequence_max);
    coalesce(&entries);
    table_->entries = entries.size();
    SWALE_ASSIGN_OR_RETURN(const auto cutter, BlockCutter::create(codec_, from_->files(),
                                                                  [&](const Key& first, Bytes block, size_t) {
                                                                    tree->add(first, block);
                                                                    return ok_status();
                                                                  }));
    SWALE_RETURN_IF_ERROR(cutter->add(entries, true));
    tree->finish();
    if (tree->blocks() > 0) table_->sets.push_back(std::move(tree));
    return {};
  }

  const std::shared_ptr<const Memtable> from_;
  const std::vector<Sequence> barriers_;
  const BlockCodec codec_;
  std::shared_ptr<Table> table_;
  Status status_;
};

class CheckpointWork final : public Work {
 public:
  CheckpointWork(ShardCore& shard) : Work(WorkKind::kCheckpoint), shard_(shard) {}

  void run() noexcept override {
    status_ = contain([this] { return write(); });
  }

  const Status& status() const { return status_; }

  // Set by the shard before run().
  MergeRequest request;                             // no tables: nothing to merge
  std::vector<std::shared_ptr<const Table>> kept;   // older tables that stay, newest first
  std::vector<std::shared_ptr<const Table>> taken;  // what the merge replaces
  std::string snapshot;
  ShardManifest manifest;
  std::vector<std::string> obsolete;  // paths
  uint64_t freed_log_bytes = 0;
  size_t trees = 0;  // how many of the shard's trees are in it

  // Read by the shard after it.
  std::shared_ptr<Table> merged;
  MergeCounters counters;
  uint64_t merged_bytes = 0;
  uint32_t next_file = 0;

 private:
  Status write() {
    if (!request.tables.empty()) SWALE_RETURN_IF_ERROR(merge());
    const std::string snapshot_path = shard_.path_of(ShardFileKind::kSnapshot, manifest.snapshot.number);
    {
      SWALE_ASSIGN_OR_RETURN(const auto file, shard_.device_.open(snapshot_path, io::OpenMode::kCreate));
      SWALE_RETURN_IF_ERROR(file->pwrite(0, snapshot));
      SWALE_RETURN_IF_ERROR(file->sync());
    }
    SWALE_RETURN_IF_ERROR(shard_.device_.sync_directory(shard_.options_.directory));
    list_tables();
    if (shard_.options_.fence) SWALE_RETURN_IF_ERROR(shard_.options_.fence());
    const std::string path = shard_.path_of(ShardFileKind::kManifest, 0);
    SWALE_RETURN_IF_ERROR(io::replace_file(shard_.device_, path, manifest.encode()));
    // What is left over if this fails is found by the next opening and ignored.
    for (const std::string& old : obsolete) static_cast<void>(shard_.device_.remove(old));
    return {};
  }

  Status merge() {
    merged = std::make_shared<Table>();
    merged->sequence_min = ~Sequence{0};
    for (const auto& table : request.tables) {
      merged->sequence_min = std::min(merged->sequence_min, table->sequence_min);
      merged->sequence_max = std::max(merged->sequence_max, table->sequence_max);
    }
    SortedFileWriter writer;
    SWALE_RETURN_IF_ERROR(merge_tables(
        request,
        [&](const Key& first, Bytes block, size_t rows) {
          writer.add(first, block, rows);
          merged->entries += rows;
          return writer.full() ? write_file(&writer) : ok_status();
        },
        &counters));
    return writer.blocks() > 0 ? write_file(&writer) : ok_status();
  }

  Status write_file(SortedFileWriter* writer) {
    const uint32_t number = next_file++;
    const std::string path = shard_.path_of(ShardFileKind::kSorted, number);
    const uint64_t owner = owner_of(shard_.options_.job, number);
    SWALE_ASSIGN_OR_RETURN(const uint64_t bytes, writer->write(shard_.device_, path, owner,
                                                               merged->sequence_min, merged->sequence_max));
    merged_bytes += bytes;
    SWALE_ASSIGN_OR_RETURN(auto file,
                           SortedFile::open(shard_.device_, path, owner, &shard_.cache_, &shard_.reads_));
    merged->sets.push_back(std::move(file));
    return {};
  }

  void list_tables() {
    const auto list = [this](const Table& table) {
      ManifestTable listed{table.sequence_min, table.sequence_max, table.entries, {}};
      for (const auto& set : table.sets) {
        const uint64_t owner = static_cast<const SortedFile&>(*set).about().owner;
        listed.files.push_back({static_cast<uint32_t>(owner >> 32), static_cast<uint32_t>(owner)});
      }
      if (!listed.files.empty()) manifest.tables.push_back(std::move(listed));
    };
    if (merged) list(*merged);
    for (const auto& table : kept) list(*table);
  }

  ShardCore& shard_;  // its device, options and names; nothing that changes
  Status status_;
};

std::string ShardCore::encode_group(const Group& group) {
  std::string record(kRecordHeadBytes, '\0');
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
  constexpr size_t kLogBlockBytes = 64 * kKiB;
  std::span<const Entry> rest =
      active_->entries().subspan(group.entries_begin, group.entries_end - group.entries_begin);
  while (!rest.empty()) {
    append_u8(&record, static_cast<uint8_t>(LogOperation::kExtents));
    rest = rest.subspan(log_encoder_->encode(rest, active_->files(), kLogBlockBytes, &record));
  }
  seal_record(log_->owner, group.number, group.sequence_end, &record);
  return record;
}

std::unique_ptr<Work> ShardCore::next_commit() {
  if (committing_ || open_.empty() || !health_.ok()) return nullptr;
  try {
    auto work = std::make_unique<CommitWork>(*this, log_, encode_group(open_));
    in_flight_ = std::move(open_);
    open_.number = in_flight_.number;
    open_next_group();
    committing_ = true;
    return work;
  } catch (const std::bad_alloc&) {
    fail(error(Code::kResourceExhausted, Scope::kFile, "no memory for the record of group {}", open_.number));
    return nullptr;
  }
}

void ShardCore::begin_log() {
  if (log_ != nullptr && current_log_bytes_ == 0) return;  // numbers have no gaps: this one is not in use yet
  const uint32_t number = log_ ? log_->number + 1 : first_log_;
  log_ = std::make_shared<LogFile>();
  log_->number = number;
  log_->owner = owner_of(options_.job, number);
  log_->path = path_of(ShardFileKind::kLog, number);
  current_log_bytes_ = 0;
}

// The visible entries leave the write buffer, and what comes later goes to another log. False: not now.
bool ShardCore::freeze() {
  if (frozen_ != nullptr || committing_) return false;
  frozen_group_ = durable_group_;
  earlier_logs_.clear();  // the next checkpoint has what they say
  begin_log();
  if (active_->visible() == 0) return true;
  auto next = std::make_shared<Memtable>(options_.write_buffer_entries, std::move(spare_));
  for (const Entry& entry : active_->entries().subspan(active_->visible())) {
    Entry moved = entry;
    moved.file = next->files().index_of(active_->files().id(entry.file));
    next->append(moved);
  }
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

std::unique_ptr<Work> ShardCore::start_flush() {
  return std::make_unique<FlushWork>(
      frozen_, barriers_between(frozen_->sequence_min(), frozen_->sequence_max()), options_.codec);
}

std::string ShardCore::encode_snapshot(uint64_t owner) const {
  SnapshotBuilder builder(options_.shard, owner, visible_sequence_);
  for (uint32_t i = 0; i < states_.size(); ++i) {
    const FileState& state = states_[i];
    SnapshotFile file{files_.id(i), state.known, state.generation, state.size, state.irregular_max, {}};
    if (state.runs) {
      state.runs->for_each([&](const Run& run, Sequence sequence) { file.runs.push_back({run, sequence}); });
      std::stable_sort(file.runs.begin(), file.runs.end(),
                       [](const StoredRun& a, const StoredRun& b) { return a.sequence < b.sequence; });
    }
    builder.add(file);
  }
  for (const SequencedRelocation& relocation : relocations_) builder.add(relocation);
  for (const auto& [client, window] : clients_) builder.add(SnapshotClient{client, window});
  return builder.finish();
}

uint64_t ShardCore::earlier_bytes() const {
  uint64_t bytes = 0;
  for (const ManifestLog& log : earlier_logs_) bytes += log.bytes;
  return bytes;
}

// Merges all trees, and as many of the newest tables as are not twice as large as what is merged anyway: tables stay in
// geometric sizes, so that a lookup meets few and each entry is rewritten a logarithmic number of times.
std::unique_ptr<Work> ShardCore::start_checkpoint(bool all) {
  constexpr size_t kTablesMax = 4;
  prune_barriers();
  auto work = std::make_unique<CheckpointWork>(*this);
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
  if (all && trees_.empty() && merged == 1)
    merged = 0, work->request.tables.clear();  // one table stays as it is
  work->kept.assign(tables_.begin() + static_cast<ptrdiff_t>(merged), tables_.end());
  work->taken.assign(tables_.begin(), tables_.begin() + static_cast<ptrdiff_t>(merged));
  work->request.barriers = barriers_;
  work->request.codec = options_.codec;
  work->request.drop_holes = work->kept.empty();

  ShardManifest& manifest = work->manifest;
  manifest.shard = options_.shard;
  manifest.job = options_.job;
  manifest.group = frozen_group_;
  manifest.sequence = visible_sequence_;
  manifest.first_log = log_->number;
  manifest.earlier_logs = earlier_logs_;
  work->freed_log_bytes = logs_bytes_ - std::min(logs_bytes_, current_log_bytes_ + earlier_bytes());
  manifest.snapshot = {options_.job, next_file_++};
  work->next_file = next_file_;
  work->snapshot = encode_snapshot(owner_of(options_.job, manifest.snapshot.number));

  for (uint32_t number = first_log_; number < log_->number; ++number)
    work->obsolete.push_back(path_of(ShardFileKind::kLog, number));
  if (snapshot_number_ != 0 && snapshot_job_ == options_.job)
    work->obsolete.push_back(path_of(ShardFileKind::kSnapshot, snapshot_number_));
  for (const auto& table : work->taken) {
    for (const auto& set : table->sets) {
      const auto& file = static_cast<const SortedFile&>(*set);
      if (file.about().owner >> 32 == options_.job) work->obsolete.push_back(file.path());
    }
  }
  return work;
}

std::unique_ptr<Work> ShardCore::next_background() {
  if (background_ || !health_.ok()) return nullptr;
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
      if (!earlier_logs_.empty() && !freeze()) return nullptr;
      work = frozen_ != nullptr ? start_flush() : start_checkpoint(false);
    }
    background_ = work != nullptr;
    return work;
  } catch (const std::bad_alloc&) {
    return nullptr;  // nothing was changed; it is tried again
  }
}

namespace {

// A failure of storage; the shard serves what it has and takes no more.
Status failure_of(const Status& status, const char* what) { return status.with_context(what); }

}  // namespace

Status ShardCore::finish(std::unique_ptr<Work> done) {
  if (done->kind() == WorkKind::kCommit) {
    const auto& work = static_cast<const CommitWork&>(*done);
    committing_ = false;
    if (!work.status().ok()) {
      fail(failure_of(work.status(), "the log could not be written"));
      return health_;
    }
    const Status applied = contain([&] {
      active_->show_until(in_flight_.entries_end);
      apply(in_flight_);
      return ok_status();
    });
    if (!applied.ok()) {
      fail(applied);
      return health_;
    }
    ++counters_.groups;
    counters_.log_syncs += options_.sync_log ? 1 : 0;
    counters_.log_bytes += work.bytes();
    logs_bytes_ += work.bytes();
    current_log_bytes_ += work.bytes();
    in_flight_ = Group();
    if (active_->visible() >= options_.write_buffer_entries && frozen_ == nullptr) {
      return contain([this] {
        freeze();
        return ok_status();
      });
    }
    return {};
  }
  background_ = false;
  if (done->kind() == WorkKind::kFlush) {
    const auto& work = static_cast<const FlushWork&>(*done);
    if (!work.status().ok()) {
      fail(work.status());
      return health_;
    }
    if (!work.table()->sets.empty()) trees_.insert(trees_.begin(), work.table());
    spare_ = frozen_->release();
    frozen_.reset();
    ++counters_.flushes;
    counters_.flushed_bytes += work.table()->stored_bytes();
    return {};
  }
  auto& work = static_cast<CheckpointWork&>(*done);
  if (!work.status().ok()) {
    fail(failure_of(work.status(), "a checkpoint failed"));
    return health_;
  }
  trees_.erase(trees_.end() - static_cast<ptrdiff_t>(work.trees), trees_.end());
  tables_ = work.kept;
  if (work.merged && !work.merged->sets.empty()) tables_.insert(tables_.begin(), work.merged);
  next_file_ = work.next_file;
  first_log_ = work.manifest.first_log;
  snapshot_number_ = work.manifest.snapshot.number;
  snapshot_job_ = options_.job;
  snapshot_bytes_ = work.snapshot.size();
  logs_bytes_ -= std::min(logs_bytes_, work.freed_log_bytes);
  checkpoint_wanted_ = false;
  ++counters_.checkpoints;
  counters_.checkpoint_bytes += work.snapshot.size();
  if (work.merged) {
    ++counters_.merges;
    counters_.merged_bytes += work.merged_bytes;
    counters_.blocks_merged += work.counters.blocks_decoded;
    counters_.blocks_copied += work.counters.blocks_copied;
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

Status ShardCore::drain() {
  SWALE_RETURN_IF_ERROR(commit());
  const auto run = [this](std::unique_ptr<Work> work) {
    background_ = true;
    work->run();
    return finish(std::move(work));
  };
  return contain([&]() -> Status {
    for (int buffers = 0; buffers < 2; ++buffers) {
      freeze();
      if (frozen_ != nullptr) SWALE_RETURN_IF_ERROR(run(start_flush()));
    }
    spare_ = {};
    return run(start_checkpoint(true));
  });
}

}  // namespace swale::meta
