// Batcher: the application's end of the pipeline. Encodes records into one frame per destination rank or,
// where they go by three hops, into one frame for all, each with its home before it: then its memory does not
// grow with the ranks.
//
// A passive state machine. The fast path touches nothing but the destination's own frame; frame memory comes
// from and goes to the owner (WriterCore's pool), so that back-pressure is the owner's wait for a frame.
// Threads: none of its own; the owner serialises calls.
// Format of a frame's payload: records one after the other, each encoded as in run/record.h;
// Frames::kOneForAll: before each
//   u32 home | u16 bytes of the record.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "imd/format/partitioner.h"
#include "imd/format/record_tally.h"
#include "net/talk/frame_pool.h"
#include "run/record.h"

namespace swale::imd {

class Batcher {
 public:
  enum class Frames : uint8_t { kOneEach, kOneForAll };  // kOneForAll: it is that of destination 0
  explicit Batcher(int32_t ranks, Partitioner partitioner = {}, Frames frames = Frames::kOneEach);

  // The next record of what is left of a frame for all; nothing is left after the last one.
  struct Routed {
    net::Rank home;
    Bytes record;
  };
  static Routed take_routed(Bytes* rest);
  // Where `bytes` for `home` go at the end of a frame for all; nullptr: it has no space, and nothing was
  // done.
  static char* place_routed(net::Frame* frame, net::Rank home, size_t bytes);
  static constexpr size_t kRoutedHeadBytes = 6;
  // How many destinations have a frame.
  net::Rank destinations() const { return static_cast<net::Rank>(frames_.size()); }

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
    if (!records_per_rank_.empty()) records_per_rank_.front() += records.records;
    tally_.add(records);
  }

  const RecordTally& tally() const { return tally_; }
  // kOneForAll: empty.
  const std::vector<uint64_t>& records_per_rank() const { return records_per_rank_; }
  void begin_epoch();  // resets the counts; all frames must have been taken

 private:
  net::Rank home_of(Hash hash, Bytes key) const;
  // Where a record of `bytes` for `home` goes, after what it needs; nullptr: the frame of `*destination` has
  // no space.
  char* place_for(net::Rank home, size_t bytes, net::Rank* destination);
  bool for_all() const { return records_per_rank_.empty(); }

  const uint32_t ranks_;
  std::vector<net::Frame> frames_;  // by destination
  std::vector<uint64_t> records_per_rank_;
  RecordTally tally_;
  const Partitioner partitioner_;
};

}  // namespace swale::imd
