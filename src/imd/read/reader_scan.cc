#include "imd/read/reader_scan.h"

#include <algorithm>
#include <vector>

#include "base/buffer.h"
#include "run/block.h"
#include "run/run_cursor.h"

namespace swale::imd {

namespace {

// Of blocks that are in the page cache so many are copied and walked at a time: 256 KiB, which a core's own
// cache still holds when they are checked and taken apart.
constexpr uint64_t kResidentBlocks = 64;

Reader::ScanPiece whole(const PartitionLogs& logs, EpochNumber epoch) {
  const PartitionLogs::BlockRange blocks = logs.blocks_of(epoch);
  return {epoch, logs.id.partition, blocks.first, blocks.count, logs.records_of(epoch)};
}

Status check_count(const PartitionLogs& logs, const EpochEntry& epoch, BlockNumber first_block,
                   uint64_t found, uint64_t expected) {
  if (found == expected) return {};
  return corruption("{}: epoch {} has {} records from offset {} on, {} has {}; run `swale verify`",
                    logs.data->path(), epoch.epoch, found, first_block * run::kBlockBytes, logs.index->path(),
                    expected);
}

// A block that fails its checksum is read once more, in its place; nothing of it has been yielded. `chunk`
// begins with block `first_block`.
Status feed(const PartitionLogs& logs, const EpochEntry& epoch, BlockNumber first_block, MutableBytes chunk,
            const ScanFn& fn, run::RunCursor* cursor) {
  const std::string& path = logs.data->path();
  const uint32_t seed = run::epoch_seed(logs.id.partition, epoch.epoch_id);
  std::vector<char> first;
  for (BlockNumber tried(UINT64_MAX);;) {
    const BlockNumber next = cursor->next_block();
    const MutableBytes rest = chunk.subspan((next - first_block) * run::kBlockBytes);
    const Status status = cursor->feed(view(rest), fn);
    const BlockNumber bad = cursor->next_block();
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

// One piece on its way.
class PieceScan {
 public:
  PieceScan(const ReaderFiles& files, const PartitionLogs& logs, const EpochEntry& epoch,
            const Reader::ScanPiece& piece, const ScanFn& fn, const Reader::DamageFn& damaged,
            const Reader::RowsFn* rows)
      : files_(files),
        logs_(logs),
        epoch_(epoch),
        piece_(piece),
        fn_(fn),
        damaged_(damaged),
        cursor_(logs.id.partition, piece.first_block, logs.data->path(), epoch.epoch_id),
        reads_(files.options.reads_in_flight_max) {
    cursor_.take_rows(rows);
  }

  Status run() {
    const Status status = walk();
    tell();
    return status;
  }
  bool stopped() const { return cursor_.stopped(); }

 private:
  Status walk() {
    uint64_t chunk_blocks = std::max<uint64_t>(files_.options.scan_chunk_bytes / run::kBlockBytes, 1);
    for (uint64_t done = 0; done < piece_.blocks && !cursor_.stopped();) {
      const BlockNumber first = piece_.first_block + done;
      SWALE_ASSIGN_OR_RETURN(MutableBytes out, read_resident(first, std::min(chunk_blocks, kResidentBlocks)));
      Status read;
      if (out.empty()) {
        SWALE_ASSIGN_OR_RETURN(out, memory_for(first, chunk_blocks));
        read = read_blocks(first, out);
      }
      const uint64_t count = out.size() / run::kBlockBytes;
      if (!read.ok() && damaged_ && count > 1) {
        chunk_blocks = 1;  // from here on block by block, so that only what cannot be read is passed
        continue;
      }
      SWALE_RETURN_IF_ERROR(read.ok() ? take(first, out) : pass(read));
      done += count;
    }
    SWALE_RETURN_IF_ERROR(cursor_.finish());
    if (cursor_.stopped()) return {};
    const uint64_t records = cursor_.records() + cursor_.left_out();
    return check_count(logs_, epoch_, piece_.first_block, records, piece_.records);
  }

  // For the piece's blocks from `first` on, at most so many. What it had before is lost.
  Result<MutableBytes> memory_for(BlockNumber first, uint64_t blocks_max) {
    const uint64_t blocks = std::min(blocks_max, piece_.blocks - (first - piece_.first_block));
    const size_t bytes = blocks * run::kBlockBytes;
    if (chunk_.size() < bytes) {
      chunk_ = {};
      SWALE_ASSIGN_OR_RETURN(chunk_, Buffer::allocate(bytes));
    }
    return chunk_.span().first(bytes);
  }

  // Empty: not all of them are in memory, or nobody can tell.
  Result<MutableBytes> read_resident(BlockNumber first, uint64_t blocks_max) {
    SWALE_ASSIGN_OR_RETURN(const MutableBytes out, memory_for(first, blocks_max));
    if (!logs_.data->read_resident(first * run::kBlockBytes, out)) return MutableBytes();
    count_read(out);
    return out;
  }

  Status read_blocks(BlockNumber first, MutableBytes out) {
    reads_.add(*logs_.data, first * run::kBlockBytes, out, 0);
    SWALE_RETURN_IF_ERROR(reads_.finish());
    count_read(out);
    return {};
  }

  void count_read(MutableBytes out) {
    files_.counters.reads.add();
    files_.counters.bytes_read.add(out.size());
  }

  Status take(BlockNumber first, MutableBytes chunk) {
    for (;;) {
      const Status status = feed(logs_, epoch_, first, chunk, fn_, &cursor_);
      if (status.ok() || !damaged_) return status;
      SWALE_RETURN_IF_ERROR(pass(status));
    }
  }

  Status pass(const Status& cause) {
    if (!damaged_ || !can_be_passed(cause)) return cause;
    tell();
    if (!cursor_.pass_block()) return cause;
    untold_ = cause;
    return {};
  }

  // What a run has lost is known at its end, or when the next block is passed.
  void tell() {
    if (untold_.ok()) return;
    damaged_(untold_, cursor_.left_out() - told_);
    told_ = cursor_.left_out();
    untold_ = {};
  }

  const ReaderFiles& files_;
  const PartitionLogs& logs_;
  const EpochEntry& epoch_;
  const Reader::ScanPiece& piece_;
  const ScanFn& fn_;
  const Reader::DamageFn& damaged_;
  run::RunCursor cursor_;
  ReadQueue reads_;
  Buffer chunk_;
  Status untold_;  // why a block was passed, until it is told
  uint64_t told_ = 0;
};

// Gathers the runs of an epoch into pieces.
class PieceFinder {
 public:
  PieceFinder(const ReaderFiles& files, const PartitionLogs& logs, const EpochEntry& epoch,
              uint64_t blocks_min)
      : files_(files),
        logs_(logs),
        epoch_(epoch),
        blocks_min_(blocks_min),
        range_(logs.blocks_of(epoch.epoch)) {}

  Result<std::vector<Reader::ScanPiece>> find(const Reader::DamageFn& damaged) {
    const uint64_t expected = logs_.records_of(epoch_.epoch);
    Status gap;  // why the last run that is not known is not known
    bool in_gap = false;
    uint64_t records = 0;
    // Where the file ends, all else is missing at once: an index log may name 2^32 blocks that were never
    // there.
    SWALE_ASSIGN_OR_RETURN(const uint64_t file_bytes, logs_.data->size());
    const uint64_t file_blocks = (file_bytes + run::kBlockBytes - 1) / run::kBlockBytes;
    for (BlockNumber at = range_.first; at < end();) {
      const Result<run::RunHeader> header = header_at(at);
      if (!header.ok()) {
        if (!damaged || !can_be_passed(header.status())) return header.status();
        if (!in_gap && !gap.ok()) damaged(gap, 0);
        if (!in_gap) gap = header.status();
        in_gap = true;
        if (at >= BlockNumber(file_blocks)) break;
        ++at;
        continue;
      }
      if (pieces_.empty() || in_gap || pieces_.back().blocks >= blocks_min_)
        pieces_.push_back({epoch_.epoch, logs_.id.partition, at, 0, 0});
      in_gap = false;
      pieces_.back().blocks += header->blocks;
      pieces_.back().records += header->records;
      records += header->records;
      at += header->blocks;
    }
    if (gap.ok()) {
      SWALE_RETURN_IF_ERROR(check_count(logs_, epoch_, range_.first, records, expected));
    } else {
      damaged(gap, expected - std::min(records, expected));
    }
    return std::move(pieces_);
  }

 private:
  BlockNumber end() const { return range_.first + range_.count; }

  Result<run::RunHeader> header_at(BlockNumber at) {
    reads_.add(*logs_.data, at * run::kBlockBytes, MutableBytes(block_.data(), block_.size()), 0);
    SWALE_RETURN_IF_ERROR(reads_.finish());
    files_.counters.reads.add();
    files_.counters.bytes_read.add(block_.size());
    const std::string& path = logs_.data->path();
    SWALE_ASSIGN_OR_RETURN(
        const run::RunHeader header,
        run::decode_run_header(Bytes(block_.data(), block_.size()), logs_.id.partition, at, path));
    if (header.epoch_id == epoch_.epoch_id && header.blocks != 0 && header.blocks <= end() - at)
      return header;
    return corruption(
        "{}: offset {}: a run of {} blocks of epoch {:016x}; expected one of {:016x} that ends before offset "
        "{}; "
        "run `swale verify`",
        path, at * run::kBlockBytes, header.blocks, header.epoch_id, epoch_.epoch_id,
        end() * run::kBlockBytes);
  }

  const ReaderFiles& files_;
  const PartitionLogs& logs_;
  const EpochEntry& epoch_;
  const uint64_t blocks_min_;
  const PartitionLogs::BlockRange range_;
  std::vector<Reader::ScanPiece> pieces_;
  std::vector<char> block_ = std::vector<char>(run::kBlockBytes);
  ReadQueue reads_{1};
};

}  // namespace

bool can_be_passed(const Status& status) {
  return status.code() == Code::kCorruption || status.code() == Code::kIoError ||
         status.code() == Code::kNotFound;
}

Status scan_blocks(const ReaderFiles& files, const PartitionLogs& logs, const EpochEntry& epoch,
                   const Reader::ScanPiece& piece, const ScanFn& fn, bool* stopped,
                   const Reader::DamageFn& damaged, const Reader::RowsFn* rows) {
  PieceScan scan(files, logs, epoch, piece, fn, damaged, rows);
  const Status status = scan.run();
  *stopped = scan.stopped();
  return status;
}

Result<std::vector<Reader::ScanPiece>> pieces_of(const ReaderFiles& files, const PartitionLogs& logs,
                                                 const EpochEntry& epoch, uint64_t blocks_min,
                                                 const Reader::DamageFn& damaged) {
  return PieceFinder(files, logs, epoch, blocks_min).find(damaged);
}

Status scan_epoch(const ReaderFiles& files, const PartitionLogs& logs, const EpochEntry& epoch,
                  const ScanFn& fn, bool* stopped) {
  return scan_blocks(files, logs, epoch, whole(logs, epoch.epoch), fn, stopped);
}

// All partitions are one line of `partitions` units, of which each part has partitions / parts.
PartitionShare share_of(PartitionNumber partition, uint32_t partitions, uint32_t part, uint32_t parts) {
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
  if (share.is_all()) return Piece(all);
  SWALE_ASSIGN_OR_RETURN(const auto runs, pieces_of(files, logs, epoch, 1));
  Piece piece;
  for (const Reader::ScanPiece& run : runs) {
    if (!share.has(run, all)) continue;
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
