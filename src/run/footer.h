// Footer: the list of a partition's segments, oldest first, and how the index log keeps it.
//
// Each epoch's segments are followed by one footer: the newest records, and *extents* that name earlier footers,
// whose records come before. A reader finds the last footer at the file's end and reads all extents in parallel:
// two reads one after the other, however many epochs there are (three if the last footer is longer than a page).
//
// What a footer costs must fit the epoch that it ends, so its length follows from the bytes of that epoch:
//   - Each footer repeats the records of the footers before it until the repeated records are kFooterShare of the
//     epoch's bytes (within kFooterRecordBytesMin and Max). Then the footer is *full*: the next ones name it as an
//     extent, and begin a new list.
//   - When four extents of similar length stand at the end of the list, the next footer takes their records over.
//     So a record is written again once for each factor of four, and the list has less than kFooterExtentsMax
//     extents: three for each factor of two, at most 60.
// Records are coded as what differs from the record before: about 23 bytes instead of 64.
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

inline constexpr uint32_t kFooterShare = 128;  // a full footer's records take this part of its epoch's bytes
inline constexpr uint32_t kFooterRecordBytesMin = 160;
inline constexpr uint32_t kFooterRecordBytesMax = 3'072;  // leaves room for extents in a page
inline constexpr size_t kExtentsMerged = 4;

struct Footer {
  std::vector<SegmentRecord> segments;  // oldest first; which epochs count is said by swale.json (epoch_id)
  std::vector<FooterExtent> extents;
  uint64_t end_offset = 0;     // of the footer's last byte plus one: where the next epoch's segments go
  uint64_t skipped_bytes = 0;  // behind it: a torn or damaged tail
  Status skipped_reason;       // why the file's last bytes are no footer
  uint64_t reads = 0;          // that it took, and
  uint64_t bytes_read = 0;
  uint32_t depth = 0;  // how many of them after one another
};

// One footer as it is stored.
struct FooterPart {
  FooterTrailer trailer = {};
  std::vector<SegmentRecord> records;
  std::vector<FooterExtent> extents;
};

// A footer's bytes. Takes the trailer's other fields as they are and fills in magic, lengths and checksums.
std::string encode_footer(FooterPart part);

// `bytes`: all of the footer, which lies at `offset`. kCorruption if it is not a footer of this partition at this
// offset; kUnsupported if it is one of a newer format.
Result<FooterPart> decode_footer(Bytes bytes, uint32_t partition, uint64_t offset, std::string_view path);

// Reads the footer of an index log: the last valid one at or before its end, and the extents it names.
// kCorruption if there is none. The caller checks that the epochs which it knows to be committed are there:
// if the last footer is damaged, the one found here is older (skipped_reason says why).
Result<Footer> read_footer(io::File& index_log, uint32_t partition);

// For those who look at all that a log holds: calls fn(offset, footer or what is wrong with it) for each place that
// has the magic of a footer's trailer, by offset. Reads the whole log.
Status each_footer(io::File& index_log, uint32_t partition,
                   const std::function<void(uint64_t offset, const Result<FooterPart>&)>& fn);

class FooterBuilder {
 public:
  explicit FooterBuilder(uint32_t partition) : partition_(partition) {}

  // kResourceExhausted at the limit of segments.
  Status add(const SegmentRecord& segment);

  // The bytes to write at `index_offset` (a multiple of kIndexUnit) at the end of an epoch: the footer, perhaps
  // zeros before it.
  std::string encode(uint64_t index_offset);

  std::span<const SegmentRecord> segments() const { return segments_; }

 private:
  void choose_first();
  uint64_t epoch_bytes() const;

  uint32_t partition_;
  std::vector<SegmentRecord> segments_;
  std::vector<FooterExtent> extents_;
  std::optional<FooterExtent> full_;  // the last footer, if the next one is to name it
  size_t first_ = 0;                  // of the records that no extent has
  size_t encoded_ = 0;                // records that were there when encode was called last
  bool large_values_ = false;
};

}  // namespace swale::run
