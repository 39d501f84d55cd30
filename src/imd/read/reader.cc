#include "imd/read/reader.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "imd/format/attributes.h"
#include "imd/format/cluster_list.h"
#include "imd/format/generation.h"
#include "imd/format/stats_log.h"
#include "imd/read/opening_ahead.h"
#include "imd/read/read_cache.h"
#include "imd/read/reader_view.h"
#include "run/format.h"

namespace swale::imd {
namespace {

constexpr size_t kReadsInFlightLimit = 65'536;
constexpr size_t kScanChunkBytesLimit = kGiB;
constexpr size_t kKeysAsked = 64;

// The epochs at the front that both have.
size_t common_epochs(const Manifest& a, const Manifest& b) {
  const auto same = [](const EpochEntry& x, const EpochEntry& y) { return x.epoch_id == y.epoch_id; };
  const auto end = std::mismatch(a.epochs.begin(), a.epochs.end(), b.epochs.begin(), b.epochs.end(), same);
  return static_cast<size_t>(end.first - a.epochs.begin());
}

// Answers do not depend on them, but those of epochs that were freed: `*problem` is for these. Storage that
// fails is told. A folder that this user may not read, or that is none, is no such failure; it is told if any
// epoch is only there.
Result<ClusterList> clusters_or_none(io::Device& device, const std::string& directory, bool has_freed,
                                     Status* problem) {
  Result<ClusterList> list = load_clusters(device, directory);
  const Code code = list.status().code();
  const int why = list.status().posix_error();
  const bool closed = !has_freed && (why == EACCES || why == EPERM || why == ENOTDIR);
  if (list.ok() || (code != Code::kCorruption && code != Code::kUnsupported && !closed)) return list;
  *problem = list.status();
  log_warn(
      "{}; the epochs themselves answer, but for those that were freed. `swale optimize` makes clusters anew",
      list.status().message());
  return ClusterList();
}

Status check_described(const std::string& directory, const Manifest& manifest, int64_t epoch) {
  if (epoch >= 0 && epoch < static_cast<int64_t>(manifest.epochs.size())) return {};
  return invalid_argument("{}: no attributes of epoch {}: it has {} committed epochs, numbered from 0",
                          directory, epoch, manifest.epochs.size());
}

}  // namespace

Reader::Reader(io::Device& device, std::string directory, const ReaderOptions& options)
    : device_(device),
      directory_(std::move(directory)),
      options_(options),
      counters_(std::make_unique<ReadCounters>()) {}

Reader::~Reader() = default;

Result<std::unique_ptr<Reader>> Reader::open(io::Device& device, const std::string& directory,
                                             const ReaderOptions& options) {
  return open(device, directory, options, std::make_unique<OpeningAhead>(device, directory));
}

Result<std::unique_ptr<Reader>> Reader::open(io::Device& device, const std::string& directory,
                                             const ReaderOptions& options,
                                             std::unique_ptr<OpeningAhead> ahead) {
  if (options.reads_in_flight_max < 1 || options.reads_in_flight_max > kReadsInFlightLimit ||
      options.scan_chunk_bytes < run::kBlockBytes || options.scan_chunk_bytes > kScanChunkBytesLimit) {
    return invalid_argument("reads in flight {} (1 to {}), scan chunk {} bytes ({} to {})",
                            options.reads_in_flight_max, kReadsInFlightLimit, options.scan_chunk_bytes,
                            run::kBlockBytes, kScanChunkBytesLimit);
  }
  std::unique_ptr<Reader> reader(new Reader(device, directory, options));
  reader->ahead_ = std::move(ahead);
  // Before the documents are waited for.
  QueryMemory memory = QueryMemory::backed();
  reader->ahead_->look_at_epochs();
  SWALE_RETURN_IF_ERROR(reader->refresh().status());
  reader->view()->prepare(std::move(memory));
  return reader;
}

Result<Reader::Refreshed> Reader::refresh() {
  const MutexLock only(refreshing_);
  SWALE_ASSIGN_OR_RETURN(Manifest manifest, load_manifest(device_, directory_));
  const std::shared_ptr<ReaderView> before = view();
  Status problem;
  SWALE_ASSIGN_OR_RETURN(const ClusterList clusters,
                         clusters_or_none(device_, directory_, manifest.has_moved, &problem));
  Refreshed refreshed;
  size_t common = 0;
  bool same_place = false;
  if (before) {
    common = common_epochs(before->manifest(), manifest);
    refreshed.added = common < manifest.epochs.size();
    refreshed.dropped = common < before->manifest().epochs.size();
    const bool same_losses = before->manifest().lost == manifest.lost;
    const bool same_clusters = before->clusters_generation() == clusters.generation;
    const EpochEntry* const moved = before->manifest().first_moved(manifest);
    if (!refreshed.added && !refreshed.dropped && common > 0 && same_losses && same_clusters &&
        moved == nullptr)
      return refreshed;
    if (moved != nullptr) common = std::min<size_t>(common, moved->epoch);
    same_place = common > 0 && same_losses;  // after a repair all logs are opened again
  }
  auto next =
      std::make_shared<ReaderView>(files(), std::move(manifest), partitioners_, clusters, std::move(problem));
  if (same_place) next->take_over(*before, common);
  const MutexLock lock(mutex_);
  view_ = std::move(next);
  // Another directory may be at the same place.
  if (!same_place) stats_.clear();
  return refreshed;
}

std::shared_ptr<ReaderView> Reader::view() const {
  const MutexLock lock(mutex_);
  return view_;
}

std::unique_ptr<Reader> Reader::pinned() const {
  std::unique_ptr<Reader> same(new Reader(device_, directory_, options_));
  std::shared_ptr<ReaderView> now = view();
  const MutexLock lock(same->mutex_);
  same->view_ = std::move(now);
  return same;
}

const Manifest& Reader::manifest() const { return view()->manifest(); }

std::shared_ptr<const Manifest> Reader::manifest_now() const {
  std::shared_ptr<ReaderView> now = view();
  const Manifest& manifest = now->manifest();
  return {std::move(now), &manifest};
}

ReaderFiles Reader::files() const { return {device_, directory_, options_, *counters_}; }

Counters ReadStats::counters() const {
  Counters out = Counters::of_rank(0);
  out.add({"queries", "", "calls that asked for keys"}, queries);
  out.add({"read.requests", "", "read requests given to storage"}, reads);
  out.add({"read.bytes", "bytes", "in all of them together"}, bytes_read);
  out.add({"read.depth_max", "", "longest chain of reads that waited for one another in one query", true},
          depth_max);
  out.add({"read.false_candidates", "", "blocks read for a key that they did not contain"}, false_candidates);
  out.add({"cache.hits", "", "slices, and blocks of a record, that the cache of the process had"},
          cache_hits);
  out.add({"cache.misses", "", "those that it did not have"}, cache_misses);
  out.add({"cache.bytes", "bytes", "that the cache of the process holds, for all readers", true},
          cache_bytes);
  return out;
}

ReadStats Reader::stats() const {
  ReadStats stats = counters_->snapshot();
  if (options_.cache) stats.cache_bytes = options_.cache->used_bytes();
  return stats;
}

Result<std::vector<Value>> Reader::get(Bytes key, int64_t epoch) {
  const std::shared_ptr<ReaderView> now = view();
  return now->blame(now->get(key, epoch));
}

Result<std::vector<FoundValue>> Reader::find(Bytes key, int64_t epoch) {
  const std::shared_ptr<ReaderView> now = view();
  return now->blame(now->find(key, epoch));
}

Status Reader::read(Bytes key, const FoundValue& value, uint64_t first, MutableBytes out) {
  const std::shared_ptr<ReaderView> now = view();
  return now->blame(now->read(key, value, first, out));
}

Result<size_t> Reader::get_many(std::span<const Bytes> keys, int64_t epoch, const BatchFn& fn) {
  const std::shared_ptr<ReaderView> now = view();
  return now->blame(now->get_many(keys, epoch, fn));
}

Result<std::vector<Reader::ScanPiece>> Reader::scan_pieces(EpochNumber epoch, PartitionNumber partition,
                                                           uint64_t blocks_min, const DamageFn& damaged) {
  const std::shared_ptr<ReaderView> now = view();
  return now->blame(now->scan_pieces(epoch, partition, blocks_min, damaged));
}

Status Reader::scan_piece(const ScanPiece& piece, const RecordFn& fn, const DamageFn& damaged) {
  const std::shared_ptr<ReaderView> now = view();
  return now->blame(now->scan_piece(piece, fn, damaged, nullptr));
}

Status Reader::scan_piece(const ScanPiece& piece, const RecordFn& fn, const RowsFn& rows) {
  const std::shared_ptr<ReaderView> now = view();
  return now->blame(now->scan_piece(piece, fn, {}, &rows));
}

Status Reader::scan_part(int64_t epoch, uint32_t part, uint32_t parts, const RecordFn& fn) {
  const std::shared_ptr<ReaderView> now = view();
  return now->blame(now->scan_part(epoch, part, parts, fn));
}

Status Reader::keys(int64_t epoch, const KeyFn& fn) {
  const std::shared_ptr<ReaderView> now = view();
  return now->blame(now->keys(epoch, fn));
}

Status Reader::sample(int64_t epoch, size_t n, uint64_t seed, const KeyFn& fn) {
  const std::shared_ptr<ReaderView> now = view();
  return now->blame(now->sample(epoch, n, seed, fn));
}

Result<TopResult> Reader::top(int64_t epoch, std::string_view field, size_t k, run::Extreme which) {
  const std::shared_ptr<ReaderView> now = view();
  return now->blame(now->top(epoch, field, k, which));
}

Status Reader::scan(int64_t epoch, const RecordFn& fn) { return scan_part(epoch, 0, 1, fn); }

Result<uint64_t> Reader::warm(std::span<const int64_t> epochs) {
  const std::shared_ptr<ReaderView> now = view();
  return now->blame(now->warm(epochs));
}

Result<uint64_t> Reader::count(int64_t epoch) const { return view()->count(epoch); }

// Asks it for some keys of the first and the last partition of each job that wrote with it.
Status Reader::set_partitioner(const Partitioner& partitioner) {
  SWALE_RETURN_IF_ERROR(partitioner.check());
  const std::shared_ptr<ReaderView> now = view();
  const Manifest& manifest = now->manifest();
  for (const EpochEntry& epoch : manifest.epochs) {
    const JobEntry& job = manifest.jobs[epoch.job];
    const bool is_last =
        epoch.epoch + 1 == manifest.epochs.size() || manifest.epochs[epoch.epoch + 1].job != epoch.job;
    if (!is_last || partitioner.by_hash() || job.partitioner != partitioner.name) continue;
    const uint32_t partitions = job.ranks;
    for (const PartitionNumber partition : {PartitionNumber(0), PartitionNumber(partitions - 1)}) {
      PartitionNumber answer = partition;
      size_t asked = 0;
      SWALE_RETURN_IF_ERROR(
          now->scan_part(epoch.epoch, partition, partitions, [&](EpochNumber, Bytes key, Bytes) {
            answer = partitioner.ask(key, partitions);
            return answer == partition && ++asked < kKeysAsked;
          }));
      if (answer == partition) continue;
      return invalid_argument(
          "{}: this is not the partitioner \"{}\" that wrote epoch {}: it answers {} for a key of partition "
          "{}",
          directory_, partitioner.name, epoch.epoch, answer, partition);
    }
  }
  return partitioners_.set(partitioner);
}

Result<EpochStats> Reader::epoch_stats(int64_t epoch) {
  const std::shared_ptr<const Manifest> manifest = manifest_now();
  if (epoch < 0 || epoch >= static_cast<int64_t>(manifest->epochs.size())) {
    return invalid_argument("{}: no statistics of epoch {}: it has {} committed epochs, numbered from 0",
                            directory_, epoch, manifest->epochs.size());
  }
  const EpochEntry& entry = manifest->epochs[static_cast<size_t>(epoch)];
  return statistics(manifest->origin_of(entry))->get(entry.epoch_id);
}

Result<std::string> Reader::directory_attributes(int64_t epoch) const {
  const std::shared_ptr<ReaderView> now = view();
  const Manifest& manifest = now->manifest();
  if (epoch == kAllEpochs && manifest.epochs.empty()) return std::string(kNoAttributes);
  if (epoch == kAllEpochs) epoch = static_cast<int64_t>(manifest.epochs.size()) - 1;
  SWALE_RETURN_IF_ERROR(check_described(directory_, manifest, epoch));
  return now->blame(
      read_directory_attributes(device_, directory_, manifest, EpochNumber(static_cast<uint32_t>(epoch))));
}

Result<std::string> Reader::epoch_attributes(int64_t epoch) const {
  const std::shared_ptr<ReaderView> now = view();
  SWALE_RETURN_IF_ERROR(check_described(directory_, now->manifest(), epoch));
  Result<Attributes> found =
      now->blame(read_attributes(device_, directory_, now->manifest().epochs[static_cast<size_t>(epoch)]));
  SWALE_RETURN_IF_ERROR(found.status());
  return found->epoch ? std::move(*found->epoch) : std::string(kNoAttributes);
}

std::shared_ptr<StatsReader> Reader::statistics(uint32_t job) {
  const MutexLock lock(mutex_);
  std::shared_ptr<StatsReader>& stats = stats_[job];
  if (!stats) stats = std::make_shared<StatsReader>(device_, directory_, job);
  return stats;
}

}  // namespace swale::imd
