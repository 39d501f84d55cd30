// LossList: ranges of files whose newest acknowledged bytes are lost, as `.swale-tier/lost` of the backing
// directory keeps them. A read of such a range fails until the range is overwritten or the user accepts the
// loss: the bytes that the backing device has there are older.
//
// Format: a sealed document (base/sealed_document.h) "swale-tier-losses"; docs/formats/tier-log.md. Written
// anew, in one piece, whenever the list changes. Losses are rare: 150 bytes a range are no matter.
// Threads: plain values and pure functions. Errors: kCorruption names the file, line and member.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace swale::tier {

// DO NOT CHANGE THE NAMES: they stand in lists.
enum class LossReason : uint8_t {
  kDamaged,     // "damaged": the record fails its checksums
  kUnreadable,  // "unreadable": the SSD does not give the record back
  kNotWritten,  // "not-written": the backing device refused a write that was acknowledged from the queue
  kTwoFiles,    // "two-files": two files had the id of the record
};
std::string_view loss_reason_name(LossReason reason);

struct LostRange {
  uint64_t file = 0;  // the file's persistent id
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t sequence = 0;  // of the record that had these bytes
  uint64_t address = 0;   // of that record in the log; kNoAddress: it was in no log
  LossReason reason = LossReason::kDamaged;
  bool accepted = false;  // stays in the list while the record's remains may stand in the log

  static constexpr uint64_t kNoAddress = ~uint64_t{0};
  friend bool operator==(const LostRange&, const LostRange&) = default;
};

struct LossList {
  uint64_t log_id = 0;  // sequences and addresses are this log's
  std::vector<LostRange> ranges;
};

std::string encode_loss_list(const LossList& list);
// `path` names the file in messages.
Result<LossList> decode_loss_list(Bytes text, const std::string& path);

}  // namespace swale::tier
