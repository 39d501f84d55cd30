// ReaderView: answers a Reader's queries on the epochs of one manifest. A refresh replaces it by another
// view.
//
// The calls are those of Reader (reader.h has their promises).
// Threads: several threads may make any call at once. A view lives as long as a query or the Reader uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "imd/format/partitioner.h"
#include "imd/read/reader.h"
#include "imd/read/reader_clusters.h"
#include "imd/read/reader_freed.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "imd/read/reader_query.h"
#include "imd/read/reader_query_pool.h"
#include "imd/read/reader_scan.h"
#include "imd/read/reader_tables.h"
#include "imd/read/reader_values.h"
#include "imd/read/reader_warm.h"

namespace swale::imd {

class ReaderView {
 public:
  // The objects that `files` and `partitioners` refer to must outlive the view.
  ReaderView(const ReaderFiles& files, Manifest manifest, const Partitioners& partitioners,
             const ClusterList& clusters, Status clusters_problem = {})
      : files_(files),
        manifest_(std::move(manifest)),
        clusters_generation_(clusters.generation),
        clusters_(ClusterSet::make(files_, clusters, manifest_)),
        needed_(ClusterSet::make(files_, clusters, manifest_, ClusterSet::Which::kFreed)),
        freed_(manifest_, needed_, files_.directory, std::move(clusters_problem)),
        partitioners_(partitioners),
        partitions_(files_, manifest_),
        tables_(files_, manifest_, partitions_),
        large_(files_) {}
  ReaderView(const ReaderView&) = delete;
  ReaderView& operator=(const ReaderView&) = delete;

  // Takes over the files, mappings and footers that are still right from a view of the same directory that
  // has the first `common` epochs of this one's, at least one. That view may be in use. Call before the first
  // query.
  void take_over(ReaderView& before, size_t common) { partitions_.take_over(before.partitions_, common); }

  // Makes what the first query needs besides the directory's bytes. Call before it, if at all.
  void prepare(QueryMemory memory) { queries_.put_back(make_query(std::move(memory))); }

  const Manifest& manifest() const { return manifest_; }
  uint32_t clusters_generation() const { return clusters_generation_; }
  Result<std::vector<Value>> get(Bytes key, int64_t epoch);
  Result<std::vector<FoundValue>> find(Bytes key, int64_t epoch);
  Status read(Bytes key, const FoundValue& value, uint64_t first, MutableBytes out);
  Result<size_t> get_many(std::span<const Bytes> keys, int64_t epoch, const Reader::BatchFn& fn);
  Result<std::vector<Reader::ScanPiece>> scan_pieces(EpochNumber epoch, PartitionNumber partition,
                                                     uint64_t blocks_min, const Reader::DamageFn& damaged);
  Status scan_piece(const Reader::ScanPiece& piece, const Reader::RecordFn& fn,
                    const Reader::DamageFn& damaged, const Reader::RowsFn* rows);
  Status scan_part(int64_t epoch, uint32_t part, uint32_t parts, const Reader::RecordFn& fn);
  Status keys(int64_t epoch, const Reader::KeyFn& fn);
  Status sample(int64_t epoch, size_t n, uint64_t seed, const Reader::KeyFn& fn);
  Result<TopResult> top(int64_t epoch, std::string_view field, size_t k, run::Extreme which);
  Result<uint64_t> count(int64_t epoch) const;
  Result<uint64_t> warm(std::span<const int64_t> epochs);

  // Returns `status`; but kAborted if it reports a damaged file and the directory has changed since the view
  // was made.
  Status blame(Status status) const;
  template <class T>
  Result<T> blame(Result<T> result) const {
    if (result.ok()) return result;
    return blame(result.status());
  }

 private:
  bool clusters_have_changed() const;
  std::unique_ptr<Query> make_query(QueryMemory memory = {}) {
    return std::make_unique<Query>(files_, manifest_, partitions_, tables_, partitioners_, std::move(memory));
  }
  QueryPool::Lease take_query() {
    return queries_.take([this] { return make_query(); });
  }
  Status warm_epoch(EpochNumber epoch, Warmed* warmed);
  Status warm_clusters(const ClusterSet& clusters, const std::vector<bool>& asked, Warmed* warmed);
  Status ask(std::span<const QueryKey> keys, EpochRange epochs, Query::Sink& sink);
  Status ask_clusters(std::span<const QueryKey> keys, EpochRange epochs, Query::Sink& sink);
  Status ask_without(std::span<const QueryKey> keys, EpochRange epochs, Query::Sink& sink);
  // The clusters that are asked now; nullptr: none.
  const ClusterSet* asked_clusters() const {
    return clusters_ != nullptr && clusters_->usable() ? clusters_.get() : needed_.get();
  }
  Result<EpochRange> range_of(int64_t epoch) const;
  // `what` is the rest of a sentence: "keys are listed of one epoch at a time".
  Result<EpochNumber> one_epoch(int64_t epoch, std::string_view what) const;
  uint32_t partitions_of(EpochNumber epoch) const { return manifest_.job_of(manifest_.epochs[epoch]).ranks; }
  Status check_partition(EpochNumber epoch, PartitionNumber partition) const;
  bool is_freed(EpochNumber epoch) const { return manifest_.epochs[epoch].freed; }
  Result<std::shared_ptr<const PartitionLogs>> logs_of(EpochNumber epoch, PartitionNumber partition);
  Result<ValueReader::Place> place(Bytes key, EpochNumber epoch, Bytes stored) const;
  ScanFn with_values(EpochNumber epoch, const Reader::RecordFn& fn, Status* large,
                     const Reader::DamageFn& damaged);
  Status scan_records(EpochNumber epoch, PartitionNumber partition, const ScanFn& fn, bool* stopped);
  Status scan_share(EpochNumber epoch, PartitionNumber partition, const PartitionShare& share,
                    const Reader::RecordFn& fn, bool* stopped);
  Status scan_freed_share(EpochNumber epoch, const PartitionShare& share, const Reader::RecordFn& fn,
                          bool* stopped);

  const ReaderFiles files_;
  const Manifest manifest_;
  const uint32_t clusters_generation_;
  const std::shared_ptr<ClusterSet> clusters_;  // nullptr: none answers
  const std::shared_ptr<ClusterSet> needed_;    // for freed epochs, and for no others; nullptr: for none
  const FreedEpochs freed_;
  const Partitioners& partitioners_;
  PartitionCache partitions_;
  TableCache tables_;
  ValueReader large_;
  QueryPool queries_;
};

}  // namespace swale::imd
