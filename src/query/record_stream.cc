#include "query/record_stream.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <span>
#include <utility>

#include "base/contain.h"
#include "base/start_thread.h"
#include "imd/format/manifest.h"
#include "imd/read/reader_scan.h"

namespace swale::query {
namespace {

constexpr uint64_t kBlocksMin = 256;  // of a piece: 1 MiB
constexpr uint64_t kRowsMax = uint64_t{1} << 24;

Status cancelled() {
  return error(Code::kAborted, Scope::kOperation, "the query was cancelled; its results are incomplete");
}

void keep_part(uint32_t part, uint32_t parts, std::vector<std::string>* keys) {
  const uint64_t count = keys->size();
  const auto begin_of = [&](uint64_t number) {
    return keys->begin() + static_cast<ptrdiff_t>(count * number / parts);
  };
  keys->erase(begin_of(uint64_t{part} + 1), keys->end());
  keys->erase(keys->begin(), begin_of(part));
}

}  // namespace

// Makes batches of the rows of one piece.
class RecordStream::PieceRows {
 public:
  PieceRows(RecordStream& stream, const Piece& piece, BatchBuilder* builder)
      : stream_(stream), number_(piece.number), builder_(*builder) {
    builder_.restart(expected(stream.query_, piece));
  }

  // False: stop, because of status() or because the stream stops.
  bool add(const RecordView& record) {
    if (stream_.stopped_.load(std::memory_order_relaxed)) return false;
    if (stream_.query_.where && !stream_.query_.where->holds(record)) return true;
    status_ = builder_.append(record);
    if (!status_.ok()) return false;
    if (builder_.rows() < stream_.query_.batch_rows_max && !builder_.is_full()) return true;
    return stream_.put(number_, builder_.take());
  }
  // The same for rows that lie side by side.
  bool add_rows(const RecordView& of, const run::UniformRows& block) {
    if (stream_.stopped_.load(std::memory_order_relaxed)) return false;
    if (!stream_.query_.where) return add_range(of, block, 0, block.count);
    passes_.resize(std::max<size_t>(passes_.size(), block.count));
    stream_.query_.where->choose(of, block.rows, block.key_bytes, block.value_bytes, block.count,
                                 passes_.data());
    for (uint32_t i = 0; i < block.count; ++i) {
      const auto* const next = static_cast<const uint8_t*>(std::memchr(&passes_[i], 1, block.count - i));
      if (next == nullptr) return true;
      i = static_cast<uint32_t>(next - passes_.data());
      const uint32_t first = i;
      while (i < block.count && passes_[i] != 0) ++i;
      if (!add_range(of, block, first, i)) return false;
    }
    return true;
  }
  Status finish(Status read) {
    if (!status_.ok()) return status_;
    if (builder_.rows() != 0) stream_.put(number_, builder_.take());
    return read;
  }
  RecordView epoch(EpochNumber number) const {
    const imd::EpochEntry& entry = stream_.view_->manifest().epochs[number];
    return {entry.epoch, entry.step, entry.time, {}, {}};
  }

 private:
  static uint64_t expected(const StreamQuery& query, const Piece& piece) {
    return query.where || query.keys ? 0 : piece.scan.records;
  }

  // Rows first..last - 1; a batch that is full goes to the stream.
  bool add_range(const RecordView& of, const run::UniformRows& block, uint32_t first, uint32_t last) {
    while (first < last) {
      const uint64_t space = stream_.query_.batch_rows_max - builder_.rows();
      const auto count = static_cast<uint32_t>(std::min<uint64_t>(last - first, space));
      status_ = builder_.append_rows(of, block.rows + size_t{first} * block.row_bytes(), block.key_bytes,
                                     block.value_bytes, count);
      if (!status_.ok()) return false;
      first += count;
      if (builder_.rows() < stream_.query_.batch_rows_max && !builder_.is_full()) continue;
      if (!stream_.put(number_, builder_.take())) return false;
    }
    return true;
  }

  RecordStream& stream_;
  const uint64_t number_;
  BatchBuilder& builder_;
  std::vector<uint8_t> passes_;  // of a block
  Status status_;
};

RecordStream::RecordStream(std::shared_ptr<imd::Reader> reader, StreamQuery query)
    : reader_(std::move(reader)), view_(reader_->pinned()), query_(std::move(query)) {}

Result<std::unique_ptr<RecordStream>> RecordStream::open(std::shared_ptr<imd::Reader> reader,
                                                         StreamQuery query) {
  if (query.columns.empty()) return invalid_argument("a query of no column: name one, or none for all");
  if (query.batch_rows_max < 1 || query.batch_rows_max > kRowsMax)
    return invalid_argument("batches of {} rows: expected 1 to {}", query.batch_rows_max, kRowsMax);
  if (query.threads < 1 || query.threads > kThreadsMax)
    return invalid_argument("{} threads: expected 1 to {}", query.threads, kThreadsMax);
  if (query.parts < 1 || query.parts > imd::Reader::kScanPartsMax || query.part >= query.parts) {
    return invalid_argument("part {} of {}: expected 1 to {} parts, numbered from 0", query.part, query.parts,
                            imd::Reader::kScanPartsMax);
  }
  if (query.keys) keep_part(query.part, query.parts, &*query.keys);
  std::unique_ptr<RecordStream> stream(new RecordStream(std::move(reader), std::move(query)));
  const imd::Manifest& manifest = stream->view_->manifest();
  for (const EpochNumber epoch : stream->query_.epochs) {
    if (epoch >= manifest.epochs.size()) {
      return error(Code::kNotFound, Scope::kOperation,
                   "no epoch {}: {} has {} committed epochs, numbered from 0", epoch,
                   stream->view_->directory(), manifest.epochs.size());
    }
    stream->total_ += manifest.epochs[epoch].records;
  }
  stream->total_ /= stream->query_.parts;
  if (stream->query_.keys) {
    stream->total_ = stream->query_.keys->size();
    stream->keys_a_piece_ = stream->keys_of_piece();
    stream->all_epochs_ = stream->asks_all_epochs();
  }
  return stream;
}

// As many as have about kPieceBytes of values, in as many pieces for each thread.
size_t RecordStream::keys_of_piece() const {
  constexpr uint64_t kOfAValue = 64;  // kept beside its bytes
  uint64_t bytes = 0, records = 0;
  for (const EpochNumber epoch : query_.epochs) {
    const imd::EpochEntry& found = view_->manifest().epochs[epoch];
    bytes += found.data_bytes + found.large.bytes;
    records += found.records;
  }
  const uint64_t of_a_value = kOfAValue + (records == 0 ? 0 : bytes / records);
  const uint64_t of_a_key = of_a_value * std::max<uint64_t>(query_.epochs.size(), 1);
  const uint64_t most = std::clamp<uint64_t>(kPieceBytes / of_a_key, kKeysMin, kKeysMax);
  const auto divided = [](uint64_t count, uint64_t by) { return (count + by - 1) / by; };
  const uint64_t for_each_thread = std::max<uint64_t>(divided(query_.keys->size(), most * query_.threads), 1);
  return std::max(divided(query_.keys->size(), for_each_thread * query_.threads), uint64_t{kKeysMin});
}

bool RecordStream::asks_all_epochs() const {
  if (query_.epochs.size() != view_->manifest().epochs.size()) return false;
  uint32_t next = 0;
  return std::all_of(query_.epochs.begin(), query_.epochs.end(),
                     [&next](EpochNumber epoch) { return epoch == EpochNumber(next++); });
}

RecordStream::~RecordStream() {
  assert(is_of_this_process());
  stop({});
  for (std::thread& thread : threads_) thread.join();
}

void RecordStream::stop(Status status) noexcept {
  const MutexLock lock(mutex_);
  if (!stopped_.exchange(true)) status_ = std::move(status);
  changed_.notify_all();
}

// Fewer threads than asked for suffice.
Status RecordStream::start() {
  threads_.resize(query_.threads);
  size_t started = 0;
  Status status;
  for (; started < threads_.size() && status.ok(); ++started)
    status = start_thread(&threads_[started], "a thread of a query", [this] { work(); });
  if (!status.ok()) --started;
  threads_.resize(started);
  return started != 0 ? Status() : status;
}

void RecordStream::work() noexcept {
  const Status status = contain([this] { return take_pieces(); });
  if (!status.ok()) stop(status);
}

Result<std::optional<RecordStream::Piece>> RecordStream::next_piece() {
  if (query_.keys) {
    const size_t left = query_.keys->size() - key_;
    if (left == 0) return std::optional<Piece>();
    Piece piece;
    piece.first_key = key_;
    piece.keys = std::min(left, keys_a_piece_);
    key_ += piece.keys;
    return std::optional(piece);
  }
  const imd::Manifest& manifest = view_->manifest();
  while (scans_.empty()) {
    if (epoch_ == query_.epochs.size()) return std::optional<Piece>();
    const EpochNumber epoch = query_.epochs[epoch_];
    const uint32_t partitions = manifest.jobs[manifest.epochs[epoch].job].ranks;
    if (partition_ == partitions) {
      ++epoch_;
      partition_ = PartitionNumber(0);
      continue;
    }
    SWALE_ASSIGN_OR_RETURN(const auto found, pieces_of(epoch, partitions));
    ++partition_;
    scans_.assign(found.begin(), found.end());
  }
  Piece piece;
  piece.scan = scans_.front();
  scans_.pop_front();
  return std::optional(piece);
}

// Of the current partition, as far as it belongs to the query's part.
Result<std::vector<imd::Reader::ScanPiece>> RecordStream::pieces_of(EpochNumber epoch,
                                                                    uint32_t partitions) const {
  std::vector<imd::Reader::ScanPiece> pieces;
  const imd::PartitionShare share = imd::share_of(partition_, partitions, query_.part, query_.parts);
  if (share.is_nothing()) return pieces;
  if (share.is_all()) return view_->scan_pieces(epoch, partition_, kBlocksMin);
  SWALE_ASSIGN_OR_RETURN(const auto runs, view_->scan_pieces(epoch, partition_, 1));
  if (runs.empty()) return pieces;
  imd::Reader::ScanPiece all = runs.front();
  for (size_t i = 1; i < runs.size(); ++i) all.blocks += runs[i].blocks;
  for (const auto& run : runs) {
    if (!share.has(run, all)) continue;
    if (pieces.empty() || pieces.back().blocks >= kBlocksMin) {
      pieces.push_back(run);
    } else {
      pieces.back().blocks += run.blocks;
      pieces.back().records += run.records;
    }
  }
  return pieces;
}

Status RecordStream::take_pieces() {
  BatchBuilder builder(query_.columns, /*rows_expected=*/0, query_.batch_rows_max);
  for (;;) {
    std::optional<Piece> piece;
    uint64_t number = 0;
    {
      const MutexLock taking(taking_);
      {
        const MutexLock lock(mutex_);
        const uint64_t ahead_max = kPiecesAhead * query_.threads;
        changed_.wait(lock,
                      [&]() REQUIRES(mutex_) { return stopped_ || ended_ || given_ < head_ + ahead_max; });
        if (stopped_ || ended_) return {};
        // The number comes first: a piece that was taken, and for whose number there is no memory, would be
        // missed by nobody while the exception is on its way.
        pending_[given_];
        number = given_++;
      }
      // Without mutex_: it may wait for storage.
      const Status found = contain([&]() NO_THREAD_SAFETY_ANALYSIS -> Status {
        SWALE_ASSIGN_OR_RETURN(piece, next_piece());
        return {};
      });
      if (!found.ok() || !piece) {
        finish(number, found, /*last=*/true);
        return {};
      }
    }
    piece->number = number;
    const Status status = contain([&] { return read_piece(*piece, &builder); });
    done_.fetch_add(query_.keys ? piece->keys : piece->scan.records, std::memory_order_relaxed);
    finish(number, status, /*last=*/false);
  }
}

Status RecordStream::read_piece(const Piece& piece, BatchBuilder* builder) {
  PieceRows rows(*this, piece, builder);
  const Status read = query_.keys ? look_up(piece, &rows) : scan_piece(piece, &rows);
  return rows.finish(read);
}

Status RecordStream::scan_piece(const Piece& piece, PieceRows* rows) {
  const RecordView of = rows->epoch(piece.scan.epoch);
  RecordView record = of;
  return view_->scan_piece(
      piece.scan,
      [&](EpochNumber, Bytes key, Bytes value) {
        record.key = key;
        record.value = value;
        return rows->add(record);
      },
      [&](const run::UniformRows& block) { return rows->add_rows(of, block); });
}

// The reader gives values in any order: they are kept until all of the piece's keys have theirs.
Status RecordStream::look_up(const Piece& piece, PieceRows* rows) {
  struct Found {
    size_t key;
    size_t place;  // of the epoch in the query
    size_t begin;  // in `values`
    size_t bytes;
  };
  const std::span<const std::string> asked(query_.keys->data() + piece.first_key, piece.keys);
  const std::vector<Bytes> keys(asked.begin(), asked.end());
  std::vector<Found> found;
  std::string values;
  const auto ask = [&](int64_t epochs, size_t first_place) {
    return view_->get_many(keys, epochs, [&](size_t key, EpochNumber epoch, Bytes value) {
      const size_t place = epochs == imd::Reader::kAllEpochs ? epoch.value() : first_place;
      found.push_back({key, place, values.size(), value.size()});
      values += value;
      return !stopped_.load(std::memory_order_relaxed);
    });
  };
  if (all_epochs_) {  // at once: clusters have a key's epochs side by side
    SWALE_RETURN_IF_ERROR(ask(imd::Reader::kAllEpochs, 0).status());
  } else {
    for (size_t place = 0; place < query_.epochs.size(); ++place) {
      if (stopped_.load(std::memory_order_relaxed)) return {};
      SWALE_RETURN_IF_ERROR(ask(query_.epochs[place], place).status());
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return a.key != b.key ? a.key < b.key : a.place < b.place;
  });
  for (const Found& each : found) {
    RecordView record = rows->epoch(query_.epochs[each.place]);
    record.key = keys[each.key];
    record.value = Bytes(values).substr(each.begin, each.bytes);
    if (!rows->add(record)) break;
  }
  return {};
}

bool RecordStream::put(uint64_t number, Batch batch) {
  const MutexLock lock(mutex_);
  Pending& own = pending_.at(number);
  changed_.wait(lock, [&]() REQUIRES(mutex_) { return stopped_ || own.batches.size() < kBatchesAhead; });
  if (stopped_) return false;
  own.batches.push_back(std::move(batch));
  changed_.notify_all();
  return true;
}

void RecordStream::finish(uint64_t number, Status status, bool last) noexcept {
  const MutexLock lock(mutex_);
  ended_ = ended_ || last;
  const auto own = pending_.find(number);
  own->second.done = true;
  own->second.status = std::move(status);
  changed_.notify_all();
}

Status RecordStream::check_cancelled() {
  if (query_.cancel && query_.cancel->load(std::memory_order_relaxed)) return cancelled();
  const Nanos now = system_clock().now();
  if (now - asked_at_ < kPatience) return {};
  asked_at_ = now;
  const uint64_t done = std::min(done_.load(std::memory_order_relaxed), total_);
  if (query_.progress && !query_.progress(done, total_)) return cancelled();
  return {};
}

// Passes over pieces without more batches. A piece's failure stops the stream.
std::optional<Batch> RecordStream::take_ready() {
  for (auto head = pending_.begin(); head != pending_.end() && head->first == head_;
       head = pending_.begin()) {
    Pending& piece = head->second;
    if (!piece.batches.empty()) {
      Batch batch = std::move(piece.batches.front());
      piece.batches.pop_front();
      changed_.notify_all();
      return batch;
    }
    if (!piece.done) return std::nullopt;
    if (!piece.status.ok()) {
      if (!stopped_.exchange(true)) status_ = piece.status;
      changed_.notify_all();
      return std::nullopt;
    }
    pending_.erase(head);
    ++head_;
    changed_.notify_all();
  }
  return std::nullopt;
}

Result<std::optional<Batch>> RecordStream::next() {
  if (!is_of_this_process()) {
    return invalid_argument(
        "the stream belongs to the process that opened it, and a child made by fork has none of its "
        "threads; open the directory in the child");
  }
  if (threads_.empty()) SWALE_RETURN_IF_ERROR(start());
  for (;;) {
    // Without the mutex: the caller's function may take its time.
    if (const Status status = check_cancelled(); !status.ok()) stop(status);
    const MutexLock lock(mutex_);
    if (!stopped_) {
      if (std::optional<Batch> batch = take_ready()) return batch;
    }
    if (stopped_) return status_.ok() ? cancelled() : status_;
    if (at_end()) return std::optional<Batch>();
    changed_.wait_for(lock, kPatience);
  }
}

}  // namespace swale::query
