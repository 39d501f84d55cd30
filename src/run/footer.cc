#include "run/footer.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <utility>

#include "base/coding.h"
#include "base/crc32c.h"
#include "run/layout.h"
#include "run/value_format.h"

namespace swale::run {
namespace {

constexpr size_t kScanChunkBytes = 256 * kKiB;
constexpr size_t kTrailerBytes = sizeof(FooterTrailer);
constexpr uint8_t kKnownSegmentFlags =
    kUniformSegment | kBloomSegment | kBlockedBloomSegment | kPackedSegment;
// The kinds of segment.
constexpr uint8_t kFormFlags = kUniformSegment | kBloomSegment | kBlockedBloomSegment;

// The footer's place, for messages.
struct FooterContext {
  std::string_view path;
  uint64_t offset;

  Status damaged(std::string_view problem) const {
    return corruption("{}: offset {}: {}; run `swale verify`", path, offset, problem);
  }
  Status newer(std::string_view what) const {
    return error(Code::kUnsupported, Scope::kFile, "{}: offset {}: {}; read it with a newer swale", path,
                 offset, what);
  }
};

Status check_segment(const SegmentRecord& segment, const FooterContext& context) {
  if (is_auxiliary(segment)) return {};
  if ((segment.flags & ~kKnownSegmentFlags) != 0) {
    return context.newer(fmt::format("a segment with unknown flags {:#x}", segment.flags));
  }
  const bool uniform = (segment.flags & kUniformSegment) != 0;
  const uint64_t row_bytes = uint64_t{segment.key_bytes} + segment.value_bytes;
  const bool row_possible = uniform ? segment.key_bytes > 0 && row_bytes <= kRowBytesMax : row_bytes == 0;
  const bool slices_possible =
      segment.runs == 0 ? segment.stride == 0 && segment.records == 0 && segment.overflow_units == 0
                        : segment.stride >= sizeof(SliceHeader) && segment.stride % kIndexUnit == 0;
  const bool places_possible = segment.index_offset % kIndexUnit == 0 &&
                               segment.index_offset <= context.offset &&
                               segment.slice_bits <= kSliceBitsMax &&
                               segment_bytes(segment) <= context.offset - segment.index_offset &&
                               segment.data_block <= uint64_t{1} << 51;
  const bool form_possible = std::popcount(static_cast<uint8_t>(segment.flags & kFormFlags)) <= 1 &&
                             (is_filter_segment(segment) ? segment.filter_bits <= kBloomBitsMax : true);
  if (!form_possible || !row_possible || !slices_possible || !places_possible ||
      segment.way >= segment.ways) {
    return context.damaged(fmt::format("the segment record of epoch {}, way {}, has impossible numbers",
                                       segment.epoch, segment.way));
  }
  return {};
}

// Codes a record as its difference from the record before (all zeros before the first): u64 mask, whose bit i
// says that byte i differs; then the bytes that differ.
void put_record(const SegmentRecord& record, const SegmentRecord& before, std::string* out) {
  char now[sizeof(SegmentRecord)];
  char then[sizeof(SegmentRecord)];
  std::memcpy(now, &record, sizeof(now));
  std::memcpy(then, &before, sizeof(then));
  const size_t mask_at = out->size();
  out->append(sizeof(uint64_t), '\0');
  uint64_t mask = 0;
  for (size_t word = 0; word < sizeof(now); word += 8) {  // most words are equal
    if (get_u64(now + word) == get_u64(then + word)) continue;
    for (size_t i = word; i < word + 8; ++i) {
      if (now[i] == then[i]) continue;
      mask |= uint64_t{1} << i;
      out->push_back(now[i]);
    }
  }
  put_u64(out->data() + mask_at, mask);
}

SegmentRecord no_record() {
  SegmentRecord record;
  std::memset(static_cast<void*>(&record), 0, sizeof(record));
  return record;
}

// Takes one record from the front of `coded`. False: its bytes end too early.
bool take_record(Bytes* coded, SegmentRecord* record) {
  if (coded->size() < sizeof(uint64_t)) return false;
  const uint64_t mask = get_u64(coded->data());
  coded->remove_prefix(sizeof(uint64_t));
  if (coded->size() < static_cast<size_t>(std::popcount(mask))) return false;
  char bytes[sizeof(SegmentRecord)];
  std::memcpy(bytes, record, sizeof(bytes));
  size_t taken = 0;
  for (size_t i = 0; i < sizeof(bytes); ++i) {
    if ((mask >> i & 1) != 0) bytes[i] = (*coded)[taken++];
  }
  coded->remove_prefix(taken);
  std::memcpy(static_cast<void*>(record), bytes, sizeof(bytes));
  return true;
}

Result<FooterTrailer> decode_trailer(const char* bytes, PartitionNumber partition, uint64_t trailer_offset,
                                     std::string_view path) {
  const FooterContext context{path, trailer_offset};
  if (get_u64(bytes) != kFooterMagic) return context.damaged("no footer ends there");
  const uint32_t found = crc32c_extend(partition_seed(partition), {bytes, kTrailerBytes - 4});
  const auto trailer = get_fixed<FooterTrailer>(bytes);
  if (found != trailer.crc32c) {
    return context.damaged(
        fmt::format("the footer's trailer has checksum {:08x}, expected {:08x}", found, trailer.crc32c));
  }
  if (trailer.version > kFormatVersion)
    return context.newer(fmt::format("format version {}", trailer.version));
  if ((trailer.incompatible_features & ~kIncompatibleFeatures) != 0) {
    return context.newer(fmt::format("unknown feature bits {:#x}", trailer.incompatible_features));
  }
  const uint64_t body_bytes =
      round_up(trailer.record_bytes, kIndexUnit) + uint64_t{trailer.extent_count} * sizeof(FooterExtent);
  if (trailer.version == 0 || trailer.partition != partition || trailer.extent_count > kFooterExtentsMax ||
      trailer.bytes != body_bytes + kTrailerBytes || trailer.offset > trailer_offset ||
      trailer.offset + body_bytes != trailer_offset || trailer.first_record > kSegmentsMax ||
      trailer.record_count > kSegmentsMax - trailer.first_record ||
      trailer.record_count > trailer.record_bytes / sizeof(uint64_t)) {
    return context.damaged("the footer has impossible numbers or is of another place");
  }
  return trailer;
}

Status take_extents(Bytes bytes, const FooterContext& context, FooterPart* part) {
  uint64_t end = 0;
  for (; !bytes.empty(); bytes.remove_prefix(sizeof(FooterExtent))) {
    const auto extent = get_fixed<FooterExtent>(bytes.data());
    const bool first = part->extents.empty();
    if (extent.offset % kIndexUnit != 0 || extent.offset < end || extent.offset > context.offset ||
        extent.bytes < kTrailerBytes || extent.bytes > context.offset - extent.offset ||
        (first ? extent.first_record != 0 : extent.first_record <= part->extents.back().first_record)) {
      return context.damaged(fmt::format("footer extent {} has impossible numbers", part->extents.size()));
    }
    end = extent.offset + extent.bytes;
    part->extents.push_back(extent);
  }
  const uint32_t last = part->extents.empty() ? 0 : part->extents.back().first_record + 1;
  if (part->extents.empty() ? part->trailer.first_record != 0 : part->trailer.first_record < last) {
    return context.damaged(fmt::format("footer extents begin with segments up to {}, expected up to {}", last,
                                       part->trailer.first_record));
  }
  return {};
}

Status take_records(Bytes coded, const FooterContext& context, FooterPart* part) {
  SegmentRecord record = no_record();
  part->records.reserve(part->trailer.record_count);
  for (uint32_t i = 0; i < part->trailer.record_count; ++i) {
    if (!take_record(&coded, &record)) return context.damaged("the footer's records exceed its length");
    SWALE_RETURN_IF_ERROR(check_segment(record, context));
    part->records.push_back(record);
  }
  if (!coded.empty()) return context.damaged("the footer's records do not add up to its length");
  return {};
}

// Walks backwards from the end of an index log to the last whole footer.
class TailSearch {
 public:
  TailSearch(io::File& file, PartitionNumber partition, Footer* footer)
      : file_(file), partition_(partition), footer_(*footer) {}

  Result<FooterPart> run(uint64_t file_end) {
    const uint64_t end = file_end / kIndexUnit * kIndexUnit;
    uint64_t position = end - kTrailerBytes;  // of a trailer
    // At first only the last page: normally the footer lies in it.
    uint64_t start = position / kIndexPageBytes * kIndexPageBytes;
    while (end >= kTrailerBytes) {
      SWALE_RETURN_IF_ERROR(load(start, position + kTrailerBytes));
      for (;; position -= kIndexUnit) {
        const bool at_end = position + kTrailerBytes == end;
        if (at_end || get_u64(at(position)) == kFooterMagic) {
          Result<FooterPart> part = footer_before(position);
          if (part.ok()) {
            footer_.end_offset = position + kTrailerBytes;
            footer_.skipped_bytes = file_end - footer_.end_offset;
          }
          if (part.ok() || part.status().code() != Code::kCorruption) return part;
          if (at_end) footer_.skipped_reason = part.status();
        }
        if (position == start) break;
      }
      if (position == 0) break;
      position -= kIndexUnit;
      // The file may have been extended without data.
      position = std::min(position, round_up(io::data_end(file_, start), kIndexUnit));
      start = position + kTrailerBytes > kScanChunkBytes ? position + kTrailerBytes - kScanChunkBytes : 0;
    }
    return corruption("{}: no footer in {} bytes; if epochs were committed, run `swale verify`", file_.path(),
                      file_end);
  }

 private:
  const char* at(uint64_t offset) const { return window_.data() + (offset - window_start_); }

  Status load(uint64_t start, uint64_t end) {
    window_.resize(end - start);
    window_start_ = start;
    return read(start, window_);
  }

  Status read(uint64_t offset, MutableBytes out) {
    ++footer_.reads;
    ++footer_.depth;
    footer_.bytes_read += out.size();
    return io::read_exactly(file_, offset, out);
  }

  // The footer whose trailer is at `position`.
  Result<FooterPart> footer_before(uint64_t position) {
    SWALE_ASSIGN_OR_RETURN(const FooterTrailer trailer,
                           decode_trailer(at(position), partition_, position, file_.path()));
    if (trailer.offset >= window_start_) {
      return decode_footer({at(trailer.offset), trailer.bytes}, partition_, trailer.offset, file_.path());
    }
    std::vector<char> bytes(trailer.bytes);  // at most what the file has
    SWALE_RETURN_IF_ERROR(read(trailer.offset, bytes));
    return decode_footer({bytes.data(), bytes.size()}, partition_, trailer.offset, file_.path());
  }

  io::File& file_;
  const PartitionNumber partition_;
  Footer& footer_;
  std::vector<char> window_;
  uint64_t window_start_ = 0;
};

// Reads all records older than those of `last`.
Status read_extents(io::File& file, PartitionNumber partition, const FooterPart& last, Footer* footer) {
  std::vector<std::vector<char>> bytes;
  std::vector<io::ReadRequest> requests;
  for (const FooterExtent& extent : last.extents) {
    auto& out = bytes.emplace_back(extent.bytes);
    requests.push_back({.offset = extent.offset, .out = out, .got = 0, .status = {}});
    footer->bytes_read += out.size();
  }
  file.read_many(requests);
  footer->reads += requests.size();
  footer->depth += requests.empty() ? 0 : 1;
  for (size_t i = 0; i < requests.size(); ++i) {
    const io::ReadRequest& request = requests[i];
    const FooterContext context{file.path(), request.offset};
    SWALE_RETURN_IF_ERROR(request.status);
    if (request.got < request.out.size()) return context.damaged("the file is cut off within a footer");
    SWALE_ASSIGN_OR_RETURN(const FooterPart part,
                           decode_footer(view(request.out), partition, request.offset, file.path()));
    const uint32_t end =
        i + 1 < requests.size() ? last.extents[i + 1].first_record : last.trailer.first_record;
    if (part.trailer.first_record != footer->segments.size() ||
        part.trailer.first_record + part.trailer.record_count != end) {
      return context.damaged(
          fmt::format("the footer there has segments {} to {}, expected {} to {}", part.trailer.first_record,
                      part.trailer.first_record + part.trailer.record_count, footer->segments.size(), end));
    }
    footer->segments.insert(footer->segments.end(), part.records.begin(), part.records.end());
  }
  return {};
}

}  // namespace

std::string encode_footer(FooterPart part) {
  std::string out;
  SegmentRecord before = no_record();
  for (const SegmentRecord& record : part.records) {
    put_record(record, before, &out);
    before = record;
  }
  part.trailer.magic = kFooterMagic;
  part.trailer.record_bytes = static_cast<uint32_t>(out.size());
  out.resize(round_up(out.size(), kIndexUnit));
  for (const FooterExtent& extent : part.extents) {
    append_u64(&out, extent.offset);
    append_u32(&out, extent.bytes);
    append_u32(&out, extent.first_record);
  }
  const uint32_t seed = partition_seed(part.trailer.partition);
  part.trailer.bytes = static_cast<uint32_t>(out.size() + kTrailerBytes);
  part.trailer.body_crc32c = crc32c_extend(seed, out);
  char trailer[kTrailerBytes];
  put_fixed(trailer, part.trailer);
  put_u32(trailer + kTrailerBytes - 4, crc32c_extend(seed, {trailer, kTrailerBytes - 4}));
  return out.append(trailer, kTrailerBytes);
}

Result<FooterPart> decode_footer(Bytes bytes, PartitionNumber partition, uint64_t offset,
                                 std::string_view path) {
  const FooterContext context{path, offset};
  if (bytes.size() < kTrailerBytes) {
    return context.damaged(
        fmt::format("a footer of {} bytes, expected {} or more", bytes.size(), kTrailerBytes));
  }
  const Bytes body = bytes.substr(0, bytes.size() - kTrailerBytes);
  FooterPart part;
  SWALE_ASSIGN_OR_RETURN(part.trailer,
                         decode_trailer(body.data() + body.size(), partition, offset + body.size(), path));
  if (part.trailer.offset != offset) return context.damaged("a footer of another length is there");
  const uint32_t found = crc32c_extend(partition_seed(partition), body);
  if (found != part.trailer.body_crc32c) {
    return context.damaged(
        fmt::format("the footer has checksum {:08x}, expected {:08x}", found, part.trailer.body_crc32c));
  }
  SWALE_RETURN_IF_ERROR(
      take_extents(body.substr(round_up(part.trailer.record_bytes, kIndexUnit)), context, &part));
  SWALE_RETURN_IF_ERROR(take_records(body.substr(0, part.trailer.record_bytes), context, &part));
  return part;
}

Result<Footer> read_footer(io::File& index_log, PartitionNumber partition) {
  Footer footer;
  SWALE_ASSIGN_OR_RETURN(const uint64_t end, index_log.size());
  SWALE_ASSIGN_OR_RETURN(FooterPart last, TailSearch(index_log, partition, &footer).run(end));
  SWALE_RETURN_IF_ERROR(read_extents(index_log, partition, last, &footer));
  footer.segments.insert(footer.segments.end(), last.records.begin(), last.records.end());
  footer.extents = std::move(last.extents);
  return footer;
}

Status each_footer(io::File& index_log, PartitionNumber partition,
                   const std::function<void(uint64_t offset, const Result<FooterPart>&)>& fn) {
  SWALE_ASSIGN_OR_RETURN(const uint64_t end, index_log.size());
  std::vector<char> chunk;
  std::vector<char> whole;
  // Neighbouring chunks share all of a trailer but one unit.
  for (uint64_t start = 0; start + kTrailerBytes <= end; start += kScanChunkBytes) {
    if (const uint64_t next = index_log.next_data(start) / kScanChunkBytes * kScanChunkBytes; next > start) {
      start = next - kScanChunkBytes;  // a hole; the loop goes on at `next`
      continue;
    }
    chunk.resize(std::min<uint64_t>(end - start, kScanChunkBytes + kTrailerBytes - kIndexUnit));
    SWALE_RETURN_IF_ERROR(io::read_exactly(index_log, start, chunk));
    for (size_t at = 0; at + kTrailerBytes <= chunk.size(); at += kIndexUnit) {
      if (get_u64(chunk.data() + at) != kFooterMagic) continue;
      const auto trailer = decode_trailer(chunk.data() + at, partition, start + at, index_log.path());
      if (!trailer.ok()) {
        fn(start + at, trailer.status());
        continue;
      }
      whole.resize(trailer->bytes);
      SWALE_RETURN_IF_ERROR(io::read_exactly(index_log, trailer->offset, whole));
      fn(trailer->offset,
         decode_footer({whole.data(), whole.size()}, partition, trailer->offset, index_log.path()));
    }
  }
  return {};
}

Status FooterBuilder::add(const SegmentRecord& segment) {
  if (segments_.size() == kSegmentsMax) {
    return error(
        Code::kResourceExhausted, Scope::kFile,
        "partition {} has {} index segments, the most that the format allows; write further epochs to "
        "another directory",
        partition_, kSegmentsMax);
  }
  segments_.push_back(segment);
  large_values_ = large_values_ || is_values_segment(segment);
  return {};
}

// The bytes that the ending epoch has written to both logs.
uint64_t FooterBuilder::epoch_bytes() const {
  uint64_t index_bytes = 0;
  uint64_t blocks = 0;
  for (size_t i = encoded_; i < segments_.size(); ++i) {
    if (is_values_segment(segments_[i]) || is_table_segment(segments_[i])) continue;
    index_bytes += segment_bytes(segments_[i]);
    blocks = std::max<uint64_t>(blocks, segments_[i].data_blocks);
  }
  return index_bytes + blocks * kBlockBytes;
}

// Decides which records the next footer contains itself: those from first_ on.
void FooterBuilder::choose_first() {
  if (!full_) return;
  extents_.push_back(*std::exchange(full_, std::nullopt));
  first_ = encoded_;
  if (extents_.size() < kExtentsMerged) return;
  const size_t oldest = extents_.size() - kExtentsMerged;
  const size_t oldest_records = extents_[oldest + 1].first_record - extents_[oldest].first_record;
  const size_t newest_records = first_ - extents_.back().first_record;
  if (oldest_records >= 2 * newest_records) return;
  first_ = extents_[oldest].first_record;
  extents_.resize(oldest);
}

std::string FooterBuilder::encode(uint64_t index_offset) {
  assert(index_offset % kIndexUnit == 0);
  choose_first();
  FooterPart part;
  part.trailer.version = kFormatVersion;
  part.trailer.incompatible_features = large_values_ ? uint32_t{kLargeValuesFeature} : 0;
  part.trailer.partition = partition_;
  part.trailer.offset = index_offset;
  part.trailer.first_record = static_cast<uint32_t>(first_);
  part.trailer.record_count = static_cast<uint32_t>(segments_.size() - first_);
  part.trailer.extent_count = static_cast<uint32_t>(extents_.size());
  part.records.assign(segments_.begin() + static_cast<std::ptrdiff_t>(first_), segments_.end());
  part.extents = extents_;
  std::string bytes = encode_footer(part);
  std::string gap;
  const uint64_t left_in_page = kIndexPageBytes - index_offset % kIndexPageBytes;
  if (bytes.size() > left_in_page && bytes.size() <= kIndexPageBytes) {
    gap.assign(left_in_page, '\0');
    part.trailer.offset = index_offset + left_in_page;
    bytes = encode_footer(part);
  }
  const uint64_t goal =
      std::clamp<uint64_t>(epoch_bytes() / kFooterShare, kFooterRecordBytesMin, kFooterRecordBytesMax);
  const size_t record_bytes = bytes.size() - kTrailerBytes - extents_.size() * sizeof(FooterExtent);
  if (record_bytes >= goal) {
    full_ = FooterExtent{.offset = part.trailer.offset,
                         .bytes = static_cast<uint32_t>(bytes.size()),
                         .first_record = static_cast<uint32_t>(first_)};
  }
  encoded_ = segments_.size();
  return gap + bytes;
}

}  // namespace swale::run
