#include "imd/read/reader_scan.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <set>
#include <thread>

#include "base/coding.h"
#include "base/crc32c.h"
#include "imd/testing/test_directory.h"
#include "io/memory_device.h"

namespace swale::imd::reader_scan_test {
namespace {

using test::numbered_records;
using test::Records;
using test::TestDirectory;

using Walked = std::vector<std::string>;  // "epoch key=value" of each record, in the order of the walk

Reader::RecordFn note_in(Walked& walked) {
  return [&walked](uint32_t epoch, Bytes key, Bytes value) {
    walked.push_back(fmt::format("{} {}={}", epoch, key, value));
    return true;
  };
}

Walked part_of(Reader& reader, int64_t epoch, uint32_t part, uint32_t parts) {
  Walked walked;
  const Status status = reader.scan_part(epoch, part, parts, note_in(walked));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return walked;
}

Walked all_of(Reader& reader, int64_t epoch) {
  Walked walked;
  const Status status = reader.scan(epoch, note_in(walked));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return walked;
}

struct Shape {
  int32_t ranks;
  uint32_t ways;
  size_t records;
  size_t value_bytes_max;
  size_t records_per_run;
};

class ScanParts : public testing::TestWithParam<Shape> {
 protected:
  ScanParts() : written_(device_, "/dir") {
    const Shape shape = GetParam();
    Rng rng(5);
    for (int epoch = 0; epoch < 2; ++epoch) {
      written_.begin_job(shape.ranks + epoch, shape.ways);
      TestDirectory::Shape runs;
      runs.records_per_run = shape.records_per_run;
      written_.write_epoch(numbered_records(rng, shape.records, shape.records, shape.value_bytes_max), runs);
    }
    reader_ = Reader::open(device_, "/dir", {}).value();
  }

  io::MemoryDevice device_;
  TestDirectory written_;
  std::unique_ptr<Reader> reader_;
};
INSTANTIATE_TEST_SUITE_P(Shapes, ScanParts,
                         testing::Values(Shape{1, 1, 6'000, 40, 100}, Shape{1, 1, 900, 40, 1'000},
                                         Shape{5, 2, 8'000, 60, 50}, Shape{16, 1, 3'000, 0, 40},
                                         Shape{4, 1, 3, 10, 10}));

// One after the other they are the scan, record by record: so nothing is missing, and nothing there twice.
TEST_P(ScanParts, TogetherAreTheScan) {
  size_t walks = 0;
  for (const int64_t epoch : {int64_t{0}, int64_t{1}}) {
    const Walked expected = all_of(*reader_, epoch);
    ASSERT_EQ(expected.size(), *reader_->count(epoch));
    for (const uint32_t parts : {1U, 2U, 3U, 4U, 7U, 16U, 17U, 100U, 1000U}) {
      Walked together;
      for (uint32_t part = 0; part < parts; ++part, ++walks) {
        const Walked walked = part_of(*reader_, epoch, part, parts);
        together.insert(together.end(), walked.begin(), walked.end());
      }
      ASSERT_EQ(together, expected) << parts << " parts of epoch " << epoch;
    }
  }
  std::printf("%zu parts were walked\n", walks);
}

TEST_P(ScanParts, OfAllEpochsAreThePartsOfEach) {
  constexpr uint32_t kParts = 6;
  for (uint32_t part = 0; part < kParts; ++part) {
    Walked expected = part_of(*reader_, 0, part, kParts);
    const Walked second = part_of(*reader_, 1, part, kParts);
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_EQ(part_of(*reader_, Reader::kAllEpochs, part, kParts), expected);
  }
}

TEST_P(ScanParts, AreWalkedByThreadsWithOneReader) {
  constexpr uint32_t kParts = 8;
  std::vector<Walked> walked(kParts);
  std::atomic<uint32_t> next = 0;
  const auto work = [&] {
    for (uint32_t part = next++; part < kParts; part = next++)
      walked[part] = part_of(*reader_, Reader::kAllEpochs, part, kParts);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  Walked together;
  for (const Walked& part : walked) together.insert(together.end(), part.begin(), part.end());
  Walked expected = all_of(*reader_, Reader::kAllEpochs);
  std::sort(together.begin(), together.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(together, expected);
}

// With many runs for each, no part has more than its share, and one run of each partition that it touches.
TEST_P(ScanParts, AreAboutEqual) {
  const Shape shape = GetParam();
  if (shape.records < 6'000) return;
  constexpr uint32_t kParts = 4;
  const size_t share = shape.records / kParts;
  for (uint32_t part = 0; part < kParts; ++part) {
    const size_t records = part_of(*reader_, 0, part, kParts).size();
    EXPECT_LT(records, share * 5 / 4) << part;
    EXPECT_GT(records, share * 3 / 4) << part;
  }
}

TEST(ScanPart, TouchesItsPartitionsOnly) {
  io::MemoryDevice device;
  TestDirectory written(device, "/dir");
  written.begin_job(4);
  Rng rng(1);
  written.write_epoch(numbered_records(rng, 4'000, 4'000, 10));
  ASSERT_TRUE(device.remove(data_log_path("/dir", {1, PartitionNumber(3)})).ok());
  auto reader = Reader::open(device, "/dir", {}).value();
  for (uint32_t part = 0; part < 3; ++part) EXPECT_FALSE(part_of(*reader, 0, part, 4).empty());
  const Status status = reader->scan_part(0, 3, 4, [](auto&&...) { return true; });
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_NE(status.message().find(data_log_path("/dir", {1, PartitionNumber(3)})), std::string::npos)
      << status.message();
}

TEST(ScanPart, EndsWhenToldTo) {
  io::MemoryDevice device;
  TestDirectory written(device, "/dir");
  written.begin_job(3);
  Rng rng(1);
  for (int epoch = 0; epoch < 2; ++epoch) written.write_epoch(numbered_records(rng, 600, 600, 10));
  auto reader = Reader::open(device, "/dir", {}).value();
  for (const size_t limit : {size_t{1}, size_t{250}, size_t{700}}) {
    size_t seen = 0;
    EXPECT_TRUE(reader->scan_part(Reader::kAllEpochs, 0, 1, [&](auto&&...) { return ++seen < limit; }).ok());
    EXPECT_EQ(seen, limit);
  }
}

TEST(ScanPart, RefusesPartsThatAreNotThere) {
  io::MemoryDevice device;
  TestDirectory written(device, "/dir");
  written.begin_job(1);
  written.write_epoch({{"key", "value"}});
  auto reader = Reader::open(device, "/dir", {}).value();
  const auto yes = [](auto&&...) { return true; };
  for (const auto& [part, parts] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, 0}, {1, 1}, {7, 5}, {0, Reader::kScanPartsMax + 1}}) {
    EXPECT_EQ(reader->scan_part(0, part, parts, yes).code(), Code::kInvalidArgument)
        << part << " of " << parts;
  }
  EXPECT_EQ(reader->scan_part(2, 0, 1, yes).code(), Code::kInvalidArgument);
  EXPECT_TRUE(reader->scan_part(0, 0, Reader::kScanPartsMax, yes).ok());
}

// 131,072 partitions by a million parts, without a file: in each partition the shares meet, end to end, and a
// part's partitions begin where scan_part looks first.
TEST(ScanPart, SharesMeetAtAnySize) {
  Rng rng(3);
  size_t compared = 0;
  for (const uint32_t partitions : {1U, 3U, 1000U, 131'072U}) {
    for (const uint32_t parts : {1U, 2U, 7U, 1000U, Reader::kScanPartsMax - 1, Reader::kScanPartsMax}) {
      const uint64_t visits_max = std::min<uint64_t>(uint64_t{partitions} * parts, 10'000);
      for (uint64_t i = 0; i < visits_max; ++i, ++compared) {
        const PartitionNumber partition(static_cast<uint32_t>(rng.below(partitions)));
        const auto part = static_cast<uint32_t>(rng.below(parts));
        const PartitionShare share = share_of(partition, partitions, part, parts);
        ASSERT_LE(share.from, share.to);
        ASSERT_EQ(share.to, part + 1 < parts ? share_of(partition, partitions, part + 1, parts).from : parts);
        ASSERT_EQ(share_of(partition, partitions, 0, parts).from, 0U);
        const uint64_t first = uint64_t{part} * partitions / parts;
        ASSERT_TRUE(partition > first || (share.from < share.to) == (partition == first));
      }
    }
  }
  std::printf("%zu shares were compared\n", compared);
}

// Records of one shape: 24 bytes each, or of any length, or most of them longer than a block.
Records shaped_records(Rng& rng, size_t count, size_t value_bytes_min, size_t value_bytes_max) {
  Records records;
  for (size_t i = 0; i < count; ++i) {
    const size_t bytes = value_bytes_min + rng.below(value_bytes_max - value_bytes_min + 1);
    std::string value(bytes, '\0');
    for (char& byte : value) byte = static_cast<char>(rng.next());
    records.emplace_back(fmt::format("{:08}", i), value);
  }
  return records;
}

// A directory of one partition and one epoch with several runs, whose blocks are damaged and mended again.
class ScanDamage {
 public:
  explicit ScanDamage(const Records& records) : written_(device_, "/dir") {
    written_.begin_job(1);
    TestDirectory::Shape shape;
    shape.records_per_run = records.size() / 4;
    written_.write_epoch(records, shape);
    file_ = device_.open(data_log_path("/dir", {1, PartitionNumber(0)}), io::OpenMode::kReadWrite).value();
    bytes_.resize(*file_->size());
    EXPECT_TRUE(io::read_exactly(*file_, 0, MutableBytes(bytes_.data(), bytes_.size())).ok());
    run::RunCursor cursor(PartitionNumber(0), BlockNumber(0), "log");
    EXPECT_TRUE(cursor
                    .feed(bytes_,
                          [&](const run::ScannedRecord& record) {
                            truth_.push_back({fmt::format("{}={}", record.key, record.value), record.run->run,
                                              record.block, record.end_block});
                            if (starts_.size() <= record.run->run) starts_.push_back(record.block);
                            return true;
                          })
                    .ok());
  }

  size_t blocks() const { return bytes_.size() / run::kBlockBytes; }
  size_t runs() const { return starts_.size(); }

  // The header of a run says one byte more than its records have, with checksums that fit. All of its records
  // are yielded, and the damage is told.
  void forge_data_bytes(size_t run) {
    const std::string before = bytes_;
    const PartitionNumber partition(0);
    char* const block = bytes_.data() + starts_[run] * run::kBlockBytes;
    auto header = get_fixed<run::RunHeader>(block);
    ++header.data_bytes;
    put_fixed(block, header);
    put_u32(block + 60, crc32c_extend(run::partition_seed(partition), {block, 60}));
    put_u32(block + run::kBlockBytes - 4,
            crc32c_extend(run::epoch_seed(partition, header.epoch_id), {block, run::kBlockBytes - 4}));
    ASSERT_TRUE(file_->pwrite(0, bytes_).ok());
    Walked all;
    for (const Record& record : truth_) all.push_back(record.text);
    compare(all);
    bytes_ = before;
    ASSERT_TRUE(file_->pwrite(0, bytes_).ok());
  }

  // The first `kept` blocks of the file are left.
  void cut(size_t kept) {
    ASSERT_TRUE(file_->truncate(kept * run::kBlockBytes).ok());
    for (const size_t chunk_blocks : {size_t{1}, kept + 1, blocks(), size_t{1'024}}) {
      ReaderOptions options;
      options.scan_chunk_bytes = chunk_blocks * run::kBlockBytes;
      auto reader = Reader::open(device_, "/dir", options).value();
      const Status status = reader->scan(0, [](auto&&...) { return true; });
      EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
      EXPECT_NE(status.message().find("part-000000"), std::string_view::npos) << status.to_string();
    }
    ASSERT_TRUE(file_->pwrite(0, bytes_).ok());
  }

  // Damages `places` (offsets), scans, compares with what no damage can have touched, mends.
  void pass(const std::set<uint64_t>& places, bool mistaken = false) {
    std::vector<bool> damaged(blocks());
    std::vector<bool> lost(runs());
    for (const uint64_t at : places) {
      turn(at);
      const uint64_t block = at / run::kBlockBytes;
      damaged[block] = true;
      const auto start = std::ranges::find(starts_, block);
      if (start != starts_.end() && at % run::kBlockBytes < sizeof(run::RunHeader))
        lost[static_cast<size_t>(start - starts_.begin())] = true;
    }
    Walked expected;
    for (const Record& record : truth_) {
      bool whole = !lost[record.run];
      for (uint64_t block = record.block; block <= record.end_block; ++block)
        whole = whole && !damaged[block];
      if (whole) expected.push_back(record.text);
    }
    if (mistaken) expected.pop_back();
    compare(expected);
    for (const uint64_t at : places) turn(at);
  }

 private:
  struct Record {
    std::string text;
    uint32_t run;
    uint64_t block;
    uint64_t end_block;
  };

  void turn(uint64_t at) {
    bytes_[at] ^= 1;
    ASSERT_TRUE(file_->pwrite(at, Bytes(bytes_).substr(at, 1)).ok());
  }

  // With chunks of one block, as long as the log, one block less, one more, and the usual ones, in turn.
  void compare(const Walked& expected) {
    const size_t chunk_blocks[] = {1, blocks(), blocks() - 1, blocks() + 1, 1'024};
    ReaderOptions options;
    options.scan_chunk_bytes = chunk_blocks[comparisons_++ % std::size(chunk_blocks)] * run::kBlockBytes;
    auto reader = Reader::open(device_, "/dir", options).value();
    EXPECT_EQ(reader->scan(0, [](auto&&...) { return true; }).code(), Code::kCorruption);
    Walked walked;
    uint64_t told = 0;
    uint64_t left_out = 0;
    const Reader::DamageFn damaged = [&](const Status& cause, uint64_t records) {
      EXPECT_NE(cause.message().find("part-000000"), std::string_view::npos) << cause.to_string();
      ++told;
      left_out += records;
    };
    const auto pieces = reader->scan_pieces(EpochNumber(0), PartitionNumber(0), 1, damaged);
    ASSERT_TRUE(pieces.ok()) << pieces.status().to_string();
    for (const Reader::ScanPiece& piece : *pieces) {
      const auto note = [&](uint32_t, Bytes key, Bytes value) {
        walked.push_back(fmt::format("{}={}", key, value));
        return true;
      };
      const Status status = reader->scan_piece(piece, note, damaged);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_EQ(walked, expected);
    EXPECT_EQ(walked.size() + left_out, truth_.size());
    EXPECT_GT(told, 0U);
  }

  io::MemoryDevice device_;
  TestDirectory written_;
  std::unique_ptr<io::File> file_;
  std::string bytes_;
  std::vector<Record> truth_;
  std::vector<uint64_t> starts_;  // first blocks of the runs
  size_t comparisons_ = 0;
};

std::vector<Records> records_of_all_shapes() {
  Rng rng(77);
  return {shaped_records(rng, 4'000, 16, 16), shaped_records(rng, 2'000, 0, 90),
          shaped_records(rng, 60, 3'000, 12'000)};
}

TEST(ScanDamage, OnlyWhatADamagedBlockHoldsIsLeftOut) {
  Rng rng(78);
  size_t places_damaged = 0;
  for (const Records& records : records_of_all_shapes()) {
    ScanDamage directory(records);
    ASSERT_EQ(directory.runs(), 4U);
    for (int i = 0; i < 60; ++i) {
      std::set<uint64_t> places;
      const size_t count = 1 + rng.below(4);
      while (places.size() < count) places.insert(rng.below(directory.blocks() * run::kBlockBytes));
      if (i % 4 == 0) places.insert(rng.below(64));  // the header of the first run
      directory.pass(places);
      places_damaged += places.size();
      if (testing::Test::HasFailure()) return;
    }
  }
  std::printf("%zu places were damaged\n", places_damaged);
}

// A run's sums that differ from its header's by one are noticed at its end: at the last block of a chunk, of
// the file, or in between. A scan once looked for the block behind the end of its buffer.
TEST(ScanDamage, ARunWhoseHeaderDisagreesWithItsRecordsIsDamage) {
  for (const Records& records : records_of_all_shapes()) {
    ScanDamage directory(records);
    for (size_t run = 0; run < directory.runs(); ++run) {
      for (int times = 0; times < 5; ++times) directory.forge_data_bytes(run);
    }
    if (testing::Test::HasFailure()) return;
  }
}

// In a later chunk than the first, a scan that passes no damage passed the end of the file, and called
// nobody.
TEST(ScanDamage, ALogThatIsCutOffIsToldByAScanWithAnyChunk) {
  for (const Records& records : records_of_all_shapes()) {
    ScanDamage directory(records);
    for (const size_t kept : {size_t{0}, size_t{1}, directory.blocks() / 2, directory.blocks() - 1})
      directory.cut(kept);
  }
}

TEST(ScanDamage, CanaryARecordThatIsMissingWouldBeNoticed) {
  ScanDamage directory(records_of_all_shapes()[0]);
  EXPECT_NONFATAL_FAILURE(directory.pass({5'000}, true), "walked");
}

}  // namespace
}  // namespace swale::imd::reader_scan_test
