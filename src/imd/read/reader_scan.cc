#include "imd/read/reader_scan.h"

#include <algorithm>
#include <vector>

#include "run/block.h"
#include "run/run_cursor.h"

namespace swale::imd {

namespace {

Reader::ScanPiece whole(const PartitionLogs& logs, uint32_t epoch) {
  const PartitionLogs::BlockRange blocks = logs.blocks_of(epoch);
  return {epoch, logs.partition, blocks.first, blocks.count, logs.records_of(epoch)};
}

Status check_count(const PartitionLogs& logs, const EpochEntry& epoch, uint64_t first_block, uint64_t found,
                   uint64_t expected) {
  if (found == expected) return {};
  return corruption("{}: epoch {} has {} records from offset {} on, {} has {}; run `swale verify`",
                    logs.data->path(), epoch.epoch, found, first_block * run::kBlockBytes, logs.index->path(),
                    expected);
}

// A block that fails its checksum is read once more, in its place; nothing of it has been yielded. `chunk` begins with
// block `first_block`.
Status feed(const PartitionLogs& logs, const EpochEntry& epoch, uint64_t first_block, MutableBytes chunk,
            const ScanFn& fn, run::RunCursor* cursor) {
  const std::string& path = logs.data->path();
  const uint32_t seed = run::epoch_seed(logs.partition, epoch.epoch_id);
  std::vector<char> first;
  for (uint64_t tried = UINT64_MAX;;) {
    const uint64_t next = cursor->next_block();
    const MutableBytes rest = chunk.subspan((next - first_block) * run::kBlockBytes);
    const Status status = cursor->feed(view(rest), fn);
    const uint64_t bad = cursor->next_block();
    if (status.ok() || bad == tried) return status;
    const MutableBytes block = chunk.subspan((bad - first_block) * run::kBlockBytes, run::kBlockBytes);
    const auto check = [&](Bytes again) { return run::verify_block(again, seed, bad, path); };
    if (check(view(block)).ok()) return status;
    first.assign(block.begin(), block.end());
    SWALE_RETURN_IF_ERROR(
        read_again(*logs.data, bad * run::kBlockBytes, {first.data(), first.size()}, block, status, check));
    tried = bad;
  }
}

}  // namespace

Status scan_blocks(const ReaderFiles& files, const PartitionLogs& logs, const EpochEntry& epoch,
                   const Reader::ScanPiece& piece, const ScanFn& fn, bool* stopped) {
  run::RunCursor cursor(logs.partition, piece.first_block, logs.data->path(), epoch.epoch_id);
  const uint64_t chunk_blocks = std::max<uint64_t>(files.options.scan_chunk_bytes / run::kBlockBytes, 1);
  std::vector<char> chunk(std::min(chunk_blocks, piece.blocks) * run::kBlockBytes);
  ReadQueue reads(files.options.reads_in_flight_max);
  for (uint64_t done = 0; done < piece.blocks && !cursor.stopped();) {
    const uint64_t count = std::min(chunk_blocks, piece.blocks - done);
    const MutableBytes out(chunk.data(), count * run::kBlockBytes);
    reads.add(*logs.data, (piece.first_block + done) * run::kBlockBytes, out, 0);
    SWALE_RETURN_IF_ERROR(reads.finish());
    files.counters.reads.add();
    files.counters.bytes_read.add(out.size());
    SWALE_RETURN_IF_ERROR(feed(logs, epoch, piece.first_block + done, out, fn, &cursor));
    done += count;
  }
  *stopped = cursor.stopped();
  SWALE_RETURN_IF_ERROR(cursor.finish());
  return *stopped ? Status() : check_count(logs, epoch, piece.first_block, cursor.records(), piece.records);
}

Status scan_epoch(const ReaderFiles& files, const PartitionLogs& logs, const EpochEntry& epoch,
                  const ScanFn& fn, bool* stopped) {
  return scan_blocks(files, logs, epoch, whole(logs, epoch.epoch), fn, stopped);
}

Result<std::vector<Reader::ScanPiece>> pieces_of(const ReaderFiles& files, const PartitionLogs& logs,
                                                 const EpochEntry& epoch, uint64_t blocks_min) {
  const PartitionLogs::BlockRange range = logs.blocks_of(epoch.epoch);
  std::vector<Reader::ScanPiece> pieces;
  std::vector<char> block(run::kBlockBytes);
  ReadQueue reads(1);
  uint64_t records = 0;
  for (uint64_t at = range.first; at < range.first + range.count;) {
    reads.add(*logs.data, at * run::kBlockBytes, MutableBytes(block.data(), block.size()), 0);
    SWALE_RETURN_IF_ERROR(reads.finish());
    files.counters.reads.add();
    files.counters.bytes_read.add(block.size());
    SWALE_ASSIGN_OR_RETURN(
        const run::RunHeader header,
        run::decode_run_header(Bytes(block.data(), block.size()), logs.partition, at, logs.data->path()));
    if (header.epoch_id != epoch.epoch_id || header.blocks == 0 ||
        header.blocks > range.first + range.count - at) {
      return corruption(
          "{}: offset {}: a run of {} blocks of epoch {:016x}; expected one of {:016x} that ends "
          "before offset {}; run `swale verify`",
          logs.data->path(), at * run::kBlockBytes, header.blocks, header.epoch_id, epoch.epoch_id,
          (range.first + range.count) * run::kBlockBytes);
    }
    if (pieces.empty() || pieces.back().blocks >= blocks_min)
      pieces.push_back({epoch.epoch, logs.partition, at, 0, 0});
    pieces.back().blocks += header.blocks;
    pieces.back().records += header.records;
    records += header.records;
    at += header.blocks;
  }
  SWALE_RETURN_IF_ERROR(check_count(logs, epoch, range.first, records, logs.records_of(epoch.epoch)));
  return pieces;
}

// All partitions are one line of `partitions` units, of which each part has partitions / parts.
PartitionShare share_of(uint32_t partition, uint32_t partitions, uint32_t part, uint32_t parts) {
  const uint64_t begin = uint64_t{partition} * parts;  // in units of 1 / parts
  const auto within = [&](uint64_t at) {
    return static_cast<uint32_t>(std::clamp(at, begin, begin + parts) - begin);
  };
  return {within(uint64_t{part} * partitions), within((uint64_t{part} + 1) * partitions), parts};
}

Result<std::optional<Reader::ScanPiece>> piece_of(const ReaderFiles& files, const PartitionLogs& logs,
                                                  const EpochEntry& epoch, const PartitionShare& share) {
  using Piece = std::optional<Reader::ScanPiece>;
  const Reader::ScanPiece all = whole(logs, epoch.epoch);
  if (share.from == 0 && share.to == share.parts) return Piece(all);
  SWALE_ASSIGN_OR_RETURN(const auto runs, pieces_of(files, logs, epoch, 1));
  Piece piece;
  for (const Reader::ScanPiece& run : runs) {
    const uint64_t at = (run.first_block - all.first_block) * share.parts;
    if (at < share.from * all.blocks || at >= share.to * all.blocks) continue;
    if (!piece) {
      piece = run;
      continue;
    }
    piece->blocks += run.blocks;
    piece->records += run.records;
  }
  return piece;
}

}  // namespace swale::imd
