// FreedSource: a cluster that a pass reads in the place of logs, for epochs that no log has any more.
// Threads: a value.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "imd/read/reader_clusters.h"

namespace swale::imd {

struct FreedSource {
  static constexpr uint32_t kNone = UINT32_MAX;

  std::shared_ptr<Cluster> cluster;
  // By epoch of the cluster: its place among the epochs that the pass copies; kNone: another has it, or
  // nobody needs it.
  std::vector<uint32_t> indexes = {};
};

}  // namespace swale::imd
