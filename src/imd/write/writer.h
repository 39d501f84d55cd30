// Writer: the writing end of a massive directory on one rank: the threads around WriterCore.
//
// append → Batcher → [Router → wire → Router] → delivery queue → Partition (memtables → runs → logs) → epoch end.
// The state machines are passive (writer_core.h); this class gives them threads: the application's own, the job's
// progress thread, and the workers and the storage thread that all open directories of the process share.
//
// Threads: append by any number of threads; the others are collective and made by one thread at a time.
// Errors: the first failure is kept, on all ranks, and no epoch is committed after it: every call answers kAborted with
// that cause. kInvalidArgument (scope operation) of append and epoch_end_begin changes nothing and is no such failure;
// whatever else an append answers is. What throws, for want of memory or in a partitioner, is a failure of that call or,
// on a thread of Swale's own, of the writer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/metrics.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "imd/format/partitioner.h"
#include "imd/write/appender.h"
#include "io/device.h"
#include "io/lock_file.h"
#include "net/job.h"
#include "run/layout.h"
#include "run/schema.h"

namespace swale::imd {

// What `make bench-imd-ablation` changes to see what it is worth; nobody else should. No options of the library.
struct Ablation {
  // kWait: the job's progress thread waits for room in the memtables, as DeltaFS's did before it had a delivery queue
  // (deltafs-scaling-2018, section IV-D). What a peer sends ahead of its epoch is queued all the same.
  enum class Delivery { kQueue, kWait };
  Delivery delivery = Delivery::kQueue;
  // 0: as many as the memory plan says. 1 with one way: sorting and writing take turns, as in DeltaFS before multi-way
  // indexing.
  uint32_t output_buffers_max = 0;
};

struct WriterOptions {
  size_t memory_bytes = 0;  // 0: 3 % of RAM / ranks on the fullest node, at most 64 MiB
  uint32_t ways = 1;
  size_t frame_bytes = 32 * kKiB;
  uint16_t window = 4;
  // kIncreasing: the end of an epoch whose step is not greater than the last epoch's is kInvalidArgument, and the epoch
  // stays open. All ranks give the same.
  enum class Steps : uint8_t { kAny, kIncreasing };
  Steps steps = Steps::kAny;
  // Epochs behind the last one of at most this step are dropped before the writer goes on. All ranks give the same.
  std::optional<int64_t> resume_after = {};
  // Of a directory that is made; an existing one must have the same. None: no compression, sketches, 10 bits.
  std::optional<Codec> compression = {};
  std::optional<run::IndexKind> index = {};
  std::optional<uint32_t> bloom_bits = {};
  Partitioner partitioner = {};  // of this job; all ranks give the same name
  io::LeaseOptions lease = {};   // of swale.lock
  // How long the end of an epoch or the close waits for ranks that live and do not come to it. None: without limit.
  Nanos collective_deadline = kForever;
  run::Schema schema = {};  // of a directory that is made; of an existing one it must be the same, or empty
  Ablation ablation = {};
};

class Writer {
 public:
  virtual ~Writer() = default;

  enum class Create { kNever, kIfMissing, kExclusive };

  // Collective: all ranks return the same status code. A rank that throws gives the job up (net::Job::give_up): the
  // others are told, and the job opens nothing more.
  static Result<std::unique_ptr<Writer>> open(net::Job& job, io::Device& device, const std::string& directory,
                                              Create create, const WriterOptions& options);

  virtual Status append(Bytes key, Bytes value) = 0;
  // What takes most records of a job of one rank, in short code. False: append must be asked.
  bool append_quickly(Bytes key, Bytes value) { return appender_.intake().append_quickly(key, value); }
  virtual Status epoch_end(int64_t step, double time) = 0;  // collective; begin and wait in one
  // Begins to end the epoch. What is appended from here on belongs to the next one, and may be appended at once: sorting,
  // writing and the commit go on meanwhile. kInvalidArgument while an earlier one has not been waited for. Collective.
  virtual Status epoch_end_begin(int64_t step, double time) = 0;
  // Waits until the epoch that was begun to end is committed; OK at once if there is none. Collective.
  virtual Status epoch_end_wait() = 0;

  // No sorting and no writing on this rank until resume, so that the application has its cores. Records from other ranks
  // are received all the time. What needs room goes on by itself: an append that finds the buffers full, records of
  // other ranks that do, and epoch_end_wait. Not collective.
  virtual void pause() = 0;
  virtual void resume() = 0;

  virtual Status close() = 0;  // collective
  virtual const std::string& directory() const = 0;
  virtual MetricsSnapshot metrics() const = 0;

 protected:
  explicit Writer(const AppenderParams& params) : appender_(params) {}

  Appender appender_;
};

// Begins a collective call on `job`: the ranks tell each other whether they can make it, and that it is the same one.
Status begin_collective(net::Job& job, net::CallKind kind, const std::string& path, const Status& mine);

// Collective: makes an empty massive directory; kAlreadyExists if the path is taken.
Status make_massive_directory(net::Job& job, io::Device& device, const std::string& directory,
                              const WriterOptions& options = {});

}  // namespace swale::imd
