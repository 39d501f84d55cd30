#include "imd/read/reader_sample.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "imd/read/reader_scan.h"
#include "imd/read/reader_tables.h"
#include "run/block.h"

namespace swale::imd {
namespace {

constexpr uint64_t kBytesPerKey = 10 * kKiB;  // a slice and a block: beyond, a scan reads less
constexpr double kTwoTo53 = 9007199254740992.0;

// The top `bits` of a hash.
uint64_t top_bits(Hash hash, uint32_t bits) { return bits == 0 ? 0 : hash >> (64 - bits); }

}  // namespace

KeySample::KeySample(const ReaderFiles& files, const Manifest& manifest, const EpochEntry& epoch,
                     PartitionCache& partitions, const FreedEpochs& freed, uint64_t seed)
    : epoch_(epoch),
      ranks_(manifest.jobs[epoch.job].ranks),
      ways_(manifest.jobs[epoch.job].ways),
      partitions_(partitions),
      freed_(freed),
      files_(files),
      rng_(seed),
      anywhere_(TableCache::has_tables(manifest, epoch)) {
  // About one slice each; the same number in every partition, so that each is as likely.
  const uint64_t goal = uint64_t{run::kSliceRecordsGoal} * ranks_ * ways_;
  while (window_bits_ < run::kSliceBitsMax && epoch.records >> (window_bits_ + 1) >= goal) ++window_bits_;
  windows_ = (uint64_t{ranks_} * ways_) << window_bits_;
}

Result<std::vector<std::string>> KeySample::draw(size_t n) {
  const uint64_t records = epoch_.records;
  bool by_throws = !anywhere_ && !epoch_.freed && records != 0 && n <= epoch_.data_bytes / kBytesPerKey;
  // As many throws as find one key a window on average, or two n in all if there are fewer windows.
  const double keys_per_record = static_cast<double>(std::max<uint64_t>(windows_, 2 * n)) /
                                 static_cast<double>(std::max<uint64_t>(records, 1));
  // In rounds over all windows: keys of many records are few among the records, and so are hit late.
  while (by_throws && keys_.size() < n && bytes_read_ < epoch_.data_bytes) {
    if (visited_ == windows_) {
      visited_ = 0;
      order_.clear();
    }
    const size_t before = keys_.size();
    const uint64_t window = next_window();
    uint32_t depth = 0;
    const PartitionNumber partition(static_cast<uint32_t>(window >> window_bits_) / ways_);
    SWALE_ASSIGN_OR_RETURN(const auto logs, partitions_.get(epoch_, partition, &depth));
    SWALE_ASSIGN_OR_RETURN(by_throws, can_throw(*logs));
    if (by_throws) SWALE_RETURN_IF_ERROR(visit(window, keys_per_record));
    std::shuffle(keys_.begin() + static_cast<std::ptrdiff_t>(before), keys_.end(), rng_);
  }
  if (keys_.size() < n) SWALE_RETURN_IF_ERROR(scan(n));
  keys_.resize(std::min(n, keys_.size()));
  return std::move(keys_);
}

// A shuffle of all windows, as far as it is needed.
uint64_t KeySample::next_window() {
  const uint64_t place = visited_++;
  const uint64_t other = place + rng_.below(windows_ - place);
  const auto at = [&](uint64_t index) {
    const auto moved = order_.find(index);
    return moved == order_.end() ? index : moved->second;
  };
  const uint64_t window = at(other);
  order_[other] = at(place);
  order_.erase(place);
  return window;
}

// Whether the epoch's segments are sketches that this build knows.
Result<bool> KeySample::can_throw(const PartitionLogs& logs) {
  const auto segments = logs.segments_of(epoch_.epoch);
  return std::all_of(segments.begin(), segments.end(), [](const run::SegmentRecord& segment) {
    return (segment.flags & ~(run::kUniformSegment | run::kPackedSegment)) == 0;
  });
}

Status KeySample::visit(uint64_t window, double keys_per_record) {
  const auto home = static_cast<uint32_t>(window >> window_bits_);
  const uint32_t way = home % ways_;
  uint32_t depth = 0;
  SWALE_ASSIGN_OR_RETURN(const auto logs, partitions_.get(epoch_, PartitionNumber(home / ways_), &depth));
  const Hash prefix = window_bits_ == 0 ? 0 : window << (64 - window_bits_);
  std::vector<OpenSlices> segments;
  uint32_t cell_bits = 0;
  for (uint32_t i = logs->first_segments[epoch_.epoch]; i < logs->first_segments[epoch_.epoch + 1]; ++i) {
    const run::SegmentRecord& record = logs->segments[i];
    if (record.way != way || record.runs == 0) continue;
    segments.push_back({&record, logs->seeds[i].slices, {}});
    SWALE_ASSIGN_OR_RETURN(const run::Slice* slice, slice_of(*logs, &segments.back(), prefix));
    cell_bits = std::max(cell_bits, slice->fingerprint_bits());
  }
  if (segments.empty()) return {};
  cell_bits = std::max(cell_bits, window_bits_);
  const double wanted = keys_per_record * std::exp2(static_cast<double>(cell_bits - window_bits_));
  auto throws = static_cast<uint64_t>(wanted);
  // The fraction by chance, so that the mean is exact.
  if (static_cast<double>(rng_.next() >> 11) / kTwoTo53 < wanted - std::floor(wanted)) ++throws;
  for (uint64_t i = 0; i < throws; ++i) {
    const Hash thrown = prefix | (rng_.next() >> window_bits_);
    SWALE_RETURN_IF_ERROR(read_candidates(*logs, &segments, thrown, cell_bits));
  }
  return {};
}

Status KeySample::read(io::File& file, uint64_t offset, MutableBytes out) {
  ReadQueue reads(files_.options.reads_in_flight_max);
  reads.add(file, offset, out, 0);
  SWALE_RETURN_IF_ERROR(reads.finish());
  files_.counters.reads.add();
  files_.counters.bytes_read.add(out.size());
  bytes_read_ += out.size();
  return {};
}

Result<const run::Slice*> KeySample::slice_of(const PartitionLogs& logs, OpenSlices* segment, Hash rest) {
  const run::SliceLocation place = *run::locate_slice(*segment->record, rest);
  const auto known = segment->slices.find(place.slice);
  if (known != segment->slices.end()) return &known->second.second;
  std::vector<char> bytes(place.bytes);
  SWALE_RETURN_IF_ERROR(read(*logs.index, place.offset, {bytes.data(), bytes.size()}));
  const auto open = [&](Bytes from) {
    return run::Slice::open_seeded(*segment->record, segment->seed, place, from, logs.index->path());
  };
  Result<run::Slice> opened = open({bytes.data(), bytes.size()});
  if (!opened.ok()) {
    std::vector<char> second(place.bytes);
    SWALE_RETURN_IF_ERROR(read_again(*logs.index, place.offset, {bytes.data(), bytes.size()}, second,
                                     opened.status(), [&](Bytes again) { return open(again).status(); }));
    bytes = std::move(second);
    opened = open({bytes.data(), bytes.size()});
    SWALE_RETURN_IF_ERROR(opened.status());
  }
  run::Slice slice = std::move(*opened);
  if (const auto rest_of_it = slice.overflow()) {
    std::vector<char> overflow(rest_of_it->bytes);
    SWALE_RETURN_IF_ERROR(read(*logs.index, rest_of_it->offset, {overflow.data(), overflow.size()}));
    SWALE_RETURN_IF_ERROR(slice.attach_overflow({overflow.data(), overflow.size()}));
  }
  const auto added =
      segment->slices.emplace(place.slice, std::pair(std::move(bytes), std::move(slice))).first;
  return &added->second.second;
}

Status KeySample::read_candidates(const PartitionLogs& logs, std::vector<OpenSlices>* segments, Hash thrown,
                                  uint32_t cell_bits) {
  std::vector<run::Candidate> candidates;
  for (OpenSlices& segment : *segments) {
    SWALE_ASSIGN_OR_RETURN(const run::Slice* slice, slice_of(logs, &segment, thrown));
    SWALE_RETURN_IF_ERROR(
        slice->candidates(thrown, [&](const run::Candidate& candidate) { candidates.push_back(candidate); }));
  }
  for (const run::Candidate& candidate : candidates) {
    SWALE_RETURN_IF_ERROR(keep_if_hit(logs, candidate, thrown, cell_bits));
  }
  return {};
}

Status KeySample::keep_if_hit(const PartitionLogs& logs, const run::Candidate& candidate, Hash thrown,
                              uint32_t cell_bits) {
  // Records of one key are neighbours.
  if (blocks_of_ != logs.id.partition || first_block_ != candidate.block ||
      blocks_.size() != candidate.block_count * run::kBlockBytes) {
    blocks_of_ = kNoPartition;
    walk_.forget();
    blocks_.resize(candidate.block_count * run::kBlockBytes);
    SWALE_RETURN_IF_ERROR(
        read(*logs.data, candidate.block * run::kBlockBytes, {blocks_.data(), blocks_.size()}));
    const uint32_t seed = run::epoch_seed(logs.id.partition, epoch_.epoch_id);
    const auto check = [&](Bytes blocks) {
      return run::verify_blocks(blocks, seed, candidate.block, logs.data->path());
    };
    if (const Status status = check({blocks_.data(), blocks_.size()}); !status.ok()) {
      std::vector<char> second(blocks_.size());
      SWALE_RETURN_IF_ERROR(read_again(*logs.data, candidate.block * run::kBlockBytes,
                                       {blocks_.data(), blocks_.size()}, second, status, check));
      blocks_ = std::move(second);
    }
    blocks_of_ = logs.id.partition;
    first_block_ = candidate.block;
  }
  SWALE_ASSIGN_OR_RETURN(const std::optional<run::RecordView> record,
                         run::RecordMatch::in_verified(candidate, {blocks_.data(), blocks_.size()},
                                                       run::kAnyKey, &walk_, logs.data->path()));
  const Hash rest = choose(choose(hash_bytes(record->key), ranks_).rest, ways_).rest;
  if (top_bits(rest, cell_bits) != top_bits(thrown, cell_bits)) return {};
  if (found_.emplace(record->key).second) keys_.emplace_back(record->key);
  return {};
}

// Reservoir sampling of the distinct keys: after each, every one so far is among the n with the same chance.
Status KeySample::scan(size_t n) {
  scanned_ = true;
  keys_.clear();
  uint64_t met = 0;
  bool stopped = false;
  std::unordered_set<std::string> seen;
  for (PartitionNumber partition(0); partition < ranks_; ++partition) {
    uint32_t depth = 0;
    if (!anywhere_) seen.clear();  // all values of a key are in one partition
    const ScanFn take = [&](const run::ScannedRecord& record) {
      const Bytes key = record.key;
      if (!seen.emplace(key).second) return true;
      const uint64_t place = met < n ? met : rng_.below(met + 1);
      if (met++ < n) {
        keys_.emplace_back(key);
      } else if (place < n) {
        keys_[place] = key;
      }
      return true;
    };
    if (epoch_.freed) {
      SWALE_RETURN_IF_ERROR(freed_.scan_all(files_, epoch_, take, &stopped));
      continue;
    }
    SWALE_ASSIGN_OR_RETURN(const auto logs, partitions_.get(epoch_, partition, &depth));
    SWALE_RETURN_IF_ERROR(scan_epoch(files_, *logs, epoch_, take, &stopped));
  }
  std::shuffle(keys_.begin(), keys_.end(), rng_);
  return {};
}

}  // namespace swale::imd
