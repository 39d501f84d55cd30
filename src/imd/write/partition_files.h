// PartitionFiles: the logs of one partition that one job writes. The job creates them and no other job ever
// writes to them, so nothing in them is cut or written over once it is committed.
// Threads: execute may be called for several requests at once (their ranges never overlap).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "imd/format/log_names.h"
#include "imd/write/page_log.h"
#include "imd/write/partition.h"
#include "imd/write/value_log.h"
#include "io/io_queue.h"

namespace swale::imd {

class PartitionFiles {
 public:
  // Creates the logs, empty. kAlreadyExists if there are logs of this name.
  static Result<PartitionFiles> create(io::Device& device, const std::string& directory, LogId log);

  // The request as an operation of an IoQueue; makes room ahead of writes to the data log.
  io::Operation operation(const IoRequest& request, uint64_t tag);
  // Carries it out at once.
  Status execute(const IoRequest& request) { return io::execute(operation(request, 0)).status; }

  // Gives back the room that was made ahead of writes. Requires that no operation is in flight.
  Status trim();
  // Removes the files, of a job that could not open its directory. Failures are ignored: nothing refers to
  // the files.
  void discard(io::Device& device);

  LogId log() const { return log_; }
  // What this rank appends that is too large for records.
  ValueLog& values() { return *values_; }
  // In a directory of the indirect format: what it appends.
  PageLog& pages() { return *pages_; }

 private:
  PartitionFiles(LogId log, std::unique_ptr<io::File> data, std::unique_ptr<io::File> index,
                 std::unique_ptr<ValueLog> values, std::unique_ptr<PageLog> pages)
      : data_(std::move(data)),
        index_(std::move(index)),
        values_(std::move(values)),
        pages_(std::move(pages)),
        log_(log) {}
  // A rank uses one of the two at most.
  io::File* values_file() const { return pages_->file() != nullptr ? pages_->file() : values_->file(); }

  std::unique_ptr<io::File> data_;
  std::unique_ptr<io::File> index_;
  std::unique_ptr<ValueLog> values_;
  std::unique_ptr<PageLog> pages_;
  LogId log_;
  uint64_t written_end_ = 0;  // of the data log
};

}  // namespace swale::imd
