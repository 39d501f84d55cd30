// Every number of a massive directory's files, set to the ends of its range and to the neighbours of what is
// right, with checksums that fit. Whatever is asked then gives an answer or an error: no crash, no byte
// beyond a buffer (run it under AddressSanitizer), no long work, no memory that a number in a file chose.
// Checksums find accidents; such a directory is one that somebody made.
//
// The directories lie on both sides of what a scan reads at a time: its chunk is smaller than the data log,
// as long, and longer. Variables of the environment: forged_trials.h.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "base/coding.h"
#include "imd/check/repair.h"
#include "imd/check/verify.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/testing/test_repair.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"
#include "tests/forged/forged_trials.h"
#include "tests/forged/imd_fields.h"
#include "tools/engine.h"

namespace swale::forged {
namespace {

using imd::Reader;
using imd::test::Image;
using imd::test::kRepairDir;

constexpr int32_t kRanks = 2;

struct Shape {
  const char* name;
  const char* schema = "number:u8;x:f8;_:*";
  uint64_t records = 60;  // of a rank and epoch
  size_t value_bytes_min = 16;
  size_t value_bytes_max = 16;
  size_t large_bytes = 0;  // of every 20th value
  run::Layout layout = {};
  uint32_t epochs = 2;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.name; }

Image make(const Shape& shape) {
  io::MemoryDevice device;
  imd::run_ranks(kRanks, [&](net::Job& job) {
    imd::WriterOptions options;
    options.memory_bytes = 20 * kMiB;
    options.ways = 2;
    options.schema = *run::Schema::parse(shape.schema, "number;x");
    options.compression = shape.layout.compression;
    options.index = shape.layout.index;
    options.bloom_bits = shape.layout.bloom_bits;
    options.format = shape.layout.format;
    auto writer = imd::Writer::open(job, device, kRepairDir, imd::Writer::Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    Rng rng(static_cast<uint64_t>(job.rank()) + 1);
    for (uint32_t epoch = 0; epoch < shape.epochs; ++epoch) {
      for (uint64_t i = 0; i < shape.records; ++i) {
        const bool large = shape.large_bytes > 0 && i % 20 == 7;
        std::string value;
        append_u64(&value, i * kRanks + static_cast<uint64_t>(job.rank()));
        append_u64(&value, std::bit_cast<uint64_t>(static_cast<double>(i)));
        const size_t drawn =
            shape.value_bytes_min + rng.below(shape.value_bytes_max - shape.value_bytes_min + 1);
        value.resize(large ? shape.large_bytes : drawn, 'v');
        ASSERT_TRUE((*writer)->append(fmt::format("key-{}", i % 23), value).ok());
      }
      ASSERT_TRUE((*writer)->epoch_end(epoch, 0.5).ok());
    }
    ASSERT_TRUE((*writer)->close().ok());
  });
  return imd::test::image_of(device);
}

// What a program can ask. The answers do not matter: a forger may have made them right.
class Questions {
 public:
  Questions(io::Device& device, size_t scan_chunk_bytes) : device_(device) {
    options_.scan_chunk_bytes = scan_chunk_bytes;
  }

  void ask() {
    read();
    dump();
    static_cast<void>(imd::repair_directory(device_, kRepairDir, {}));
    read();
  }
  uint64_t errors() const { return errors_; }
  uint64_t answers() const { return answers_; }

 private:
  void note(const Status& status) { ++(status.ok() ? answers_ : errors_); }

  void read() {
    const auto reader = Reader::open(device_, kRepairDir, options_);
    note(reader.status());
    if (!reader.ok()) return;
    const auto epochs = std::min<size_t>((*reader)->manifest().epochs.size(), 3);
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) read_epoch(**reader, epoch);
    note((*reader)->get("key-3", Reader::kAllEpochs).status());
    const imd::VerifyReport report = imd::verify_directory(**reader, 20);
    note(report.problems.empty() ? Status() : report.problems.front());
  }

  void read_epoch(Reader& reader, uint32_t epoch) {
    const auto record = [](uint32_t, Bytes key, Bytes value) { return !key.empty() || !value.empty(); };
    note(reader.scan(epoch, record));
    const auto passed = [](const Status&, uint64_t) {};
    for (uint32_t partition = 0; partition < kRanks; ++partition) {
      const auto pieces = reader.scan_pieces(EpochNumber(epoch), PartitionNumber(partition), 1, passed);
      note(pieces.status());
      if (!pieces.ok()) continue;
      for (const Reader::ScanPiece& piece : *pieces) note(reader.scan_piece(piece, record, passed));
    }
    note(reader.scan_part(epoch, 1, 3, record));
    for (const char* key : {"key-0", "key-7", "key-22", "none"}) note(reader.get(key, epoch).status());
    const std::vector<Bytes> keys = {"key-0", "key-1", "key-2", "key-7"};
    note(reader.get_many(keys, epoch, [](size_t, uint32_t, Bytes) { return true; }).status());
    for (const char* field : {"number", "x"}) {
      note(reader.top(epoch, field, 5, run::Extreme::kLargest).status());
      note(reader.top(epoch, field, 5, run::Extreme::kSmallest).status());
    }
    note(reader.keys(epoch, [](Bytes) { return true; }));
    note(reader.sample(epoch, 5, 7, [](Bytes) { return true; }));
    note(reader.count(epoch).status());
    note(reader.epoch_stats(epoch).status());
  }

  // Without what it prints.
  void dump() {
    fflush(stdout);
    const int kept = dup(STDOUT_FILENO);
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ASSERT_TRUE(kept >= 0 && nothing >= 0);
    dup2(nothing, STDOUT_FILENO);
    tools::DumpOutput output({.records = true, .lines_max = 2'000});
    note(tools::kImdEngine.dump(device_, kRepairDir, &output));
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(nothing);
  }

  io::Device& device_;
  imd::ReaderOptions options_;
  uint64_t errors_ = 0;
  uint64_t answers_ = 0;
};

class Forged : public testing::TestWithParam<Shape> {};

TEST_P(Forged, EveryNumberGivesAnAnswerOrAnError) {
  const Image image = make(GetParam());
  ASSERT_FALSE(HasFailure());
  ForgedTrials trials(5);  // all take five minutes
  uint64_t errors = 0;
  uint64_t answers = 0;
  for (const auto& [path, bytes] : image) {
    if (path.ends_with('/')) continue;
    const Fields fields = fields_of_file(path, std::make_shared<const std::string>(bytes));
    EXPECT_TRUE(!fields.empty() || bytes.empty() || path.ends_with("/job")) << path << ": nothing was forged";
    const size_t blocks = std::max<size_t>(bytes.size() / run::kBlockBytes, 2);
    uint64_t forged_here = 0;
    for (const ForgedField& field : fields) {
      for (const uint64_t number : forged_numbers(field)) {
        const std::string what = fmt::format("{}: {}: {} instead of {}", path, field.name, number, field.now);
        if (!trials.takes(what)) continue;
        SCOPED_TRACE(ForgedTrials::trace(what));
        io::MemoryDevice device;
        Image forged = image;
        forged[path] = field.forge(number);
        imd::test::put_back(forged, device);
        trials.begin();
        // A chunk of one block, as long as the log, one less, one more, and the usual one.
        const size_t chunks[] = {1, blocks, blocks - 1, blocks + 1, 1'024};
        Questions questions(device, chunks[forged_here++ % std::size(chunks)] * run::kBlockBytes);
        questions.ask();
        errors += questions.errors();
        answers += questions.answers();
        trials.end();
        ASSERT_FALSE(HasFailure());
      }
    }
    fmt::print("  {}: {} fields, {} numbers\n", path, fields.size(), forged_here);
  }
  fmt::print("{} errors, {} answers\n", errors, answers);
  EXPECT_GT(errors, 0u);
  EXPECT_GT(answers, errors / 10);
}

std::string name_of(const testing::TestParamInfo<Shape>& info) { return info.param.name; }

run::Layout layout_of(Codec codec, run::IndexKind index, uint32_t bloom_bits) {
  run::Layout layout;
  layout.compression = codec;
  layout.index = index;
  layout.bloom_bits = bloom_bits;
  return layout;
}
run::Layout layout_of(run::ShuffleFormat format) {
  run::Layout layout;
  layout.format = format;
  return layout;
}

INSTANTIATE_TEST_SUITE_P(
    All, Forged,
    testing::Values(
        Shape{.name = "Uniform", .schema = "number:u8;x:f8"},
        Shape{.name = "OneBlock", .schema = "number:u8;x:f8", .records = 5, .epochs = 1},
        Shape{.name = "Variable", .value_bytes_max = 400, .large_bytes = 20'000},
        Shape{.name = "Spanning", .records = 30, .value_bytes_max = 12'000},
        Shape{.name = "Lz4",
              .records = 700,
              .value_bytes_max = 60,
              .layout = layout_of(Codec::kLz4, run::IndexKind::kSketch, 0)},
        Shape{.name = "ZstdBlockedBloom",
              .records = 500,
              .value_bytes_max = 60,
              .layout = layout_of(Codec::kZstd, run::IndexKind::kBlockedBloom, 10)},
        Shape{.name = "Bloom", .records = 200, .layout = layout_of(Codec::kNone, run::IndexKind::kBloom, 10)},
        Shape{
            .name = "Papers", .records = 60, .layout = layout_of(Codec::kNone, run::IndexKind::kPapers, 10)},
        Shape{.name = "Indirect",
              .records = 200,
              .value_bytes_max = 90,
              .layout = layout_of(run::ShuffleFormat::kIndirect)},
        Shape{.name = "Lossy",
              .records = 200,
              .value_bytes_max = 90,
              .large_bytes = 20'000,
              .layout = layout_of(run::ShuffleFormat::kLossy)}),
    name_of);

}  // namespace
}  // namespace swale::forged
