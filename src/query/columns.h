// Columns: what a table of records consists of, and batches of its rows.
//
// A table has the columns epoch, step and time (of the record's epoch), key, and one for each field of the
// schema, in its order; without a schema one more, "value", with the bytes. A key is a number or text if the
// directory says so (imd.key), else bytes. An array of numbers is one column. A field that is called like one
// of our columns is "[name]", as in conditions. "value" can always be asked for by name.
//
// Null is: the step of an epoch that `swale repair` found; a field that the value is too short for; a key
// whose length is not that of the number that keys are. A text key that is not UTF-8 is an error: a table
// cannot hold it as text.
//
// Memory: a batch has so much for each row as its columns have, and at most 100 % more. Batches of one epoch
// share the memory of the columns epoch, step and time, which say the same in every row.
// Threads: a Batch has one owner at a time; a BatchBuilder is of one thread.
// Limits: kBatchBytesMax for the keys or the values of a batch, plus one value or the rows of one block.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "query/expression.h"
#include "run/schema.h"

namespace swale::query {

inline constexpr size_t kBatchBytesMax = 64 * kMiB;

struct Column {
  enum class Source : uint8_t { kEpoch, kStep, kTime, kKey, kField, kValue };
  enum class Type : uint8_t { kNumber, kText, kBytes };

  std::string name;
  Source source = Source::kField;
  Type type = Type::kNumber;
  run::FieldType number = run::FieldType::kF8;  // kNumber
  uint32_t count = 1;                           // kField: more than 1 is an array
  uint32_t offset = 0;                          // kField: in the value
  bool nullable = false;
  std::string unit;  // kField

  // kNumber: of a row.
  uint32_t bytes() const { return count * run::type_bytes(number); }
  bool operator==(const Column&) const = default;
};

// The columns of a directory's records.
std::vector<Column> all_columns(const run::Schema& schema);
// Those that are named, in this order. kInvalidArgument for an unknown name says which one is meant, and for
// a name that is given twice.
Result<std::vector<Column>> choose_columns(const run::Schema& schema, std::span<const std::string> names);

// Bytes that grow, aligned for vector instructions. Throws std::bad_alloc. Takes fresh pages of a large block
// from the kernel 32 at a time (columns.md: what fresh memory costs).
class Block {
 public:
  static constexpr size_t kAlignment = 64;

  Block() = default;
  // The first `bytes` bytes in the same memory, which lives until the last block that has it is gone. From
  // then on neither block may change these bytes. What is appended to the new block goes into a copy.
  Block share(size_t bytes) const {
    Block shared;
    shared.data_ = data_;
    shared.size_ = shared.capacity_ = shared.touched_ = bytes;
    return shared;
  }
  Block(Block&& other) noexcept
      : data_(std::move(other.data_)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)),
        touched_(std::exchange(other.touched_, 0)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(touched_, other.touched_);
    return *this;
  }

  const char* data() const { return data_.get(); }
  size_t size() const { return size_; }
  // Room for `bytes` more; their content is undefined.
  char* extend(size_t bytes) {
    if (capacity_ - size_ < bytes) grow(size_ + bytes);
    char* const at = data_.get() + size_;
    size_ += bytes;
    if (size_ > touched_) touch();
    return at;
  }
  char* data() { return data_.get(); }
  // So that the next `bytes` bytes need no other allocation.
  void reserve(size_t bytes) {
    if (capacity_ - size_ < bytes) grow(size_ + bytes);
  }

 private:
  struct Free {
    void operator()(char* data) const { ::operator delete(data, std::align_val_t(kAlignment)); }
  };
  void grow(size_t needed);
  void touch();

  std::shared_ptr<char> data_;
  size_t size_ = 0;
  size_t capacity_ = 0;
  size_t touched_ = 0;  // the bytes before it have memory, or are taken as they are written
};

// One column of a batch, laid out as Apache Arrow's columnar format prescribes.
struct ColumnData {
  Block validity;      // one bit a row, the lowest first; empty: no row is null
  Block offsets;       // kText, kBytes: int32 of each row's begin and of the last one's end
  Block data;          // numbers, or the bytes of all rows
  uint64_t nulls = 0;  // rows
};

struct Batch {
  uint64_t rows = 0;
  std::vector<ColumnData> columns;
};

// Regular records (numbers for keys, no field missing) are staged as they come and taken apart column by
// column, kStagedMax at a time: a loop with one width and one stride for each column costs a third of a walk
// over the columns for each record.
//
// The columns epoch, step and time are not written as long as all rows of a batch are of one epoch: take()
// gives them a share of what earlier batches of the epoch have. So a builder that is kept for all batches of
// a query writes them once.
class BatchBuilder {
 public:
  // `rows_expected`: all batches together probably have so many rows; 0: unknown. `batch_rows_max`: and each
  // of them at most so many.
  explicit BatchBuilder(std::vector<Column> columns, uint64_t rows_expected = 0, uint64_t batch_rows_max = 0);
  // Forgets the rows that were not taken; `rows_expected` as above.
  void restart(uint64_t rows_expected);

  // kInvalidArgument: a text key that is not UTF-8. Throws std::bad_alloc. After both the builder can only be
  // restarted or destroyed.
  Status append(const RecordView& record);
  // As append of each of `count` records that lie side by side, each a key and a value. `of` has their
  // epoch, step and time. Without the copy into the stage, and without a walk over columns for each.
  Status append_rows(const RecordView& of, const char* rows, uint32_t key_bytes, uint32_t value_bytes,
                     uint64_t count);

  uint64_t rows() const { return batch_.rows + staged_; }
  // Its keys or values have reached kBatchBytesMax.
  bool is_full() const { return bytes_ >= kBatchBytesMax; }
  // The rows so far; the builder then is empty.
  Batch take();

 private:
  static constexpr uint64_t kStagedMax = 256;

  // A column with the same number in all rows, for batches of this epoch.
  struct Repeated {
    RecordView of;
    Block numbers;
  };

  void clear();
  uint64_t rows_reserved() const;
  void add_epoch(const RecordView& of, uint64_t rows);
  void spell_out();
  void write_epoch(const RecordView& of, uint64_t rows);
  Block repeated(size_t column, uint64_t rows);
  bool is_regular(const RecordView& record) const;
  void stage(const RecordView& record);
  void flush();
  void take_apart(const RecordView& of, const char* keys, const char* values, size_t stride, uint64_t rows);
  Status append_singly(const RecordView& record);
  void append_null(const Column& column, ColumnData* data);
  void append_number(const Column& column, const char* bytes, ColumnData* data);
  void append_bytes(Bytes bytes, ColumnData* data);
  void append_field(const Column& column, Bytes value, ColumnData* data);
  Status append_key(const Column& column, Bytes key, ColumnData* data);

  const std::vector<Column> columns_;
  uint64_t rows_expected_;  // in this batch and later ones
  const uint64_t batch_rows_max_;
  bool numbers_ = true;       // no column has text or bytes
  uint32_t key_bytes_ = 0;    // of a staged row: 8, or 0 if no column has keys
  uint32_t value_bytes_ = 0;  // of a staged row: up to the last field that a column has
  Batch batch_;
  size_t bytes_ = 0;  // of keys and values in columns of bytes
  std::vector<char> stage_;
  uint64_t staged_ = 0;   // rows
  RecordView staged_of_;  // the epoch, step and time of all of them
  bool alike_ = true;     // all rows of batch_ are of of_'s epoch, and have no epoch, step and time yet
  RecordView of_;
  std::vector<Repeated> repeated_;  // by column
};

}  // namespace swale::query
