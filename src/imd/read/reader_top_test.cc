// Field extrema from end to end: directories written by the real writer, asked for their best records,
// compared with a scan; and what damage does to them.
#include "imd/read/reader_top.h"
#include "imd/check/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/coding.h"
#include "base/crc32c.h"
#include "base/rng.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"
#include "run/footer.h"

namespace swale::imd::reader_top_test {
namespace {

using run::Extreme;
using testing::HasSubstr;

using ValueFn = std::function<std::string(Rng&)>;

constexpr char kDir[] = "/dir";
constexpr char kFields[] = "x:f8;id:u8;v:f4x2;small:i1;_:*";

struct Shape {
  int32_t ranks = 1;
  uint32_t ways = 1;
  size_t memory_bytes = 4 * kMiB;
  size_t records_per_rank = 20'000;
  uint32_t epochs = 1;
  std::string indexed = "x;id;small";
};

std::string value_of(double x, uint64_t id, size_t bytes = 40) {
  std::string value(std::max<size_t>(bytes, 16), 'v');
  put_fixed(value.data(), x);
  put_u64(value.data() + 8, id);
  value.resize(bytes);
  return value;
}

void write(io::Device& device, const Shape& shape, const ValueFn& value_fn) {
  run_ranks(shape.ranks, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = shape.memory_bytes;
    options.ways = shape.ways;
    options.schema = *run::Schema::parse(kFields, shape.indexed);
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    Rng rng(static_cast<uint64_t>(job.rank()) + 1);
    for (uint32_t epoch = 0; epoch < shape.epochs; ++epoch) {
      for (size_t i = 0; i < shape.records_per_rank; ++i) {
        std::string key;
        append_u64(&key, rng.below(50'000));
        const Status status = (*writer)->append(key, value_fn(rng));
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
      const Status status = (*writer)->epoch_end(epoch, epoch);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    const Status closed = (*writer)->close();
    EXPECT_TRUE(closed.ok()) << closed.to_string();
  });
}

std::unique_ptr<Reader> open(io::Device& device) {
  auto reader = Reader::open(device, kDir, {});
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  return std::move(*reader);
}

// What a scan says of a field: the records that have a number there, the best first.
struct Scanned {
  std::vector<std::tuple<run::OrderKey, std::string, std::string>> best_first;
  uint64_t nans = 0;
  uint64_t absent = 0;
};

void scan_field(Reader& reader, uint32_t epoch, const std::string& field, Extreme which, Scanned* scanned) {
  const run::FieldPlace place = *reader.manifest().schema.find(field);
  const Status status = reader.scan(epoch, [&](uint32_t, Bytes key, Bytes value) {
    const run::FieldValue number = run::read_field(place, value);
    if (number.kind == run::FieldValue::Kind::kNumber) {
      scanned->best_first.emplace_back(~run::score_of(which, number.key), key,
                                       value);  // the best is the least
    }
    scanned->nans += number.kind == run::FieldValue::Kind::kNan ? 1 : 0;
    scanned->absent += number.kind == run::FieldValue::Kind::kAbsent ? 1 : 0;
    return true;
  });
  ASSERT_TRUE(status.ok()) << status.to_string();
  std::sort(scanned->best_first.begin(), scanned->best_first.end());
}

// The numbers of the k best, and which records have them.
void check_top(Reader& reader, uint32_t epoch, const std::string& field, const Scanned& scanned, size_t k,
               Extreme which, TopResult* out = nullptr) {
  SCOPED_TRACE(fmt::format("epoch {}, the {} {} of {}", epoch, k,
                           which == Extreme::kLargest ? "largest" : "smallest", field));
  const auto& all = scanned.best_first;
  const auto top = reader.top(epoch, field, k, which);
  ASSERT_TRUE(top.ok()) << top.status().to_string();
  EXPECT_EQ(top->nans, scanned.nans);
  EXPECT_EQ(top->absent, scanned.absent);
  ASSERT_EQ(top->records.size(), std::min(k, all.size()));
  for (size_t i = 0; i < top->records.size(); ++i) {
    const TopResult::Record& record = top->records[i];
    ASSERT_EQ(run::score_of(which, record.number), ~std::get<0>(all[i])) << i;
    const auto mine = std::tuple(std::get<0>(all[i]), record.key, record.value);
    ASSERT_TRUE(std::binary_search(all.begin(), all.end(), mine)) << i;
    if (i > 0 && top->records[i - 1].number == record.number) {
      ASSERT_LE(top->records[i - 1].key, record.key);
    }
  }
  if (out != nullptr) *out = *top;
}

void check_top(Reader& reader, uint32_t epoch, const std::string& field, size_t k, Extreme which,
               TopResult* out = nullptr) {
  Scanned scanned;
  ASSERT_NO_FATAL_FAILURE(scan_field(reader, epoch, field, which, &scanned));
  check_top(reader, epoch, field, scanned, k, which, out);
}

void check_everything(io::Device& device, const Shape& shape) {
  const auto reader = open(device);
  for (uint32_t epoch = 0; epoch < shape.epochs; ++epoch) {
    for (const char* field : {"x", "id", "small", "v[1]"}) {
      for (const Extreme which : {Extreme::kLargest, Extreme::kSmallest}) {
        Scanned scanned;
        ASSERT_NO_FATAL_FAILURE(scan_field(*reader, epoch, field, which, &scanned));
        for (const size_t k : {1u, 10u, 200u}) check_top(*reader, epoch, field, scanned, k, which);
      }
    }
  }
  for (const Status& problem : verify_directory(*reader, 10).problems) ADD_FAILURE() << problem.to_string();
}

double uniform(Rng& rng) { return static_cast<double>(rng.next() >> 11) * 0x1p-53; }

TEST(Top, EqualsAScanForEveryShape) {
  const Shape shapes[] = {{},
                          {.ranks = 3},
                          {.ranks = 1, .ways = 3, .memory_bytes = 8 * kMiB},
                          {.ranks = 4, .ways = 2, .memory_bytes = 6 * kMiB, .epochs = 2},
                          {.ranks = 1, .records_per_rank = 60'000},
                          {.ranks = 2, .records_per_rank = 1},
                          {.ranks = 9, .records_per_rank = 3'000},
                          {.ranks = 3, .records_per_rank = 0}};
  for (const Shape& shape : shapes) {
    io::MemoryDevice device;
    write(device, shape, [](Rng& rng) { return value_of(uniform(rng), rng.next()); });
    check_everything(device, shape);
  }
}

TEST(Top, EqualsAScanForEveryDistribution) {
  const ValueFn distributions[] = {
      [](Rng& rng) { return value_of(-std::log(1 - uniform(rng)), rng.below(3)); },
      [](Rng& rng) { return value_of(rng.chance(1, 5'000) ? 1e300 : uniform(rng), ~rng.below(10)); },
      [](Rng& rng) { return value_of(rng.chance(1, 2) ? std::nan("") : -uniform(rng), 7); },
      [](Rng&) { return value_of(std::nan(""), 0); },
      [](Rng& rng) {
        return value_of(std::numeric_limits<double>::infinity() * (rng.chance(1, 2) ? 1 : -1),
                        (uint64_t{1} << 53) + rng.below(3));
      },
      [](Rng& rng) {
        return value_of(std::numeric_limits<double>::denorm_min() * static_cast<double>(rng.below(100)),
                        rng.next());
      },
      [](Rng& rng) { return value_of(rng.chance(1, 2) ? 0.0 : -0.0, rng.next()); }};
  for (const ValueFn& value : distributions) {
    io::MemoryDevice device;
    const Shape shape{.ranks = 2};
    write(device, shape, value);
    check_everything(device, shape);
  }
}

TEST(Top, EqualsAScanOfRecordsOfAllSizes) {
  io::MemoryDevice device;
  const Shape shape{.ranks = 2, .records_per_rank = 4'000};
  write(device, shape, [](Rng& rng) {
    return value_of(uniform(rng), rng.next(), rng.chance(1, 30) ? 3'000 + rng.below(13'000) : rng.below(60));
  });
  check_everything(device, shape);
}

TEST(Top, ReadsAboutTenBlocksOfTen) {
  io::MemoryDevice device;
  write(device, {.records_per_rank = 200'000}, [](Rng& rng) { return value_of(uniform(rng), rng.next()); });
  const auto reader = open(device);
  for (const char* field : {"x", "id"}) {
    TopResult top;
    check_top(*reader, 0, field, 10, Extreme::kLargest, &top);
    EXPECT_EQ(top.partitions_scanned, 0u);
    EXPECT_LE(top.blocks_read, 12u);
    EXPECT_LE(top.bytes_read, 100 * kKiB);
  }
  TopResult equal;
  check_top(*reader, 0, "small", 10, Extreme::kLargest, &equal);
  EXPECT_LE(equal.blocks_read, 12u) << "all equal";
  TopResult scanned;
  check_top(*reader, 0, "v[0]", 10, Extreme::kLargest, &scanned);
  EXPECT_EQ(scanned.partitions_scanned, 1u);
  EXPECT_GT(scanned.bytes_read, 9'000'000u);
}

TEST(Top, OpensOnlyPartitionsThatTheSummaryPromises) {
  io::MemoryDevice device;
  write(device, {.ranks = 16, .records_per_rank = 500},
        [](Rng& rng) { return value_of(uniform(rng), rng.next()); });
  TopResult one;
  check_top(*open(device), 0, "x", 1, Extreme::kLargest, &one);
  const auto fresh = open(device);
  const auto top = fresh->top(0, "x", 1, Extreme::kLargest);
  ASSERT_TRUE(top.ok());
  EXPECT_LE(top->reads, 5u) << "summary, footer, head, list, block";
  // Without it, or with a damaged one: the same answer, more reads.
  const std::string path = summary_log_path(kDir, 1);
  ASSERT_TRUE(device.open(path, io::OpenMode::kReadWrite).value()->pwrite(30, "?").ok());
  const auto damaged = open(device)->top(0, "x", 1, Extreme::kLargest);
  ASSERT_TRUE(damaged.ok()) << damaged.status().to_string();
  EXPECT_EQ(damaged->records[0].number, top->records[0].number);
  EXPECT_GE(damaged->reads, 34u);
  ASSERT_EQ(verify_directory(*open(device), 10).problems.size(), 1u);
  ASSERT_TRUE(device.remove(path).ok());
  EXPECT_EQ(open(device)->top(0, "x", 1, Extreme::kLargest)->records[0].number, top->records[0].number);
  const auto problems = verify_directory(*open(device), 10).problems;
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(std::string(problems[0].message()), HasSubstr(path));
}

TEST(Top, SaysWhatItCannotAnswer) {
  io::MemoryDevice device;
  write(device, {.records_per_rank = 10}, [](Rng&) { return value_of(1, 1); });
  const auto reader = open(device);
  const auto message = [&](int64_t epoch, std::string_view field, size_t k) {
    const auto top = reader->top(epoch, field, k, Extreme::kLargest);
    EXPECT_EQ(top.status().code(), Code::kInvalidArgument);
    return std::string(top.status().message());
  };
  EXPECT_THAT(message(0, "y", 1), HasSubstr("x, id, v[0..1], small"));
  EXPECT_THAT(message(0, "v", 1), HasSubstr("no field \"v\""));
  EXPECT_THAT(message(0, "x", 0), HasSubstr("expected 1 to"));
  EXPECT_THAT(message(0, "x", Reader::kTopMax + 1), HasSubstr("expected 1 to"));
  EXPECT_THAT(message(1, "x", 1), HasSubstr("no epoch 1"));
  EXPECT_THAT(message(Reader::kAllEpochs, "x", 1), HasSubstr("one epoch"));
  EXPECT_EQ(reader->top(0, "x", 100, Extreme::kLargest)->records.size(), 10u);
}

TEST(Top, ALaterJobKeepsTheSchemaAndMayNotChangeIt) {
  io::MemoryDevice device;
  const auto value = [](Rng& rng) { return value_of(uniform(rng), rng.next()); };
  write(device, {.ranks = 2, .records_per_rank = 1000}, value);
  const auto open_with = [&](std::string_view fields, std::string_view indexed) {
    Status status;
    run_ranks(1, [&](net::Job& job) {
      WriterOptions options;
      options.memory_bytes = 4 * kMiB;
      options.schema = *run::Schema::parse(fields, indexed);
      auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options);
      status = writer.status();
      if (!writer.ok()) return;
      ASSERT_TRUE((*writer)->append("12345678", value_of(5, 6)).ok());
      ASSERT_TRUE((*writer)->epoch_end(1, 1).ok());
      ASSERT_TRUE((*writer)->close().ok());
    });
    return status;
  };
  EXPECT_EQ(open_with(kFields, "x").code(), Code::kInvalidArgument);
  EXPECT_EQ(open_with("x:f4", "x").code(), Code::kInvalidArgument);
  ASSERT_TRUE(open_with("", "").ok());
  ASSERT_TRUE(open_with(kFields, "x;id;small").ok());
  const auto reader = open(device);
  for (uint32_t epoch = 0; epoch < 3; ++epoch) check_top(*reader, epoch, "x", 5, Extreme::kLargest);
  EXPECT_EQ(reader->top(2, "x", 5, Extreme::kLargest)->partitions_scanned, 0u);
  for (const Status& problem : verify_directory(*reader, 10).problems) ADD_FAILURE() << problem.to_string();
}

TEST(Top, WithoutASchemaThereIsNothingToAsk) {
  io::MemoryDevice device;
  run_ranks(1, [&](net::Job& job) {
    auto writer =
        Writer::open(job, device, kDir, Writer::Create::kIfMissing, {.memory_bytes = 4 * kMiB, .schema = {}});
    ASSERT_TRUE(writer.ok() && (*writer)->append("k", "v").ok() && (*writer)->epoch_end(0, 0).ok());
    ASSERT_TRUE((*writer)->close().ok());
  });
  const auto top = open(device)->top(0, "x", 1, Extreme::kLargest);
  EXPECT_EQ(top.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(top.status().message()), HasSubstr("without a schema"));
}

// The index log of partition 0 with its extrema segment.
struct IndexLog {
  std::unique_ptr<io::File> file;
  std::string bytes;
  run::GroupHead head;

  explicit IndexLog(io::Device& device) {
    file = device.open(index_log_path(kDir, {1, PartitionNumber(0)}), io::OpenMode::kReadWrite).value();
    bytes = *io::read_file(device, file->path(), kGiB);
    const auto footer = run::read_footer(*file, PartitionNumber(0));
    for (const run::SegmentRecord& segment : footer->segments) {
      if (!run::is_extrema_segment(segment)) continue;
      head = *run::decode_extrema_head(segment, PartitionNumber(0),
                                       Bytes(bytes).substr(segment.index_offset, segment.stride), "index");
    }
  }
};

TEST(TopDamage, EveryFlippedBitOfTheExtremaIsNoticedOrChangesNothing) {
  io::MemoryDevice device;
  write(device, {.records_per_rank = 300, .indexed = "x"},
        [](Rng& rng) { return value_of(uniform(rng), rng.next()); });
  const auto whole = open(device)->top(0, "x", 5, Extreme::kLargest);
  ASSERT_TRUE(whole.ok());
  IndexLog log(device);
  size_t noticed = 0;
  const uint64_t begin = log.head.segment.index_offset;
  for (uint64_t bit = begin * 8; bit < (begin + run::segment_bytes(log.head.segment)) * 8; ++bit) {
    const char flipped = static_cast<char>(log.bytes[bit / 8] ^ (1 << bit % 8));
    ASSERT_TRUE(log.file->pwrite(bit / 8, {&flipped, 1}).ok());
    const auto top = open(device)->top(0, "x", 5, Extreme::kLargest);
    if (top.ok()) {
      ASSERT_EQ(top->records.size(), 5u);
      for (size_t i = 0; i < 5; ++i) ASSERT_EQ(top->records[i].key, whole->records[i].key) << bit;
    } else {
      ASSERT_EQ(top.status().code(), Code::kCorruption);
      ASSERT_THAT(std::string(top.status().message()), HasSubstr("part-000000.j0001.index"));
      ++noticed;
    }
    ASSERT_TRUE(log.file->pwrite(bit / 8, {&log.bytes[bit / 8], 1}).ok());
  }
  EXPECT_GE(noticed, 8u * log.head.segment.stride);
}

// Canary: extrema whose checksums fit but that would hide a record.
TEST(TopDamage, VerifySeesABoundThatExcludesARecord) {
  io::MemoryDevice device;
  write(device, {.records_per_rank = 3000, .indexed = "x"},
        [](Rng& rng) { return value_of(1 + uniform(rng), 1); });
  IndexLog log(device);
  const run::SegmentRecord& segment = log.head.segment;
  const run::PiecePlace place = run::piece_place(log.head, 0, Extreme::kLargest, 0);
  const uint32_t seed =
      run::extrema_seed(PartitionNumber(0), segment, run::piece_part(0, Extreme::kLargest, 0));
  const auto rewrite = [&](std::string piece) {
    put_u32(piece.data(), crc32c_extend(seed, Bytes(piece).substr(4)));
    ASSERT_TRUE(log.file->pwrite(place.offset, piece).ok());
  };
  const std::string piece = log.bytes.substr(place.offset, place.bytes);
  const auto problems = [&] { return verify_directory(*open(device), 10).problems; };
  const uint32_t listed = log.head.fields[0].listed;
  ASSERT_GT(listed, 20u);
  rewrite(piece);
  ASSERT_TRUE(problems().empty());

  std::string lowered = piece;
  for (uint32_t i = 10; i < listed; ++i) put_u64(lowered.data() + 8 + 8 * i, 5);
  rewrite(lowered);
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_THAT(std::string(problems()[0].message()), HasSubstr("beyond the bound"));

  std::string doubled = piece;
  put_u16(doubled.data() + 8 + 8 * listed, get_u16(doubled.data() + 8 + 8 * listed + 2));
  rewrite(doubled);
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_THAT(std::string(problems()[0].message()), HasSubstr("twice"));
  rewrite(piece);

  std::string head = log.bytes.substr(segment.index_offset, segment.stride);
  put_u64(head.data() + sizeof(run::ExtremaHead) + offsetof(run::ExtremaField, nans), 3);
  put_u32(head.data(), crc32c_extend(run::extrema_seed(PartitionNumber(0), segment, run::kHeadPart),
                                     Bytes(head).substr(4)));
  ASSERT_TRUE(log.file->pwrite(segment.index_offset, head).ok());
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_THAT(std::string(problems()[0].message()), HasSubstr("3 NaN"));
}

TEST(TopDamage, VerifySeesASummaryOfAnotherEpoch) {
  io::MemoryDevice device;
  write(device, {.ranks = 2, .records_per_rank = 100, .epochs = 2},
        [](Rng& rng) { return value_of(uniform(rng), 1); });
  const auto reader = open(device);
  ASSERT_TRUE(verify_directory(*reader, 10).problems.empty());
  const EpochEntry first = reader->manifest().epochs[0];
  const ExtremaSummary other = *read_summary(device, kDir, reader->manifest().epochs[1]);
  const std::string bytes = other.encode_file(first.epoch_id);
  ASSERT_EQ(bytes.size(), first.summary.bytes);
  const auto file = device.open(summary_log_path(kDir, 1), io::OpenMode::kReadWrite).value();
  ASSERT_TRUE(file->pwrite(first.summary.offset, bytes).ok());
  const auto problems = verify_directory(*reader, 10).problems;
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(std::string(problems[0].message()), HasSubstr("not the summary"));
}

}  // namespace
}  // namespace swale::imd::reader_top_test
