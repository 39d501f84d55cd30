// ReaderFiles: how a Reader reads its directory.
// ReadQueue: independent reads of any number of files, with a limited number in flight; and the counters of a
// Reader. All reads of queries and scans pass through here, except those that find their bytes mapped
// (PartitionLogs).
//
// Threads: a ReadQueue belongs to one thread at a time; ReadCounters are thread-safe.
// Errors: kCorruption that names file, offset and lengths if a file ends before what was asked for.
//   After an exception or a failure, reads may be in flight: the destructor waits for them, and so does
//   finish before it returns.
// Ownership: files and memory belong to the caller; they must live until next has returned the read, or until
// cancel. So
//   declare a ReadQueue after the memory that it reads into.
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
  Counter blocks_decompressed;  // by queries
  Counter cache_hits;
  Counter cache_misses;

  ReadStats snapshot() const {
    return {.bytes_read = bytes_read.value(),
            .reads = reads.value(),
            .depth_max = depth_max.value(),
            .queries = queries.value(),
            .false_candidates = false_candidates.value(),
            .cache_hits = cache_hits.value(),
            .cache_misses = cache_misses.value()};
  }
};

// How a Reader reads its directory, shared by all its parts. The Reader owns everything; repair owns its own.
struct ReaderFiles {
  io::Device& device;
  std::string directory;
  ReaderOptions options;
  ReadCounters& counters;
};

class ReadQueue {
 public:
  // Makes its IoQueue (Device::make_read_queue) at the first read.
  ReadQueue(io::Device& device, size_t in_flight_max) : device_(&device), in_flight_max_(in_flight_max) {}
  // Reads by the files' own blocking calls, one after the other: for callers that read large pieces.
  explicit ReadQueue(size_t in_flight_max) : in_flight_max_(in_flight_max) {}
  ~ReadQueue() { cancel(); }

  void add(io::File& file, uint64_t offset, MutableBytes out, uint64_t tag);

  // Submits added reads to the device, up to the limit in flight. next does so, too.
  Status submit();

  // Waits for a completed read and returns its tag; none if there are no more. If the read failed, returns
  // its failure.
  Result<std::optional<uint64_t>> next();

  // Completes all added reads; returns the first failure, if any. No read is left afterwards.
  Status finish();

  // Forgets all reads. Waits for those in flight by destroying its IoQueue; allocates nothing.
  void cancel() noexcept;

  bool empty() const { return open_ == 0; }

 private:
  Status make_queue();
  Status check(const io::Completion& completion) const;
  size_t in_flight() const { return queue_ ? queue_->in_flight() : 0; }

  // The capacity of the queue; its submit waits if more reads are allowed in flight.
  static constexpr size_t kQueueDepthMax = 256;

  io::Device* const device_ = nullptr;
  const size_t in_flight_max_;
  std::unique_ptr<io::IoQueue> queue_;
  std::vector<io::Operation> operations_;  // tagged with their index; tags_ has the owner's tags
  std::vector<uint64_t> tags_;
  std::vector<io::Completion> completions_;
  size_t submitted_ = 0;  // of operations_
  size_t taken_ = 0;      // of completions_
  size_t open_ = 0;       // added and not yet returned
};

// Reads wrong bytes (`found` is kCorruption of `first`) once more, into other memory and by the file's own
// call. OK: they are right this time, in `second`; a warning says so, once per process. Otherwise returns
// `found` with the result of the second read: a damaged file returns the same bytes again; faulty memory, a
// bus or a device returns others. Other failures than kCorruption are returned as they are.
Status read_again(io::File& file, uint64_t offset, Bytes first, MutableBytes second, const Status& found,
                  const std::function<Status(Bytes)>& check);

}  // namespace swale::imd
