#include "imd/read/reader_view.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "imd/format/generation.h"
#include "imd/read/reader_collect.h"
#include "imd/read/reader_sample.h"
#include "imd/read/reader_sort.h"
#include "imd/read/reader_top.h"
#include "run/record.h"

namespace swale::imd {
namespace {

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
    values_.push_back({hit.epoch, 0, hit.large, hit.value.size(), std::string(hit.value)});
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
  using LargeFn = std::function<Result<std::string>(size_t, EpochNumber, Bytes)>;
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

// Knows whether the sink behind it has stopped.
class PassingSink final : public Query::Sink {
 public:
  explicit PassingSink(Query::Sink& behind) : behind_(behind) {}
  bool hit(const Query::Hit& hit) override { return !(stopped_ = !behind_.hit(hit)); }
  bool stopped() const { return stopped_; }

 private:
  Query::Sink& behind_;
  bool stopped_ = false;
};

Status check_key(Bytes key) {
  if (!key.empty() && key.size() <= run::kKeyBytesMax) return {};
  return invalid_argument("a key of {} bytes: keys have 1 to {} bytes", key.size(), run::kKeyBytesMax);
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

}  // namespace

// Only then can a query need a cluster that is gone.
bool ReaderView::clusters_have_changed() const {
  if (needed_ == nullptr) return false;
  const Result<ClusterList> now = load_clusters(files_.device, files_.directory);
  return now.ok() && now->generation != clusters_generation_;
}

// An epoch that was dropped (imd.resume_after) or a directory that was made anew: its files may be gone,
// shorter or others.
Status ReaderView::blame(Status status) const {
  if (status.code() != Code::kCorruption) return status;
  const Result<Manifest> now = load_manifest(files_.device, files_.directory);
  if (!now.ok()) return status;
  const EpochEntry* const dropped = manifest_.first_dropped(*now);
  const bool moved =
      dropped == nullptr && (manifest_.first_moved(*now) != nullptr || clusters_have_changed());
  if (moved) {
    return error(Code::kAborted, Scope::kFile,
                 "{}: epochs have been moved by `swale optimize` since it was opened; refresh the reader or "
                 "open it again. Found before that was noticed: {}",
                 files_.directory, status.message());
  }
  if (dropped == nullptr) return status;
  return error(
      Code::kAborted, Scope::kFile,
      "{}: the directory has changed since it was opened: epoch {} (epoch_id {:016x}) was dropped, or the "
      "directory was made anew; refresh the reader or open it again. Found before that was noticed: {}",
      files_.directory, dropped->epoch, dropped->epoch_id, status.message());
}

Result<EpochRange> ReaderView::range_of(int64_t epoch) const {
  const EpochNumber end(static_cast<uint32_t>(manifest_.epochs.size()));
  if (epoch == Reader::kAllEpochs) return EpochRange{EpochNumber(0), end};
  if (epoch < 0 || epoch >= end) {
    return invalid_argument("{}: no epoch {}: it has {} committed epochs, numbered from 0", files_.directory,
                            epoch, end);
  }
  const EpochNumber number(static_cast<uint32_t>(epoch));
  return EpochRange{number, number + 1};
}

Result<EpochNumber> ReaderView::one_epoch(int64_t epoch, std::string_view what) const {
  if (epoch == Reader::kAllEpochs) return invalid_argument("{}: {}", files_.directory, what);
  SWALE_ASSIGN_OR_RETURN(const EpochRange range, range_of(epoch));
  return range.first;
}

// The place of the value that the stored record points to. kCorruption for bytes that are no pointer.
Result<ValueReader::Place> ReaderView::place(Bytes key, EpochNumber epoch, Bytes stored) const {
  return ValueReader::place_of(manifest_, manifest_.epochs[epoch], key, stored, files_.directory);
}

Result<std::vector<Value>> ReaderView::get(Bytes key, int64_t epoch) {
  SWALE_ASSIGN_OR_RETURN(std::vector<FoundValue> found, find(key, epoch));
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

Status ReaderView::read(Bytes key, const FoundValue& value, uint64_t first, MutableBytes out) {
  if (first > value.bytes || out.size() > value.bytes - first) {
    return invalid_argument("{}: {} bytes from byte {} on of a value of {} bytes", files_.directory,
                            out.size(), first, value.bytes);
  }
  if (!value.large) {
    value.stored.copy(out.data(), out.size(), first);
    return {};
  }
  // A refresh came between: another epoch may have its number now.
  if (manifest_.find_epoch(value.epoch, value.epoch_id) == nullptr) {
    return error(
        Code::kAborted, Scope::kFile,
        "{}: the value's epoch {} (epoch_id {:016x}) was dropped after the value was found; ask again",
        files_.directory, value.epoch, value.epoch_id);
  }
  SWALE_ASSIGN_OR_RETURN(const ValueReader::Place at, place(key, value.epoch, value.stored));
  return large_.read(at, first, out);
}

// With clusters, as many keys at a time as have about kCollectedBytes, because their values wait in memory.
Status ReaderView::ask(std::span<const QueryKey> keys, EpochRange epochs, Query::Sink& sink) {
  SWALE_RETURN_IF_ERROR(freed_.check(epochs.first, epochs.last));
  if (clusters_ == nullptr) return take_query()->run(keys, epochs, sink);
  constexpr uint64_t kCollectedBytes = 4 * kMiB;
  const size_t at_once =
      std::max<uint64_t>(kCollectedBytes / std::max<uint64_t>(clusters_->bytes_per_key(), 1), 1);
  PassingSink passing(sink);
  for (size_t first = 0; first < keys.size() && !passing.stopped(); first += at_once) {
    SWALE_RETURN_IF_ERROR(
        ask_clusters(keys.subspan(first, std::min(at_once, keys.size() - first)), epochs, passing));
  }
  return {};
}

// The epochs themselves answer, but for those that were freed.
Status ReaderView::ask_without(std::span<const QueryKey> keys, EpochRange epochs, Query::Sink& sink) {
  if (needed_ == nullptr) return take_query()->run(keys, epochs, sink);
  CollectSink collected;
  SWALE_RETURN_IF_ERROR(take_query()->run(keys, epochs, collected, needed_.get()));
  SWALE_RETURN_IF_ERROR(collected.settle());
  return collected.give(sink);
}

// The epochs themselves answer if the clusters cannot.
Status ReaderView::ask_clusters(std::span<const QueryKey> keys, EpochRange epochs, Query::Sink& sink) {
  if (!clusters_->usable()) return ask_without(keys, epochs, sink);
  CollectSink collected;
  Status failed = take_query()->run(keys, epochs, collected, clusters_.get());
  if (failed.ok()) failed = collected.settle();
  if (!failed.ok() && !can_be_passed(failed)) return failed;
  if (!failed.ok()) {
    collected.clear();
    SWALE_RETURN_IF_ERROR(take_query()->run(keys, epochs, collected, needed_.get()));
    SWALE_RETURN_IF_ERROR(collected.settle());
    clusters_->give_up(failed);
  }
  return collected.give(sink);
}

Result<std::vector<FoundValue>> ReaderView::find(Bytes key, int64_t epoch) {
  SWALE_RETURN_IF_ERROR(check_key(key));
  SWALE_ASSIGN_OR_RETURN(const EpochRange epochs, range_of(epoch));
  files_.counters.queries.add();
  constexpr size_t kExpectedMax = 1'024;  // 72 KiB
  ValueSink sink(std::min<size_t>(epochs.last - epochs.first, kExpectedMax));
  const QueryKey query_key{hash_bytes(key), 0, key};
  SWALE_RETURN_IF_ERROR(ask({&query_key, 1}, epochs, sink));
  std::vector<FoundValue> values = sink.take();
  for (FoundValue& value : values) {
    value.epoch_id = manifest_.epochs[value.epoch].epoch_id;
    if (!value.large) continue;
    SWALE_ASSIGN_OR_RETURN(const ValueReader::Place at, place(key, value.epoch, value.stored));
    value.bytes = at.pointer.value_bytes;
  }
  if (!values.empty()) return values;
  return error(Code::kNotFound, Scope::kOperation, "{}: no value of this key in {}", files_.directory,
               epoch == Reader::kAllEpochs ? "any epoch" : fmt::format("epoch {}", epoch));
}

Result<size_t> ReaderView::get_many(std::span<const Bytes> keys, int64_t epoch, const Reader::BatchFn& fn) {
  SWALE_ASSIGN_OR_RETURN(const EpochRange epochs, range_of(epoch));
  std::vector<QueryKey> order;
  order.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (const Status status = check_key(keys[i]); !status.ok())
      return status.with_context(fmt::format("key {}", i));
    order.push_back({hash_bytes(keys[i]), i, keys[i]});
  }
  sort_by_hash(order);
  files_.counters.queries.add();
  BatchSink sink(keys.size(), fn, [&](size_t index, EpochNumber at, Bytes stored) -> Result<std::string> {
    SWALE_ASSIGN_OR_RETURN(const ValueReader::Place value, place(keys[index], at, stored));
    return large_.read(value);
  });
  SWALE_RETURN_IF_ERROR(ask(order, epochs, sink));
  SWALE_RETURN_IF_ERROR(sink.status());
  return sink.found_count();
}

// Gives `fn` whole values, also large ones; `*large` is why one could not be read, and the walk then ends,
// unless there is somebody to tell.
ScanFn ReaderView::with_values(EpochNumber epoch, const Reader::RecordFn& fn, Status* large,
                               const Reader::DamageFn& damaged) {
  return [this, epoch, &fn, large, damaged](const run::ScannedRecord& record) {
    if (!record.large) return fn(epoch, record.key, record.value);
    const Result<ValueReader::Place> at = place(record.key, epoch, record.value);
    const Result<std::string> value = at.ok() ? large_.read(*at) : Result<std::string>(at.status());
    if (damaged && can_be_passed(value.status())) {
      damaged(value.status(), 1);
      return true;
    }
    *large = value.status();
    return value.ok() && fn(epoch, record.key, *value);
  };
}

Status ReaderView::scan_records(EpochNumber epoch, PartitionNumber partition, const ScanFn& fn,
                                bool* stopped) {
  if (manifest_.epochs[epoch].freed) return freed_.scan_all(files_, manifest_.epochs[epoch], fn, stopped);
  SWALE_ASSIGN_OR_RETURN(const auto logs, logs_of(epoch, partition));
  return scan_epoch(files_, *logs, manifest_.epochs[epoch], fn, stopped);
}

Status ReaderView::keys(int64_t epoch, const Reader::KeyFn& fn) {
  SWALE_ASSIGN_OR_RETURN(const EpochNumber number,
                         one_epoch(epoch, "keys are listed of one epoch at a time"));
  bool stopped = false;
  std::unordered_set<std::string> seen;
  const bool anywhere = TableCache::has_tables(manifest_, manifest_.epochs[number]);
  for (PartitionNumber partition(0); partition < partitions_of(number) && !stopped; ++partition) {
    if (!anywhere) seen.clear();  // all values of a key are in one partition
    const ScanFn distinct = [&](const run::ScannedRecord& record) {
      return !seen.emplace(record.key).second || fn(record.key);
    };
    SWALE_RETURN_IF_ERROR(scan_records(number, partition, distinct, &stopped));
  }
  return {};
}

Status ReaderView::sample(int64_t epoch, size_t n, uint64_t seed, const Reader::KeyFn& fn) {
  SWALE_ASSIGN_OR_RETURN(const EpochNumber number, one_epoch(epoch, "keys are drawn from one epoch"));
  if (n > Reader::kSampleMax)
    return invalid_argument("a sample of {} keys: at most {} can be drawn", n, Reader::kSampleMax);
  KeySample sample(files_, manifest_, manifest_.epochs[number], partitions_, freed_, seed);
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> keys, sample.draw(n));
  for (const std::string& key : keys) {
    if (!fn(key)) break;
  }
  return {};
}

Result<TopResult> ReaderView::top(int64_t epoch, std::string_view field, size_t k, run::Extreme which) {
  SWALE_ASSIGN_OR_RETURN(const EpochNumber number,
                         one_epoch(epoch, "the best records are those of one epoch"));
  return TopQuery(files_, manifest_, manifest_.epochs[number], partitions_, freed_).run(field, k, which);
}

Status ReaderView::check_partition(EpochNumber epoch, PartitionNumber partition) const {
  SWALE_RETURN_IF_ERROR(range_of(epoch).status());
  if (partition < partitions_of(epoch)) return {};
  return invalid_argument("{}: no partition {}: epoch {} has {}, numbered from 0", files_.directory,
                          partition, epoch, partitions_of(epoch));
}

Result<std::shared_ptr<const PartitionLogs>> ReaderView::logs_of(EpochNumber epoch,
                                                                 PartitionNumber partition) {
  SWALE_RETURN_IF_ERROR(check_partition(epoch, partition));
  uint32_t depth = 0;
  return partitions_.get(manifest_.epochs[epoch], partition, &depth);
}

Result<std::vector<Reader::ScanPiece>> ReaderView::scan_pieces(EpochNumber epoch, PartitionNumber partition,
                                                               uint64_t blocks_min,
                                                               const Reader::DamageFn& damaged) {
  SWALE_RETURN_IF_ERROR(check_partition(epoch, partition));
  if (is_freed(epoch)) return freed_.pieces(files_, manifest_.epochs[epoch], blocks_min, damaged);
  SWALE_ASSIGN_OR_RETURN(const auto logs, logs_of(epoch, partition));
  return pieces_of(files_, *logs, manifest_.epochs[epoch], blocks_min, damaged);
}

Status ReaderView::scan_piece(const Reader::ScanPiece& piece, const Reader::RecordFn& fn,
                              const Reader::DamageFn& damaged, const Reader::RowsFn* rows) {
  SWALE_RETURN_IF_ERROR(range_of(piece.epoch).status());
  bool stopped = false;
  Status large;
  if (is_freed(piece.epoch)) {
    SWALE_RETURN_IF_ERROR(freed_.scan(files_, manifest_.epochs[piece.epoch], piece,
                                      with_values(piece.epoch, fn, &large, damaged), &stopped, damaged));
    return large;
  }
  SWALE_ASSIGN_OR_RETURN(const auto logs, logs_of(piece.epoch, piece.partition));
  SWALE_RETURN_IF_ERROR(scan_blocks(files_, *logs, manifest_.epochs[piece.epoch], piece,
                                    with_values(piece.epoch, fn, &large, damaged), &stopped, damaged, rows));
  return large;
}

// The runs of a partition that belong to a part of the scan, as one piece: they lie side by side.
Status ReaderView::scan_share(EpochNumber epoch, PartitionNumber partition, const PartitionShare& share,
                              const Reader::RecordFn& fn, bool* stopped) {
  if (is_freed(epoch)) return scan_freed_share(epoch, share, fn, stopped);
  SWALE_ASSIGN_OR_RETURN(const auto logs, logs_of(epoch, partition));
  const EpochEntry& entry = manifest_.epochs[epoch];
  SWALE_ASSIGN_OR_RETURN(const auto piece, piece_of(files_, *logs, entry, share));
  if (!piece) return {};
  Status large;
  SWALE_RETURN_IF_ERROR(
      scan_blocks(files_, *logs, entry, *piece, with_values(epoch, fn, &large, {}), stopped));
  return large;
}

Status ReaderView::scan_freed_share(EpochNumber epoch, const PartitionShare& share,
                                    const Reader::RecordFn& fn, bool* stopped) {
  const EpochEntry& entry = manifest_.epochs[epoch];
  Status large;
  const ScanFn take = with_values(epoch, fn, &large, {});
  if (share.is_all()) {
    SWALE_RETURN_IF_ERROR(freed_.scan_all(files_, entry, take, stopped));
    return large;
  }
  SWALE_ASSIGN_OR_RETURN(const auto pieces, freed_.pieces(files_, entry, 1));
  // The blocks of all partitions of the cluster are one line.
  Reader::ScanPiece all;
  for (const Reader::ScanPiece& piece : pieces) all.blocks += piece.blocks;
  Reader::ScanPiece in_line;
  for (const Reader::ScanPiece& piece : pieces) {
    in_line.first_block += std::exchange(in_line.blocks, piece.blocks);
    if (!share.has(in_line, all)) continue;
    SWALE_RETURN_IF_ERROR(freed_.scan(files_, entry, piece, take, stopped));
    if (!large.ok() || *stopped) return large;
  }
  return {};
}

Status ReaderView::scan_part(int64_t epoch, uint32_t part, uint32_t parts, const Reader::RecordFn& fn) {
  if (parts == 0 || parts > Reader::kScanPartsMax || part >= parts) {
    return invalid_argument("{}: part {} of {}: expected 1 to {} parts, numbered from 0", files_.directory,
                            part, parts, Reader::kScanPartsMax);
  }
  SWALE_ASSIGN_OR_RETURN(const EpochRange epochs, range_of(epoch));
  bool stopped = false;
  for (EpochNumber e = epochs.first; e < epochs.last; ++e) {
    const uint32_t partitions = partitions_of(e);
    const PartitionNumber first(static_cast<uint32_t>(uint64_t{part} * partitions / parts));
    for (PartitionNumber partition = first; partition < partitions; ++partition) {
      const PartitionShare share = share_of(partition, partitions, part, parts);
      if (share.from == share.to) break;
      SWALE_RETURN_IF_ERROR(scan_share(e, partition, share, fn, &stopped));
      if (stopped) return {};
    }
  }
  return {};
}

// In the order in which they are given, each once: what comes first is in memory if not all of it fits.
Result<uint64_t> ReaderView::warm(std::span<const int64_t> epochs) {
  if (!files_.options.cache) {
    return invalid_argument("{}: this reader has no cache to warm: it was opened with imd.cache=0",
                            files_.directory);
  }
  std::vector<bool> asked(manifest_.epochs.size());
  std::vector<EpochNumber> order;
  for (const int64_t epoch : epochs) {
    SWALE_ASSIGN_OR_RETURN(const EpochRange range, range_of(epoch));
    for (EpochNumber each = range.first; each < range.last; ++each) {
      if (!asked[each]) order.push_back(each);
      asked[each] = true;
    }
  }
  Warmed warmed;
  const ClusterSet* const clusters = asked_clusters();
  if (clusters != nullptr) SWALE_RETURN_IF_ERROR(warm_clusters(*clusters, asked, &warmed));
  for (const EpochNumber epoch : order) {
    if (warmed.full) break;
    if (clusters == nullptr || !clusters->covers(epoch)) SWALE_RETURN_IF_ERROR(warm_epoch(epoch, &warmed));
  }
  return warmed.bytes;
}

// A cluster that cannot be opened is left to the queries, which do without.
Status ReaderView::warm_clusters(const ClusterSet& clusters, const std::vector<bool>& asked, Warmed* warmed) {
  for (const ClusterSet::Member& member : clusters.members()) {
    const std::vector<ClusterEntry::Epoch>& epochs = member.cluster->entry().epochs;
    bool needed = false;
    for (size_t i = 0; i < epochs.size(); ++i)
      needed = needed || (member.answers[i] && asked[epochs[i].epoch]);
    if (!needed) continue;
    for (PartitionNumber partition(0); partition < member.cluster->partitions(); ++partition) {
      uint32_t depth = 0;
      const auto logs = member.cluster->logs(partition, &depth);
      if (!logs.ok() && can_be_passed(logs.status())) break;
      SWALE_RETURN_IF_ERROR(logs.status());
      SWALE_RETURN_IF_ERROR(warm_segments(files_, **logs, (*logs)->segments, warmed));
    }
  }
  return {};
}

Status ReaderView::warm_epoch(EpochNumber epoch, Warmed* warmed) {
  for (PartitionNumber partition(0); partition < partitions_of(epoch) && !warmed->full; ++partition) {
    SWALE_ASSIGN_OR_RETURN(const auto logs, logs_of(epoch, partition));
    SWALE_RETURN_IF_ERROR(warm_segments(files_, *logs, logs->segments_of(epoch), warmed));
  }
  return {};
}

Result<uint64_t> ReaderView::count(int64_t epoch) const {
  SWALE_ASSIGN_OR_RETURN(const EpochRange epochs, range_of(epoch));
  uint64_t records = 0;
  for (EpochNumber e = epochs.first; e < epochs.last; ++e) {
    const EpochEntry& entry = manifest_.epochs[e];
    if (entry.recovered == Recovered::kWhole && manifest_.has_lost(entry)) {
      return corruption(
          "{}: how many records epoch {} had is lost with its record in the epoch log; {} of them are known",
          files_.directory, e, entry.records);
    }
    records += entry.records;
  }
  return records;
}

}  // namespace swale::imd
