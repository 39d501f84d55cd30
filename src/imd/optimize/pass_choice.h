// choose_epochs: which epochs a pass copies into its cluster, and which clusters stay.
//
//   clusters that are half dead, or cannot be opened, go ─► so do those of similar length ─► of the epochs
//   that no cluster has then, as many as have runs whose chunks fit into memory
//
// Threads: functions. Errors: kCorruption if the list of clusters is damaged and epochs are in clusters
// alone, or if an index log cannot be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "imd/format/cluster_list.h"
#include "imd/format/manifest.h"
#include "imd/optimize/freed_source.h"
#include "imd/read/reader_io.h"

namespace swale::imd {

struct PassRules {
  bool full = false;        // one cluster of all epochs
  uint64_t epochs_min = 1;  // with fewer to copy there is nothing to do
  size_t memory_bytes = 0;  // of each rank
  uint32_t ranks = 1;       // that share the pass
};

struct PassChoice {
  ClusterList list = {};                  // clusters that stay
  std::vector<EpochNumber> epochs = {};   // to copy, ascending; fewer than epochs_min: nothing is done
  std::vector<FreedSource> sources = {};  // clusters that go, and have what no log has
  uint64_t epochs_lost = 0;               // left alone: parts of them are lost
  uint64_t epochs_left = 0;               // for the next pass: their runs do not fit into memory
};

// `files` and `manifest` must outlive the sources.
Result<PassChoice> choose_epochs(const ReaderFiles& files, const Manifest& manifest, const PassRules& rules);

// Has each freed epoch be read from one of the sources.
void point_sources(const Manifest& manifest, std::span<const EpochNumber> epochs,
                   std::span<FreedSource> sources);

// The epochs that no cluster of the list has, but logs have, and of which nothing is lost.
std::vector<EpochNumber> epochs_to_optimize(const Manifest& manifest, const ClusterList& list);

}  // namespace swale::imd
