#include "tier/log_format.h"

#include <gtest/gtest.h>

#include "base/coding.h"
#include "base/crc32c.h"
#include "base/rng.h"

namespace swale::tier {
namespace {

constexpr uint64_t kLogId = 0x1234567890abcdef;

SegmentHeader segment_header() { return {2, 7, kLogId, 8192, 4, 64, 99}; }

// A segment with a header and these many records of 100 bytes.
std::string make_segment(int records) {
  const SegmentHeader header = segment_header();
  std::string bytes(header.segment_size, '\0');
  encode_segment_header(header, bytes);
  uint64_t at = 64;
  for (int i = 0; i < records; ++i) {
    RecordHeader record;
    record.segment = header.index;
    record.generation = header.generation;
    record.sequence = 100 + static_cast<uint64_t>(i);
    record.file = 5;
    record.offset = static_cast<uint64_t>(i) * 1000;
    record.length = 100;
    record.address = header.index * header.segment_size + at;
    const std::string payload(100, static_cast<char>('a' + i));
    record.payload_crc = crc32c(payload);
    encode_record_header(record, kLogId, std::span(bytes).subspan(at));
    bytes.replace(at + kRecordHeaderBytes, payload.size(), payload);
    at += record.space(64);
  }
  return bytes;
}

TEST(TierLog, HeadersAreDecodedAsTheyWereEncoded) {
  std::string bytes(64, '\0');
  encode_segment_header(segment_header(), bytes);
  const auto header = decode_segment_header(bytes);
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->index, 2u);
  EXPECT_EQ(header->generation, 7u);
  EXPECT_EQ(header->sequence, 99u);
  EXPECT_EQ(header->alignment, 64u);
  RecordHeader record;
  record.type = RecordType::kTruncateDone;
  record.offset = 1ull << 40;
  record.length = 0;
  record.sequence = 77;
  record.address = 12345;
  encode_record_header(record, kLogId, bytes);
  const auto again = decode_record_header(bytes, kLogId);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->type, RecordType::kTruncateDone);
  EXPECT_EQ(again->offset, 1ull << 40);
  EXPECT_EQ(decode_record_header(bytes, kLogId + 1).status().code(), Code::kCorruption) << "of another log";
}

// The bytes of version 1: a change of the format fails here.
TEST(TierLog, GoldenRecordHeader) {
  RecordHeader record;
  record.type = RecordType::kWrite;
  record.segment = 1;
  record.generation = 2;
  record.payload_crc = 3;
  record.sequence = 4;
  record.file = 5;
  record.offset = 6;
  record.length = 7;
  record.address = 8;
  std::string bytes(64, '\0');
  encode_record_header(record, 9, bytes);
  EXPECT_EQ(bytes.substr(0, 4), "STwR");
  for (int i = 1; i < 4; ++i) EXPECT_EQ(get_u32(bytes.data() + 8 + 4 * i), static_cast<uint32_t>(i));
  EXPECT_EQ(get_u32(bytes.data() + 8), 1u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(get_u64(bytes.data() + 24 + 8 * i), static_cast<uint64_t>(i + 4));
}

TEST(TierLog, AScanFindsAllRecords) {
  const auto scan = scan_segment(make_segment(10), segment_header());
  ASSERT_TRUE(scan.ok());
  EXPECT_EQ(scan->records.size(), 10u);
  EXPECT_TRUE(scan->damaged.empty());
  EXPECT_EQ(scan->records[9].offset, 9000u);
}

TEST(TierLog, ADamagedHeaderCostsItsOwnRecordAndADamagedPayloadIsReported) {
  std::string bytes = make_segment(10);
  bytes[64 + 3 * 192 + 40] ^= 1;   // the fourth header
  bytes[64 + 5 * 192 + 100] ^= 1;  // the sixth payload
  const auto scan = scan_segment(bytes, segment_header());
  ASSERT_TRUE(scan.ok());
  EXPECT_EQ(scan->records.size(), 8u);
  ASSERT_EQ(scan->damaged.size(), 1u);
  EXPECT_EQ(scan->damaged[0].header.offset, 5000u);
}

TEST(TierLog, EveryTornTailLosesOnlyTheTornRecord) {
  const std::string whole = make_segment(3);
  for (uint64_t cut = 64 + 2 * 192; cut < 64 + 2 * 192 + 164; ++cut) {
    std::string bytes = whole;
    std::fill(bytes.begin() + static_cast<ptrdiff_t>(cut), bytes.end(), '\xee');
    const auto scan = scan_segment(bytes, segment_header());
    ASSERT_TRUE(scan.ok());
    EXPECT_EQ(scan->records.size(), 2u) << "cut at " << cut;
  }
}

TEST(TierLog, RecordsOfAnEarlierGenerationAreRemains) {
  std::string bytes = make_segment(10);
  SegmentHeader erased = segment_header();
  ++erased.generation;
  encode_segment_header(erased, bytes);
  const auto scan = scan_segment(bytes, segment_header());
  ASSERT_TRUE(scan.ok());
  EXPECT_TRUE(scan->records.empty());
}

TEST(TierLog, WithoutItsHeaderASegmentIsOfTheNewestGenerationFound) {
  std::string bytes = make_segment(4);
  bytes[20] ^= 1;
  const auto scan = scan_segment(bytes, segment_header());
  ASSERT_TRUE(scan.ok());
  EXPECT_TRUE(scan->header_damaged);
  EXPECT_EQ(scan->header.generation, 7u);
  EXPECT_EQ(scan->records.size(), 4u);
}

TEST(TierLog, ACopyOfARecordInAFilesOwnContentIsNoRecord) {
  std::string bytes = make_segment(2);
  // The payload of the second record is a copy of the first record, and its header is damaged.
  bytes.replace(64 + 192 + 64, 64, bytes.substr(64, 64));
  bytes[64 + 192 + 30] ^= 1;
  const auto scan = scan_segment(bytes, segment_header());
  ASSERT_TRUE(scan.ok());
  EXPECT_EQ(scan->records.size(), 1u);
  EXPECT_TRUE(scan->damaged.empty());
}

TEST(TierLog, ALogOfAnotherConfigurationIsRefused) {
  SegmentHeader other = segment_header();
  other.segment_size = 4096;
  EXPECT_EQ(scan_segment(make_segment(1), other).status().code(), Code::kCorruption);
}

}  // namespace
}  // namespace swale::tier
