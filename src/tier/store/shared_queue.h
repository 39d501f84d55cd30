// SharedQueue: the buffers of writes, in a file on the SSD that is mapped shared: what is in them outlives
// the process.
//
//   queue := slot*                      at index * stride, a multiple of 4,096
//   slot  := queued_record head payload tail
//
// queued_record (64 bytes, log_format.h, type kQueued) is whole exactly while the write is acknowledged and
// its bytes stand nowhere else; its address is its place in this file. The payload begins kHeadBytes behind
// it; its checks end where it begins. The rest of head and tail is space for the header and the end of a
// record in the log, so that all of that goes there in one write; it means nothing here.
//
// Threads: distinct slots are independent. Errors: kNoSpace before anything is mapped: the file has all its
// blocks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/device.h"
#include "tier/log/log_format.h"
#include "tier/policy/options.h"

namespace swale::tier {

class SharedQueue {
 public:
  static Result<std::unique_ptr<SharedQueue>> create(io::Device& device, const std::string& path,
                                                     uint32_t slots, uint32_t slot_bytes, uint64_t log_id);
  ~SharedQueue();
  SharedQueue(const SharedQueue&) = delete;
  SharedQueue& operator=(const SharedQueue&) = delete;

  // From a slot's begin to its payload.
  static constexpr uint64_t kHeadBytes = 2 * kRecordHeaderBytes + checks_bytes_of(kWriteBytesMax);
  static constexpr uint32_t kAlignmentMax = 4096;  // of a log

  char* payload(uint32_t slot) { return begin(slot) + kHeadBytes; }
  MutableBytes checks(uint32_t slot, uint32_t length) {
    return {payload(slot) - checks_bytes_of(length), checks_bytes_of(length)};
  }
  // The record of the log as it goes there: header, checks, payload, end. `record` has the payload's check.
  Bytes log_record(uint32_t slot, const RecordHeader& record, uint32_t alignment);
  // From now on a killed process leaves this write behind. `record` has the payload's check.
  void seal(uint32_t slot, RecordHeader record);
  void clear(uint32_t slot);
  Status sync();  // after a change of the file's size: the payloads need none

  uint32_t slots() const { return slots_; }
  uint32_t slot_bytes() const { return slot_bytes_; }
  const std::string& path() const { return path_; }

  // The writes that a killed process has left in the file, as records whose payload_address is its place in
  // the file. Slots that were never sealed, or whose seal is torn, hold nothing. `damaged`: sealed slots
  // whose payload fails its checks, as after a loss of power: they had been acknowledged.
  static Result<std::vector<RecordHeader>> left_in(io::File& file, uint64_t log_id,
                                                   std::vector<DamagedRecord>* damaged);
  // How many slots look sealed, but by none of these logs.
  static Result<uint64_t> unknown_in(io::File& file, const std::vector<uint64_t>& log_ids);

 private:
  SharedQueue() = default;
  static Result<std::unique_ptr<SharedQueue>> make(std::unique_ptr<io::File> file, const std::string& path,
                                                   uint32_t slots, uint32_t slot_bytes, uint64_t log_id);
  char* begin(uint32_t slot) { return memory_ + slot * stride_; }

  std::string path_;
  std::unique_ptr<io::File> file_;
  char* memory_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t stride_ = 0;
  uint64_t log_id_ = 0;
  uint32_t slots_ = 0;
  uint32_t slot_bytes_ = 0;
};

}  // namespace swale::tier
