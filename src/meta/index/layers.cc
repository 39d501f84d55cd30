#include "meta/index/layers.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace swale::meta {
namespace {

constexpr size_t kTablesMax = 4;  // of sorted files; a checkpoint merges more

}  // namespace

uint64_t ShardLayers::tree_bytes() const {
  uint64_t bytes = 0;
  for (const auto& tree : trees_) bytes += tree->stored_bytes();
  return bytes;
}

uint64_t ShardLayers::rows() const {
  uint64_t rows = active_->size() + (frozen_ ? frozen_->size() : 0);
  for (const auto& tree : trees_) rows += tree->entries;
  for (const auto& table : tables_) rows += table->entries;
  return rows;
}

uint64_t ShardLayers::rewritten_bytes() const {
  return tables_.size() >= kTablesMax ? tables_[0]->stored_bytes() : 0;
}

std::vector<LayerRef> ShardLayers::list() {
  std::vector<LayerRef> found;
  for (Memtable* const memtable : {active_.get(), frozen_.get()}) {
    if (memtable == nullptr || memtable->visible() == 0) continue;
    for (const Memtable::Part& part : memtable->parts())
      found.push_back({part.get(), &memtable->files(), nullptr});
  }
  for (const auto& tree : trees_) found.push_back({nullptr, nullptr, tree.get()});
  for (const auto& table : tables_) found.push_back({nullptr, nullptr, table.get()});
  return found;
}

std::shared_ptr<Memtable> ShardLayers::successor() {
  if (active_->visible() == 0) return nullptr;
  auto next = std::make_shared<Memtable>(shared_.options.write_buffer_entries, std::move(spare_));
  for (const Entry& entry : active_->entries().subspan(active_->visible())) {
    Entry moved = entry;
    moved.file = next->files().index_of(active_->files().id(entry.file));
    next->append(moved);
  }
  return next;
}

void ShardLayers::freeze(std::shared_ptr<Memtable> next) noexcept {
  assert(frozen_ == nullptr && active_->visible() + next->size() == active_->size());
  active_->shrink(active_->visible());
  frozen_ = std::move(active_);
  active_ = std::move(next);
}

void ShardLayers::flushed(const std::shared_ptr<const Table>& tree, bool keep_memory) {
  assert(frozen_ != nullptr);
  if (!tree->sets.empty()) trees_.insert(trees_.begin(), tree);
  if (keep_memory) spare_ = frozen_->release();
  frozen_.reset();
}

ShardLayers::Merge ShardLayers::choose_merge(bool all, bool keep_single) const {
  Merge chosen;
  chosen.trees = trees_.size();
  chosen.tables = trees_;
  uint64_t bytes = tree_bytes();
  size_t merged = 0;
  while (merged < tables_.size() && (!trees_.empty() || all) &&
         (all || tables_[merged]->stored_bytes() <= 2 * bytes || tables_.size() - merged >= kTablesMax)) {
    bytes += tables_[merged]->stored_bytes();
    chosen.tables.push_back(tables_[merged++]);
  }
  if (all && trees_.empty() && merged == 1 && keep_single) {
    merged = 0;
    chosen.tables.clear();
  }
  const auto kept = tables_.begin() + static_cast<ptrdiff_t>(merged);
  chosen.taken.assign(tables_.begin(), kept);
  chosen.kept.assign(kept, tables_.end());
  return chosen;
}

void ShardLayers::merged(size_t trees, std::vector<std::shared_ptr<const Table>> tables) noexcept {
  assert(trees <= trees_.size());
  trees_.erase(trees_.end() - static_cast<ptrdiff_t>(trees), trees_.end());
  tables_ = std::move(tables);
}

Status ShardLayers::open(const ShardManifest& manifest) {
  const ShardOptions& options = shared_.options;
  Sequence newer = ~Sequence{0};
  for (const ManifestTable& listed : manifest.tables) {
    auto table = std::make_shared<Table>();
    table->sequence_min = listed.sequence_min;
    table->sequence_max = listed.sequence_max;
    if (listed.sequence_max >= newer || listed.sequence_min > listed.sequence_max)
      return corruption("{}: shard {}: tables of the manifest are out of order", options.directory,
                        options.shard);
    newer = listed.sequence_min;
    for (const ManifestFile& file : listed.files) {
      const std::string path = shared_.path_of(file.job, ShardFileKind::kSorted, file.number);
      SWALE_ASSIGN_OR_RETURN(const auto opened, open_file(path, owner_of(file.job, file.number)));
      if (!table->sets.empty() &&
          opened->index().first(0) <= table->sets.back()->index().first(table->sets.back()->blocks() - 1))
        return corruption("{}: begins before the file in front of it ends", path);
      table->entries += opened->about().entries;
      table->sets.push_back(opened);
    }
    if (table->sets.empty() || table->entries != listed.entries)
      return corruption("{}: shard {}: a table has {} entries, the manifest says {}", options.directory,
                        options.shard, table->entries, listed.entries);
    tables_.push_back(std::move(table));
  }
  return {};
}

void ShardLayers::describe(ShardState* state) const {
  state->buffered_entries = active_->size() + (frozen_ ? frozen_->size() : 0);
  state->layers = (active_->size() != 0) + (frozen_ ? 1 : 0) + trees_.size() + tables_.size();
  state->buffer_memory_bytes +=
      spare_.capacity() * sizeof(Entry) + active_->memory_bytes() + (frozen_ ? frozen_->memory_bytes() : 0);
  for (const auto& tree : trees_) {
    state->compressed_entries += tree->entries;
    state->buffer_memory_bytes += tree->memory_bytes();
  }
  for (const auto& table : tables_) {
    state->filed_entries += table->entries;
    state->file_bytes += table->stored_bytes();
    state->index_memory_bytes += table->memory_bytes();
  }
  state->cache_memory_bytes = cache_.memory_bytes();
}

bool ShardLayers::consistent() const {
  if (active_->visible() > active_->size()) return false;
  if (frozen_ != nullptr && frozen_->visible() != frozen_->size()) return false;
  Sequence newer = ~Sequence{0};
  for (const auto* layer : {&trees_, &tables_}) {
    for (const auto& table : *layer) {
      if (table->sequence_min > table->sequence_max || table->sequence_max >= newer) return false;
      newer = table->sequence_min;
    }
  }
  return true;
}

}  // namespace swale::meta
