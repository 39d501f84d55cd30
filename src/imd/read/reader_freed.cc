#include "imd/read/reader_freed.h"

#include <algorithm>
#include <utility>

#include "imd/format/series_values.h"
#include "run/run_cursor.h"

namespace swale::imd {
namespace {

// The last record of a run begins in one of so many blocks at its end, also if it is as long as one can be.
constexpr uint64_t kTailBlocks = 8;
static_assert((kTailBlocks - 1) * run::kPayloadBytes > run::kEncodedRecordBytesMax);

// Whether the last value of the run goes on in the next run.
Result<bool> goes_on(const ReaderFiles& files, const PartitionLogs& logs, const EpochEntry& own,
                     const Reader::ScanPiece& run) {
  run::RunCursor cursor(logs.id.partition, run.first_block, logs.data->path(), own.epoch_id);
  bool open = false;
  bool known = true;
  const auto take = [&](const run::ScannedRecord& record) {
    const auto note = [&](const SeriesValue& value) { open = value.kind == SeriesKind::kContinues; };
    // Which epochs there are does not matter here.
    return known = walk_series(record.value, UINT32_MAX, note);
  };
  std::vector<char> bytes;
  const auto feed = [&](BlockNumber first, uint64_t blocks) -> Status {
    bytes.resize(blocks * run::kBlockBytes);
    SWALE_RETURN_IF_ERROR(io::read_exactly(*logs.data, first * run::kBlockBytes, bytes));
    files.counters.reads.add();
    files.counters.bytes_read.add(bytes.size());
    return cursor.feed({bytes.data(), bytes.size()}, take);
  };
  const BlockNumber end = run.first_block + run.blocks;
  SWALE_RETURN_IF_ERROR(feed(run.first_block, 1));
  while (cursor.next_block() + kTailBlocks < end && cursor.pass_block()) {
  }
  if (cursor.next_block() < end) SWALE_RETURN_IF_ERROR(feed(cursor.next_block(), end - cursor.next_block()));
  if (known) return open;
  return corruption("{}: offset {}: the run has a record that is no series; run `swale verify`",
                    logs.data->path(), run.first_block * run::kBlockBytes);
}

}  // namespace

Result<std::vector<Reader::ScanPiece>> series_pieces(const ReaderFiles& files, const PartitionLogs& logs,
                                                     const EpochEntry& own, uint64_t blocks_min,
                                                     const Reader::DamageFn& damaged) {
  SWALE_ASSIGN_OR_RETURN(const auto runs, pieces_of(files, logs, own, 1, damaged));
  std::vector<Reader::ScanPiece> pieces;
  bool inside = false;  // of a value, at the end of the last piece
  for (size_t i = 0; i < runs.size(); ++i) {
    const Reader::ScanPiece& run = runs[i];
    const bool beside = i > 0 && runs[i - 1].first_block + runs[i - 1].blocks == run.first_block;
    if (beside && (inside || pieces.back().blocks < blocks_min)) {
      pieces.back().blocks += run.blocks;
      pieces.back().records += run.records;
    } else {
      pieces.push_back(run);
    }
    inside = false;
    if (i + 1 == runs.size() || pieces.back().blocks < blocks_min) continue;
    const Result<bool> open = goes_on(files, logs, own, run);
    if (!open.ok() && !(damaged && can_be_passed(open.status()))) return open.status();
    inside = open.ok() && *open;
  }
  return pieces;
}

Status FreedEpochs::check(EpochNumber first, EpochNumber last) const {
  if (!manifest_.has_moved) return {};
  for (EpochNumber at = first; at < last; ++at) {
    const bool covered = clusters_ != nullptr && clusters_->covers(at);
    if (manifest_.epochs[at].freed && !covered) return freed_error(directory_, manifest_.epochs[at], why_);
  }
  return {};
}

Result<FreedEpochs::Place> FreedEpochs::place_of(const EpochEntry& epoch) const {
  SWALE_RETURN_IF_ERROR(check(epoch.epoch, epoch.epoch + 1));
  for (const ClusterSet::Member& member : clusters_->members()) {
    const std::vector<ClusterEntry::Epoch>& epochs = member.cluster->entry().epochs;
    for (uint32_t index = 0; index < epochs.size(); ++index) {
      if (member.answers[index] && epochs[index].epoch == epoch.epoch)
        return Place{member.cluster.get(), index};
    }
  }
  return freed_error(directory_, epoch, why_);
}

Result<std::vector<Reader::ScanPiece>> FreedEpochs::pieces(const ReaderFiles& files, const EpochEntry& epoch,
                                                           uint64_t blocks_min,
                                                           const Reader::DamageFn& damaged) const {
  SWALE_ASSIGN_OR_RETURN(const Place place, place_of(epoch));
  std::vector<Reader::ScanPiece> all;
  for (PartitionNumber partition(0); partition < place.cluster->partitions(); ++partition) {
    uint32_t depth = 0;
    SWALE_ASSIGN_OR_RETURN(const auto logs, place.cluster->logs(partition, &depth));
    SWALE_ASSIGN_OR_RETURN(const auto pieces,
                           series_pieces(files, *logs, place.cluster->own_epoch(), blocks_min, damaged));
    all.insert(all.end(), pieces.begin(), pieces.end());
  }
  for (Reader::ScanPiece& piece : all) piece.epoch = epoch.epoch;
  return all;
}

Status FreedEpochs::scan(const ReaderFiles& files, const EpochEntry& epoch, const Reader::ScanPiece& piece,
                         const ScanFn& fn, bool* stopped, const Reader::DamageFn& damaged) const {
  SWALE_ASSIGN_OR_RETURN(const Place place, place_of(epoch));
  if (piece.partition >= place.cluster->partitions()) {
    return invalid_argument("{}: no partition {} in the cluster of epoch {}, which has {}", directory_,
                            piece.partition, epoch.epoch, place.cluster->partitions());
  }
  uint32_t depth = 0;
  SWALE_ASSIGN_OR_RETURN(const auto logs, place.cluster->logs(piece.partition, &depth));
  run::RunHeader of_directory{};
  of_directory.values = manifest_.layout.values();
  run::ScannedRecord out{};
  out.run = &of_directory;
  SeriesValues values(place.cluster->epochs());
  bool ended = false;
  bool right = true;
  const auto give = [&](const SeriesValue& value) {
    if (value.index != place.index || ended) return;
    out.value = value.bytes;
    out.large = value.kind == SeriesKind::kPoints;
    Bytes stored;
    if (value.kind == SeriesKind::kResolved)
      right = split_resolved(value.bytes, &stored, &out.value) && right;
    ended = !right || !fn(out);
  };
  Status wrong;
  const ScanFn take = [&](const run::ScannedRecord& series) {
    out.key = series.key;
    out.block = series.block;
    right = values.take(series.key, series.value, give) && right;
    if (right) return !ended;
    wrong = corruption(
        "{}: offset {}: a record is no series, or does not continue the one before it; there is "
        "no other copy of epoch {}: restore the file, and run `swale verify`",
        logs->data->path(), series.block * run::kBlockBytes, epoch.epoch);
    if (!damaged) return false;
    damaged(wrong, 1);
    wrong = {};
    values.forget();
    ended = false;
    return right = true;
  };
  Reader::ScanPiece own = piece;
  own.epoch = place.cluster->own_epoch().epoch;
  bool walk_stopped = false;
  SWALE_RETURN_IF_ERROR(
      scan_blocks(files, *logs, place.cluster->own_epoch(), own, take, &walk_stopped, damaged));
  SWALE_RETURN_IF_ERROR(wrong);
  *stopped = ended;
  if (ended || values.complete() || damaged) return {};
  return corruption("{}: the runs from offset {} on end inside a value; run `swale verify`",
                    logs->data->path(), piece.first_block * run::kBlockBytes);
}

Status FreedEpochs::scan_all(const ReaderFiles& files, const EpochEntry& epoch, const ScanFn& fn,
                             bool* stopped) const {
  SWALE_ASSIGN_OR_RETURN(const Place place, place_of(epoch));
  for (PartitionNumber partition(0); partition < place.cluster->partitions() && !*stopped; ++partition) {
    uint32_t depth = 0;
    SWALE_ASSIGN_OR_RETURN(const auto logs, place.cluster->logs(partition, &depth));
    SWALE_ASSIGN_OR_RETURN(
        const auto all, piece_of(files, *logs, place.cluster->own_epoch(), {.from = 0, .to = 1, .parts = 1}));
    SWALE_RETURN_IF_ERROR(scan(files, epoch, *all, fn, stopped));
  }
  return {};
}

}  // namespace swale::imd
