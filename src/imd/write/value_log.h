// ValueLog: the writing end of one rank's value log, part-NNNNNN.jNNNN.values: takes values that are too
// large for a record.
//
// The file is made by the first value: a directory without large values has none. Values are written straight
// from the caller's memory; pointers to them (run/value_format.h) become durable by the file's sync at the
// end of the epoch.
// Threads: one at a time; the file's sync may go on beside an append.
// Errors: those of the device. After one the log is of no use.
// Memory: 4 bytes per 64 KiB of the value being written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "io/device.h"
#include "run/value_format.h"

namespace swale::imd {

// What one epoch has in a value log.
struct WrittenValues {
  run::ValueRange range;
  LargeTally tally;
};

class ValueLog {
 public:
  // Makes no file yet. `device` must outlive the log.
  ValueLog(io::Device& device, const std::string& directory, LogId log)
      : device_(&device),
        folder_(log_folder(directory, log)),
        path_(value_log_path(directory, log)),
        writer_(log.partition) {}

  void begin_epoch(EpochNumber epoch, uint64_t epoch_id);
  // Requires at least one and at most kLargeValueBytesMax bytes.
  Result<run::ValuePointer> append(Hash key_hash, Bytes value);
  // In the open epoch.
  const WrittenValues& written() const { return written_; }

  io::File* file() const { return file_.get(); }  // none before the first value

 private:
  Status make_file();
  Status write_value(uint32_t seed, Bytes value, run::ValueHead* head);

  io::Device* device_;
  std::string folder_;
  std::string path_;
  PartitionNumber writer_;
  std::unique_ptr<io::File> file_;
  uint64_t end_ = 0;
  EpochNumber epoch_;
  uint64_t epoch_id_ = 0;
  WrittenValues written_;  // in the open epoch
};

}  // namespace swale::imd
