#include "fs/log/sync_journal.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "io/memory_device.h"

namespace swale::fs::sync_journal_test {
namespace {

constexpr uint64_t kBytes = 64 << 10;
constexpr char kPath[] = "/spill/journal";

class SyncJournalTest : public testing::Test {
 protected:
  SyncJournalTest() { EXPECT_TRUE(device_.make_directory("/spill").ok()); }

  // A write of `length` bytes of `fill` that follows `from` bytes of a chunk.
  static JournalRecord record(uint32_t from, const std::string& payload, int64_t time) {
    JournalRecord record;
    record.log = 3, record.chunk_bytes = 1 << 20, record.number = 5;
    record.from = from, record.end = from + static_cast<uint32_t>(payload.size());
    record.entries_end = from + 1;
    EntryCopy entry{kPublished | 17, {7, 1}, 1000 + from, static_cast<uint32_t>(payload.size()), from, 5, 0};
    entry.check = check_of(entry, 3);
    record.entries.push_back({entry, 40 + from});
    record.payload = payload;
    record.time = {{7, 1}, time};
    return record;
  }
  void add(SyncJournal& journal, uint32_t from, const std::string& payload) {
    const JournalRecord one = record(from, payload, 9 + from);
    const Status added = journal.append({&one, 1});
    ASSERT_TRUE(added.ok()) << added.to_string();
  }
  // Each record as "from payload time".
  std::vector<std::string> found() {
    problems_.clear();
    std::vector<std::string> all;
    SyncJournal journal(device_, "/spill", kBytes);
    const Status status = journal.find(
        [&](const JournalRecord& each) -> Status {
          EXPECT_EQ(each.log, 3u);
          EXPECT_EQ(each.entries_end, each.from + 1);
          EXPECT_EQ(each.entries.at(0).order, 40u + each.from);
          all.push_back(fmt::format("{} {} {}", each.from, each.payload, each.time.modified_ns));
          return {};
        },
        &problems_);
    EXPECT_TRUE(status.ok()) << status.to_string();
    oldest_ = journal.oldest_order();
    return all;
  }
  void flip(uint64_t offset) {
    const auto file = device_.open(kPath, io::OpenMode::kReadWrite).value();
    char byte = 0;
    ASSERT_TRUE(io::read_exactly(*file, offset, MutableBytes(&byte, 1)).ok());
    byte = static_cast<char>(byte ^ 4);
    ASSERT_TRUE(file->pwrite(offset, Bytes(&byte, 1)).ok());
    ASSERT_TRUE(file->sync().ok());
  }
  using Texts = std::vector<std::string>;

  io::MemoryDevice device_;
  std::vector<Status> problems_;
  uint64_t oldest_ = 0;
};

// DO NOT CHANGE THESE BYTES: they stand in buffers. A program that follows the head of sync_journal.h, and
// has nothing of this one, has made them.
constexpr char kGoldenHead[] = "7377616c6a726e6c01000000930aad540900000000000000";
constexpr char kGoldenRecord[] =
    "7377616c6a726e6c213eaea00100000009000000000000000000000000000000030000000000100005000000"
    "0000000064000000670000000100000065000000070000000000000001000000000000006d00000000000000"
    "00000000000000001100000000000080070000000000000001000000000000004c0400000000000003000000"
    "6400000005000000000000002e369e636a815b58a8888c00000000006f6e65";

std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (size_t at = 0; at < hex.size(); at += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(at, 2)), nullptr, 16)));
  return bytes;
}

TEST_F(SyncJournalTest, GoldenBytesAreRead) {
  std::string file = bytes_of(kGoldenHead);
  file.resize(kJournalHeadBytes, '\0');
  file += bytes_of(kGoldenRecord);
  file.resize(kBytes, '\0');
  ASSERT_TRUE(device_.open(kPath, io::OpenMode::kCreate).value()->pwrite(0, file).ok());
  EXPECT_EQ(found(), Texts{"100 one 109"});
  EXPECT_EQ(oldest_, 140u);
  EXPECT_TRUE(problems_.empty());
}

TEST_F(SyncJournalTest, WhatWasAppendedIsFoundUntilItBeginsAnew) {
  EXPECT_EQ(found(), Texts());
  SyncJournal journal(device_, "/spill", kBytes);
  add(journal, 100, "one");
  add(journal, 103, "two");
  EXPECT_EQ(found(), (Texts{"100 one 109", "103 two 112"}));
  EXPECT_EQ(oldest_, 140u);
  ASSERT_TRUE(journal.begin_anew().ok());
  EXPECT_EQ(found(), Texts());
  EXPECT_EQ(oldest_, kOrderMax);
  add(journal, 200, "new");  // over `one`; `two` is whole behind it
  EXPECT_EQ(found(), Texts{"200 new 209"});
  EXPECT_TRUE(problems_.empty());
}

TEST_F(SyncJournalTest, ALaterServerGoesOnWhereItEnds) {
  {
    SyncJournal journal(device_, "/spill", kBytes);
    add(journal, 1, std::string(5000, 'x'));
  }
  SyncJournal journal(device_, "/spill", kBytes);
  ASSERT_TRUE(journal.find([](const JournalRecord&) { return Status(); }, &problems_).ok());
  EXPECT_TRUE(journal.has_space(kBytes - kJournalHeadBytes - 2 * kPageBytes));
  EXPECT_FALSE(journal.has_space(kBytes - kJournalHeadBytes - kPageBytes));
  add(journal, 5001, "more");
  EXPECT_EQ(found().size(), 2u);
}

TEST_F(SyncJournalTest, DamageIsToldAndWhatFollowsIsFound) {
  SyncJournal journal(device_, "/spill", kBytes);
  for (const uint32_t from : {1, 2, 3}) add(journal, from, "p");
  flip(kJournalHeadBytes + kPageBytes + 96 + 64);  // the payload of the second
  EXPECT_EQ(found(), (Texts{"1 p 10", "3 p 12"}));
  ASSERT_EQ(problems_.size(), 1u);
  EXPECT_NE(problems_[0].to_string().find("/spill/journal: offset 12288: records 1 to 1"), std::string::npos)
      << problems_[0].to_string();
  flip(kJournalHeadBytes + 2 * kPageBytes);  // the last one: nobody can tell it from a torn one
  EXPECT_EQ(found(), Texts{"1 p 10"});
  EXPECT_TRUE(problems_.empty());
}

// Each bit of a record: it is found as it was, or not at all.
TEST_F(SyncJournalTest, NoFlippedBitIsHandedOut) {
  SyncJournal journal(device_, "/spill", kBytes);
  add(journal, 1, "p");
  add(journal, 2, "q");
  for (uint64_t byte = 0; byte < 96 + 64 + 1; ++byte) {
    flip(kJournalHeadBytes + byte);
    EXPECT_EQ(found(), Texts{"2 q 11"}) << "byte " << byte;
    EXPECT_EQ(problems_.size(), 1u) << "byte " << byte;
    flip(kJournalHeadBytes + byte);
  }
  EXPECT_EQ(found().size(), 2u);
}

TEST_F(SyncJournalTest, AJournalWithoutItsHeadIsDamagedIfItHasRecords) {
  SyncJournal journal(device_, "/spill", kBytes);
  add(journal, 1, "p");
  for (const uint64_t page : {0, 1}) flip(page * kPageBytes + 20);
  EXPECT_EQ(found(), Texts());
  ASSERT_EQ(problems_.size(), 1u);
  EXPECT_NE(problems_[0].to_string().find("head of the journal"), std::string::npos);
  for (const uint64_t page : {0, 1, 2}) flip(page * kPageBytes);  // never finished
  EXPECT_EQ(found(), Texts());
  EXPECT_TRUE(problems_.empty());
  EXPECT_FALSE(device_.exists(kPath).value());
}

// The power goes at some time of each append, and each time that it begins anew.
TEST_F(SyncJournalTest, NothingAcknowledgedIsLostWithThePower) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    ASSERT_TRUE(device_.make_directory(fmt::format("/s{}", seed)).ok());
    ASSERT_TRUE(device_.sync_directory("/").ok());
    SyncJournal journal(device_, fmt::format("/s{}", seed), kBytes);
    uint32_t acknowledged = 0;
    for (uint32_t i = 0; i < 1 + rng.below(12); ++i) {
      const std::string payload(1 + rng.below(3000), static_cast<char>('a' + i));
      const JournalRecord one = record(i, payload, 1);
      if (!journal.has_space(one.bytes()) || rng.below(8) == 0) {
        ASSERT_TRUE(journal.begin_anew().ok());
        acknowledged = 0;
      }
      ASSERT_TRUE(journal.append({&one, 1}).ok());
      ++acknowledged;
    }
    device_.crash(rng, io::CrashMode::kTearPages);
    SyncJournal after(device_, fmt::format("/s{}", seed), kBytes);
    uint32_t there = 0;
    ASSERT_TRUE(after.find([&](const JournalRecord&) { return ++there, Status(); }, &problems_).ok());
    EXPECT_EQ(there, acknowledged) << "seed " << seed;
  }
  EXPECT_TRUE(problems_.empty());
}

TEST_F(SyncJournalTest, CanaryWithoutSyncsItIsLost) {
  ASSERT_TRUE(device_.sync_directory("/").ok());
  SyncJournal journal(device_, "/spill", kBytes, false);
  add(journal, 1, "p");
  Rng rng(1);
  device_.crash(rng, io::CrashMode::kDropAll);
  EXPECT_EQ(found(), Texts());
}

}  // namespace
}  // namespace swale::fs::sync_journal_test
