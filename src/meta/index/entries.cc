#include "meta/index/entries.h"

#include <algorithm>
#include <array>
#include <bit>
#include <new>
#include <numeric>
#include <utility>

namespace swale::meta {
namespace {

constexpr uint32_t kDigitBits = 11;
constexpr size_t kDigits = size_t{1} << kDigitBits;

// One pass by the digit at `shift`; false if all have the same one.
bool radix_pass(std::vector<SortKey>& keys, std::vector<SortKey>& other, uint32_t shift) {
  std::array<uint32_t, kDigits> starts{};
  for (const SortKey& key : keys) ++starts[key.key >> shift & (kDigits - 1)];
  if (starts[keys[0].key >> shift & (kDigits - 1)] == keys.size()) return false;
  uint32_t sum = 0;
  for (uint32_t& start : starts) sum += std::exchange(start, sum);
  for (const SortKey& key : keys) other[starts[key.key >> shift & (kDigits - 1)]++] = key;
  keys.swap(other);
  return true;
}

// The place of each file of the table in the order of ids.
std::vector<uint32_t> ranks_of(const FileTable& files) {
  std::vector<uint32_t> order(files.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return files.id(a) < files.id(b); });
  std::vector<uint32_t> ranks(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) ranks[order[i]] = i;
  return ranks;
}

// Pieces of one file that the sweep has met and that reach beyond its position: the highest sequence on top.
class Sweep {
 public:
  explicit Sweep(std::vector<Entry>* out) : out_(out) {}

  void add(const Entry& entry) {
    emit_until(entry.offset);
    active_.push_back(entry);
    std::push_heap(active_.begin(), active_.end(), lower);
  }
  void finish() { emit_until(~uint64_t{0}), position_ = 0; }

 private:
  static bool lower(const Entry& a, const Entry& b) { return a.sequence < b.sequence; }

  void emit_until(uint64_t end) {
    while (!active_.empty()) {
      const Entry& top = active_.front();
      position_ = std::max(position_, top.offset);
      if (top.end() > position_) {
        const uint64_t stop = std::min(top.end(), end);
        if (stop > position_) emit(top, position_, stop);
        position_ = std::max(position_, stop);
        if (stop == end) break;
      }
      std::pop_heap(active_.begin(), active_.end(), lower);
      active_.pop_back();
    }
    if (active_.empty()) position_ = end;
  }
  void emit(const Entry& from, uint64_t begin, uint64_t end) {
    Entry piece = from;
    piece.drop_front(begin - from.offset);
    piece.length = end - begin;
    if (!out_->empty()) {  // what was cut only because another entry began
      Entry& last = out_->back();
      if (last.file == piece.file && last.end() == begin && last.sequence == piece.sequence &&
          last.log == piece.log && last.address + last.length == piece.address) {
        last.length += piece.length;
        return;
      }
    }
    out_->push_back(piece);
  }

  std::vector<Entry>* const out_;
  std::vector<Entry> active_;
  uint64_t position_ = 0;
};

}  // namespace

void radix_sort(std::vector<SortKey>* keys) {
  if (keys->size() < 2) return;
  uint64_t used = 0;
  for (const SortKey& key : *keys) used |= key.key ^ (*keys)[0].key;
  if (used == 0) return;
  std::vector<SortKey> other(keys->size());
  const auto first = static_cast<uint32_t>(std::countr_zero(used));
  const auto end = static_cast<uint32_t>(std::bit_width(used));
  for (uint32_t shift = first; shift < end; shift += kDigitBits) radix_pass(*keys, other, shift);
}

uint32_t FileTable::index_of(const FileId& id) {
  if (free_.empty() && !ids_.empty() && ids_.back() == id) return static_cast<uint32_t>(ids_.size() - 1);
  const uint32_t next = free_.empty() ? static_cast<uint32_t>(ids_.size()) : free_.back();
  const auto [at, added] = numbers_.try_emplace(id, next);
  if (added && next < ids_.size()) {
    free_.pop_back();
    ids_[next] = id;
  } else if (added) {
    try {
      ids_.push_back(id);
    } catch (...) {
      numbers_.erase(at);
      throw;
    }
  }
  return at->second;
}

// Without memory for the list the number is given to nobody any more.
void FileTable::free(uint32_t index) noexcept {
  numbers_.erase(ids_[index]);
  try {
    free_.push_back(index);
  } catch (const std::bad_alloc&) {
  }
  ids_[index] = {};
}

uint32_t FileTable::find(const FileId& id) const {
  const auto at = numbers_.find(id);
  return at == numbers_.end() ? kNone : at->second;
}

void sort_entries(std::span<const Entry> entries, const FileTable& files, std::vector<Entry>* out) {
  if (entries.empty()) return;
  std::vector<SortKey> keys(entries.size());
  uint64_t least = ~uint64_t{0};
  uint32_t file_bits = 0;
  for (const Entry& entry : entries) least = std::min(least, entry.offset);
  for (size_t i = 0; i < entries.size(); ++i) {
    keys[i] = {entries[i].offset - least, static_cast<uint32_t>(i)};
    file_bits |= entries[i].file ^ entries[0].file;
  }
  radix_sort(&keys);
  if (file_bits != 0) {
    const std::vector<uint32_t> ranks = ranks_of(files);
    for (SortKey& key : keys) key.key = ranks[entries[key.position].file];
    radix_sort(&keys);
  }
  out->reserve(out->size() + entries.size());
  for (const SortKey& key : keys) out->push_back(entries[key.position]);
}

void resolve_overlaps(std::vector<Entry>* sorted) {
  const auto overlaps = [](const Entry& a, const Entry& b) { return a.file == b.file && a.end() > b.offset; };
  const auto first = std::adjacent_find(sorted->begin(), sorted->end(), overlaps);
  if (first == sorted->end()) return;
  std::vector<Entry> out(sorted->begin(), first);
  out.reserve(sorted->size());
  Sweep sweep(&out);
  for (auto at = first; at != sorted->end(); ++at) {
    if (at != first && at[-1].file != at->file) sweep.finish();
    sweep.add(*at);
  }
  sweep.finish();
  sorted->swap(out);
}

void overlay(std::span<const Entry> newer, std::span<const Entry> older, const FileTable& files,
             std::vector<Entry>* out) {
  out->reserve(out->size() + newer.size() + older.size());
  size_t n = 0, o = 0;
  if (!newer.empty() && !older.empty()) {
    Entry old = older[0];
    const auto next_old = [&] {
      if (++o < older.size()) old = older[o];
    };
    while (n < newer.size() && o < older.size()) {
      const Entry& fresh = newer[n];
      if (old.file != fresh.file) {
        if (files.id(old.file) < files.id(fresh.file)) {
          out->push_back(old);
          next_old();
        } else {
          out->push_back(fresh), ++n;
        }
      } else if (old.end() <= fresh.offset) {
        out->push_back(old);
        next_old();
      } else if (fresh.end() <= old.offset) {
        out->push_back(fresh), ++n;
      } else {
        if (old.offset < fresh.offset) {
          out->push_back(old);
          out->back().length = fresh.offset - old.offset;
        }
        if (old.end() > fresh.end()) {
          old.drop_front(fresh.end() - old.offset);
        } else {
          next_old();
        }
      }
    }
    if (o < older.size()) {
      out->push_back(old);
      ++o;
    }
  }
  out->insert(out->end(), newer.begin() + static_cast<ptrdiff_t>(n), newer.end());
  out->insert(out->end(), older.begin() + static_cast<ptrdiff_t>(o), older.end());
}

void coalesce(std::vector<Entry>* sorted) {
  if (sorted->size() < 2) return;
  size_t kept = 0;
  for (size_t i = 1; i < sorted->size(); ++i) {
    Entry& last = (*sorted)[kept];
    const Entry& entry = (*sorted)[i];
    if (last.end() == entry.offset && last.file == entry.file && last.log == entry.log &&
        last.address + last.length == entry.address && last.sequence == entry.sequence) {
      last.length += entry.length;
    } else if (++kept != i) {
      (*sorted)[kept] = entry;
    }
  }
  sorted->resize(kept + 1);
}

}  // namespace swale::meta
