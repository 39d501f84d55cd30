#include "meta/index/tree.h"

#include <algorithm>

namespace swale::meta {

void BlockIndex::add(const Key& first) {
  if (files_.empty() || files_.back() != first.file) files_.push_back(first.file);
  file_of_.push_back(static_cast<uint32_t>(files_.size() - 1));
  offsets_.push_back(first.offset);
}

size_t BlockIndex::find(const Key& key) const {
  const auto file = std::upper_bound(files_.begin(), files_.end(), key.file) - files_.begin();
  if (file == 0) return size();
  const auto wanted = static_cast<uint32_t>(file - 1);
  const auto begin =
      static_cast<size_t>(std::lower_bound(file_of_.begin(), file_of_.end(), wanted) - file_of_.begin());
  const auto end =
      static_cast<size_t>(std::upper_bound(file_of_.begin(), file_of_.end(), wanted) - file_of_.begin());
  if (files_[wanted] != key.file) return end - 1;
  const auto at =
      static_cast<size_t>(std::upper_bound(offsets_.begin() + static_cast<ptrdiff_t>(begin),
                                           offsets_.begin() + static_cast<ptrdiff_t>(end), key.offset) -
                          offsets_.begin());
  return at == 0 ? size() : at - 1;
}

void BlockIndex::shrink() {
  files_.shrink_to_fit();
  file_of_.shrink_to_fit();
  offsets_.shrink_to_fit();
}

void Tree::add(const Key& first, std::string_view block) {
  bytes_.append(block);
  starts_.push_back(bytes_.size());
  index_.add(first);
}

void Tree::finish() {
  bytes_.append(kColumnSlackBytes, '\0');
  bytes_.shrink_to_fit();
  index_.shrink();
}

Result<BlockView> Tree::view(size_t i) {
  return BlockView::parse(block(i), "compression buffer", /*trusted=*/true);
}

Status Tree::read_all(std::string* bytes, std::vector<Bytes>* blocks) const {
  static_cast<void>(bytes);
  for (size_t i = 0; i < this->blocks(); ++i) blocks->push_back(block(i));
  return {};
}

uint64_t Table::stored_bytes() const {
  uint64_t bytes = 0;
  for (const auto& set : sets) bytes += set->stored_bytes();
  return bytes;
}

size_t Table::memory_bytes() const {
  size_t bytes = sets.capacity() * sizeof(sets[0]);
  for (const auto& set : sets) bytes += set->memory_bytes();
  return bytes;
}

Status TableCursor::open(size_t set, size_t block) {
  SWALE_ASSIGN_OR_RETURN(view_, table_.sets[set]->view(block));
  set_ = set;
  block_ = block;
  row_ = 0;
  const BlockIndex& index = table_.sets[set]->index();
  first_ = index.first(block);
  last_ = false;
  if (block + 1 < index.size()) {
    end_ = index.first(block + 1);
  } else if (set + 1 < table_.sets.size()) {
    end_ = table_.sets[set + 1]->index().first(0);
  } else {
    last_ = true;
  }
  return {};
}

Status TableCursor::seek(const FileId& file, uint64_t offset) {
  const Key key{file, offset};
  const bool open_already = set_ < table_.sets.size();
  if (!open_already || key < first_ || (!last_ && key >= end_)) {
    if (table_.sets.empty()) {
      set_ = 0;
      return {};
    }
    const auto after =
        std::upper_bound(table_.sets.begin(), table_.sets.end(), key,
                         [](const Key& k, const auto& set) { return k < set->index().first(0); });
    const size_t set =
        after == table_.sets.begin() ? 0 : static_cast<size_t>(after - table_.sets.begin()) - 1;
    const size_t block = table_.sets[set]->index().find(key);
    SWALE_RETURN_IF_ERROR(open(set, block == table_.sets[set]->blocks() ? 0 : block));
  }
  const size_t row = view_.find(file, offset);
  row_ = row == view_.rows() ? 0 : row;
  return {};
}

Status TableCursor::next() {
  if (++row_ < view_.rows()) return {};
  if (block_ + 1 < table_.sets[set_]->blocks()) return open(set_, block_ + 1);
  if (set_ + 1 < table_.sets.size()) return open(set_ + 1, 0);
  set_ = table_.sets.size();
  return {};
}

}  // namespace swale::meta
