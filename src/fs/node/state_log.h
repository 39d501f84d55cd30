// StateLog: how something stands, on storage: a record that has all of it, and records of what has changed
// since. When these have become long, or one could not be written, a new file begins.
//
//   FOLDER := PREFIX-NUMBER ...    the highest number that has a record counts; others were begun or are over
//   PREFIX-NUMBER := RecordLog     kind as the user says, owner NUMBER; its records have one kind, too
//
// Threads: one at a time. Errors: after a failure nothing has changed on storage. kCorruption names file and
// offset.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/device.h"
#include "store/record_log.h"

namespace swale::fs {

class StateLog {
 public:
  struct Place {
    std::string folder;
    std::string prefix;  // "files-"
    uint16_t kind = 0;   // of the log
    uint16_t record_kind = 0;
  };
  // `visit` gets each payload; false: these bytes are none.
  using Visit = std::function<bool(Bytes payload)>;

  // Reads what is there. begin() comes next.
  static Result<std::unique_ptr<StateLog>> open(io::Device& device, const Place& place, const Visit& visit);

  // A payload, with space before it for what a record needs.
  static std::string new_record() { return std::string(store::kRecordHeadBytes, '\0'); }
  // A new file, which has all; those before it go.
  Status begin(std::string whole) noexcept;
  Status append(std::string change, store::AppendSync sync = store::AppendSync::kNow) noexcept;
  // All that was appended is durable.
  Status sync() noexcept { return log_->create(); }
  // begin() is due in place of append(): `state_bytes` is about what it would take.
  bool is_long(uint64_t state_bytes) const;

 private:
  StateLog(io::Device& device, Place place) : device_(device), place_(std::move(place)) {}
  Status find(const Visit& visit);
  Status read(uint64_t number, const Visit& visit, bool* begun);
  std::string path_of(uint64_t number) const {
    return place_.folder + "/" + place_.prefix + std::to_string(number);
  }

  io::Device& device_;
  const Place place_;
  std::vector<uint64_t> numbers_;  // of the files that are there, descending
  uint64_t sequence_ = 1;
  uint64_t bytes_ = 0;  // written since it was begun
  std::unique_ptr<store::RecordLog> log_;
};

}  // namespace swale::fs
