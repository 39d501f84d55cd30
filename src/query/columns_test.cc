#include "query/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

namespace swale::query::columns_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names_of(const std::vector<Column>& columns) {
  std::vector<std::string> names;
  for (const Column& column : columns) names.push_back(column.name);
  return names;
}

run::Schema schema_of(const char* fields) { return *run::Schema::parse(fields, ""); }

TEST(Columns, AreOursAndTheFields) {
  EXPECT_THAT(names_of(all_columns(schema_of("x:f8;_:4;key:u4;v:f4x3"))),
              ElementsAre("epoch", "step", "time", "key", "x", "[key]", "v"));
  EXPECT_THAT(names_of(all_columns({})), ElementsAre("epoch", "step", "time", "key", "value"));
}

TEST(Columns, AreChosenByName) {
  const run::Schema schema = schema_of("energy:f8;key:u4");
  const std::string names[] = {"[key]", "value", "energy", "key"};
  EXPECT_THAT(names_of(*choose_columns(schema, names)), ElementsAre("[key]", "value", "energy", "key"));
  const std::string unknown[] = {"enrgy"};
  EXPECT_THAT(std::string(choose_columns(schema, unknown).status().message()), HasSubstr("\"energy\"?"));
  const std::string twice[] = {"key", "key"};
  EXPECT_THAT(std::string(choose_columns(schema, twice).status().message()), HasSubstr("twice"));
}

bool is_null(const Batch& batch, size_t column, uint64_t row) {
  const ColumnData& data = batch.columns[column];
  return data.nulls != 0 && (static_cast<uint8_t>(data.validity.data()[row / 8]) >> (row % 8) & 1) == 0;
}

bool same(const Batch& a, const Batch& b) {
  const auto bytes = [](const Block& block) { return Bytes(block.data(), block.size()); };
  if (a.rows != b.rows || a.columns.size() != b.columns.size()) return false;
  for (size_t i = 0; i < a.columns.size(); ++i) {
    const ColumnData& x = a.columns[i];
    const ColumnData& y = b.columns[i];
    if (bytes(x.data) != bytes(y.data) || bytes(x.offsets) != bytes(y.offsets) ||
        bytes(x.validity) != bytes(y.validity) || x.nulls != y.nulls)
      return false;
  }
  return true;
}

// Regular rows, keys of another length, values that are too short, and an unknown step, between single
// records.
TEST(Columns, OfRowsSideBySideAreThoseOfTheRecords) {
  run::Schema schema = schema_of("x:f8;v:f4x2;c:i1;_:*");
  schema.key = run::KeyType::kU64;
  const struct {
    uint32_t key_bytes, value_bytes;
    int64_t step;
  } kinds[] = {{8, 17, 5}, {8, 30, 5}, {7, 17, 5}, {8, 11, 5}, {8, 17, std::numeric_limits<int64_t>::min()},
               {8, 17, 6}};
  BatchBuilder by_rows(all_columns(schema));
  BatchBuilder singly(all_columns(schema));
  uint64_t next = 0;
  for (const uint64_t count : {1U, 85U, 300U, 0U}) {
    for (const auto& kind : kinds) {
      std::string rows;
      const uint32_t bytes = kind.key_bytes + kind.value_bytes;
      for (uint64_t i = 0; i < count * bytes; ++i) rows += static_cast<char>(++next * 37 >> 3);
      const RecordView of{3, kind.step, 0.5, {}, {}};
      ASSERT_TRUE(by_rows.append_rows(of, rows.data(), kind.key_bytes, kind.value_bytes, count).ok());
      for (uint64_t i = 0; i < count; ++i) {
        const Bytes row = Bytes(rows).substr(i * bytes, bytes);
        const RecordView record{3, kind.step, 0.5, row.substr(0, kind.key_bytes), row.substr(kind.key_bytes)};
        ASSERT_TRUE(singly.append(record).ok());
      }
      const RecordView one{4, 1, 1, "8 bytes!", "a value of many bytes"};
      ASSERT_TRUE(by_rows.append(one).ok());
      ASSERT_TRUE(singly.append(one).ok());
      EXPECT_EQ(by_rows.rows(), singly.rows());
    }
    ASSERT_TRUE(same(by_rows.take(), singly.take()));
  }
}

// Rows of every tenth kind lack something.
TEST(Columns, LackWhatTheRecordLacks) {
  run::Schema schema = schema_of("x:f8;v:f4x2;_:*");
  schema.key = run::KeyType::kU64;
  BatchBuilder builder(all_columns(schema));
  const std::string whole(16, 'v');
  for (int i = 0; i < 100; ++i) {
    RecordView record{7, i % 10 == 1 ? std::numeric_limits<int64_t>::min() : i, 1.5, "8 bytes!", whole};
    if (i % 10 == 2) record.key = "other";
    if (i % 10 == 3) record.value = Bytes(whole).substr(0, 12);
    if (i % 10 == 4) record.value = {};
    ASSERT_TRUE(builder.append(record).ok());
  }
  const Batch batch = builder.take();
  ASSERT_EQ(batch.rows, 100U);
  for (uint64_t row = 0; row < 100; ++row) {
    EXPECT_EQ(is_null(batch, 1, row), row % 10 == 1) << row;
    EXPECT_EQ(is_null(batch, 3, row), row % 10 == 2) << row;
    EXPECT_EQ(is_null(batch, 4, row), row % 10 == 4) << row;
    EXPECT_EQ(is_null(batch, 5, row), row % 10 == 3 || row % 10 == 4) << row;
  }
  EXPECT_EQ(batch.columns[5].data.size(), 800U);
  EXPECT_EQ(batch.columns[5].nulls, 20U);
  EXPECT_EQ(batch.columns[5].validity.size(), 13U);
  EXPECT_EQ(batch.columns[0].nulls, 0U);
}

// More rows than are staged, of several epochs, some of them irregular.
TEST(Columns, KeepTheOrderOfRowsWhateverTheyAre) {
  run::Schema schema = schema_of("x:f8;v:u2x3;_:*");
  schema.key = run::KeyType::kU64;
  BatchBuilder builder(all_columns(schema), 700);
  std::vector<std::string> keys;
  std::vector<std::string> values;
  for (uint64_t i = 0; i < 2'000; ++i) {
    const double x = static_cast<double>(i);
    const uint16_t v[3] = {1, 2, static_cast<uint16_t>(i)};
    keys.emplace_back(reinterpret_cast<const char*>(&i), i % 97 == 5 ? 7 : 8);
    values.emplace_back(reinterpret_cast<const char*>(&x), 8);
    values.back().append(reinterpret_cast<const char*>(v), i % 53 == 7 ? 5 : 6);
  }
  const auto epoch_of = [](uint64_t i) { return static_cast<uint32_t>(i / 300); };
  uint64_t first = 0;
  const auto check = [&](const Batch& batch) {
    for (uint64_t row = 0; row < batch.rows; ++row) {
      const uint64_t i = first + row;
      const auto number = [&](size_t column, auto kind) {
        std::memcpy(&kind, batch.columns[column].data.data() + row * sizeof kind, sizeof kind);
        return kind;
      };
      EXPECT_EQ(number(0, int64_t{}), epoch_of(i)) << i;
      EXPECT_EQ(number(1, int64_t{}), 10 * epoch_of(i)) << i;
      EXPECT_EQ(is_null(batch, 3, row), i % 97 == 5) << i;
      EXPECT_EQ(number(3, uint64_t{}), i % 97 == 5 ? 0 : i) << i;
      EXPECT_EQ(number(4, double{}), static_cast<double>(i)) << i;
      EXPECT_EQ(is_null(batch, 5, row), i % 53 == 7) << i;
      uint16_t last = 0;
      std::memcpy(&last, batch.columns[5].data.data() + row * 6 + 4, sizeof last);
      EXPECT_EQ(last, i % 53 == 7 ? 0 : i) << i;
    }
    first += batch.rows;
  };
  for (uint64_t i = 0; i < 2'000; ++i) {
    ASSERT_TRUE(builder.append({epoch_of(i), 10 * epoch_of(i), 0.5, keys[i], values[i]}).ok());
    if (builder.rows() == 700) check(builder.take());
  }
  check(builder.take());
  EXPECT_EQ(first, 2'000U);
}

// Blocks so large that their memory comes in steps; more rows than were expected; a batch that takes over.
TEST(Columns, OfLargeBatchesHaveEveryRow) {
  constexpr uint64_t kRows = 230'000;
  constexpr uint64_t kBatchRows = 100'000;
  run::Schema schema = schema_of("x:f8;n:u4");
  schema.key = run::KeyType::kU64;
  for (const uint64_t expected : {uint64_t{0}, kRows / 2, kRows, 2 * kRows}) {
    BatchBuilder builder(all_columns(schema), expected, kBatchRows);
    RecordView of;
    of.step = 7;
    uint64_t number = 0;
    while (number < kRows) {
      const uint64_t rows = std::min(kRows - number, kBatchRows);
      for (uint64_t row = 0; row < rows; ++row) {
        char record[20];
        const uint64_t key = number + row;
        const double x = 0.5 * static_cast<double>(key);
        const auto n = static_cast<uint32_t>(key * 3);
        std::memcpy(record, &key, sizeof key);
        std::memcpy(record + 8, &x, sizeof x);
        std::memcpy(record + 16, &n, sizeof n);
        ASSERT_TRUE(builder.append_rows(of, record, 8, 12, 1).ok());
      }
      Batch batch;
      batch = builder.take();
      ASSERT_EQ(batch.rows, rows);
      const auto* const steps = reinterpret_cast<const int64_t*>(batch.columns[1].data.data());
      const auto* const keys = reinterpret_cast<const uint64_t*>(batch.columns[3].data.data());
      const auto* const xs = reinterpret_cast<const double*>(batch.columns[4].data.data());
      const auto* const ns = reinterpret_cast<const uint32_t*>(batch.columns[5].data.data());
      uint64_t wrong = 0;
      for (uint64_t row = 0; row < rows; ++row) {
        const uint64_t key = number + row;
        wrong += steps[row] != 7 || keys[row] != key || xs[row] != 0.5 * static_cast<double>(key) ||
                 ns[row] != static_cast<uint32_t>(key * 3);
      }
      EXPECT_EQ(wrong, 0u);
      number += rows;
    }
  }
}

// Epoch, step and time of a batch of one epoch.
void expect_epoch(const Batch& batch, int64_t epoch, int64_t step, double time) {
  for (size_t column = 0; column < 3; ++column)
    ASSERT_EQ(batch.columns[column].data.size(), batch.rows * 8) << column;
  uint64_t wrong = 0;
  for (uint64_t row = 0; row < batch.rows; ++row) {
    wrong += reinterpret_cast<const int64_t*>(batch.columns[0].data.data())[row] != epoch;
    wrong += reinterpret_cast<const int64_t*>(batch.columns[1].data.data())[row] != step;
    wrong += reinterpret_cast<const double*>(batch.columns[2].data.data())[row] != time;
  }
  EXPECT_EQ(wrong, 0U) << epoch;
}

// Columns that say the same in every row are in memory once, also after a builder has begun another piece; a
// small batch does not keep a large one's memory, and no batch changes what an earlier one has.
TEST(Columns, OfOneEpochShareMemory) {
  run::Schema schema = schema_of("x:f8");
  schema.key = run::KeyType::kU64;
  BatchBuilder builder(all_columns(schema), 0, 1'000);
  const std::string rows(1'000 * 16, 'r');
  const auto batch_of = [&](const RecordView& of, uint64_t count) {
    EXPECT_TRUE(builder.append_rows(of, rows.data(), 8, 8, count).ok());
    return builder.take();
  };
  const RecordView first{1, 10, 0.5, {}, {}};
  const RecordView second{2, 20, -0.0, {}, {}};
  auto whole = std::make_unique<Batch>(batch_of(first, 1'000));
  const Batch again = batch_of(first, 1'000);
  builder.restart(600);
  const Batch most = batch_of(first, 600);
  const Batch few = batch_of(first, 400);
  const Batch other = batch_of(second, 1'000);
  const Batch later = batch_of(first, 1'000);
  for (size_t column = 0; column < 3; ++column) {
    const char* const shared = whole->columns[column].data.data();
    EXPECT_EQ(again.columns[column].data.data(), shared);
    EXPECT_EQ(most.columns[column].data.data(), shared);
    EXPECT_NE(few.columns[column].data.data(), shared);
    EXPECT_NE(other.columns[column].data.data(), shared);
  }
  EXPECT_NE(whole->columns[4].data.data(), again.columns[4].data.data()) << "a field";
  whole.reset();
  for (const Batch* const batch : {&again, &most, &few, &later}) expect_epoch(*batch, 1, 10, 0.5);
  expect_epoch(other, 2, 20, 0);
}

// Rows of a second epoch, or without a step, end what the rows before them have in common.
TEST(Columns, OfSeveralEpochsAreWrittenOut) {
  run::Schema schema = schema_of("x:f8");
  schema.key = run::KeyType::kU64;
  const std::string rows(300 * 16, 'r');
  const RecordView first{1, 10, 0.5, {}, {}};
  const RecordView others[] = {{2, 10, 0.5, {}, {}}, {1, 11, 0.5, {}, {}}, {1, 10, 0.25, {}, {}}};
  for (const RecordView& other : others) {
    BatchBuilder builder(all_columns(schema));
    ASSERT_TRUE(builder.append_rows(first, rows.data(), 8, 8, 300).ok());
    ASSERT_TRUE(builder.append_rows(other, rows.data(), 8, 8, 5).ok());
    const Batch both = builder.take();
    ASSERT_EQ(both.rows, 305U);
    const auto number = [&](size_t column, uint64_t row, auto kind) {
      std::memcpy(&kind, both.columns[column].data.data() + row * sizeof kind, sizeof kind);
      return kind;
    };
    for (const uint64_t row : {0UL, 299UL, 300UL, 304UL}) {
      const RecordView& of = row < 300 ? first : other;
      EXPECT_EQ(number(0, row, int64_t{}), int64_t{of.epoch});
      EXPECT_EQ(number(1, row, int64_t{}), of.step);
      EXPECT_EQ(number(2, row, double{}), of.time);
    }
    ASSERT_TRUE(builder.append_rows(other, rows.data(), 8, 8, 5).ok());
    const Batch after = builder.take();
    expect_epoch(after, other.epoch, other.step, other.time);
  }
}

TEST(Columns, WhatIsAppendedToAShareGoesIntoACopy) {
  Block block;
  std::memcpy(block.extend(6), "abcdef", 6);
  Block share = block.share(3);
  EXPECT_EQ(share.data(), block.data());
  std::memcpy(share.extend(2), "XY", 2);
  EXPECT_EQ(Bytes(share.data(), share.size()), "abcXY");
  EXPECT_EQ(Bytes(block.data(), block.size()), "abcdef");
}

TEST(Columns, TextIsUtf8OrAnError) {
  run::Schema schema;
  schema.key = run::KeyType::kText;
  const std::string names[] = {"key", "value"};
  BatchBuilder builder(*choose_columns(schema, names));
  ASSERT_TRUE(builder.append({0, 0, 0, "\xc3\xa4", "abc"}).ok());
  ASSERT_TRUE(builder.append({0, 0, 0, "x", ""}).ok());
  const Batch batch = builder.take();
  EXPECT_EQ(Bytes(batch.columns[0].data.data(), batch.columns[0].data.size()), "\xc3\xa4x");
  int32_t offsets[3];
  ASSERT_EQ(batch.columns[1].offsets.size(), sizeof offsets);
  std::memcpy(offsets, batch.columns[1].offsets.data(), sizeof offsets);
  EXPECT_THAT(offsets, ElementsAre(0, 3, 3));
  const Status status = builder.append({0, 0, 0, "\xff", "abc"});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\\xff"));
}

TEST(Columns, ABatchIsFullAtItsBytes) {
  const std::string names[] = {"value"};
  BatchBuilder builder(*choose_columns({}, names));
  const std::string large(kBatchBytesMax / 4, 'x');
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(builder.is_full());
    ASSERT_TRUE(builder.append({0, 0, 0, "k", large}).ok());
  }
  EXPECT_TRUE(builder.is_full());
  EXPECT_EQ(builder.take().columns[0].data.size(), kBatchBytesMax);
  EXPECT_FALSE(builder.is_full());
}

}  // namespace
}  // namespace swale::query::columns_test
