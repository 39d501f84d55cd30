#include "meta/index/removed_files.h"

#include <algorithm>
#include <iterator>

namespace swale::meta {

Status was_removed(const FileId& file) {
  return error(Code::kNotFound, Scope::kFile, "file {:016x}{:016x} was removed", file.high, file.low);
}

bool contains(std::span<const RemovedRange> ranges, const FileId& file) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), file, [](const FileId& id, const RemovedRange& range) {
        return id < FileId{range.high, range.first};
      });
  return after != ranges.begin() && std::prev(after)->high == file.high && file.low <= std::prev(after)->last;
}

bool RemovedFiles::contains(const FileId& file) const {
  const auto after = ranges_.upper_bound(file);
  if (after == ranges_.begin()) return false;
  const auto& [first, last] = *std::prev(after);
  return first.high == file.high && file.low <= last;
}

// The only allocation comes first: what follows joins neighbours.
void RemovedFiles::add(const RemovedRange& range) {
  const FileId first{range.high, range.first};
  const auto [own, added] = ranges_.try_emplace(first, range.last);
  if (!added) own->second = std::max(own->second, range.last);
  auto at = own;
  if (at != ranges_.begin()) {
    const auto before = std::prev(at);
    if (before->first.high == range.high && range.first - 1 <= before->second) {
      before->second = std::max(before->second, at->second);
      ranges_.erase(at);
      at = before;
    }
  }
  for (auto next = std::next(at);
       next != ranges_.end() && next->first.high == range.high && next->first.low - 1 <= at->second;) {
    at->second = std::max(at->second, next->second);
    next = ranges_.erase(next);
  }
}

std::vector<RemovedRange> RemovedFiles::list() const {
  std::vector<RemovedRange> all;
  all.reserve(ranges_.size());
  for (const auto& [first, last] : ranges_) all.push_back({first.high, first.low, last});
  return all;
}

}  // namespace swale::meta
