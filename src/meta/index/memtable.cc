#include "meta/index/memtable.h"

#include <algorithm>

namespace swale::meta {

void Memtable::reserve(size_t more) {
  if (entries_.size() + more > entries_.capacity() && entries_.capacity() < capacity_)
    entries_.reserve(capacity_ + capacity_ / 4);  // a full group may pass the limit
}

void Memtable::append(std::span<const Extent> extents, uint32_t file, Sequence first) {
  reserve(extents.size());
  const size_t begin = entries_.size();
  entries_.resize(begin + extents.size());
  Entry* to = entries_.data() + begin;
  for (const Extent& extent : extents)
    *to++ = {extent.offset, extent.length, extent.place.address, first++, extent.place.log, file};
}

const std::vector<Memtable::Part>& Memtable::parts() {
  if (indexed_ == visible_) return parts_;
  auto part = std::make_shared<std::vector<Entry>>();
  sort_entries(entries().subspan(indexed_, visible_ - indexed_), files_, part.get());
  resolve_overlaps(part.get());
  std::vector<Part> parts = parts_;
  while (!parts.empty() && parts.front()->size() <= 2 * part->size()) {
    auto both = std::make_shared<std::vector<Entry>>();
    overlay(*part, *parts.front(), files_, both.get());
    part = std::move(both);
    parts.erase(parts.begin());
  }
  parts.insert(parts.begin(), std::move(part));
  parts_.swap(parts);
  indexed_ = visible_;
  return parts_;
}

std::vector<Entry> Memtable::sorted() const {
  std::vector<Entry> all;
  sort_entries(entries().first(visible_), files_, &all);
  resolve_overlaps(&all);
  return all;
}

std::vector<Entry> Memtable::release() {
  visible_ = indexed_ = 0;
  parts_.clear();
  return std::move(entries_);
}

size_t Memtable::memory_bytes() const {
  size_t bytes = entries_.capacity() * sizeof(Entry) + files_.memory_bytes();
  for (const Part& part : parts_) bytes += part->capacity() * sizeof(Entry);
  return bytes;
}

}  // namespace swale::meta
