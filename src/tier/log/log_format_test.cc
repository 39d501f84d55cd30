#include "tier/log/log_format.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/coding.h"
#include "base/rng.h"

namespace swale::tier::log_format_test {
namespace {

constexpr uint64_t kLogId = 0x1234567890abcdef;

constexpr uint64_t kPayloadBytes = 10'000;  // three checked blocks
constexpr uint64_t kSegmentBytes = 131'072;

SegmentHeader segment_header() { return {2, 7, kLogId, kSegmentBytes, 4, 64, 99, 0}; }
uint64_t space() { return record_space(kPayloadBytes, 64); }
uint64_t begin_of(uint64_t record) { return 64 + record * space(); }
uint64_t payload_of(uint64_t record) { return begin_of(record) + 64 + checks_bytes_of(kPayloadBytes); }
uint64_t end_of(uint64_t record) { return begin_of(record + 1) - 64; }

// A segment with its headers and these many records.
std::string make_segment(int records) {
  const SegmentHeader header = segment_header();
  std::string bytes(header.segment_size, '\0');
  encode_segment_header(header, bytes);
  encode_segment_header(header, std::span(bytes).last(64));
  for (int i = 0; i < records; ++i) {
    RecordHeader record;
    record.segment = header.index;
    record.generation = header.generation;
    record.sequence = 100 + static_cast<uint64_t>(i);
    record.file = 5;
    record.offset = static_cast<uint64_t>(i) * 1000;
    record.length = kPayloadBytes;
    record.address = header.index * header.segment_size + begin_of(static_cast<uint64_t>(i));
    record.unsettled = 2;
    const std::string payload(kPayloadBytes, static_cast<char>('a' + i));
    const auto at = std::span(bytes).subspan(begin_of(static_cast<uint64_t>(i)));
    record.check = make_checks(payload, at.subspan(64));
    encode_record_header(record, kLogId, at);
    encode_record_end(record, kLogId, at.subspan(space() - 64));
    bytes.replace(payload_of(static_cast<uint64_t>(i)), payload.size(), payload);
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

// The bytes of version 2: a change of the format fails here.
TEST(TierLog, GoldenRecordHeader) {
  RecordHeader record;
  record.type = RecordType::kWrite;
  record.segment = 1;
  record.generation = 2;
  record.check = 3;
  record.sequence = 4;
  record.file = 5;
  record.offset = 6;
  record.length = 7;
  record.address = 8;
  record.unsettled = 9;
  std::string bytes(64, '\0');
  encode_record_header(record, 9, bytes);
  EXPECT_EQ(bytes.substr(0, 4), "STwR");
  for (int i = 1; i < 4; ++i) EXPECT_EQ(get_u32(bytes.data() + 8 + 4 * i), static_cast<uint32_t>(i));
  EXPECT_EQ(get_u32(bytes.data() + 8), 1u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(get_u64(bytes.data() + 24 + 8 * i), static_cast<uint64_t>(i + 4));
  EXPECT_EQ(get_u32(bytes.data() + 48), 7u);
  EXPECT_EQ(get_u32(bytes.data() + 52), 9u);
  EXPECT_EQ(get_u64(bytes.data() + 56), 8u);
  std::string end(64, '\0');
  encode_record_end(record, 9, end);
  EXPECT_EQ(end.substr(0, 4), "STwE");
  EXPECT_EQ(end.substr(4), bytes.substr(4));
}

TEST(TierLog, AScanFindsAllRecords) {
  const auto scan = scan_segment(make_segment(10), segment_header());
  ASSERT_TRUE(scan.ok());
  EXPECT_EQ(scan->records.size(), 10u);
  EXPECT_TRUE(scan->damaged.empty());
  EXPECT_EQ(scan->records[9].offset, 9000u);
}

TEST(TierLog, ADamagedHeaderOrEndCostsNothingAndADamagedBlockOnlyItself) {
  std::string bytes = make_segment(10);
  bytes[begin_of(3) + 40] ^= 1;
  bytes[end_of(4) + 40] ^= 1;
  bytes[payload_of(5) + 5000] ^= 1;
  bytes[begin_of(6) + 64] ^= 1;  // its checks
  const auto scan = scan_segment(bytes, segment_header());
  ASSERT_TRUE(scan.ok());
  EXPECT_EQ(scan->records.size(), 8u);
  ASSERT_EQ(scan->mended.size(), 2u);
  EXPECT_EQ(scan->mended[0].offset, 3000u);
  EXPECT_EQ(scan->mended[1].offset, 4000u);
  ASSERT_EQ(scan->damaged.size(), 2u);
  EXPECT_EQ(scan->damaged[0].header.offset, 5000u);
  EXPECT_EQ(scan->damaged[0].ranges, (std::vector<PayloadRange>{{4096, 8192}}));
  EXPECT_EQ(scan->damaged[1].ranges, (std::vector<PayloadRange>{{0, kPayloadBytes}}));
}

TEST(TierLog, AnyBitThatFlipsIsNoticedOrCostsNothing) {
  const std::string whole = make_segment(2);
  for (uint64_t at = 0; at < begin_of(2); at += 7) {
    std::string bytes = whole;
    bytes[at] ^= static_cast<char>(1 << at % 8);
    const auto scan = scan_segment(bytes, segment_header());
    ASSERT_TRUE(scan.ok());
    // Both records are whole, or one of them is named as damaged.
    EXPECT_EQ(scan->records.size() + scan->damaged.size(), 2u) << "byte " << at;
    const bool in_payload = (at >= payload_of(0) && at < payload_of(0) + kPayloadBytes) ||
                            (at >= payload_of(1) && at < payload_of(1) + kPayloadBytes);
    EXPECT_EQ(scan->damaged.size(), in_payload ? 1u : scan->damaged.size()) << "byte " << at;
  }
}

TEST(TierLog, EveryTornTailLosesOnlyTheTornRecordWhichIsNoDamage) {
  const std::string whole = make_segment(3);
  for (uint64_t cut = begin_of(2); cut < end_of(2); cut += 61) {
    std::string bytes = whole;
    std::fill(bytes.begin() + static_cast<ptrdiff_t>(cut), bytes.end(), '\xee');
    std::vector<SegmentScan> scans(1);
    auto scan = scan_segment(bytes, segment_header());
    ASSERT_TRUE(scan.ok());
    scans[0] = std::move(*scan);
    EXPECT_EQ(scans[0].records.size(), 2u) << "cut at " << cut;
    const auto torn = take_torn(&scans);
    EXPECT_TRUE(scans[0].damaged.empty()) << "nobody says that it was settled";
    EXPECT_LE(torn.size(), 1u);
  }
}

// Record 3 says that all up to two records before it is settled: record 0 (sequence 100) is.
TEST(TierLog, ADamagedRecordWasAcknowledgedIfALaterOneSaysSo) {
  for (const uint64_t which : {0u, 2u}) {
    std::string bytes = make_segment(4);
    bytes[payload_of(which)] ^= 1;
    std::vector<SegmentScan> scans;
    scans.push_back(*scan_segment(bytes, segment_header()));
    const auto torn = take_torn(&scans);
    EXPECT_EQ(torn.size(), which == 0 ? 0u : 1u);
    EXPECT_EQ(scans[0].damaged.size(), which == 0 ? 1u : 0u);
  }
}

// Record 3 is torn, and nobody else says that record 0, which is damaged, had been acknowledged. The mend of
// the log may be killed after any of its writes.
TEST(TierLog, AMendedLogStillSaysWhatWasSettled) {
  const uint64_t begin = segment_header().index * kSegmentBytes;
  for (size_t writes = 0; writes <= 4; ++writes) {
    std::string bytes = make_segment(4);
    bytes[payload_of(0)] ^= 1;
    bytes[payload_of(3)] ^= 1;
    std::vector<SegmentScan> scans = {*scan_segment(bytes, segment_header())};
    const auto torn = take_torn(&scans);
    ASSERT_EQ(torn.size(), 1u);
    size_t left = writes;
    for (const auto& round : mends_of(scans, torn, kLogId, 64))
      for (const LogWrite& write : round)
        if (left > 0 && left-- > 0) bytes.replace(write.address - begin, write.bytes.size(), write.bytes);
    std::vector<SegmentScan> again = {*scan_segment(bytes, segment_header())};
    take_torn(&again);
    ASSERT_EQ(again[0].damaged.size(), 1u) << writes << " writes";
    EXPECT_EQ(again[0].damaged[0].header.sequence, 100u);
    for (const RecordHeader& record : again[0].records)
      EXPECT_TRUE(record.type == RecordType::kSettled || record.sequence != 103) << "the torn one counts";
  }
}

TEST(TierLog, RecordsOfAnEarlierGenerationAreRemains) {
  std::string bytes = make_segment(10);
  SegmentHeader erased = segment_header();
  ++erased.generation;
  encode_segment_header(erased, bytes);  // the second copy is not written yet
  const auto scan = scan_segment(bytes, segment_header());
  ASSERT_TRUE(scan.ok());
  EXPECT_TRUE(scan->records.empty());
}

TEST(TierLog, TheSecondCopyOfASegmentsHeaderTellsItsGeneration) {
  std::string bytes = make_segment(4);
  SegmentHeader erased = segment_header();
  ++erased.generation;
  encode_segment_header(erased, std::span(bytes).last(64));
  bytes[20] ^= 1;
  const auto scan = scan_segment(bytes, segment_header());
  ASSERT_TRUE(scan.ok());
  EXPECT_TRUE(scan->header_damaged);
  EXPECT_FALSE(scan->generation_guessed);
  EXPECT_TRUE(scan->records.empty()) << "they are remains";
}

TEST(TierLog, WithoutItsHeadersASegmentIsOfTheNewestGenerationFound) {
  std::string bytes = make_segment(4);
  bytes[20] ^= 1;
  bytes[bytes.size() - 20] ^= 1;
  const auto scan = scan_segment(bytes, segment_header());
  ASSERT_TRUE(scan.ok());
  EXPECT_TRUE(scan->generation_guessed);
  EXPECT_EQ(scan->header.generation, 7u);
  EXPECT_EQ(scan->records.size(), 4u);
}

TEST(TierLog, ACopyOfARecordInAFilesOwnContentIsNoRecord) {
  std::string bytes = make_segment(2);
  // The payload of the second record holds a copy of the first record's header and end, and its own are
  // damaged.
  bytes.replace(payload_of(1) + 24, 64, bytes.substr(begin_of(0), 64));
  bytes.replace(payload_of(1) + 64 * 64 + 24, 64, bytes.substr(end_of(0), 64));
  bytes[begin_of(1) + 30] ^= 1;
  bytes[end_of(1) + 30] ^= 1;
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
}  // namespace swale::tier::log_format_test
