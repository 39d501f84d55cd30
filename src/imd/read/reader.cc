#include "imd/read/reader.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "imd/format/generation.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "imd/read/reader_query.h"
#include "imd/read/reader_query_pool.h"
#include "imd/read/reader_sample.h"
#include "imd/read/reader_scan.h"
#include "imd/read/reader_sort.h"
#include "imd/read/reader_top.h"
#include "imd/read/reader_values.h"
#include "imd/read/reader_verify.h"
#include "imd/read/reader_view.h"
#include "run/record.h"

namespace swale::imd {
namespace {

// Of the record that stands for it. kCorruption, naming `path`, for bytes that are no pointer.
Result<ValueReader::Place> place_of(Bytes key, Bytes stored, uint32_t job, const EpochEntry& epoch,
                                    const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const run::LargeValue large, run::decode_large_value(stored, path));
  return ValueReader::Place{large.pointer, job, epoch.epoch, epoch.epoch_id, hash_bytes(key)};
}

// Values of one key, in order.
class ValueSink final : public Query::Sink {
 public:
  explicit ValueSink(size_t expected) {
    values_.reserve(expected);
    sequences_.reserve(expected);
  }

  bool hit(const Query::Hit& hit) override {
    in_order_ = in_order_ && (sequences_.empty() || sequences_.back() <= hit.sequence);
    sequences_.push_back(hit.sequence);
    values_.push_back({hit.epoch, hit.large, hit.value.size(), std::string(hit.value)});
    return true;
  }

  std::vector<FoundValue> take() {
    if (in_order_) return std::move(values_);
    std::vector<size_t> order(values_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return sequences_[a] < sequences_[b]; });
    std::vector<FoundValue> sorted;
    sorted.reserve(order.size());
    for (const size_t i : order) sorted.push_back(std::move(values_[i]));
    return sorted;
  }

 private:
  std::vector<FoundValue> values_;
  std::vector<uint64_t> sequences_;
  bool in_order_ = true;
};

class BatchSink final : public Query::Sink {
 public:
  // `read_large(key index, epoch, what the record has)` gives the value.
  using LargeFn = std::function<Result<std::string>(size_t, uint32_t, Bytes)>;
  BatchSink(size_t keys, const Reader::BatchFn& fn, LargeFn read_large)
      : fn_(fn), read_large_(std::move(read_large)), found_(keys) {}

  bool hit(const Query::Hit& hit) override {
    found_count_ += found_[hit.key_index] == 0 ? 1 : 0;
    found_[hit.key_index] = 1;
    if (!hit.large) return fn_(hit.key_index, hit.epoch, hit.value);
    const Result<std::string> value = read_large_(hit.key_index, hit.epoch, hit.value);
    status_ = value.status();
    return value.ok() && fn_(hit.key_index, hit.epoch, *value);
  }
  const Status& status() const { return status_; }  // of reading large values
  size_t found_count() const { return found_count_; }

 private:
  const Reader::BatchFn& fn_;
  const LargeFn read_large_;
  Status status_;
  std::vector<char> found_;
  size_t found_count_ = 0;
};

class DirectoryReader final : public ReaderView {
 public:
  DirectoryReader(io::Device& device, std::string directory, Manifest manifest, const ReaderOptions& options,
                  ReadCounters& counters, const Partitioners& partitioners)
      : device_(device),
        directory_(std::move(directory)),
        manifest_(std::move(manifest)),
        options_(options),
        counters_(counters),
        partitioners_(partitioners),
        partitions_(device, directory_, manifest_, options.map, counters_),
        large_(device, directory_, counters_) {}

  const Manifest& manifest() const override { return manifest_; }
  const std::string& directory() const override { return directory_; }
  Result<std::vector<Value>> get(Bytes key, int64_t epoch) override { return told(get_now(key, epoch)); }
  Result<std::vector<FoundValue>> find(Bytes key, int64_t epoch) override {
    return told(find_now(key, epoch));
  }
  Status read(Bytes key, const FoundValue& value, uint64_t first, MutableBytes out) override {
    return told(read_now(key, value, first, out));
  }
  Result<size_t> get_many(std::span<const Bytes> keys, int64_t epoch, const BatchFn& fn) override {
    return told(get_many_now(keys, epoch, fn));
  }
  Status scan(int64_t epoch, const RecordFn& fn) override { return told(scan_now(epoch, fn)); }
  Status scan_partition(uint32_t epoch, uint32_t partition, const RecordFn& fn) override {
    return told(scan_partition_now(epoch, partition, fn));
  }
  Result<std::vector<ScanPiece>> scan_pieces(uint32_t epoch, uint32_t partition,
                                             uint64_t blocks_min) override {
    return told(scan_pieces_now(epoch, partition, blocks_min));
  }
  Status scan_piece(const ScanPiece& piece, const RecordFn& fn) override {
    return told(scan_piece_now(piece, fn));
  }
  Status scan_part(int64_t epoch, uint32_t part, uint32_t parts, const RecordFn& fn) override {
    return told(scan_part_now(epoch, part, parts, fn));
  }
  Status keys(int64_t epoch, const KeyFn& fn) override { return told(keys_now(epoch, fn)); }
  Status sample(int64_t epoch, size_t n, uint64_t seed, const KeyFn& fn) override {
    return told(sample_now(epoch, n, seed, fn));
  }
  Result<TopResult> top(int64_t epoch, std::string_view field, size_t k, run::Extreme which) override {
    return told(top_now(epoch, field, k, which));
  }
  Result<uint64_t> count(int64_t epoch) const override;
  VerifyReport verify(size_t problems_max, const ProgressFn& progress) override;
  ReadStats stats() const override { return counters_.snapshot(); }
  void take_over(DirectoryReader& before, size_t common) {
    partitions_.take_over(before.partitions_, common);
  }

 private:
  Result<std::vector<Value>> get_now(Bytes key, int64_t epoch);
  Result<std::vector<FoundValue>> find_now(Bytes key, int64_t epoch);
  Status read_now(Bytes key, const FoundValue& value, uint64_t first, MutableBytes out);
  Result<size_t> get_many_now(std::span<const Bytes> keys, int64_t epoch, const BatchFn& fn);
  Status scan_now(int64_t epoch, const RecordFn& fn);
  Status scan_partition_now(uint32_t epoch, uint32_t partition, const RecordFn& fn);
  Result<std::vector<ScanPiece>> scan_pieces_now(uint32_t epoch, uint32_t partition, uint64_t blocks_min);
  Status scan_piece_now(const ScanPiece& piece, const RecordFn& fn);
  Status scan_part_now(int64_t epoch, uint32_t part, uint32_t parts, const RecordFn& fn);
  Status keys_now(int64_t epoch, const KeyFn& fn);
  Status sample_now(int64_t epoch, size_t n, uint64_t seed, const KeyFn& fn);
  Result<TopResult> top_now(int64_t epoch, std::string_view field, size_t k, run::Extreme which);

  // The same, unless it says that a file is damaged and what has changed is the directory.
  Status told(Status status) const;
  template <class T>
  Result<T> told(Result<T> result) const {
    if (result.ok()) return result;
    return told(result.status());
  }

  QueryPool::Lease take_query() {
    return queries_.take([this] {
      return std::make_unique<Query>(manifest_, partitions_, partitioners_, counters_, device_, options_);
    });
  }
  Result<EpochRange> range_of(int64_t epoch) const;
  Result<ValueReader::Place> place(Bytes key, uint32_t epoch, Bytes stored) const {
    const EpochEntry& entry = manifest_.epochs[epoch];
    return place_of(key, stored, manifest_.job_of(entry).number, entry, directory_);
  }
  Status scan_records(uint32_t epoch, uint32_t partition, const ScanFn& fn, bool* stopped);
  ScanFn with_values(uint32_t epoch, const RecordFn& fn, Status* large);
  Status scan_one(uint32_t epoch, uint32_t partition, const RecordFn& fn, bool* stopped);
  Status check_partition(uint32_t epoch, uint32_t partition) const;
  Status scan_share(uint32_t epoch, uint32_t partition, const PartitionShare& share, const RecordFn& fn,
                    bool* stopped);

  io::Device& device_;
  const std::string directory_;
  const Manifest manifest_;
  const ReaderOptions options_;
  ReadCounters& counters_;
  const Partitioners& partitioners_;
  PartitionCache partitions_;
  ValueReader large_;
  QueryPool queries_;
};

// An epoch that was dropped (imd.resume_after) or a directory that was made anew: its files may be gone, shorter or others.
Status DirectoryReader::told(Status status) const {
  if (status.code() != Code::kCorruption) return status;
  const Result<Manifest> now = load_manifest(device_, directory_);
  if (!now.ok()) return status;
  for (const EpochEntry& epoch : manifest_.epochs) {
    if (epoch.epoch < now->epochs.size() && now->epochs[epoch.epoch].epoch_id == epoch.epoch_id) continue;
    return error(
        Code::kAborted, Scope::kFile,
        "{}: the directory has changed since it was opened: epoch {} (epoch_id {:016x}) was dropped, or the "
        "directory was made anew; refresh the reader or open it again. Found before that was noticed: {}",
        directory_, epoch.epoch, epoch.epoch_id, status.message());
  }
  return status;
}

Status check_key(Bytes key) {
  if (!key.empty() && key.size() <= run::kKeyBytesMax) return {};
  return invalid_argument("a key of {} bytes: keys have 1 to {} bytes", key.size(), run::kKeyBytesMax);
}

Result<EpochRange> DirectoryReader::range_of(int64_t epoch) const {
  const auto count = static_cast<uint32_t>(manifest_.epochs.size());
  if (epoch == kAllEpochs) return EpochRange{0, count};
  if (epoch < 0 || epoch >= count) {
    return invalid_argument("{}: no epoch {}: it has {} committed epochs, numbered from 0", directory_, epoch,
                            count);
  }
  return EpochRange{static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch) + 1};
}

Result<std::vector<Value>> DirectoryReader::get_now(Bytes key, int64_t epoch) {
  SWALE_ASSIGN_OR_RETURN(std::vector<FoundValue> found, find_now(key, epoch));
  std::vector<Value> values;
  values.reserve(found.size());
  for (FoundValue& value : found) {
    values.push_back({value.epoch, std::move(value.stored)});
    if (!value.large) continue;
    SWALE_ASSIGN_OR_RETURN(const ValueReader::Place at, place(key, value.epoch, values.back().bytes));
    SWALE_ASSIGN_OR_RETURN(values.back().bytes, large_.read(at));
  }
  return values;
}

Status DirectoryReader::read_now(Bytes key, const FoundValue& value, uint64_t first, MutableBytes out) {
  if (value.epoch >= manifest_.epochs.size() || first > value.bytes || out.size() > value.bytes - first) {
    return invalid_argument("{}: {} bytes from byte {} on of a value of {} bytes", directory_, out.size(),
                            first, value.bytes);
  }
  if (!value.large) {
    value.stored.copy(out.data(), out.size(), first);
    return {};
  }
  SWALE_ASSIGN_OR_RETURN(const ValueReader::Place at, place(key, value.epoch, value.stored));
  return large_.read(at, first, out);
}

Result<std::vector<FoundValue>> DirectoryReader::find_now(Bytes key, int64_t epoch) {
  SWALE_RETURN_IF_ERROR(check_key(key));
  SWALE_ASSIGN_OR_RETURN(const EpochRange epochs, range_of(epoch));
  counters_.queries.add();
  constexpr size_t kExpectedMax = 64;
  ValueSink sink(std::min<size_t>(epochs.last - epochs.first, kExpectedMax));
  const QueryKey query_key{hash_bytes(key), 0, key};
  SWALE_RETURN_IF_ERROR(take_query()->run({&query_key, 1}, epochs, sink));
  std::vector<FoundValue> values = sink.take();
  for (FoundValue& value : values) {
    if (!value.large) continue;
    SWALE_ASSIGN_OR_RETURN(const ValueReader::Place at, place(key, value.epoch, value.stored));
    value.bytes = at.pointer.value_bytes;
  }
  if (!values.empty()) return values;
  return error(Code::kNotFound, Scope::kOperation, "{}: no value of this key in {}", directory_,
               epoch == kAllEpochs ? "any epoch" : fmt::format("epoch {}", epoch));
}

// Most of the order of hashes is in their upper half: the radix sort looks at no more.
void sort_by_hash(std::vector<QueryKey>& keys) {
  constexpr int kUpperHalf = 32;
  {
    std::vector<QueryKey> scratch;
    radix_sort(keys, scratch, [](const QueryKey& key) { return key.hash >> kUpperHalf; });
  }
  const auto less = [](const QueryKey& a, const QueryKey& b) { return a.hash < b.hash; };
  for (auto at = keys.begin(); at != keys.end();) {
    const auto same_half = [&](const QueryKey& key) { return (key.hash ^ at->hash) >> kUpperHalf == 0; };
    const auto end = std::find_if_not(at + 1, keys.end(), same_half);
    if (end - at > 1) std::sort(at, end, less);
    at = end;
  }
}

Result<size_t> DirectoryReader::get_many_now(std::span<const Bytes> keys, int64_t epoch, const BatchFn& fn) {
  SWALE_ASSIGN_OR_RETURN(const EpochRange epochs, range_of(epoch));
  std::vector<QueryKey> order;
  order.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (const Status status = check_key(keys[i]); !status.ok())
      return status.with_context(fmt::format("key {}", i));
    order.push_back({hash_bytes(keys[i]), i, keys[i]});
  }
  sort_by_hash(order);
  counters_.queries.add();
  BatchSink sink(keys.size(), fn, [&](size_t index, uint32_t at, Bytes stored) -> Result<std::string> {
    SWALE_ASSIGN_OR_RETURN(const ValueReader::Place value, place(keys[index], at, stored));
    return large_.read(value);
  });
  SWALE_RETURN_IF_ERROR(take_query()->run(order, epochs, sink));
  SWALE_RETURN_IF_ERROR(sink.status());
  return sink.found_count();
}

// Gives `fn` whole values, also large ones; `*large` is why one could not be read, and the walk then ends.
ScanFn DirectoryReader::with_values(uint32_t epoch, const RecordFn& fn, Status* large) {
  return [this, epoch, &fn, large](const run::ScannedRecord& record) {
    if (!record.large) return fn(epoch, record.key, record.value);
    const Result<ValueReader::Place> at = place(record.key, epoch, record.value);
    const Result<std::string> value = at.ok() ? large_.read(*at) : Result<std::string>(at.status());
    *large = value.status();
    return value.ok() && fn(epoch, record.key, *value);
  };
}

Status DirectoryReader::scan_one(uint32_t epoch, uint32_t partition, const RecordFn& fn, bool* stopped) {
  Status large;
  SWALE_RETURN_IF_ERROR(scan_records(epoch, partition, with_values(epoch, fn, &large), stopped));
  return large;
}

Status DirectoryReader::scan_records(uint32_t epoch, uint32_t partition, const ScanFn& fn, bool* stopped) {
  uint32_t depth = 0;
  SWALE_ASSIGN_OR_RETURN(const auto logs, partitions_.get(manifest_.epochs[epoch], partition, &depth));
  return scan_epoch(*logs, manifest_.epochs[epoch], options_, counters_, fn, stopped);
}

Status DirectoryReader::scan_now(int64_t epoch, const RecordFn& fn) {
  SWALE_ASSIGN_OR_RETURN(const EpochRange epochs, range_of(epoch));
  bool stopped = false;
  for (uint32_t e = epochs.first; e < epochs.last; ++e) {
    const auto partitions = static_cast<uint32_t>(manifest_.jobs[manifest_.epochs[e].job].ranks);
    for (uint32_t partition = 0; partition < partitions && !stopped; ++partition) {
      SWALE_RETURN_IF_ERROR(scan_one(e, partition, fn, &stopped));
    }
  }
  return {};
}

Status DirectoryReader::keys_now(int64_t epoch, const KeyFn& fn) {
  if (epoch == kAllEpochs) return invalid_argument("{}: keys are listed of one epoch at a time", directory_);
  SWALE_ASSIGN_OR_RETURN(const EpochRange epochs, range_of(epoch));
  const auto partitions = static_cast<uint32_t>(manifest_.jobs[manifest_.epochs[epochs.first].job].ranks);
  bool stopped = false;
  for (uint32_t partition = 0; partition < partitions && !stopped; ++partition) {
    std::unordered_set<std::string> seen;  // all values of a key are in one partition
    const ScanFn distinct = [&](const run::ScannedRecord& record) {
      return !seen.emplace(record.key).second || fn(record.key);
    };
    SWALE_RETURN_IF_ERROR(scan_records(epochs.first, partition, distinct, &stopped));
  }
  return {};
}

Status DirectoryReader::sample_now(int64_t epoch, size_t n, uint64_t seed, const KeyFn& fn) {
  if (epoch == kAllEpochs) return invalid_argument("{}: keys are drawn from one epoch", directory_);
  if (n > kSampleMax) return invalid_argument("a sample of {} keys: at most {} can be drawn", n, kSampleMax);
  SWALE_ASSIGN_OR_RETURN(const EpochRange epochs, range_of(epoch));
  KeySample sample(manifest_, manifest_.epochs[epochs.first], partitions_, counters_, options_, seed);
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> keys, sample.draw(n));
  std::all_of(keys.begin(), keys.end(), fn);
  return {};
}

Result<TopResult> DirectoryReader::top_now(int64_t epoch, std::string_view field, size_t k,
                                           run::Extreme which) {
  if (epoch == kAllEpochs) return invalid_argument("{}: the best records are those of one epoch", directory_);
  SWALE_ASSIGN_OR_RETURN(const EpochRange epochs, range_of(epoch));
  TopQuery query(device_, directory_, manifest_, partitions_, counters_, options_,
                 manifest_.epochs[epochs.first]);
  return query.run(field, k, which);
}

Status DirectoryReader::check_partition(uint32_t epoch, uint32_t partition) const {
  SWALE_RETURN_IF_ERROR(range_of(epoch).status());
  const int32_t partitions = manifest_.jobs[manifest_.epochs[epoch].job].ranks;
  if (partition < static_cast<uint32_t>(partitions)) return {};
  return invalid_argument("{}: no partition {}: epoch {} has {}, numbered from 0", directory_, partition,
                          epoch, partitions);
}

Result<std::vector<Reader::ScanPiece>> DirectoryReader::scan_pieces_now(uint32_t epoch, uint32_t partition,
                                                                        uint64_t blocks_min) {
  SWALE_RETURN_IF_ERROR(check_partition(epoch, partition));
  uint32_t depth = 0;
  SWALE_ASSIGN_OR_RETURN(const auto logs, partitions_.get(manifest_.epochs[epoch], partition, &depth));
  return pieces_of(*logs, manifest_.epochs[epoch], blocks_min, counters_);
}

Status DirectoryReader::scan_piece_now(const ScanPiece& piece, const RecordFn& fn) {
  SWALE_RETURN_IF_ERROR(check_partition(piece.epoch, piece.partition));
  uint32_t depth = 0;
  SWALE_ASSIGN_OR_RETURN(const auto logs,
                         partitions_.get(manifest_.epochs[piece.epoch], piece.partition, &depth));
  bool stopped = false;
  Status large;
  SWALE_RETURN_IF_ERROR(scan_blocks(*logs, manifest_.epochs[piece.epoch], piece, options_, counters_,
                                    with_values(piece.epoch, fn, &large), &stopped));
  return large;
}

// The runs of a partition that belong to a part of the scan, as one piece: they lie side by side.
Status DirectoryReader::scan_share(uint32_t epoch, uint32_t partition, const PartitionShare& share,
                                   const RecordFn& fn, bool* stopped) {
  uint32_t depth = 0;
  SWALE_ASSIGN_OR_RETURN(const auto logs, partitions_.get(manifest_.epochs[epoch], partition, &depth));
  const EpochEntry& entry = manifest_.epochs[epoch];
  SWALE_ASSIGN_OR_RETURN(const std::optional<ScanPiece> piece, piece_of(*logs, entry, share, counters_));
  if (!piece) return {};
  Status large;
  SWALE_RETURN_IF_ERROR(
      scan_blocks(*logs, entry, *piece, options_, counters_, with_values(epoch, fn, &large), stopped));
  return large;
}

Status DirectoryReader::scan_part_now(int64_t epoch, uint32_t part, uint32_t parts, const RecordFn& fn) {
  if (parts == 0 || parts > kScanPartsMax || part >= parts) {
    return invalid_argument("{}: part {} of {}: expected 1 to {} parts, numbered from 0", directory_, part,
                            parts, kScanPartsMax);
  }
  SWALE_ASSIGN_OR_RETURN(const EpochRange epochs, range_of(epoch));
  bool stopped = false;
  for (uint32_t e = epochs.first; e < epochs.last; ++e) {
    const auto partitions = static_cast<uint32_t>(manifest_.jobs[manifest_.epochs[e].job].ranks);
    const auto first = static_cast<uint32_t>(uint64_t{part} * partitions / parts);
    for (uint32_t partition = first; partition < partitions; ++partition) {
      const PartitionShare share = share_of(partition, partitions, part, parts);
      if (share.from == share.to) break;
      SWALE_RETURN_IF_ERROR(scan_share(e, partition, share, fn, &stopped));
      if (stopped) return {};
    }
  }
  return {};
}

Status DirectoryReader::scan_partition_now(uint32_t epoch, uint32_t partition, const RecordFn& fn) {
  SWALE_RETURN_IF_ERROR(check_partition(epoch, partition));
  bool stopped = false;
  return scan_one(epoch, partition, fn, &stopped);
}

Result<uint64_t> DirectoryReader::count(int64_t epoch) const {
  SWALE_ASSIGN_OR_RETURN(const EpochRange epochs, range_of(epoch));
  uint64_t records = 0;
  for (uint32_t e = epochs.first; e < epochs.last; ++e) {
    const EpochEntry& entry = manifest_.epochs[e];
    if (entry.recovered == Recovered::kWhole && manifest_.has_lost(entry)) {
      return corruption(
          "{}: how many records epoch {} had is lost with its record in the epoch log; {} of them are known",
          directory_, e, entry.records);
    }
    records += entry.records;
  }
  return records;
}

Reader::VerifyReport DirectoryReader::verify(size_t problems_max, const ProgressFn& progress) {
  return Verifier(device_, directory_, manifest_, options_, counters_).run(problems_max, progress);
}

}  // namespace

std::unique_ptr<ReaderView> make_reader_view(io::Device& device, const std::string& directory,
                                             Manifest manifest, const ReaderOptions& options,
                                             ReadCounters& counters, const Partitioners& partitioners,
                                             ReaderView* before, size_t common) {
  auto view = std::make_unique<DirectoryReader>(device, directory, std::move(manifest), options, counters,
                                                partitioners);
  if (before != nullptr) view->take_over(static_cast<DirectoryReader&>(*before), common);
  return view;
}

}  // namespace swale::imd
