#include "imd/format/series.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace swale::imd::series_test {
namespace {

using Item = std::tuple<uint32_t, SeriesKind, std::string>;

std::vector<std::string> build(const std::vector<Item>& items) {
  std::vector<std::string> all;
  SeriesBuilder builder([&](Bytes series) {
    all.emplace_back(series);
    return Status();
  });
  for (const auto& [index, kind, bytes] : items) EXPECT_TRUE(builder.add(index, kind, bytes).ok());
  EXPECT_TRUE(builder.finish().ok());
  return all;
}

// Joined, as a reader does.
std::vector<Item> parse(const std::vector<std::string>& all, uint32_t epochs) {
  std::vector<Item> items;
  std::string front;
  for (const std::string& series : all) {
    EXPECT_LE(series.size(), kSeriesBytesMax);
    EXPECT_TRUE(walk_series(series, epochs, [&](const SeriesValue& value) {
      front.append(value.bytes);
      if (value.kind == SeriesKind::kContinues) return;
      items.emplace_back(value.index, value.kind, std::exchange(front, {}));
    }));
  }
  return items;
}

TEST(Series, HasTheBytesOfItsFormat) {
  const auto usual = build({{3, SeriesKind::kWhole, "ab"}, {4, SeriesKind::kWhole, "cd"}});
  ASSERT_EQ(usual.size(), 1u);
  EXPECT_EQ(usual[0], std::string("\x03\x03\x02\x08"
                                  "abcd"));
  const auto list =
      build({{0, SeriesKind::kWhole, "a"}, {0, SeriesKind::kPoints, "bc"}, {200, SeriesKind::kWhole, ""}});
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0], std::string("\x00\x00\x03\x00\xc8\x01\x04\x09\x00"
                                 "abc",
                                 12));
}

TEST(Series, EveryListOfValuesComesBack) {
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    const uint32_t epochs = static_cast<uint32_t>(1 + rng.below(40));
    std::vector<Item> items;
    for (uint32_t index = 0; index < epochs; ++index) {
      for (uint64_t i = rng.below(3); i > 0; --i) {
        size_t bytes = rng.below(50);
        if (rng.below(40) == 0) bytes = kSeriesBytesMax - 20 + rng.below(40);
        if (rng.below(80) == 0) bytes = rng.below(50'000);
        items.emplace_back(index, rng.below(9) == 0 ? SeriesKind::kPoints : SeriesKind::kWhole,
                           std::string(bytes, static_cast<char>('a' + rng.below(26))));
      }
    }
    EXPECT_EQ(parse(build(items), epochs), items) << round;
  }
}

TEST(Series, ATallyCountsWhatTheEpochLogCounts) {
  const std::string key = "key";
  SeriesTally tally(2);
  const std::string long_value(40'000, 'x');
  for (const std::string& series : build({{0, SeriesKind::kWhole, "one"},
                                          {1, SeriesKind::kWhole, long_value},
                                          {1, SeriesKind::kWhole, "two"}}))
    ASSERT_TRUE(tally.take(key, series));
  EXPECT_TRUE(tally.complete());
  EXPECT_EQ(tally.tallies()[0], (RecordTally{1, 6, record_digest("keyone", 3)}));
  RecordTally second{1, 3 + 40'000, record_digest(key + long_value, 3)};
  second.add({1, 6, record_digest("keytwo", 3)});
  EXPECT_EQ(tally.tallies()[1], second);
}

// Whole values of equal sizes behind keys of eight bytes have code of their own for each length.
TEST(Series, ATallyCountsUsualSeriesOfEveryLength) {
  Rng rng(7);
  const auto random_bytes = [&](size_t count) {
    std::string bytes(count, 0);
    for (char& byte : bytes) byte = static_cast<char>(rng.below(256));
    return bytes;
  };
  for (size_t bytes = 0; bytes <= 140; ++bytes) {
    SeriesTally tally(3);
    std::vector<RecordTally> expected(3);
    for (int key_number = 0; key_number < 3; ++key_number) {
      const std::string key = random_bytes(8);
      std::vector<Item> items;
      for (uint32_t index = 0; index < 3; ++index) {
        const std::string value = random_bytes(bytes);
        items.emplace_back(index, SeriesKind::kWhole, value);
        expected[index].add({1, 8 + bytes, record_digest(key + value, 8)});
      }
      for (const std::string& series : build(items)) ASSERT_TRUE(tally.take(key, series));
    }
    EXPECT_TRUE(std::ranges::equal(tally.tallies(), expected)) << bytes;
  }
}

// A tally knows what the last series began with: each of these differs from the one before in one thing.
TEST(Series, ATallyTellsSeriesOfOneLengthApart) {
  struct Shape {
    const char* key;
    uint32_t first;
    std::vector<size_t> values;
  };
  const std::vector<Shape> shapes = {
      {"12345678", 0, {40, 40}}, {"12345678", 1, {40, 40}},         {"87654321", 1, {40, 40}},
      {"1234567", 1, {40, 40}},  {"12345678", 1, {20, 20, 20, 20}}, {"12345678", 1, {40, 40}},
      {"12345678", 1, {40, 38}}, {"12345678", 2, {40, 40}},         {"12345678", 2, {40}},
  };
  SeriesTally tally(6);
  std::vector<RecordTally> expected(6);
  for (int round = 0; round < 2; ++round) {
    for (const Shape& shape : shapes) {
      const std::string key = shape.key;
      std::vector<Item> items;
      for (uint32_t i = 0; i < shape.values.size(); ++i) {
        const std::string value(shape.values[i], static_cast<char>('a' + i));
        items.emplace_back(shape.first + i, SeriesKind::kWhole, value);
        expected[shape.first + i].add({1, key.size() + value.size(), record_digest(key + value, key.size())});
      }
      for (const std::string& series : build(items)) {
        ASSERT_TRUE(tally.take(key, series));
        EXPECT_FALSE(tally.take(key, series.substr(0, series.size() - 1)));  // counts nothing
        EXPECT_FALSE(tally.take(key, series + "x"));
      }
    }
  }
  EXPECT_TRUE(std::ranges::equal(tally.tallies(), expected));
}

// Also as the first one, of a key that most series have.
TEST(Series, ATallyRefusesBytesThatAreNoSeries) {
  SeriesTally tally(1);
  for (const char* const key : {"12345678", "123"}) {
    for (const Bytes bytes : {Bytes(""), Bytes("\x08"), Bytes("12345678123456781234567812345678")})
      EXPECT_FALSE(tally.take(key, bytes));
  }
  EXPECT_EQ(tally.tallies(), std::vector<RecordTally>(1));
}

TEST(Series, ATallyCountsWhatAResolvedValueStandsFor) {
  SeriesTally tally(1);
  const std::string stored(12, 'p');
  for (const size_t bytes : {size_t{0}, size_t{100}, kSeriesBytesMax}) {
    std::vector<std::string> all;
    SeriesBuilder builder([&](Bytes series) {
      all.emplace_back(series);
      return Status();
    });
    ASSERT_TRUE(builder.add_resolved(0, stored, std::string(bytes, 'v')).ok() && builder.finish().ok());
    EXPECT_EQ(all.size(), bytes == kSeriesBytesMax ? 2u : 1u);
    for (const std::string& series : all) ASSERT_TRUE(tally.take("key", series));
  }
  EXPECT_TRUE(tally.complete());
  EXPECT_EQ(tally.tallies()[0], (RecordTally{3, 45, 3 * record_digest("key" + stored, 3)}));
}

TEST(Series, ATallyRefusesAValueWithoutItsEnd) {
  const auto parts = build({{0, SeriesKind::kWhole, std::string(40'000, 'x')}});
  ASSERT_EQ(parts.size(), 3u);
  SeriesTally tally(1);
  ASSERT_TRUE(tally.take("a", parts[0]));
  EXPECT_FALSE(tally.complete());
  EXPECT_FALSE(tally.take("b", parts[1]));
}

// Each byte of a series in all its values: the walk ends, within the bytes, or refuses them.
TEST(Series, AnyBytesAreWalkedOrRefused) {
  const auto made =
      build({{1, SeriesKind::kWhole, "ab"}, {1, SeriesKind::kPoints, "cdefg"}, {9, SeriesKind::kWhole, ""}});
  size_t refused = 0;
  size_t walked = 0;
  for (size_t at = 0; at < made[0].size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string bytes = made[0];
      bytes[at] = static_cast<char>(byte);
      const bool known = walk_series(bytes, 10, [&](const SeriesValue& value) {
        EXPECT_LT(value.index, 10u);
        EXPECT_GE(value.bytes.data(), bytes.data());
        EXPECT_LE(value.bytes.data() + value.bytes.size(), bytes.data() + bytes.size());
      });
      ++(known ? walked : refused);
    }
  }
  EXPECT_GT(refused, 100u);
  EXPECT_GT(walked, 100u);
}

}  // namespace
}  // namespace swale::imd::series_test
