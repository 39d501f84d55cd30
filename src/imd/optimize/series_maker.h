// SeriesMaker: makes the series of each key of a stripe, in the order of hashes (then of keys), and reads
// them back to add up what they hold.
//
//   rows of the stripe ─► by the next bits of their hashes ─► sorted ─► series ─► chunks of a run
//
// Memory: 32 bytes a record, which stay for the next stripe, and the chunks: about as long as the stripe.
// Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/format/record_tally.h"
#include "imd/format/series.h"
#include "imd/optimize/stripe.h"
#include "run/ordered_records.h"

namespace swale::imd {

// The series of a stripe as records of a run, in the order of hashes.
struct SeriesBatch {
  std::vector<run::ChunkPool::Chunk> chunks;
  uint64_t records = 0;
  uint64_t series = 0;
  uint64_t bytes = 0;  // of keys and series
  uint64_t read_bytes = 0;

  // Where a record of so many bytes can be written: of the last chunk.
  char* reserve(size_t record_bytes, run::ChunkPool& pool) {
    if (!chunks.empty()) {
      if (char* const at = chunks.back()->space(record_bytes); at != nullptr) [[likely]]
        return at;
    }
    chunks.push_back(pool.take());
    return chunks.back()->space(record_bytes);
  }
  // The record of the key whose series was written there.
  void add(const run::RecordView& record) {
    chunks.back()->add(record);
    ++series;
    bytes += record.key.size() + record.value.size();
  }
};

class SeriesMaker {
 public:
  static constexpr uint64_t kBytesPerRecord = sizeof(Hash) + sizeof(StripeRow);  // beside row and series

  // The value that a record points to; called by any thread. A failure ends the pass. May be empty: pointers
  // stay.
  using ResolveFn = std::function<Result<std::string>(uint32_t index, Bytes key, Bytes stored)>;
  SeriesMaker(uint32_t epochs, SeriesLayout layout, const ResolveFn& resolve,
              std::shared_ptr<run::ChunkPool> pool);

  // What `batch` had before is forgotten.
  Status make(const Stripe& stripe, SeriesBatch* batch);
  // What all series that were made hold, epoch by epoch.
  std::vector<RecordTally> tallies() const { return tally_.tallies(); }

 private:
  void count(const Stripe& stripe);
  void sort(const Stripe& stripe);
  void sort_long_buckets();
  std::span<StripeRow> next_hash(size_t begin, bool* usual);
  Status put_usual(std::span<const StripeRow> rows, SeriesBatch* batch);
  Status put_hash(std::span<StripeRow> rows, SeriesBatch* batch);
  Status put_key(std::span<const StripeRow> rows, SeriesBatch* batch);
  Status put_values(Bytes key, size_t most, SeriesBatch* batch);
  Status put_slowly(std::span<const StripeRow> rows, SeriesBatch* batch);
  void know_usual(uint32_t first, size_t count, size_t value_bytes);
  Status finish(MutableBytes key, MutableBytes series, char* record, SeriesBatch* batch);
  template <class Write>
  Status put_record(Bytes key, size_t most, SeriesBatch* batch, Write&& write);

  // What the last usual series and its record began with. Nearly always the next ones begin alike.
  struct Usual {
    uint32_t first = 0;
    size_t count = 0;  // 0: nothing is known
    size_t value_bytes = 0;
    std::array<char, 8> sizes = {};  // of key and series, encoded
    size_t sizes_bytes = 0;
    std::array<char, 16> head = {};
    size_t head_bytes = 0;
  };

  const SeriesLayout layout_;
  const ResolveFn resolve_;
  const std::shared_ptr<run::ChunkPool> pool_;
  SeriesTally tally_;
  uint32_t shift_ = 0;
  std::vector<uint32_t> bucket_ends_;
  std::vector<Hash> hashes_;
  size_t rows_ = 0;  // of the stripe, at the front of sorted_
  std::vector<StripeRow> sorted_;
  std::vector<SeriesValue> values_;  // of one key
  Usual usual_;
};

}  // namespace swale::imd
