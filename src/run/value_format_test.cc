#include "run/value_format.h"

#include <gtest/gtest.h>

#include "base/coding.h"
#include "base/rng.h"

namespace swale::run::value_format_test {
namespace {

ValueHead sample_head(uint32_t value_bytes) {
  ValueHead head;
  head.offset = 12'288;
  head.epoch_id = 0x0123456789abcdef;
  head.key_hash = 0xfedcba9876543210;
  head.epoch = EpochNumber(7);
  head.writer = PartitionNumber(3);
  head.value_bytes = value_bytes;
  for (uint32_t i = 0; i < value_pieces(value_bytes); ++i) head.pieces.push_back(i * 2'654'435'761u);
  return head;
}

TEST(ValueHead, ReadsBackWhatWasWritten) {
  for (const size_t bytes : {size_t{1}, kValueBytesMax + 1, kValuePieceBytes - 1, kValuePieceBytes,
                             kValuePieceBytes + 1, kMiB + 1, kLargeValueBytesMax}) {
    ValueHead head = sample_head(static_cast<uint32_t>(bytes));
    const std::string encoded = encode_value_head(&head);
    EXPECT_EQ(encoded.size(), value_head_bytes(head.value_bytes));
    const auto peeked = peek_value_head(Bytes(encoded).substr(0, kValueHeadBytes), head.offset, "log");
    ASSERT_TRUE(peeked.ok());
    EXPECT_EQ(*peeked, encoded.size());
    const auto decoded = decode_value_head(encoded, head.writer, head.offset, "log");
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(decoded->pieces, head.pieces);
    EXPECT_EQ(decoded->checksum, head.checksum);
    EXPECT_EQ(decoded->key_hash, head.key_hash);
    EXPECT_EQ(decoded->epoch_id, head.epoch_id);
    EXPECT_EQ(decoded->end_offset(), head.offset + encoded.size() + bytes);
  }
  EXPECT_EQ(value_head_bytes(kLargeValueBytesMax), 48u + 65'536u);
}

TEST(ValueHead, EveryFlippedBitIsNoticed) {
  ValueHead head = sample_head(200'000);
  const std::string good = encode_value_head(&head);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const auto decoded = decode_value_head(bad, head.writer, head.offset, "the log");
    ASSERT_EQ(decoded.status().code(), Code::kCorruption) << bit;
    EXPECT_NE(decoded.status().message().find("the log: offset 12288"), std::string::npos);
  }
  EXPECT_FALSE(decode_value_head(good, PartitionNumber(4), head.offset, "log").ok()) << "another writer's";
  EXPECT_FALSE(decode_value_head(good, PartitionNumber(3), head.offset + 64, "log").ok())
      << "at another place";
  EXPECT_TRUE(decode_value_head(good, PartitionNumber(3), head.offset, "log").ok());
}

TEST(ValuePiece, ChecksumsTellPlaceAndEpoch) {
  const std::string piece(100, 'x');
  const uint32_t sum = value_piece_checksum(epoch_seed(PartitionNumber(1), 2), 4096, piece);
  EXPECT_NE(sum, value_piece_checksum(epoch_seed(PartitionNumber(1), 2), 8192, piece));
  EXPECT_NE(sum, value_piece_checksum(epoch_seed(PartitionNumber(1), 3), 4096, piece));
  EXPECT_NE(sum, value_piece_checksum(epoch_seed(PartitionNumber(2), 2), 4096, piece));
}

TEST(LargeValue, ReadsBackAndRefusesTheImpossible) {
  const ValuePointer pointer{1ull << 40, 16'385, PartitionNumber(77), 0xdeadbeef};
  for (const size_t prefix_bytes : {size_t{0}, size_t{1}, size_t{4080}, kValueBytesMax}) {
    const std::string prefix(prefix_bytes, 'p');
    const std::string stored = encode_large_value({.prefix = prefix, .pointer = pointer});
    EXPECT_EQ(stored.size(), prefix_bytes + kPointerBytes);
    const auto decoded = decode_large_value(stored, "test");
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(decoded->prefix, prefix);
    EXPECT_EQ(decoded->pointer, pointer);
  }
  for (const ValuePointer& bad :
       {ValuePointer{.value_bytes = 0}, ValuePointer{.value_bytes = kLargeValueBytesMax + 1},
        ValuePointer{.offset = ~uint64_t{0}, .value_bytes = 20'000}}) {
    EXPECT_EQ(decode_large_value(encode_large_value({.prefix = {}, .pointer = bad}), "test").status().code(),
              Code::kCorruption);
  }
  EXPECT_FALSE(decode_large_value(std::string(kPointerBytes - 1, '\0'), "test").ok());
}

// As a record it is told from every plain one, also from one of the same sizes.
TEST(LargeValue, ItsRecordIsTold) {
  uint64_t points = 0;
  for (const size_t key_bytes : {1, 127, 128, 255}) {
    for (const size_t stored_bytes :
         {kPointerBytes, kPointerBytes + 1, size_t{127}, size_t{128}, kValueBytesMax, kStoredBytesMax}) {
      const std::string key(key_bytes, 'k');
      const std::string stored(stored_bytes, 's');
      const std::string encoded = encode_large_record(key, stored);
      EXPECT_LE(encoded.size(), kEncodedRecordBytesMax);
      RecordView record;
      const std::string more = encoded + "more";
      ASSERT_EQ(parse_record(more, &record), RecordParse::kOk);
      EXPECT_EQ(record.key, key);
      EXPECT_EQ(record.value, stored);
      EXPECT_TRUE(is_large(record));
      EXPECT_EQ(stored_fields(ValueRule::kLarge, record).size(), stored_bytes - kPointerBytes);
      ++points;
      if (stored_bytes > kValueBytesMax) continue;
      std::string plain(encoded_record_bytes(key_bytes, stored_bytes), '\0');
      encode_record(key, stored, plain.data());
      ASSERT_EQ(parse_record(plain, &record), RecordParse::kOk);
      EXPECT_FALSE(is_large(record));
    }
  }
  std::printf("%llu large records\n", static_cast<unsigned long long>(points));
}

TEST(ValueRange, IsASegmentRecordThatOthersPassOver) {
  const ValueRange range{1ull << 45, (1ull << 40) + 5, 12'345};
  const SegmentRecord segment = values_segment(range, EpochNumber(9), 0xabc);
  EXPECT_TRUE(is_values_segment(segment));
  EXPECT_EQ(range_of(segment), range);
  EXPECT_EQ(segment.data_block + segment.data_blocks, 0u) << "no place in the data log";
  EXPECT_NE(segment.flags & kAuxiliarySegment, 0);
}

}  // namespace
}  // namespace swale::run::value_format_test
