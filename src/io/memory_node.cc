#include "io/memory_node.h"

#include <algorithm>
#include <cstring>

namespace swale::io {
namespace {

constexpr uint64_t kSectorBytes = MemoryDevice::kSectorBytes;

void apply_to(MemoryDirectory::Entries* entries, const MemoryDirectory::Operation& operation) {
  for (const auto& [name, node] : operation) {
    if (node) {
      (*entries)[name] = node;
    } else {
      entries->erase(name);
    }
  }
}

}  // namespace

size_t MemoryFileContent::read(uint64_t offset, MutableBytes out) const {
  if (offset >= bytes_.size()) return 0;
  const size_t got = std::min<uint64_t>(out.size(), bytes_.size() - offset);
  if (got > 0) std::memcpy(out.data(), bytes_.data() + offset, got);
  return got;
}

void MemoryFileContent::write(uint64_t offset, Bytes data) {
  if (data.empty()) return;
  // A gap is filled with zeros, which count as written.
  save_pages(std::min<uint64_t>(offset, bytes_.size()), offset + data.size());
  changes_.push_back({offset, std::string(data)});
  put(offset, data);
}

void MemoryFileContent::put(uint64_t offset, Bytes data) {
  const uint64_t end = offset + data.size();
  if (bytes_.size() < end) bytes_.resize(end);
  std::memcpy(bytes_.data() + offset, data.data(), data.size());
}

void MemoryFileContent::truncate(uint64_t size) {
  save_pages(std::min<uint64_t>(size, bytes_.size()), std::max<uint64_t>(size, bytes_.size()));
  changes_.push_back({size, {}});
  bytes_.resize(size);
}

void MemoryFileContent::sync() {
  unsynced_.clear();
  changes_.clear();
  synced_size_ = bytes_.size();
}

// Saves the content of the pages of [begin, end) that are about to change for the first time since the
// sync.
void MemoryFileContent::save_pages(uint64_t begin, uint64_t end) {
  for (uint64_t page = begin / MemoryDevice::kPageBytes; page * MemoryDevice::kPageBytes < end; ++page) {
    const uint64_t start = std::min<uint64_t>(page * MemoryDevice::kPageBytes, bytes_.size());
    unsynced_.try_emplace(page, bytes_, start, MemoryDevice::kPageBytes);
  }
}

uint64_t MemoryFileContent::size_after_tear(Rng& rng) const {
  const uint64_t current = bytes_.size();
  switch (rng.below(3)) {
    case 0:
      return synced_size_;
    case 1:
      return current;
    default:
      if (current <= synced_size_) return current;
      return std::max(synced_size_, (synced_size_ + rng.below(current - synced_size_)) /
                                        MemoryDevice::kPageBytes * MemoryDevice::kPageBytes);
  }
}

void MemoryFileContent::go_back_to_sync() {
  bytes_.resize(round_up(std::max<uint64_t>(bytes_.size(), synced_size_), MemoryDevice::kPageBytes));
  for (const auto& [page, old] : unsynced_) bytes_.replace(page * MemoryDevice::kPageBytes, old.size(), old);
  bytes_.resize(synced_size_);
}

void MemoryFileContent::crash(Rng& rng, CrashMode mode) {
  if (mode == CrashMode::kReorder) {
    go_back_to_sync();
    for (const Change& change : changes_) {
      if (rng.chance(1, 2)) continue;
      change.bytes.empty() ? bytes_.resize(change.offset) : put(change.offset, change.bytes);
    }
    return sync();
  }
  const bool drop_all = mode == CrashMode::kDropAll;
  const uint64_t size = drop_all ? synced_size_ : size_after_tear(rng);
  // beyond the last: none
  uint64_t torn = drop_all || unsynced_.empty() ? 0 : rng.below(2 * unsynced_.size());
  // Space for all pages, old and new; the resize at the end cuts off what lies beyond the new size.
  bytes_.resize(round_up(std::max<uint64_t>(bytes_.size(), synced_size_), MemoryDevice::kPageBytes));
  for (auto& [page, old] : unsynced_) {
    uint64_t kept_bytes = !drop_all && rng.chance(1, 2) ? MemoryDevice::kPageBytes : 0;
    if (!drop_all && torn-- == 0)
      kept_bytes = rng.below(MemoryDevice::kPageBytes / kSectorBytes) * kSectorBytes;
    old.resize(MemoryDevice::kPageBytes);
    if (page * MemoryDevice::kPageBytes < bytes_.size())
      bytes_.replace(page * MemoryDevice::kPageBytes + kept_bytes, MemoryDevice::kPageBytes - kept_bytes, old,
                     kept_bytes);
  }
  bytes_.resize(size);
  sync();
}

MemoryNodePtr MemoryDirectory::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second;
}

void MemoryDirectory::apply(Operation operation) {
  apply_to(&entries_, operation);
  journal_.push_back(std::move(operation));
}

void MemoryDirectory::sync() {
  synced_entries_ = entries_;
  journal_.clear();
}

void MemoryDirectory::crash(Rng& rng, CrashMode mode) {
  entries_ = synced_entries_;
  if (mode == CrashMode::kReorder) {
    for (const Operation& operation : journal_) {
      if (rng.chance(1, 2)) apply_to(&entries_, operation);
    }
    return sync();
  }
  const uint64_t kept = mode == CrashMode::kDropAll ? 0 : rng.below(journal_.size() + 1);
  for (uint64_t i = 0; i < kept; ++i) apply_to(&entries_, journal_[i]);
  sync();
}

}  // namespace swale::io
