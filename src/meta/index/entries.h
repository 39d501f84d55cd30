// Entries: irregular segments as the shard handles them, in arrays: sorting, and what is left of older ones
// under newer.
//
// Threads: a FileTable belongs to one thread at a time; the functions are pure.
// Errors: std::bad_alloc.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "meta/index/types.h"

namespace swale::meta {

struct Entry {
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t address = 0;
  Sequence sequence = 0;
  LogId log = 0;
  uint32_t file = 0;  // an index of the FileTable, or of the block, that it came with

  uint64_t end() const { return offset + length; }
  void drop_front(uint64_t bytes) { offset += bytes, address += bytes, length -= bytes; }
  friend bool operator==(const Entry&, const Entry&) = default;
};
static_assert(sizeof(Entry) == 40);

// Small numbers for file ids, given in order of appearance. A number that was freed is given again.
class FileTable {
 public:
  uint32_t index_of(const FileId& id);  // adds it if it is new
  static constexpr uint32_t kNone = ~uint32_t{0};
  uint32_t find(const FileId& id) const;
  const FileId& id(uint32_t index) const { return ids_[index]; }
  void free(uint32_t index) noexcept;
  size_t size() const { return ids_.size(); }       // numbers are below it
  size_t files() const { return numbers_.size(); }  // that have one
  size_t memory_bytes() const {
    return ids_.capacity() * sizeof(FileId) + free_.capacity() * sizeof(uint32_t) + numbers_.size() * 48 +
           numbers_.bucket_count() * sizeof(void*);
  }

 private:
  std::vector<FileId> ids_;
  std::vector<uint32_t> free_;
  std::unordered_map<FileId, uint32_t, FileIdHash> numbers_;
};

// The place of an entry among others: by the id of its file, then by offset.
inline bool precedes(const FileTable& files, const Entry& a, const Entry& b) {
  if (a.file == b.file) return a.offset < b.offset;
  return files.id(a.file) < files.id(b.file);
}

struct SortKey {
  uint64_t key;
  uint32_t position;
};
// Stable, by key, in digits of 11 bits; bits that no key has cost nothing.
void radix_sort(std::vector<SortKey>* keys);

// Appends `entries` in that order; entries of equal place keep theirs.
void sort_entries(std::span<const Entry> entries, const FileTable& files, std::vector<Entry>* out);

// Sorted entries that may overlap become disjoint ones: of overlapping ones the highest sequence stays.
void resolve_overlaps(std::vector<Entry>* sorted);

// Two sorted arrays of disjoint entries become one: where they overlap, the newer one stays. Appends.
void overlay(std::span<const Entry> newer, std::span<const Entry> older, const FileTable& files,
             std::vector<Entry>* out);

// Joins neighbours that continue each other in the file and in the log and have the same sequence.
void coalesce(std::vector<Entry>* sorted);

}  // namespace swale::meta
