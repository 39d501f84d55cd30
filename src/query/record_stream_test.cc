#include "query/record_stream.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/test_threads.h"
#include "imd/testing/test_directory.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::query::record_stream_test {
namespace {

using testing::HasSubstr;

std::string number_key(uint64_t number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof number);
}

struct Particle {
  double x;
  float v[3];
  uint32_t id;
};

// Two jobs of 3 and 2 ranks, two epochs each, many runs; keys are numbers.
class RecordStreamTest : public testing::Test {
 protected:
  static constexpr uint64_t kRecords = 3'000;  // of each epoch

  RecordStreamTest() : directory_(device_, "dir") {
    directory_.manifest.schema = *run::Schema::parse("x:f8:m;v:f4x3;id:u4", "");
    directory_.manifest.schema.key = run::KeyType::kU64;
    for (const int32_t ranks : {3, 2}) {
      directory_.begin_job(static_cast<uint32_t>(ranks), 2);
      for (int epoch = 0; epoch < 2; ++epoch) {
        imd::test::Records records;
        for (uint64_t i = 0; i < kRecords; ++i) records.emplace_back(number_key(i), value_of(i));
        directory_.write_epoch(records, {.records_per_run = 400, .runs_per_segment = 3});
      }
    }
    reader_ = imd::Reader::open(device_, "dir", {}).value();
  }

  static std::string value_of(uint64_t number) {
    const auto id = static_cast<uint32_t>(number);
    const Particle particle{static_cast<double>(number) / 4, {1, 2, static_cast<float>(number)}, id};
    std::string value(24, '\0');
    std::memcpy(value.data(), &particle.x, 8);
    std::memcpy(value.data() + 8, particle.v, 12);
    std::memcpy(value.data() + 20, &id, 4);
    return value;
  }

  StreamQuery query(const std::vector<std::string>& columns = {}) const {
    StreamQuery made;
    for (uint32_t epoch = 0; epoch < 4; ++epoch) made.epochs.emplace_back(epoch);
    const run::Schema& schema = reader_->manifest().schema;
    made.columns = columns.empty() ? all_columns(schema) : choose_columns(schema, columns).value();
    return made;
  }
  Filter condition(const char* text) const {
    return Filter(Expression::parse_condition(text, reader_->manifest().schema).value());
  }

  template <class T>
  static T number(const Batch& batch, size_t column, uint64_t row) {
    T read;
    std::memcpy(&read, batch.columns[column].data.data() + row * sizeof(T), sizeof(T));
    return read;
  }

  // "epoch key" of all rows, in their order.
  struct Rows {
    std::vector<std::pair<int64_t, uint64_t>> places;
    size_t batches = 0;
    Status status;
  };
  static Rows read(RecordStream& stream) {
    Rows rows;
    for (;;) {
      auto next = stream.next();
      rows.status = next.status();
      if (!next.ok() || !*next) return rows;
      const Batch& batch = **next;
      EXPECT_GT(batch.rows, 0U);
      ++rows.batches;
      for (uint64_t row = 0; row < batch.rows; ++row)
        rows.places.emplace_back(number<int64_t>(batch, 0, row), number<uint64_t>(batch, 1, row));
    }
  }
  Rows read(StreamQuery asked) {
    auto stream = RecordStream::open(reader_, std::move(asked));
    EXPECT_TRUE(stream.ok()) << stream.status().to_string();
    return read(**stream);
  }
  Rows scanned() {
    Rows rows;
    EXPECT_TRUE(reader_
                    ->scan(imd::Reader::kAllEpochs,
                           [&](EpochNumber epoch, Bytes key, Bytes) {
                             uint64_t id;
                             std::memcpy(&id, key.data(), sizeof id);
                             rows.places.emplace_back(epoch, id);
                             return true;
                           })
                    .ok());
    return rows;
  }

  io::MemoryDevice device_;
  imd::test::TestDirectory directory_;
  std::shared_ptr<imd::Reader> reader_;
};

TEST_F(RecordStreamTest, GivesTheRecordsOfAScanInItsOrderForAnyNumberOfThreads) {
  const Rows expected = scanned();
  ASSERT_EQ(expected.places.size(), 4 * kRecords);
  for (const unsigned threads : {1U, 2U, 5U}) {
    for (const uint64_t batch_rows : {uint64_t{1}, uint64_t{7}, uint64_t{1'000}, uint64_t{1} << 20}) {
      StreamQuery asked = query({"epoch", "key"});
      asked.threads = threads;
      asked.batch_rows_max = batch_rows;
      const Rows rows = read(std::move(asked));
      EXPECT_TRUE(rows.status.ok());
      EXPECT_TRUE(rows.places == expected.places) << threads << " " << batch_rows;
      EXPECT_GE(rows.batches, expected.places.size() / batch_rows);
    }
  }
}

TEST_F(RecordStreamTest, ColumnsHaveTheValuesOfTheFields) {
  StreamQuery asked = query();
  asked.epochs = {EpochNumber(3)};
  asked.where = condition("id == 1234");
  auto stream = RecordStream::open(reader_, std::move(asked)).value();
  const auto next = stream->next();
  ASSERT_TRUE(next.ok() && *next) << next.status().to_string();
  const Batch& batch = **next;
  ASSERT_EQ(batch.rows, 1U);
  ASSERT_EQ(batch.columns.size(), 7U);
  EXPECT_EQ(number<int64_t>(batch, 0, 0), 3);
  EXPECT_EQ(number<int64_t>(batch, 1, 0), 30);
  EXPECT_EQ(number<double>(batch, 2, 0), 1.5);
  EXPECT_EQ(number<uint64_t>(batch, 3, 0), 1234U);
  EXPECT_EQ(number<double>(batch, 4, 0), 308.5);
  EXPECT_EQ(number<float>(batch, 5, 2), 1234.0F);
  EXPECT_EQ(number<uint32_t>(batch, 6, 0), 1234U);
  EXPECT_EQ(stream->columns()[4].unit, "m");
  EXPECT_TRUE(stream->next().ok());
}

TEST_F(RecordStreamTest, AConditionChoosesRows) {
  StreamQuery asked = query({"epoch", "key"});
  asked.where = condition("key < 10 && epoch != 1");
  asked.threads = 3;
  const Rows rows = read(std::move(asked));
  EXPECT_EQ(rows.places.size(), 30U);
  for (const auto& [epoch, key] : rows.places) EXPECT_TRUE(key < 10 && epoch != 1);
}

TEST_F(RecordStreamTest, KeysComeInTheirOrderAndByEpoch) {
  std::vector<std::string> keys;
  std::vector<std::pair<int64_t, uint64_t>> expected;
  for (uint64_t i = 0; i < 10'000; ++i) {  // more than a piece; those beyond kRecords do not exist
    const uint64_t key = i * 7919 % 10'007;
    keys.push_back(number_key(key));
    for (int64_t epoch = 0; epoch < 4 && key < kRecords; ++epoch) expected.emplace_back(epoch, key);
  }
  for (const unsigned threads : {1U, 4U}) {
    StreamQuery asked = query({"epoch", "key"});
    asked.keys = keys;
    asked.threads = threads;
    asked.batch_rows_max = 100;
    EXPECT_TRUE(read(std::move(asked)).places == expected) << threads;
  }
}

TEST_F(RecordStreamTest, EpochsComeInTheOrderOfTheQuery) {
  StreamQuery asked = query({"epoch", "key"});
  asked.epochs = {EpochNumber(2), EpochNumber(0)};
  asked.keys = std::vector<std::string>{number_key(5)};
  EXPECT_THAT(read(std::move(asked)).places, testing::ElementsAre(testing::Pair(2, 5), testing::Pair(0, 5)));
}

TEST_F(RecordStreamTest, PartsAreThoseOfAScanAndHaveEachRowOnce) {
  const Rows expected = scanned();
  for (const uint32_t parts : {1U, 2U, 3U, 5U, 40U}) {
    uint64_t rows = 0;
    for (uint32_t part = 0; part < parts; ++part) {
      std::vector<std::pair<int64_t, uint64_t>> scanned_part;
      ASSERT_TRUE(reader_
                      ->scan_part(imd::Reader::kAllEpochs, part, parts,
                                  [&](EpochNumber epoch, Bytes key, Bytes) {
                                    uint64_t id;
                                    std::memcpy(&id, key.data(), sizeof id);
                                    scanned_part.emplace_back(epoch, id);
                                    return true;
                                  })
                      .ok());
      StreamQuery asked = query({"epoch", "key"});
      asked.part = part;
      asked.parts = parts;
      asked.threads = 2;
      asked.progress = [](uint64_t done, uint64_t total) { return done <= total; };
      EXPECT_TRUE(read(std::move(asked)).places == scanned_part) << part << " of " << parts;
      rows += scanned_part.size();
    }
    EXPECT_EQ(rows, expected.places.size());
  }
}

TEST_F(RecordStreamTest, PartsOfKeysAreTheirRanges) {
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < 101; ++i) keys.push_back(number_key(i * 7 % kRecords));
  StreamQuery whole = query({"epoch", "key"});
  whole.keys = keys;
  const Rows expected = read(std::move(whole));
  for (const uint32_t parts : {1U, 2U, 7U, 200U}) {
    std::vector<std::pair<int64_t, uint64_t>> all;
    for (uint32_t part = 0; part < parts; ++part) {
      StreamQuery asked = query({"epoch", "key"});
      asked.keys = keys;
      asked.part = part;
      asked.parts = parts;
      const Rows rows = read(std::move(asked));
      all.insert(all.end(), rows.places.begin(), rows.places.end());
    }
    EXPECT_TRUE(all == expected.places) << parts;
  }
}

// At least kBatches batches of so many rows.
constexpr uint64_t kBatchRows = 1'000;
constexpr size_t kBatches = 12;

TEST_F(RecordStreamTest, CanBeLeftAtAnyBatch) {
  const size_t before = test::threads_of_this_process();
  for (size_t batches = 0; batches <= kBatches + 1; ++batches) {
    StreamQuery asked = query({"epoch", "key"});
    asked.threads = 3;
    asked.batch_rows_max = kBatchRows;
    auto stream = RecordStream::open(reader_, std::move(asked)).value();
    for (size_t i = 0; i < batches; ++i) ASSERT_TRUE(stream->next().ok());
    if (batches == 1) {
      EXPECT_GT(test::threads_of_this_process(), before) << "canary: threads are seen";
    }
    stream.reset();
    EXPECT_EQ(test::threads_of_this_process(), before) << batches;
  }
  fmt::print("left after each of 0 to {} batches\n", kBatches + 1);
}

// Whether a stream that is cancelled after so many batches says so, now and again.
bool says_so(RecordStream& stream, size_t batches, std::atomic<bool>* cancel) {
  for (size_t i = 0; i < batches; ++i) EXPECT_TRUE(stream.next().ok());
  *cancel = true;
  return stream.next().status().code() == Code::kAborted && stream.next().status().code() == Code::kAborted;
}

TEST_F(RecordStreamTest, CancelledAtAnyBatchItSaysSo) {
  for (const bool heard : {true, false}) {
    for (size_t batches = 0; batches < kBatches; ++batches) {
      const auto cancel = std::make_shared<std::atomic<bool>>(false);
      StreamQuery asked = query({"epoch", "key"});
      asked.threads = 2;
      asked.batch_rows_max = kBatchRows;
      if (heard) asked.cancel = cancel;  // else the canary: a stream that does not look
      auto stream = RecordStream::open(reader_, std::move(asked)).value();
      EXPECT_EQ(says_so(*stream, batches, cancel.get()), heard) << batches;
    }
  }
  fmt::print("cancelled after each of 0 to {} batches\n", kBatches - 1);
}

TEST_F(RecordStreamTest, TheProgressFunctionCanEndIt) {
  StreamQuery asked = query({"epoch", "key"});
  uint64_t calls = 0;
  asked.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    EXPECT_EQ(total, 4 * kRecords);
    return ++calls < 1;
  };
  auto stream = RecordStream::open(reader_, std::move(asked)).value();
  EXPECT_EQ(stream->next().status().code(), Code::kAborted);
  EXPECT_EQ(calls, 1U);
}

TEST_F(RecordStreamTest, OutlivesItsReaderAndARefresh) {
  const Rows expected = scanned();
  StreamQuery asked = query({"epoch", "key"});
  asked.batch_rows_max = 500;
  auto stream = RecordStream::open(reader_, std::move(asked)).value();
  ASSERT_TRUE(stream->next().ok());
  directory_.write_epoch({{number_key(1), value_of(1)}});
  ASSERT_TRUE(reader_->refresh().ok());
  reader_.reset();
  EXPECT_EQ(read(*stream).places.size(), expected.places.size() - 500);
}

TEST_F(RecordStreamTest, RefusesWhatItCannotDo) {
  const auto refused = [&](StreamQuery asked) {
    const auto stream = RecordStream::open(reader_, std::move(asked));
    EXPECT_FALSE(stream.ok());
    return std::string(stream.status().message());
  };
  StreamQuery asked = query();
  asked.epochs = {EpochNumber(4)};
  EXPECT_THAT(refused(asked), HasSubstr("4 committed epochs"));
  asked = query();
  asked.threads = 0;
  EXPECT_THAT(refused(asked), HasSubstr("0 threads"));
  asked = query();
  asked.batch_rows_max = 0;
  EXPECT_THAT(refused(asked), HasSubstr("0 rows"));
  asked = query();
  asked.part = asked.parts = 2;
  EXPECT_THAT(refused(asked), HasSubstr("part 2 of 2"));
  asked.parts = 0;
  EXPECT_THAT(refused(asked), HasSubstr("part 2 of 0"));
  asked = query();
  asked.columns.clear();
  EXPECT_THAT(refused(asked), HasSubstr("no column"));
}

TEST_F(RecordStreamTest, DamageComesAfterTheRowsBeforeIt) {
  const Rows expected = scanned();
  const std::string path = imd::data_log_path("dir", {2, PartitionNumber(1)});
  auto file = device_.open(path, io::OpenMode::kReadWrite).value();
  char byte = 0;
  ASSERT_TRUE(file->pread(4096 * 5 + 77, MutableBytes(&byte, 1)).ok());
  byte = static_cast<char>(byte ^ 1);
  ASSERT_TRUE(file->pwrite(4096 * 5 + 77, Bytes(&byte, 1)).ok());
  for (const unsigned threads : {1U, 4U}) {
    StreamQuery asked = query({"epoch", "key"});
    asked.threads = threads;
    const Rows rows = read(std::move(asked));
    EXPECT_EQ(rows.status.code(), Code::kCorruption);
    EXPECT_THAT(std::string(rows.status.message()), HasSubstr(path));
    ASSERT_LT(rows.places.size(), expected.places.size());
    EXPECT_TRUE(std::equal(rows.places.begin(), rows.places.end(), expected.places.begin()));
    EXPECT_GT(rows.places.size(), 2 * kRecords) << "the first job's epochs are whole";
  }
}

}  // namespace
}  // namespace swale::query::record_stream_test
