// Packed runs: smaller where data allow it, never larger, every record at its place, and damage is told.
#include "run/packed_run_builder.h"

#include <gtest/gtest.h>

#include <map>

#include "base/coding.h"
#include "run/testing/run_test_support.h"

namespace swale::run::packed_run_test {
namespace {

using test::PartitionInMemory;
using test::Records;

// Keys count; values are 10 floats between 0 and 100.
Records particles(Rng& rng, size_t count) {
  Records records;
  for (size_t i = 0; i < count; ++i) {
    std::string key;
    append_u64(&key, i);
    std::string value;
    for (int field = 0; field < 10; ++field) {
      const auto number = static_cast<float>(rng.below(1u << 24)) * (100.0f / (1u << 24));
      append_u32(&value, std::bit_cast<uint32_t>(number));
    }
    records.emplace_back(std::move(key), std::move(value));
  }
  return records;
}

Records mixed(Rng& rng, size_t count, size_t value_bytes_max, uint32_t alphabet) {
  Records records;
  for (size_t i = 0; i < count; ++i) {
    std::string key = test::random_bytes(rng, 1 + rng.below(12));
    std::string value(rng.below(value_bytes_max + 1), '\0');
    for (char& c : value) c = static_cast<char>(rng.below(alphabet));
    records.emplace_back(std::move(key), std::move(value));
  }
  return records;
}

Memtable memtable_of(const Records& records) {
  Memtable memtable = Memtable::create(Memtable::kArenaBytesMax, Memtable::kRecordsMax).value();
  for (const auto& [key, value] : records) EXPECT_TRUE(test::append(memtable, key, value));
  return memtable;
}

void expect_all(PartitionInMemory& partition, const std::vector<Records>& runs) {
  std::map<std::string, std::vector<std::string>> values;
  size_t records = 0;
  for (const Records& run : runs) {
    for (const auto& [key, value] : run) values[key].push_back(value);
    records += run.size();
  }
  Status status;
  ASSERT_EQ(test::scan(partition.data, PartitionNumber(7), &status).size(), records) << status.to_string();
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (const auto& [key, expected] : values) {
    const test::Found found = partition.find(key, partition.segments.back());
    ASSERT_TRUE(found.status.ok()) << found.status.to_string();
    ASSERT_EQ(found.values, expected);
  }
}

TEST(PackedRun, EveryRecordOfEveryShapeIsFoundUnderEveryIndex) {
  Rng rng(31);
  const std::vector<Records> shapes[] = {
      {particles(rng, 5'000), particles(rng, 1)},
      {mixed(rng, 4'000, 100, 4), mixed(rng, 300, kValueBytesMax, 3)},
      {mixed(rng, 200, kValueBytesMax, 256), mixed(rng, 3'000, 60, 256)},  // nothing to be had
      {Records(3'000, {"hot", std::string(50, 'x')})},
      {Records{{"k", ""}}},
  };
  size_t points = 0;
  for (const Codec codec : {Codec::kLz4, Codec::kZstd}) {
    for (const IndexKind kind : {IndexKind::kSketch, IndexKind::kBloom, IndexKind::kBlockedBloom}) {
      for (const std::vector<Records>& runs : shapes) {
        PartitionInMemory partition;
        partition.layout = {codec, kind, 10};
        for (const Records& run : runs) partition.add_run(run);
        partition.finish_epoch();
        EXPECT_NE(partition.segments.back().flags & kPackedSegment, 0);
        expect_all(partition, runs);
        if (HasFatalFailure()) return;
        ++points;
      }
    }
  }
  fmt::print("{} partitions\n", points);
}

TEST(PackedRun, FloatsShrinkAsPredicted) {
  Rng rng(32);
  const Records records = particles(rng, 40'000);
  PartitionInMemory plain;
  plain.add_run(records);
  for (const auto& [codec, ratio] : {std::pair{Codec::kLz4, 1.18}, std::pair{Codec::kZstd, 1.25}}) {
    PartitionInMemory packed;
    packed.layout.compression = codec;
    packed.add_run(records);
    const double measured = static_cast<double>(plain.data.size()) / static_cast<double>(packed.data.size());
    fmt::print("  {}: {:.3f} times smaller\n", codec_name(codec), measured);
    EXPECT_GT(measured, ratio);
    EXPECT_EQ(packed.digest, plain.digest);
  }
}

// Records end with their blocks where that costs little: one block a query.
TEST(PackedRun, SmallRecordsDoNotSpanBlocks) {
  Rng rng(33);
  PartitionInMemory partition;
  partition.layout.compression = Codec::kLz4;
  partition.add_run(particles(rng, 20'000));
  size_t spanning = 0;
  RunCursor cursor(PartitionNumber(7), BlockNumber(0), "data");
  ASSERT_TRUE(cursor
                  .feed(partition.data,
                        [&](const ScannedRecord& record) {
                          spanning += record.end_block != record.block ? 1 : 0;
                          return true;
                        })
                  .ok());
  EXPECT_EQ(cursor.records(), 20'000u);
  EXPECT_LT(spanning, 20u);
}

// Each value of a key is a candidate of its own: looked up one by one they cost a block each.
TEST(PackedRun, AKeyWithManyValuesHasEachOfItsBlocksDecompressedOnce) {
  Rng rng(37);
  for (const size_t value_bytes : {12, 5'000}) {  // within blocks, and across them
    Records records;
    for (size_t i = 0; i < 80'000 / value_bytes; ++i) {
      records.emplace_back("hot", fmt::format("{:0{}}", rng.below(1'000), value_bytes));
      records.emplace_back(fmt::format("cold {}", i), std::string(value_bytes, 'c'));
    }
    PartitionInMemory partition;
    partition.layout.compression = Codec::kLz4;
    partition.add_run(records);
    partition.finish_epoch();
    const test::Found found = partition.find("hot", partition.segments[0]);
    ASSERT_TRUE(found.status.ok()) << found.status.to_string();
    EXPECT_EQ(found.values.size(), records.size() / 2);
    EXPECT_GT(found.values.size(), 2 * partition.data.size() / kBlockBytes) << "the test compares with that";
    EXPECT_LE(found.decompressed,
              2 * partition.data.size() / kBlockBytes);  // those that records reach into twice
    EXPECT_GT(found.decompressed, 0u);
  }
}

TEST(PackedRun, OnlyWhatGetsSmallerIsWorthIt) {
  Rng rng(34);
  RunScratch scratch = RunScratch::create(Memtable::kRecordsMax).value();
  for (const Codec codec : {Codec::kLz4, Codec::kZstd}) {
    Compressor compressor = Compressor::create(codec).value();
    EXPECT_TRUE(worth_packing(memtable_of(particles(rng, 20'000)), scratch, compressor));
    EXPECT_TRUE(worth_packing(memtable_of(mixed(rng, 5'000, 100, 4)), scratch, compressor));
    EXPECT_FALSE(worth_packing(memtable_of(test::random_records(rng, 20'000, 8, 40)), scratch, compressor));
    EXPECT_FALSE(worth_packing(memtable_of(mixed(rng, 5'000, 100, 256)), scratch, compressor));
    EXPECT_FALSE(worth_packing(memtable_of({{"k", "v"}}), scratch, compressor));
  }
}

TEST(PackedRun, NeverTakesMoreBlocksThanThereIsMemoryFor) {
  Rng rng(35);
  size_t points = 0;
  for (const size_t value_bytes : {0, 1, 39, 500, 4'000, 16'384}) {
    for (const size_t count : {1, 2, 57, 1'000}) {
      const Records records =
          test::random_records(rng, std::min(count, 8 * kMiB / (value_bytes + 10)), 8, value_bytes);
      PartitionInMemory partition;
      partition.layout.compression = Codec::kLz4;
      partition.add_run(records);  // asserts it
      uint64_t encoded = 0;
      for (const auto& [key, value] : records) encoded += encoded_record_bytes(key.size(), value.size());
      EXPECT_LE(partition.data.size(), packed_bytes_max(encoded));
      ++points;
    }
  }
  fmt::print("{} runs\n", points);
}

TEST(PackedRun, ATrailerThatMakesNoSenseIsRefused) {
  Rng rng(36);
  PartitionInMemory partition;
  partition.layout.compression = Codec::kLz4;
  partition.add_run(particles(rng, 500));
  const auto status_of = [&](auto change) {
    std::string block = partition.data.substr(0, kBlockBytes);
    PackedTrailer trailer = packed_trailer(block.data());
    change(trailer);
    put_fixed(block.data() + kPackedBytesMax, trailer);
    std::vector<char> out;
    return append_piece(block, BlockNumber(3), "log", &out);
  };
  EXPECT_TRUE(status_of([](PackedTrailer&) {}).ok()) << "canary";
  EXPECT_EQ(status_of([](PackedTrailer& t) { t.stored_bytes = 4'020; }).code(), Code::kCorruption);
  EXPECT_EQ(status_of([](PackedTrailer& t) { t.stored_bytes -= 1; }).code(), Code::kCorruption);
  EXPECT_EQ(status_of([](PackedTrailer& t) { t.piece_bytes += 1; }).code(), Code::kCorruption);
  EXPECT_EQ(status_of([](PackedTrailer& t) { t.piece_bytes = 0; }).code(), Code::kCorruption);
  EXPECT_EQ(status_of([](PackedTrailer& t) { t.piece_bytes = 40'000; }).code(), Code::kCorruption);
  EXPECT_EQ(status_of([](PackedTrailer& t) { t.row_bytes = 40'000; }).code(), Code::kCorruption);
  EXPECT_EQ(status_of([](PackedTrailer& t) { t.codec = Codec::kNone; }).code(), Code::kCorruption);
  const Status newer = status_of([](PackedTrailer& t) { t.codec = static_cast<Codec>(9); });
  EXPECT_EQ(newer.code(), Code::kUnsupported);
  EXPECT_NE(newer.message().find("offset 12288"), std::string::npos) << newer.message();
}

}  // namespace
}  // namespace swale::run::packed_run_test
