// Appender: the application's end of a Writer on one rank, as a passive machine. A record goes into the frame
// of its home rank (Batcher) or, in a job of one rank, straight into a memtable (DirectIntake); a large value
// goes to the value log, and in a directory of the indirect format any value of 12 bytes or more to this
// rank's value pages. In the lossy format records go to this rank's memtables and hashes of their keys to
// their homes (KeyBatcher; KeyStage where they go by three hops). Threads (writer.cc) and the simulation
// drive the same object.
//
// An append touches only memory of the Appender's own. If it cannot go on, it says what it needs; the driver
// asks the core for that (provide), waits where the core has none, and appends again:
//
//   append ─► Need kNothing: done
//             Need kFrame, kRoom, kIntake ─► provide ─► true: append again; false: wait for can_provide
//             Need kHome: the partitioner names no rank; nothing was done
//
// Threads: none; the owner serialises calls, as DirectIntake says, and those that name a core with its lock,
// too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/format/partitioner.h"
#include "imd/write/batcher.h"
#include "imd/write/direct_intake.h"
#include "imd/write/key_batcher.h"
#include "imd/write/key_stage.h"
#include "imd/write/page_log.h"
#include "imd/write/value_lengths.h"
#include "imd/write/value_log.h"
#include "imd/write/writer_core.h"
#include "run/record.h"

namespace swale::imd {

struct AppenderParams {
  uint32_t ranks = 1;
  PartitionNumber own = {};
  bool lossy = false;  // records stay here, and hashes of keys go to their homes
  Partitioner partitioner = {};
  // what does not fit goes to the value log, or to pages
  size_t record_bytes_max = run::kEncodedRecordBytesMax;
  Batcher::Frames frames = Batcher::Frames::kOneEach;
  // In the lossy format with frames for all: the stage of keys, and what the route's messages hold.
  size_t key_stage_bytes = 0;
  size_t key_message_bytes_max = 0;
  ValueLog* values = nullptr;  // outlives the Appender, as does
  PageLog* pages = nullptr;    // which takes its place in a directory of the indirect format
  size_t prefix_bytes = 0;     // of a value in either that stand in its record, for the schema's fields
  run::Schema schema = {};     // what a value consists of, and so its length
  uint64_t job_id = 0;
  EpochNumber first_epoch = {};
};

class Appender {
 public:
  struct Need {
    enum class What : int32_t { kNothing, kFrame, kRoom, kIntake, kHome };
    What what = What::kNothing;
    int32_t which = 0;  // the frame's destination, or the way

    const char* text() const;  // "a free frame"
  };

  explicit Appender(const AppenderParams& params);

  // Requires a key and a value that do not go elsewhere.
  Need append(Bytes key, Bytes value) { return append_as(key, key, value); }
  // The same where records go into frames (not direct()) and stand in them whole (not goes_elsewhere()).
  // False: nothing was done, and append says why.
  bool append_to_frame(Bytes key, Bytes value) { return batcher_.append(key, value) == Batcher::kAccepted; }
  // The same for a record that is encoded.
  Need append(const run::RecordView& record) { return append_as(record.key, record); }
  // Whether write_value must be called first. Also for sizes that cannot be appended: it says why.
  bool goes_elsewhere(Bytes key, Bytes value) const {
    return key.size() - 1 >= run::kKeyBytesMax || !inline_lengths_.fit(value.size()) ||
           key.size() + value.size() > row_bytes_max_;
  }
  // Writes the value to the value log or to pages. The record that points to it, to be appended in the same
  // epoch, is good until the next call. kInvalidArgument, and nothing was done: sizes, a length that the
  // schema does not have, or a key without a home.
  Result<run::RecordView> write_value(Bytes key, Bytes value);
  // Why a key has no home: kInvalidArgument.
  Status nowhere(Bytes key) const;

  // Gets from the core what an append needs. False: the core has none.
  bool provide(WriterCore* core, Need need);
  bool can_provide(const WriterCore& core, Need need) const;

  // Gives the epoch's keys to frames. Call before end_epoch until nothing is needed; no append in between.
  Need finish_keys() { return !stage_ || stage_->finish() ? Need{} : Need{Need::What::kFrame, 0}; }
  // Hands the epoch's values to the file. To be called before end_epoch; no append in between.
  Status finish_values() { return params_.pages != nullptr ? params_.pages->finish_epoch() : Status(); }
  // What is appended from here on belongs to the next epoch. Requires that the epoch before is committed.
  void end_epoch(WriterCore* core, int64_t step, double time, const net::CallStamp& call = {});
  uint32_t epochs_ended() const { return epochs_ended_; }
  uint64_t records_of_open_epoch() const { return batcher_.tally().records + intake_.tally().records; }

  // Whether records go straight into this rank's memtables.
  bool direct() const { return params_.ranks == 1 || params_.lossy; }
  DirectIntake& intake() { return intake_; }

 private:
  template <class... Record>
  Need append_as(Bytes key, const Record&... record);
  template <class... Record>
  Need append_lossy(Bytes key, const Record&... record);
  net::Frame exchange(net::Rank rank, net::Frame next);
  void begin_values();

  const AppenderParams params_;
  const ValueLengths inline_lengths_;  // of values that stand in their records
  const size_t row_bytes_max_;         // of key and value: with the longest header within record_bytes_max
  Batcher batcher_;
  KeyBatcher keys_;  // in the lossy format, of several ranks, or
  std::optional<KeyStage> stage_;
  DirectIntake intake_;
  uint32_t epochs_ended_ = 0;
  std::string record_;  // of the last write_value
};

// First the place for the key's hash, then the record: nothing is done by halves.
template <class... Record>
Appender::Need Appender::append_lossy(Bytes key, const Record&... record) {
  const Hash hash = hash_bytes(key);
  const HashChoice home = choose(hash, params_.ranks);
  const auto rank = static_cast<net::Rank>(home.index);
  if (stage_) {
    if (!stage_->has_room() && !stage_->make_room()) return {Need::What::kFrame, 0};
  } else if (!keys_.has_room(rank)) {
    return {Need::What::kFrame, rank};
  }
  if (intake_.closed()) return {Need::What::kIntake, 0};
  const Partition::Appended appended = intake_.append(home.rest, record...);
  if (appended.row == nullptr) return {Need::What::kRoom, static_cast<int32_t>(appended.way)};
  stage_ ? stage_->push(hash) : keys_.push(rank, home.rest);
  return {};
}

template <class... Record>
Appender::Need Appender::append_as(Bytes key, const Record&... record) {
  if (params_.lossy && params_.ranks > 1) return append_lossy(key, record...);
  if (params_.ranks > 1) {
    const net::Rank full = batcher_.append(record...);
    if (full == Batcher::kAccepted) [[likely]]
      return {};
    return {full == Batcher::kNowhere ? Need::What::kHome : Need::What::kFrame, full};
  }
  if (!params_.partitioner.has_home(key, 1)) return {Need::What::kHome, 0};
  if (intake_.closed()) return {Need::What::kIntake, 0};
  const Partition::Appended appended = intake_.append(hash_bytes(key), record...);
  if (appended.row != nullptr) [[likely]]
    return {};
  return {Need::What::kRoom, static_cast<int32_t>(appended.way)};
}

}  // namespace swale::imd
