#include "imd/format/epoch_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/coding.h"
#include "base/crc32c.h"
#include "imd/format/generation.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::epoch_log_test {
namespace {

using testing::HasSubstr;

constexpr uint32_t kJob = 3;
const std::string kPath = epoch_log_path("/d", kJob);

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

// The record and its checksum, twice.
std::string golden_slot(std::string_view hex, size_t zeros, std::string_view checksum) {
  const std::string copy = from_hex(hex) + std::string(zeros, '\0') + from_hex(checksum);
  EXPECT_EQ(copy.size(), kEpochRecordBytes);
  return copy + copy;
}

std::string golden_header() { return golden_slot("01737765706f63730100000003000000", 108, "5b7a09e9"); }

std::string golden_record() {
  return golden_slot(
      "65706f630000000001000000000000004444333322221111fbffffffffffffff000000000000d03fe803000000000000"
      "c0da0000000000000df0fecaefbeadde0200000000000000409c0000000000002c010000000000004d00000001000000",
      28, "37a71d42");
}

EpochEntry golden_epoch() {
  EpochEntry epoch;
  epoch.epoch_id = 0x1111222233334444;
  epoch.step = -5;
  epoch.time = 0.25;
  epoch.records = 1'000;
  epoch.data_bytes = 56'000;
  epoch.digest = 0xDEADBEEFCAFEF00D;
  epoch.large = {2, 40'000};
  epoch.summary = {300, 77, 1};
  return epoch;
}

EpochEntry epoch_number(uint32_t number) {
  EpochEntry epoch = golden_epoch();
  epoch.epoch = EpochNumber(number);
  epoch.job = number % 2;
  epoch.epoch_id += number;
  epoch.step = int64_t{10} * number;
  epoch.attributes = {100 * number, 90, number % 3};
  if (number > 0) epoch.described_by = EpochNumber(number / 2);
  return epoch;
}

// Of generation 3, which continues one of job 1.
Manifest manifest_of(uint32_t epochs) {
  Manifest manifest;
  manifest.jobs = {{1, "0000000000000001", 2, 1, "hash"}, {kJob, "0000000000000003", 2, 1, "hash"}};
  manifest.generation = kJob;
  manifest.continues = 1;
  for (uint32_t i = 0; i < epochs; ++i) manifest.epochs.push_back(epoch_number(i));
  manifest.epochs_promised = epochs;
  return manifest;
}

// All that a record says.
std::string text_of(const std::vector<EpochEntry>& epochs) {
  std::string text;
  for (const EpochEntry& e : epochs) {
    text += fmt::format("{} {} {} {} ", e.attributes.offset, e.attributes.bytes, e.attributes.job,
                        e.described_by ? static_cast<int64_t>(*e.described_by) : -1);
    text += fmt::format("{} {} {:x} {} {} {} {} {:x} {} {} {} {} {} {}\n", e.epoch, e.job, e.epoch_id, e.step,
                        e.time, e.records, e.data_bytes, e.digest, e.large.values, e.large.bytes,
                        e.summary.offset, e.summary.bytes, e.summary.job, recovered_name(e.recovered));
  }
  return text;
}

class EpochLogTest : public testing::Test {
 protected:
  EpochLogTest() { EXPECT_TRUE(io::make_directories(device_, job_folder("/d", kJob)).ok()); }

  std::string bytes() { return io::read_file(device_, kPath, kMiB * 4).value(); }
  void write(Bytes bytes) {
    static_cast<void>(device_.remove(kPath));
    ASSERT_TRUE(device_.open(kPath, io::OpenMode::kCreate).value()->pwrite(0, bytes).ok());
  }
  // Of an open log that promises `promised` epochs, or a closed one that has them.
  Result<EpochLogContent> read(uint64_t promised, bool closed = false) {
    Manifest manifest = manifest_of(0);
    manifest.epochs_promised = promised;
    manifest.closed = closed;
    return read_epoch_log(device_, "/d", manifest);
  }

  io::MemoryDevice device_;
};

TEST_F(EpochLogTest, GoldenBytes) {
  Manifest manifest = manifest_of(0);
  manifest.epochs = {golden_epoch()};
  ASSERT_TRUE(EpochLog::create(device_, "/d", kJob, manifest).ok());
  EXPECT_EQ(bytes(), golden_header() + golden_record());
  const Result<EpochLogContent> content = read(1);
  ASSERT_TRUE(content.ok()) << content.status().to_string();
  EXPECT_EQ(text_of(content->epochs), text_of({golden_epoch()}));
  EXPECT_EQ(content->damaged_copies, 0u);
  EXPECT_EQ(content->torn_bytes, 0u);

  const EpochSlot header = inspect_epoch_slot(golden_header(), 0);
  EXPECT_EQ(header.kind, EpochSlot::Kind::kHeader);
  EXPECT_EQ(header.job, kJob);
  EXPECT_EQ(header.version, 1u);
  const EpochSlot record = inspect_epoch_slot(golden_record(), 1);
  EXPECT_EQ(record.kind, EpochSlot::Kind::kRecord);
  EXPECT_EQ(record.job, 1u);
  EXPECT_EQ(text_of({record.epoch}), text_of({golden_epoch()}));
  EXPECT_EQ(inspect_epoch_slot(golden_record(), 2).kind, EpochSlot::Kind::kUnknown) << "of another place";
  EXPECT_EQ(inspect_epoch_slot("", 1).kind, EpochSlot::Kind::kUnknown);
}

// 5,000 slots are more than one read.
TEST_F(EpochLogTest, CopiesAndAppendsComeBack) {
  const Manifest whole = manifest_of(5'010);
  Manifest first = whole;
  first.epochs.resize(5'000);
  Result<EpochLog> log = EpochLog::create(device_, "/d", kJob, first);
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(EpochLog::create(device_, "/d", kJob, first).status().code(), Code::kAlreadyExists);
  for (uint32_t i = 5'000; i < 5'010; ++i) ASSERT_TRUE(log->append(whole.epochs[i], whole).ok());
  EXPECT_EQ(log->epochs(), 5'010u);
  for (const bool closed : {false, true}) {
    const Result<EpochLogContent> content = read(closed ? 5'010 : 5'000, closed);
    ASSERT_TRUE(content.ok()) << content.status().to_string();
    EXPECT_EQ(text_of(content->epochs), text_of(whole.epochs));
  }
  EXPECT_EQ(read(5'000, /*closed=*/true)->epochs.size(), 5'000u) << "a closed log has no more than it says";
}

TEST_F(EpochLogTest, AnEpochCostsOneWriteAndOneSyncHoweverManyThereWere) {
  io::FaultDevice counted(device_);
  const Manifest manifest = manifest_of(3'000);
  EpochLog log = EpochLog::create(counted, "/d", kJob, manifest_of(0)).value();
  for (const EpochEntry& epoch : manifest.epochs) {
    const uint64_t calls = counted.calls();
    ASSERT_TRUE(log.append(epoch, manifest).ok());
    EXPECT_EQ(counted.calls() - calls, 2u);
  }
}

// Of three epochs, of which the manifest promises two, the third may have been torn at any byte; the rest of
// its slot is cut off, or zeros.
TEST_F(EpochLogTest, TornTailsAtEveryByte) {
  const Manifest manifest = manifest_of(3);
  ASSERT_TRUE(EpochLog::create(device_, "/d", kJob, manifest).ok());
  const std::string whole = bytes();
  ASSERT_EQ(whole.size(), 4 * kEpochSlotBytes);
  const std::string two = text_of({manifest.epochs[0], manifest.epochs[1]});
  size_t visited = 0;
  for (size_t length = 0; length <= whole.size(); ++length) {
    for (const bool zeros : {false, true}) {
      std::string torn = whole.substr(0, length);
      if (zeros) torn.resize(whole.size(), '\0');
      write(torn);
      const Result<EpochLogContent> content = read(2);
      ++visited;
      if (length < 3 * kEpochSlotBytes - kEpochRecordBytes) {
        EXPECT_EQ(content.status().code(), Code::kCorruption) << length;
        EXPECT_THAT(content.status().message(), HasSubstr(kPath));
        continue;
      }
      ASSERT_TRUE(content.ok()) << length << content.status().to_string();
      // Zeros at the end of a copy may be right.
      if (text_of(content->epochs) == two) {
        EXPECT_LT(length, whole.size() - kEpochRecordBytes);
        EXPECT_EQ(content->torn_bytes, torn.size() - std::min(torn.size(), 3 * kEpochSlotBytes)) << length;
      } else {
        EXPECT_EQ(text_of(content->epochs), text_of(manifest.epochs)) << length;
        EXPECT_GE(length, whole.size() - kEpochRecordBytes - 8) << "a checksum for less";
      }
    }
  }
  std::printf("%zu tails\n", visited);
}

// Each byte is there twice: one that is wrong changes nothing.
TEST_F(EpochLogTest, AnyDamagedByteIsHealed) {
  const Manifest manifest = manifest_of(3);
  ASSERT_TRUE(EpochLog::create(device_, "/d", kJob, manifest).ok());
  const std::string whole = bytes();
  size_t visited = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int bits : {0x01, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ bits);
      write(damaged);
      for (const uint64_t promised : {0, 2, 3}) {
        const Result<EpochLogContent> content = read(promised, promised == 3);
        ASSERT_TRUE(content.ok()) << at << content.status().to_string();
        ASSERT_EQ(text_of(content->epochs), text_of(manifest.epochs)) << at;
        EXPECT_EQ(content->damaged_copies, 1u) << at;
        EXPECT_EQ(content->damaged_offset, at / kEpochSlotBytes * kEpochSlotBytes) << at;
        ++visited;
      }
    }
  }
  std::printf("%zu flips\n", visited);
}

// The canary of the test above: with both copies damaged, only the last record of an open log can be missing
// without a word, and only if nobody promises it.
TEST_F(EpochLogTest, TwoDamagedBytesAreNeverAWrongAnswer) {
  const Manifest manifest = manifest_of(3);
  ASSERT_TRUE(EpochLog::create(device_, "/d", kJob, manifest).ok());
  const std::string whole = bytes();
  size_t visited = 0;
  size_t errors = 0;
  size_t unpromised = 0;
  for (size_t slot = 0; slot < 4; ++slot) {
    for (size_t at = 0; at < kEpochRecordBytes; ++at) {
      std::string damaged = whole;
      for (const size_t copy : {size_t{0}, kEpochRecordBytes}) {
        char& byte = damaged[slot * kEpochSlotBytes + copy + at];
        byte = static_cast<char>(byte ^ 0x10);
      }
      write(damaged);
      for (const uint64_t promised : {0, 2, 3}) {
        const Result<EpochLogContent> content = read(promised, promised == 3);
        ++visited;
        if (!content.ok()) {
          EXPECT_EQ(content.status().code(), Code::kCorruption) << content.status().to_string();
          EXPECT_THAT(content.status().message(),
                      HasSubstr(fmt::format("{}: offset {}:", kPath, slot * kEpochSlotBytes)));
          ++errors;
          continue;
        }
        EXPECT_EQ(slot, 3u) << "a record before the last one is missing";
        EXPECT_LT(promised, 3u) << "a promised record is missing";
        EXPECT_EQ(content->epochs.size(), 2u);
        EXPECT_EQ(content->torn_bytes, kEpochSlotBytes);
        ++unpromised;
      }
    }
  }
  std::printf("%zu pairs: %zu errors, %zu epochs that nobody promised\n", visited, errors, unpromised);
  EXPECT_EQ(errors, 3 * 3 * kEpochRecordBytes + kEpochRecordBytes);
  EXPECT_EQ(unpromised, 2 * kEpochRecordBytes);
}

TEST_F(EpochLogTest, ALogOfAnotherJobOrANewerFormatIsNamed) {
  Manifest manifest = manifest_of(0);
  manifest.epochs = {golden_epoch()};
  std::string other = golden_header();
  for (const size_t copy : {size_t{0}, kEpochRecordBytes}) {
    other[copy + 12] = 9;
    const uint32_t sum = crc32c(Bytes(other).substr(copy, kEpochRecordBytes - 4));
    std::string bytes;
    append_u32(&bytes, sum);
    other.replace(copy + kEpochRecordBytes - 4, 4, bytes);
  }
  write(other + golden_record());
  EXPECT_THAT(read(1).status().message(), HasSubstr("is the epoch log of job 9, expected 3"));
  other = golden_header();
  for (const size_t copy : {size_t{0}, kEpochRecordBytes}) {
    other[copy + 8] = 2;
    const uint32_t sum = crc32c(Bytes(other).substr(copy, kEpochRecordBytes - 4));
    std::string bytes;
    append_u32(&bytes, sum);
    other.replace(copy + kEpochRecordBytes - 4, 4, bytes);
  }
  write(other + golden_record());
  EXPECT_EQ(read(1).status().code(), Code::kUnsupported);
  write("");
  EXPECT_EQ(read(0).status().code(), Code::kCorruption) << "an empty file";
  ASSERT_TRUE(device_.remove(kPath).ok());
  EXPECT_EQ(read(0).status().code(), Code::kNotFound);
}

// A forged number costs no memory.
TEST_F(EpochLogTest, APromiseOfMoreThanThereIsIsAnError) {
  ASSERT_TRUE(EpochLog::create(device_, "/d", kJob, manifest_of(3)).ok());
  for (const uint64_t promised : {uint64_t{4}, kEpochsMax}) {
    const Status status = read(promised).status();
    EXPECT_EQ(status.code(), Code::kCorruption);
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("promises {}", promised)));
  }
}

// The record that failed is not seen, and the next one takes its place.
TEST_F(EpochLogTest, AnAppendThatFailsLeavesNoEpoch) {
  size_t visited = 0;
  for (const io::CallKind kind : {io::CallKind::kWrite, io::CallKind::kSync}) {
    for (size_t torn = 0; torn <= kEpochSlotBytes; ++torn) {
      if (kind == io::CallKind::kSync && torn > 0) continue;
      static_cast<void>(device_.remove(kPath));
      const Manifest manifest = manifest_of(3);
      io::FaultDevice faulty(device_);
      EpochLog log = EpochLog::create(faulty, "/d", kJob, manifest_of(2)).value();
      faulty.inject({.action = io::FaultAction::kTear, .kind = kind, .position = torn});
      ASSERT_FALSE(log.append(epoch_number(2), manifest).ok());
      EXPECT_EQ(log.epochs(), 2u);
      EXPECT_EQ(read(2)->epochs.size(), 2u) << torn;
      EXPECT_EQ(read(2)->torn_bytes, 0u) << torn;
      ASSERT_TRUE(log.append(epoch_number(2), manifest).ok());
      EXPECT_EQ(text_of(read(2)->epochs), text_of(manifest.epochs));
      ++visited;
    }
  }
  std::printf("%zu failures\n", visited);
}

}  // namespace
}  // namespace swale::imd::epoch_log_test
