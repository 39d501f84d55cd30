#include "imd/optimize/stripe_reader.h"

#include <algorithm>
#include <utility>

#include "base/uint128.h"
#include "imd/format/partitioner.h"
#include "imd/read/reader_scan.h"
#include "imd/read/reader_tables.h"
#include "run/format.h"

namespace swale::imd {
namespace {

constexpr size_t kChunkBytesMin = 64 * kKiB;
constexpr size_t kChunkBytesMax = kMiB;
// Records of a run are ordered by the top 40 bits of what is left of the hash: hashes that are further apart
// than this are in order.
constexpr Hash kDisorder = Hash{1} << 24;

// The lowest hash h with choose(h, ranks).index = partition.
Hash lowest_hash(PartitionNumber partition, uint32_t ranks) {
  const Uint128 product = static_cast<Uint128>(partition.value()) << 64;
  return static_cast<Hash>((product + ranks - 1) / ranks);
}

}  // namespace

Result<std::unique_ptr<StripeReader>> StripeReader::open(const ReaderFiles& files, const Manifest& manifest,
                                                         PartitionCache& partitions,
                                                         std::span<const EpochNumber> epochs,
                                                         size_t memory_bytes) {
  std::unique_ptr<StripeReader> reader(new StripeReader(files));
  for (uint32_t index = 0; index < epochs.size(); ++index) {
    const EpochEntry& epoch = manifest.epochs[epochs[index]];
    const JobEntry& job = manifest.job_of(epoch);
    const bool by_hash =
        job.ranks == 1 || (job.partitioner == kHashPartitioner && !TableCache::has_tables(manifest, epoch));
    for (PartitionNumber partition(0); partition < job.ranks; ++partition) {
      uint32_t depth = 0;
      SWALE_ASSIGN_OR_RETURN(const auto logs, partitions.get(epoch, partition, &depth));
      SWALE_ASSIGN_OR_RETURN(const auto pieces, pieces_of(files, *logs, epoch, 1));
      for (const Reader::ScanPiece& piece : pieces) {
        Stream& stream = reader->streams_.emplace_back();
        stream.index = index;
        stream.epoch = &epoch;
        stream.logs = logs;
        stream.piece = piece;
        stream.by_hash = by_hash;
        stream.lowest = by_hash ? lowest_hash(partition, job.ranks) : 0;
        rewind(stream);
      }
    }
  }
  const size_t share = memory_bytes / std::max<size_t>(reader->streams_.size(), 1);
  reader->chunk_.resize(std::clamp(share, kChunkBytesMin, kChunkBytesMax) / run::kBlockBytes *
                        run::kBlockBytes);
  return reader;
}

void StripeReader::rewind(Stream& stream) {
  stream.done_blocks = 0;
  stream.cursor = std::make_unique<run::RunCursor>(stream.logs->id.partition, stream.piece.first_block,
                                                   stream.logs->data->path(), stream.epoch->epoch_id);
}

Status StripeReader::read(Hash first, Hash last, const RecordFn& fn) {
  for (Stream& stream : streams_) {
    if (stream.lowest <= last) SWALE_RETURN_IF_ERROR(read_stream(stream, first, last, fn));
  }
  return {};
}

Status StripeReader::read_stream(Stream& stream, Hash first, Hash last, const RecordFn& fn) {
  if (!stream.by_hash && stream.at_end()) rewind(stream);
  if (stream.by_hash) give_ahead(stream, last, fn);
  const auto take = [&](const run::ScannedRecord& scanned) {
    StripeRecord record{
        stream.index, hash_bytes(scanned.key), {}, static_cast<uint32_t>(scanned.key.size()), scanned.large};
    const Bytes row(scanned.key.data(), scanned.key.size() + scanned.value.size());
    stream.reached = std::max(stream.reached, record.hash);
    if (record.hash > last && stream.by_hash) {
      stream.ahead.push_back({record, stream.ahead_bytes.size(), static_cast<uint32_t>(row.size())});
      stream.ahead_bytes.append(row);
    } else if (record.hash <= last && (record.hash >= first || stream.by_hash)) {
      record.row = row;
      fn(record);
    }
    return true;
  };
  const auto beyond = [&] {
    return stream.by_hash && stream.reached > last && stream.reached - last > kDisorder;
  };
  while (!stream.at_end() && !beyond()) SWALE_RETURN_IF_ERROR(read_chunk(stream, take));
  return stream.at_end() ? stream.cursor->finish() : Status();
}

// Keeps those that lie beyond the stripe.
void StripeReader::give_ahead(Stream& stream, Hash last, const RecordFn& fn) {
  std::vector<Ahead> kept;
  std::string kept_bytes;
  for (Ahead& ahead : stream.ahead) {
    const Bytes row = Bytes(stream.ahead_bytes).substr(ahead.at, ahead.row_bytes);
    if (ahead.record.hash <= last) {
      ahead.record.row = row;
      fn(ahead.record);
      continue;
    }
    kept.push_back({ahead.record, kept_bytes.size(), ahead.row_bytes});
    kept_bytes.append(row);
  }
  stream.ahead = std::move(kept);
  stream.ahead_bytes = std::move(kept_bytes);
}

Status StripeReader::read_chunk(Stream& stream, const run::RunCursor::RecordFn& fn) {
  const uint64_t count =
      std::min<uint64_t>(chunk_.size() / run::kBlockBytes, stream.piece.blocks - stream.done_blocks);
  const MutableBytes out(chunk_.data(), count * run::kBlockBytes);
  const BlockNumber first = stream.piece.first_block + stream.done_blocks;
  SWALE_RETURN_IF_ERROR(io::read_exactly(*stream.logs->data, first * run::kBlockBytes, out));
  files_.counters.reads.add();
  files_.counters.bytes_read.add(out.size());
  stream.done_blocks += count;
  return stream.cursor->feed(view(out), fn);
}

Status StripeReader::finish() const {
  for (const Stream& stream : streams_) {
    if (!stream.at_end() || !stream.ahead.empty()) {
      return error(Code::kInternal, Scope::kOperation, "{}: a run from offset {} on was not read to its end",
                   stream.logs->data->path(), stream.piece.first_block * run::kBlockBytes);
    }
    SWALE_RETURN_IF_ERROR(stream.cursor->finish());
  }
  return {};
}

}  // namespace swale::imd
