#include "query/columns.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/buffer.h"
#include "base/nearest.h"
#include "base/plain_text.h"
#include "imd/format/manifest.h"

namespace swale::query {
namespace {

constexpr std::string_view kOurNames[] = {"epoch", "step", "time", "key", "value"};
constexpr size_t kFirstBytes = 1024;
// Of a block that is so large, fresh pages are asked for in steps. A step stays in a core's cache until it is
// filled, also where ten columns grow at once.
constexpr size_t kSteppedBytes = 256 * kKiB;
constexpr size_t kStepBytes = 128 * kKiB;
#ifndef MADV_POPULATE_WRITE
constexpr int kPopulateWrite = 23;  // of Linux 5.14
#else
constexpr int kPopulateWrite = MADV_POPULATE_WRITE;
#endif

Column own(std::string_view name, Column::Source source, run::FieldType number) {
  Column column;
  column.name = name;
  column.source = source;
  column.number = number;
  return column;
}

Column key_column(const run::Schema& schema) {
  Column column = own("key", Column::Source::kKey, run::FieldType::kU8);
  column.nullable = schema.key == run::KeyType::kU64 || schema.key == run::KeyType::kI64;
  if (schema.key == run::KeyType::kI64) column.number = run::FieldType::kI8;
  if (schema.key == run::KeyType::kText) column.type = Column::Type::kText;
  if (!schema.key || schema.key == run::KeyType::kBytes) column.type = Column::Type::kBytes;
  return column;
}

Column value_column() {
  Column column = own("value", Column::Source::kValue, run::FieldType::kU1);
  column.type = Column::Type::kBytes;
  return column;
}

Column field_column(const run::Field& field, bool nullable) {
  Column column = own(field.name, Column::Source::kField, field.type);
  if (std::find(std::begin(kOurNames), std::end(kOurNames), field.name) != std::end(kOurNames))
    column.name = "[" + field.name + "]";
  column.count = field.count;
  column.offset = field.offset;
  column.unit = field.unit;
  column.nullable = nullable;
  return column;
}

// Whether the column says the same for all records of an epoch.
bool is_of_epoch(const Column& column) {
  return column.source == Column::Source::kEpoch || column.source == Column::Source::kStep ||
         column.source == Column::Source::kTime;
}

bool is_same_epoch(const RecordView& a, const RecordView& b) {
  return a.epoch == b.epoch && a.step == b.step && std::memcmp(&a.time, &b.time, sizeof a.time) == 0;
}

// The number `rows` times.
template <class T>
void repeat(const T& number, uint64_t rows, Block* out) {
  auto* const to = reinterpret_cast<T*>(out->extend(rows * sizeof(T)));
  std::fill(to, to + rows, number);
}

// What a column that is_of_epoch has for `rows` rows.
void repeat_epoch(const Column& column, const RecordView& of, uint64_t rows, Block* out) {
  if (column.source == Column::Source::kEpoch) repeat(static_cast<int64_t>(of.epoch), rows, out);
  if (column.source == Column::Source::kStep) repeat(of.step, rows, out);
  if (column.source == Column::Source::kTime) repeat(of.time, rows, out);
}

// `width` bytes of each row; with a constant width each copy is one instruction, and four rows share the
// loop's own.
template <size_t kWidth>
void gather_fixed(const char* from, size_t stride, uint64_t rows, char* to) {
  for (; rows >= 4; rows -= 4, from += 4 * stride, to += 4 * kWidth) {
    std::memcpy(to, from, kWidth);
    std::memcpy(to + kWidth, from + stride, kWidth);
    std::memcpy(to + 2 * kWidth, from + 2 * stride, kWidth);
    std::memcpy(to + 3 * kWidth, from + 3 * stride, kWidth);
  }
  for (; rows > 0; --rows, from += stride, to += kWidth) std::memcpy(to, from, kWidth);
}

void gather(const char* from, size_t stride, uint32_t width, uint64_t rows, Block* out) {
  char* to = out->extend(rows * width);
  switch (width) {
    case 1:
      return gather_fixed<1>(from, stride, rows, to);
    case 2:
      return gather_fixed<2>(from, stride, rows, to);
    case 4:
      return gather_fixed<4>(from, stride, rows, to);
    case 8:
      return gather_fixed<8>(from, stride, rows, to);
    case 12:
      return gather_fixed<12>(from, stride, rows, to);
    case 24:
      return gather_fixed<24>(from, stride, rows, to);
    default:
      for (uint64_t row = 0; row < rows; ++row, from += stride, to += width) std::memcpy(to, from, width);
  }
}

Status unknown_column(const std::string& name, const std::vector<Column>& known) {
  std::vector<std::string_view> names;
  for (const Column& column : known) names.push_back(column.name);
  return invalid_argument("no column \"{}\"; did you mean \"{}\"? There are {}", name, nearest(name, names),
                          fmt::join(names, ", "));
}

}  // namespace

std::vector<Column> all_columns(const run::Schema& schema) {
  std::vector<Column> columns = {own("epoch", Column::Source::kEpoch, run::FieldType::kI8),
                                 own("step", Column::Source::kStep, run::FieldType::kI8),
                                 own("time", Column::Source::kTime, run::FieldType::kF8), key_column(schema)};
  columns[1].nullable = true;
  for (const run::Field& field : schema.fields) {
    if (field.name != "_") columns.push_back(field_column(field, schema.any_length));
  }
  if (schema.empty()) columns.push_back(value_column());
  return columns;
}

Result<std::vector<Column>> choose_columns(const run::Schema& schema, std::span<const std::string> names) {
  std::vector<Column> known = all_columns(schema);
  if (!schema.empty()) known.push_back(value_column());
  std::vector<Column> chosen;
  for (const std::string& name : names) {
    const auto same = [&](const Column& column) { return column.name == name; };
    const auto found = std::find_if(known.begin(), known.end(), same);
    if (found == known.end()) return unknown_column(name, known);
    if (std::any_of(chosen.begin(), chosen.end(), same))
      return invalid_argument("column \"{}\" is asked for twice", name);
    chosen.push_back(*found);
  }
  return chosen;
}

void Block::grow(size_t needed) {
  const size_t capacity = std::max({needed, 2 * capacity_, kFirstBytes});
  std::shared_ptr<char> larger(static_cast<char*>(::operator new(capacity, std::align_val_t(kAlignment))),
                               Free());
  if (size_ != 0) std::memcpy(larger.get(), data_.get(), size_);
  data_ = std::move(larger);
  capacity_ = capacity;
  touched_ = capacity < kSteppedBytes ? capacity : size_;
}

// Only advice: an older kernel refuses it, and each page is then taken when it is first written. The pages at
// both ends may be shared with other allocations, to which it makes no difference.
void Block::touch() {
  const size_t end = std::min(capacity_, std::max(size_, touched_ + kStepBytes));
  const auto first =
      reinterpret_cast<uintptr_t>(data_.get() + touched_) / Buffer::kPageBytes * Buffer::kPageBytes;
  const auto last = reinterpret_cast<uintptr_t>(data_.get() + end);
  ::madvise(reinterpret_cast<void*>(first), last - first, kPopulateWrite);
  touched_ = end;
}

BatchBuilder::BatchBuilder(std::vector<Column> columns, uint64_t rows_expected, uint64_t batch_rows_max)
    : columns_(std::move(columns)), rows_expected_(rows_expected), batch_rows_max_(batch_rows_max) {
  for (const Column& column : columns_) {
    numbers_ = numbers_ && column.type == Column::Type::kNumber;
    if (column.source == Column::Source::kKey) key_bytes_ = sizeof(uint64_t);
    if (column.source == Column::Source::kField)
      value_bytes_ = std::max(value_bytes_, column.offset + column.bytes());
  }
  if (numbers_) stage_.resize(kStagedMax * (key_bytes_ + value_bytes_));
  repeated_.resize(columns_.size());
  clear();
}

void BatchBuilder::restart(uint64_t rows_expected) {
  rows_expected_ = rows_expected;
  staged_ = 0;
  clear();
}

uint64_t BatchBuilder::rows_reserved() const {
  return batch_rows_max_ == 0 ? rows_expected_ : std::min(rows_expected_, batch_rows_max_);
}

void BatchBuilder::clear() {
  batch_ = {};
  batch_.columns.resize(columns_.size());
  bytes_ = 0;
  alike_ = true;
  const uint64_t rows = rows_reserved();
  if (rows == 0) return;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].type == Column::Type::kNumber && !is_of_epoch(columns_[i]))
      batch_.columns[i].data.reserve(rows * columns_[i].bytes());
  }
}

// For `rows` regular rows that come next.
void BatchBuilder::add_epoch(const RecordView& of, uint64_t rows) {
  if (alike_ && (batch_.rows == 0 || is_same_epoch(of, of_))) {
    of_ = {of.epoch, of.step, of.time, {}, {}};
    return;
  }
  spell_out();
  write_epoch(of, rows);
}

// From here on each row has its own epoch, step and time.
void BatchBuilder::spell_out() {
  if (!std::exchange(alike_, false)) return;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (is_of_epoch(columns_[i])) batch_.columns[i].data.reserve(rows_reserved() * columns_[i].bytes());
  }
  if (batch_.rows != 0) write_epoch(of_, batch_.rows);
}

void BatchBuilder::write_epoch(const RecordView& of, uint64_t rows) {
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (is_of_epoch(columns_[i])) repeat_epoch(columns_[i], of, rows, &batch_.columns[i].data);
  }
}

// What all of the batch's rows have in a column. A share of more than twice as many rows would keep too much
// memory for them.
Block BatchBuilder::repeated(size_t column, uint64_t rows) {
  const size_t bytes = rows * columns_[column].bytes();
  Repeated& held = repeated_[column];
  if (is_same_epoch(held.of, of_) && held.numbers.size() >= bytes && held.numbers.size() / 2 <= bytes)
    return held.numbers.share(bytes);
  Block fresh;
  fresh.reserve(bytes);
  repeat_epoch(columns_[column], of_, rows, &fresh);
  if (is_same_epoch(held.of, of_) && held.numbers.size() >= bytes) return fresh;
  held = {of_, std::move(fresh)};
  return held.numbers.share(bytes);
}

bool BatchBuilder::is_regular(const RecordView& record) const {
  return numbers_ && (key_bytes_ == 0 || record.key.size() == key_bytes_) &&
         record.value.size() >= value_bytes_ && record.step != imd::kStepUnknown;
}

void BatchBuilder::stage(const RecordView& record) {
  if (staged_ == kStagedMax || (staged_ != 0 && staged_of_.epoch != record.epoch)) flush();
  if (staged_ == 0) staged_of_ = {record.epoch, record.step, record.time, {}, {}};
  char* const row = stage_.data() + staged_ * (key_bytes_ + value_bytes_);
  if (key_bytes_ != 0) std::memcpy(row, record.key.data(), key_bytes_);
  if (value_bytes_ != 0) std::memcpy(row + key_bytes_, record.value.data(), value_bytes_);
  ++staged_;
}

// Takes the staged rows apart.
void BatchBuilder::flush() {
  const uint64_t rows = std::exchange(staged_, 0);
  if (rows == 0) return;
  take_apart(staged_of_, stage_.data(), stage_.data() + key_bytes_, key_bytes_ + value_bytes_, rows);
}

// Regular rows, the first key and value of which are there.
void BatchBuilder::take_apart(const RecordView& of, const char* keys, const char* values, size_t stride,
                              uint64_t rows) {
  add_epoch(of, rows);
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    if (is_of_epoch(column)) continue;
    const char* const from = column.source == Column::Source::kKey ? keys : values + column.offset;
    gather(from, stride, column.bytes(), rows, &batch_.columns[i].data);
  }
  batch_.rows += rows;
}

Status BatchBuilder::append_rows(const RecordView& of, const char* rows, uint32_t key_bytes,
                                 uint32_t value_bytes, uint64_t count) {
  const size_t stride = size_t{key_bytes} + value_bytes;
  RecordView record = of;
  record.key = {rows, key_bytes};
  record.value = {rows + key_bytes, value_bytes};
  if (count != 0 && is_regular(record)) {
    flush();
    take_apart(of, rows, rows + key_bytes, stride, count);
    return {};
  }
  for (uint64_t i = 0; i < count; ++i, rows += stride) {
    record.key = {rows, key_bytes};
    record.value = {rows + key_bytes, value_bytes};
    SWALE_RETURN_IF_ERROR(append(record));
  }
  return {};
}

Batch BatchBuilder::take() {
  flush();
  for (size_t i = 0; alike_ && i < columns_.size(); ++i) {
    if (is_of_epoch(columns_[i]) && batch_.rows != 0) batch_.columns[i].data = repeated(i, batch_.rows);
  }
  for (ColumnData& data : batch_.columns) {
    if (data.nulls == 0) continue;
    const size_t more = (batch_.rows + 7) / 8 - data.validity.size();  // rows after the last null
    std::memset(data.validity.extend(more), 0xff, more);
  }
  Batch taken = std::move(batch_);
  rows_expected_ -= std::min(rows_expected_, taken.rows);
  clear();
  return taken;
}

// The row's bit; rows before the first null have none until then.
void BatchBuilder::append_null(const Column& column, ColumnData* data) {
  const uint64_t row = batch_.rows;
  const size_t bytes = row / 8 + 1;
  if (data->validity.size() < bytes) {
    const size_t more = bytes - data->validity.size();
    std::memset(data->validity.extend(more), 0xff, more);
  }
  char& bits = data->validity.data()[row / 8];
  bits = static_cast<char>(static_cast<uint8_t>(bits) & ~(1U << (row % 8)));
  ++data->nulls;
  if (column.type == Column::Type::kNumber) {
    std::memset(data->data.extend(column.bytes()), 0, column.bytes());
  } else {
    append_bytes({}, data);
  }
}

void BatchBuilder::append_number(const Column& column, const char* bytes, ColumnData* data) {
  // With constant lengths these are single instructions.
  switch (const uint32_t size = column.bytes()) {
    case 4:
      std::memcpy(data->data.extend(4), bytes, 4);
      return;
    case 8:
      std::memcpy(data->data.extend(8), bytes, 8);
      return;
    default:
      std::memcpy(data->data.extend(size), bytes, size);
  }
}

void BatchBuilder::append_bytes(Bytes bytes, ColumnData* data) {
  if (data->offsets.size() == 0) std::memset(data->offsets.extend(sizeof(int32_t)), 0, sizeof(int32_t));
  if (!bytes.empty()) std::memcpy(data->data.extend(bytes.size()), bytes.data(), bytes.size());
  const auto end = static_cast<int32_t>(data->data.size());
  std::memcpy(data->offsets.extend(sizeof end), &end, sizeof end);
  bytes_ += bytes.size();
}

void BatchBuilder::append_field(const Column& column, Bytes value, ColumnData* data) {
  if (value.size() < size_t{column.offset} + column.bytes()) {
    append_null(column, data);
  } else {
    append_number(column, value.data() + column.offset, data);
  }
}

Status BatchBuilder::append_key(const Column& column, Bytes key, ColumnData* data) {
  if (column.type == Column::Type::kNumber) {
    if (key.size() == column.bytes()) {
      append_number(column, key.data(), data);
    } else {
      append_null(column, data);
    }
    return {};
  }
  if (column.type == Column::Type::kText && !is_utf8(key)) {
    return invalid_argument(
        "the key \"{}\" is not UTF-8, though the directory says that its keys are text (imd.key): leave out "
        "the column "
        "\"key\", or read with swale_reader_scan",
        plain_text(key));
  }
  append_bytes(key, data);
  return {};
}

Status BatchBuilder::append(const RecordView& record) {
  if (is_regular(record)) {
    stage(record);
    return {};
  }
  flush();
  spell_out();
  return append_singly(record);
}

Status BatchBuilder::append_singly(const RecordView& record) {
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    ColumnData* const data = &batch_.columns[i];
    // Our numbers are little-endian in memory, as on disk: this is x86-64 and its like.
    switch (column.source) {
      case Column::Source::kEpoch: {
        const int64_t epoch = record.epoch;
        append_number(column, reinterpret_cast<const char*>(&epoch), data);
        break;
      }
      case Column::Source::kStep:
        if (record.step == imd::kStepUnknown) {
          append_null(column, data);
        } else {
          append_number(column, reinterpret_cast<const char*>(&record.step), data);
        }
        break;
      case Column::Source::kTime:
        append_number(column, reinterpret_cast<const char*>(&record.time), data);
        break;
      case Column::Source::kKey:
        SWALE_RETURN_IF_ERROR(append_key(column, record.key, data));
        break;
      case Column::Source::kField:
        append_field(column, record.value, data);
        break;
      case Column::Source::kValue:
        append_bytes(record.value, data);
        break;
    }
  }
  ++batch_.rows;
  return {};
}

}  // namespace swale::query
