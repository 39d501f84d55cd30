// Every byte of a small directory turned over, one at a time: data, index, summary and json. A reader answers
// what was written or an error that names the file and the place; never anything else. SWALE_FLIPS asks for
// so many random flips in a larger directory (make test-long).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "imd/check/verify.h"
#include "imd/format/extrema_summary.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"
#include "run/block.h"

namespace swale::imd::reader_flip_test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr char kDirectory[] = "/dir";
constexpr int32_t kRanks = 2;

// What a reader answers: all records, and the best of a field.
struct Answer {
  std::vector<std::string> records;  // of one epoch, sorted
  std::vector<std::string> best;

  bool operator==(const Answer&) const = default;
};

class Flips {
 public:
  explicit Flips(uint64_t records, const run::Layout& layout = {}) {
    run_ranks(kRanks, [&](net::Job& job) {
      WriterOptions options{16 * kMiB, 1, 32 * kKiB, 4};
      options.schema = *run::Schema::parse("number:u8;x:f8", "number");
      options.compression = layout.compression;
      options.index = layout.index;
      options.bloom_bits = layout.bloom_bits;
      options.format = layout.format;
      auto writer = Writer::open(job, device_, kDirectory, Writer::Create::kIfMissing, options);
      ASSERT_TRUE(writer.ok()) << writer.status().to_string();
      for (uint32_t epoch = 0; epoch < 2; ++epoch) {
        for (auto i = static_cast<uint64_t>(job.rank()); i < records; i += kRanks) {
          std::string value;
          append_u64(&value, i * 7 + epoch);
          append_u64(&value, i);
          ASSERT_TRUE((*writer)->append(key(i), value).ok());
        }
        ASSERT_TRUE((*writer)->epoch_end(epoch, 0.5).ok());
      }
      ASSERT_TRUE((*writer)->close().ok());
    });
    records_ = records;
    for (uint32_t part = 0; part < kRanks; ++part) {
      paths_.push_back(data_log_path(kDirectory, {1, PartitionNumber(part)}));
      paths_.push_back(index_log_path(kDirectory, {1, PartitionNumber(part)}));
      if (layout.format == run::ShuffleFormat::kIndirect)
        paths_.push_back(value_pages_path(kDirectory, {1, PartitionNumber(part)}));
      if (layout.format == run::ShuffleFormat::kLossy)
        paths_.push_back(table_log_path(kDirectory, {1, PartitionNumber(part)}));
    }
    for (const std::string& path : {manifest_path(kDirectory), generation_path(kDirectory, 1),
                                    epoch_log_path(kDirectory, 1), summary_log_path(kDirectory, 1)})
      paths_.push_back(path);
    for (uint32_t epoch = 0; epoch < 2; ++epoch) truth_[epoch] = ask_all(epoch);
  }

  static std::string key(uint64_t number) { return fmt::format("key {}", number % 50); }
  const std::vector<std::string>& paths() const { return paths_; }
  uint64_t size(const std::string& path) { return *open(path)->size(); }
  uint64_t told() const { return told_; }
  uint64_t without_effect() const { return without_effect_; }

  // Whether all data logs begin with a packed run.
  bool packed() {
    bool all = true;
    for (uint32_t part = 0; part < kRanks; ++part) {
      char block[run::kBlockBytes];
      const std::string path = data_log_path(kDirectory, {1, PartitionNumber(part)});
      if (!io::read_exactly(*open(path), 0, block).ok()) return false;
      const auto header =
          run::decode_run_header({block, sizeof(block)}, PartitionNumber(part), BlockNumber(0), path);
      all = all && header.ok() && header->kind == run::RunKind::kPacked;
    }
    return all;
  }

  void mistake_the_truth() { truth_[0].records[0] += "!"; }

  // Turns bits of one byte over, asks everything, and turns them back.
  void flip(const std::string& path, uint64_t at, uint8_t bits) {
    turn(path, at, bits);
    Status failure = compare(path, at);
    // Documents have second copies, and without its summary a reader asks every partition: it is right all
    // the same, and verify says what is wrong.
    if (failure.ok() && !path.ends_with(".index")) failure = verify();
    if (failure.ok()) {
      ++without_effect_;
    } else {
      ++told_;
      EXPECT_THAT(failure.code(), AnyOf(Code::kCorruption, Code::kUnsupported)) << failure.to_string();
      EXPECT_THAT(std::string(failure.message()), HasSubstr(path)) << "offset " << at;
      EXPECT_TRUE(failure.message().find("offset") != std::string_view::npos) << failure.to_string();
    }
    turn(path, at, bits);
  }

 private:
  std::unique_ptr<io::File> open(const std::string& path) {
    return device_.open(path, io::OpenMode::kReadWrite).value();
  }
  void turn(const std::string& path, uint64_t at, uint8_t bits) {
    auto file = open(path);
    char byte = 0;
    ASSERT_TRUE(io::read_exactly(*file, at, {&byte, 1}).ok());
    byte = static_cast<char>(byte ^ bits);
    ASSERT_TRUE(file->pwrite(at, {&byte, 1}).ok());
  }
  Result<Answer> ask(Reader& reader, uint32_t epoch) {
    Answer answer;
    SWALE_RETURN_IF_ERROR(reader.scan(epoch, [&](uint32_t, Bytes key, Bytes value) {
      answer.records.push_back(fmt::format("{}={}", key, value));
      return true;
    }));
    std::sort(answer.records.begin(), answer.records.end());
    SWALE_ASSIGN_OR_RETURN(const auto top, reader.top(epoch, "number", 5, run::Extreme::kLargest));
    for (const auto& record : top.records) answer.best.push_back(std::string(record.value));
    return answer;
  }
  Answer ask_all(uint32_t epoch) {
    auto reader = Reader::open(device_, kDirectory, {});
    EXPECT_TRUE(reader.ok());
    return ask(**reader, epoch).value();
  }
  // The first failure of all questions; a wrong answer fails the test.
  // Chunks of a scan are shorter than a log, about as long, and longer, in turn.
  Status compare(const std::string& path, uint64_t at) {
    const size_t chunk_blocks[] = {1, 2, 3, 1'024};
    ReaderOptions options;
    options.scan_chunk_bytes = chunk_blocks[at % std::size(chunk_blocks)] * run::kBlockBytes;
    auto reader = Reader::open(device_, kDirectory, options);
    if (!reader.ok()) return reader.status();
    Status failure;
    EXPECT_EQ((*reader)->manifest().epochs.size(), 2u) << path << " offset " << at;
    for (uint32_t epoch = 0; epoch < 2; ++epoch) {
      const Result<Answer> answer = ask(**reader, epoch);
      if (!answer.ok()) {
        if (failure.ok()) failure = answer.status();
      } else {
        EXPECT_EQ(*answer, truth_[epoch]) << path << " offset " << at;
      }
      const auto values = (*reader)->get(key(at), epoch);
      const auto expected = (records_ - at % 50 + 49) / 50;
      if (!values.ok() && values.status().code() != Code::kNotFound) {
        if (failure.ok()) failure = values.status();
      } else {
        EXPECT_EQ(values.ok() ? values->size() : 0, expected) << path << " offset " << at;
      }
    }
    return failure;
  }

  Status verify() {
    auto reader = Reader::open(device_, kDirectory, {});
    if (!reader.ok()) return reader.status();
    const VerifyReport report = verify_directory(**reader, 1);
    return report.problems.empty() ? Status() : report.problems.front();
  }

  io::MemoryDevice device_;
  std::vector<std::string> paths_;
  uint64_t records_ = 0;
  Answer truth_[2];
  uint64_t told_ = 0;
  uint64_t without_effect_ = 0;
};

// Every `step`-th byte.
void turn_bytes_over(Flips& flips, uint64_t step) {
  uint64_t points = 0;
  for (const std::string& path : flips.paths()) {
    const uint64_t told_before = flips.told();
    const uint64_t bytes = flips.size(path);
    for (uint64_t at = 0; at < bytes; at += step, ++points) {
      flips.flip(path, at, static_cast<uint8_t>(1 << at % 8));
      ASSERT_FALSE(testing::Test::HasFailure());
    }
    // Index logs have padding and footers that were replaced by later ones; nothing else may go unnoticed.
    EXPECT_TRUE(path.ends_with(".index") || flips.told() - told_before == (bytes + step - 1) / step)
        << path << ": " << flips.told() - told_before << " of " << bytes;
    fmt::print("  {}: {} of {} told\n", path, flips.told() - told_before, bytes);
  }
  fmt::print("{} bytes of {} files turned over: {} errors, {} without effect\n", points, flips.paths().size(),
             flips.told(), flips.without_effect());
}

TEST(ReaderFlip, EveryByteOfEveryFileGivesTheTruthOrAnErrorThatNamesFileAndPlace) {
  Flips flips(100);
  turn_bytes_over(flips, 1);
}

// The other ways to lay a directory out: three directories have every part of every kind. A prime step, for
// time: each field is met somewhere.
constexpr uint64_t kStep = 13;

TEST(ReaderFlip, BytesOfPackedRuns) {
  Flips flips(800, {Codec::kLz4, run::IndexKind::kSketch, 0});
  EXPECT_TRUE(flips.packed());
  turn_bytes_over(flips, kStep);
}

TEST(ReaderFlip, BytesOfPackedRunsUnderBlockedFilters) {
  Flips flips(800, {Codec::kZstd, run::IndexKind::kBlockedBloom, 10});
  EXPECT_TRUE(flips.packed());
  turn_bytes_over(flips, kStep);
}

TEST(ReaderFlip, BytesOfThePapersIndex) {
  Flips flips(100, {Codec::kNone, run::IndexKind::kPapers, 10});
  EXPECT_FALSE(flips.packed());
  turn_bytes_over(flips, kStep);
}

TEST(ReaderFlip, BytesOfTheIndirectFormat) {
  Flips flips(400, {.format = run::ShuffleFormat::kIndirect});
  turn_bytes_over(flips, kStep);
}

TEST(ReaderFlip, BytesOfTheLossyFormat) {
  Flips flips(400, {.format = run::ShuffleFormat::kLossy});
  turn_bytes_over(flips, kStep);
}

TEST(ReaderFlip, RandomBytesOfALargerDirectory) {
  const char* wanted = std::getenv("SWALE_FLIPS");
  const uint64_t count = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 200;
  Flips flips(5'000);
  Rng rng(21);
  for (uint64_t i = 0; i < count; ++i) {
    const std::string& path = flips.paths()[rng.below(flips.paths().size())];
    flips.flip(path, rng.below(flips.size(path)), static_cast<uint8_t>(1 + rng.below(255)));
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  fmt::print("{} random flips: {} errors, {} without effect\n", count, flips.told(), flips.without_effect());
}

// Canary: an answer that differs from what was written is seen.
TEST(ReaderFlipCanary, AWrongAnswerIsSeen) {
  Flips flips(20);
  flips.mistake_the_truth();
  EXPECT_NONFATAL_FAILURE(flips.flip(manifest_path(kDirectory), 0, 0), "offset 0");
}

}  // namespace
}  // namespace swale::imd::reader_flip_test
