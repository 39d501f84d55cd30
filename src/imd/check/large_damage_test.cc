// Values that are too large for records: damaged, cut off, not written, and repaired.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "imd/check/repair.h"
#include "imd/check/verify.h"
#include "imd/format/generation.h"
#include "imd/testing/test_large.h"
#include "io/fault_device.h"

namespace swale::imd::large_damage_test {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): its names are all that this file is about
using testing::HasSubstr;

class LargeDamage : public InFormat {};
INSTANTIATE_TEST_SUITE_P(Formats, LargeDamage, kFormats, name_of);

TEST(LargeValues, EveryDamagedByteIsNoticed) {
  Sample sample;
  uint64_t flips = 0;
  uint64_t missed = 0;
  for (const uint32_t writer : {0u, 1u}) {
    const std::string path = value_log_path(kDir, {1, PartitionNumber(writer)});
    const auto file = sample.device.open(path, io::OpenMode::kReadWrite).value();
    const uint64_t size = file->size().value();
    std::vector<bool> head(size);  // of these every byte, of values every 701st
    uint64_t promised = 0;
    for (uint64_t at = 0; at + run::kValueHeadBytes < size; ++at) {
      char magic[4];
      ASSERT_TRUE(io::read_exactly(*file, at, magic).ok());
      if (get_u32(magic) != run::kValueMagic) continue;
      for (uint64_t i = at; i < at + run::value_head_bytes(kLimit + 1); ++i) head[i] = true;
      ++promised;
      at += kLimit;
    }
    EXPECT_EQ(promised, 6u);
    for (uint64_t at = 0; at < size; ++at) {
      if (!head[at] && at % 701 != 0) continue;
      char byte;
      ASSERT_TRUE(io::read_exactly(*file, at, {&byte, 1}).ok());
      const char bad = static_cast<char>(byte ^ (1 << at % 8));
      ASSERT_TRUE(file->pwrite(at, {&bad, 1}).ok());
      ++flips;
      const uint64_t failures = sample.failures(path);
      EXPECT_LE(failures, 1u);
      const auto problems = verify_directory(*open(sample.device), 9).problems;
      EXPECT_EQ(problems.empty(), failures == 0) << "verify and get disagree at " << at;
      for (const Status& problem : problems)
        EXPECT_THAT(std::string(problem.message()), HasSubstr(path)) << at;
      missed += failures == 0 ? 1 : 0;  // in the gap between two epochs
      ASSERT_TRUE(file->pwrite(at, {&byte, 1}).ok());
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_LE(missed, 12u);
  EXPECT_EQ(sample.failures(""), 0u);
  std::printf("%llu flips, %llu of them in the gaps between epochs\n", static_cast<unsigned long long>(flips),
              static_cast<unsigned long long>(missed));
}

TEST_P(LargeDamage, EveryDamagedByteOfTheirRecordsIsNoticed) {
  Sample sample(GetParam());
  uint64_t flips = 0;
  for (const uint32_t partition : {0u, 1u}) {
    const std::string path = data_log_path(kDir, {1, PartitionNumber(partition)});
    const auto file = sample.device.open(path, io::OpenMode::kReadWrite).value();
    const uint64_t size = file->size().value();
    for (uint64_t at = 0; at < size; at += at % run::kBlockBytes < 900 ? 1 : 61) {
      char byte;
      ASSERT_TRUE(io::read_exactly(*file, at, {&byte, 1}).ok());
      const char bad = static_cast<char>(byte ^ (1 << at % 8));
      ASSERT_TRUE(file->pwrite(at, {&bad, 1}).ok());
      EXPECT_GT(sample.failures(path), 0u) << at;
      ASSERT_TRUE(file->pwrite(at, {&byte, 1}).ok());
      ++flips;
    }
  }
  std::printf("%llu flips\n", static_cast<unsigned long long>(flips));
}

TEST_P(LargeDamage, ACutOffOrMissingLogIsNoticedByReaders) {
  uint64_t points = 0;
  const uint64_t size = [] {
    Sample sample(GetParam());
    return sample.device.open(values_path(GetParam(), {1, PartitionNumber(1)}), io::OpenMode::kRead)
        .value()
        ->size()
        .value();
  }();
  for (uint64_t cut = 0; cut <= size; cut += 4'999) {
    Sample sample(GetParam());
    const std::string path = values_path(GetParam(), {1, PartitionNumber(1)});
    if (cut == 0) {
      ASSERT_TRUE(sample.device.remove(path).ok());
    } else {
      ASSERT_TRUE(sample.device.open(path, io::OpenMode::kReadWrite).value()->truncate(size - cut).ok());
    }
    const auto reader = open(sample.device);
    uint64_t failures = 0;
    for (const auto& [key, values] : sample.contents[1]) {
      const auto got = reader->get(key, 1);
      failures += got.ok() ? 0 : 1;
      EXPECT_TRUE(got.ok() ? got->front().bytes == values.front()
                           : got.status().code() == Code::kCorruption &&
                                 got.status().message().find(path) != std::string_view::npos);
    }
    EXPECT_GT(failures, 0u);
    EXPECT_FALSE(verify_directory(*reader, 9).problems.empty());
    ++points;
  }
  std::printf("%llu cuts\n", static_cast<unsigned long long>(points));
}

// Each write and sync of the value log fails in turn: the call or the epoch's end says so, later calls say
// that it was before, and the epochs before are whole.
TEST_P(LargeDamage, AFailedWriteOrSyncIsTold) {
  uint64_t points = 0;
  for (const io::CallKind kind : {io::CallKind::kWrite, io::CallKind::kSync, io::CallKind::kOpen}) {
    for (uint64_t nth = 1;; ++nth) {
      io::MemoryDevice disk;
      io::FaultDevice device(disk);
      const auto fill = [](net::Job& job, Writer& writer, uint32_t) {
        append(writer, key_of(static_cast<uint64_t>(job.rank())), value_of(1, 70'000));
      };
      write(device, 2, 1, fill, options_of(GetParam()));
      io::Fault fault;
      fault.kind = kind;
      fault.path_part = values_path(GetParam(), {2, PartitionNumber(1)});
      fault.nth = nth;
      fault.from_then_on = true;
      fault.status = error(Code::kNoSpace, Scope::kFile, "part-000001.j0002.values: no space left");
      device.inject(fault);
      const uint64_t faults = device.faults();
      run_ranks(2, [&](net::Job& job) {
        WriterOptions options;
        options.memory_bytes = kMemoryBytes;
        auto writer = Writer::open(job, device, kDir, Writer::Create::kNever, options);
        if (!writer.ok()) return;
        Status status;
        for (uint64_t i = 0; i < 3 && status.ok(); ++i)
          status = (*writer)->append(key_of(i), value_of(i, 300'000));
        if (status.ok()) status = (*writer)->epoch_end(1, 1);
        const bool hit = device.faults() != faults;
        EXPECT_EQ(status.ok(), !hit) << status.to_string();
        if (hit) {
          EXPECT_THAT(std::string(status.message()), HasSubstr("no space left"));
          EXPECT_EQ((*writer)->append("k", "v").code(), Code::kAborted);
        }
        EXPECT_EQ((*writer)->close().ok(), !hit);
      });
      const bool hit = device.faults() != faults;
      device.clear();
      const auto reader = open(disk);
      EXPECT_EQ(reader->manifest().epochs.size(), hit ? 1u : 2u);
      expect_whole(*reader);
      if (!hit) break;
      ++points;
      ASSERT_LT(nth, 100u);
      // And the next job goes on.
      write(disk, 3, 1, [](net::Job& job, Writer& writer, uint32_t) {
        append(writer, key_of(static_cast<uint64_t>(job.rank())), value_of(2, 80'000));
      });
      expect_whole(*open(disk));
      ASSERT_FALSE(HasFailure()) << static_cast<int>(kind) << " " << nth;
    }
  }
  EXPECT_GT(points, 8u);
  std::printf("%llu failed calls\n", static_cast<unsigned long long>(points));
}

TEST_P(LargeDamage, AnIndexLogOrManifestThatIsLostIsMadeAnew) {
  for (const char* what : {"index", "manifest", "both"}) {
    Sample sample(GetParam());
    if (what[0] != 'm') {
      ASSERT_TRUE(sample.device.remove(index_log_path(kDir, {1, PartitionNumber(1)})).ok());
    }
    if (what[0] != 'i') {
      ASSERT_TRUE(sample.device.remove(manifest_path(kDir)).ok());
    }
    const auto report = repair_directory(sample.device, kDir, {});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    const auto reader = open(sample.device);
    ASSERT_TRUE(reader);
    ASSERT_EQ(reader->manifest().epochs.size(), 2u) << what;
    for (uint32_t epoch = 0; epoch < 2; ++epoch) expect_contents(*reader, epoch, sample.contents[epoch]);
    expect_whole(*reader);
    write(sample.device, 2, 1,
          [](net::Job&, Writer& writer, uint32_t) { append(writer, "later", value_of(5, 40'000)); });
    const auto later = open(sample.device);
    for (uint32_t epoch = 0; epoch < 2; ++epoch) expect_contents(*later, epoch, sample.contents[epoch]);
    expect_whole(*later);
  }
}

// Epoch 0 of job 1; then job 2 appends `values` values a rank. Everything of them is on disk, but the
// manifest never comes.
void leave_open(io::MemoryDevice& disk, run::ShuffleFormat format, uint64_t values,
                const std::function<size_t(uint64_t)>& bytes) {
  io::FaultDevice device(disk);
  const auto fill = [](net::Job& job, Writer& writer, uint32_t) {
    append(writer, key_of(static_cast<uint64_t>(job.rank())), value_of(1, 70'000));
  };
  write(device, 2, 1, fill, options_of(format));
  io::Fault fault;
  fault.kind = io::CallKind::kWrite;
  fault.path_part = "jobs/0002/epochs";
  fault.nth = 2;  // the first makes the log
  fault.status = error(Code::kIoError, Scope::kFile, "epochs: the machine stops");
  device.inject(fault);
  run_ranks(2, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = kMemoryBytes;
    auto writer = Writer::open(job, device, kDir, Writer::Create::kNever, options);
    ASSERT_TRUE(writer.ok());
    for (uint64_t i = 0; i < values; ++i)
      append(**writer, fmt::format("{}/{}", key_of(i), job.rank()), value_of(i, bytes(i)));
    EXPECT_FALSE((*writer)->epoch_end(1, 1).ok());
    EXPECT_FALSE((*writer)->close().ok());
  });
}

// Of an epoch that was never ended, whole runs come back whose values are whole; what points to torn ones
// does not.
TEST_P(LargeDamage, OfAnOpenEpochComeBackIfTheyAreWhole) {
  for (const bool torn : {false, true}) {
    io::MemoryDevice disk;
    leave_open(disk, GetParam(), 10, [](uint64_t i) { return i % 2 == 0 ? 20 : 50'000; });
    if (torn) {
      const auto file =
          disk.open(values_path(GetParam(), {2, PartitionNumber(0)}), io::OpenMode::kReadWrite).value();
      ASSERT_TRUE(file->pwrite(file->size().value() - 1'000, "torn").ok());
    }
    const auto report = repair_directory(disk, kDir, {});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    const auto reader = open(disk);
    expect_whole(*reader);
    if (!torn) {
      ASSERT_EQ(reader->manifest().epochs.size(), 2u);
      EXPECT_EQ(reader->count(1).value(), 20u);
      const bool all = GetParam() == run::ShuffleFormat::kIndirect;
      EXPECT_EQ(reader->manifest().epochs[1].large,
                (all ? LargeTally{20, 10 * 50'000 + 10 * 20} : LargeTally{10, 10 * 50'000}));
    } else {
      EXPECT_THAT(fmt::format("{}", fmt::join(report->lost, "; ")),
                  HasSubstr("points to a value that is not"));
      // The run of one partition has the torn value's record, that of the other has not.
      ASSERT_EQ(reader->manifest().epochs.size(), 2u);
      EXPECT_LT(reader->count(1).value(), 20u);
      EXPECT_GT(reader->count(1).value(), 0u);
    }
    for (uint64_t i = 0; i < 10; ++i) {
      for (int rank = 0; rank < 2; ++rank) {
        const auto got = reader->get(fmt::format("{}/{}", key_of(i), rank), 1);
        if (!got.ok()) continue;
        EXPECT_TRUE(got->front().bytes == value_of(i, i % 2 == 0 ? 20 : 50'000));
      }
    }
    write(disk, 3, 1, [](net::Job& job, Writer& writer, uint32_t) {
      append(writer, key_of(static_cast<uint64_t>(job.rank())), value_of(2, 80'000));
    });
    expect_whole(*open(disk));
  }
}

// All that repair says it recovered of epoch 1 can be read. Returns how many records of rank 0 it is.
uint64_t recovered_of_rank_0(io::Device& device) {
  const auto report = repair_directory(device, kDir, {});
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  const auto reader = open(device);
  expect_whole(*reader);
  EXPECT_EQ(reader->manifest().epochs.size(), 2u);
  uint64_t scanned = 0;
  uint64_t of_rank_0 = 0;
  const Status status = reader->scan(1, [&](uint32_t, Bytes key, Bytes) {
    ++scanned;
    of_rank_0 += key.ends_with("/0") ? 1 : 0;
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(scanned, report->records_recovered);
  const auto again = repair_directory(device, kDir, {});
  EXPECT_TRUE(again.ok() && again->done.empty()) << "nothing is left to do";
  return of_rank_0;
}

void lose_page(io::Device& device, uint64_t page) {
  const std::string path = values_path(run::ShuffleFormat::kIndirect, {2, PartitionNumber(0)});
  const auto file = device.open(path, io::OpenMode::kReadWrite).value();
  ASSERT_LT(page * run::kValuePageBytes, file->size().value());
  ASSERT_TRUE(file->pwrite(page * run::kValuePageBytes, std::string(run::kValuePageBytes, '\0')).ok());
}

// A value of many pages that is torn in several places is one value: the others of its writer come back.
TEST(ValuePages, OfAnOpenEpochComeBackBesideAValueOfManyTornPages) {
  constexpr uint64_t kValues = 6;  // of a rank
  constexpr size_t kBytes = 50'000;
  io::MemoryDevice disk;
  leave_open(disk, run::ShuffleFormat::kIndirect, kValues, [](uint64_t) { return kBytes; });
  const uint64_t pages = run::pages_of(kValues * kBytes);
  for (uint64_t i = 1; i <= kValues; ++i) lose_page(disk, pages - 2 * i);
  const uint64_t recovered = recovered_of_rank_0(disk);
  EXPECT_GT(recovered, 0u);
  EXPECT_LT(recovered, kValues);
}

// The only whole value of its writer ends where the torn page begins: nobody can tell that it is whole but
// its record.
TEST(ValuePages, OfAnOpenEpochComeBackIfATornPageFollows) {
  constexpr uint64_t kPages = 10;
  const auto home = [](uint64_t i) { return choose(hash_bytes(fmt::format("{}/0", key_of(i))), 2).index; };
  uint64_t torn = 1;
  while (home(torn) == home(0)) ++torn;
  io::MemoryDevice disk;
  leave_open(disk, run::ShuffleFormat::kIndirect, torn + 1, [&](uint64_t i) {
    if (i == 0) return kPages * run::kValuePagePayloadBytes;
    return i == torn ? size_t{50'000} : run::kPagePointerBytes - 1;  // others stay in their records
  });
  lose_page(disk, kPages);
  EXPECT_GT(recovered_of_rank_0(disk), 0u);
}

// Canary: a verifier that only looked at what records point to would miss this one.
TEST(LargeValuesCanary, AValueWithoutARecordIsSeen) {
  Sample sample;
  const auto reader = open(sample.device);
  expect_whole(*reader);
  Manifest manifest = load_manifest(sample.device, kDir).value();
  ++manifest.epochs[1].large.values;
  ASSERT_TRUE(sample.device.remove(epoch_log_path(kDir, manifest.generation)).ok());
  ASSERT_TRUE(EpochLog::create(sample.device, kDir, manifest.generation, manifest).ok());
  const auto problems = verify_directory(*open(sample.device), 9).problems;
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(std::string(problems.front().message()), HasSubstr("large values"));
}

// Pages have nothing between epochs: every byte counts.
TEST(ValuePages, EveryDamagedByteIsNoticed) {
  constexpr auto kFormat = run::ShuffleFormat::kIndirect;
  Sample sample(kFormat);
  uint64_t flips = 0;
  for (const uint32_t writer : {0u, 1u}) {
    const std::string path = values_path(kFormat, {1, PartitionNumber(writer)});
    const auto file = sample.device.open(path, io::OpenMode::kReadWrite).value();
    const uint64_t size = file->size().value();
    EXPECT_EQ(size % run::kValuePageBytes, 0u);
    for (uint64_t at = 0; at < size;
         at += at % run::kValuePageBytes < run::kValuePagePayloadBytes ? 701 : 1) {
      char byte;
      ASSERT_TRUE(io::read_exactly(*file, at, {&byte, 1}).ok());
      const char bad = static_cast<char>(byte ^ (1 << at % 8));
      ASSERT_TRUE(file->pwrite(at, {&bad, 1}).ok());
      ++flips;
      EXPECT_GT(sample.failures(path), 0u) << at;
      const auto problems = verify_directory(*open(sample.device), 9).problems;
      ASSERT_EQ(problems.size(), 1u) << at;
      EXPECT_THAT(std::string(problems.front().message()), HasSubstr(path)) << at;
      ASSERT_TRUE(file->pwrite(at, {&byte, 1}).ok());
    }
  }
  EXPECT_EQ(sample.failures(""), 0u);
  std::printf("%llu flips\n", static_cast<unsigned long long>(flips));
}

// Whole pages of another place, or of the same place in another directory of the same shape, are no values of
// this one.
TEST(ValuePages, OfAnotherPlaceOrDirectoryAreNotTaken) {
  constexpr auto kFormat = run::ShuffleFormat::kIndirect;
  for (const bool elsewhere : {false, true}) {
    Sample sample(kFormat);
    Sample other(kFormat);
    const std::string path = values_path(kFormat, {1, PartitionNumber(0)});
    const auto from = (elsewhere ? other : sample).device.open(path, io::OpenMode::kRead).value();
    std::string page(run::kValuePageBytes, '\0');
    ASSERT_TRUE(io::read_exactly(*from, elsewhere ? 0 : run::kValuePageBytes, page).ok());
    ASSERT_TRUE(sample.device.open(path, io::OpenMode::kReadWrite).value()->pwrite(0, page).ok());
    EXPECT_GT(sample.failures(path), 0u);
    EXPECT_FALSE(verify_directory(*open(sample.device), 9).problems.empty());
  }
}

// Canary: pointers that overlap are seen although each leads to whole pages.
TEST(ValuePagesCanary, AValueThatNoRecordPointsToIsSeen) {
  const auto tile = [](uint64_t begin, uint64_t bytes) { return run::value_tile(begin, begin + bytes); };
  EXPECT_EQ(tile(0, 40) + tile(40, 60) + tile(100, 12), tile(0, 112));
  EXPECT_NE(tile(0, 40) + tile(41, 59) + tile(100, 12), tile(0, 112)) << "a gap";
  EXPECT_NE(tile(0, 40) + tile(39, 61) + tile(100, 12), tile(0, 112)) << "an overlap";
  EXPECT_NE(tile(0, 40) + tile(0, 40) + tile(100, 12), tile(0, 112)) << "one twice";
}

}  // namespace
}  // namespace swale::imd::large_damage_test
