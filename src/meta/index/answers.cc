#include "meta/index/answers.h"

#include <algorithm>

#include "base/contain.h"

namespace swale::meta {

Status Answers::lookup(std::span<const Range> ranges, size_t pieces_max, Found* out) {
  const FileId* file = nullptr;
  for (const Range& range : ranges) {
    if (file == nullptr || range.file != *file) {
      SWALE_RETURN_IF_ERROR(catalog_.check_there(range.file));
      file = &range.file;
    }
    if (range.offset > kOffsetEnd || range.length > kOffsetEnd - range.offset)
      return invalid_argument("lookup of {} bytes at offset {}: files end at 2^63", range.length,
                              range.offset);
  }
  shared_.counters.lookups += ranges.size();
  const Status status = contain([&] { return make_lookup().run(ranges, pieces_max, out); });
  shared_.counters.lookup_pieces += out->extents.size();
  return status;
}

namespace {

void append_blocks(const FileId& file, const Run& query, std::vector<Range>* out) {
  for_each_block(query, [&](const Extent& block) { out->push_back({file, block.offset, block.length}); });
}

// The query in parts that ascend: the outermost items, each of a level less, or its halves if there are more
// than kPartsMax items. Empty: it is to be looked up block by block.
constexpr uint64_t kPartsMax = 4096;
std::vector<Run> parts_of(const Run& query) {
  std::vector<Run> parts;
  if (query.levels == 0) return parts;
  const uint32_t top = query.levels - 1;
  const Level level = query.level[top];
  if (level.count > kPartsMax) {
    parts.assign(2, query);
    parts[0].level[top].count = level.count / 2;
    parts[1].level[top].count = level.count - level.count / 2;
    parts[1].offset += level.count / 2 * level.stride;
    return parts;
  }
  if (top == 0) return parts;
  for (uint64_t i = 0; i < level.count; ++i) {
    Run& item = parts.emplace_back(query);
    item.levels = top;
    item.level[top] = {};
    item.offset += i * level.stride;
  }
  return parts;
}

}  // namespace

// True: the runs of the file say all about the query, and their parts were appended.
Result<bool> Answers::answer_query(std::optional<Lookup>* irregular, const FileId& file,
                                   const FileState& state, const Run& query, std::vector<Run>* out) {
  if (!state.runs) return state.irregular_max == 0;
  if (!catalog_.relocations().empty()) return false;
  cut_.clear();
  if (state.runs->intersect(query, &cut_) != RunLayers::Cut::kExact) return false;
  uint64_t bytes = 0;
  Sequence oldest = ~Sequence{0};
  for (const StoredRun& part : cut_) {
    bytes += bytes_of(part.run);
    oldest = std::min(oldest, part.sequence);
  }
  const bool covered = bytes == bytes_of(query);
  if (state.irregular_max != 0 && !(covered && oldest > state.irregular_max)) {
    if (!*irregular) irregular->emplace(shared_.options, catalog_, &layers_);
    SWALE_ASSIGN_OR_RETURN(const Sequence newest, (*irregular)->newest_extent(file, query));
    if (newest != 0 && !(covered && newest < oldest)) return false;
  }
  for (const StoredRun& part : cut_) out->push_back(part.run);
  ++shared_.counters.run_answers;
  return true;
}

Status Answers::lookup_runs(const FileId& file, std::span<const Run> queries, size_t runs_max,
                            std::vector<Run>* out, std::vector<size_t>* ends) {
  for (const Run& query : queries) {
    if (!valid(query)) return invalid_argument("the query at offset {} is no valid run", query.offset);
  }
  SWALE_RETURN_IF_ERROR(catalog_.check_there(file));
  const uint32_t number = catalog_.find(file);
  const bool known = number != FileTable::kNone;
  shared_.counters.lookups += known ? queries.size() : 0;
  return contain([&]() -> Status {
    std::optional<Lookup> irregular;  // made when it is needed
    uint64_t blocks_left = uint64_t{1} << 20;
    for (const Run& query : queries) {
      if (known)
        SWALE_RETURN_IF_ERROR(
            answer_whole(&irregular, file, catalog_.state(number), query, runs_max, &blocks_left, out));
      if (ends != nullptr) ends->push_back(out->size());
    }
    return {};
  });
}

// Appends all runs of a query. Blocks that are looked up one by one are taken from *blocks_left.
Status Answers::answer_whole(std::optional<Lookup>* irregular, const FileId& file, const FileState& state,
                             const Run& whole, size_t runs_max, uint64_t* blocks_left,
                             std::vector<Run>* out) {
  const auto too_many = [&] {
    return error(Code::kResourceExhausted, Scope::kOperation,
                 "the answer has more than {} runs, or is looked for in too many blocks: ask for less",
                 runs_max);
  };
  std::vector<Run> open = {whole};
  std::vector<Range> ranges;
  Found found;
  while (!open.empty()) {
    const Run query = open.back();
    open.pop_back();
    SWALE_ASSIGN_OR_RETURN(const bool answered, answer_query(irregular, file, state, query, out));
    if (answered) {
      if (out->size() > runs_max) return too_many();
      continue;
    }
    if (const std::vector<Run> parts = state.runs ? parts_of(query) : std::vector<Run>(); !parts.empty()) {
      open.insert(open.end(), parts.rbegin(), parts.rend());
      continue;
    }
    const uint64_t blocks = blocks_of(query);
    if (blocks > *blocks_left || out->size() > runs_max) return too_many();
    *blocks_left -= blocks;
    ranges.clear();
    append_blocks(file, query, &ranges);
    // By the same Lookup for all queries: it has its blocks of extents open, and decoded.
    if (!*irregular) irregular->emplace(shared_.options, catalog_, &layers_);
    shared_.counters.lookups += ranges.size();
    SWALE_RETURN_IF_ERROR((*irregular)->run(ranges, runs_max - out->size() + 1, &found));
    shared_.counters.lookup_pieces += found.extents.size();
    if (found.answered < ranges.size()) return too_many();
    for (const Extent& extent : found.extents) out->push_back(run_of(extent));
  }
  return out->size() > runs_max ? too_many() : ok_status();
}

Status Answers::scan(const FileId& file, uint64_t from, size_t pieces_max, const Ownership* ownership,
                     std::vector<Extent>* out, uint64_t* next) {
  SWALE_RETURN_IF_ERROR(catalog_.check_there(file));
  constexpr uint64_t kEmptyRangesMax = 4096;  // the caller goes on: other requests are not to wait longer
  return contain([&]() -> Status {
    Lookup lookup = make_lookup();
    const size_t first = out->size();
    uint64_t empty = 0;
    *next = from;
    while (*next < kOffsetEnd) {
      std::pair<uint64_t, uint64_t> owned{*next, kOffsetEnd};
      if (ownership != nullptr) {
        owned = ownership->next_owned(file, *next);
        if (owned.first >= owned.second) break;
        owned.first = std::max(owned.first, *next);
      }
      const uint64_t end = std::min(owned.second, end_of_file(file));
      if (owned.first >= end) break;
      if (out->size() - first >= pieces_max) {
        *next = owned.first;
        return {};
      }
      const size_t before = out->size();
      ++shared_.counters.ranges_scanned;
      SWALE_ASSIGN_OR_RETURN(const uint64_t stop,
                             lookup.gather(file, owned.first, end, first, first + pieces_max, out));
      *next = stop;
      if (stop < end) return {};
      if (ownership == nullptr || out->size() > before) continue;
      if (++empty == kEmptyRangesMax) return {};
      // Ranges without a byte are passed over at once, whatever their number.
      SWALE_ASSIGN_OR_RETURN(*next, lookup.next_byte(file, stop, end_of_file(file), stop - owned.first));
    }
    *next = kOffsetEnd;
    return {};
  });
}

Status Answers::run_table(const FileId& file, size_t runs_max, const Ownership* ownership,
                          std::vector<Run>* out) {
  const auto too_many = [&] {
    return error(Code::kResourceExhausted, Scope::kOperation, "the file needs more than {} runs", runs_max);
  };
  SWALE_RETURN_IF_ERROR(catalog_.check_there(file));
  const uint32_t number = catalog_.find(file);
  if (number == FileTable::kNone) return {};
  return contain([&]() -> Status {
    const FileState& state = catalog_.state(number);
    // Layers do not overlap themselves: one of them, with nothing irregular, is the table.
    if (state.runs && state.irregular_max == 0 && state.runs->layers() == 1 &&
        catalog_.relocations().empty() && ownership == nullptr) {
      state.runs->for_each([&](const Run& run, Sequence) { out->push_back(run); });
      return out->size() > runs_max ? too_many() : ok_status();
    }
    std::vector<Extent> extents;
    uint64_t next = 0;
    SWALE_RETURN_IF_ERROR(scan(file, 0, runs_max + 1, ownership, &extents, &next));
    if (next < kOffsetEnd || extents.size() > runs_max) return too_many();
    for (const Extent& extent : extents) out->push_back(run_of(extent));
    return {};
  });
}

}  // namespace swale::meta
