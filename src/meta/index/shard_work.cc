#include "meta/index/shard_work.h"

#include <utility>

#include "base/contain.h"

namespace swale::meta {

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
    for (const std::string& path : written_) static_cast<void>(shared_.device.remove(path));
  }));
}

Status CheckpointWork::write() {
  if (!request.tables.empty()) SWALE_RETURN_IF_ERROR(merge());
  SWALE_RETURN_IF_ERROR(write_whole(ShardFileKind::kSnapshot, manifest.snapshot.number, snapshot));
  if (!attributes.empty())
    SWALE_RETURN_IF_ERROR(write_whole(ShardFileKind::kAttributes, manifest.attributes.number, attributes));
  SWALE_RETURN_IF_ERROR(log->create());
  SWALE_RETURN_IF_ERROR(shared_.device.sync_directory(shared_.options.directory));
  list_tables();
  const std::string text = manifest.encode();
  SWALE_RETURN_IF_ERROR(shared_.fence());
  const std::string path = shared_.path_of(ShardFileKind::kManifest, 0);
  // A manifest that has its place names the new files, whatever fails or throws after that: they stay.
  std::vector<std::string> written = std::exchange(written_, {});
  const Status replaced = contain([&] { return io::replace_file(shared_.device, path, text); });
  if (!replaced.ok()) {
    const Result<std::string> found = io::read_file(shared_.device, path, kGiB);
    if (found.ok() && *found != text) written_ = std::move(written);
    return replaced;
  }
  SWALE_RETURN_IF_ERROR(shared_.fence());
  // What is left over if this fails is removed by the next job.
  for (const std::string& old : obsolete) static_cast<void>(shared_.device.remove(old));
  return {};
}

Status CheckpointWork::write_whole(ShardFileKind kind, uint32_t number, Bytes content) {
  const std::string path = shared_.path_of(kind, number);
  written_.push_back(path);
  SWALE_ASSIGN_OR_RETURN(const auto file, shared_.device.open(path, io::OpenMode::kCreate));
  SWALE_RETURN_IF_ERROR(file->pwrite(0, content));
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
  const std::string path = shared_.path_of(ShardFileKind::kSorted, number);
  written_.push_back(path);
  const uint64_t owner = owner_of(shared_.job(), number);
  SWALE_ASSIGN_OR_RETURN(const uint64_t bytes, writer->write(shared_.device, path, owner,
                                                             merged->sequence_min, merged->sequence_max));
  merged_bytes += bytes;
  SWALE_ASSIGN_OR_RETURN(auto file, layers_.open_file(path, owner));
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
