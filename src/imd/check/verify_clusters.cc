#include "imd/check/verify_clusters.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "imd/format/cluster_list.h"
#include "imd/format/series.h"
#include "imd/format/series_values.h"
#include "imd/read/reader_clusters.h"
#include "imd/read/reader_partition.h"
#include "imd/read/reader_values.h"

namespace swale::imd {
namespace {

// What the series of the cluster say of epochs that the directory has.
Status compare_series(const ReaderFiles& files, Reader& reader, const ClusterEntry& cluster,
                      const Manifest& manifest) {
  SeriesTally tally(static_cast<uint32_t>(cluster.epochs.size()));
  const bool freed = std::ranges::any_of(cluster.epochs, [&](const ClusterEntry::Epoch& epoch) {
    const EpochEntry* const entry = manifest.find_epoch(epoch.epoch, epoch.epoch_id);
    return entry != nullptr && entry->freed;
  });
  const std::string_view remedy = freed ? "epochs of it are nowhere else: restore it from a copy"
                                        : "`swale optimize --full` makes it anew";
  ValueReader values(files);
  SeriesValues pointers(static_cast<uint32_t>(cluster.epochs.size()));
  Status value_status;
  uint64_t series = 0;
  bool known = true;
  SWALE_RETURN_IF_ERROR(reader.scan(0, [&](EpochNumber, Bytes key, Bytes value) {
    ++series;
    known = tally.take(key, value);
    if (!known || !manifest.has_moved) return known;
    // Where an epoch has no logs, nobody else looks whether its pointers lead to its values.
    pointers.take(key, value, [&](const SeriesValue& one) {
      const ClusterEntry::Epoch& epoch = cluster.epochs[one.index];
      const EpochEntry* const entry = manifest.find_epoch(epoch.epoch, epoch.epoch_id);
      if (one.kind != SeriesKind::kPoints || entry == nullptr || !entry->freed || !value_status.ok()) return;
      const auto place = ValueReader::place_of(manifest, *entry, key, one.bytes, reader.directory());
      value_status = place.ok() ? values.check(*place) : place.status();
    });
    return value_status.ok();
  }));
  SWALE_RETURN_IF_ERROR(value_status);
  if (!known || !tally.complete() || series != cluster.series) {
    return corruption("{}: {} series; expected {} whole ones; {}", reader.directory(), series, cluster.series,
                      remedy);
  }
  const std::vector<RecordTally> tallies = tally.tallies();
  for (size_t i = 0; i < cluster.epochs.size(); ++i) {
    const EpochEntry* const epoch = manifest.find_epoch(cluster.epochs[i].epoch, cluster.epochs[i].epoch_id);
    if (epoch == nullptr) continue;
    const RecordTally& found = tallies[i];
    if (found == RecordTally{epoch->records, epoch->data_bytes, epoch->digest}) continue;
    return corruption(
        "{}: has {} records of epoch {} with the digest {:016x}, the epoch log says {} with {:016x}; {}",
        reader.directory(), found.records, epoch->epoch, found.digest, epoch->records, epoch->digest, remedy);
  }
  return {};
}

// Of epochs that no log has.
uint64_t freed_records(const ClusterEntry& cluster, const Manifest& manifest) {
  uint64_t records = 0;
  for (const ClusterEntry::Epoch& epoch : cluster.epochs) {
    const EpochEntry* const entry = manifest.find_epoch(epoch.epoch, epoch.epoch_id);
    if (entry != nullptr && entry->freed) records += entry->records;
  }
  return records;
}

bool is_in(const ClusterList& list, const EpochEntry& epoch) {
  const ClusterEntry::Epoch wanted{epoch.epoch, epoch.epoch_id};
  return std::ranges::any_of(list.clusters, [&](const ClusterEntry& cluster) {
    return std::ranges::find(cluster.epochs, wanted) != cluster.epochs.end();
  });
}

}  // namespace

void verify_clusters(const ReaderFiles& files, const Manifest& manifest, size_t problems_max,
                     VerifyReport* report) {
  const auto tell = [&](const Status& problem) {
    if (!problem.ok() && report->problems.size() < problems_max) report->problems.push_back(problem);
  };
  const Result<ClusterList> list = load_clusters(files.device, files.directory);
  if (!list.ok()) return tell(list.status());
  tell(check_cluster_lists(files.device, files.directory, *list));
  for (const ClusterEntry& cluster : list->clusters) {
    if (report->problems.size() >= problems_max) return;
    ++report->clusters;
    if (const auto opened = Cluster::open(files, cluster); !opened.ok()) {
      tell(opened.status());
      continue;
    }
    const auto reader =
        Reader::open(files.device, cluster_folder(files.directory, cluster.number), files.options);
    if (!reader.ok()) {
      tell(reader.status());
      continue;
    }
    VerifyReport inside = verify_directory(**reader, problems_max - report->problems.size());
    report->bytes_checked += inside.bytes_checked;
    for (Status& problem : inside.problems) tell(problem);
    if (inside.problems.empty()) tell(compare_series(files, **reader, cluster, manifest));
    report->records += freed_records(cluster, manifest);
  }
  for (const EpochEntry& epoch : manifest.epochs) {
    if (epoch.freed && !is_in(*list, epoch)) tell(freed_error(files.directory, epoch, {}));
  }
}

}  // namespace swale::imd
