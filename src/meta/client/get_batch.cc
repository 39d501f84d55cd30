#include "meta/client/get_batch.h"

#include <algorithm>
#include <cassert>

#include "meta/index/lattice.h"
#include "meta/index/run_detector.h"

namespace swale::meta {
namespace {

DetectedBatch detect(std::span<const ByteRange> ranges) {
  DetectedBatch batch;
  RunDetector detector(1);  // nothing is given out as blocks: their order may not be that of the ranges
  detector.add(ranges, &batch);
  detector.finish(&batch);
  return batch;
}

}  // namespace

GetBatch::GetBatch(std::span<const ByteRange> ranges) : ranges_(ranges) {
  const DetectedBatch batch = detect(ranges);
  const bool any = std::any_of(batch.runs.begin(), batch.runs.end(),
                               [](const Run& run) { return blocks_of(run) >= RunDetector::kBlocksMin; });
  // Ranges that follow one another are one question, too.
  if (!any && batch.size() > ranges.size() / RunDetector::kBlocksMin) return;
  batch.for_each(
      [&](const Extent& joined) {
        take(joined.length);
        rest_.push_back({joined.offset, joined.length});
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

void GetBatch::Writer::add(const Extent& piece, size_t first) {
  std::vector<Extent>& extents = found->extents;
  if (pieces > first && continues(extents[pieces - 1], piece)) {
    extents[pieces - 1].length += piece.length;
    return;
  }
  if (pieces == extents.size()) extents.emplace_back();
  extents[pieces++] = piece;
}

// True: the blocks of the runs, one after the other, are the ranges, or consist of them.
bool GetBatch::answer_in_order(std::span<const Run> runs, std::span<const ByteRange> ranges, Writer* out) {
  // Each range gets one piece: less or more, and the answer is no such one.
  if (out->found->extents.size() < out->pieces + ranges.size())
    out->found->extents.resize(out->pieces + ranges.size());
  Extent* const extents = out->found->extents.data() + out->pieces;
  size_t* const ends = out->found->ends.data() + out->ranges;
  const size_t first = out->pieces;
  size_t at = 0;
  for (const Run& run : runs) {
    const Level inner = run.levels > 0 ? run.level[0] : Level();
    const uint64_t blocks = blocks_of(run), length = run.length;
    const LogId log = run.place.log;
    for (uint64_t block = 0; block < blocks; block += inner.count) {
      const Extent row = block_at(run, block);
      uint64_t offset = row.offset, address = row.place.address;
      // Block by block, as they were put: the usual question.
      const uint64_t whole = std::min<uint64_t>(inner.count, ranges.size() - at);
      uint64_t i = 0;
      for (; i < whole && ranges[at].offset == offset && ranges[at].length == length; ++i) {
        extents[at] = {offset, length, {log, address}};
        ++at;
        ends[at - 1] = first + at;
        offset += inner.stride;
        address += inner.address_stride;
      }
      for (; i < inner.count; ++i) {
        const uint64_t to_address = address - offset;
        for (uint64_t next = offset, end = offset + length; next != end;) {
          if (at == ranges.size() || ranges[at].offset != next || ranges[at].length > end - next)
            return false;
          extents[at] = {next, ranges[at].length, {log, next + to_address}};
          next += ranges[at].length;
          ++at;
          ends[at - 1] = first + at;
        }
        offset += inner.stride;
        address += inner.address_stride;
      }
    }
  }
  if (at != ranges.size()) return false;
  out->pieces += at;
  out->ranges += at;
  return true;
}

// `pieces` ascend and do not overlap; the ranges are in any order.
void GetBatch::answer_by_offset(std::span<const Extent> pieces, std::span<const ByteRange> ranges,
                                Writer* out) {
  const auto end_of_piece = [&](size_t i) { return pieces[i].offset + pieces[i].length; };
  size_t at = 0;
  for (const ByteRange& range : ranges) {
    const uint64_t end = range.offset + range.length;
    const bool near = (at == 0 || end_of_piece(at - 1) <= range.offset) &&
                      (at == pieces.size() || end_of_piece(at) > range.offset);
    if (!near) {
      const auto found = std::partition_point(pieces.begin(), pieces.end(), [&](const Extent& piece) {
        return piece.offset + piece.length <= range.offset;
      });
      at = static_cast<size_t>(found - pieces.begin());
    }
    const size_t first = out->pieces;
    size_t next = at;
    for (; next < pieces.size() && pieces[next].offset < end; ++next) {
      Extent piece = pieces[next];
      const uint64_t cut = range.offset > piece.offset ? range.offset - piece.offset : 0;
      piece.offset += cut;
      piece.place.address += cut;
      piece.length = std::min(piece.length - cut, end - piece.offset);
      out->add(piece, first);
    }
    while (at < next && end_of_piece(at) <= end) ++at;
    out->end_range();
  }
}

Status GetBatch::answer_run(const Run& query, std::span<const Run> runs, std::span<const ByteRange> ranges,
                            Writer* out) {
  uint64_t bytes = 0;
  for (const Run& run : runs) {
    if (run.offset < query.offset || end_of(run) > end_of(query) || bytes_of(run) > bytes_of(query) - bytes)
      return corruption("an answer to a get has a run at {} that was not asked for", run.offset);
    bytes += bytes_of(run);
  }
  if (bytes == bytes_of(query) && answer_in_order(runs, ranges, out)) return {};
  pieces_.clear();
  for (const Run& run : runs) for_each_block(run, [&](const Extent& block) { pieces_.push_back(block); });
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
  if (out->extents.size() < ranges_.size()) out->extents.resize(ranges_.size());
  out->ends.resize(ranges_.size());
  Writer writer{out};
  size_t first_range = 0;
  for (const Item& item : items_) {
    const std::span<const ByteRange> ranges = ranges_.subspan(first_range, item.ranges_end - first_range);
    first_range = item.ranges_end;
    const std::vector<size_t>& ends = item.is_run ? runs.ends : rest.ends;
    const size_t first = item.question == 0 ? 0 : ends[item.question - 1];
    const size_t count = ends[item.question] - first;
    if (item.is_run) {
      SWALE_RETURN_IF_ERROR(
          answer_run(queries_[item.question], std::span(runs.runs).subspan(first, count), ranges, &writer));
    } else {
      answer_by_offset(std::span(rest.extents).subspan(first, count), ranges, &writer);
    }
  }
  assert(first_range == ranges_.size() && writer.ranges == ranges_.size());
  out->extents.resize(writer.pieces);
  out->answered = ranges_.size();
  out->resume.reset();
  return {};
}

}  // namespace swale::meta
