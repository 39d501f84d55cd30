// ReaderFiles: how a Reader reads its directory.
// ReadQueue: reads of any number of files that do not wait for one another, so many of them in flight at a time; and
// the counters that a Reader keeps. All reads of queries and scans pass through here, but those that find their bytes
// mapped (PartitionLogs).
//
// Threads: a ReadQueue belongs to one thread at a time; ReadCounters are thread-safe.
// Errors: kCorruption that names file, offset and lengths if a file ends before what was asked for.
//   After an exception, as after a failure, reads may be in flight: the destructor, and finish before it leaves, wait for them.
// Ownership: files and memory belong to the caller and must outlive next's answer, or cancel. So a ReadQueue is declared
//   after the memory that it reads into.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/metrics.h"
#include "base/status.h"
#include "imd/read/reader.h"
#include "io/device.h"
#include "io/io_queue.h"

namespace swale::imd {

struct ReadCounters {
  Counter bytes_read;
  Counter reads;
  HighWater depth_max;
  Counter queries;
  Counter false_candidates;

  ReadStats snapshot() const {
    return {bytes_read.value(), reads.value(), depth_max.value(), queries.value(), false_candidates.value()};
  }
};

// How a Reader reads its directory: what all that read for it share. The reader owns everything; so does repair of its own.
struct ReaderFiles {
  io::Device& device;
  std::string directory;
  ReaderOptions options;
  ReadCounters& counters;
};

class ReadQueue {
 public:
  // The IoQueue (Device::make_read_queue) is made when there is something to read.
  ReadQueue(io::Device& device, size_t in_flight_max) : device_(&device), in_flight_max_(in_flight_max) {}
  // Reads by the files' own blocking calls, one after the other: for who reads large pieces.
  explicit ReadQueue(size_t in_flight_max) : in_flight_max_(in_flight_max) {}
  ~ReadQueue() { cancel(); }

  void add(io::File& file, uint64_t offset, MutableBytes out, uint64_t tag);

  // Gives what was added to the device, as far as it may be in flight. next does so, too.
  Status submit();

  // The tag of a read that is complete, waiting for one; none if there are no more. A read that failed is its failure.
  Result<std::optional<uint64_t>> next();

  // All that were added, whole; the first failure if one fails. None is left afterwards.
  Status finish();

  // Forgets all reads. Waits for what is in flight, by giving its IoQueue up; allocates nothing.
  void cancel() noexcept;

  bool empty() const { return open_ == 0; }

 private:
  Status make_queue();
  Status check(const io::Completion& completion) const;
  size_t in_flight() const { return queue_ ? queue_->in_flight() : 0; }

  // A queue has room for so many; what may be in flight beyond waits in its submit.
  static constexpr size_t kQueueDepthMax = 256;

  io::Device* const device_ = nullptr;
  const size_t in_flight_max_;
  std::unique_ptr<io::IoQueue> queue_;
  std::vector<io::Operation> operations_;  // tagged with their index, the owner's tags stand in tags_
  std::vector<uint64_t> tags_;
  std::vector<io::Completion> completions_;
  size_t submitted_ = 0;  // of operations_
  size_t taken_ = 0;      // of completions_
  size_t open_ = 0;       // added, and not yet handed out
};

// Bytes that were found wrong (`found`, kCorruption, of `first`) are read once more, into other memory and by the file's
// own call. OK: they are right this time, in `second`; a warning says so, once a process. Else `found`, and what the
// second read says: a damaged file gives the same bytes again; memory, a bus or a device that errs gives others.
// Other failures than kCorruption are returned as they are.
Status read_again(io::File& file, uint64_t offset, Bytes first, MutableBytes second, const Status& found,
                  const std::function<Status(Bytes)>& check);

}  // namespace swale::imd
