// EpochCopier: copies epochs of other jobs into the logs of one partition of this job: the same records, ids
// and digests, one rank, one way.
//
//   copy(epoch) … ─► finish(): the index log, both logs synced
//
// Values that lie elsewhere stay there; the copies have their pointers.
// Threads: one. Memory: a memtable, what sorts it, two arenas of sketches.
// Errors: kCorruption if the copy is not what the epoch log says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/check/repair_log.h"
#include "imd/format/manifest.h"
#include "imd/format/run_packer.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "run/memtable.h"
#include "run/run_sort.h"
#include "run/sketch.h"

namespace swale::imd {

class EpochCopier {
 public:
  // Creates the logs. All must outlive it.
  static Result<std::unique_ptr<EpochCopier>> create(const ReaderFiles& files, const Manifest& manifest,
                                                     const JobEntry& job);

  Status copy(const EpochEntry& epoch, PartitionCache& partitions);
  Status finish();

 private:
  struct Copied {
    const EpochEntry* epoch;
    BlockNumber first_block = {};
    std::vector<FoundRun> runs = {};
  };

  EpochCopier(const ReaderFiles& files, const Manifest& manifest, const JobEntry& job, run::Memtable memtable,
              run::RunScratch scratch, run::SketchArena arena)
      : files_(files),
        manifest_(manifest),
        job_(job),
        memtable_(std::move(memtable)),
        scratch_(std::move(scratch)),
        arena_(std::move(arena)) {}
  Status add(const run::ScannedRecord& record);
  bool append(const run::ScannedRecord& record);
  Status write_run();
  LogId log() const { return {job_.number, PartitionNumber(0), manifest_.log_place}; }

  const ReaderFiles& files_;
  const Manifest& manifest_;
  const JobEntry& job_;
  run::Memtable memtable_;
  run::RunScratch scratch_;
  run::SketchArena arena_;
  std::unique_ptr<RunPacker> packer_;  // none: the directory is not compressed
  std::unique_ptr<io::File> data_;
  std::unique_ptr<io::File> index_;
  std::vector<Copied> copied_;
  EpochEntry tally_;  // of the epoch that is copied
  BlockNumber end_block_ = {};
};

}  // namespace swale::imd
