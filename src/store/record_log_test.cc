// What a log keeps when the power goes, the disk is full, a call fails or a bit flips: all that was answered,
// and nothing else.
#include "store/record_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/coding.h"
#include "base/crc32c.h"
#include "base/rng.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::store::record_log_test {
namespace {

using testing::HasSubstr;

constexpr LogIdentity kLog{3, 4, 0x500000006};
constexpr uint16_t kKind = 9;
const std::string kPath = "/d/log";

std::string record_of(Bytes payload) { return std::string(kRecordHeadBytes, '\0').append(payload); }

Status append(RecordLog* log, uint64_t sequence, Bytes payload, const RecordLog::Fence& fence = {},
              AppendSync sync = AppendSync::kNow) {
  std::string record = record_of(payload);
  return log->append(kKind, sequence, &record, fence, sync);
}

// The payloads in the log, or why it cannot be read.
Result<std::vector<std::string>> read(io::Device& device, LogTail tail = LogTail::kMayBeTorn,
                                      LogScan* scan = nullptr, const LogIdentity& identity = kLog) {
  std::vector<std::string> found;
  uint64_t sequence = 0;
  const auto done =
      read_log(device, kPath, identity, ~uint64_t{0}, tail, &sequence, [&](const Record& record) {
        EXPECT_EQ(record.kind, kKind);
        EXPECT_EQ(record.sequence, found.size() + 1);
        found.emplace_back(record.payload);
        return ok_status();
      });
  if (!done.ok()) return done.status();
  EXPECT_EQ(done->records, found.size());
  if (scan != nullptr) *scan = *done;
  return found;
}

class Disk {
 public:
  Disk() {
    EXPECT_TRUE(memory.make_directory("/d").ok());
    EXPECT_TRUE(memory.sync_directory("/").ok());
  }
  io::MemoryDevice memory;
  io::FaultDevice device{memory};
};

TEST(RecordLog, GivesBackWhatWasAppended) {
  Disk disk;
  RecordLog log(disk.device, kPath, kLog);
  EXPECT_FALSE(*disk.memory.exists(kPath));
  std::vector<std::string> payloads = {"", "one", std::string(3 * kMiB, 'x'), "last"};
  for (size_t i = 0; i < payloads.size(); ++i) ASSERT_TRUE(append(&log, i + 1, payloads[i]).ok());
  EXPECT_EQ(*read(disk.memory, LogTail::kWhole), payloads);
  EXPECT_EQ(disk.device.calls(io::CallKind::kSync), payloads.size());  // one a record
  EXPECT_EQ(disk.device.calls(io::CallKind::kWrite), payloads.size());
  EXPECT_EQ(disk.device.calls(io::CallKind::kSyncDirectory), 1u);
}

TEST(RecordLog, RefusesALogOfAnotherOwnerKindPartOrVersion) {
  Disk disk;
  RecordLog log(disk.device, kPath, kLog);
  ASSERT_TRUE(append(&log, 1, "payload").ok());
  for (const LogIdentity& other : {LogIdentity{2, 4, kLog.owner}, {3, 5, kLog.owner}, {3, 4, 1}}) {
    for (const LogTail tail : {LogTail::kWhole, LogTail::kMayBeTorn}) {  // a whole header is not torn
      const Status refused = read(disk.memory, tail, nullptr, other).status();
      EXPECT_EQ(refused.code(), Code::kCorruption);
      EXPECT_THAT(refused.message(), HasSubstr("was it renamed?"));
    }
  }
  std::string bytes = *io::read_file(disk.memory, kPath, kMiB);
  put_u16(&bytes[8], kLogVersion + 1);
  put_u32(&bytes[4], crc32c(Bytes(bytes).substr(8, kLogHeaderBytes - 8)));
  ASSERT_TRUE(io::replace_file(disk.memory, kPath, bytes).ok());
  const Status newer = read(disk.memory).status();
  EXPECT_EQ(newer.code(), Code::kUnsupported);
  EXPECT_THAT(newer.message(), HasSubstr("log of version 2; this build reads version 1"));
}

// Records of another log, whole and in the place of the next one or after a torn one, are never taken for
// records: file systems give blocks of removed files to new ones.
TEST(RecordLog, TakesNoRecordOfAnotherLog) {
  Disk disk;
  RecordLog log(disk.device, kPath, kLog);
  ASSERT_TRUE(append(&log, 1, "own").ok());
  std::string bytes = *io::read_file(disk.memory, kPath, kMiB);
  std::string stranger = record_of("stranger");
  const std::string torn(40, 't');
  for (const LogIdentity& other :
       {LogIdentity{kLog.kind + 1, 4, kLog.owner}, {3, kLog.part + 1, kLog.owner}, {3, 4, kLog.owner + 1}}) {
    for (const std::string& before : {std::string(), torn}) {
      seal_record(record_seed(other), kKind, 2, &stranger);
      ASSERT_TRUE(io::replace_file(disk.memory, kPath, bytes + before + stranger).ok());
      LogScan scan;
      const auto found = read(disk.memory, LogTail::kMayBeTorn, &scan);
      ASSERT_TRUE(found.ok()) << found.status().to_string();
      EXPECT_EQ(*found, std::vector<std::string>{"own"});
      EXPECT_EQ(scan.torn_bytes, before.size() + stranger.size());
    }
  }
  seal_record(record_seed(kLog), kKind, 3, &stranger);  // of this log, but not the next one
  ASSERT_TRUE(io::replace_file(disk.memory, kPath, bytes + stranger).ok());
  EXPECT_THAT(read(disk.memory).status().message(), HasSubstr("expected number 2, found 3"));
}

// What a sync has not reached may be gone, whole or in part, whatever of later ones is there. What one has
// reached may not.
TEST(RecordLog, OfRecordsThatAreSyncedLaterAnyMayBeTornAndOfOthersNone) {
  constexpr size_t kRecords = 7, kPayload = 40;
  for (const bool synced_after : {false, true}) {
    Disk disk;
    RecordLog log(disk.device, kPath, kLog);
    for (size_t i = 1; i <= kRecords; ++i) {  // 3, 4 and 5 are synced with 6
      const bool later = i >= 3 && i <= 5;
      if (i == kRecords && !synced_after) break;
      ASSERT_TRUE(append(&log, i, std::string(kPayload, static_cast<char>('0' + i)), {},
                         later ? AppendSync::kLater : AppendSync::kNow)
                      .ok());
    }
    const std::string bytes = *io::read_file(disk.memory, kPath, kMiB);
    for (size_t record = 1; record <= kRecords - 2; ++record) {
      const size_t at = kLogHeaderBytes + (record - 1) * (kRecordHeadBytes + kPayload);
      for (const auto& [from, count] : {std::pair<size_t, size_t>{0, kRecordHeadBytes + kPayload},
                                        {kRecordHeadBytes + 3, kPayload - 3},
                                        {0, kRecordHeadBytes}}) {
        std::string torn = bytes;
        torn.replace(at + from, count, count, '\0');
        ASSERT_TRUE(io::replace_file(disk.memory, kPath, torn).ok());
        const auto found = read(disk.memory);
        EXPECT_EQ(found.ok(), record >= 3 && !synced_after) << record << " " << from << " " << count;
        if (found.ok()) {
          EXPECT_EQ(found->size(), record - 1);
        }
        EXPECT_FALSE(read(disk.memory, LogTail::kWhole).ok());
      }
    }
  }
}

TEST(RecordLog, CreateSyncsWhatIsToBeSyncedLater) {
  Disk disk;
  RecordLog log(disk.device, kPath, kLog);
  ASSERT_TRUE(append(&log, 1, "first").ok());
  ASSERT_TRUE(append(&log, 2, "second", {}, AppendSync::kLater).ok());
  Rng rng(1);
  disk.memory.crash(rng, io::CrashMode::kDropAll);
  EXPECT_EQ(*read(disk.memory), std::vector<std::string>{"first"});  // as a power failure leaves it

  Disk other;
  RecordLog synced(other.device, kPath, kLog);
  ASSERT_TRUE(append(&synced, 1, "first").ok());
  ASSERT_TRUE(append(&synced, 2, "second", {}, AppendSync::kLater).ok());
  ASSERT_TRUE(synced.create().ok());
  other.memory.crash(rng, io::CrashMode::kDropAll);
  EXPECT_EQ(*read(other.memory), (std::vector<std::string>{"first", "second"}));
}

// Every bit of a log is flipped: an error, or a torn end without its last record.
TEST(RecordLog, AFlippedBitIsDamageOrATornEndAndNeverOtherBytes) {
  Disk disk;
  RecordLog log(disk.device, kPath, kLog);
  const std::vector<std::string> payloads = {"first record", "second", "third one"};
  for (size_t i = 0; i < payloads.size(); ++i) ASSERT_TRUE(append(&log, i + 1, payloads[i]).ok());
  const std::vector<std::string> without_last(payloads.begin(), payloads.end() - 1);
  const std::string bytes = *io::read_file(disk.memory, kPath, kMiB);
  const size_t last = bytes.size() - kRecordHeadBytes - payloads.back().size();
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    ASSERT_TRUE(io::replace_file(disk.memory, kPath, flipped).ok());
    EXPECT_FALSE(read(disk.memory, LogTail::kWhole).ok()) << bit;
    LogScan scan;
    const auto found = read(disk.memory, LogTail::kMayBeTorn, &scan);
    if (bit / 8 >= last) {
      const size_t in_record = bit / 8 - last;
      if (in_record >= 8 && in_record < 12 && !found.ok())
        continue;  // the log goes on after so short a record
      ASSERT_TRUE(found.ok()) << bit << found.status().to_string();
      EXPECT_EQ(*found, without_last) << bit;
      EXPECT_EQ(scan.torn_bytes, bytes.size() - last);
    } else {
      EXPECT_FALSE(found.ok()) << bit;  // a whole record follows
    }
  }
}

// The last two records are damaged. The first of them cannot be torn: its head is whole, and the log goes on.
TEST(RecordLog, DamageToTheLastRecordsIsNoTornEnd) {
  Disk disk;
  RecordLog log(disk.device, kPath, kLog);
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(append(&log, i, "some payload").ok());
  const std::string bytes = *io::read_file(disk.memory, kPath, kMiB);
  const size_t record = kRecordHeadBytes + 12;
  std::string damaged = bytes;
  damaged[bytes.size() - 1] ^= 1;
  damaged[bytes.size() - 1 - record] ^= 1;
  ASSERT_TRUE(io::replace_file(disk.memory, kPath, damaged).ok());
  const Status found = read(disk.memory).status();
  EXPECT_EQ(found.code(), Code::kCorruption);
  EXPECT_THAT(found.message(), HasSubstr(fmt::format(
                                   "the record at offset {} (number 2) is damaged: the log goes on after its "
                                   "end at offset {}",
                                   kLogHeaderBytes + record, kLogHeaderBytes + 2 * record)));
}

// A record of which one part has reached the storage, before or after any byte, and zeros stand for the rest:
// a torn end, whatever its head seems to say.
TEST(RecordLog, ARecordThatIsThereInPartIsATornEnd) {
  for (const uint64_t number : {2, 256, 65'536}) {
    Disk disk;
    std::string own = record_of("own"), torn = record_of("the record that is torn");
    seal_record(record_seed(kLog), kKind, number - 1, &own);
    seal_record(record_seed(kLog), kKind, number, &torn);
    for (size_t at = 0; at < torn.size(); ++at) {
      std::string first = torn, last = torn;
      std::fill(first.begin() + static_cast<ptrdiff_t>(at), first.end(), '\0');
      std::fill(last.begin(), last.begin() + static_cast<ptrdiff_t>(at) + 1, '\0');
      for (const std::string& part : {first, last}) {
        ASSERT_TRUE(io::replace_file(disk.memory, kPath, log_header(kLog) + own + part).ok());
        uint64_t sequence = number - 2;
        const auto scan = read_log(disk.memory, kPath, kLog, ~uint64_t{0}, LogTail::kMayBeTorn, &sequence,
                                   [](const Record&) { return ok_status(); });
        ASSERT_TRUE(scan.ok()) << number << " at " << at << ": " << scan.status().to_string();
        EXPECT_EQ(scan->records, 1u);
        EXPECT_EQ(scan->torn_bytes, torn.size());
      }
    }
  }
}

TEST(RecordLog, IsCreatedBeforeItsFirstRecord) {
  Disk disk;
  RecordLog log(disk.device, kPath, kLog);
  disk.device.inject({.action = io::FaultAction::kTear,
                      .kind = io::CallKind::kWrite,
                      .status = error(Code::kNoSpace, Scope::kFile, "no space"),
                      .position = 7});
  EXPECT_EQ(log.create().code(), Code::kNoSpace);
  EXPECT_TRUE(log.usable());
  EXPECT_FALSE(*disk.memory.exists(kPath));
  ASSERT_TRUE(log.create().ok());
  LogScan scan;
  EXPECT_TRUE(read(disk.memory, LogTail::kWhole, &scan)->empty());
  EXPECT_EQ(scan.bytes, kLogHeaderBytes);
  ASSERT_TRUE(append(&log, 1, "first").ok());
  ASSERT_TRUE(log.create().ok());  // there is one
  EXPECT_EQ(*read(disk.memory, LogTail::kWhole), std::vector<std::string>{"first"});
}

// The file goes, and with it what nobody knows of its pages.
TEST(RecordLog, ANewLogWhoseSyncFindsNoSpaceIsMadeAgain) {
  Disk disk;
  RecordLog log(disk.device, kPath, kLog);
  disk.device.inject(
      {.kind = io::CallKind::kSync, .status = error(Code::kNoSpace, Scope::kFile, "no space")});
  EXPECT_EQ(log.create().code(), Code::kNoSpace);
  ASSERT_TRUE(log.usable());
  EXPECT_FALSE(*disk.memory.exists(kPath));
  ASSERT_TRUE(append(&log, 1, "first").ok());
  EXPECT_EQ(*read(disk.memory, LogTail::kWhole), std::vector<std::string>{"first"});
}

// A manifest promises the header of a created log, also where records are not synced.
TEST(RecordLog, ACreatedLogIsDurableWhateverIsSyncedLater) {
  for (const bool after_a_record : {false, true}) {
    Disk disk;
    RecordLog log(disk.device, kPath, kLog, false);
    if (after_a_record) {
      ASSERT_TRUE(append(&log, 1, "first").ok());
    }
    ASSERT_TRUE(log.create().ok());
    Rng rng(1);
    disk.memory.crash(rng, io::CrashMode::kDropAll);
    EXPECT_EQ(read(disk.memory, LogTail::kWhole)->size(), after_a_record ? 1u : 0u);
  }
}

TEST(RecordLog, EveryLengthOfACutLogIsATornEnd) {
  Disk disk;
  RecordLog log(disk.device, kPath, kLog);
  ASSERT_TRUE(append(&log, 1, "first").ok());
  const size_t one = io::read_file(disk.memory, kPath, kMiB)->size();
  ASSERT_TRUE(append(&log, 2, "second").ok());
  const std::string bytes = *io::read_file(disk.memory, kPath, kMiB);
  for (size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_TRUE(io::replace_file(disk.memory, kPath, Bytes(bytes).substr(0, length)).ok());
    LogScan scan;
    const auto found = read(disk.memory, LogTail::kMayBeTorn, &scan);
    ASSERT_TRUE(found.ok()) << length;
    EXPECT_EQ(found->size(), length >= one ? 1u : 0u);
    const size_t whole = length >= one ? one : length >= kLogHeaderBytes ? kLogHeaderBytes : 0;
    EXPECT_EQ(scan.torn_bytes, length - whole);
    EXPECT_EQ(read(disk.memory, LogTail::kWhole).ok(), length == one || length == kLogHeaderBytes) << length;
  }
}

TEST(RecordLog, ARecordThatFindsNoSpaceIsTakenBackWhereverItIsTorn) {
  for (const uint64_t before : {0, 1, 2}) {
    for (uint64_t torn_at = 0; torn_at < 60; ++torn_at) {
      Disk disk;
      RecordLog log(disk.device, kPath, kLog);
      std::vector<std::string> kept;
      for (uint64_t i = 1; i <= before; ++i) {
        kept.push_back(fmt::format("record {}", i));
        ASSERT_TRUE(append(&log, i, kept.back()).ok());
      }
      disk.device.inject({.action = io::FaultAction::kTear,
                          .kind = io::CallKind::kWrite,
                          .status = error(Code::kNoSpace, Scope::kFile, "no space"),
                          .position = torn_at});
      EXPECT_EQ(append(&log, before + 1, "what finds no space").code(), Code::kNoSpace);
      ASSERT_TRUE(log.usable());
      EXPECT_EQ(*disk.memory.exists(kPath), before > 0);
      kept.emplace_back("what comes next");
      ASSERT_TRUE(append(&log, before + 1, kept.back()).ok());
      EXPECT_EQ(*read(disk.memory, LogTail::kWhole), kept);
    }
  }
}

TEST(RecordLog, AFailedSyncOrATakeBackThatFailsIsForGood) {
  for (const bool second : {false, true}) {
    Disk disk;
    RecordLog log(disk.device, kPath, kLog);
    if (second) {
      ASSERT_TRUE(append(&log, 1, "first").ok());
    }
    disk.device.inject(
        {.kind = io::CallKind::kSync, .status = error(Code::kNoSpace, Scope::kFile, "no space")});
    EXPECT_EQ(append(&log, second ? 2 : 1, "more").code(), Code::kNoSpace);
    EXPECT_FALSE(log.usable());
  }
  Disk disk;
  RecordLog log(disk.device, kPath, kLog);
  ASSERT_TRUE(append(&log, 1, "first").ok());
  disk.device.inject(
      {.kind = io::CallKind::kWrite, .status = error(Code::kNoSpace, Scope::kFile, "no space")});
  disk.device.inject({.kind = io::CallKind::kTruncate});
  EXPECT_EQ(append(&log, 2, "more").code(), Code::kNoSpace);
  EXPECT_FALSE(log.usable());
  EXPECT_EQ(append(&log, 2, "more").code(), Code::kAborted);
}

// The fence is asked between the sync and the answer: a record that it refuses may be there, and counts for
// nothing.
TEST(RecordLog, AsksTheFenceAfterTheSync) {
  Disk disk;
  RecordLog log(disk.device, kPath, kLog);
  uint64_t syncs = 0;
  const auto fence = [&] {
    syncs = disk.device.calls(io::CallKind::kSync);
    return syncs < 2 ? ok_status() : error(Code::kAborted, Scope::kFile, "another job");
  };
  EXPECT_TRUE(append(&log, 1, "first", fence).ok());
  EXPECT_EQ(syncs, 1u);
  EXPECT_EQ(append(&log, 2, "second", fence).code(), Code::kAborted);
  EXPECT_FALSE(log.usable());
  EXPECT_EQ(read(disk.memory)->size(), 2u);
}

// Appends until the n-th call of storage, at which the power goes or all calls begin to fail. What is wrong
// then; "": nothing.
std::string crash_at(uint64_t nth, uint64_t seed, bool power, bool drop_syncs, uint64_t* calls) {
  Disk disk;
  if (drop_syncs)
    disk.device.inject({.action = io::FaultAction::kDrop, .kind = io::CallKind::kSync, .from_then_on = true});
  uint64_t call = 0;
  disk.device.set_hook([&](const io::Call&) {
    return ++call > nth ? error(Code::kIoError, Scope::kNode, "no power") : ok_status();
  });
  Rng rng(seed);
  RecordLog log(disk.device, kPath, kLog);
  std::vector<std::string> answered, tried;
  while (tried.size() < 8 && log.usable()) {
    tried.emplace_back(rng.below(rng.chance(1, 3) ? 20'000 : 300), static_cast<char>('a' + tried.size()));
    if (append(&log, tried.size(), tried.back()).ok()) answered = tried;
  }
  *calls = call;
  if (power) {
    disk.memory.crash(rng, seed % 3 == 0   ? io::CrashMode::kDropAll
                           : seed % 3 == 1 ? io::CrashMode::kTearPages
                                           : io::CrashMode::kReorder);
  }
  if (!*disk.memory.exists(kPath)) return answered.empty() ? "" : "the log is gone";
  const auto found = read(disk.memory);
  if (!found.ok()) return found.status().to_string();
  return *found == answered || *found == tried
             ? ""
             : fmt::format("{} of {} records", found->size(), answered.size());
}

TEST(RecordLog, KeepsWhatItAnsweredWhenThePowerGoesOrCallsFailAtAnyPlace) {
  uint64_t points = 0;
  for (const bool power : {false, true}) {
    for (uint64_t seed = 0; seed < 30; ++seed) {
      uint64_t calls = UINT64_MAX;
      for (uint64_t nth = 0; nth <= calls; ++nth, ++points) {
        uint64_t made = 0;
        ASSERT_EQ(crash_at(nth, seed, power, false, &made), "") << "call " << nth << ", seed " << seed;
        if (made <= nth) calls = nth;
      }
    }
  }
  EXPECT_GT(points, 500u);
}

TEST(RecordLog, CanaryADeviceThatDoesNotSyncIsSeen) {
  int seen = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    uint64_t calls = 0;
    seen += !crash_at(UINT64_MAX, seed, true, true, &calls).empty();
  }
  EXPECT_GT(seen, 10);
}

}  // namespace
}  // namespace swale::store::record_log_test
