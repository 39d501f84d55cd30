// ExtremaSummary: which partitions have the greatest and the least numbers of an epoch, for each indexed
// field. Merged up the tree of the epoch protocol, appended by rank 0 at commit to jobs/NNNN/extrema, read by
// top-k queries.
//
// Only the kPartitionsMax best partitions of each direction are kept. Merging keeps that true: a partition
// that is not among the best of a part is not among the best of the whole.
// Format:
//   summary := magic u64 "SWALETOP" | version u32 = 1 | epoch_id u64 | fields u8 | field{fields} |
//              crc32c u32 of all before
//   field   := nans u64 | absent u64 | partitions u32 | extrema of the maxima | extrema of the minima
//   extrema := count u8 = min(partitions, 64) | (partition u32 | order key of its extremum u64){count}
// nans and absent are over all partitions; partitions is the number of those that have a number. The best
// come first, equal ones by partition. docs/formats/extrema.md has order keys, and where summaries stand.
// Threads: values. Limits: kIndexedFieldsMax fields, 12.5 KB encoded.
// Errors of decoding: kCorruption; a reader can do without a summary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "io/device.h"
#include "run/extrema.h"

namespace swale::imd {

struct ExtremaSummary {
  static constexpr size_t kPartitionsMax = 64;

  struct Entry {
    PartitionNumber partition = {};
    run::OrderKey key = 0;  // its best
    bool operator==(const Entry&) const = default;
  };
  struct FieldSummary {
    uint64_t nans = 0;
    uint64_t absent = 0;
    uint32_t partitions = 0;     // that have a number
    std::vector<Entry> best[2];  // by Extreme; the best first

    bool operator==(const FieldSummary&) const = default;
  };
  std::vector<FieldSummary> fields;

  bool empty() const { return fields.empty(); }
  // Of one partition.
  static ExtremaSummary of(PartitionNumber partition, const std::vector<run::FieldTotals>& totals);
  // The two have the same number of fields, or one of them is empty.
  void merge(const ExtremaSummary& other);

  void append_to(std::string* out) const;
  static ExtremaSummary read(Decoder* in);  // the decoder fails for impossible numbers

  std::string encode_file(uint64_t epoch_id) const;
  static Result<ExtremaSummary> decode_file(Bytes bytes, uint64_t epoch_id, const std::string& path);

  bool operator==(const ExtremaSummary&) const = default;
};

inline constexpr uint64_t kSummaryMagic = 0x504f5445'4c415753;  // "SWALETOP": in a file
inline constexpr size_t kSummaryBytesMax = 64 * kKiB;

// The summary of a committed epoch of `manifest`'s directory. kCorruption if there is none or it is damaged;
// readers can do without.
Result<ExtremaSummary> read_summary(io::Device& device, const std::string& directory,
                                    const EpochEntry& epoch);

}  // namespace swale::imd
