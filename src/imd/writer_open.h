// The collective opening of a massive directory for writing: rank 0 makes or reads it and takes the writer's lock,
// then every rank opens its own logs; all ranks learn of every rank's failure and return one status.
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
  uint64_t job_id = 0;  // the same on all ranks
  std::optional<PartitionFiles> files;
  std::optional<WriterLock> lock;  // on rank 0
};

Result<OpenedDirectory> open_directory(net::Job& job, io::Device& device, const std::string& directory,
                                       Writer::Create create, const WriterOptions& options);

// agree (agree.h) among the job's ranks.
Status agree(net::Job& job, const Status& mine);

}  // namespace swale::imd
