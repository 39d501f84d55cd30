// The epoch log: jobs/NNNN/epochs, which says what epochs a generation of the directory has. A commit is one
// appended record and one sync, so that the cost of an epoch does not depend on how many there were.
//
// The log holds all epochs of its directory: job NNNN copies the records of the generation that it continues
// and then appends its own. Nobody else ever writes to it.
//
// Format: docs/formats/epochs.md. Slots of 256 bytes: a header, then one slot an epoch. A slot holds its
// 128-byte record twice, so that one damaged record does not pass for an append that was torn.
// Invariants: (1) slot i + 1 is epoch i; (2) a record is appended when all before it are durable, so only the
// last slot can be torn.
// Threads: an EpochLog belongs to one thread at a time; the others are free functions.
// Limits: kEpochsMax epochs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "imd/format/manifest.h"
#include "io/device.h"

namespace swale::imd {

inline constexpr size_t kEpochSlotBytes = 256;
inline constexpr size_t kEpochRecordBytes = kEpochSlotBytes / 2;
inline constexpr uint64_t kEpochsMax = uint64_t{1} << 24;

class EpochLog {
 public:
  // Makes jobs/NNNN/epochs with the epochs of `manifest`, durable. kAlreadyExists if there is one.
  static Result<EpochLog> create(io::Device& device, const std::string& directory, uint32_t job,
                                 const Manifest& manifest);

  // Durable when it returns OK. After a failure the log has no such epoch, unless the storage fails to take
  // it back.
  Status append(const EpochEntry& epoch, const Manifest& manifest);
  // Takes the last record back, durably. Requires one that this log has appended.
  Status take_back();

  uint64_t epochs() const { return epochs_; }

 private:
  explicit EpochLog(std::unique_ptr<io::File> file) : file_(std::move(file)) {}

  std::unique_ptr<io::File> file_;
  uint64_t epochs_ = 0;
};

// What is in an epoch log.
struct EpochLogContent {
  std::vector<EpochEntry> epochs;
  uint64_t torn_bytes = 0;      // after the last record
  uint64_t damaged_copies = 0;  // records with one damaged copy: the other was taken
  uint64_t damaged_offset = 0;  // of the first of them
};

// Reads the log of generation `manifest.generation`; `manifest` names the jobs that records refer to and how
// many epochs there must be (epochs_promised). kNotFound if the log is missing; kCorruption for one that is
// damaged.
Result<EpochLogContent> read_epoch_log(io::Device& device, const std::string& directory,
                                       const Manifest& manifest);

// For repair: the records that are whole, whatever is wrong with the rest of the log.
struct SalvagedEpochs {
  struct Record {
    EpochEntry epoch;         // its `job` is not set
    uint32_t job_number = 0;  // the job that wrote it
  };
  std::vector<std::optional<Record>> records;  // by number; none: damaged. The last one is whole
  std::optional<uint32_t> generation;          // whose log it is, by its header; none: the header is damaged
  uint64_t tail_slots = 0;                     // after the last whole record: torn or damaged
};
// kNotFound if the log is missing; kUnsupported for a newer format.
Result<SalvagedEpochs> salvage_epoch_log(io::Device& device, const std::string& directory, uint32_t job);

// One slot, whatever log it is of: for `swale dump`.
struct EpochSlot {
  enum class Kind { kHeader, kRecord, kUnknown };
  Kind kind = Kind::kUnknown;
  std::array<bool, 2> whole = {};  // which copies have the right checksum
  uint32_t version = 0;            // of a header
  uint32_t job = 0;  // number: of the log's job (header), of the job that wrote the epoch (record)
  EpochEntry epoch;  // of a record; its `job` is not set
};
// `index`: 0 is the header, i + 1 epoch i.
EpochSlot inspect_epoch_slot(Bytes slot, uint64_t index);

}  // namespace swale::imd
