// Batcher: the application's end of the pipeline. Encodes records into one frame per destination rank.
//
// A passive state machine. The fast path touches nothing but the destination's own frame; frame memory comes from
// and goes to the owner (WriterCore's pool), so that back-pressure is the owner's wait for a frame.
// Threads: none of its own; the owner serialises calls.
// Format of a frame's payload: records one after the other, each encoded as in run/record.h.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "imd/format/partitioner.h"
#include "imd/format/record_tally.h"
#include "net/frame_pool.h"
#include "run/record.h"

namespace swale::imd {

class Batcher {
 public:
  explicit Batcher(int32_t ranks, Partitioner partitioner = {});

  // The destination whose frame has to be replaced before the record fits, or kAccepted.
  static constexpr net::Rank kAccepted = -1;
  // Or this: the partitioner has named no rank. Nothing was done.
  static constexpr net::Rank kNowhere = -2;
  // Requires a key and value within the record limits, and frames at least as large as any record.
  net::Rank append(Bytes key, Bytes value);
  // The same for a record that is encoded.
  net::Rank append(const run::RecordView& record);

  // Takes the destination's frame (data == nullptr: it had none) and lends it another (or none).
  net::Frame exchange(net::Rank destination, net::Frame next);

  // Counts records that needed no frame because this rank is alone.
  void count(const RecordTally& records) {
    records_per_rank_.front() += records.records;
    tally_.add(records);
  }

  const RecordTally& tally() const { return tally_; }
  const std::vector<uint64_t>& records_per_rank() const { return records_per_rank_; }
  void begin_epoch();  // resets the counts; all frames must have been taken

 private:
  net::Rank home_of(Hash hash, Bytes key) const;

  std::vector<net::Frame> frames_;  // by destination
  std::vector<uint64_t> records_per_rank_;
  RecordTally tally_;
  const Partitioner partitioner_;
};

}  // namespace swale::imd
