// The collective opening of a massive directory for writing: rank 0 makes or reads it and takes the writer's lock,
// then every rank opens its own logs; all ranks learn of every rank's failure and return one status. Nothing of an
// earlier job is changed until every rank is sure that it can write (finish_opening), so that a failure to open loses
// nothing, not even what WriterOptions::resume_after is to drop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "imd/manifest.h"
#include "imd/partition_files.h"
#include "imd/writer.h"
#include "imd/writer_lock.h"
#include "io/device.h"
#include "net/job.h"

namespace swale::imd {

struct OpenedDirectory {
  std::string directory;
  Manifest manifest;
  uint64_t job_id = 0;                  // the same on all ranks
  std::optional<int64_t> resume_after;  // what rank 0 says
  size_t dropped =
      0;  // epochs that are not in `manifest` any more, but still in the file until finish_opening
  std::optional<PartitionFiles> files;
  std::optional<WriterLock> lock;  // on rank 0
};

Result<OpenedDirectory> open_directory(net::Job& job, io::Device& device, const std::string& directory,
                                       Writer::Create create, const WriterOptions& options);

// Drops epochs as resume_after says, in swale.json and durably, and then cuts off what the logs have behind the others.
// A failure of the storage in here may leave them dropped although the directory was not opened.
Status finish_opening(net::Job& job, io::Device& device, OpenedDirectory* opened);

// agree (agree.h) among the job's ranks.
Status agree(net::Job& job, const Status& mine);

}  // namespace swale::imd
