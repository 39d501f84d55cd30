#include "meta/server/run_table.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <tuple>

#include "meta/index/relocation.h"
#include "meta/index/zigzag.h"

namespace swale::meta {
namespace {

constexpr uint8_t kTableVersion = 1;

bool before(const Run& a, const Run& b) {
  const auto key = [](const Run& run) {
    return std::tie(run.levels, run.length, run.level, run.offset, run.place);
  };
  return key(a) < key(b);
}

bool same_shape_and_strides(const Run& a, const Run& b) {
  return a.levels == b.levels && a.length == b.length && a.level == b.level;
}

}  // namespace

// u8 version | varint runs | runs of one shape stand together:
//   varint runs of the shape | varint length | u8 levels | levels x varint (count, stride, zigzag address
//   stride) each: varint offset after the one before | varint zigzag log, address after those of the one
//   before
std::string encode_table(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end(), before);
  std::string out;
  append_u8(&out, kTableVersion);
  append_varint(&out, runs.size());
  for (size_t at = 0; at < runs.size();) {
    const Run& first = runs[at];
    size_t end = at;
    while (end < runs.size() && same_shape_and_strides(runs[end], first)) ++end;
    append_varint(&out, end - at);
    append_varint(&out, first.length);
    append_u8(&out, static_cast<uint8_t>(first.levels));
    for (uint32_t i = 0; i < first.levels; ++i) {
      append_varint(&out, first.level[i].count);
      append_varint(&out, first.level[i].stride);
      append_varint(&out, zigzag(first.level[i].address_stride));
    }
    uint64_t offset = 0, log = 0, address = 0;
    for (; at < end; ++at) {
      append_varint(&out, runs[at].offset - offset);
      append_varint(&out, zigzag(runs[at].place.log - log));
      append_varint(&out, zigzag(runs[at].place.address - address));
      offset = runs[at].offset;
      log = runs[at].place.log;
      address = runs[at].place.address;
    }
  }
  return out;
}

Result<std::vector<Run>> decode_table(Bytes bytes) {
  Decoder in(bytes);
  if (const uint8_t version = in.u8(); in.ok() && version != kTableVersion) {
    return error(Code::kUnsupported, Scope::kFile, "a table of runs of version {}: a newer Swale wrote it",
                 version);
  }
  const uint64_t count = in.varint64();
  if (count > bytes.size()) return corruption("a table of {} runs in {} bytes", count, bytes.size());
  std::vector<Run> runs;
  runs.reserve(count);
  while (in.ok() && runs.size() < count) {
    const uint64_t of_shape = in.varint64();
    Run run;
    run.length = in.varint64();
    run.levels = in.u8();
    for (uint32_t i = 0; i < std::min(run.levels, kRunLevels); ++i) {
      run.level[i].count = in.varint64();
      run.level[i].stride = in.varint64();
      run.level[i].address_stride = unzigzag(in.varint64());
    }
    if (of_shape == 0 || of_shape > count - runs.size())
      return corruption("a table of {} runs: {} of one shape after {}", count, of_shape, runs.size());
    for (uint64_t i = 0; i < of_shape && in.ok(); ++i) {
      run.offset += in.varint64();
      run.place.log += static_cast<LogId>(unzigzag(in.varint64()));
      run.place.address += unzigzag(in.varint64());
      if (in.ok() && !valid(run)) {
        return corruption("a table of runs: run {} at offset {} overlaps itself or ends beyond 2^63",
                          runs.size(), run.offset);
      }
      runs.push_back(run);
    }
  }
  SWALE_RETURN_IF_ERROR(in.finish("a table of runs"));
  return runs;
}

// Exact if the runs of all servers together, each counted once, map as many bytes as the servers say to own:
// then no two of them overlap, and no server knows better about a byte of another one's run.
std::string joined_table(const std::vector<Collected>& parts) {
  std::vector<Run> runs;
  uint64_t owned = 0;
  for (const Collected& part : parts) {
    if (!part.complete) return {};
    owned += part.bytes;
    runs.insert(runs.end(), part.runs.begin(), part.runs.end());
  }
  std::sort(runs.begin(), runs.end(), before);
  runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
  uint64_t mapped = 0;
  for (const Run& run : runs) mapped += blocks_of(run) * run.length;
  if (mapped != owned) return {};
  std::string table = encode_table(std::move(runs));
  return table.size() <= kTableBytesMax ? table : std::string();
}

Result<std::optional<std::string>> relocated_table(Bytes table, const Relocation& relocation) {
  SWALE_ASSIGN_OR_RETURN(std::vector<Run> runs, decode_table(table));
  const SequencedRelocation rule{relocation, 1};
  bool moved = false;
  for (Run& run : runs) {
    Place place;
    if (rules_for_whole(std::span(&rule, 1), run, 0, &place) == 0) return std::optional(std::string());
    moved |= place != run.place;
    run.place = place;
  }
  if (!moved) return std::optional<std::string>();
  std::string after = encode_table(std::move(runs));
  if (after.size() > kTableBytesMax) after.clear();
  return std::optional(std::move(after));
}

SealedTable::SealedTable(std::vector<Run> runs) : runs_(std::move(runs)) {
  for (uint32_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    assert(valid(run));
    if (run.levels == 0) {
      extents_.push_back(i);
      continue;
    }
    const uint64_t stride = run.level[0].stride;
    bool repeats = true;
    for (uint32_t level = 1; level < run.levels; ++level) repeats &= run.level[level].stride % stride == 0;
    if (!repeats) {
      others_.push_back(i);
      continue;
    }
    auto family = std::find_if(families_.begin(), families_.end(),
                               [&](const Family& each) { return each.stride == stride; });
    if (family == families_.end()) family = families_.insert(family, {stride, 0, {}});
    family->length_max = std::max(family->length_max, run.length);
    family->phases.push_back({run.offset % stride, run.offset, i});
  }
  std::sort(extents_.begin(), extents_.end(),
            [&](uint32_t a, uint32_t b) { return runs_[a].offset < runs_[b].offset; });
  for (Family& family : families_) {
    std::sort(family.phases.begin(), family.phases.end(), [](const Phase& a, const Phase& b) {
      return std::tie(a.begin, a.offset) < std::tie(b.begin, b.offset);
    });
  }
}

// `phase`: of the offset; or, for blocks that wrap around, one stride more.
std::optional<Extent> SealedTable::try_phase(const Family& family, uint64_t phase, uint64_t offset,
                                             uint32_t* hint) const {
  auto at = std::upper_bound(family.phases.begin(), family.phases.end(), std::pair(phase, offset),
                             [](const std::pair<uint64_t, uint64_t>& key, const Phase& each) {
                               return key < std::pair(each.begin, each.offset);
                             });
  while (at != family.phases.begin()) {
    --at;
    if (phase - at->begin >= family.length_max) break;
    if (const auto hit = within(runs_[at->run], offset)) {
      *hint = at->run;
      return hit;
    }
  }
  return std::nullopt;
}

std::optional<Extent> SealedTable::search(uint64_t offset, uint32_t* hint) const {
  for (const Family& family : families_) {
    const uint64_t phase = offset % family.stride;
    if (const auto hit = try_phase(family, phase, offset, hint)) return hit;
    if (phase + 1 < family.length_max) {
      if (const auto hit = try_phase(family, phase + family.stride, offset, hint)) return hit;
    }
  }
  auto extent = std::upper_bound(extents_.begin(), extents_.end(), offset,
                                 [&](uint64_t at, uint32_t run) { return at < runs_[run].offset; });
  if (extent != extents_.begin()) {
    --extent;
    if (const auto hit = within(runs_[*extent], offset)) {
      *hint = *extent;
      return hit;
    }
  }
  for (const uint32_t run : others_) {
    if (const auto hit = within(runs_[run], offset)) {
      *hint = run;
      return hit;
    }
  }
  return std::nullopt;
}

void SealedTable::lookup(uint64_t offset, uint64_t length, size_t pieces_max, std::vector<Extent>* out,
                         uint64_t* next) const {
  assert(length <= kOffsetEnd - offset);
  const uint64_t end = offset + length;
  uint32_t hint = 0;
  const size_t limit = out->size() + pieces_max;
  while (offset < end && out->size() < limit) {
    if (std::optional<Extent> piece = find(offset, &hint)) {
      piece->length = std::min(piece->length, end - offset);
      offset += piece->length;
      out->push_back(*piece);
      continue;
    }
    uint64_t later = end;  // where the hole ends
    for (const Run& run : runs_) {
      const uint64_t index = first_block_after(run, offset);
      if (index < blocks_of(run)) later = std::min(later, block_at(run, index).offset);
    }
    assert(later > offset);  // else the loop would not end
    offset = later;
  }
  *next = offset;
}

}  // namespace swale::meta
