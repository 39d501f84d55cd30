// PageLog: the writing end of one rank's value pages, part-NNNNNN.jNNNN.pages, in a directory of the indirect
// format: takes every value that does not stand in its record (run/value_pages.h).
//
//   append(value) ─► page ─► 16 pages ─► pwrite by the appending thread; finish_epoch writes what is left
//
// The file is made by the first value. Pointers become durable by the file's sync at the end of the epoch.
// Threads: one at a time; the file's sync may go on during an append.
// Errors: those of the device, kResourceExhausted after 4 TiB. After one the log is of no use.
// Memory: 64 KiB from the first value on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/format/log_names.h"
#include "imd/write/value_log.h"
#include "io/device.h"
#include "run/value_pages.h"

namespace swale::imd {

class PageLog {
 public:
  // Makes no file yet. `device` must outlive the log.
  PageLog(io::Device& device, const std::string& directory, LogId log)
      : device_(&device),
        folder_(log_folder(directory, log)),
        path_(value_pages_path(directory, log)),
        writer_(log.partition) {}

  // Requires that the epoch before was finished.
  void begin_epoch(EpochNumber epoch, uint64_t epoch_id);
  // Requires kPagePointerBytes to kLargeValueBytesMax bytes.
  Result<run::ValuePointer> append(Bytes value);
  // Hands all of the epoch to the file. No more values in it.
  Status finish_epoch();
  // In the open epoch; the range once it is finished.
  const WrittenValues& written() const { return written_; }

  io::File* file() const { return file_.get(); }  // none before the first value

 private:
  static constexpr size_t kBufferPages = 16;

  Status make_file();
  char* page() { return buffer_.data() + (page_number_ - first_buffered_) * run::kValuePageBytes; }
  uint64_t position() const { return page_number_ * run::kValuePagePayloadBytes + page_bytes_; }
  Status end_page();
  Status write_buffer();

  io::Device* device_;
  std::string folder_;
  std::string path_;
  PartitionNumber writer_;
  std::unique_ptr<io::File> file_;
  std::vector<char> buffer_;
  uint64_t first_buffered_ = 0;  // the number of the page at the buffer's front
  uint64_t page_number_ = 0;     // of the page that is being filled
  size_t page_bytes_ = 0;        // of its payload
  uint16_t page_values_ = 0;     // that begin in it
  uint16_t first_start_ = run::kNoValueStarts;
  EpochNumber epoch_;
  uint64_t epoch_id_ = 0;
  WrittenValues written_;
};

}  // namespace swale::imd
