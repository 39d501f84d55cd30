// RecordStream: the records of a query, as batches of columns that the caller takes one after the other.
//
// Worker threads take pieces of the query in order (some runs of a partition; some keys) and make batches of
// them. next() gives the batches in the order of the pieces, so the rows come in the same order for any
// number of threads: in storage order, epoch after epoch; or, if keys are asked for, in the order of the keys
// and for each key by epoch. A worker that is ahead waits: kPiecesAhead pieces for each thread, kBatchesAhead
// batches of each piece.
//
// The stream sees the epochs that the reader saw when it was opened, also if the reader is refreshed or
// closed. If one of them is dropped meanwhile (imd.resume_after), the stream gives its records, or fails with
// kAborted.
//
// Threads: next() by one thread at a time; the destructor by any, when no call of next() runs. The first
// next() starts the
//   threads; the destructor stops and joins them. In a child made by fork next() fails, and the stream must
//   not be destroyed: it would wait for the parent's threads.
// Errors: the first one in the order of the rows; all rows before it have been given. After it, next() gives
// it again.
//   kAborted if the stream is cancelled.
// Memory: threads * kPiecesAhead * kBatchesAhead + threads batches, a scan chunk for each thread; for keys
// also the values of a piece's keys for each thread: about kPieceBytes, but at least those of kKeysMin keys.
// Limits: next() asks for cancellation and calls `progress` every kPatience, also while it waits for storage.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/own_process.h"
#include "base/status.h"
#include "imd/read/reader.h"
#include "query/columns.h"
#include "query/expression.h"
#include "query/filter.h"

namespace swale::query {

struct StreamQuery {
  std::vector<EpochNumber> epochs = {};               // in this order
  std::optional<std::vector<std::string>> keys = {};  // none: all records
  std::vector<Column> columns = {};                   // at least one
  std::optional<Filter> where = {};
  uint64_t batch_rows_max = 65'536;
  unsigned threads = 1;
  // Of a divided query: the runs of each epoch that Reader::scan_part gives this part, or a range of keys.
  uint32_t part = 0;
  uint32_t parts = 1;
  std::shared_ptr<const std::atomic<bool>> cancel = {};  // null: cannot be cancelled
  // With what was read and what there is (records, or keys if keys are asked for). False cancels the stream.
  std::function<bool(uint64_t done, uint64_t total)> progress = {};
};

class RecordStream {
 public:
  static constexpr uint64_t kPiecesAhead = 2;
  static constexpr size_t kBatchesAhead = 2;
  // Keys of a piece share what is read: slices, and blocks that lie side by side.
  static constexpr size_t kKeysMin = 1024, kKeysMax = 65'536;
  static constexpr size_t kPieceBytes = 64 * kMiB;
  static constexpr Nanos kPatience = milliseconds(50);
  static constexpr unsigned kThreadsMax = 256;

  // kInvalidArgument for an epoch that does not exist, or a limit that is exceeded.
  static Result<std::unique_ptr<RecordStream>> open(std::shared_ptr<imd::Reader> reader, StreamQuery query);
  ~RecordStream();
  RecordStream(const RecordStream&) = delete;
  RecordStream& operator=(const RecordStream&) = delete;

  // A batch of at least one row; none at the end.
  Result<std::optional<Batch>> next();
  const std::vector<Column>& columns() const { return query_.columns; }
  // False in a child made by fork.
  bool is_of_this_process() const { return process_.is_this(); }

 private:
  struct Piece {
    uint64_t number = 0;
    imd::Reader::ScanPiece scan;  // if no keys are asked for
    size_t first_key = 0;         // else these keys
    size_t keys = 0;
  };
  // What a piece has made that next() has not yet given.
  struct Pending {
    std::deque<Batch> batches;
    bool done = false;
    Status status;
  };
  class PieceRows;

  RecordStream(std::shared_ptr<imd::Reader> reader, StreamQuery query);

  Status start();
  void work() noexcept;
  Status take_pieces();
  Result<std::optional<Piece>> next_piece() REQUIRES(taking_);
  Result<std::vector<imd::Reader::ScanPiece>> pieces_of(EpochNumber epoch, uint32_t partitions) const
      REQUIRES(taking_);
  Status read_piece(const Piece& piece, BatchBuilder* builder);
  Status scan_piece(const Piece& piece, PieceRows* rows);
  size_t keys_of_piece() const;
  bool asks_all_epochs() const;
  Status look_up(const Piece& piece, PieceRows* rows);
  bool put(uint64_t number, Batch batch);                           // false: stop
  void finish(uint64_t number, Status status, bool last) noexcept;  // last: there are no more pieces
  void stop(Status status) noexcept;
  std::optional<Batch> take_ready() REQUIRES(mutex_);
  bool at_end() const REQUIRES(mutex_) { return ended_ && head_ == given_; }
  Status check_cancelled();

  const std::shared_ptr<imd::Reader> reader_;  // keeps what `view_` shares
  const std::unique_ptr<imd::Reader> view_;
  const StreamQuery query_;
  const OwnProcess process_;
  uint64_t total_ = 0;  // of a part of a scan about so many
  size_t keys_a_piece_ = kKeysMin;
  bool all_epochs_ = false;  // of the view, in its order
  std::atomic<uint64_t> done_ = 0;
  std::atomic<bool> stopped_ = false;
  Nanos asked_at_ = 0;  // when next() last asked for cancellation
  std::vector<std::thread> threads_;

  Mutex taking_;                          // taken before mutex_
  size_t epoch_ GUARDED_BY(taking_) = 0;  // index into query_.epochs
  PartitionNumber partition_ GUARDED_BY(taking_);
  std::deque<imd::Reader::ScanPiece> scans_ GUARDED_BY(taking_);
  size_t key_ GUARDED_BY(taking_) = 0;

  Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, Pending> pending_ GUARDED_BY(mutex_);
  uint64_t head_ GUARDED_BY(mutex_) = 0;   // the piece that next() gives
  uint64_t given_ GUARDED_BY(mutex_) = 0;  // pieces that threads have taken
  bool ended_ GUARDED_BY(mutex_) = false;  // there are no more pieces
  Status status_ GUARDED_BY(mutex_);
};

}  // namespace swale::query
