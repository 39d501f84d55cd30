// The first half of a Query: which slices of which partitions its keys need. Reads footers only
// (PartitionCache).
#include <algorithm>
#include <span>
#include <utility>

#include "imd/read/reader_query.h"

namespace swale::imd {
namespace {

// How many of them are of the first one's partition, of `ranks`.
size_t keys_of_partition(std::span<const QueryKey> keys, uint32_t ranks) {
  if (ranks == 1 || keys.size() == 1) return keys.size();
  const uint32_t partition = choose(keys.front().hash, ranks).index;
  const auto same = [&](const QueryKey& key) { return choose(key.hash, ranks).index == partition; };
  return static_cast<size_t>(std::partition_point(keys.begin(), keys.end(), same) - keys.begin());
}

}  // namespace

// So many that their partitions can be held open and their rests kept, whatever the epoch.
size_t Query::keys_at_once(size_t first_key, EpochRange epochs) const {
  const auto rest = keys_.subspan(first_key);
  if (rest.size() == 1) return 1;
  uint32_t ranks = 1;
  size_t sources = clusters_ == nullptr ? 0 : clusters_->members().size();
  if (clusters_ != nullptr) {
    for (const ClusterSet::Member& member : clusters_->members())
      ranks = std::max(ranks, member.cluster->partitions());
  }
  for (EpochNumber epoch = epochs.first; epoch < epochs.last; ++epoch) {
    if (is_covered(epoch)) continue;
    ++sources;
    ranks = std::max(ranks, manifest_.jobs[manifest_.epochs[epoch].job].ranks);
  }
  const size_t count = std::clamp<size_t>(kRestsMax / std::max<size_t>(sources, 1), 1, rest.size());
  const uint64_t end_partition = choose(rest[0].hash, ranks).index + uint64_t{kPartitionsMax / 2};
  const auto end = std::partition_point(
      rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(count),
      [&](const QueryKey& key) { return choose(key.hash, ranks).index < end_partition; });
  return static_cast<size_t>(end - rest.begin());
}

Status Query::plan(size_t first_key, size_t end_key, EpochRange epochs) {
  if (clusters_ != nullptr) SWALE_RETURN_IF_ERROR(plan_clusters(first_key, end_key));
  for (EpochNumber epoch = epochs.first; epoch < epochs.last; ++epoch) {
    if (is_covered(epoch)) continue;
    const JobEntry& job = manifest_.jobs[manifest_.epochs[epoch].job];
    if (TableCache::has_tables(manifest_, manifest_.epochs[epoch])) {
      SWALE_RETURN_IF_ERROR(plan_by_tables(first_key, end_key, epoch));
      continue;
    }
    if (job.partitioner != kHashPartitioner) {
      SWALE_RETURN_IF_ERROR(plan_by_function(first_key, end_key, epoch));
      continue;
    }
    const uint32_t ranks = job.ranks;
    for (size_t first = first_key; first < end_key && !stopped_;) {
      const PartitionNumber partition(choose(keys_[first].hash, ranks).index);
      const size_t end = first + keys_of_partition(keys_.subspan(first, end_key - first), ranks);
      SWALE_RETURN_IF_ERROR(plan_partition(first, end, partition, epoch));
      first = end;
    }
  }
  return {};
}

// In the lossy format. Key by key: which partitions have them has nothing to do with their hashes.
Status Query::plan_by_tables(size_t first_key, size_t end_key, EpochNumber epoch) {
  for (size_t key = first_key; key < end_key && !stopped_; ++key) {
    SWALE_ASSIGN_OR_RETURN(const std::vector<uint32_t> partitions,
                           tables_.candidates(manifest_.epochs[epoch], keys_[key].hash, &table_depth_));
    for (const uint32_t partition : partitions) {
      if (!stopped_) SWALE_RETURN_IF_ERROR(plan_partition(key, key + 1, PartitionNumber(partition), epoch));
    }
  }
  return {};
}

// Key by key: those of one partition are not neighbours. All partitions if the function is not known.
Status Query::plan_by_function(size_t first_key, size_t end_key, EpochNumber epoch) {
  const JobEntry& job = manifest_.jobs[manifest_.epochs[epoch].job];
  const uint32_t ranks = job.ranks;
  const Partitioner partitioner = partitioners_.find(job.partitioner);
  for (size_t key = first_key; key < end_key && !stopped_; ++key) {
    if (partitioner.by_hash()) {
      for (PartitionNumber partition(0); partition < ranks && !stopped_; ++partition) {
        SWALE_RETURN_IF_ERROR(plan_partition(key, key + 1, partition, epoch));
      }
      continue;
    }
    const PartitionNumber partition = partitioner.ask(keys_[key].key, ranks);
    if (partition >= ranks) return partitioner.out_of_range(partition, ranks);
    SWALE_RETURN_IF_ERROR(plan_partition(key, key + 1, partition, epoch));
  }
  return {};
}

Status Query::plan_clusters(size_t first_key, size_t end_key) {
  for (const ClusterSet::Member& member : clusters_->members()) {
    const std::vector<ClusterEntry::Epoch>& epochs = member.cluster->entry().epochs;
    const bool asked = epochs.front().epoch < epochs_.last && epochs.back().epoch >= epochs_.first;
    const uint32_t ranks = member.cluster->partitions();
    for (size_t first = first_key; asked && first < end_key && !stopped_;) {
      const size_t end = first + keys_of_partition(keys_.subspan(first, end_key - first), ranks);
      SWALE_RETURN_IF_ERROR(
          plan_cluster(member, first, end, PartitionNumber(choose(keys_[first].hash, ranks).index)));
      first = end;
    }
  }
  return {};
}

// A cluster has one way: each segment of the keys' partition may have any of them.
Status Query::plan_cluster(const ClusterSet::Member& member, size_t first_key, size_t end_key,
                           PartitionNumber partition) {
  if (held_.size() >= kPartitionsMax || visits_.size() >= kVisitsMax) SWALE_RETURN_IF_ERROR(flush());
  if (stopped_) return {};
  SWALE_ASSIGN_OR_RETURN(auto logs, member.cluster->logs(partition, &footer_depth_));
  held_.push_back(std::move(logs));
  for (uint32_t segment = 0; segment < held_.back()->segments.size(); ++segment) {
    if (run::is_filter_segment(held_.back()->segments[segment])) {
      return corruption("{}: has filters in place of sketches, which no cluster has",
                        held_.back()->index->path());
    }
    visits_.push_back({.first_key = first_key,
                       .end_key = end_key,
                       .held = static_cast<uint32_t>(held_.size() - 1),
                       .segment = segment,
                       .ranks = member.cluster->partitions(),
                       .member = &member});
  }
  return {};
}

// The values of the epochs that are asked, as one hit each.
Status Query::match_series(const Pending& pending, Bytes series) {
  const SliceGroup& group = groups_[pending.group];
  const Cluster& cluster = *group.member->cluster;
  const uint64_t sequence = (sequence_ + pending.group) << 32 | pending.number;
  const bool known = walk_series(series, cluster.epochs(), [&](const SeriesValue& value) {
    const EpochNumber epoch = cluster.entry().epochs[value.index].epoch;
    if (stopped_ || epoch < epochs_.first || epoch >= epochs_.last || !group.member->answers[value.index])
      return;
    stopped_ = !sink_->hit({keys_[rest_keys_[pending.rest]].index, epoch, sequence, value.bytes,
                            value.kind == SeriesKind::kPoints, value.kind});
  });
  if (known) return {};
  return corruption("{}: offset {}: a record is no series of {} epochs", group.logs->data->path(),
                    pending.candidate.block * run::kBlockBytes, cluster.epochs());
}

// Adds a visit to each segment of the partition's epoch whose way has one of the keys, which are all of this
// partition.
Status Query::plan_partition(size_t first_key, size_t end_key, PartitionNumber partition, EpochNumber epoch) {
  if (held_.size() >= kPartitionsMax || visits_.size() >= kVisitsMax) SWALE_RETURN_IF_ERROR(flush());
  if (stopped_) return {};
  SWALE_ASSIGN_OR_RETURN(const uint32_t held, hold(manifest_.epochs[epoch], partition));
  const JobEntry& job = manifest_.job_of(manifest_.epochs[epoch]);
  const uint32_t ranks = job.ranks;
  const PartitionLogs& logs = *held_[held];
  for (uint32_t segment = logs.first_segments[epoch]; segment < logs.first_segments[epoch + 1]; ++segment) {
    Visit visit{first_key, end_key, held, segment, ranks};
    if (job.ways > 1) {
      const auto below = [&](uint32_t way) {
        return [&, way](const QueryKey& key) {
          return choose(choose(key.hash, ranks).rest, job.ways).index < way;
        };
      };
      const auto keys = keys_.subspan(first_key, end_key - first_key);
      const uint32_t way = logs.segments[segment].way;
      const auto begin_of_way = std::partition_point(keys.begin(), keys.end(), below(way));
      const auto end_of_way = std::partition_point(begin_of_way, keys.end(), below(way + 1));
      visit.first_key = first_key + static_cast<size_t>(begin_of_way - keys.begin());
      visit.end_key = first_key + static_cast<size_t>(end_of_way - keys.begin());
    }
    if (visit.keys() > 0) visits_.push_back(visit);
  }
  return {};
}

void Query::add_groups(const Visit& visit) {
  const PartitionLogs& logs = *held_[visit.held];
  const run::SegmentRecord& record = logs.segments[visit.segment];
  std::optional<uint32_t> slice;
  for (size_t key = visit.first_key; key < visit.end_key; ++key) {
    const Hash rest = choose(choose(keys_[key].hash, visit.ranks).rest, record.ways).rest;
    const auto location = run::locate_slice(record, rest);
    if (!location) return;  // the segment has no records
    if (location->slice != slice) {
      slice = location->slice;
      groups_.push_back({.logs = &logs,
                         .held = visit.held,
                         .segment = visit.segment,
                         .member = visit.member,
                         .first_rest = static_cast<uint32_t>(rests_.size()),
                         .rest_count = 0,
                         .location = *location,
                         .bytes = nullptr});
    }
    ++groups_.back().rest_count;
    rests_.push_back(rest);
    rest_keys_.push_back(static_cast<uint32_t>(key));
  }
}

// Mostly the partition asked for is the one asked for last.
Result<uint32_t> Query::hold(const EpochEntry& epoch, PartitionNumber partition) {
  const LogId id = manifest_.log_of(epoch, partition);
  for (size_t i = own_held_.size(); i > 0; --i) {
    const uint32_t held = own_held_[i - 1];
    if (held_[held]->id != id) continue;
    SWALE_RETURN_IF_ERROR(partitions_.check(*held_[held], epoch));
    return held;
  }
  SWALE_ASSIGN_OR_RETURN(auto logs, partitions_.get(epoch, partition, &footer_depth_));
  held_.push_back(std::move(logs));
  own_held_.push_back(static_cast<uint32_t>(held_.size() - 1));
  return own_held_.back();
}

}  // namespace swale::imd
