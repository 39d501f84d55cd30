// RemovedFiles: the ids of files that were removed, as ranges. Ids are drawn one after the other (types.h)
// and never again, so the ranges of one drawing server are at most one more than its files that live: what
// was removed costs nothing for ever.
//
//   80,000 files made and removed: one range of 24 bytes.     every second one removed: a range for each that
//                                                             lives
//
// Threads: one at a time. Errors: std::bad_alloc from add: nothing has changed.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/status.h"
#include "meta/index/types.h"

namespace swale::meta {

Status was_removed(const FileId& file);  // kNotFound

// Ids {high, first} to {high, last}, both included.
struct RemovedRange {
  uint64_t high = 0, first = 0, last = 0;
  friend bool operator==(const RemovedRange&, const RemovedRange&) = default;
};
// Ranges ascend. Whether one of them has the id.
bool contains(std::span<const RemovedRange> ranges, const FileId& file);

class RemovedFiles {
 public:
  bool contains(const FileId& file) const;
  void add(const FileId& file) { add(RemovedRange{file.high, file.low, file.low}); }
  void add(const RemovedRange& range);
  size_t ranges() const { return ranges_.size(); }
  std::vector<RemovedRange> list() const;

 private:
  using Ranges = std::map<FileId, uint64_t>;  // first id -> last `low`
  Ranges ranges_;
};

}  // namespace swale::meta
