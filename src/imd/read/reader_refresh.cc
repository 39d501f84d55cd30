// The Reader as it is opened: a ReaderView and what replaces it when epochs come or go (docs/design/reader.md).
#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "imd/format/generation.h"
#include "imd/format/stats_log.h"
#include "imd/read/reader.h"
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

class RefreshableReader final : public Reader {
 public:
  RefreshableReader(io::Device& device, std::string directory, const ReaderOptions& options)
      : device_(device), directory_(std::move(directory)), options_(options) {}

  Result<Refreshed> refresh() override;

  const Manifest& manifest() const override { return view()->manifest(); }
  std::shared_ptr<const Manifest> manifest_now() const override {
    std::shared_ptr<ReaderView> now = view();
    const Manifest& manifest = now->manifest();
    return {std::move(now), &manifest};
  }
  const std::string& directory() const override { return directory_; }
  Result<std::vector<Value>> get(Bytes key, int64_t epoch) override { return view()->get(key, epoch); }
  Result<std::vector<FoundValue>> find(Bytes key, int64_t epoch) override { return view()->find(key, epoch); }
  Status read(Bytes key, const FoundValue& value, uint64_t first, MutableBytes out) override {
    return view()->read(key, value, first, out);
  }
  Result<size_t> get_many(std::span<const Bytes> keys, int64_t epoch, const BatchFn& fn) override {
    return view()->get_many(keys, epoch, fn);
  }
  Status scan(int64_t epoch, const RecordFn& fn) override { return view()->scan(epoch, fn); }
  Status scan_partition(uint32_t epoch, uint32_t partition, const RecordFn& fn) override {
    return view()->scan_partition(epoch, partition, fn);
  }
  Result<std::vector<ScanPiece>> scan_pieces(uint32_t epoch, uint32_t partition,
                                             uint64_t blocks_min) override {
    return view()->scan_pieces(epoch, partition, blocks_min);
  }
  Status scan_piece(const ScanPiece& piece, const RecordFn& fn) override {
    return view()->scan_piece(piece, fn);
  }
  Status scan_part(int64_t epoch, uint32_t part, uint32_t parts, const RecordFn& fn) override {
    return view()->scan_part(epoch, part, parts, fn);
  }
  Status keys(int64_t epoch, const KeyFn& fn) override { return view()->keys(epoch, fn); }
  Status sample(int64_t epoch, size_t n, uint64_t seed, const KeyFn& fn) override {
    return view()->sample(epoch, n, seed, fn);
  }
  Result<TopResult> top(int64_t epoch, std::string_view field, size_t k, run::Extreme which) override {
    return view()->top(epoch, field, k, which);
  }
  Result<uint64_t> count(int64_t epoch) const override { return view()->count(epoch); }
  Result<EpochStats> epoch_stats(int64_t epoch) override;
  VerifyReport verify(size_t problems_max, const ProgressFn& progress) override {
    return view()->verify(problems_max, progress);
  }
  ReadStats stats() const override { return counters_.snapshot(); }
  Status set_partitioner(const Partitioner& partitioner) override;

 private:
  std::shared_ptr<ReaderView> view() const {
    const std::lock_guard lock(mutex_);
    return view_;
  }
  std::shared_ptr<StatsReader> statistics(uint32_t job);

  io::Device& device_;
  const std::string directory_;
  const ReaderOptions options_;
  ReadCounters counters_;
  Partitioners partitioners_;
  std::mutex refreshing_;     // one at a time
  mutable std::mutex mutex_;  // guards what follows; held for a moment only
  std::shared_ptr<ReaderView> view_;
  std::map<uint32_t, std::shared_ptr<StatsReader>> stats_;  // by the number of the job that wrote the epochs
};

Result<Reader::Refreshed> RefreshableReader::refresh() {
  const std::lock_guard only(refreshing_);
  SWALE_ASSIGN_OR_RETURN(Manifest manifest, load_manifest(device_, directory_));
  const std::shared_ptr<ReaderView> before = view();
  Refreshed refreshed;
  size_t common = 0;
  bool same_place = false;
  if (before) {
    common = common_epochs(before->manifest(), manifest);
    refreshed.added = common < manifest.epochs.size();
    refreshed.dropped = common < before->manifest().epochs.size();
    const bool same_losses = before->manifest().lost == manifest.lost;
    if (!refreshed.added && !refreshed.dropped && common > 0 && same_losses) return refreshed;
    same_place = common > 0 && same_losses;  // after a repair all logs are opened again
  }
  std::shared_ptr<ReaderView> next =
      make_reader_view(device_, directory_, std::move(manifest), options_, counters_, partitioners_,
                       same_place ? before.get() : nullptr, common);
  const std::lock_guard lock(mutex_);
  view_ = std::move(next);
  // Another directory may be at the same place.
  if (!same_place) stats_.clear();
  return refreshed;
}

// Asks it for some keys of the first and the last partition of each job that wrote with it.
Status RefreshableReader::set_partitioner(const Partitioner& partitioner) {
  SWALE_RETURN_IF_ERROR(partitioner.check());
  const std::shared_ptr<ReaderView> now = view();
  const Manifest& manifest = now->manifest();
  for (const EpochEntry& epoch : manifest.epochs) {
    const JobEntry& job = manifest.jobs[epoch.job];
    const bool is_last =
        epoch.epoch + 1 == manifest.epochs.size() || manifest.epochs[epoch.epoch + 1].job != epoch.job;
    if (!is_last || partitioner.by_hash() || job.partitioner != partitioner.name) continue;
    const auto partitions = static_cast<uint32_t>(job.ranks);
    for (const uint32_t partition : {uint32_t{0}, partitions - 1}) {
      uint32_t answer = partition;
      size_t asked = 0;
      SWALE_RETURN_IF_ERROR(now->scan_partition(epoch.epoch, partition, [&](uint32_t, Bytes key, Bytes) {
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

Result<EpochStats> RefreshableReader::epoch_stats(int64_t epoch) {
  const std::shared_ptr<const Manifest> manifest = manifest_now();
  if (epoch < 0 || epoch >= static_cast<int64_t>(manifest->epochs.size())) {
    return invalid_argument("{}: no statistics of epoch {}: it has {} committed epochs, numbered from 0",
                            directory_, epoch, manifest->epochs.size());
  }
  const EpochEntry& entry = manifest->epochs[static_cast<size_t>(epoch)];
  return statistics(manifest->job_of(entry).number)->get(entry.epoch_id);
}

std::shared_ptr<StatsReader> RefreshableReader::statistics(uint32_t job) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<StatsReader>& stats = stats_[job];
  if (!stats) stats = std::make_shared<StatsReader>(device_, directory_, job);
  return stats;
}

}  // namespace

Result<std::unique_ptr<Reader>> Reader::open(io::Device& device, const std::string& directory,
                                             const ReaderOptions& options) {
  if (options.reads_in_flight_max < 1 || options.reads_in_flight_max > kReadsInFlightLimit ||
      options.scan_chunk_bytes < run::kBlockBytes || options.scan_chunk_bytes > kScanChunkBytesLimit) {
    return invalid_argument("reads in flight {} (1 to {}), scan chunk {} bytes ({} to {})",
                            options.reads_in_flight_max, kReadsInFlightLimit, options.scan_chunk_bytes,
                            run::kBlockBytes, kScanChunkBytesLimit);
  }
  auto reader = std::make_unique<RefreshableReader>(device, directory, options);
  SWALE_RETURN_IF_ERROR(reader->refresh().status());
  return std::unique_ptr<Reader>(std::move(reader));
}

}  // namespace swale::imd
