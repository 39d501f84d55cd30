#include "tools/parallel_scan.h"

#include "imd/read/reader_scan.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace swale::tools {
namespace {

using Piece = imd::Reader::ScanPiece;

constexpr size_t kChunkBytes = 256 * kKiB;

// The text of whole records.
struct Chunk {
  std::string text;
  std::vector<size_t> ends;  // of each record
};

// Gives out pieces in order, and keeps a few ahead of the first unfinished one.
class PieceQueue {
 public:
  struct Numbered {
    uint64_t number;
    Piece piece;
  };

  PieceQueue(imd::Reader& reader, const ScanJob& job)
      : reader_(reader), epochs_(job.epochs), blocks_min_(job.blocks_min), damaged_(job.damaged) {}

  // None: there are no more pieces. After a failure it continues with the next partition. Call with the
  // scan's mutex held.
  Result<std::optional<Numbered>> next() {
    while (pieces_.empty()) {
      if (epoch_ == epochs_.size()) return std::optional<Numbered>();
      const imd::Manifest& manifest = reader_.manifest();
      const EpochNumber epoch(epochs_[epoch_]);
      if (partition_ == manifest.jobs[manifest.epochs[epoch].job].ranks) {
        ++epoch_;
        partition_ = PartitionNumber(0);
        continue;
      }
      const auto found = reader_.scan_pieces(epoch, partition_, blocks_min_, damaged_);
      ++partition_;
      if (!found.ok()) return found.status();
      pieces_.assign(found->begin(), found->end());
    }
    const Numbered given{given_++, pieces_.front()};
    pieces_.pop_front();
    return std::optional(given);
  }
  uint64_t given() const { return given_; }

 private:
  imd::Reader& reader_;
  const std::vector<uint32_t>& epochs_;
  size_t epoch_ = 0;  // index into epochs_
  const uint64_t blocks_min_;
  const imd::Reader::DamageFn& damaged_;
  PartitionNumber partition_;
  std::deque<Piece> pieces_;
  uint64_t given_ = 0;
};

class Scan {
 public:
  Scan(imd::Reader& reader, const ScanJob& job, uint64_t total)
      : reader_(reader), job_(job), pieces_(reader, job), total_(total) {}

  Result<uint64_t> run();

 private:
  struct Damage {
    Status cause;
    uint64_t records;  // not read because of it
  };

  // The state of a piece that is not the first unfinished one, or has just become it.
  struct Pending {
    std::deque<Chunk> chunks;
    size_t bytes = 0;
    bool done = false;
    uint64_t records = 0;  // of the piece
    std::vector<Damage> damage;
    Status status;
  };

  void work();
  void take_pieces();
  // `damage`: the skipped places.
  Status scan_piece(const PieceQueue::Numbered& given, std::vector<Damage>* damage);
  void put(uint64_t number, Chunk* chunk);
  void finish(const PieceQueue::Numbered& given, std::vector<Damage> damage, Status status);
  // Whether the scan continues after this failure.
  bool passes(const Status& status) const { return job_.damaged && imd::can_be_passed(status); }
  void write(const Chunk& chunk);    // with the mutex held
  void write_ready(Pending& ready);  // with the mutex held
  void stop(Status status);          // with the mutex held

  imd::Reader& reader_;
  const ScanJob& job_;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  PieceQueue pieces_;
  std::map<uint64_t, Pending> pending_;
  uint64_t head_ = 0;  // the first unfinished piece
  uint64_t written_ = 0;
  uint64_t read_ = 0;
  const uint64_t total_;
  bool ended_ = false;  // no thread takes another piece: the next one cannot be found
  Status status_;
};

void Scan::stop(Status status) {
  if (!stopped_.exchange(true)) status_ = std::move(status);
  changed_.notify_all();
}

void Scan::write(const Chunk& chunk) {
  if (stopped_ || chunk.ends.empty()) return;
  uint64_t records = chunk.ends.size();
  if (job_.limit != 0) records = std::min(records, job_.limit - written_);
  const bool all = job_.write(Bytes(chunk.text.data(), chunk.ends[records - 1]));
  written_ += records;
  if (!all || written_ == job_.limit) stop({});
}

void Scan::write_ready(Pending& ready) {
  for (; !ready.chunks.empty(); ready.chunks.pop_front()) write(ready.chunks.front());
  ready.bytes = 0;
}

void Scan::put(uint64_t number, Chunk* chunk) {
  std::unique_lock lock(mutex_);
  Pending& own = pending_[number];
  changed_.wait(lock, [&] { return stopped_ || number == head_ || own.bytes < ScanJob::kAheadBytes; });
  if (stopped_) return;
  if (number == head_) {
    write_ready(own);
    write(*chunk);
  } else {
    own.bytes += chunk->text.size();
    own.chunks.push_back(std::move(*chunk));
  }
  *chunk = {};
}

void Scan::finish(const PieceQueue::Numbered& given, std::vector<Damage> damage, Status status) {
  const std::lock_guard lock(mutex_);
  Pending& own = pending_[given.number];
  own.done = true;
  own.records = given.piece.records;
  own.damage = std::move(damage);
  own.status = std::move(status);
  for (auto first = pending_.begin(); first != pending_.end() && first->first == head_;
       first = pending_.begin()) {
    write_ready(first->second);
    if (!first->second.done) break;
    for (const Damage& passed : first->second.damage) {
      if (!stopped_) job_.damaged(passed.cause, passed.records);
    }
    if (!first->second.status.ok()) stop(first->second.status);
    read_ += first->second.records;
    pending_.erase(first);
    ++head_;
  }
  if (job_.progress && !stopped_) job_.progress(read_, total_);
  changed_.notify_all();
}

Status Scan::scan_piece(const PieceQueue::Numbered& given, std::vector<Damage>* damage) {
  const imd::EpochEntry& epoch = reader_.manifest().epochs[given.piece.epoch];
  query::RecordView record{epoch.epoch, epoch.step, epoch.time, {}, {}};
  Chunk chunk;
  uint64_t taken = 0;
  uint64_t accounted = 0;  // records of the piece that were read or reported as skipped
  const auto each = [&](uint32_t, Bytes key, Bytes value) {
    ++accounted;
    record.key = key;
    record.value = value;
    if (!job_.format(record, &chunk.text)) return !stopped_.load(std::memory_order_relaxed);
    chunk.ends.push_back(chunk.text.size());
    if (chunk.text.size() >= kChunkBytes) put(given.number, &chunk);
    return ++taken != job_.limit && !stopped_.load(std::memory_order_relaxed);
  };
  const auto pass = [&](const Status& cause, uint64_t records) {
    accounted += records;
    damage->push_back({cause, records});
  };
  Status status = reader_.scan_piece(given.piece, each,
                                     job_.damaged ? imd::Reader::DamageFn(pass) : imd::Reader::DamageFn());
  if (!chunk.ends.empty()) put(given.number, &chunk);
  if (!passes(status)) return status;
  pass(status, given.piece.records - std::min(given.piece.records, accounted));
  return {};
}

// A thread without memory ends the scan, not the process.
void Scan::work() {
  try {
    take_pieces();
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(mutex_);
    stop(Status::out_of_memory());
  }
}

void Scan::take_pieces() {
  for (;;) {
    PieceQueue::Numbered given;
    {
      std::unique_lock lock(mutex_);
      const uint64_t ahead_max = 2 * uint64_t{job_.threads};
      changed_.wait(lock, [&] { return stopped_ || ended_ || pieces_.given() < head_ + ahead_max; });
      if (stopped_ || ended_) return;
      auto next = pieces_.next();
      if (next.ok() && !*next) return;
      if (!next.ok() && passes(next.status())) {
        job_.damaged(next.status(), 0);
        continue;
      }
      if (!next.ok()) {
        // The place comes after all pieces taken so far, which must be written first, and before all others.
        ended_ = true;
        changed_.notify_all();
        changed_.wait(lock, [&] { return stopped_ || head_ == pieces_.given(); });
        stop(next.status());
        return;
      }
      given = **next;
      pending_[given.number];
    }
    std::vector<Damage> damage;
    Status status = scan_piece(given, &damage);
    finish(given, std::move(damage), std::move(status));
  }
}

Result<uint64_t> Scan::run() {
  std::vector<std::thread> others;
  try {
    for (unsigned i = 1; i < job_.threads; ++i) others.emplace_back([this] { work(); });
  } catch (const std::bad_alloc&) {  // fewer threads suffice
  } catch (const std::system_error&) {
  }
  work();
  for (std::thread& other : others) other.join();
  SWALE_RETURN_IF_ERROR(status_);
  return written_;
}

}  // namespace

Result<uint64_t> parallel_scan(imd::Reader& reader, const ScanJob& job) {
  uint64_t total = 0;
  for (const uint32_t epoch : job.epochs) {
    SWALE_ASSIGN_OR_RETURN(const uint64_t records, reader.count(epoch));
    total += records;
  }
  return Scan(reader, job, total).run();
}

}  // namespace swale::tools
