#include "imd/read/reader.h"
#include "imd/check/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "imd/testing/test_directory.h"
#include "io/memory_device.h"
#include "io/posix_device.h"

namespace swale::imd::reader_test {
namespace {

using test::Model;
using test::numbered_records;
using test::Records;
using test::TestDirectory;
using test::text_key;
using testing::HasSubstr;

const std::string kDir = "/dir";

std::unique_ptr<Reader> open_reader(io::Device& device, const ReaderOptions& options = {}) {
  auto reader = Reader::open(device, kDir, options);
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  return reader.ok() ? std::move(*reader) : nullptr;
}

// All that a reader says against all that was written.
void expect_model(Reader& reader, const TestDirectory& written, uint64_t keys_missing_from) {
  ASSERT_EQ(reader.manifest().epochs.size(), written.models.size());
  Model trajectories;
  for (uint32_t epoch = 0; epoch < written.models.size(); ++epoch) {
    Model scanned;
    uint64_t records = 0;
    const Status status = reader.scan(epoch, [&](uint32_t e, Bytes key, Bytes value) {
      EXPECT_EQ(e, epoch);
      scanned[std::string(key)].emplace_back(value);
      ++records;
      return true;
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(scanned, written.models[epoch]);
    EXPECT_EQ(*reader.count(epoch), records);
    for (const auto& [key, values] : written.models[epoch]) {
      const auto found = reader.get(key, epoch);
      ASSERT_TRUE(found.ok()) << key << ": " << found.status().to_string();
      std::vector<std::string> bytes;
      for (const Value& value : *found) {
        EXPECT_EQ(value.epoch, epoch);
        bytes.push_back(value.bytes);
      }
      ASSERT_EQ(bytes, values) << key;
      for (const std::string& value : values) trajectories[key].push_back(fmt::format("{}:{}", epoch, value));
    }
  }
  std::vector<std::string> keys;
  for (const auto& [key, values] : trajectories) {
    const auto found = reader.get(key, Reader::kAllEpochs);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    std::vector<std::string> bytes;
    for (const Value& value : *found) bytes.push_back(fmt::format("{}:{}", value.epoch, value.bytes));
    ASSERT_EQ(bytes, values) << key;
    keys.push_back(key);
  }
  for (uint64_t i = keys_missing_from; i < keys_missing_from + 100; ++i) {
    EXPECT_EQ(reader.get(text_key(i), Reader::kAllEpochs).status().code(), Code::kNotFound);
    keys.push_back(text_key(i));
  }
  std::vector<Bytes> views(keys.begin(), keys.end());
  Model batch;
  const auto found =
      reader.get_many(views, Reader::kAllEpochs, [&](size_t index, uint32_t epoch, Bytes value) {
        batch[keys[index]].push_back(fmt::format("{}:{}", epoch, value));
        return true;
      });
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(*found, trajectories.size());
  for (auto* model : {&batch, &trajectories}) {
    for (auto& [key, values] : *model) std::sort(values.begin(), values.end());
  }
  EXPECT_EQ(batch, trajectories);
  const VerifyReport report = verify_directory(reader, 10);
  for (const Status& problem : report.problems) ADD_FAILURE() << problem.to_string();
  EXPECT_EQ(report.records, *reader.count(Reader::kAllEpochs));
}

struct Shape {
  const char* name;
  int32_t ranks;
  uint32_t ways;
  size_t records;
  uint64_t keys;
  size_t value_bytes_max;
  bool uniform;
  size_t records_per_run;
  size_t runs_per_segment;
};
class ReaderShapes : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, ReaderShapes,
                         testing::Values(Shape{"OnePartition", 1, 1, 3'000, 1'000, 60, false, 10'000, 9},
                                         Shape{"Uniform", 3, 1, 6'000, 6'000, 0, true, 500, 9},
                                         Shape{"WaysAndGroups", 2, 3, 6'000, 2'000, 100, false, 150, 2},
                                         Shape{"LargeValues", 2, 1, 150, 40, 16'384, false, 60, 2},
                                         Shape{"HotKeys", 2, 2, 12'000, 3, 20, false, 900, 3},
                                         Shape{"FewRecords", 8, 2, 5, 5, 5, false, 10, 1}),
                         [](const auto& shape) { return shape.param.name; });

TEST_P(ReaderShapes, AnswersLikeTheModel) {
  const Shape shape = GetParam();
  io::MemoryDevice device;
  TestDirectory written(device, kDir);
  written.begin_job(shape.ranks, shape.ways);
  Rng rng(7);
  for (int epoch = 0; epoch < 3; ++epoch) {
    const size_t count = epoch == 1 ? 0 : shape.records;  // an empty epoch between two others
    written.write_epoch(
        numbered_records(rng, count, shape.keys, shape.value_bytes_max, shape.uniform),
        {.records_per_run = shape.records_per_run, .runs_per_segment = shape.runs_per_segment});
  }
  expect_model(*open_reader(device), written, shape.keys);
  // One block at a time, one read at a time.
  expect_model(*open_reader(device, {.reads_in_flight_max = 1, .scan_chunk_bytes = 4096}), written,
               shape.keys);
}

TEST(Reader, FollowsAKeyThroughJobsOfDifferentSizes) {
  io::MemoryDevice device;
  TestDirectory written(device, kDir);
  Rng rng(1);
  for (const auto& [ranks, ways] : {std::pair{3, 1u}, {5, 2u}, {1, 1u}}) {
    written.begin_job(ranks, ways);
    for (int epoch = 0; epoch < 2; ++epoch) written.write_epoch(numbered_records(rng, 2'000, 700, 30));
  }
  expect_model(*open_reader(device), written, 700);
}

TEST(Reader, IgnoresWhatWasNeverCommitted) {
  io::MemoryDevice device;
  TestDirectory written(device, kDir);
  written.begin_job(2);
  Rng rng(2);
  const TestDirectory::Shape lost{.fate = TestDirectory::Shape::kUncommitted};
  const auto some = [&] { return numbered_records(rng, 500, 100, 30); };
  written.write_epoch(some(), lost);  // before anything was committed
  EXPECT_EQ(open_reader(device)->get(text_key(1), Reader::kAllEpochs).status().code(), Code::kNotFound);
  written.write_epoch(some());
  written.write_epoch(some(), lost);  // a crash, then another try at epoch 1
  written.write_epoch(some());
  written.write_epoch(some(), lost);  // the writer is just at it
  expect_model(*open_reader(device), written, 100);
}

TEST(Reader, LooksBehindATornTail) {
  io::MemoryDevice device;
  TestDirectory written(device, kDir);
  written.begin_job(2);
  Rng rng(3);
  written.write_epoch(numbered_records(rng, 500, 100, 30));
  for (const std::string& path :
       {index_log_path(kDir, {1, PartitionNumber(0)}), data_log_path(kDir, {1, PartitionNumber(1)}),
        index_log_path(kDir, {1, PartitionNumber(1)})}) {
    auto file = device.open(path, io::OpenMode::kReadWrite).value();
    const std::string torn(10'000, '\xa5');
    ASSERT_TRUE(file->pwrite(*file->size(), torn).ok());
  }
  expect_model(*open_reader(device), written, 100);
}

TEST(Reader, TellsEmptyFromMissing) {
  io::MemoryDevice device;
  TestDirectory written(device, kDir);
  written.begin_job(2);
  written.write_epoch({{"empty", ""}});
  written.write_epoch({{"other", "x"}});
  const auto reader = open_reader(device);
  ASSERT_EQ(reader->get("empty", 0)->size(), 1u);
  EXPECT_EQ(reader->get("empty", 0)->front().bytes, "");
  EXPECT_EQ(reader->get("empty", 1).status().code(), Code::kNotFound);
  EXPECT_EQ(reader->get("none", Reader::kAllEpochs).status().code(), Code::kNotFound);
}

TEST(Reader, RefusesWhatMakesNoSense) {
  io::MemoryDevice device;
  EXPECT_EQ(Reader::open(device, kDir, {}).status().code(), Code::kNotFound);
  EXPECT_THAT(std::string(Reader::open(device, kDir, {}).status().message()), HasSubstr(kDir));
  TestDirectory written(device, kDir);
  written.begin_job(2);
  written.write_epoch({{"a", "1"}});
  for (const ReaderOptions& options :
       {ReaderOptions{0, 4096}, ReaderOptions{1, 4095}, ReaderOptions{1, 2 * kGiB}}) {
    EXPECT_EQ(Reader::open(device, kDir, options).status().code(), Code::kInvalidArgument);
  }
  const auto reader = open_reader(device);
  const auto yes = [](auto&&...) { return true; };
  for (const int64_t epoch : {int64_t{-2}, int64_t{1}, int64_t{1} << 40}) {
    EXPECT_EQ(reader->get("a", epoch).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(reader->scan(epoch, yes).code(), Code::kInvalidArgument);
    EXPECT_EQ(reader->count(epoch).status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(reader->get("", 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(reader->get(std::string(256, 'k'), 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(reader->scan_pieces(EpochNumber(0), PartitionNumber(2), 1).status().code(),
            Code::kInvalidArgument);
  const std::vector<Bytes> keys{"a", ""};
  EXPECT_THAT(std::string(reader->get_many(keys, 0, yes).status().message()), HasSubstr("key 1"));
}

TEST(Reader, StaysWithTheEpochsOfItsOpening) {
  io::MemoryDevice device;
  TestDirectory written(device, kDir);
  written.begin_job(1);
  written.write_epoch({{"a", "1"}});
  const auto early = open_reader(device);
  written.write_epoch({{"a", "2"}});
  EXPECT_EQ(early->get("a", Reader::kAllEpochs)->size(), 1u);
  EXPECT_EQ(open_reader(device)->get("a", Reader::kAllEpochs)->size(), 2u);
}

TEST(Reader, StopsWhereItIsTold) {
  io::MemoryDevice device;
  TestDirectory written(device, kDir);
  written.begin_job(3);
  Rng rng(4);
  for (int epoch = 0; epoch < 2; ++epoch) written.write_epoch(numbered_records(rng, 900, 300, 10));
  const auto reader = open_reader(device);
  for (const int limit : {1, 2, 250, 901}) {
    int seen = 0;
    ASSERT_TRUE(reader->scan(Reader::kAllEpochs, [&](auto&&...) { return ++seen < limit; }).ok());
    EXPECT_EQ(seen, limit);
    std::vector<std::string> keys;
    for (uint64_t i = 0; i < 300; ++i) keys.push_back(text_key(i));
    const std::vector<Bytes> views(keys.begin(), keys.end());
    seen = 0;
    ASSERT_TRUE(reader->get_many(views, Reader::kAllEpochs, [&](auto&&...) { return ++seen < limit; }).ok());
    EXPECT_EQ(seen, limit);
  }
}

TEST(Reader, AnswersEveryCopyOfARepeatedKey) {
  io::MemoryDevice device;
  TestDirectory written(device, kDir);
  written.begin_job(2);
  written.write_epoch({{"a", "1"}, {"b", "2"}, {"a", "3"}});
  const auto reader = open_reader(device);
  const std::vector<Bytes> keys{"a", "none", "a", "b", "none"};
  std::multimap<size_t, std::string> got;
  const auto found = reader->get_many(keys, 0, [&](size_t index, uint32_t, Bytes value) {
    got.emplace(index, value);
    return true;
  });
  EXPECT_EQ(*found, 3u);
  EXPECT_EQ(got, (std::multimap<size_t, std::string>{{0, "1"}, {0, "3"}, {2, "1"}, {2, "3"}, {3, "2"}}));
}

// The promise of the design: three dependent reads cold, two once the footer is there, and few bytes.
TEST(Reader, ReadsAsLittleAsTheDesignSays) {
  io::MemoryDevice device;
  TestDirectory written(device, kDir);
  written.begin_job(1);
  Rng rng(5);
  for (int epoch = 0; epoch < 5; ++epoch) {
    written.write_epoch(numbered_records(rng, 30'000, 1'000'000'000, 0, true), {.records_per_run = 10'000});
  }
  const std::string key = written.models[0].begin()->first;
  const auto reader = open_reader(device);
  ASSERT_TRUE(reader->get(key, 0).ok());
  const ReadStats cold = reader->stats();
  EXPECT_EQ(cold.depth_max, 3u);
  EXPECT_EQ(cold.queries, 1u);
  EXPECT_EQ(cold.reads, 3u + cold.false_candidates);
  EXPECT_LE(cold.bytes_read, 4096u + 16'384u + 4096u * (1 + cold.false_candidates));
  ASSERT_TRUE(reader->get(key, Reader::kAllEpochs).ok());
  const ReadStats warm = reader->stats();
  EXPECT_LE(warm.reads - cold.reads, 5u + 1u + warm.false_candidates);  // five slices, the block, no footer
  EXPECT_LE(warm.bytes_read - cold.bytes_read, 5u * 16'384u + 4096u * (1 + warm.false_candidates));
  EXPECT_EQ(warm.depth_max, 3u);

  const auto second = open_reader(device);
  EXPECT_EQ(second->get("absent", 0).status().code(), Code::kNotFound);  // footer and slice
  EXPECT_EQ(second->stats().depth_max, 2u + (second->stats().false_candidates > 0 ? 1u : 0u));
}

TEST(Reader, ReadsSlicesAndBlocksOncePerBatch) {
  io::MemoryDevice device;
  TestDirectory written(device, kDir);
  written.begin_job(2);
  Rng rng(6);
  written.write_epoch(numbered_records(rng, 20'000, 1'000'000'000, 0, true), {.records_per_run = 5'000});
  std::vector<Bytes> keys;
  for (const auto& [key, values] : written.models[0]) keys.push_back(key);
  const auto reader = open_reader(device);
  EXPECT_EQ(*reader->get_many(keys, 0, [](auto&&...) { return true; }), keys.size());
  uint64_t stored = 0;
  for (uint32_t p = 0; p < 2; ++p) {
    for (const std::string& path :
         {data_log_path(kDir, {1, PartitionNumber(p)}), index_log_path(kDir, {1, PartitionNumber(p)})}) {
      stored += *device.open(path, io::OpenMode::kRead).value()->size();
    }
  }
  // Each partition's footer is found in the last page of its index log, which has slices as well.
  EXPECT_LE(reader->stats().bytes_read, stored + 2 * run::kIndexPageBytes)
      << "everything was asked for, and nothing read twice";
  EXPECT_LE(reader->stats().reads, 40u);
}

TEST(Reader, ManyThreadsShareOne) {
  io::MemoryDevice device;
  TestDirectory written(device, kDir);
  Rng rng(8);
  for (const int32_t ranks : {150, 170}) {  // more partitions than stay open
    written.begin_job(ranks);
    written.write_epoch(numbered_records(rng, 3'000, 800, 20));
  }
  const auto reader = open_reader(device);
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      Rng own(thread);
      for (int i = 0; i < 500; ++i) {
        const std::string key = text_key(own.below(800));
        for (uint32_t epoch = 0; epoch < 2; ++epoch) {
          const auto model = written.models[epoch].find(key);
          const auto values = reader->get(key, epoch);
          ASSERT_EQ(values.ok(), model != written.models[epoch].end());
          if (values.ok()) {
            ASSERT_EQ(values->size(), model->second.size());
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(reader->stats().queries, 4'000u);
}

TEST(Reader, FindsSegmentsOfHundredsOfEpochs) {
  io::MemoryDevice device;
  TestDirectory written(device, kDir);
  written.begin_job(1);
  for (int epoch = 0; epoch < 300; ++epoch) written.write_epoch({{"a", std::to_string(epoch)}});
  const auto reader = open_reader(device);
  const auto values = reader->get("a", Reader::kAllEpochs);
  ASSERT_EQ(values->size(), 300u);
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ((*values)[i].bytes, std::to_string(i));
  EXPECT_EQ(reader->stats().depth_max, 4u) << "the footer has older pages: one step more";
}

// On a real file system, mapped and not.
class ReaderOnFiles : public testing::TestWithParam<ReaderOptions::Map> {
 protected:
  ReaderOnFiles()
      : directory_(testing::TempDir() +
                   fmt::format("swale-reader-{}-{}", getpid(), static_cast<int>(GetParam()))),
        written_(device_, directory_) {}
  ~ReaderOnFiles() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  std::unique_ptr<Reader> open(size_t reads_in_flight_max = 64) {
    auto reader =
        Reader::open(device_, directory_, {.reads_in_flight_max = reads_in_flight_max, .map = GetParam()});
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    return reader.ok() ? std::move(*reader) : nullptr;
  }

  io::PosixDevice device_;
  const std::string directory_;
  TestDirectory written_;
};
INSTANTIATE_TEST_SUITE_P(, ReaderOnFiles,
                         testing::Values(ReaderOptions::Map::kAuto, ReaderOptions::Map::kNever),
                         [](const auto& map) {
                           return map.param == ReaderOptions::Map::kAuto ? "Mapped" : "Read";
                         });

TEST_P(ReaderOnFiles, AnswersLikeTheModel) {
  Rng rng(9);
  written_.begin_job(2, 2);
  written_.write_epoch(numbered_records(rng, 4'000, 500, 50),
                       {.records_per_run = 300, .runs_per_segment = 2});
  written_.begin_job(3);
  written_.write_epoch(numbered_records(rng, 6'000, 3, 20), {.records_per_run = 900});  // slices overflow
  written_.write_epoch(numbered_records(rng, 200, 500, 16'000), {.records_per_run = 60});
  expect_model(*open(), written_, 500);
  expect_model(*open(1), written_, 500);
}

TEST_P(ReaderOnFiles, SaysTheSameOfBytesAndDepthHoweverItReads) {
  Rng rng(10);
  written_.begin_job(1);
  for (int epoch = 0; epoch < 5; ++epoch) written_.write_epoch(numbered_records(rng, 3'000, 3'000, 0, true));
  const auto reader = open();
  const std::string key = written_.models[0].begin()->first;
  ASSERT_TRUE(reader->get(key, Reader::kAllEpochs).ok());
  const ReadStats first = reader->stats();
  EXPECT_EQ(first.depth_max, 3u);
  ASSERT_TRUE(reader->get(key, Reader::kAllEpochs).ok());
  const ReadStats second = reader->stats();
  EXPECT_EQ(second.depth_max, 3u);
  EXPECT_EQ(second.reads - first.reads, first.reads - 1) << "all but the footer";
  const uint64_t last_page = 2 * first.bytes_read - second.bytes_read;
  EXPECT_GE(last_page, sizeof(run::FooterTrailer));
  EXPECT_LE(last_page, run::kIndexPageBytes);
}

TEST_P(ReaderOnFiles, AnswersMoreLookupsThanMayBeInFlight) {
  Rng rng(11);
  written_.begin_job(1);
  for (int epoch = 0; epoch < 300; ++epoch) {  // also more than are asked for eagerly
    written_.write_epoch({{"a", std::to_string(epoch)}, {"b", "x"}});
  }
  for (const size_t reads_in_flight_max : {1, 7, 64, 65'536}) {
    const auto reader = open(reads_in_flight_max);
    const auto values = reader->get("a", Reader::kAllEpochs);
    ASSERT_TRUE(values.ok()) << values.status().to_string();
    ASSERT_EQ(values->size(), 300u);
    for (size_t i = 0; i < 300; ++i) EXPECT_EQ((*values)[i].bytes, std::to_string(i));
  }
}

TEST_P(ReaderOnFiles, AFileThatIsReplacedStaysAsItWasForWhoHasItOpen) {
  written_.begin_job(1);
  written_.write_epoch({{"a", "1"}});
  const auto reader = open();
  ASSERT_TRUE(reader->get("a", 0).ok());
  const std::string path = data_log_path(directory_, {1, PartitionNumber(0)});
  const auto other = device_.open(path + ".new", io::OpenMode::kCreate).value();
  ASSERT_TRUE(other->pwrite(0, std::string(4096, 'z')).ok());
  ASSERT_TRUE(device_.rename(path + ".new", path).ok());
  EXPECT_EQ(reader->get("a", 0)->front().bytes, "1");
  EXPECT_EQ(open()->get("a", 0).status().code(), Code::kCorruption);
}

TEST_P(ReaderOnFiles, ManyThreadsShareOne) {
  Rng rng(12);
  written_.begin_job(3);
  for (int epoch = 0; epoch < 2; ++epoch) written_.write_epoch(numbered_records(rng, 3'000, 800, 20));
  const auto reader = open();
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 20; ++thread) {  // more than the reader keeps queries for
    threads.emplace_back([&, thread] {
      Rng own(thread);
      for (int i = 0; i < 100; ++i) {
        std::vector<std::string> keys;
        for (int k = 0; k < 30; ++k) keys.push_back(text_key(own.below(900)));
        const auto values = reader->get(keys[0], 1);
        const auto model = written_.models[1].find(keys[0]);
        ASSERT_EQ(values.ok(), model != written_.models[1].end());
        if (values.ok()) {
          ASSERT_EQ(values->size(), model->second.size());
        }
        const std::vector<Bytes> views(keys.begin(), keys.end());
        size_t wrong = 0;
        ASSERT_TRUE(reader
                        ->get_many(views, 0,
                                   [&](size_t index, uint32_t, Bytes value) {
                                     const auto& expected = written_.models[0].at(keys[index]);
                                     wrong += std::count(expected.begin(), expected.end(), value) > 0 ? 0 : 1;
                                     return true;
                                   })
                        .ok());
        ASSERT_EQ(wrong, 0u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ReaderOnFiles, BatchesBeyondWhatIsHeldAtOnce) {
  Rng rng(13);
  written_.begin_job(2, 2);
  for (int epoch = 0; epoch < 2; ++epoch) {
    written_.write_epoch(numbered_records(rng, 60'000, 1'000'000'000, 0, true), {.records_per_run = 20'000});
  }
  std::vector<Bytes> keys;
  for (const auto& [key, values] : written_.models[1]) keys.push_back(key);
  ASSERT_GT(keys.size(), 50'000u);
  size_t wrong = 0;
  const auto found = open()->get_many(keys, 1, [&](size_t index, uint32_t, Bytes value) {
    wrong += written_.models[1].at(std::string(keys[index])).front() == value ||
                     written_.models[1].at(std::string(keys[index])).size() > 1
                 ? 0
                 : 1;
    return true;
  });
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(*found, keys.size());
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace swale::imd::reader_test
