#include "imd/check/repair_facts.h"

#include <algorithm>

#include "run/value_format.h"

namespace swale::imd {
namespace {

// Adds what is lost of single epochs.
class LossFinder {
 public:
  LossFinder(const std::string& directory, const Manifest& manifest, const Logs& logs)
      : directory_(directory), manifest_(manifest), logs_(logs) {}

  void look_at(const EpochEntry& epoch) {
    const auto first = static_cast<ptrdiff_t>(losses_.parts.size());
    find_lost_runs(epoch);
    find_lost_values(epoch);
    // A later repair may notice one in the other place, and must not find the list changed.
    std::ranges::sort(losses_.parts.begin() + first, losses_.parts.end(), {}, &LostPart::partition);
  }
  Losses take() { return std::move(losses_); }

 private:
  void find_lost_runs(const EpochEntry& epoch);
  void find_lost_values(const EpochEntry& epoch);
  bool add_up(const EpochEntry& epoch, const std::vector<PartFacts>& parts) const;
  std::string path_of(const JobEntry& job, PartitionNumber writer) const {
    const bool paged = manifest_.layout.values() == run::ValueRule::kPaged;
    const LogId id{job.number, writer, manifest_.log_place};
    return paged ? value_pages_path(directory_, id) : value_log_path(directory_, id);
  }
  std::string why(const EpochEntry& epoch, PartitionNumber partition, const PartFacts& part) const;
  void add(const EpochEntry& epoch, PartitionNumber partition, std::string what);
  // Its tally was summed up from what was left.
  bool tally_is_short(const EpochEntry& epoch) const {
    return epoch.recovered == Recovered::kWhole && manifest_.has_lost(epoch);
  }

  const std::string& directory_;
  const Manifest& manifest_;
  const Logs& logs_;
  Losses losses_;
};

// Whether the partitions whose index is lost have all that the others have not.
bool LossFinder::add_up(const EpochEntry& epoch, const std::vector<PartFacts>& parts) const {
  if (tally_is_short(epoch)) return false;
  uint64_t records = 0;
  uint64_t data_bytes = 0;
  uint64_t digest = 0;
  bool all_whole = true;
  for (const PartFacts& part : parts) {
    records += part.committed.value_or(part.found.records);
    data_bytes += part.found.data_bytes;
    digest += part.found.digest;
    all_whole =
        all_whole && part.side_by_side && part.committed.value_or(part.found.records) == part.found.records;
  }
  if (records != epoch.records) return false;
  return !all_whole || (data_bytes == epoch.data_bytes && digest == epoch.digest);
}

std::string LossFinder::why(const EpochEntry& epoch, PartitionNumber partition, const PartFacts& part) const {
  const LogId id = manifest_.log_of(epoch, partition);
  const LogFacts& facts = facts_of(logs_, id);
  const std::string path = data_log_path(directory_, id);
  std::string text;
  if (!facts.has_data) {
    text = fmt::format("{} is missing", path);
  } else if (part.committed) {
    text = fmt::format("{} has {} of {} records in whole runs", path, part.found.records, *part.committed);
  } else {
    text = fmt::format(
        "{} has {} records in whole runs, its index log does not say how many there were, and the epoch "
        "lacks some",
        path, part.found.records);
  }
  if (!facts.data.first_damage.ok()) text += fmt::format(" ({})", facts.data.first_damage.message());
  return text;
}

void LossFinder::add(const EpochEntry& epoch, PartitionNumber partition, std::string what) {
  const LostPart* const known = manifest_.lost_part(epoch, partition);
  losses_.parts.push_back(known != nullptr ? *known : LostPart{epoch.epoch_id, partition, std::move(what)});
}

void LossFinder::find_lost_runs(const EpochEntry& epoch) {
  if (epoch.freed) return;  // `swale verify` reads the clusters
  const JobEntry& job = manifest_.job_of(epoch);
  std::vector<PartFacts> parts;
  for (PartitionNumber partition(0); partition < job.ranks; ++partition)
    parts.push_back(look_at_part(logs_, job, epoch, partition));
  const bool adds_up = add_up(epoch, parts);
  for (PartitionNumber partition(0); partition < parts.size(); ++partition) {
    const PartFacts& part = parts[partition];
    const bool known = tally_is_short(epoch) && manifest_.lost_part(epoch, partition) != nullptr;
    const bool whole = part.committed ? part.whole() : adds_up && part.side_by_side;
    if (whole && !known) continue;
    add(epoch, partition, why(epoch, partition, part));
    losses_.data.emplace(epoch.epoch_id, partition);
  }
}

// Of values in value logs only the heads are counted here; `swale verify` reads them.
void LossFinder::find_lost_values(const EpochEntry& epoch) {
  if (epoch.large.values == 0) return;
  const auto writer_job = manifest_.job_index(manifest_.origin_of(epoch));
  if (!writer_job) return;
  const JobEntry& job = manifest_.jobs[*writer_job];
  uint64_t all = 0;
  bool any_cut_off = false;  // within a value: pages of the end are gone in which none begins
  std::vector<std::pair<PartitionNumber, std::string>> lost;
  std::vector<PartitionNumber> silent;  // writers of whom nobody knows how many values they had
  for (PartitionNumber writer(0); writer < job.ranks; ++writer) {
    const LogFacts& facts = facts_of(logs_, {job.number, writer});
    const uint64_t found = facts.of(epoch.epoch_id).values.values;
    all += found;
    const std::optional<run::ValueRange> committed = facts.of(epoch.epoch_id).committed_values();
    const bool known = manifest_.lost_part(epoch, writer) != nullptr && !losses_.in_data(epoch, writer);
    const bool cut_off = committed && facts.of(epoch.epoch_id).values.end_offset() < committed->end_offset();
    any_cut_off = any_cut_off || cut_off;
    if ((committed && found < committed->values) || cut_off || known) {
      lost.emplace_back(writer, fmt::format("{} has {} of {} values{}", path_of(job, writer), found,
                                            committed.value_or(run::ValueRange()).values,
                                            cut_off ? " and is cut off" : ""));
    } else if (!committed) {
      silent.push_back(writer);
    }
  }
  if (all >= epoch.large.values && !any_cut_off) return;
  if (lost.empty()) {
    for (const PartitionNumber writer : silent) {
      lost.emplace_back(writer, fmt::format("{}: the epoch has {} of {} values", path_of(job, writer), all,
                                            epoch.large.values));
    }
  }
  for (auto& [writer, what] : lost) {
    if (!losses_.in_data(epoch, writer)) add(epoch, writer, std::move(what));
  }
}

}  // namespace

std::vector<run::SegmentRecord> LogEpoch::agreed_segments(const JobEntry& job, EpochNumber number) const {
  std::vector<run::SegmentRecord> agreed;
  std::vector<bool> ways(job.ways, false);
  for (const run::SegmentRecord& segment : segments) {
    if (run::is_auxiliary(segment)) continue;
    const bool fits = segment.epoch == number && segment.ways == job.ways && segment.way < job.ways;
    if (!fits || (!agreed.empty() && agreed.front().data_block != segment.data_block)) return {};
    agreed.push_back(segment);
    ways[segment.way] = true;
  }
  if (std::find(ways.begin(), ways.end(), false) != ways.end()) return {};
  return agreed;
}

std::optional<run::ValueRange> LogEpoch::committed_values() const {
  const auto found = std::find_if(segments.begin(), segments.end(), run::is_values_segment);
  if (found == segments.end()) return std::nullopt;
  return run::range_of(*found);
}

std::optional<run::ValueRange> LogEpoch::table() const {
  const auto found = std::find_if(segments.begin(), segments.end(), run::is_table_segment);
  if (found == segments.end()) return std::nullopt;
  return run::range_of(*found);
}

const LogEpoch& LogFacts::of(uint64_t epoch_id) const {
  static const LogEpoch kNothing;
  const auto found = epochs.find(epoch_id);
  return found == epochs.end() ? kNothing : found->second;
}

LogFacts gather(bool has_data, DataInventory data, const std::vector<FoundValues>& values,
                std::optional<run::Footer> footer) {
  LogFacts facts;
  facts.has_data = has_data;
  for (const FoundRun& run : data.runs) {
    LogEpoch& epoch = facts.epochs[run.header.epoch_id];
    epoch.epoch = run.header.epoch;
    epoch.runs.push_back(run);
  }
  for (const FoundValues& found : values) {
    LogEpoch& epoch = facts.epochs[found.epoch_id];
    epoch.epoch = found.epoch;
    // After damage another range may begin: what lies between is no value.
    const uint64_t offset = epoch.values.bytes == 0 ? found.range.offset : epoch.values.offset;
    epoch.values = {.offset = offset,
                    .bytes = found.range.end_offset() - offset,
                    .values = epoch.values.values + found.range.values};
  }
  if (footer) {
    for (const run::SegmentRecord& segment : footer->segments) {
      LogEpoch& epoch = facts.epochs[segment.epoch_id];
      epoch.epoch = segment.epoch;
      epoch.segments.push_back(segment);
    }
  }
  data.runs.clear();
  facts.data = std::move(data);
  facts.footer = std::move(footer);
  return facts;
}

const LogFacts& facts_of(const Logs& logs, LogId id) {
  static const LogFacts kNoFacts;
  const auto found = logs.find(id);
  return found == logs.end() ? kNoFacts : found->second;
}

void add_runs(const std::vector<FoundRun>& runs, EpochEntry* epoch) {
  for (const FoundRun& run : runs) {
    epoch->records += run.header.records;
    epoch->data_bytes += run.header.data_bytes;
    epoch->digest += run.digest;
    epoch->large.add(run.large);
  }
}

PartFacts look_at_part(const Logs& logs, const JobEntry& job, const EpochEntry& epoch,
                       PartitionNumber partition) {
  PartFacts part;
  const LogFacts& facts = facts_of(logs, {job.number, partition});
  const LogEpoch& here = facts.of(epoch.epoch_id);
  for (const run::SegmentRecord& segment : here.agreed_segments(job, epoch.epoch))
    part.committed = part.committed.value_or(0) + segment.records;
  const std::vector<FoundRun>& runs = here.runs;
  add_runs(runs, &part.found);
  const auto gap = std::adjacent_find(runs.begin(), runs.end(), [](const FoundRun& a, const FoundRun& b) {
    return a.end_block() != b.first_block;
  });
  part.side_by_side = gap == runs.end();
  return part;
}

Losses find_losses(const std::string& directory, const Manifest& manifest, const Logs& logs) {
  LossFinder finder(directory, manifest, logs);
  for (const EpochEntry& epoch : manifest.epochs) finder.look_at(epoch);
  return finder.take();
}

}  // namespace swale::imd
