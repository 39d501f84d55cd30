#include "run/extrema.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "base/crc32c.h"
#include "run/extrema_reader.h"
#include "run/run_cursor.h"
#include "run/testing/run_test_support.h"

namespace swale::run::extrema_test {
namespace {

constexpr PartitionNumber kPartition(7);
constexpr uint64_t kIndexOffset = 8192;

using ValueFn = std::function<std::string(Rng&, size_t)>;

std::string value_with(double number, size_t bytes = 40) {
  std::string value(bytes, 'v');
  put_fixed(value.data() + 8, number);
  return value;
}

// The data log of some runs, the group that was made from it, and what a walk over all records says.
struct Made {
  std::vector<FieldPlace> fields;
  std::string data;
  ExtremaGroup group;
  std::vector<FieldTotals> totals;
  std::map<uint32_t, std::vector<Extrema>> blocks;  // of those in which records start, by field
  std::string segment_bytes;
  SegmentRecord segment;

  Made(std::vector<FieldPlace> places, const std::vector<size_t>& runs, const ValueFn& value_fn,
       size_t fill_blocks = 3)
      : fields(std::move(places)), group(fields, kGroupBlocksMax), totals(fields.size()) {
    Rng rng(5);
    test::PartitionInMemory partition(kPartition);
    for (const size_t records : runs) {
      test::Records list;
      for (size_t i = 0; i < records; ++i) {
        std::string value = value_fn(rng, i);  // before the key, with every compiler
        list.emplace_back(test::random_bytes(rng, 8), std::move(value));
      }
      partition.add_run(list, 16);
    }
    data = partition.data;
    feed(fill_blocks);
    walk();
    encode();
  }

  void feed(size_t fill_blocks) {
    for (size_t at = 0; at < data.size();) {
      const size_t bytes = get_fixed<RunHeader>(data.data() + at).blocks * kBlockBytes;
      group.begin_run(BlockNumber(at / kBlockBytes), static_cast<uint32_t>(bytes / kBlockBytes));
      for (size_t part = 0; part < bytes; part += fill_blocks * kBlockBytes) {
        group.add_blocks(Bytes(data).substr(at + part, std::min(fill_blocks * kBlockBytes, bytes - part)));
      }
      at += bytes;
    }
  }

  void walk() {
    RunCursor cursor(kPartition, BlockNumber(0), "data");
    const Status status = cursor.feed(data, [&](const ScannedRecord& record) {
      std::vector<Extrema>& block = blocks[static_cast<uint32_t>(record.block)];
      block.resize(fields.size());
      for (size_t f = 0; f < fields.size(); ++f) {
        const FieldValue number = read_field(fields[f], record.value);
        totals[f].add(number);
        if (number.kind == FieldValue::Kind::kNumber) block[f].add(number.key);
      }
      return true;
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  void encode() {
    ExtremaSegmentBuilder builder(group,
                                  {.partition = kPartition,
                                   .epoch_id = test::PartitionInMemory::kEpochId,
                                   .way = 0,
                                   .ways = 1,
                                   .data_blocks = static_cast<uint32_t>(data.size() / kBlockBytes)},
                                  kIndexOffset);
    std::vector<char> out(2 * kIndexPageBytes, '\x5a');
    while (const size_t produced = builder.fill(out)) segment_bytes.append(out.data(), produced);
    ASSERT_TRUE(builder.done());
    ASSERT_EQ(segment_bytes.size(), builder.size_bytes());
    segment = builder.record();
  }

  Bytes at(uint64_t offset, uint32_t bytes) const {
    return Bytes(segment_bytes).substr(offset - kIndexOffset, bytes);
  }

  Result<GroupHead> head() const {
    SWALE_RETURN_IF_ERROR(check_extrema_segment(segment, kIndexOffset + segment_bytes.size(), "index"));
    return decode_extrema_head(segment, kPartition, at(kIndexOffset, segment.stride), "index");
  }

  Result<std::vector<PieceEntry>> list(const GroupHead& head, size_t field, Extreme which) const {
    std::vector<PieceEntry> entries;
    for (uint32_t piece = 0; piece < piece_count(head.fields[field].listed); ++piece) {
      const PiecePlace place = piece_place(head, field, which, piece);
      SWALE_ASSIGN_OR_RETURN(const auto part, decode_extrema_piece(head, kPartition, field, which, piece,
                                                                   at(place.offset, place.bytes), "index"));
      entries.insert(entries.end(), part.begin(), part.end());
    }
    return entries;
  }

  void check_list(const GroupHead& head, size_t field, Extreme which) const {
    const auto entries = list(head, field, which);
    ASSERT_TRUE(entries.ok()) << entries.status().to_string();
    std::map<uint32_t, int> named;
    for (size_t i = 0; i < entries->size(); ++i) {
      const auto& [bound, number] = (*entries)[i];
      ++named[number];
      ASSERT_EQ(head.run_of(number).first_block + number - head.run_of(number).group_block, number);
      const auto found = blocks.find(number);
      ASSERT_TRUE(found != blocks.end() && !found->second[field].empty()) << number;
      const OrderKey best = found->second[field].best(which);
      ASSERT_GE(score_of(which, bound), score_of(which, best)) << "entry " << i;
      if (i < kFirstPieceEntries) {
        ASSERT_EQ(bound, best) << "entry " << i;
      }
    }
    size_t listed = 0;
    for (const auto& [number, extrema] : blocks) listed += extrema[field].empty() ? 0 : 1;
    EXPECT_EQ(named.size(), listed);
    EXPECT_EQ(entries->size(), listed);
  }

  void check() const {
    const auto decoded = head();
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    for (size_t f = 0; f < fields.size(); ++f) {
      EXPECT_EQ(decoded->fields[f].totals, totals[f]) << f;
      check_list(*decoded, f, Extreme::kLargest);
      check_list(*decoded, f, Extreme::kSmallest);
    }
    for (const GroupRun& run : decoded->runs) {
      for (size_t f = 0; f < fields.size(); ++f) {
        Extrema expected;
        for (uint32_t i = 0; i < run.blocks; ++i) {
          const auto found = blocks.find(run.group_block + i);
          if (found != blocks.end()) expected.add(found->second[f]);
        }
        EXPECT_EQ(run.extrema[f], expected);
      }
    }
  }
};

const std::vector<FieldPlace> kNumber = {{"x", FieldType::kF8, 8}};

TEST(Extrema, OfUniformRunsAreThoseOfTheRecords) {
  const auto uniform = [](Rng& rng, size_t) {
    return value_with(static_cast<double>(rng.below(1u << 30)) * 0x1p-30);
  };
  Made(kNumber, {20'000, 1, 500}, uniform).check();
  Made(kNumber, {20'000, 1, 500}, uniform, 1).check();
  Made(kNumber, {250'000}, uniform, 100).check();
}

TEST(Extrema, OfVariableRunsAreThoseOfTheRecords) {
  const auto variable = [](Rng& rng, size_t) {
    const size_t bytes = rng.chance(1, 30) ? 4000 + rng.below(12'000) : rng.below(200);
    std::string value = value_with(static_cast<double>(rng.below(1000)), std::max<size_t>(bytes, 16));
    value.resize(bytes);
    return value;
  };
  for (const size_t fill_blocks : {1, 2, 5, 1000})
    Made(kNumber, {3000, 1, 200}, variable, fill_blocks).check();
}

TEST(Extrema, NanInfinitiesAndDenormals) {
  const double numbers[] = {std::nan(""),
                            -std::nan(""),
                            std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::denorm_min(),
                            -std::numeric_limits<double>::denorm_min(),
                            0.0,
                            -0.0};
  for (size_t kinds = 1; kinds <= std::size(numbers); ++kinds) {
    const Made made(kNumber, {2000, 40},
                    [&](Rng& rng, size_t) { return value_with(numbers[rng.below(kinds)]); });
    made.check();
    EXPECT_EQ(made.head()->fields[0].listed == 0, kinds <= 2);
    EXPECT_GT(made.head()->fields[0].totals.nans, 0u);
  }
  Made(kNumber, {2000}, [&](Rng&, size_t) { return value_with(-0.0); }).check();
  Made(kNumber, {2000}, [&](Rng& rng, size_t) {
    return value_with(rng.chance(1, 500) ? 1 : std::nan(""));
  }).check();
}

TEST(Extrema, OfEveryTypeAndManyFields) {
  std::vector<FieldPlace> fields;
  for (const auto type : {FieldType::kF4, FieldType::kI1, FieldType::kI2, FieldType::kI4, FieldType::kI8,
                          FieldType::kU1, FieldType::kU2, FieldType::kU8}) {
    fields.push_back({"x", type, static_cast<uint32_t>(fields.size() * 3)});
  }
  const auto random = [](Rng& rng, size_t) { return test::random_bytes(rng, 40); };
  Made(fields, {5000, 3}, random).check();
  fields[0].type = FieldType::kU4;
  Made(fields, {5000, 3}, random).check();
}

TEST(Extrema, ValuesThatAreTooShortAreCounted) {
  const auto some_short = [](Rng& rng, size_t) { return std::string(rng.chance(1, 3) ? 15 : 16, 'x'); };
  const Made mixed(kNumber, {1000}, some_short);
  mixed.check();
  EXPECT_GT(mixed.head()->fields[0].totals.absent, 200u);
  const Made none(kNumber, {1000}, [](Rng&, size_t) { return std::string("12345678"); });
  none.check();
  EXPECT_EQ(none.head()->fields[0].totals.absent, 1000u);
  EXPECT_EQ(none.head()->fields[0].listed, 0u);
}

TEST(Extrema, AGroupIsFullAndStartsAnew) {
  ExtremaGroup group(kNumber, 10);
  EXPECT_TRUE(group.fits(11)) << "a group to itself";
  const Made made(kNumber, {400},
                  [](Rng& rng, size_t) { return value_with(static_cast<double>(rng.below(50))); });
  const auto blocks = static_cast<uint32_t>(made.data.size() / kBlockBytes);
  ASSERT_LT(blocks, 10u);
  group.begin_run(BlockNumber(0), blocks);
  group.add_blocks(made.data);
  EXPECT_TRUE(group.fits(10 - blocks));
  EXPECT_FALSE(group.fits(11 - blocks));
  EXPECT_EQ(group.totals(0), made.totals[0]);
  group.clear();
  EXPECT_TRUE(group.empty());
  EXPECT_TRUE(group.totals(0).extrema.empty());
}

// The bytes on disk of a fixed input, fixed for ever.
TEST(Extrema, SegmentsOfFixedRecordsHaveFixedBytes) {
  const Made made({{"x", FieldType::kF8, 8}, {"y", FieldType::kI2, 3}}, {12'000, 40},
                  [](Rng& rng, size_t) { return value_with(static_cast<double>(rng.below(1000)) / 8); });
  EXPECT_EQ(made.segment_bytes.size(), 5696u);
  EXPECT_EQ(crc32c(made.segment_bytes), 3'590'439'776u);
}

TEST(Extrema, SizesOfLists) {
  EXPECT_EQ(list_bytes(0), 0u);
  EXPECT_EQ(list_bytes(1), 8u + 8 + 8);
  EXPECT_EQ(list_bytes(128), 8u + 1024 + 256);
  EXPECT_EQ(piece_count(128), 1u);
  EXPECT_EQ(piece_count(129), 2u);
  EXPECT_EQ(list_bytes(47'059), 107'136u);  // 2.28 bytes a block
  for (uint32_t listed : {1u, 127u, 129u, 1'664u, 1'665u, 65'536u}) {
    uint32_t entries = 0;
    uint32_t bytes = 0;
    for (uint32_t piece = 0; piece < piece_count(listed); ++piece) {
      const ListPieceShape shape = list_piece_shape(listed, piece);
      EXPECT_EQ(shape.first_entry, entries);
      EXPECT_EQ(shape.offset, bytes);
      entries += shape.entries;
      bytes += shape.bytes();
    }
    EXPECT_EQ(entries, listed);
    EXPECT_EQ(bytes, list_bytes(listed));
  }
}

// Everything that a reader can see of the segment, as text; or that it noticed the damage.
std::string all_of(const Made& made) {
  const auto head = made.head();
  if (!head.ok()) return "damaged";
  std::string text;
  for (size_t f = 0; f < head->fields.size(); ++f) {
    for (const Extreme which : {Extreme::kLargest, Extreme::kSmallest}) {
      const auto entries = made.list(*head, f, which);
      if (!entries.ok()) return "damaged";
      for (const PieceEntry& entry : *entries) text += fmt::format("{} {},", entry.bound, entry.block);
    }
  }
  return text;
}

TEST(ExtremaDamage, EveryFlippedBitIsNoticedOrChangesNothing) {
  Made made({{"x", FieldType::kF8, 8}, {"y", FieldType::kU1, 0}}, {11'500, 300},
            [](Rng& rng, size_t) { return value_with(static_cast<double>(rng.below(10'000))); });
  const std::string whole = all_of(made);
  ASSERT_NE(whole, "damaged");
  ASSERT_GT(piece_count(made.head()->fields[0].listed), 1u);
  size_t noticed = 0;
  for (size_t bit = 0; bit < made.segment_bytes.size() * 8; ++bit) {
    char& byte = made.segment_bytes[bit / 8];
    byte ^= static_cast<char>(1 << bit % 8);
    const std::string found = all_of(made);
    ASSERT_TRUE(found == "damaged" || found == whole) << "bit " << bit;
    noticed += found == "damaged" ? 1 : 0;
    byte ^= static_cast<char>(1 << bit % 8);
  }
  const size_t padding_bits =
      (made.segment_bytes.size() - made.segment.stride - 2 * list_bytes(made.head()->fields[0].listed) -
       2 * list_bytes(made.head()->fields[1].listed)) *
      8;
  EXPECT_EQ(noticed, made.segment_bytes.size() * 8 - padding_bits);
}

TEST(ExtremaDamage, BytesOfAnotherPlaceDoNotPass) {
  const Made made(kNumber, {11'500},
                  [](Rng& rng, size_t) { return value_with(static_cast<double>(rng.below(9))); });
  const GroupHead head = *made.head();
  const PiecePlace place = piece_place(head, 0, Extreme::kLargest, 0);
  const Bytes bytes = made.at(place.offset, place.bytes);
  EXPECT_TRUE(decode_extrema_piece(head, kPartition, 0, Extreme::kLargest, 0, bytes, "index").ok());
  EXPECT_FALSE(decode_extrema_piece(head, kPartition, 0, Extreme::kSmallest, 0, bytes, "index").ok());
  EXPECT_FALSE(decode_extrema_piece(head, kPartition + 1, 0, Extreme::kLargest, 0, bytes, "index").ok());
  GroupHead moved = head;
  moved.segment.index_offset += kIndexUnit;
  EXPECT_FALSE(decode_extrema_piece(moved, kPartition, 0, Extreme::kLargest, 0, bytes, "index").ok());
  EXPECT_FALSE(
      decode_extrema_head(moved.segment, kPartition, made.at(kIndexOffset, head.segment.stride), "index")
          .ok());
  EXPECT_FALSE(decode_extrema_head(head.segment, kPartition, made.at(kIndexOffset, 64), "index").ok());
}

TEST(ExtremaDamage, ImpossibleSegmentRecordsAreRefused) {
  const Made made(kNumber, {1000}, [](Rng&, size_t) { return value_with(1); });
  const uint64_t end = kIndexOffset + made.segment_bytes.size();
  ASSERT_TRUE(check_extrema_segment(made.segment, end, "index").ok());
  EXPECT_FALSE(check_extrema_segment(made.segment, end - 1, "index").ok());
  const auto refused = [&](auto change) {
    SegmentRecord segment = made.segment;
    change(segment);
    return check_extrema_segment(segment, end, "index").code() == Code::kCorruption;
  };
  EXPECT_TRUE(refused([](SegmentRecord& s) { s.stride -= 64; }));
  EXPECT_TRUE(refused([](SegmentRecord& s) { s.key_bytes = 9; }));
  EXPECT_TRUE(refused([](SegmentRecord& s) { s.runs = 0; }));
  EXPECT_TRUE(refused([](SegmentRecord& s) { s.value_bytes = 65'537; }));
  EXPECT_TRUE(refused([](SegmentRecord& s) { s.slice_bits = 3; }));
  EXPECT_TRUE(refused([](SegmentRecord& s) { s.way = 1; }));
  EXPECT_TRUE(refused([](SegmentRecord& s) { s.index_offset += 1; }));
}

}  // namespace
}  // namespace swale::run::extrema_test
