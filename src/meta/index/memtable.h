// Memtable: the write buffer: entries in order of arrival, sorted when somebody asks or when it is flushed.
//
// Appending costs a copy. A lookup first sorts what has become visible since the last one, into sorted parts
// whose sizes double, so that lookups between puts cost O(log n) an entry in all; a buffer that nobody reads
// is sorted once.
// Threads: one at a time. A frozen buffer (nothing is appended or shown any more) is flushed by another
// thread from a copy of its parts.
// Limits: `capacity` entries are allocated by and by; append goes beyond it if told to (the caller bounds
// groups).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "meta/index/entries.h"

namespace swale::meta {

class Memtable {
 public:
  // `storage`: the memory of an older buffer, to be used again.
  explicit Memtable(size_t capacity, std::vector<Entry> storage = {})
      : capacity_(capacity), entries_(std::move(storage)) {
    entries_.clear();
  }

  FileTable& files() { return files_; }
  const FileTable& files() const { return files_; }

  void append(std::span<const Extent> extents, uint32_t file, Sequence first);
  void append(const Entry& entry) { entries_.push_back(entry); }
  void reserve(size_t more);
  // Everything appended so far may be looked up.
  void show() { visible_ = entries_.size(); }
  void show_until(size_t end) { visible_ = end; }

  size_t size() const { return entries_.size(); }
  size_t visible() const { return visible_; }
  bool full() const { return entries_.size() >= capacity_; }
  std::span<const Entry> entries() const { return entries_; }
  // Entries from `from` on leave again: of a put that failed.
  void shrink(size_t from) { entries_.resize(from); }
  Sequence sequence_min() const { return entries_.empty() ? 0 : entries_.front().sequence; }
  Sequence sequence_max() const { return entries_.empty() ? 0 : entries_.back().sequence; }

  using Part = std::shared_ptr<const std::vector<Entry>>;
  // Sorted, disjoint in themselves, newest first.
  const std::vector<Part>& parts();
  // All visible entries, sorted and disjoint. For a flush, on any thread while frozen: looks at nothing that
  // parts() changes.
  std::vector<Entry> sorted() const;

  // Gives its memory away and is empty.
  std::vector<Entry> release();

  size_t memory_bytes() const;

 private:
  const size_t capacity_;
  std::vector<Entry> entries_;
  FileTable files_;
  size_t visible_ = 0;
  size_t indexed_ = 0;
  std::vector<Part> parts_;
};

}  // namespace swale::meta
