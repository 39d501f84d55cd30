// The collective opening of a massive directory for writing. Rank 0 takes the writer's lock, makes or reads
// the directory and claims the job's number; then every rank creates its own logs; all ranks learn of every
// rank's failure and return one status. The job's generation, which also drops epochs as
// WriterOptions::resume_after says, is written last (finish_opening), when every rank is sure that it can
// write: a failure to open loses nothing.
//
// Ranks agree on everything that the format or the protocol depends on, and on the directory itself: each
// finds rank 0's lock through its own path.
//
// Threads: one at a time per job.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "imd/format/generation.h"
#include "imd/format/manifest.h"
#include "imd/write/appender.h"
#include "imd/write/committer.h"
#include "imd/write/open_environment.h"
#include "imd/write/partition_files.h"
#include "imd/write/writer_core.h"
#include "imd/write/writer_lock.h"
#include "imd/write/writer_options.h"
#include "io/device.h"
#include "net/job/agree.h"

namespace swale::imd {

struct OpenedDirectory {
  std::string directory;
  // anchored: the directory as it was when it was opened, wherever its path leads
  std::unique_ptr<io::Device> device;
  // of the generation that this job makes; its own job is the last one. Epochs: on rank 0 only
  Manifest manifest;
  uint64_t job_id = 0;           // the same on all ranks, as are
  uint32_t number = 0;           // the job's number, which it has claimed, and
  EpochNumber first_epoch = {};  // the number of its first epoch
  // WriterOptions::Steps::kIncreasing: the next epoch's step is greater than this one. None: it may be any.
  std::optional<int64_t> last_step = {};
  uint32_t superseded = 0;  // write_generation's
  size_t dropped = 0;       // epochs that are not in `manifest` any more
  std::optional<PartitionFiles> files;
  std::unique_ptr<SourceHome> source_home;
  std::unique_ptr<WriterLock> lock;   // on rank 0
  std::optional<EpochLog> epoch_log;  // on rank 0, once the opening is finished

  // On rank 0: whether this job may still commit.
  JobFence fence() const { return {*device, directory, number, lock.get()}; }
  // What this rank's machines are made with. `talk`: rank, size, channel and secret; the rest is the memory
  // plan's.
  WriterCoreParams core_params(net::Conversation::Params talk, const MemoryPlan& memory, uint32_t ways) const;
  AppenderParams appender_params(PartitionNumber own, uint32_t ranks, const Partitioner& partitioner,
                                 const MemoryPlan& memory);
  // Before core_params: in the lossy format, if there are several ranks.
  Status make_source_home(int32_t ranks, const MemoryPlan& memory);
  // On rank 0, once, when the opening is finished.
  Committer committer(const Clock& clock);
  // Takes the names of the files that this rank has made: the opening has failed.
  void discard();
};

// Collective: kInvalidArgument, naming the option and the ranks, if ranks differ in what the format or the
// protocol depends on, or in `create`.
Status agree_on_options(const net::Ranks& ranks, Create create, const WriterOptions& options);

Result<OpenedDirectory> open_directory(const net::Ranks& ranks, io::Device& device,
                                       const OpenEnvironment& environment, const std::string& directory,
                                       Create create, const WriterOptions& options);

// Makes this job's generation the newest one. A failure of the storage in here may leave epochs dropped
// although the directory was not opened.
Status finish_opening(const net::Ranks& ranks, OpenedDirectory* opened);

// Collective: makes an empty massive directory; kAlreadyExists if the path is taken.
Status make_massive_directory(net::Job& job, io::Device& device, const std::string& directory,
                              const WriterOptions& options = {});

}  // namespace swale::imd
