#include "imd/format/series_columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "base/codec.h"
#include "base/coding.h"
#include "base/rng.h"
#include "imd/format/series.h"
#include "imd/format/series_values.h"

namespace swale::imd::series_columns_test {
namespace {

struct Item {
  uint32_t index = 0;
  SeriesKind kind = SeriesKind::kWhole;
  std::string bytes;

  bool operator==(const Item&) const = default;
};

std::vector<std::string> build(const std::vector<Item>& items) {
  std::vector<std::string> all;
  SeriesBuilder builder([&](Bytes series) {
    all.emplace_back(series);
    return Status();
  });
  for (const Item& item : items) EXPECT_TRUE(builder.add(item.index, item.kind, item.bytes).ok());
  EXPECT_TRUE(builder.finish().ok());
  return all;
}

std::string as_columns(std::string series) {
  make_columns({series.data(), series.size()});
  return series;
}

std::string as_rows(const std::string& series) {
  std::string rows(series.size(), '\0');
  const Bytes made = make_rows(series, {rows.data(), rows.size()});
  EXPECT_TRUE(made.empty() || made.data() == rows.data());
  return std::string(made);
}

std::vector<Item> parse(const std::vector<std::string>& all, uint32_t epochs) {
  std::vector<Item> items;
  SeriesValues values(epochs);
  for (const std::string& series : all) {
    EXPECT_TRUE(values.take("key", series, [&](const SeriesValue& value) {
      items.push_back({value.index, value.kind, std::string(value.bytes)});
    }));
  }
  return items;
}

TEST(SeriesColumns, HaveTheBytesOfTheirFormat) {
  // Numbers 256 and 254, and a byte that is none.
  const auto usual = build({{3, SeriesKind::kWhole, std::string("\x00\x01\x00\x00x", 5)},
                            {4, SeriesKind::kWhole, std::string("\xfe\x00\x00\x00y", 5)}});
  ASSERT_EQ(usual.size(), 1u);
  // The difference -2 is 3.
  EXPECT_EQ(as_columns(usual[0]), std::string("\x07\x03\x02\x14"
                                              "\x00\x03"
                                              "\x01\x00"
                                              "\x00\x00"
                                              "\x00\x00"
                                              "xy",
                                              14));
  const auto gap = build({{0, SeriesKind::kWhole, "ab"}, {9, SeriesKind::kWhole, "cd"}});
  EXPECT_EQ(as_columns(gap.at(0)), std::string("\x06\x00\x02\x09\x08"
                                               "acbd",
                                               9));
}

TEST(SeriesColumns, StayRowsWithoutSeveralValuesOfOneSize) {
  for (const std::vector<Item>& items : std::vector<std::vector<Item>>{
           {{0, SeriesKind::kWhole, "alone"}},
           {{0, SeriesKind::kWhole, "two"}, {1, SeriesKind::kWhole, "sizes"}},
           {{0, SeriesKind::kWhole, ""}, {1, SeriesKind::kWhole, ""}},
           {{0, SeriesKind::kWhole, "kinds"}, {0, SeriesKind::kPoints, "kinds"}}}) {
    const std::vector<std::string> rows = build(items);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(as_columns(rows[0]), rows[0]);
    EXPECT_EQ(as_rows(rows[0]), "");  // they are no columns
  }
}

std::vector<Item> random_items(Rng& rng, uint32_t epochs) {
  std::vector<Item> items;
  const size_t usual_bytes = rng.below(60);
  const bool odd_sizes = rng.below(3) == 0;
  const uint64_t copies_max = 1 + rng.below(3);
  const auto kind = static_cast<SeriesKind>(rng.below(2));
  const bool absent = rng.below(2) == 0;
  for (uint32_t index = 0; index < epochs; ++index) {
    const uint64_t copies = absent ? rng.below(copies_max + 1) : 1 + rng.below(copies_max);
    for (uint64_t i = 0; i < copies; ++i) {
      size_t bytes = usual_bytes;
      if (odd_sizes && rng.below(4) == 0) bytes = rng.below(50);
      if (odd_sizes && rng.below(40) == 0) bytes = rng.below(50'000);
      std::string value(bytes, '\0');
      for (char& c : value) c = static_cast<char>(rng.next());
      items.push_back({index, kind, std::move(value)});
    }
  }
  if (items.empty()) items.push_back({0, kind, "one"});
  return items;
}

// Repeated keys, absent epochs, pointers, values of any sizes, parts of long ones.
TEST(SeriesColumns, EveryListOfValuesComesBack) {
  Rng rng(11);
  uint64_t with_columns = 0;
  uint64_t with_rows = 0;
  for (int round = 0; round < 600; ++round) {
    const auto epochs = static_cast<uint32_t>(1 + rng.below(400));
    const std::vector<Item> items = random_items(rng, epochs);
    const std::vector<std::string> rows = build(items);
    std::vector<std::string> columns;
    SeriesTally of_rows(epochs);
    SeriesTally of_columns(epochs);
    for (const std::string& series : rows) {
      columns.push_back(as_columns(series));
      ASSERT_EQ(columns.back().size(), series.size());
      ++(has_columns(columns.back()) ? with_columns : with_rows);
      ASSERT_EQ(as_rows(columns.back()), has_columns(columns.back()) ? series : "");
      ASSERT_TRUE(of_rows.take("8 bytes!", series));
      ASSERT_TRUE(of_columns.take("8 bytes!", columns.back()));
    }
    ASSERT_TRUE(std::ranges::equal(of_rows.tallies(), of_columns.tallies())) << round;
    ASSERT_TRUE(parse(columns, epochs) == items) << round;
  }
  EXPECT_GT(with_columns, 200u);
  EXPECT_GT(with_rows, 100u);
}

// What the layout is for: particles that move a little in each epoch.
TEST(SeriesColumns, WhatMovesSlowlyCompressesBetter) {
  for (const Codec codec : {Codec::kLz4, Codec::kZstd}) {
    Compressor compressor = Compressor::create(codec).value();
    std::vector<char> out(kSeriesBytesMax * 2);
    size_t rows_bytes = 0;
    size_t columns_bytes = 0;
    for (int particle = 0; particle < 20; ++particle) {
      std::vector<Item> items;
      for (uint32_t epoch = 0; epoch < 300; ++epoch) {
        std::string value;
        for (int axis = 0; axis < 3; ++axis) {
          const double phase = 0.3 * epoch + particle + axis;
          const auto place = static_cast<float>(10.0 * axis + particle + 0.1 * std::cos(phase));
          const auto speed = static_cast<float>(-0.6 * std::sin(phase));
          append_fixed(&value, place);
          append_fixed(&value, speed);
        }
        append_u32(&value, 2);
        append_u64(&value, 100 * epoch);
        items.push_back({epoch, SeriesKind::kWhole, value});
      }
      const std::vector<std::string> rows = build(items);
      ASSERT_EQ(rows.size(), 1u);
      rows_bytes += compressor.compress(rows[0], out);
      columns_bytes += compressor.compress(as_columns(rows[0]), out);
    }
    EXPECT_LT(static_cast<double>(columns_bytes), 0.7 * static_cast<double>(rows_bytes)) << codec_name(codec);
  }
}

// Each byte of a series in all its values: the walk ends, within the values, or refuses them.
TEST(SeriesColumns, AnyBytesAreWalkedOrRefused) {
  const auto rows = build({{1, SeriesKind::kWhole, "abcdefg"},
                           {1, SeriesKind::kWhole, "hijklmn"},
                           {9, SeriesKind::kWhole, "opqrstu"}});
  const std::string made = as_columns(rows.at(0));
  ASSERT_TRUE(has_columns(made));
  size_t refused = 0;
  size_t walked = 0;
  for (size_t at = 0; at < made.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string bytes = made;
      bytes[at] = static_cast<char>(byte);
      size_t given = 0;
      const bool known = walk_series(bytes, 10, [&](const SeriesValue& value) {
        EXPECT_LT(value.index, 10u);
        given += value.bytes.size();
      });
      EXPECT_LE(given, made.size());
      ++(known ? walked : refused);
    }
  }
  EXPECT_GT(refused, 100u);
  EXPECT_GT(walked, 100u);
}

TEST(SeriesColumns, ASeriesThatIsTooLongIsRefused) {
  std::string series = std::string("\x07\x00\x02", 3);
  append_varint(&series, series_size_code(kSeriesBytesMax, SeriesKind::kWhole));
  series.append(2 * kSeriesBytesMax, 'x');
  EXPECT_FALSE(walk_series(series, 10, [](const SeriesValue&) { FAIL(); }));
}

}  // namespace
}  // namespace swale::imd::series_columns_test
