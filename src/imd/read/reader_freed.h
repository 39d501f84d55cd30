// FreedEpochs: the records of epochs that only clusters have (`swale optimize --free`), for whoever reads
// whole epochs. All series of the cluster are read, and those values are taken that are of the epoch: of a
// cluster of G epochs an epoch costs G times its bytes.
//
// Records come in the order of the hashes of their keys; those of one key as they were appended. Such an
// epoch has one partition. Its pieces are whole runs of the cluster, whose partitions they name, cut where no
// value goes on in the next run.
// Threads: any number. Memory: as a scan of the cluster, and one value.
// Errors: kCorruption that names file and offset in the cluster; there is no other copy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "imd/format/manifest.h"
#include "imd/format/series.h"
#include "imd/read/reader.h"
#include "imd/read/reader_clusters.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_scan.h"

namespace swale::imd {

class FreedEpochs {
 public:
  // `clusters` may be null. `why`: what is wrong with the list of clusters. `manifest` must outlive it.
  FreedEpochs(const Manifest& manifest, std::shared_ptr<ClusterSet> clusters, std::string directory,
              Status why)
      : manifest_(manifest),
        clusters_(std::move(clusters)),
        directory_(std::move(directory)),
        why_(std::move(why)) {}

  // kCorruption if an epoch of them is freed and no cluster has it.
  Status check(EpochNumber first, EpochNumber last) const;

  // As pieces_of and scan_blocks, of a freed epoch; `records` of a piece and `damaged` count series.
  Result<std::vector<Reader::ScanPiece>> pieces(const ReaderFiles& files, const EpochEntry& epoch,
                                                uint64_t blocks_min,
                                                const Reader::DamageFn& damaged = {}) const;
  Status scan(const ReaderFiles& files, const EpochEntry& epoch, const Reader::ScanPiece& piece,
              const ScanFn& fn, bool* stopped, const Reader::DamageFn& damaged = {}) const;
  Status scan_all(const ReaderFiles& files, const EpochEntry& epoch, const ScanFn& fn, bool* stopped) const;

 private:
  struct Place {
    Cluster* cluster;
    uint32_t index;  // of the epoch in it
  };
  Result<Place> place_of(const EpochEntry& epoch) const;

  const Manifest& manifest_;
  const std::shared_ptr<ClusterSet> clusters_;
  const std::string directory_;
  const Status why_;
};

// Runs of a cluster, cut where no value goes on in the next one, at least `blocks_min` blocks each. Reads the
// header and the last blocks of every run.
Result<std::vector<Reader::ScanPiece>> series_pieces(const ReaderFiles& files, const PartitionLogs& logs,
                                                     const EpochEntry& own, uint64_t blocks_min,
                                                     const Reader::DamageFn& damaged = {});

}  // namespace swale::imd
