#include "meta/index/shard_work.h"

#include "base/contain.h"

namespace swale::meta {

// ---- commits

void CommitWork::run() noexcept {
  status_ = contain([this] { return write(); });
  const bool may_pass = status_.code() == Code::kNoSpace || status_.code() == Code::kResourceExhausted;
  if (may_pass && !synced_) taken_back_ = contain([this] { return take_back(); }).ok();
}

Status CommitWork::write() {
  fresh_ = log_->file == nullptr;
  if (fresh_) {
    record_.insert(0, log_header(options_.shard, log_->owner));
    SWALE_ASSIGN_OR_RETURN(log_->file, device_.open(log_->path, io::OpenMode::kCreate));
  }
  SWALE_RETURN_IF_ERROR(log_->file->pwrite(log_->bytes, record_));
  synced_ = true;
  if (options_.sync_log) SWALE_RETURN_IF_ERROR(log_->file->sync());
  if (fresh_) SWALE_RETURN_IF_ERROR(device_.sync_directory(options_.directory));
  log_->bytes += record_.size();
  return options_.fence ? options_.fence() : ok_status();
}

// A record that is there in part would look like damage as soon as a later log exists.
Status CommitWork::take_back() {
  if (!fresh_) {
    SWALE_RETURN_IF_ERROR(log_->file->truncate(log_->bytes));
    return log_->file->sync();
  }
  log_->file.reset();
  const Status removed = device_.remove(log_->path);
  if (removed.code() == Code::kNotFound) return {};
  SWALE_RETURN_IF_ERROR(removed);
  return device_.sync_directory(options_.directory);
}

// ---- flushes

void FlushWork::run() noexcept {
  status_ = contain([this] { return encode(); });
}

Status FlushWork::encode() {
  std::vector<Entry> entries = from_->sorted();
  if (!removed_.empty()) {
    std::vector<bool> dead(from_->files().size());
    for (uint32_t i = 0; i < dead.size(); ++i) dead[i] = contains(removed_, from_->files().id(i));
    dropped_ = std::erase_if(entries, [&](const Entry& row) { return dead[row.file]; });
  }
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

// ---- checkpoints

void CheckpointWork::run() noexcept {
  status_ = contain([this] { return write(); });
  if (status_.ok()) return;
  // Space for another attempt. What cannot be removed now, the next job removes.
  static_cast<void>(contain([this] {
    for (const std::string& path : written_) static_cast<void>(shard_.device_.remove(path));
  }));
}

Status CheckpointWork::write() {
  if (!request.tables.empty()) SWALE_RETURN_IF_ERROR(merge());
  SWALE_RETURN_IF_ERROR(write_snapshot());
  SWALE_RETURN_IF_ERROR(shard_.device_.sync_directory(shard_.options_.directory));
  list_tables();
  const std::string text = manifest.encode();
  const auto fence = [this] { return shard_.options_.fence ? shard_.options_.fence() : ok_status(); };
  SWALE_RETURN_IF_ERROR(fence());
  const std::string path = shard_.path_of(ShardFileKind::kManifest, 0);
  const Status replaced = io::replace_file(shard_.device_, path, text);
  if (!replaced.ok()) {
    // A manifest that has its place but is not durable names the new files: they stay.
    const Result<std::string> found = io::read_file(shard_.device_, path, text.size());
    if (!found.ok() || *found == text) written_.clear();
    return replaced;
  }
  written_.clear();
  SWALE_RETURN_IF_ERROR(fence());
  // What is left over if this fails is removed by the next job.
  for (const std::string& old : obsolete) static_cast<void>(shard_.device_.remove(old));
  return {};
}

Status CheckpointWork::write_snapshot() {
  const std::string path = shard_.path_of(ShardFileKind::kSnapshot, manifest.snapshot.number);
  written_.push_back(path);
  SWALE_ASSIGN_OR_RETURN(const auto file, shard_.device_.open(path, io::OpenMode::kCreate));
  SWALE_RETURN_IF_ERROR(file->pwrite(0, snapshot));
  return file->sync();
}

Status CheckpointWork::merge() {
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

Status CheckpointWork::write_file(SortedFileWriter* writer) {
  const uint32_t number = next_file++;
  const std::string path = shard_.path_of(ShardFileKind::kSorted, number);
  written_.push_back(path);
  const uint64_t owner = owner_of(shard_.options_.job, number);
  SWALE_ASSIGN_OR_RETURN(const uint64_t bytes, writer->write(shard_.device_, path, owner,
                                                             merged->sequence_min, merged->sequence_max));
  merged_bytes += bytes;
  SWALE_ASSIGN_OR_RETURN(auto file,
                         SortedFile::open(shard_.device_, path, owner, &shard_.cache_, &shard_.reads_));
  merged->sets.push_back(std::move(file));
  return {};
}

void CheckpointWork::list_tables() {
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

}  // namespace swale::meta
