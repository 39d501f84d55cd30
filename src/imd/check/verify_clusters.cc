#include "imd/check/verify_clusters.h"

#include <memory>
#include <utility>

#include "imd/format/cluster_list.h"
#include "imd/format/series.h"

namespace swale::imd {
namespace {

// What the series of the cluster say of epochs that the directory has.
Status compare_series(Reader& reader, const ClusterEntry& cluster, const Manifest& manifest) {
  SeriesTally tally(static_cast<uint32_t>(cluster.epochs.size()));
  uint64_t series = 0;
  bool known = true;
  SWALE_RETURN_IF_ERROR(reader.scan(0, [&](EpochNumber, Bytes key, Bytes value) {
    ++series;
    return known = tally.take(key, value);
  }));
  if (!known || !tally.complete() || series != cluster.series) {
    return corruption("{}: {} series; expected {} whole ones; `swale optimize --full` makes it anew",
                      reader.directory(), series, cluster.series);
  }
  for (size_t i = 0; i < cluster.epochs.size(); ++i) {
    const EpochEntry* const epoch = manifest.find_epoch(cluster.epochs[i].epoch, cluster.epochs[i].epoch_id);
    if (epoch == nullptr) continue;
    const RecordTally& found = tally.tallies()[i];
    if (found == RecordTally{epoch->records, epoch->data_bytes, epoch->digest}) continue;
    return corruption(
        "{}: has {} records of epoch {} with the digest {:016x}, the epoch log says {} with {:016x}; `swale "
        "optimize --full` makes it anew",
        reader.directory(), found.records, epoch->epoch, found.digest, epoch->records, epoch->digest);
  }
  return {};
}

}  // namespace

void verify_clusters(const ReaderFiles& files, const Manifest& manifest, size_t problems_max,
                     VerifyReport* report) {
  const auto tell = [&](const Status& problem) {
    if (!problem.ok() && report->problems.size() < problems_max) report->problems.push_back(problem);
  };
  const Result<ClusterList> list = load_clusters(files.device, files.directory);
  if (!list.ok()) return tell(list.status());
  for (const ClusterEntry& cluster : list->clusters) {
    if (report->problems.size() >= problems_max) return;
    ++report->clusters;
    const auto reader =
        Reader::open(files.device, cluster_folder(files.directory, cluster.number), files.options);
    if (!reader.ok()) {
      tell(reader.status());
      continue;
    }
    const Manifest& own = (*reader)->manifest();
    if (own.epochs.size() != 1 || own.epochs[0].epoch_id != cluster.epoch_id) {
      tell(corruption("{}: is not the cluster {:016x} that the list of clusters names",
                      (*reader)->directory(), cluster.epoch_id));
      continue;
    }
    VerifyReport inside = verify_directory(**reader, problems_max - report->problems.size());
    report->bytes_checked += inside.bytes_checked;
    for (Status& problem : inside.problems) tell(problem);
    if (inside.problems.empty()) tell(compare_series(**reader, cluster, manifest));
  }
}

}  // namespace swale::imd
