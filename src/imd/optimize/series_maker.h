// SeriesMaker: makes the series of each key of a stripe, in the order of hashes (then of keys), and reads
// them back to add up what they hold.
//
//   rows of the stripe ─► by the next bits of their hashes ─► sorted ─► series ─► batch
//
// Memory: 32 bytes a record, and the batch: about as long as the stripe. Both stay for the next stripe.
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/status.h"
#include "imd/format/record_tally.h"
#include "imd/format/series.h"
#include "imd/optimize/stripe.h"

namespace swale::imd {

// Series one after the other: key_bytes u16 | series_bytes u16 | key | series.
struct SeriesBatch {
  static constexpr size_t kHeadBytes = 4;

  std::vector<char> memory;
  size_t used = 0;
  uint64_t records = 0;
  uint64_t series = 0;
  uint64_t read_bytes = 0;

  uint64_t bytes() const { return used - kHeadBytes * series; }  // of keys and series
  void clear() { used = records = series = read_bytes = 0; }
  // Where so many bytes can be written.
  char* reserve(size_t bytes) {
    if (memory.size() - used < bytes) memory.resize(std::max(memory.size() * 2, used + bytes));
    return memory.data() + used;
  }
  // fn(key, series), until one fails. Series come from another core's cache: they are fetched ahead.
  template <class Fn>
  Status walk(Fn&& fn) const {
    constexpr ptrdiff_t kFetchAhead = 1024;
    constexpr ptrdiff_t kLineBytes = 64;
    const char* const end = memory.data() + used;
    const char* fetched = memory.data();
    for (const char* at = memory.data(); at != end;) {
      for (; fetched < end && fetched - at < kFetchAhead; fetched += kLineBytes) __builtin_prefetch(fetched);
      const Bytes key(at + kHeadBytes, get_u16(at));
      const Bytes series_bytes(key.data() + key.size(), get_u16(at + 2));
      SWALE_RETURN_IF_ERROR(fn(key, series_bytes));
      at = series_bytes.data() + series_bytes.size();
    }
    return {};
  }
};

class SeriesMaker {
 public:
  static constexpr uint64_t kBytesPerRecord = sizeof(Hash) + sizeof(StripeRow);  // beside row and series

  // The value that a record points to; called by any thread. A failure ends the pass. May be empty: pointers
  // stay.
  using ResolveFn = std::function<Result<std::string>(uint32_t index, Bytes key, Bytes stored)>;
  SeriesMaker(uint32_t epochs, const ResolveFn& resolve);

  // What `batch` had before is forgotten.
  Status make(const Stripe& stripe, SeriesBatch* batch);
  // What all series that were made hold, epoch by epoch.
  std::span<const RecordTally> tallies() const { return tally_.tallies(); }

 private:
  void count(const Stripe& stripe);
  void sort(const Stripe& stripe);
  void sort_long_buckets();
  void fetch_ahead(size_t at) const;
  size_t next_hash(size_t begin, bool* usual) const;
  Status put_usual(std::span<const StripeRow> rows, SeriesBatch* batch);
  Status put_hash(std::span<StripeRow> rows, SeriesBatch* batch);
  Status put_key(std::span<const StripeRow> rows, SeriesBatch* batch);
  Status put_values(Bytes key, size_t most, SeriesBatch* batch);
  Status put_slowly(std::span<const StripeRow> rows, SeriesBatch* batch);
  Status finish(Bytes key, Bytes series, SeriesBatch* batch);

  const ResolveFn resolve_;
  SeriesTally tally_;
  uint32_t shift_ = 0;
  std::vector<uint32_t> bucket_ends_;
  std::vector<Hash> hashes_;
  std::vector<StripeRow> sorted_;
  std::vector<SeriesValue> values_;  // of one key
};

}  // namespace swale::imd
