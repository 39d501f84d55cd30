// SimpleShard: a Shard for tests, as plain as can be: a list of puts, painted over each other byte range by
// byte range. What was committed lives in a SimpleDisk, which outlives it as a disk does; commits can be made
// to fail.
//
// Threads: as Shard. Limits: tests of a few thousand puts.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "meta/index/shard.h"

namespace swale::meta {

struct SimpleDisk {
  struct Item {
    RequestKey key = {};
    FileId file = {};
    enum class What { kPut, kTruncate, kRemove, kRelocate } what = What::kPut;
    std::vector<Run> runs = {};
    uint64_t size = 0;
    uint64_t generation = 0;
    Relocation relocation = {};
  };
  std::vector<Item> items;
};

class SimpleShard final : public Shard {
 public:
  explicit SimpleShard(std::shared_ptr<SimpleDisk> disk) : disk_(std::move(disk)) {}

  bool fail_next_commit = false;

  Result<uint64_t> put(RequestKey key, std::span<const Put> puts) override {
    SWALE_RETURN_IF_ERROR(health_);
    uint64_t group = durable_;
    for (const Put& each : puts) {
      if (removed(each.file, true)) return gone();
    }
    for (const Put& each : puts) {
      SimpleDisk::Item item{.key = key, .file = each.file, .relocation = {}};
      size_t extent = 0;
      for (size_t i = 0; i < each.runs.size(); ++i) {
        for (; extent < each.run_at[i]; ++extent) item.runs.push_back(run_of(each.extents[extent]));
        item.runs.push_back(each.runs[i]);
      }
      for (; extent < each.extents.size(); ++extent) item.runs.push_back(run_of(each.extents[extent]));
      group = add(std::move(item));
    }
    return group;
  }
  Result<uint64_t> truncate(RequestKey key, const FileId& file, uint64_t size, uint64_t generation) override {
    SWALE_RETURN_IF_ERROR(health_);
    if (removed(file, true)) return gone();
    return add({.key = key,
                .file = file,
                .what = SimpleDisk::Item::What::kTruncate,
                .runs = {},
                .size = size,
                .generation = generation,
                .relocation = {}});
  }
  Result<uint64_t> remove(RequestKey key, const FileId& file, uint64_t generation) override {
    SWALE_RETURN_IF_ERROR(health_);
    return add({.key = key,
                .file = file,
                .what = SimpleDisk::Item::What::kRemove,
                .runs = {},
                .size = 0,
                .generation = generation,
                .relocation = {}});
  }
  Result<uint64_t> relocate(RequestKey key, const Relocation& relocation) override {
    SWALE_RETURN_IF_ERROR(health_);
    return add({.key = key,
                .file = {},
                .what = SimpleDisk::Item::What::kRelocate,
                .runs = {},
                .relocation = relocation});
  }

  uint64_t open_group() const override { return open_; }
  uint64_t durable_group() const override { return durable_; }
  bool accepts() const override { return true; }
  Status health() const override { return health_; }

  std::unique_ptr<Work> next_commit() override {
    if (committing_ || pending_.empty() || !health_.ok()) return nullptr;
    committing_ = true;
    taken_ = std::move(pending_);
    pending_.clear();
    ++open_;
    return std::make_unique<Nothing>(WorkKind::kCommit);
  }
  std::unique_ptr<Work> next_background() override { return nullptr; }
  bool settle() override { return false; }
  Status finish(std::unique_ptr<Work>) override {
    committing_ = false;
    if (std::exchange(fail_next_commit, false)) {
      health_ = error(Code::kIoError, Scope::kNode, "the log of this shard failed (test)");
      return health_;
    }
    for (SimpleDisk::Item& each : taken_) disk_->items.push_back(std::move(each));
    durable_ = open_ - 1;
    return {};
  }
  Status commit() override {
    if (std::unique_ptr<Work> work = next_commit()) return finish(std::move(work));
    return health_;
  }
  Status drain() override { return commit(); }

  Status lookup(std::span<const Range> ranges, size_t pieces_max, Found* out) override {
    *out = {};
    for (const Range& each : ranges) {
      if (removed(each.file, false)) return gone();
      for (const auto& [offset, piece] : painted(each.file, each.offset, each.offset + each.length)) {
        if (out->extents.size() == pieces_max) {
          out->resume = offset;
          return {};
        }
        if (piece.place.log != kHoleLog) out->extents.push_back(piece);
      }
      out->ends.push_back(out->extents.size());
      ++out->answered;
    }
    return {};
  }
  Status lookup_runs(const FileId& file, std::span<const Run> queries, size_t, std::vector<Run>* out,
                     std::vector<size_t>* ends) override {
    if (removed(file, false)) return gone();
    for (const Run& query : queries) {
      for (uint64_t i = 0; i < blocks_of(query); ++i) {
        const Extent block = block_at(query, i);
        for (const auto& [offset, piece] : painted(file, block.offset, block.offset + block.length)) {
          if (piece.place.log != kHoleLog) out->push_back(run_of(piece));
        }
      }
      if (ends != nullptr) ends->push_back(out->size());
    }
    return {};
  }
  FileSize size(const FileId& file) const override {
    FileSize size;
    for (const SimpleDisk::Item& each : disk_->items) {
      if (each.file == file) size.generation = std::max(size.generation, each.generation);
    }
    return size;
  }
  Status scan(const FileId& file, uint64_t from, size_t pieces_max, const Ownership* ownership,
              std::vector<Extent>* out, uint64_t* next) override {
    *next = kOffsetEnd;
    if (removed(file, false)) return gone();
    for (const auto& [offset, piece] : painted(file, from, kOffsetEnd)) {
      if (piece.place.log == kHoleLog) continue;
      for (uint64_t at = offset; at < offset + piece.length;) {
        const auto [begin, end] = ownership->next_owned(file, at);
        if (begin == end || begin >= offset + piece.length) break;
        const uint64_t first = std::max(at, begin), last = std::min(end, offset + piece.length);
        if (out->size() == pieces_max) {
          *next = first;
          return {};
        }
        out->push_back({first, last - first, {piece.place.log, piece.place.address + (first - offset)}});
        at = last;
      }
    }
    return {};
  }
  Status run_table(const FileId& file, size_t runs_max, const Ownership*, std::vector<Run>* out) override {
    // Whole runs if nothing overlaps, else pieces.
    uint64_t bytes = 0, mapped = 0;
    for (const auto& [offset, piece] : painted(file, 0, kOffsetEnd))
      mapped += piece.place.log == kHoleLog ? 0 : piece.length;
    std::vector<Run> runs;
    for (const SimpleDisk::Item& each : disk_->items) {
      if (each.file != file || each.what != SimpleDisk::Item::What::kPut) continue;
      for (const Run& run : each.runs) {
        runs.push_back(run);
        bytes += blocks_of(run) * run.length;
      }
    }
    if (bytes != mapped) {
      runs.clear();
      for (const auto& [offset, piece] : painted(file, 0, kOffsetEnd))
        if (piece.place.log != kHoleLog) runs.push_back(run_of(piece));
    }
    if (runs.size() > runs_max) return error(Code::kResourceExhausted, Scope::kFile, "too many runs");
    *out = std::move(runs);
    return {};
  }
  void list_files(const FileId*, size_t, std::vector<FileId>*) const override {}
  const ShardCounters& counters() const override { return counters_; }
  ShardState state() const override { return {}; }
  void drop_cache() override {}

 private:
  class Nothing final : public Work {
   public:
    using Work::Work;
    void run() noexcept override {}
  };
  using Map = std::map<uint64_t, Extent>;

  static Status gone() { return error(Code::kNotFound, Scope::kFile, "the file was removed"); }
  bool removed(const FileId& file, bool also_soon) const {
    const auto removes = [&](const SimpleDisk::Item& each) {
      return each.file == file && each.what == SimpleDisk::Item::What::kRemove;
    };
    const auto has = [&](const auto& list) { return std::any_of(list.begin(), list.end(), removes); };
    return has(disk_->items) || (also_soon && (has(taken_) || has(pending_)));
  }

  // The group that makes it durable.
  uint64_t add(SimpleDisk::Item item) {
    const auto same = [&](const SimpleDisk::Item& each) {
      return item.key.client != 0 && each.key.client == item.key.client && each.key.number == item.key.number;
    };
    for (const auto* list : {&disk_->items, &taken_, &pending_}) {
      if (!std::any_of(list->begin(), list->end(), same)) continue;
      ++counters_.duplicates;
      return list == &disk_->items ? durable_ : list == &taken_ ? open_ - 1 : open_;
    }
    pending_.push_back(std::move(item));
    return open_;
  }

  static void paint(const Extent& extent, Map* map) {
    const uint64_t begin = extent.offset, end = begin + extent.length;
    auto at = map->lower_bound(begin);
    if (at != map->begin()) {
      auto before = std::prev(at);
      Extent old = before->second;
      if (old.offset + old.length > begin) {
        before->second.length = begin - old.offset;
        if (old.offset + old.length > end) {
          (*map)[end] = {
              end, old.offset + old.length - end, {old.place.log, old.place.address + (end - old.offset)}};
        }
      }
    }
    at = map->lower_bound(begin);
    while (at != map->end() && at->first < end) {
      const Extent old = at->second;
      at = map->erase(at);
      if (old.offset + old.length > end) {
        (*map)[end] = {
            end, old.offset + old.length - end, {old.place.log, old.place.address + (end - old.offset)}};
      }
    }
    (*map)[begin] = extent;
  }

  Map painted(const FileId& file, uint64_t begin, uint64_t end) const {
    Map map;
    uint64_t generation = 0;
    for (const SimpleDisk::Item& each : disk_->items) {
      using What = SimpleDisk::Item::What;
      if (each.what == What::kRelocate) {
        for (auto& [offset, piece] : map) {
          const Relocation& move = each.relocation;
          if (piece.place.log == move.from && piece.place.address >= move.begin &&
              piece.place.address < move.end)
            piece.place = {move.to.log, piece.place.address - move.begin + move.to.address};
        }
      }
      if (each.file != file) continue;
      if (each.what == What::kPut) {
        for (const Run& run : each.runs) {
          std::vector<Run> parts;
          clip(run, begin, end, &parts);
          for (const Run& part : parts)
            for (uint64_t i = 0; i < blocks_of(part); ++i) paint(block_at(part, i), &map);
        }
      } else if (each.generation > generation) {
        generation = each.generation;
        if (each.size < kOffsetEnd) paint({each.size, kOffsetEnd - each.size, {kHoleLog, 0}}, &map);
      }
    }
    Map clipped;
    for (const auto& [offset, piece] : map) {
      if (offset < end && offset + piece.length > begin)
        clipped[offset] = {offset, std::min(piece.length, end - offset), piece.place};
    }
    if (!clipped.empty() && clipped.begin()->first < begin) {  // the hole of a truncate
      Extent first = clipped.begin()->second;
      clipped.erase(clipped.begin());
      const uint64_t cut = begin - first.offset;
      clipped[begin] = {begin, first.length - cut, {first.place.log, first.place.address + cut}};
    }
    return clipped;
  }

  const std::shared_ptr<SimpleDisk> disk_;
  std::vector<SimpleDisk::Item> pending_, taken_;
  uint64_t open_ = 1;
  uint64_t durable_ = 0;
  bool committing_ = false;
  Status health_;
  ShardCounters counters_;
};

}  // namespace swale::meta
