#include "imd/repair_facts.h"

#include <algorithm>
#include <limits>

namespace swale::imd {
namespace {

constexpr uint32_t kWaysTried = 4096;

bool fits(const EpochFacts& epoch, uint32_t ranks, uint32_t ways) {
  // Both choices are monotone in the hash: the least and the greatest key speak for all between.
  return std::all_of(epoch.keys.begin(), epoch.keys.end(), [&](const auto& entry) {
    const auto& [place, range] = entry;
    for (const Hash hash : {range.least, range.greatest}) {
      const HashChoice home = choose(hash, ranks);
      if (home.index != place.first) return false;
      if (ways > 0 && choose(home.rest, ways).index != place.second) return false;
    }
    return true;
  });
}

bool is_committed(const Manifest& manifest, uint32_t epoch, uint64_t epoch_id) {
  return epoch < manifest.epochs.size() && manifest.epochs[epoch].epoch_id == epoch_id;
}

// Whether all partitions of the job can have ended the epoch.
bool complete(const EpochFacts& epoch, const Partitions& partitions) {
  if (epoch.lost_runs || (epoch.indexed.empty() && epoch.with_runs.empty())) return false;
  for (uint32_t partition = 0; partition < epoch.partitions_min(); ++partition) {
    const auto facts = partitions.find(partition);
    const bool unknown = facts != partitions.end() && !facts->second.footer;
    if (!epoch.indexed.contains(partition) && !unknown) return false;
  }
  return true;
}

EpochEntry entry_of(const EpochFacts& facts, const Partitions& partitions) {
  EpochEntry entry;
  entry.epoch = facts.epoch;
  entry.epoch_id = facts.epoch_id;
  entry.step = kStepUnknown;
  entry.time = std::numeric_limits<double>::quiet_NaN();
  entry.recovered = Recovered::kWhole;
  for (const auto& [partition, found] : partitions) add_runs(runs_of(found.data, facts.epoch_id), &entry);
  return entry;
}

// What the logs show of the choices that were made with the directory. Filters of single runs look the same, whether
// they were asked for as `papers` or a way had one run; readers need not know.
run::Layout layout_of(const Partitions& partitions) {
  run::Layout layout;
  for (const auto& [partition, facts] : partitions) {
    for (const FoundRun& run : facts.data.runs) {
      if (run.header.kind == run::RunKind::kPacked) layout.compression = static_cast<Codec>(run.header.codec);
    }
    if (!facts.footer) continue;
    for (const run::SegmentRecord& segment : facts.footer->segments) {
      if ((segment.flags & run::kAuxiliarySegment) != 0 || !run::is_filter_segment(segment)) continue;
      const bool blocked = (segment.flags & run::kBlockedBloomSegment) != 0;
      layout.index = blocked ? run::IndexKind::kBlockedBloom : run::IndexKind::kBloom;
      layout.bloom_bits = segment.filter_bits;
    }
  }
  return layout;
}

}  // namespace

uint32_t EpochFacts::partitions_min() const {
  const uint32_t by_index = indexed.empty() ? 0 : *indexed.rbegin() + 1;
  return std::max(by_index, with_runs.empty() ? 0 : *with_runs.rbegin() + 1);
}

std::optional<JobEntry> EpochFacts::shape(uint32_t ranks_min, uint32_t ranks_max) const {
  for (uint32_t ranks = std::max(ranks_min, 1u); ranks <= ranks_max; ++ranks) {
    if (!fits(*this, ranks, 0)) continue;
    const uint32_t first = ways > 0 ? ways : greatest_way + 1;
    const uint32_t last = ways > 0 ? ways : std::max(first, kWaysTried);
    for (uint32_t tried = first; tried <= last; ++tried) {
      if (!fits(*this, ranks, tried)) continue;
      JobEntry job;
      job.id = fmt::format("{:016x}", epoch_id);
      job.ranks = static_cast<int32_t>(ranks);
      job.ways = tried;
      return job;
    }
  }
  return std::nullopt;
}

std::map<uint64_t, EpochFacts> gather_epochs(const Partitions& partitions) {
  std::map<uint64_t, EpochFacts> epochs;
  for (const auto& [partition, facts] : partitions) {
    for (const FoundRun& run : facts.data.runs) {
      EpochFacts& epoch = epochs[run.header.epoch_id];
      epoch.epoch = run.header.epoch;
      epoch.epoch_id = run.header.epoch_id;
      epoch.greatest_way = std::max<uint32_t>(epoch.greatest_way, run.header.way);
      epoch.with_runs.insert(partition);
      EpochFacts::Range& range = epoch.keys[{partition, run.header.way}];
      range.least = std::min(range.least, run.least);
      range.greatest = std::max(range.greatest, run.greatest);
    }
    if (!facts.footer) continue;
    for (const run::SegmentRecord& segment : facts.footer->segments) {
      if ((segment.flags & run::kAuxiliarySegment) != 0) continue;
      EpochFacts& epoch = epochs[segment.epoch_id];
      epoch.epoch = segment.epoch;
      epoch.epoch_id = segment.epoch_id;
      epoch.ways = segment.ways;
      epoch.indexed.insert(partition);
      if (segment.records > 0 && !epoch.with_runs.contains(partition)) epoch.lost_runs = true;
    }
  }
  return epochs;
}

std::vector<FoundRun> runs_of(const DataInventory& data, uint64_t epoch_id, uint64_t from_block) {
  std::map<uint32_t, FoundRun> by_number;
  for (const FoundRun& run : data.runs) {
    if (run.header.epoch_id == epoch_id && run.first_block >= from_block) by_number[run.header.run] = run;
  }
  std::vector<FoundRun> runs;
  runs.reserve(by_number.size());
  for (const auto& [number, run] : by_number) runs.push_back(run);
  std::sort(runs.begin(), runs.end(),
            [](const FoundRun& a, const FoundRun& b) { return a.first_block < b.first_block; });
  return runs;
}

uint64_t committed_end(const PartitionFacts& facts, const Manifest& manifest) {
  uint64_t end = 0;
  for (const FoundRun& run : facts.data.runs) {
    if (is_committed(manifest, run.header.epoch, run.header.epoch_id)) end = std::max(end, run.end_block());
  }
  if (!facts.footer) return end;
  for (const run::SegmentRecord& segment : facts.footer->segments) {
    if (is_committed(manifest, segment.epoch, segment.epoch_id))
      end = std::max(end, segment.data_block + segment.data_blocks);
  }
  return end;
}

run::ValueRange values_of(const PartitionFacts& facts, uint64_t epoch_id) {
  for (const FoundValues& values : facts.values) {
    if (values.epoch_id == epoch_id) return values.range;
  }
  return {};
}

void add_runs(const std::vector<FoundRun>& runs, EpochEntry* epoch) {
  for (const FoundRun& run : runs) {
    epoch->records += run.header.records;
    epoch->data_bytes += run.header.data_bytes;
    epoch->digest += run.digest;
    epoch->large.add(run.large);
  }
}

RebuiltManifest rebuild_manifest(const Partitions& partitions) {
  const std::map<uint64_t, EpochFacts> epochs = gather_epochs(partitions);
  const uint32_t ranks_max = partitions.empty() ? 0 : partitions.rbegin()->first + 1;
  RebuiltManifest rebuilt;
  Manifest& manifest = rebuilt.manifest;
  manifest.layout = layout_of(partitions);
  for (;;) {
    const auto number = static_cast<uint32_t>(manifest.epochs.size());
    std::optional<EpochEntry> best;
    JobEntry best_job;
    std::optional<uint32_t> unexplained;
    for (const auto& [id, facts] : epochs) {
      if (facts.epoch != number || !complete(facts, partitions)) continue;
      const std::optional<JobEntry> job = facts.shape(facts.partitions_min(), ranks_max);
      if (!job) {
        unexplained = number;
        continue;
      }
      const EpochEntry entry = entry_of(facts, partitions);
      if (best && best->records >= entry.records) continue;
      best = entry;
      best_job = *job;
    }
    if (!best) {
      rebuilt.unexplained = unexplained;
      return rebuilt;
    }
    const bool same_job = !manifest.jobs.empty() && manifest.jobs.back().ranks == best_job.ranks &&
                          manifest.jobs.back().ways == best_job.ways;
    if (!same_job) manifest.jobs.push_back(best_job);
    best->job = static_cast<uint32_t>(manifest.jobs.size() - 1);
    manifest.epochs.push_back(*best);
  }
}

}  // namespace swale::imd
