#include "imd/read/reader_partition.h"

#include <algorithm>
#include <set>
#include <utility>

#include "imd/format/cluster_list.h"
#include "run/extrema_reader.h"
#include "run/footer.h"
#include "run/value_format.h"

namespace swale::imd {
namespace {

Result<std::unique_ptr<io::File>> open_log(io::Device& device, const std::string& path) {
  Result<std::unique_ptr<io::File>> file = device.open(path, io::OpenMode::kRead);
  if (file.status().code() == Code::kNotFound) {
    return corruption("{}: is missing, though {} names epochs that are in it; restore the file", path,
                      kManifestName);
  }
  return file;
}

Status lacks(const PartitionLogs& logs, const EpochEntry& epoch, uint32_t way, const run::Footer& footer) {
  std::string why;
  if (!footer.skipped_reason.ok()) {
    why = fmt::format(" (its last {} bytes hold no footer: {})", footer.skipped_bytes,
                      footer.skipped_reason.message());
  }
  return corruption(
      "{}: has no segment of epoch {}, way {} (epoch_id {:016x}), which {} names as committed{}: the file "
      "was cut, damaged or replaced; restore it, or run `swale verify` to see what is left",
      logs.index->path(), epoch.epoch, way, epoch.epoch_id, kManifestName, why);
}

// Takes the segments that count, and checks that none is missing.
Status take_segments(const Manifest& manifest, const run::Footer& footer, PartitionLogs* logs) {
  for (const run::SegmentRecord& segment : footer.segments) {
    const EpochEntry* const epoch = manifest.find_epoch(segment.epoch, segment.epoch_id);
    if (epoch == nullptr) continue;
    const JobEntry& job = manifest.job_of(*epoch);
    if (job.number != logs->id.job || epoch->freed) continue;  // a later job has copied it
    if (run::is_extrema_segment(segment)) logs->extrema.push_back(segment);
    if (run::is_values_segment(segment)) logs->values.push_back(segment);
    if (run::is_table_segment(segment)) logs->tables.push_back(segment);
    if (run::is_auxiliary(segment)) continue;
    if (segment.ways != job.ways || logs->id.partition >= job.ranks) {
      return corruption(
          "{}: a segment of epoch {} is of partition {} and {} ways, {} says {} partitions and {} ways",
          logs->index->path(), segment.epoch, logs->id.partition, segment.ways, kManifestName, job.ranks,
          job.ways);
    }
    logs->segments.push_back(segment);
  }
  std::stable_sort(logs->segments.begin(), logs->segments.end(),
                   [](const auto& a, const auto& b) { return a.epoch < b.epoch; });
  const auto differ = [](const auto& a, const auto& b) {
    return a.epoch == b.epoch && a.data_block != b.data_block;
  };
  const auto odd = std::adjacent_find(logs->segments.begin(), logs->segments.end(), differ);
  if (odd != logs->segments.end()) {
    return corruption("{}: the segments of epoch {} disagree on where its data begin; run `swale verify`",
                      logs->index->path(), odd->epoch);
  }
  logs->first_segments.reserve(manifest.epochs.size() + 1);
  uint32_t segment_index = 0;
  for (EpochNumber epoch(0); epoch <= manifest.epochs.size(); ++epoch) {
    while (segment_index < logs->segments.size() && logs->segments[segment_index].epoch < epoch)
      ++segment_index;
    logs->first_segments.push_back(segment_index);
  }
  std::vector<bool> ways;
  for (const EpochEntry& epoch : manifest.epochs) {
    const JobEntry& job = manifest.jobs[epoch.job];
    if (job.number != logs->id.job || epoch.freed) continue;
    ways.assign(job.ways, false);
    for (const run::SegmentRecord& segment : logs->segments_of(epoch.epoch)) ways[segment.way] = true;
    const auto missing = std::find(ways.begin(), ways.end(), false);
    if (missing == ways.end()) continue;
    if (manifest.lost_part(epoch, logs->id.partition) == nullptr)
      return lacks(*logs, epoch, static_cast<uint32_t>(missing - ways.begin()), footer);
    logs->lost.push_back(epoch.epoch);
  }
  return {};
}

Status lost_error(const std::string& directory, const EpochEntry& epoch, const LostPart& part) {
  return corruption(
      "{}: records of epoch {} in partition {} are lost: {}; restore the file from a copy and run `swale "
      "repair`",
      directory, epoch.epoch, part.partition, part.what);
}

}  // namespace

Status freed_error(const std::string& directory, const EpochEntry& epoch, const Status& why) {
  return corruption(
      "{}: epoch {} (epoch_id {:016x}) is only in clusters since `swale optimize --free`, and no cluster has "
      "it{}{}; restore the folder from a copy",
      clusters_folder(directory), epoch.epoch, epoch.epoch_id, why.ok() ? "" : ": ", why.message());
}

namespace {

void map_logs(PartitionLogs* logs) {
  BlockNumber end;
  for (const run::SegmentRecord& segment : logs->segments) {
    end = std::max(end, segment.data_block + segment.data_blocks);
  }
  logs->index_map = io::Mapping::map(*logs->index, logs->index_end);
  if (logs->index_map) logs->data_map = io::Mapping::map(*logs->data, end * run::kBlockBytes);
}

}  // namespace

std::span<const run::SegmentRecord> PartitionLogs::segments_of(EpochNumber epoch) const {
  return std::span(segments).subspan(first_segments[epoch],
                                     first_segments[epoch + 1] - first_segments[epoch]);
}

std::vector<run::SegmentRecord> PartitionLogs::extrema_of(EpochNumber epoch) const {
  std::vector<run::SegmentRecord> found;
  std::copy_if(extrema.begin(), extrema.end(), std::back_inserter(found),
               [epoch](const run::SegmentRecord& segment) { return segment.epoch == epoch; });
  return found;
}

uint64_t PartitionLogs::records_of(EpochNumber epoch) const {
  uint64_t records = 0;
  for (const run::SegmentRecord& segment : segments_of(epoch)) records += segment.records;
  return records;
}

PartitionLogs::BlockRange PartitionLogs::blocks_of(EpochNumber epoch) const {
  BlockRange range;
  for (const run::SegmentRecord& segment : segments_of(epoch)) {
    range.first = segment.data_block;
    range.count = std::max<uint64_t>(range.count, segment.data_blocks);
  }
  return range;
}

Result<std::shared_ptr<const PartitionLogs>> open_partition(const ReaderFiles& files, LogId id,
                                                            const Manifest& manifest,
                                                            const PartitionLogs* before) {
  auto logs = std::make_shared<PartitionLogs>();
  logs->id = id;
  if (files.options.cache) logs->cache_directory = files.options.cache->number_of(files.directory);
  if (before != nullptr) {
    logs->index = before->index;
    logs->data = before->data;
  } else {
    SWALE_ASSIGN_OR_RETURN(logs->index, open_log(files.device, index_log_path(files.directory, id)));
    SWALE_ASSIGN_OR_RETURN(logs->data, open_log(files.device, data_log_path(files.directory, id)));
  }
  SWALE_ASSIGN_OR_RETURN(const run::Footer footer, run::read_footer(*logs->index, id.partition));
  files.counters.reads.add(footer.reads);
  files.counters.bytes_read.add(footer.bytes_read);
  logs->footer_depth = footer.depth;
  logs->footer_reads = footer.reads;
  logs->footer_bytes = footer.bytes_read;
  logs->index_end = footer.end_offset;
  SWALE_RETURN_IF_ERROR(take_segments(manifest, footer, logs.get()));
  logs->seeds.reserve(logs->segments.size());
  for (const run::SegmentRecord& segment : logs->segments) {
    logs->seeds.push_back(
        {run::segment_seed(id.partition, segment), run::epoch_seed(id.partition, segment.epoch_id)});
  }
  if (files.options.map == ReaderOptions::Map::kAuto) map_logs(logs.get());
  return std::shared_ptr<const PartitionLogs>(std::move(logs));
}

Result<std::shared_ptr<const PartitionLogs>> PartitionCache::get(const EpochEntry& epoch,
                                                                 PartitionNumber partition, uint32_t* depth) {
  if (epoch.freed) return freed_error(files_.directory, epoch, {});
  Result<std::shared_ptr<const PartitionLogs>> logs = get(manifest_.log_of(epoch, partition), depth);
  if (logs.ok()) {
    SWALE_RETURN_IF_ERROR(check(**logs, epoch));
  } else if (const LostPart* part = manifest_.lost_part(epoch, partition);
             part != nullptr && logs.status().code() == Code::kCorruption) {
    return lost_error(files_.directory, epoch, *part);
  }
  return logs;
}

Result<std::shared_ptr<const PartitionLogs>> PartitionCache::get(LogId id, uint32_t* depth) {
  std::shared_ptr<const PartitionLogs> before;
  {
    const MutexLock lock(mutex_);
    const auto found = open_.find(id);
    if (found != open_.end()) {
      by_age_.splice(by_age_.begin(), by_age_, found->second.age);
      if (found->second.logs) return found->second.logs;
      before = found->second.before;
    }
  }
  // Two threads may both do this for one partition: a few reads more, and one of the two is forgotten.
  SWALE_ASSIGN_OR_RETURN(std::shared_ptr<const PartitionLogs> logs,
                         open_partition(files_, id, manifest_, before.get()));
  *depth = std::max(*depth, logs->footer_depth);
  std::list<LogId> age{id};  // both containers change, or none
  const MutexLock lock(mutex_);
  const auto [place, inserted] = open_.try_emplace(id);
  if (inserted) {
    by_age_.splice(by_age_.begin(), age);
    place->second.age = by_age_.begin();
  }
  if (!place->second.logs) {
    place->second.logs = logs;
    place->second.before.reset();
    segments_ += logs->segments.size();
    evict();
  }
  return logs;
}

Status PartitionCache::check(const PartitionLogs& logs, const EpochEntry& epoch) const {
  if (!std::binary_search(logs.lost.begin(), logs.lost.end(), epoch.epoch)) return {};
  return lost_error(files_.directory, epoch, *manifest_.lost_part(epoch, logs.id.partition));
}

void PartitionCache::take_over(PartitionCache& before, size_t common) {
  std::set<uint32_t> touched;  // jobs that have other epochs than before
  for (const Manifest* manifest : {&before.manifest_, &manifest_}) {
    for (size_t epoch = common; epoch < manifest->epochs.size(); ++epoch)
      touched.insert(manifest->job_of(manifest->epochs[epoch]).number);
  }
  const MutexLock lock(mutex_);  // which nobody else knows yet
  const MutexLock before_lock(before.mutex_);
  for (const LogId id : before.by_age_) {
    const Entry& old = before.open_.at(id);
    Entry& entry = open_[id];
    entry.age = by_age_.insert(by_age_.end(), id);
    if (old.logs && !touched.contains(id.job)) {
      entry.logs = old.logs;
      segments_ += entry.logs->segments.size();
    } else {
      entry.before = old.logs ? old.logs : old.before;
    }
  }
}

void PartitionCache::evict() {
  while (open_.size() > 1 && (open_.size() > kOpenMax || segments_ > kSegmentsMax)) {
    const auto oldest = open_.find(by_age_.back());
    if (oldest->second.logs) segments_ -= oldest->second.logs->segments.size();
    open_.erase(oldest);
    by_age_.pop_back();
  }
}

}  // namespace swale::imd
