// Footer: the list of a partition's segments, oldest first, as the index log stores it.
//
// One footer follows the segments of each epoch. It has the newest records, and *extents* that name earlier
// footers with the older records. A reader finds the last footer at the file's end and reads all extents in
// parallel: two successive reads for any number of epochs (three if the last footer is longer than a page).
//
// A footer must be small compared with its epoch, so its length depends on the epoch's bytes:
//   - Each footer repeats the records of earlier footers until the repeated records are kFooterShare of the
//     epoch's bytes (within kFooterRecordBytesMin and Max). Then the footer is *full*: later ones name it as
//     an extent, and begin a new list.
//   - When the list ends with four extents of similar length, the next footer takes over their records. So a
//     record is rewritten once for each factor of four, and the list has fewer than kFooterExtentsMax
//     extents: three for each factor of two, at most 60.
// A record is coded as its difference from the record before: about 23 bytes instead of 64.
//
// A footer of at most a page lies within one page of the file, so that one read gets it.
//
// Order of writes: segments, then the footer, then sync.
// Threads: values. Format: docs/formats/partition.md, "Footer". Limits: kSegmentsMax segments a partition.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "io/device.h"
#include "run/format.h"

namespace swale::run {

inline constexpr uint32_t kFooterShare = 128;  // epoch bytes for each byte of a full footer's records
inline constexpr uint32_t kFooterRecordBytesMin = 160;
inline constexpr uint32_t kFooterRecordBytesMax = 3'072;  // leaves space for extents in a page
inline constexpr size_t kExtentsMerged = 4;

struct Footer {
  std::vector<SegmentRecord> segments;  // oldest first; swale.json says which epochs are committed (epoch_id)
  std::vector<FooterExtent> extents;
  uint64_t end_offset = 0;     // the end of the footer: where the next epoch's segments go
  uint64_t skipped_bytes = 0;  // after it: a torn or damaged tail
  Status skipped_reason;       // why the file's last bytes are not a footer
  uint64_t reads = 0;          // made to get it
  uint64_t bytes_read = 0;
  uint32_t depth = 0;  // successive reads among them
};

// One footer as it is stored.
struct FooterPart {
  FooterTrailer trailer = {};
  std::vector<SegmentRecord> records;
  std::vector<FooterExtent> extents;
};

// Encodes a footer: fills in magic, lengths and checksums; keeps the trailer's other fields.
std::string encode_footer(FooterPart part);

// `bytes`: the whole footer, which lies at `offset`. kCorruption if it is not a footer of this partition at
// this offset; kUnsupported if it has a newer format.
Result<FooterPart> decode_footer(Bytes bytes, PartitionNumber partition, uint64_t offset,
                                 std::string_view path);

// Reads the footer of an index log: the last valid one at or before its end, and the extents it names.
// kCorruption if there is none. The caller must check that all committed epochs are there: if the last footer
// is damaged, this one is older (skipped_reason says why).
Result<Footer> read_footer(io::File& index_log, PartitionNumber partition);

// For tools that inspect a whole log: calls fn(offset, footer or its failure) for each place that has the
// magic of a footer's trailer, by offset. Reads the whole log.
Status each_footer(io::File& index_log, PartitionNumber partition,
                   const std::function<void(uint64_t offset, const Result<FooterPart>&)>& fn);

class FooterBuilder {
 public:
  explicit FooterBuilder(PartitionNumber partition) : partition_(partition) {}

  // kResourceExhausted at the limit of segments.
  Status add(const SegmentRecord& segment);

  // The bytes to write at `index_offset` (a multiple of kIndexUnit) at the end of an epoch: the footer,
  // perhaps after zeros.
  std::string encode(uint64_t index_offset);

  std::span<const SegmentRecord> segments() const { return segments_; }

 private:
  void choose_first();
  uint64_t epoch_bytes() const;

  PartitionNumber partition_;
  std::vector<SegmentRecord> segments_;
  std::vector<FooterExtent> extents_;
  std::optional<FooterExtent> full_;  // the last footer, if the next one is to name it
  size_t first_ = 0;                  // first of the records that are in no extent
  size_t encoded_ = 0;                // number of records at the last call of encode
  bool large_values_ = false;
};

}  // namespace swale::run
