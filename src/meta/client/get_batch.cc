#include "meta/client/get_batch.h"

#include <algorithm>
#include <cassert>

#include "meta/index/lattice.h"
#include "meta/index/run_detector.h"

namespace swale::meta {
namespace {

// Adds a piece to those of a range, which begin at `first`.
void add_piece(const Extent& piece, size_t first, std::vector<Extent>* out) {
  if (out->size() > first) {
    Extent& last = out->back();
    if (last.offset + last.length == piece.offset && last.place.log == piece.place.log &&
        last.place.address + last.length == piece.place.address) {
      last.length += piece.length;
      return;
    }
  }
  out->push_back(piece);
}

uint64_t bytes_of(const Run& run) { return blocks_of(run) * run.length; }

DetectedBatch detect(std::span<const Range> ranges) {
  constexpr size_t kAtOnce = 512;
  DetectedBatch batch;
  RunDetector detector(1);  // nothing is given out as blocks: their order may not be that of the ranges
  Extent some[kAtOnce];
  while (!ranges.empty()) {
    const size_t count = std::min(kAtOnce, ranges.size());
    for (size_t i = 0; i < count; ++i) some[i] = {ranges[i].offset, ranges[i].length, {0, ranges[i].offset}};
    detector.add({some, count}, &batch);
    ranges = ranges.subspan(count);
  }
  detector.finish(&batch);
  return batch;
}

}  // namespace

GetBatch::GetBatch(std::span<const Range> ranges) : ranges_(ranges) {
  const DetectedBatch batch = detect(ranges);
  const bool any = std::any_of(batch.runs.begin(), batch.runs.end(),
                               [](const Run& run) { return blocks_of(run) >= RunDetector::kBlocksMin; });
  // Ranges that follow one another are one question, too.
  if (!any && batch.size() > ranges.size() / RunDetector::kBlocksMin) return;
  batch.for_each(
      [&](const Extent& joined) {
        take(joined.length);
        rest_.push_back({{}, joined.offset, joined.length});
        items_.push_back({taken_, rest_.size() - 1, false});
      },
      [&](const Run& run) {
        const size_t first = taken_;
        take(bytes_of(run));
        if (blocks_of(run) < RunDetector::kBlocksMin) {
          for (size_t i = first; i < taken_; ++i) {
            rest_.push_back(ranges_[i]);
            items_.push_back({i + 1, rest_.size() - 1, false});
          }
          return;
        }
        queries_.push_back(run);
        items_.push_back({taken_, queries_.size() - 1, true});
      });
}

// The next ranges that have so many bytes together.
void GetBatch::take(uint64_t bytes) {
  while (bytes > 0) {
    // Runs stand for whole ranges, in the order of the call.
    assert(taken_ < ranges_.size() && ranges_[taken_].length <= bytes);
    bytes -= ranges_[taken_++].length;
  }
}

// True: the blocks of the runs, one after the other, are the ranges.
bool GetBatch::answer_in_order(std::span<const Run> runs, std::span<const Range> ranges, Found* out) const {
  // Each range gets one piece: less or more, and the answer is no such one.
  const size_t first = out->extents.size();
  out->extents.resize(first + ranges.size());
  out->ends.resize(out->ends.size() + ranges.size());
  Extent* const extents = out->extents.data() + first;
  size_t* const ends = out->ends.data() + (out->ends.size() - ranges.size());
  size_t at = 0;
  for (const Run& run : runs) {
    const Level inner = run.levels > 0 ? run.level[0] : Level();
    const uint64_t rows = blocks_of(run) / inner.count;
    for (uint64_t row = 0; row < rows; ++row) {
      Extent block = block_at(run, row * inner.count);
      // Block by block, as they were put: the usual question.
      const uint64_t whole = std::min<uint64_t>(inner.count, ranges.size() - at);
      uint64_t i = 0;
      for (; i < whole && ranges[at].offset == block.offset && ranges[at].length == block.length; ++i) {
        extents[at] = block;
        ends[at] = first + at + 1;
        ++at;
        block.offset += inner.stride;
        block.place.address += inner.address_stride;
      }
      for (; i < inner.count; ++i) {
        uint64_t offset = block.offset, left = block.length, address = block.place.address;
        while (left > 0) {
          if (at == ranges.size() || ranges[at].offset != offset || ranges[at].length > left) return false;
          const uint64_t length = ranges[at].length;
          extents[at] = {offset, length, {block.place.log, address}};
          ends[at] = first + at + 1;
          ++at;
          offset += length, address += length, left -= length;
        }
        block.offset += inner.stride;
        block.place.address += inner.address_stride;
      }
    }
  }
  return at == ranges.size();
}

// `pieces` ascend and do not overlap; the ranges are in any order.
void GetBatch::answer_by_offset(std::span<const Extent> pieces, std::span<const Range> ranges,
                                Found* out) const {
  const auto end_of_piece = [&](size_t i) { return pieces[i].offset + pieces[i].length; };
  size_t at = 0;
  for (const Range& range : ranges) {
    const uint64_t end = range.offset + range.length;
    const bool near = (at == 0 || end_of_piece(at - 1) <= range.offset) &&
                      (at == pieces.size() || end_of_piece(at) > range.offset);
    if (!near) {
      const auto found = std::partition_point(pieces.begin(), pieces.end(), [&](const Extent& piece) {
        return piece.offset + piece.length <= range.offset;
      });
      at = static_cast<size_t>(found - pieces.begin());
    }
    const size_t first = out->extents.size();
    size_t next = at;
    for (; next < pieces.size() && pieces[next].offset < end; ++next) {
      Extent piece = pieces[next];
      const uint64_t cut = range.offset > piece.offset ? range.offset - piece.offset : 0;
      piece.offset += cut;
      piece.place.address += cut;
      piece.length = std::min(piece.length - cut, end - piece.offset);
      add_piece(piece, first, &out->extents);
    }
    while (at < next && end_of_piece(at) <= end) ++at;
    out->ends.push_back(out->extents.size());
  }
}

Status GetBatch::answer_run(const Run& query, std::span<const Run> runs, std::span<const Range> ranges,
                            Found* out) {
  uint64_t bytes = 0;
  for (const Run& run : runs) {
    if (run.offset < query.offset || end_of(run) > end_of(query) || bytes_of(run) > bytes_of(query) - bytes)
      return corruption("an answer to a get has a run at {} that was not asked for", run.offset);
    bytes += bytes_of(run);
  }
  const size_t extents = out->extents.size(), ends = out->ends.size();
  if (bytes == bytes_of(query) && answer_in_order(runs, ranges, out)) return {};
  out->extents.resize(extents);
  out->ends.resize(ends);
  pieces_.clear();
  for (const Run& run : runs) {
    const uint64_t blocks = blocks_of(run);
    for (uint64_t i = 0; i < blocks; ++i) pieces_.push_back(block_at(run, i));
  }
  const auto before = [](const Extent& a, const Extent& b) { return a.offset < b.offset; };
  if (!std::is_sorted(pieces_.begin(), pieces_.end(), before))
    std::sort(pieces_.begin(), pieces_.end(), before);
  for (size_t i = 1; i < pieces_.size(); ++i) {
    if (pieces_[i - 1].offset + pieces_[i - 1].length > pieces_[i].offset)
      return corruption("an answer to a get has the byte at {} twice", pieces_[i].offset);
  }
  answer_by_offset(pieces_, ranges, out);
  return {};
}

Status GetBatch::answer(const FoundRuns& runs, const Found& rest, Found* out) {
  if (runs.ends.size() != queries_.size() || rest.ends.size() != rest_.size())
    return corruption("an answer to a get: {} of {} runs, {} of {} ranges", runs.ends.size(), queries_.size(),
                      rest.ends.size(), rest_.size());
  out->extents.clear();
  out->ends.clear();
  out->extents.reserve(ranges_.size());
  out->ends.reserve(ranges_.size());
  size_t first_range = 0;
  for (const Item& item : items_) {
    const std::span<const Range> ranges = ranges_.subspan(first_range, item.ranges_end - first_range);
    first_range = item.ranges_end;
    const std::vector<size_t>& ends = item.is_run ? runs.ends : rest.ends;
    const size_t first = item.question == 0 ? 0 : ends[item.question - 1];
    const size_t count = ends[item.question] - first;
    if (item.is_run) {
      SWALE_RETURN_IF_ERROR(
          answer_run(queries_[item.question], std::span(runs.runs).subspan(first, count), ranges, out));
    } else {
      answer_by_offset(std::span(rest.extents).subspan(first, count), ranges, out);
    }
  }
  assert(first_range == ranges_.size() && out->ends.size() == ranges_.size());
  out->answered = ranges_.size();
  out->resume.reset();
  return {};
}

}  // namespace swale::meta
