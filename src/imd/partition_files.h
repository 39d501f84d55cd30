// PartitionFiles: the logs of one partition, opened for appending after what the manifest has committed.
// Threads: execute may be called for several requests at once (their ranges never overlap).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "imd/manifest.h"
#include "imd/partition.h"
#include "imd/value_log.h"
#include "io/io_queue.h"
#include "run/footer.h"

namespace swale::imd {

class PartitionFiles {
 public:
  // Opens or creates the logs of `partition`; changes nothing in them. Index logs that end before an epoch which the
  // manifest promises are kCorruption.
  static Result<PartitionFiles> open(io::Device& device, const std::string& directory, uint32_t partition,
                                     const Manifest& manifest);

  // Cuts off, with a log message, what lies behind the last committed epoch: a crashed epoch's tail, or epochs that were
  // dropped. Before anything is written.
  Status cut_tails();

  // The request as an operation of an IoQueue; makes room ahead of writes to the data log.
  io::Operation operation(const IoRequest& request, uint64_t tag);
  // Carries it out at once.
  Status execute(const IoRequest& request) { return io::execute(operation(request, 0)).status; }

  // Gives back the room that was made ahead of writes. Requires that no operation is in flight.
  Status trim();

  uint64_t data_end_block() const { return data_end_block_; }
  uint64_t index_end() const { return index_end_; }
  run::FooterBuilder take_footer() { return std::move(footer_); }
  // What this rank appends that is too large for records.
  ValueLog& values() { return *values_; }

 private:
  PartitionFiles(std::unique_ptr<io::File> data, std::unique_ptr<io::File> index, run::FooterBuilder footer)
      : data_(std::move(data)), index_(std::move(index)), footer_(std::move(footer)) {}

  Status resume(uint32_t partition, const Manifest& manifest);

  std::unique_ptr<io::File> data_;
  std::unique_ptr<io::File> index_;
  std::unique_ptr<ValueLog> values_;
  run::FooterBuilder footer_;
  uint64_t data_end_block_ = 0;
  uint64_t index_end_ = 0;
  uint64_t values_end_ = 0;
  uint64_t written_end_ = 0;  // of the data log
};

}  // namespace swale::imd
