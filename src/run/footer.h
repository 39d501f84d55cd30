// Footer: the list of a partition's segments, oldest first, and how the index log keeps it.
//
// Each epoch's segments are followed by one *tail page* with the newest records (at most 56) and up to 28
// *extents*: runs of sealed pages, 56 records each, written earlier. A reader finds everything with the last
// page of the file and then all extents in parallel: one more step of depth once a partition has more than 56
// segments. When a 29th extent would be needed, all sealed records are written again as one extent (once per
// 1,568 segments).
//
// Order of writes: segments, then sealed pages and tail page in one piece, then sync.
// Threads: values. Format: docs/formats/partition.md, "Footer". Limits: kSegmentsMax segments a partition.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "io/device.h"
#include "run/format.h"

namespace swale::run {

struct Footer {
  std::vector<SegmentRecord> segments;  // oldest first; which epochs count is said by swale.json (epoch_id)
  std::vector<FooterExtent> extents;
  uint64_t end_offset = 0;     // of the tail page's last byte plus one: where the next epoch's segments go
  uint64_t skipped_bytes = 0;  // behind it: a torn or damaged tail
  Status skipped_reason;       // what was wrong with the last page, if it was not a footer
  uint64_t reads = 0;          // that it took, and
  uint64_t bytes_read = 0;
  uint32_t depth = 0;  // how many of them after one another
};

// One page, of any kind. kCorruption if it is not a footer page of this partition at this offset;
// kUnsupported if it is one of a newer format.
Result<FooterPage> decode_footer_page(Bytes page, uint32_t partition, uint64_t page_offset,
                                      std::string_view path);

// Reads the footer of an index log: the last valid tail page at or before its end, and the extents it names.
// kCorruption if there is none. The caller checks that the epochs which it knows to be committed are there:
// if the last page is damaged, the one found here is older (skipped_reason says why).
Result<Footer> read_footer(io::File& index_log, uint32_t partition);

class FooterBuilder {
 public:
  explicit FooterBuilder(uint32_t partition) : partition_(partition) {}

  // Goes on behind the first `keep` segments of an existing footer (a later job, or after later epochs were
  // dropped).
  static FooterBuilder resume(uint32_t partition, const Footer& footer, size_t keep);

  // kResourceExhausted at the limit of segments.
  Status add(const SegmentRecord& segment);

  // The bytes to write at `index_offset` (a multiple of 4,096) at the end of an epoch: a multiple of 4,096,
  // the tail page last.
  std::string encode(uint64_t index_offset);

  std::span<const SegmentRecord> segments() const { return segments_; }

 private:
  void append_page(FooterPageKind kind, size_t first_record, size_t count, uint64_t page_offset,
                   std::string* out) const;

  uint32_t partition_;
  std::vector<SegmentRecord> segments_;
  std::vector<FooterExtent> extents_;
  size_t sealed_ = 0;  // segments that extents hold
  bool large_values_ = false;
};

}  // namespace swale::run
