// Values that are too large for records, written by the writer with its threads and read in every way there
// is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "imd/testing/test_large.h"

namespace swale::imd::writer_large_test {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): its names are all that this file is about
using testing::HasSubstr;

class LargeValuesIn : public InFormat {};
INSTANTIATE_TEST_SUITE_P(Formats, LargeValuesIn, kFormats, name_of);

// Where anything changes: varints, rows, blocks, records, pieces, single reads, parts of writes.
constexpr size_t kBorders[] = {0,
                               1,
                               8,
                               11,
                               12,
                               13,
                               4'060,
                               4'072,
                               4'073,
                               127,
                               128,
                               1'020,
                               4'080,
                               kLimit - 1,
                               kLimit,
                               kLimit + 1,
                               kPiece - 1,
                               kPiece,
                               kPiece + 1,
                               2 * kPiece,
                               256 * kKiB,
                               kMiB + 1,
                               3 * kMiB + 12'345};

TEST_P(LargeValuesIn, OfAllSizesAtAllBordersFromAllRanks) {
  uint64_t values = 0;
  for (const int32_t ranks : {1, 2, 5}) {
    io::MemoryDevice device;
    std::vector<Contents> expected(3);
    std::mutex mutex;
    const auto fill = [&](net::Job& job, Writer& writer, uint32_t epoch) {
      const auto rank = static_cast<uint64_t>(job.rank());
      uint64_t number = rank * 1000 + epoch * 100;
      if (epoch == 1 && rank == 0) return;  // has no large ones
      for (const size_t bytes : kBorders) {
        const std::string key = fmt::format("{}/{}", key_of(bytes), rank);
        for (const std::string& value : {value_of(++number, bytes), value_of(++number, 10)}) {
          append(writer, key, value);
          const std::lock_guard lock(mutex);
          expected[epoch][key].push_back(value);
          ++values;
        }
      }
    };
    write(device, ranks, 3, fill, options_of(GetParam()));
    const auto reader = open(device);
    ASSERT_TRUE(reader);
    ASSERT_EQ(reader->manifest().epochs.size(), 3u);
    for (uint32_t epoch = 0; epoch < 3; ++epoch) {
      expect_contents(*reader, epoch, expected[epoch]);
      LargeTally large;
      for (const auto& [key, of] : expected[epoch]) {
        for (const std::string& value : of) {
          if (lies_elsewhere(GetParam(), value)) large.add({1, value.size()});
        }
      }
      EXPECT_EQ(reader->manifest().epochs[epoch].large, large);
    }
    expect_whole(*reader);
  }
  std::printf("%llu values\n", static_cast<unsigned long long>(values));
}

TEST_P(LargeValuesIn, OfSeveralThreadsKeepEachThreadsOrder) {
  constexpr uint64_t kThreads = 3;
  constexpr uint64_t kEach = 40;
  io::MemoryDevice device;
  const auto fill = [&](net::Job& job, Writer& writer, uint32_t) {
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, writer_number = static_cast<uint64_t>(job.rank()) * kThreads + t] {
        for (uint64_t i = 0; i < kEach; ++i)
          append(writer, "one key", value_of(writer_number << 32 | i, i % 3 == 0 ? 20'000 + i * 997 : 30));
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  write(device, 2, 1, fill, options_of(GetParam()));
  const auto reader = open(device);
  const auto values = reader->get("one key", 0);
  ASSERT_TRUE(values.ok());
  ASSERT_EQ(values->size(), 2 * kThreads * kEach);
  std::map<uint64_t, uint64_t> next;
  for (const Value& value : *values) {
    const uint64_t stamp = get_u64(value.bytes.data());
    EXPECT_EQ(stamp & 0xffffffff, next[stamp >> 32]++);
    EXPECT_TRUE(value.bytes == value_of(stamp, value.bytes.size()));
  }
  expect_whole(*reader);
}

// An epoch's end may begin while another thread appends: a value and its record are of one epoch.
TEST_P(LargeValuesIn, BesideTheEndOfAnEpoch) {
  constexpr uint64_t kValues = 60;
  io::MemoryDevice device;
  run_ranks(2, [&](net::Job& job) {
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options_of(GetParam()));
    ASSERT_TRUE(writer.ok());
    const auto rank = static_cast<uint64_t>(job.rank());
    std::thread appender([&] {
      for (uint64_t i = 0; i < kValues; ++i) append(**writer, key_of(i), value_of(rank << 32 | i, 30'000));
    });
    for (int64_t epoch = 0; epoch < 5; ++epoch) ASSERT_TRUE((*writer)->epoch_end(epoch, 0).ok());
    appender.join();
    ASSERT_TRUE((*writer)->epoch_end(5, 0).ok());
    ASSERT_TRUE((*writer)->close().ok());
  });
  const auto reader = open(device);
  expect_whole(*reader);
  for (uint64_t i = 0; i < kValues; ++i) {
    const auto values = reader->get(key_of(i), Reader::kAllEpochs);
    ASSERT_TRUE(values.ok());
    EXPECT_EQ(values->size(), 2u);
  }
}

TEST_P(LargeValuesIn, AreReadInParts) {
  io::MemoryDevice device;
  const std::string value = value_of(1, 5 * kPiece + 777);
  const auto fill = [&](net::Job&, Writer& writer, uint32_t) {
    append(writer, "k", "small");
    append(writer, "k", value);
  };
  write(device, 1, 1, fill, options_of(GetParam()));
  const auto reader = open(device);
  const auto found = reader->find("k", 0);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].bytes, 5u);
  EXPECT_EQ((*found)[1].bytes, value.size());
  Rng rng(1);
  for (int i = 0; i < 2'000; ++i) {
    const uint64_t first = rng.below(value.size() + 1);
    std::string part(rng.chance(1, 3) ? value.size() - first : rng.below(value.size() - first + 1), '\0');
    const Status status = reader->read("k", (*found)[1], first, part);
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(part == value.substr(first, part.size())) << first << " " << part.size();
  }
  std::string part(2, '\0');
  EXPECT_EQ(reader->read("k", (*found)[1], value.size() - 1, part).code(), Code::kInvalidArgument);
  EXPECT_TRUE(reader->read("k", (*found)[0], 3, part).ok());
  EXPECT_EQ(part, "ll");
}

TEST_P(LargeValuesIn, HaveTheirFieldsAmongTheBest) {
  const auto schema = run::Schema::parse("id:u8;x:f8;pad:u1x4096;y:f4;_:*", "x;y");
  ASSERT_TRUE(schema.ok());
  for (const int32_t ranks : {1, 3}) {
    io::MemoryDevice device;
    WriterOptions options = options_of(GetParam());
    options.schema = *schema;
    const auto value = [](uint64_t i) {
      std::string bytes = value_of(i, i % 2 == 0 ? 20'000 + i : 5'000);
      put_fixed(bytes.data() + 8, static_cast<double>(i % 100 * 100 + i / 100));
      put_fixed(bytes.data() + 16 + 4096, static_cast<float>(i) * -1.0f);
      return bytes;
    };
    write(
        device, ranks, 1,
        [&](net::Job& job, Writer& writer, uint32_t) {
          for (uint64_t i = 0; i < 200; ++i) {
            if (i % static_cast<uint64_t>(ranks) == static_cast<uint64_t>(job.rank()))
              append(writer, key_of(i), value(i));
          }
        },
        options);
    const auto reader = open(device);
    expect_whole(*reader);
    for (const char* field : {"x", "y", "id"}) {
      const auto top = reader->top(0, field, 9, run::Extreme::kSmallest);
      ASSERT_TRUE(top.ok()) << top.status().to_string();
      ASSERT_EQ(top->records.size(), 9u);
      EXPECT_EQ(top->absent, 0u);
      for (uint64_t i = 0; i < 9; ++i) {
        const uint64_t expected = field[0] == 'x' ? i % 2 * 100 + i / 2 : field[0] == 'y' ? 199 - i : i;
        EXPECT_EQ(top->records[i].key, key_of(expected)) << field;
        EXPECT_TRUE(top->records[i].value == value(expected)) << field;
      }
      EXPECT_EQ(top->partitions_scanned == 0, field[0] != 'i');
    }
  }
}

// Without large values nothing is different: no value log, no feature.
TEST(LargeValues, LeaveNoTraceWhereThereAreNone) {
  io::MemoryDevice device;
  const auto small = [](net::Job&, Writer& writer, uint32_t) {
    append(writer, "k", std::string(kLimit, 'v'));
  };
  write(device, 1, 1, small);
  const std::string json = io::read_file(device, manifest_path(kDir), kMiB).value();
  EXPECT_THAT(json, HasSubstr("\"incompatible_features\":[]"));
  EXPECT_THAT(json, testing::Not(HasSubstr("large")));
  EXPECT_FALSE(device.exists(value_log_path(kDir, {1, PartitionNumber(0)})).value());
  const auto features = [&](uint32_t job) {
    const std::string index =
        io::read_file(device, index_log_path(kDir, {job, PartitionNumber(0)}), kMiB).value();
    return get_u32(index.data() + index.size() - sizeof(run::FooterTrailer) + 12);
  };
  EXPECT_EQ(features(1), 0u);
  write(device, 1, 1,
        [](net::Job&, Writer& writer, uint32_t) { append(writer, "k", value_of(1, kLimit + 1)); });
  EXPECT_EQ(features(2), 1u) << "builds that know no large values refuse what they do not know";
  WriterOptions back;
  back.resume_after = -1;
  write(device, 1, 1, small, back);
  EXPECT_EQ(features(3), 0u);
}

TEST_P(LargeValuesIn, BeyondTheLimitAreRefusedAndNothingIsDone) {
  io::MemoryDevice device;
  const auto fill = [](net::Job&, Writer& writer, uint32_t) {
    const Bytes huge("", run::kLargeValueBytesMax + 1);  // not looked at
    EXPECT_EQ(writer.append("k", huge).code(), Code::kInvalidArgument);
    EXPECT_EQ(writer.append("", value_of(1, 20'000)).code(), Code::kInvalidArgument);
    EXPECT_EQ(writer.append(std::string(256, 'k'), value_of(1, 20'000)).code(), Code::kInvalidArgument);
    append(writer, "k", "v");
  };
  write(device, 1, 1, fill, options_of(GetParam()));
  expect_whole(*open(device));
}

// Jobs of 3, 1, 4 and 2 ranks, epochs that are dropped, epochs that are never ended.
TEST_P(LargeValuesIn, OfJobsOfOtherSizesAndAfterGoingBack) {
  io::MemoryDevice device;
  std::vector<Contents> expected;
  std::mutex mutex;
  uint64_t seed = 0;
  const auto job_of = [&](int32_t ranks, uint32_t epochs, bool torn, std::optional<int64_t> back) {
    if (back) expected.resize(static_cast<size_t>(*back) + 1);
    const size_t first = expected.size();
    WriterOptions options = options_of(GetParam());
    options.resume_after = back;
    const uint64_t job_seed = ++seed;
    expected.resize(first + epochs);
    run_ranks(ranks, [&](net::Job& job) {
      auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options);
      ASSERT_TRUE(writer.ok()) << writer.status().to_string();
      for (uint32_t epoch = 0; epoch < epochs + (torn ? 1 : 0); ++epoch) {
        for (uint64_t i = 0; i < 5; ++i) {
          const std::string key = fmt::format("{}/{}", key_of(i), job.rank());
          const std::string value = value_of(job_seed << 32 | epoch << 8 | i, i % 2 == 0 ? 10 : 30'000 * i);
          append(**writer, key, value);
          if (epoch == epochs) continue;
          const std::lock_guard lock(mutex);
          expected[first + epoch][key].push_back(value);
        }
        if (epoch == epochs) break;
        ASSERT_TRUE((*writer)->epoch_end(static_cast<int64_t>(first + epoch), 0).ok());
      }
      EXPECT_EQ((*writer)->close().ok(), !torn);
    });
    const auto reader = open(device);
    ASSERT_EQ(reader->manifest().epochs.size(), expected.size());
    for (uint32_t epoch = 0; epoch < expected.size(); ++epoch)
      expect_contents(*reader, epoch, expected[epoch]);
    expect_whole(*reader);
  };
  job_of(3, 2, true, {});
  job_of(1, 1, true, {});
  job_of(4, 2, false, {});
  job_of(2, 1, true, 1);
  job_of(4, 1, false, {});
  job_of(1, 1, false, -1);
  job_of(3, 2, false, {});
}

}  // namespace
}  // namespace swale::imd::writer_large_test
