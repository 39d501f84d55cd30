#include "run/footer.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>

#include "base/coding.h"
#include "base/crc32c.h"
#include "run/layout.h"
#include "run/value_format.h"

namespace swale::run {
namespace {

constexpr size_t kScanChunkBytes = 256 * kKiB;
constexpr uint8_t kKnownSegmentFlags =
    kUniformSegment | kBloomSegment | kBlockedBloomSegment | kPackedSegment;
// What a segment may be one of.
constexpr uint8_t kFormFlags = kUniformSegment | kBloomSegment | kBlockedBloomSegment;

// Where the page and its partition are, for messages.
struct PageContext {
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

Status check_segment(const SegmentRecord& segment, const PageContext& context) {
  if ((segment.flags & kAuxiliarySegment) != 0) return {};
  if ((segment.flags & ~kKnownSegmentFlags) != 0) {
    return context.newer(fmt::format("a segment with unknown flags {:#x}", segment.flags));
  }
  const bool uniform = (segment.flags & kUniformSegment) != 0;
  const uint64_t row_bytes = uint64_t{segment.key_bytes} + segment.value_bytes;
  const bool row_possible = uniform ? segment.key_bytes > 0 && row_bytes <= kRowBytesMax : row_bytes == 0;
  const bool slices_possible =
      segment.runs == 0 ? segment.stride == 0 && segment.records == 0 && segment.overflow_units == 0
                        : segment.stride >= kStrideUnit && segment.stride % kStrideUnit == 0;
  const bool places_possible = segment.index_offset % kIndexAlignment == 0 &&
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

Status check_extents(const FooterPage& page, const PageContext& context) {
  uint64_t next = 0;
  for (uint32_t i = 0; i < page.extent_count; ++i) {
    const FooterExtent& extent = page.extents[i];
    const uint64_t bytes = uint64_t{extent.pages} * kFooterPageBytes;
    if (extent.pages == 0 || extent.first_record != next || extent.offset % kIndexAlignment != 0 ||
        extent.offset > context.offset || bytes > context.offset - extent.offset) {
      return context.damaged(fmt::format("footer extent {} has impossible numbers", i));
    }
    next += uint64_t{extent.pages} * kFooterRecordsMax;
  }
  if (next != page.first_record) {
    return context.damaged(
        fmt::format("footer extents hold {} segments, expected {}", next, page.first_record));
  }
  return {};
}

bool is_tail(const Result<FooterPage>& page) { return page.ok() && page->kind == FooterPageKind::kTail; }

// Finds the last valid tail page before `end`, walking backwards.
Result<FooterPage> find_tail(io::File& file, uint32_t partition, uint64_t end, Footer* footer) {
  std::vector<char> chunk(kFooterPageBytes);  // at first only the last page: normally it is the one
  const uint64_t pages_end = end / kFooterPageBytes * kFooterPageBytes;
  for (uint64_t chunk_end = pages_end; chunk_end > 0;) {
    const uint64_t bytes = std::min<uint64_t>(chunk.size(), chunk_end);
    const uint64_t start = chunk_end - bytes;
    const MutableBytes out(chunk.data(), bytes);
    SWALE_RETURN_IF_ERROR(io::read_exactly(file, start, out));
    ++footer->reads;
    ++footer->depth;
    footer->bytes_read += bytes;
    for (uint64_t at = bytes; at > 0; at -= kFooterPageBytes) {
      const uint64_t offset = start + at - kFooterPageBytes;
      auto page = decode_footer_page(view(out.subspan(at - kFooterPageBytes, kFooterPageBytes)), partition,
                                     offset, file.path());
      if (is_tail(page)) {
        footer->end_offset = offset + kFooterPageBytes;
        footer->skipped_bytes = end - footer->end_offset;
        return page;
      }
      if (page.status().code() == Code::kUnsupported) return page.status();
      if (offset + kFooterPageBytes == pages_end) footer->skipped_reason = page.status();
    }
    chunk_end = start;
    chunk.resize(kScanChunkBytes);
  }
  return corruption("{}: no footer in {} bytes; if epochs were committed, run `swale verify`", file.path(),
                    end);
}

Status read_extents(io::File& file, uint32_t partition, Footer* footer) {
  std::vector<std::vector<char>> pages;
  std::vector<io::ReadRequest> requests;
  for (const FooterExtent& extent : footer->extents) {
    auto& out = pages.emplace_back(size_t{extent.pages} * kFooterPageBytes);
    requests.push_back({.offset = extent.offset, .out = out, .got = 0, .status = {}});
    footer->bytes_read += out.size();
  }
  file.read_many(requests);
  footer->reads += requests.size();
  footer->depth += requests.empty() ? 0 : 1;
  for (const io::ReadRequest& request : requests) {
    SWALE_RETURN_IF_ERROR(request.status);
    for (size_t at = 0; at < request.out.size(); at += kFooterPageBytes) {
      const PageContext context{file.path(), request.offset + at};
      if (request.got < at + kFooterPageBytes)
        return context.damaged("the file is cut off within the footer");
      SWALE_ASSIGN_OR_RETURN(const FooterPage page,
                             decode_footer_page(view(request.out.subspan(at, kFooterPageBytes)), partition,
                                                context.offset, file.path()));
      if (page.kind != FooterPageKind::kSealed || page.first_record != footer->segments.size() ||
          page.record_count != kFooterRecordsMax) {
        return context.damaged("expected another footer page there");
      }
      footer->segments.insert(footer->segments.end(), page.records, page.records + page.record_count);
    }
  }
  return {};
}

}  // namespace

Result<FooterPage> decode_footer_page(Bytes bytes, uint32_t partition, uint64_t page_offset,
                                      std::string_view path) {
  const PageContext context{path, page_offset};
  if (bytes.size() != kFooterPageBytes) {
    return context.damaged(
        fmt::format("expected a footer page of {} bytes, found {}", kFooterPageBytes, bytes.size()));
  }
  if (get_u64(bytes.data()) != kFooterMagic) return context.damaged("no footer page there");
  const uint32_t found = crc32c_extend(partition_seed(partition), bytes.substr(0, kFooterPageBytes - 4));
  const uint32_t expected = get_u32(bytes.data() + kFooterPageBytes - 4);
  if (found != expected) {
    return context.damaged(
        fmt::format("the footer page has checksum {:08x}, expected {:08x}", found, expected));
  }
  FooterPage page;
  std::memcpy(static_cast<void*>(&page), bytes.data(), sizeof(page));
  if (page.version > kFormatVersion) return context.newer(fmt::format("format version {}", page.version));
  if ((page.incompatible_features & ~kIncompatibleFeatures) != 0) {
    return context.newer(fmt::format("unknown feature bits {:#x}", page.incompatible_features));
  }
  if (page.version == 0 || page.partition != partition || page.page_offset != page_offset ||
      page.kind > FooterPageKind::kSealed || page.record_count > kFooterRecordsMax ||
      page.extent_count > kFooterExtentsMax || page.first_record > kSegmentsMax ||
      (page.kind == FooterPageKind::kSealed && page.extent_count != 0)) {
    return context.damaged("the footer page has impossible numbers or is of another place");
  }
  for (uint32_t i = 0; i < page.record_count; ++i)
    SWALE_RETURN_IF_ERROR(check_segment(page.records[i], context));
  if (page.kind == FooterPageKind::kTail) SWALE_RETURN_IF_ERROR(check_extents(page, context));
  return page;
}

Result<Footer> read_footer(io::File& index_log, uint32_t partition) {
  Footer footer;
  SWALE_ASSIGN_OR_RETURN(const uint64_t end, index_log.size());
  SWALE_ASSIGN_OR_RETURN(const FooterPage tail, find_tail(index_log, partition, end, &footer));
  footer.segments.reserve(tail.first_record + tail.record_count);
  footer.extents.assign(tail.extents, tail.extents + tail.extent_count);
  SWALE_RETURN_IF_ERROR(read_extents(index_log, partition, &footer));
  footer.segments.insert(footer.segments.end(), tail.records, tail.records + tail.record_count);
  return footer;
}

FooterBuilder FooterBuilder::resume(uint32_t partition, const Footer& footer, size_t keep) {
  assert(keep <= footer.segments.size());
  FooterBuilder builder(partition);
  builder.segments_.assign(footer.segments.begin(),
                           footer.segments.begin() + static_cast<std::ptrdiff_t>(keep));
  builder.large_values_ = std::any_of(builder.segments_.begin(), builder.segments_.end(), is_values_segment);
  for (const FooterExtent& extent : footer.extents) {
    const size_t end = extent.first_record + size_t{extent.pages} * kFooterRecordsMax;
    if (end > keep) break;
    builder.extents_.push_back(extent);
    builder.sealed_ = end;
  }
  return builder;
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

void FooterBuilder::append_page(FooterPageKind kind, size_t first_record, size_t count, uint64_t page_offset,
                                std::string* out) const {
  FooterPage page;
  std::memset(static_cast<void*>(&page), 0, sizeof(page));
  page.magic = kFooterMagic;
  page.version = kFormatVersion;
  page.incompatible_features = large_values_ ? uint32_t{kLargeValuesFeature} : 0;
  page.partition = partition_;
  page.page_offset = page_offset;
  page.kind = kind;
  page.first_record = static_cast<uint32_t>(first_record);
  page.record_count = static_cast<uint32_t>(count);
  std::copy_n(segments_.data() + first_record, count, page.records);
  if (kind == FooterPageKind::kTail) {
    page.extent_count = static_cast<uint32_t>(extents_.size());
    std::copy(extents_.begin(), extents_.end(), page.extents);
  }
  char bytes[sizeof(page)];
  std::memcpy(bytes, &page, sizeof(page));
  put_u32(bytes + sizeof(page) - 4, crc32c_extend(partition_seed(partition_), {bytes, sizeof(page) - 4}));
  out->append(bytes, sizeof(bytes));
}

std::string FooterBuilder::encode(uint64_t index_offset) {
  assert(index_offset % kIndexAlignment == 0);
  std::string out;
  if (segments_.size() - sealed_ > kFooterRecordsMax) {
    if (extents_.size() == kFooterExtentsMax) {
      extents_.clear();
      sealed_ = 0;
    }
    const size_t pages = (segments_.size() - sealed_ - 1) / kFooterRecordsMax;  // at least one record stays
    extents_.push_back({.offset = index_offset,
                        .pages = static_cast<uint32_t>(pages),
                        .first_record = static_cast<uint32_t>(sealed_)});
    for (size_t i = 0; i < pages; ++i, sealed_ += kFooterRecordsMax) {
      append_page(FooterPageKind::kSealed, sealed_, kFooterRecordsMax, index_offset + out.size(), &out);
    }
  }
  append_page(FooterPageKind::kTail, sealed_, segments_.size() - sealed_, index_offset + out.size(), &out);
  return out;
}

}  // namespace swale::run
