// The tier's formats as they are on disk: a fixed segment and a fixed list of losses are the bytes of
// tests/golden/tier-v2, which are read for ever. SWALE_REGENERATE_GOLDEN=1 writes them anew, which only a
// change of the format may ask for.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tier/log/file_table_format.h"
#include "tier/log/kept_file.h"
#include "tier/log/log_format.h"
#include "tier/log/log_seal.h"
#include "tier/log/loss_list.h"

namespace swale::tier::golden_test {
namespace {

const std::filesystem::path kGoldenFolder = SWALE_SOURCE_DIR "/tests/golden/tier-v2";
constexpr uint64_t kLogId = 0x0123456789abcdef;
constexpr uint32_t kAlignment = 64;

SegmentHeader golden_header() {
  return {.index = 1,
          .generation = 3,
          .log_id = kLogId,
          .segment_size = 16384,
          .segment_count = 2,
          .alignment = kAlignment,
          .sequence = 40,
          .settled = 39};
}

std::string payload_of(const RecordHeader& record) {
  std::string bytes(record.payload_bytes(), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + record.sequence);
  return bytes;
}

// A write of one block, one of three, and each kind of record without payload.
std::string golden_segment() {
  const SegmentHeader header = golden_header();
  std::string bytes(header.segment_size, '\0');
  encode_segment_header(header, bytes);
  encode_segment_header(header, std::span(bytes).last(segment_tail_bytes(kAlignment)));
  uint64_t at = kSegmentHeaderBytes;
  uint64_t sequence = 41;
  const auto add = [&](RecordType type, uint64_t offset, uint32_t length) {
    RecordHeader record{.type = type,
                        .segment = header.index,
                        .generation = header.generation,
                        .sequence = sequence++,
                        .file = 0xfeedfacecafebeef,
                        .offset = offset,
                        .length = length,
                        .address = header.index * header.segment_size + at,
                        .unsettled = 2};
    const std::string payload = payload_of(record);
    const auto place = std::span(bytes).subspan(at);
    if (record.has_payload())
      record.check = make_checks(payload, place.subspan(kRecordHeaderBytes, record.checks_bytes()));
    encode_record_header(record, kLogId, place);
    encode_record_end(record, kLogId, place.subspan(record.space(kAlignment) - kRecordHeaderBytes));
    bytes.replace(at + record.head_bytes(), payload.size(), payload);
    at += record.space(kAlignment);
  };
  add(RecordType::kWrite, 1000, 700);
  add(RecordType::kWrite, 1 << 20, 9000);
  add(RecordType::kTruncate, 1 << 19, 0);
  add(RecordType::kTruncateDone, 43, 0);
  add(RecordType::kPunch, 0, 4096);
  add(RecordType::kUnlink, 0, 0);
  add(RecordType::kSettled, 0, 0);
  return bytes;
}

// A truncate that the backing device has refused: the intent, and beside it the record that takes it back.
std::string golden_cancelled() {
  std::string bytes(2 * record_space(0, kAlignment), '\0');
  RecordHeader record{.type = RecordType::kTruncate,
                      .segment = 1,
                      .generation = 2,
                      .sequence = 51,
                      .file = 0xfeedfacecafebeef,
                      .offset = 1 << 19,
                      .address = 4096};
  for (const RecordType type : {RecordType::kTruncate, RecordType::kTruncateCancelled}) {
    record.type = type;
    const auto place = std::span(bytes).subspan(type == RecordType::kTruncate ? 0 : bytes.size() / 2);
    encode_record_header(record, kLogId, place);
    encode_record_end(record, kLogId, place.subspan(bytes.size() / 2 - kRecordHeaderBytes));
    record.offset = record.sequence++;
    record.address += bytes.size() / 2;
  }
  return bytes;
}

LossList golden_losses() {
  return {kLogId,
          {{0xfeedfacecafebeef, 4096, 8192, 41, 64, LossReason::kDamaged, false},
           {0xfeedfacecafebeef, 1 << 20, 1, 42, LostRange::kNoAddress, LossReason::kNotWritten, false},
           {0x1, 0, 700, 43, 4096, LossReason::kUnreadable, true}}};
}

std::string golden(const std::string& name, const std::string& now) {
  const auto path = kGoldenFolder / name;
  if (std::getenv("SWALE_REGENERATE_GOLDEN")) {
    std::filesystem::create_directories(kGoldenFolder);
    std::ofstream(path, std::ios::binary) << now;
  }
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TierGolden, ASegmentHasTheBytesOfTheGoldenOneWhichIsRead) {
  const std::string bytes = golden("segment", golden_segment());
  ASSERT_EQ(bytes == golden_segment(), true);
  const auto scan = scan_segment(bytes, golden_header());
  ASSERT_TRUE(scan.ok()) << scan.status().to_string();
  EXPECT_FALSE(scan->header_damaged);
  EXPECT_EQ(scan->header.settled, 39u);
  ASSERT_EQ(scan->records.size(), 7u);
  EXPECT_TRUE(scan->damaged.empty());
  EXPECT_EQ(scan->records[1].length, 9000u);
  EXPECT_EQ(scan->records[6].type, RecordType::kSettled);
  EXPECT_EQ(scan->records[6].settled(), 44u);
}

TEST(TierGolden, ASealHasTheBytesOfTheGoldenOneWhichIsRead) {
  const LogSeal seal{kLogId, 12, true, {{3, {1, 13, 168, 300'000}}, {4, {}}}, {{"queue.7", 2}}};
  const std::string bytes = golden("seal", encode_log_seal(seal));
  EXPECT_EQ(bytes, encode_log_seal(seal));
  const auto read = decode_log_seal(bytes, "seal");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, seal);
}

TEST(TierGolden, ACancelledTruncateHasTheBytesOfTheGoldenOneWhichIsRead) {
  const std::string bytes = golden("cancelled", golden_cancelled());
  ASSERT_EQ(bytes == golden_cancelled(), true);
  const auto record = decode_record_header(Bytes(bytes).substr(bytes.size() / 2), kLogId);
  ASSERT_TRUE(record.ok()) << record.status().to_string();
  EXPECT_EQ(record->type, RecordType::kTruncateCancelled);
  EXPECT_EQ(record->offset, 51u) << "the sequence of the intent";
}

TEST(TierGolden, AListOfLossesHasTheBytesOfTheGoldenOneWhichIsRead) {
  const std::string text = golden("lost", encode_loss_list(golden_losses()));
  EXPECT_EQ(text, encode_loss_list(golden_losses()));
  const auto list = decode_loss_list(text, "lost");
  ASSERT_TRUE(list.ok()) << list.status().to_string();
  EXPECT_EQ(list->log_id, kLogId);
  EXPECT_EQ(list->ranges, golden_losses().ranges);
}

FileIdentity golden_identity() {
  return {.root_inode = 2,
          .root_born_ns = 1'700'000'000'000'000'000,
          .inode = 300'000,
          .born_ns = 1'700'000'000'123'456'789,
          .handle_type = 1,
          .handle = "a handle",
          .path = "folder/file"};
}

TEST(TierGolden, ATableOfFilesHasTheBytesOfTheGoldenOneWhichIsRead) {
  const std::vector<FileEntry> entries = {{FileEntryKind::kFile, 0xfeedfacecafebeef, golden_identity()},
                                          {FileEntryKind::kRemoved, 0x1, {}},
                                          {FileEntryKind::kGivenUp, 0x2, {}}};
  std::string now = encode_file_table(entries, kLogId);
  now += encode_file_entry(entries[0], kLogId, now.size());
  const std::string bytes = golden("files", now);
  ASSERT_EQ(bytes == now, true);
  const auto scan = decode_file_table(bytes, {kLogId}, "files");
  EXPECT_TRUE(scan.problems.empty());
  EXPECT_EQ(scan.entries, (std::vector<FileEntry>{entries[0], entries[1], entries[2], entries[0]}));
}

TEST(TierGolden, AKeptFileHasTheBytesOfTheGoldenOneWhichIsRead) {
  const KeptFile kept{.file = 0xfeedfacecafebeef,
                      .identity = golden_identity(),
                      .truncate = 9000,
                      .ranges = {{100, 5, kKeptHeadBytes, 0x12345678}},
                      .lost = {{4096, 700, LossReason::kUnreadable}}};
  const std::string document = encode_kept_document(kept);
  const std::string now = encode_kept_head(kept, document, kKeptHeadBytes + 5) + "bytes" + document;
  const std::string bytes = golden("kept", now);
  ASSERT_EQ(bytes == now, true);
  const auto read =
      decode_kept(Bytes(bytes).substr(0, kKeptHeadBytes), Bytes(bytes).substr(kKeptHeadBytes + 5), "kept");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, kept);
}

TEST(TierGolden, ADamagedListOfLossesIsRefusedAndNamesTheFile) {
  std::string text = encode_loss_list(golden_losses());
  text[text.size() / 2] ^= 1;
  const auto list = decode_loss_list(text, "DIR/lost");
  EXPECT_EQ(list.status().code(), Code::kCorruption);
  EXPECT_NE(list.status().message().find("DIR/lost"), std::string::npos);
}

}  // namespace
}  // namespace swale::tier::golden_test
