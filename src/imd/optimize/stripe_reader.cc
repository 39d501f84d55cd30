#include "imd/optimize/stripe_reader.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/copy.h"
#include "imd/format/partitioner.h"
#include "imd/read/reader_freed.h"
#include "imd/read/reader_scan.h"
#include "imd/read/reader_tables.h"
#include "run/format.h"
#include "run/record.h"

namespace swale::imd {
namespace {

constexpr size_t kChunkBytesMax = 256 * kKiB;
static_assert(StripeReader::kChunkBytesMin >= sizeof(StripeRow) + run::kEncodedRecordBytesMax);
// Records of a run are ordered by the top 40 bits of what is left of the hash: hashes that are further apart
// than this are in order.
constexpr Hash kDisorder = Hash{1} << 24;
constexpr Hash kHashMax = ~Hash{0};

// Whether all records after one with this hash have higher ones than `last`.
bool is_beyond(Hash hash, Hash last) { return hash > last && hash - last > kDisorder; }
// Whether all records before one with this hash have at most `last`.
bool is_before(Hash hash, Hash last) {
  return last == kHashMax || (hash <= last && last - hash >= kDisorder);
}

// A place in the part where hashes pass `last`, up to their disorder.
uint32_t place_of(const StripePart& part, Hash last) {
  uint32_t begin = 0;
  for (uint32_t end = part.count; begin < end;) {
    const uint32_t middle = begin + (end - begin) / 2;
    part.hash(middle) <= last ? begin = middle + 1 : end = middle;
  }
  return begin;
}

}  // namespace

Result<std::unique_ptr<StripeReader>> StripeReader::open(const ReaderFiles& files, const Manifest& manifest,
                                                         PartitionCache& partitions,
                                                         std::span<const EpochNumber> epochs,
                                                         std::span<const FreedSource> sources,
                                                         size_t memory_bytes, size_t reads_in_flight,
                                                         const HashRange& range) {
  std::unique_ptr<StripeReader> reader(new StripeReader(files, reads_in_flight > 1, range));
  SWALE_ASSIGN_OR_RETURN(reader->reads_, ChunkReads::start(files.device, reads_in_flight));
  for (const FreedSource& source : sources) SWALE_RETURN_IF_ERROR(reader->add_source(source));
  for (uint32_t index = 0; index < epochs.size(); ++index)
    SWALE_RETURN_IF_ERROR(reader->add_epoch(manifest, partitions, manifest.epochs[epochs[index]], index));
  const size_t share = memory_bytes / (2 * std::max<size_t>(reader->streams_.size(), 1));
  reader->chunk_bytes_ =
      std::clamp(share, kChunkBytesMin, kChunkBytesMax) / run::kBlockBytes * run::kBlockBytes;
  size_t place = 0;
  for (Stream& stream : reader->streams_) {
    stream.place = place++;
    SWALE_RETURN_IF_ERROR(reader->seek(stream));
  }
  return reader;
}

bool StripeReader::in_hash_order(const Manifest& manifest, const EpochEntry& epoch) {
  const JobEntry& job = manifest.job_of(epoch);
  return job.ranks == 1 || (job.partitioner == kHashPartitioner && !TableCache::has_tables(manifest, epoch));
}

Status StripeReader::add_epoch(const Manifest& manifest, PartitionCache& partitions, const EpochEntry& epoch,
                               uint32_t index) {
  if (epoch.freed) return {};
  const JobEntry& job = manifest.job_of(epoch);
  const bool by_hash = in_hash_order(manifest, epoch);
  for (PartitionNumber partition(0); partition < job.ranks; ++partition) {
    if (by_hash && !wants(partition, job.ranks)) continue;
    uint32_t depth = 0;
    SWALE_ASSIGN_OR_RETURN(const auto logs, partitions.get(epoch, partition, &depth));
    SWALE_ASSIGN_OR_RETURN(const auto pieces, pieces_of(files_, *logs, epoch, 1));
    logs->data->prefer_direct();
    for (const Reader::ScanPiece& piece : pieces) {
      Stream& stream = streams_.emplace_back();
      stream.index = index;
      stream.epoch = &epoch;
      stream.logs = logs;
      stream.piece = piece;
      stream.by_hash = by_hash;
      stream.lowest = by_hash ? HashRange::of(partition.value(), job.ranks).first : 0;
      rewind(stream);
    }
  }
  return {};
}

Status StripeReader::add_source(const FreedSource& source) {
  const uint32_t ranks = source.cluster->partitions();
  for (PartitionNumber partition(0); partition < ranks; ++partition) {
    if (!wants(partition, ranks)) continue;
    uint32_t depth = 0;
    SWALE_ASSIGN_OR_RETURN(const auto logs, source.cluster->logs(partition, &depth));
    const EpochEntry& own = source.cluster->own_epoch();
    SWALE_ASSIGN_OR_RETURN(const auto pieces, series_pieces(files_, *logs, own, 1));
    logs->data->prefer_direct();
    for (const Reader::ScanPiece& piece : pieces) {
      Stream& stream = streams_.emplace_back();
      stream.epoch = &own;
      stream.logs = logs;
      stream.piece = piece;
      stream.lowest = HashRange::of(partition.value(), ranks).first;
      stream.source = &source;
      stream.values = std::make_unique<SeriesValues>(source.cluster->epochs());
      rewind(stream);
    }
  }
  return {};
}

// Skips blocks of hashes below the range: in them no record begins that belongs to it. Not in clusters, where
// a value may go on in the next record.
Status StripeReader::seek(Stream& stream) {
  if (!stream.by_hash || stream.source != nullptr || range_.first <= stream.lowest) return {};
  const StripeChunk chunk = new_chunk();
  const MutableBytes bytes = chunk->bytes.first(run::kBlockBytes);
  SWALE_RETURN_IF_ERROR(read_block(stream, 0, bytes));
  // The header's block; what else it has is taken if the range begins in it.
  run::RunCursor header = *stream.cursor;
  SWALE_RETURN_IF_ERROR(header.feed(view(bytes), [](const run::ScannedRecord&) { return true; }));
  uint64_t before = 0;  // a block that begins below the range; 0: none
  for (uint64_t after = stream.piece.blocks; after - before > 1;) {
    const uint64_t middle = before + (after - before) / 2;
    SWALE_ASSIGN_OR_RETURN(const bool below, is_before_range(stream, middle, bytes));
    (below ? before : after) = middle;
  }
  spare_.push_back(chunk);
  if (before == 0) return {};
  while (header.next_block() < stream.piece.first_block + before && header.pass_block()) {
  }
  stream.cursor = std::make_unique<run::RunCursor>(std::move(header));
  stream.done_blocks = before;
  return {};
}

// A block in which no record begins does not say so.
Result<bool> StripeReader::is_before_range(const Stream& stream, uint64_t block, MutableBytes bytes) const {
  SWALE_RETURN_IF_ERROR(read_block(stream, 0, bytes));
  run::RunCursor probe = *stream.cursor;
  SWALE_RETURN_IF_ERROR(probe.feed(view(bytes), [](const run::ScannedRecord&) { return true; }));
  while (probe.next_block() < stream.piece.first_block + block && probe.pass_block()) {
  }
  SWALE_RETURN_IF_ERROR(read_block(stream, block, bytes));
  bool before = false;
  SWALE_RETURN_IF_ERROR(probe.feed(view(bytes), [&](const run::ScannedRecord& record) {
    before = is_before(hash_bytes(record.key), range_.first - 1);
    return false;
  }));
  return before;
}

Status StripeReader::read_block(const Stream& stream, uint64_t block, MutableBytes bytes) const {
  files_.counters.reads.add();
  files_.counters.bytes_read.add(bytes.size());
  return io::read_exactly(*stream.logs->data, (stream.piece.first_block + block) * run::kBlockBytes, bytes);
}

bool StripeReader::by_hash() const {
  return std::ranges::all_of(streams_, [](const Stream& stream) { return stream.by_hash; });
}

void StripeReader::rewind(Stream& stream) {
  stream.done_blocks = 0;
  stream.cursor = std::make_unique<run::RunCursor>(stream.logs->id.partition, stream.piece.first_block,
                                                   stream.logs->data->path(), stream.epoch->epoch_id);
}

bool StripeReader::needs_more(const Stream& stream, const Stripe& stripe) {
  if (stream.at_end() || stream.lowest > stripe.last) return false;
  return !stream.by_hash || !is_beyond(stream.reached, stripe.last);
}

Status StripeReader::read(Stripe* stripe) {
  take_back(stripe);
  std::vector<Stream*> hungry;
  for (Stream& stream : streams_) {
    if (!stream.by_hash) rewind(stream);
    SWALE_RETURN_IF_ERROR(take_fresh(stream, stripe));
  }
  for (;;) {
    hungry.clear();
    for (Stream& stream : streams_) {
      if (!needs_more(stream, *stripe)) continue;
      hungry.push_back(&stream);
      ask(stream);
    }
    if (hungry.empty()) break;
    reads_->go();
    for (Stream* const stream : hungry) SWALE_RETURN_IF_ERROR(take_chunk(*stream, stripe));
  }
  for (Stream& stream : streams_) give(stream, stripe);
  return {};
}

// The next blocks, unless they are coming or there are none.
void StripeReader::ask(Stream& stream) {
  if (stream.coming || stream.all_read()) return;
  const bool first = !std::exchange(stream.asked, true);
  const uint64_t of_chunk = first ? first_blocks(stream) : chunk_bytes_ / run::kBlockBytes;
  const uint64_t blocks = std::min<uint64_t>(of_chunk, stream.piece.blocks - stream.done_blocks);
  stream.coming = new_chunk();
  stream.read.file = stream.logs->data.get();
  stream.read.offset = stream.next_block() * run::kBlockBytes;
  stream.read.into = stream.coming->bytes.first(blocks * run::kBlockBytes);
  reads_->ask(&stream.read);
}

// Runs use up their chunks equally fast. Where nothing is read ahead, their first chunks have all lengths, so
// that later ones are not wanted all at once.
uint64_t StripeReader::first_blocks(const Stream& stream) const {
  const uint64_t blocks = chunk_bytes_ / run::kBlockBytes;
  if (ahead_ || !stream.by_hash) return blocks;
  return std::max<uint64_t>(1, blocks * (stream.place + 1) / streams_.size());
}

// While these blocks are used, those after them are read.
Status StripeReader::take_chunk(Stream& stream, Stripe* stripe) {
  SWALE_RETURN_IF_ERROR(reads_->wait_for(&stream.read));
  stream.chunk = std::move(stream.coming);
  stream.fresh = view(stream.read.into);
  stream.done_blocks += stream.fresh.size() / run::kBlockBytes;
  files_.counters.reads.add();
  files_.counters.bytes_read.add(stream.fresh.size());
  stripe->read_bytes += stream.fresh.size();
  if (ahead_ && !stream.all_read()) {
    ask(stream);
    reads_->go();
  }
  return take_fresh(stream, stripe);
}

// As many blocks of the chunk as the stripe needs; all of them if what they have is copied.
Status StripeReader::take_fresh(Stream& stream, Stripe* stripe) {
  if (stream.fresh.empty() || !needs_more(stream, *stripe)) return {};
  Feeding to{stream, stripe};
  const run::RunCursor::RowsFn rows = [&](const run::UniformRows& uniform) {
    return take_uniform(to, uniform);
  };
  const run::RunCursor::RecordFn records = [&](const run::ScannedRecord& record) {
    return stream.source == nullptr ? take_record(to, record) : take_series(to, record);
  };
  // Of a stream that is read again, or of series, blocks are not kept.
  stream.cursor->take_rows(stream.by_hash && stream.source == nullptr ? &rows : nullptr);
  Status fed;
  do {
    fed = stream.cursor->feed(stream.fresh.substr(0, run::kBlockBytes), records);
    stream.fresh.remove_prefix(run::kBlockBytes);
  } while (fed.ok() && to.status.ok() && !stream.fresh.empty() &&
           (!to.keeps_blocks || needs_more(stream, *stripe)));
  stream.cursor->take_rows(nullptr);
  SWALE_RETURN_IF_ERROR(fed);
  SWALE_RETURN_IF_ERROR(to.status);
  flush(to);
  if (stream.fresh.empty()) spare(std::move(stream.chunk));
  return stream.at_end() ? stream.cursor->finish() : Status();
}

// kCorruption: the run is not in the order of its hashes.
Status StripeReader::reach(Stream& stream, Hash hash) {
  if (!stream.by_hash) return {};
  if (hash < stream.lowest || is_beyond(stream.reached, hash)) {
    return corruption(
        "{}: the run from offset {} on is not in the order of its keys' hashes; run `swale verify`",
        stream.logs->data->path(), stream.piece.first_block * run::kBlockBytes);
  }
  stream.reached = std::max(stream.reached, hash);
  return {};
}

bool StripeReader::take_uniform(Feeding& to, const run::UniformRows& uniform) const {
  if (uniform.count == 0) return true;
  StripePart part;
  part.uniform = uniform.rows;
  part.count = uniform.count;
  part.index = to.stream.index;
  part.row_bytes = static_cast<uint16_t>(uniform.row_bytes());
  part.key_bytes = static_cast<uint8_t>(uniform.key_bytes);
  part.know_ends();
  to.keeps_blocks = true;
  to.status = reach(to.stream, part.first);
  if (to.status.ok()) to.status = reach(to.stream, part.last);
  if (!to.status.ok()) return false;
  Stream& stream = to.stream;
  if (stream.memory.empty() || stream.memory.back() != stream.chunk) stream.memory.push_back(stream.chunk);
  stream.ahead.push_back(part);
  return true;
}

bool StripeReader::take_record(Feeding& to, const run::ScannedRecord& record) {
  const Hash hash = hash_bytes(record.key);
  to.status = reach(to.stream, hash);
  if (!to.status.ok()) return false;
  if (hash < range_.first || (!to.stream.by_hash && !to.stripe->has(hash))) return true;
  copy_row(to, hash, to.stream.index, record.key, record.value, record.large);
  return true;
}

// The values of the epochs that are wanted; a pointer is what the record of the epoch had.
bool StripeReader::take_series(Feeding& to, const run::ScannedRecord& series) {
  const Stream& stream = to.stream;
  const Hash hash = hash_bytes(series.key);
  to.status = reach(to.stream, hash);
  if (!to.status.ok()) return false;
  bool right = true;
  const auto give = [&](const SeriesValue& value) {
    const uint32_t index = stream.source->indexes[value.index];
    Bytes stored = value.bytes;
    Bytes resolved;
    if (value.kind == SeriesKind::kResolved) right = split_resolved(value.bytes, &stored, &resolved) && right;
    const bool fits = stored.size() <= run::kStoredBytesMax;
    right = right && fits;
    if (index == FreedSource::kNone || hash < range_.first || !right) return;
    copy_row(to, hash, index, series.key, stored, value.kind != SeriesKind::kWhole);
  };
  right = stream.values->take(series.key, series.value, give) && right;
  if (right) return true;
  to.status = corruption(
      "{}: offset {}: a record is no series, or does not continue the one before it; its epochs are nowhere "
      "else: restore the file, and run `swale verify`",
      stream.logs->data->path(), series.block * run::kBlockBytes);
  return false;
}

void StripeReader::copy_row(Feeding& to, Hash hash, uint32_t index, Bytes key, Bytes value, bool large) {
  const size_t row_bytes = key.size() + value.size();
  Copies& copies = to.copies;
  if (copies.rows == nullptr ||
      reinterpret_cast<char*>(copies.rows + copies.count + 1) + row_bytes > copies.bytes) {
    flush(to);
    const StripeChunk chunk = new_chunk();
    to.stream.memory.push_back(chunk);
    const MutableBytes bytes = chunk->bytes;
    copies = {reinterpret_cast<StripeRow*>(bytes.data()), 0, bytes.data() + bytes.size()};
  }
  copies.bytes -= row_bytes;
  copy_bytes(copies.bytes, key.data(), key.size());
  copy_bytes(copies.bytes + key.size(), value.data(), value.size());
  copies.rows[copies.count++] = {hash, copies.bytes, index,
                                 StripeRow::shape_of(row_bytes, key.size(), large)};
}

// Makes a part of what was copied.
void StripeReader::flush(Feeding& to) const {
  if (to.copies.count == 0) return;
  StripePart part;
  part.rows = to.copies.rows;
  part.count = to.copies.count;
  part.index = to.stream.index;
  part.know_ends();
  to.stream.ahead.push_back(part);
  to.copies = {};
}

// Gives all records up to the stripe's end, and keeps all beyond it. Those about its end, which may be out of
// order, are given and kept.
void StripeReader::give(Stream& stream, Stripe* stripe) {
  if (stream.ahead.empty()) return;
  const Hash last = stripe->last;
  const size_t given_before = stripe->parts.size();
  for (StripePart& part : stream.ahead) {
    if (part.count == 0) continue;
    if (stream.by_hash && is_beyond(part.first, last)) break;
    if (!stream.by_hash || is_before(part.last, last)) {
      stripe->add(part);
      part.count = 0;
      continue;
    }
    uint32_t give_end = place_of(part, last);
    uint32_t keep_begin = give_end;
    while (give_end < part.count && !is_beyond(part.hash(give_end), last)) ++give_end;
    while (keep_begin > 0 && !is_before(part.hash(keep_begin - 1), last)) --keep_begin;
    const bool ends_here = give_end < part.count;
    if (give_end > 0) stripe->add(part.front(give_end));
    part.drop(keep_begin);
    if (ends_here) break;
  }
  if (stripe->parts.size() > given_before)
    stripe->memory.insert(stripe->memory.end(), stream.memory.begin(), stream.memory.end());
  while (!stream.ahead.empty() && stream.ahead.front().count == 0) stream.ahead.pop_front();
  while (!stream.memory.empty() &&
         (stream.ahead.empty() || !stream.memory.front()->has(stream.ahead.front().begin())))
    stream.memory.pop_front();
}

StripeChunk StripeReader::new_chunk() {
  if (spare_.empty()) {
    Result<Buffer> memory = Buffer::allocate(Buffer::kHugePageBytes, HugePages::kAdvise);
    if (!memory.ok()) throw std::bad_alloc();
    const auto block = std::make_shared<Buffer>(std::move(*memory));
    for (size_t at = 0; at + chunk_bytes_ <= block->size(); at += chunk_bytes_)
      spare_.push_back(std::make_shared<StripeMemory>(block, block->span().subspan(at, chunk_bytes_)));
  }
  StripeChunk chunk = std::move(spare_.back());
  spare_.pop_back();
  return chunk;
}

// Keeps a chunk that nobody else has.
void StripeReader::spare(StripeChunk chunk) {
  if (chunk.use_count() == 1) spare_.push_back(std::move(chunk));
}

void StripeReader::take_back(Stripe* stripe) {
  for (StripeChunk& chunk : stripe->memory) spare(std::move(chunk));
  stripe->memory.clear();
  stripe->parts.clear();
  stripe->rows_max = 0;
  stripe->read_bytes = 0;
}

Status StripeReader::finish() const {
  for (const Stream& stream : streams_) {
    if (stream.by_hash && range_.last != kHashMax && is_beyond(stream.reached, range_.last)) continue;
    const bool complete = stream.values == nullptr || stream.values->complete();
    const bool empty = stream.ahead.empty() || range_.last != kHashMax;
    if (!stream.at_end() || !empty || !complete) {
      return error(Code::kInternal, Scope::kOperation, "{}: a run from offset {} on was not read to its end",
                   stream.logs->data->path(), stream.piece.first_block * run::kBlockBytes);
    }
    SWALE_RETURN_IF_ERROR(stream.cursor->finish());
  }
  return {};
}

}  // namespace swale::imd
