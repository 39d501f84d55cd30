// The formats of the table of files and of kept files: whatever is cut, torn or flipped in them, what is read
// is what was written, and what is missing is named.
#include <gtest/gtest.h>

#include <algorithm>

#include "tier/log/file_table_format.h"
#include "tier/log/kept_file.h"

namespace swale::tier::file_table_test {
namespace {

constexpr uint64_t kLogId = 0x1234567890abcdef;

FileEntry entry(uint64_t id, const std::string& path) {
  return {static_cast<FileEntryKind>(id % 3 + 1),
          id,
          {.root_inode = 2,
           .root_born_ns = 77,
           .inode = 1000 + id,
           .born_ns = static_cast<int64_t>(1'700'000'000'000'000'000 + id),
           .handle_type = 1,
           .handle = std::string(8 + id % 5, static_cast<char>(id)),
           .path = path}};
}

struct Table {
  std::vector<FileEntry> entries;
  std::string bytes;
  std::vector<size_t> begins;  // of the entries
  size_t with_head = 0;        // bytes
};

// Four entries that were written with the head, and three that were appended.
Table make_table() {
  Table table;
  for (uint64_t id = 1; id <= 4; ++id) table.entries.push_back(entry(id, std::string(20 * id, 'p')));
  table.bytes = encode_file_table(table.entries, kLogId);
  table.with_head = table.bytes.size();
  for (uint64_t id = 5; id <= 7; ++id) {
    table.entries.push_back(entry(id, std::string(id * id * 10, 'q')));
    table.bytes += encode_file_entry(table.entries.back(), kLogId, table.bytes.size());
  }
  size_t at = kFileTableHeadBytes;
  for (const FileEntry& each : table.entries) {
    table.begins.push_back(at);
    at += encode_file_entry(each, kLogId, at).size();
  }
  return table;
}

TEST(FileTableFormat, WhatIsWrittenIsRead) {
  const Table table = make_table();
  const auto scan = decode_file_table(table.bytes, {1, kLogId}, "files");
  EXPECT_EQ(scan.entries, table.entries);
  EXPECT_TRUE(scan.problems.empty());
  EXPECT_TRUE(decode_file_table(table.bytes, {kLogId + 1}, "files").entries.empty()) << "another log's";
}

TEST(FileTableFormat, EveryFlippedBitIsNamedOrCostsTheEntryThatWasBeingWritten) {
  const Table table = make_table();
  for (size_t bit = 0; bit < table.bytes.size() * 8; ++bit) {
    std::string bytes = table.bytes;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const auto scan = decode_file_table(bytes, {kLogId}, "SSD/files");
    const auto hit =
        std::upper_bound(table.begins.begin(), table.begins.end(), bit / 8) - table.begins.begin();
    std::vector<FileEntry> expected = table.entries;
    if (hit > 0) expected.erase(expected.begin() + (hit - 1));
    ASSERT_EQ(scan.entries, expected) << "bit " << bit;
    if (static_cast<size_t>(hit) == table.entries.size()) {
      ASSERT_TRUE(scan.problems.empty()) << "the last one may have been torn";
      continue;
    }
    ASSERT_EQ(scan.problems.size(), 1u) << "bit " << bit;
    const size_t place = hit == 0 ? 0 : table.begins[static_cast<size_t>(hit) - 1];
    ASSERT_NE(scan.problems[0].message().find(fmt::format("SSD/files: offset {}:", place)), std::string::npos)
        << scan.problems[0].message();
  }
}

TEST(FileTableFormat, EveryCutLeavesTheEntriesBeforeItAndIsNamedBelowWhatTheHeadCounts) {
  const Table table = make_table();
  for (size_t length = 0; length < table.bytes.size(); ++length) {
    const auto scan = decode_file_table(Bytes(table.bytes).substr(0, length), {kLogId}, "files");
    size_t whole = 0;
    while (whole + 1 < table.begins.size() && table.begins[whole + 1] <= length) ++whole;
    ASSERT_EQ(scan.entries,
              std::vector<FileEntry>(table.entries.begin(), table.entries.begin() + static_cast<long>(whole)))
        << "length " << length;
    ASSERT_EQ(scan.problems.empty(), length >= table.with_head) << "length " << length;
  }
}

TEST(FileTableFormat, AnEntryAtAnotherPlaceIsNotBelieved) {
  Table table = make_table();
  const size_t first = table.begins[0], second = table.begins[1];
  ASSERT_EQ(second - first, table.begins[2] - second) << "of one size";
  std::swap_ranges(table.bytes.begin() + static_cast<long>(first),
                   table.bytes.begin() + static_cast<long>(second),
                   table.bytes.begin() + static_cast<long>(second));
  EXPECT_EQ(decode_file_table(table.bytes, {kLogId}, "files").entries.size(), table.entries.size() - 2);
}

TEST(KeptFileFormat, WhatIsWrittenIsReadAndEveryFlippedBitIsNamed) {
  const KeptFile kept{.file = 0xfeedfacecafebeef,
                      .identity = entry(9, "a/path").identity,
                      .truncate = 12'345,
                      .ranges = {{0, 700, 64, 1}, {4096, 1 << 20, 764, 2}},
                      .lost = {{700, 96, LossReason::kDamaged}}};
  const std::string document = encode_kept_document(kept);
  const std::string head = encode_kept_head(kept, document, 1 << 21);
  const auto read = decode_kept(head, document, "kept");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, kept);
  EXPECT_EQ(read->bytes(), 700u + (1 << 20));
  for (size_t bit = 0; bit < (head.size() + document.size()) * 8; ++bit) {
    std::string all = head + document;
    all[bit / 8] = static_cast<char>(all[bit / 8] ^ (1 << bit % 8));
    const auto damaged =
        decode_kept(Bytes(all).substr(0, head.size()), Bytes(all).substr(head.size()), "DIR/kept.1");
    ASSERT_FALSE(damaged.ok()) << "bit " << bit;
    ASSERT_NE(damaged.status().message().find("DIR/kept.1: offset "), std::string::npos);
  }
}

}  // namespace
}  // namespace swale::tier::file_table_test
