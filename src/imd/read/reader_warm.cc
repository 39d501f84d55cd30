#include "imd/read/reader_warm.h"

#include <algorithm>
#include <vector>

#include "io/device.h"
#include "run/segment_reader.h"

namespace swale::imd {
namespace {

constexpr size_t kWarmReadBytes = kMiB;

// Puts slices of one segment into the cache.
class SegmentWarmer {
 public:
  SegmentWarmer(const ReaderFiles& files, const PartitionLogs& logs, const run::SegmentRecord& segment)
      : files_(files), logs_(logs), segment_(segment), seed_(run::segment_seed(logs.id.partition, segment)) {}

  Status run(Warmed* warmed) {
    if (segment_.runs == 0) return {};
    const uint32_t slices = uint32_t{1} << segment_.slice_bits;
    const auto at_once = static_cast<uint32_t>(std::max<size_t>(kWarmReadBytes / segment_.stride, 1));
    for (uint32_t first = 0; first < slices && !warmed->full; first += at_once) {
      const uint32_t end = std::min(slices, first + at_once);
      bytes_.resize(size_t{segment_.stride} * (end - first));
      SWALE_RETURN_IF_ERROR(read(run::slice_location(segment_, first).offset, bytes_));
      for (uint32_t slice = first; slice < end && !warmed->full; ++slice) {
        const Bytes bytes(bytes_.data() + size_t{segment_.stride} * (slice - first), segment_.stride);
        SWALE_RETURN_IF_ERROR(take(run::slice_location(segment_, slice), bytes, warmed));
      }
    }
    return {};
  }

 private:
  Status read(uint64_t offset, std::vector<char>& out) {
    files_.counters.reads.add();
    files_.counters.bytes_read.add(out.size());
    return io::read_exactly(*logs_.index, offset, MutableBytes(out.data(), out.size()));
  }

  Status take(const run::SliceLocation& location, Bytes bytes, Warmed* warmed) {
    Result<run::Slice> slice = run::Slice::open_seeded(segment_, seed_, location, bytes, logs_.index->path());
    if (!slice.ok()) return {};
    if (const auto overflow = slice->overflow()) {
      overflow_.resize(overflow->bytes);
      SWALE_RETURN_IF_ERROR(read(overflow->offset, overflow_));
      if (!slice->attach_overflow({overflow_.data(), overflow_.size()}).ok()) return {};
    }
    ReadCache::Name name = logs_.cache_name(segment_);
    name.offset = location.offset;
    warmed->full = !files_.options.cache->put(name, slice->bytes(), {}, ReadCache::Admit::kIfItFits);
    if (!warmed->full) warmed->bytes += ReadCache::cost_of(slice->bytes().size());
    return {};
  }

  const ReaderFiles& files_;
  const PartitionLogs& logs_;
  const run::SegmentRecord& segment_;
  const uint32_t seed_;
  std::vector<char> bytes_;
  std::vector<char> overflow_;
};

}  // namespace

Status warm_segments(const ReaderFiles& files, const PartitionLogs& logs,
                     std::span<const run::SegmentRecord> segments, Warmed* warmed) {
  for (const run::SegmentRecord& segment : segments) {
    if (warmed->full) break;
    SWALE_RETURN_IF_ERROR(SegmentWarmer(files, logs, segment).run(warmed));
  }
  return {};
}

}  // namespace swale::imd
