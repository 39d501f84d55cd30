#include "meta/index/lookup.h"

#include <algorithm>
#include <numeric>

#include "meta/index/cluster.h"
#include "meta/index/lattice.h"
#include "meta/index/relocation.h"

namespace swale::meta {
namespace {

constexpr size_t kNextRows = 16;     // looked at for one byte
constexpr size_t kQueryRows = 1024;  // looked at for a query of a run
constexpr uint32_t kClusterBlocksMax = kSortedFileBlocks;

}  // namespace

Lookup::State Lookup::judge(const Range& range, const Entry& row, Answer* answer) const {
  if (row.end() <= range.offset || row.offset >= range.offset + range.length) return State::kOpen;
  if (row.offset > range.offset || row.end() < range.offset + range.length) return State::kGather;
  if (row.log == kHoleLog) return State::kNothing;
  answer->extent = {range.offset, range.length, {row.log, row.address + (range.offset - row.offset)}};
  answer->sequence = row.sequence;
  return State::kAnswered;
}

Lookup::State Lookup::judge_at(size_t i, const Range& range, const Entry& row) {
  if (answers_[i].sequence == 0) return judge(range, row, &answers_[i]);
  Answer unused;
  const State state = judge(range, row, &unused);
  if (state == State::kOpen) return state;
  return state != State::kGather && row.sequence < answers_[i].sequence ? State::kOpen : State::kGather;
}

// Ranges that one run covers. If extents newer than the run exist somewhere in the file, the layers have the
// last word.
void Lookup::answer_from_runs(std::span<const Range> ranges) {
  FileId id;
  uint32_t file = FileTable::kNone;
  bool known = false;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    if (!known || range.file != id) {
      id = range.file;
      known = true;
      file = catalog_.find(id);
    }
    if (file == FileTable::kNone || range.length == 0) {
      states_[i] = State::kNothing;
      continue;
    }
    const FileState& state = catalog_.state(file);
    if (!state.runs) continue;
    runs_.clear();
    state.runs->find(range.offset, range.offset + range.length, &runs_);
    if (runs_.empty()) {
      if (state.irregular_max == 0) states_[i] = State::kNothing;
      continue;
    }
    const StoredRun* newest = &runs_[0];
    for (const StoredRun& run : runs_) {
      if (run.sequence > newest->sequence) newest = &run;
    }
    states_[i] = State::kGather;
    const uint64_t block = first_block_after(newest->run, range.offset);
    if (block >= blocks_of(newest->run)) continue;
    const Extent piece = block_at(newest->run, block);
    const Entry row{piece.offset, piece.length, piece.place.address, newest->sequence, piece.place.log, 0};
    if (judge(range, row, &answers_[i]) != State::kAnswered) continue;
    states_[i] = newest->sequence > state.irregular_max ? State::kAnswered : State::kOpen;
  }
}

void Lookup::answer_from_rows(std::span<const Range> ranges, const LayerRef& layer) {
  const std::vector<Entry>& rows = *layer.rows;
  const auto before = [&](const Entry& a, const Entry& b) { return precedes(*layer.files, a, b); };
  size_t at = 0;
  FileId id;
  uint32_t file = FileTable::kNone;
  bool known = false;
  for (const uint32_t i : order_) {
    if (states_[i] != State::kOpen) continue;
    const Range& range = ranges[i];
    if (!known || range.file != id) {
      id = range.file;
      known = true;
      file = layer.files->find(id);
    }
    if (file == FileTable::kNone) continue;
    const Entry key{range.offset, 0, 0, 0, 0, file};
    // Gallops: the ranges ascend.
    size_t step = 1;
    while (at + step < rows.size() && !before(key, rows[at + step])) step *= 2;
    const auto begin = rows.begin() + static_cast<ptrdiff_t>(at);
    const auto end = rows.begin() + static_cast<ptrdiff_t>(std::min(at + step, rows.size()));
    const auto after = static_cast<size_t>(std::upper_bound(begin, end, key, before) - rows.begin());
    at = after == 0 ? 0 : after - 1;
    State state = after > 0 && rows[at].file == file ? judge_at(i, range, rows[at]) : State::kOpen;
    if (state == State::kOpen && after < rows.size() && rows[after].file == file)
      state = judge_at(i, range, rows[after]);
    states_[i] = state;
  }
}

Status Lookup::answer_from_table(std::span<const Range> ranges, TableCursor* cursor) {
  for (const uint32_t i : order_) {
    if (states_[i] != State::kOpen) continue;
    const Range& range = ranges[i];
    SWALE_RETURN_IF_ERROR(cursor->seek(range.file, range.offset));
    if (cursor->at_end()) continue;
    Entry row = cursor->entry();
    const bool same = cursor->file() == range.file;
    State state = same ? judge_at(i, range, row) : State::kOpen;
    if (state == State::kOpen && (!same || row.offset <= range.offset)) {
      // Nothing of it yet: the row after it may begin inside of the range.
      SWALE_RETURN_IF_ERROR(cursor->next());
      if (!cursor->at_end() && cursor->file() == range.file) {
        row = cursor->entry();
        state = judge_at(i, range, row);
      }
    }
    states_[i] = state;
  }
  return {};
}

// The blocks that open ranges want and that are not in memory, read in clusters.
Status Lookup::read_clusters(std::span<const Range> ranges, const Table& table) {
  size_t set = 0;
  std::vector<std::pair<size_t, std::unique_ptr<ClusterQueue>>> queues;
  for (const uint32_t i : order_) {
    if (states_[i] != State::kOpen) continue;
    const Key key{ranges[i].file, ranges[i].offset};
    while (set + 1 < table.sets.size() && table.sets[set + 1]->index().first(0) <= key) ++set;
    auto* const file = dynamic_cast<SortedFile*>(table.sets[set].get());
    if (file == nullptr) return {};  // a tree
    size_t block = file->index().find(key);
    if (block == file->blocks()) block = 0;
    if (file->cached(block)) continue;
    if (queues.empty() || queues.back().first != set) {
      queues.emplace_back(set, std::make_unique<ClusterQueue>(static_cast<uint32_t>(file->blocks()),
                                                              options_.locality_percent, kClusterBlocksMax));
    }
    queues.back().second->add(static_cast<uint32_t>(block));
  }
  // No more than the cache holds: what is left is read when it is needed.
  size_t blocks_left = cache_frames_ / 2;
  for (auto& [number, queue] : queues) {
    auto& file = static_cast<SortedFile&>(*table.sets[number]);
    while (!queue->empty()) {
      const Region region = queue->take();
      if (region.blocks() > blocks_left) return {};
      blocks_left -= region.blocks();
      SWALE_RETURN_IF_ERROR(file.fetch(region.first, region.blocks()));
    }
  }
  return {};
}

// By file and offset. Ranges of one file are sorted by digits, which is what large batches have.
void Lookup::sort_order(std::span<const Range> ranges) {
  const auto before = [&](uint32_t a, uint32_t b) {
    if (ranges[a].file != ranges[b].file) return ranges[a].file < ranges[b].file;
    return ranges[a].offset < ranges[b].offset;
  };
  if (std::is_sorted(order_.begin(), order_.end(), before)) return;
  const FileId file = ranges[order_[0]].file;
  if (!std::all_of(order_.begin(), order_.end(), [&](uint32_t i) { return ranges[i].file == file; })) {
    std::sort(order_.begin(), order_.end(), before);
    return;
  }
  keys_.clear();
  for (const uint32_t i : order_) keys_.push_back({ranges[i].offset, i});
  radix_sort(&keys_);
  for (size_t i = 0; i < keys_.size(); ++i) order_[i] = keys_[i].position;
}

Status Lookup::answer_from_layers(std::span<const Range> ranges) {
  order_.clear();
  for (uint32_t i = 0; i < ranges.size(); ++i) {
    if (states_[i] == State::kOpen) order_.push_back(i);
  }
  if (order_.empty()) return {};
  sort_order(ranges);
  size_t cursor = 0;
  for (const auto& layer : layers_) {
    if (layer.rows != nullptr) {
      answer_from_rows(ranges, layer);
      continue;
    }
    TableCursor& at = cursors_[cursor++];
    if (layer.table->sets.empty()) continue;
    if (options_.cluster_reads) SWALE_RETURN_IF_ERROR(read_clusters(ranges, *layer.table));
    SWALE_RETURN_IF_ERROR(answer_from_table(ranges, &at));
  }
  for (const uint32_t i : order_) {
    if (states_[i] == State::kOpen)
      states_[i] = answers_[i].sequence == 0 ? State::kNothing : State::kAnswered;
  }
  return {};
}

Status Lookup::run(std::span<const Range> ranges, size_t pieces_max, Found* out) {
  out->extents.clear();
  out->ends.clear();
  out->answered = 0;
  out->resume.reset();
  states_.assign(ranges.size(), State::kOpen);
  answers_.assign(ranges.size(), Answer());
  answer_from_runs(ranges);
  SWALE_RETURN_IF_ERROR(answer_from_layers(ranges));
  out->ends.reserve(ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    const size_t first = out->extents.size();
    if (states_[i] != State::kNothing && first >= pieces_max) {
      out->resume = range.offset;
      return {};
    }
    if (states_[i] == State::kAnswered) {
      const Answer& answer = answers_[i];
      if (catalog_.relocations().empty()) {
        out->extents.push_back(answer.extent);
      } else {
        states_[i] = State::kGather;
      }
    }
    if (states_[i] == State::kGather) {
      const uint64_t end = range.offset + range.length;
      SWALE_ASSIGN_OR_RETURN(const uint64_t stop,
                             gather(range.file, range.offset, end, first, pieces_max, &out->extents));
      if (stop < end) {
        out->resume = stop;
        out->ends.push_back(out->extents.size());
        return {};
      }
    }
    out->ends.push_back(out->extents.size());
    out->answered = i + 1;
  }
  return {};
}

// Up to rows_max rows of one layer from `begin` on. *stop becomes less if there are more.
Status Lookup::rows_between(const FileId& file, uint64_t begin, uint64_t end, size_t rows_max,
                            const LayerRef& layer, TableCursor* cursor, std::vector<Entry>* rows,
                            uint64_t* stop) const {
  size_t count = 0;
  const auto add = [&](const Entry& row) {
    if (++count > rows_max) {
      *stop = std::min(*stop, row.offset);
      return false;
    }
    rows->push_back(row);
    rows->back().file = 0;
    return true;
  };
  if (layer.rows != nullptr) {
    const uint32_t number = layer.files->find(file);
    if (number == FileTable::kNone) return {};
    const Entry key{begin, 0, 0, 0, 0, number};
    auto at = std::upper_bound(layer.rows->begin(), layer.rows->end(), key,
                               [&](const Entry& a, const Entry& b) { return precedes(*layer.files, a, b); });
    if (at != layer.rows->begin() && at[-1].file == number && at[-1].end() > begin) --at;
    for (; at != layer.rows->end() && at->file == number && at->offset < end; ++at) {
      if (!add(*at)) break;
    }
    return {};
  }
  SWALE_RETURN_IF_ERROR(cursor->seek(file, begin));
  while (!cursor->at_end()) {
    const FileId at_file = cursor->file();
    const Entry row = cursor->entry();
    if (at_file > file || (at_file == file && row.offset >= end)) break;
    if (at_file == file && row.end() > begin && !add(row)) break;
    SWALE_RETURN_IF_ERROR(cursor->next());
  }
  return {};
}

void Lookup::runs_between(uint32_t file, uint64_t begin, uint64_t end, size_t rows_max,
                          std::vector<Entry>* rows, uint64_t* stop) {
  const FileState& state = catalog_.state(file);
  if (!state.runs) return;
  runs_.clear();
  state.runs->find(begin, end, &runs_);
  const size_t each = std::max<size_t>(16, rows_max / (runs_.size() + 1));
  for (const StoredRun& stored : runs_) {
    const uint64_t blocks = blocks_of(stored.run);
    size_t count = 0;
    for (uint64_t i = first_block_after(stored.run, begin); i < blocks; ++i) {
      const Extent piece = block_at(stored.run, i);
      if (piece.offset >= end) break;
      if (++count > each) {
        *stop = std::min(*stop, piece.offset);
        break;
      }
      rows->push_back({piece.offset, piece.length, piece.place.address, stored.sequence, piece.place.log, 0});
    }
  }
}

Result<Sequence> Lookup::newest_extent(const FileId& file, const Run& query) {
  rows_.clear();
  const uint64_t end = end_of(query);
  uint64_t stop = end;
  size_t cursor = 0;
  for (const auto& layer : layers_) {
    TableCursor* const at = layer.table != nullptr ? &cursors_[cursor++] : nullptr;
    SWALE_RETURN_IF_ERROR(rows_between(file, query.offset, end, kQueryRows, layer, at, &rows_, &stop));
    if (stop < end) return ~Sequence{0};
  }
  Sequence newest = 0;
  for (const Entry& row : rows_) {
    if (row.sequence > newest && touches(query, row.offset, row.end())) newest = row.sequence;
  }
  return newest;
}

Result<uint64_t> Lookup::gather(const FileId& file, uint64_t begin, uint64_t end, size_t first,
                                size_t pieces_max, std::vector<Extent>* out, size_t rows_max) {
  const uint32_t number = catalog_.find(file);
  if (number == FileTable::kNone) return end;
  FileTable one;
  one.index_of(file);
  while (begin < end) {
    rows_.clear();
    uint64_t stop = end;  // everything before it has been gathered
    size_t cursor = 0;
    for (const auto& layer : layers_) {
      TableCursor* const at = layer.table != nullptr ? &cursors_[cursor++] : nullptr;
      SWALE_RETURN_IF_ERROR(rows_between(file, begin, end, rows_max, layer, at, &rows_, &stop));
    }
    runs_between(number, begin, end, rows_max, &rows_, &stop);
    std::vector<Entry> sorted;
    sort_entries(rows_, one, &sorted);
    resolve_overlaps(&sorted);
    for (Entry row : sorted) {
      if (row.offset >= stop) break;
      if (row.end() <= begin) continue;
      if (row.offset < begin) row.drop_front(begin - row.offset);
      row.length = std::min(row.length, stop - row.offset);
      if (row.log == kHoleLog) continue;
      while (row.length > 0) {
        if (out->size() >= pieces_max && out->size() > first) return row.offset;
        uint64_t whole = 0;
        const Place place =
            relocated(catalog_.relocations(), {row.log, row.address}, row.length, row.sequence, &whole);
        append_joined({row.offset, whole, place}, first, out);
        row.drop_front(whole);
      }
    }
    begin = stop;
  }
  return end;
}

// In windows that double: a byte at 2^62 costs some 50 looks, and a near one no look at what stands far away.
Result<uint64_t> Lookup::next_byte(const FileId& file, uint64_t begin, uint64_t end, uint64_t near) {
  std::vector<Extent> piece;
  for (uint64_t window = std::max<uint64_t>(near, 1); begin < end; window *= 2) {
    const uint64_t until = window < end - begin ? begin + window : end;
    SWALE_RETURN_IF_ERROR(gather(file, begin, until, 0, 1, &piece, kNextRows).status());
    if (!piece.empty()) return piece.front().offset;
    begin = until;
  }
  return end;
}

}  // namespace swale::meta
