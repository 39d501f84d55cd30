#include "swale/swale_arrow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace swale::capi::arrow_test {
namespace {

using testing::HasSubstr;

struct Particle {
  double x;
  uint32_t id;
  uint32_t group;
};
constexpr uint64_t kParticles = 1'000;
constexpr int64_t kFrames = 3;

// One directory for all tests: keys are numbers, three epochs.
class Arrow : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    path() = std::filesystem::temp_directory_path() / ("swale-arrow-" + std::to_string(::getpid()));
    std::filesystem::remove_all(path());
    swale_job* job = nullptr;
    swale_dir* dir = nullptr;
    ASSERT_EQ(swale_job_open(nullptr, nullptr, &job), SWALE_OK);
    ASSERT_EQ(swale_dir_open(job, path().c_str(), SWALE_CREATE,
                             "imd.schema=x:f8:m;id:u4;group:u4,imd.key=u64,imd.extrema=x", &dir),
              SWALE_OK)
        << swale_last_error();
    for (int64_t frame = 0; frame < kFrames; ++frame) {
      // Every second item, backwards: strides of both signs.
      std::vector<uint64_t> keys(2 * kParticles);
      std::vector<Particle> particles(kParticles);
      for (uint64_t i = 0; i < kParticles; ++i) {
        keys[2 * i] = kParticles - 1 - i;
        particles[i] = {static_cast<double>(i) / 2, static_cast<uint32_t>(i), static_cast<uint32_t>(frame)};
      }
      size_t appended = 0;
      ASSERT_EQ(swale_dir_append_many(dir, &keys[2 * kParticles - 2], 8, -16, particles.data(), 16, 16,
                                      kParticles, &appended),
                SWALE_OK)
          << swale_last_error();
      EXPECT_EQ(appended, kParticles);
      ASSERT_EQ(swale_dir_epoch_end(dir, 10 * frame, 0.5 * static_cast<double>(frame)), SWALE_OK);
    }
    ASSERT_EQ(swale_dir_close(dir), SWALE_OK);
    ASSERT_EQ(swale_job_close(job), SWALE_OK);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(path()); }
  static std::filesystem::path& path() {
    static std::filesystem::path held;
    return held;
  }

  void SetUp() override {
    ASSERT_EQ(swale_reader_open(path().c_str(), nullptr, &reader_), SWALE_OK) << swale_last_error();
    query_.struct_bytes = sizeof query_;
  }
  void TearDown() override { swale_reader_close(reader_); }

  ArrowArrayStream start() {
    ArrowArrayStream stream = {};
    EXPECT_EQ(swale_reader_stream(reader_, &query_, &stream), SWALE_OK) << swale_last_error();
    return stream;
  }
  // How many rows are left; -1 after a failure. Releases the stream.
  static int64_t rows_of(ArrowArrayStream* stream) {
    int64_t rows = 0;
    for (;;) {
      ArrowArray array = {};
      if (stream->get_next(stream, &array) != 0) rows = -1;
      if (array.release == nullptr) break;
      rows += array.length;
      array.release(&array);
    }
    stream->release(stream);
    return rows;
  }
  std::string refusal() {
    ArrowArrayStream stream = {};
    EXPECT_EQ(swale_reader_stream(reader_, &query_, &stream), SWALE_INVALID_ARGUMENT);
    EXPECT_EQ(stream.release, nullptr);
    return swale_last_error();
  }

  swale_reader* reader_ = nullptr;
  swale_query query_ = {};
};

TEST_F(Arrow, SchemaSaysWhatTheColumnsAre) {
  ArrowArrayStream stream = start();
  ArrowSchema schema = {};
  ASSERT_EQ(stream.get_schema(&stream, &schema), 0);
  std::string text = schema.format;
  for (int64_t i = 0; i < schema.n_children; ++i)
    text += std::string(" ") + schema.children[i]->name + ":" + schema.children[i]->format;
  EXPECT_EQ(text, "+s epoch:l step:l time:g key:L x:g id:I group:I");
  EXPECT_EQ(std::string(schema.children[4]->metadata, 17), std::string("\1\0\0\0\4\0\0\0unit\1\0\0\0m", 17));
  EXPECT_EQ(schema.children[6]->metadata, nullptr);
  // Released after the stream, and a child that was moved out after its parent.
  stream.release(&stream);
  EXPECT_EQ(stream.release, nullptr);
  ArrowSchema child = *schema.children[4];
  schema.children[4]->release = nullptr;
  schema.release(&schema);
  EXPECT_STREQ(child.name, "x");
  child.release(&child);
}

TEST_F(Arrow, BatchesHaveAllRecordsAndOutliveTheReader) {
  query_.batch_rows = 100;
  ArrowArrayStream stream = start();
  swale_reader_close(std::exchange(reader_, nullptr));
  std::vector<ArrowArray> kept;
  for (;;) {
    ArrowArray array = {};
    ASSERT_EQ(stream.get_next(&stream, &array), 0);
    if (array.release == nullptr) break;
    EXPECT_LE(array.length, 100);
    kept.push_back(array);
  }
  stream.release(&stream);
  double sum = 0;
  int64_t rows = 0;
  for (ArrowArray& array : kept) {
    rows += array.length;
    const auto* const x = static_cast<const double*>(array.children[4]->buffers[1]);
    sum = std::accumulate(x, x + array.length, sum);
    array.release(&array);
  }
  EXPECT_EQ(rows, kFrames * static_cast<int64_t>(kParticles));
  EXPECT_EQ(sum, static_cast<double>(kFrames * kParticles * (kParticles - 1)) / 4);
}

TEST_F(Arrow, AQueryChoosesEpochsKeysColumnsAndRecords) {
  const int64_t epochs[] = {2, 0};
  const uint64_t ids[] = {7, 5'000, 3};
  const void* const keys[] = {&ids[0], &ids[1], &ids[2]};
  const size_t key_bytes[] = {8, 8, 8};
  const char* const columns[] = {"group", "key"};
  query_.epochs = epochs;
  query_.epoch_count = 2;
  query_.keys = keys;
  query_.key_bytes = key_bytes;
  query_.key_count = 3;
  query_.columns = columns;
  query_.column_count = 2;
  query_.where = "id != 7 || epoch == 2";
  ArrowArrayStream stream = start();
  ArrowArray array = {};
  ASSERT_EQ(stream.get_next(&stream, &array), 0);
  ASSERT_EQ(array.length, 3);
  const auto* const group = static_cast<const uint32_t*>(array.children[0]->buffers[1]);
  const auto* const key = static_cast<const uint64_t*>(array.children[1]->buffers[1]);
  EXPECT_THAT(std::vector(group, group + 3), testing::ElementsAre(2, 2, 0));
  EXPECT_THAT(std::vector(key, key + 3), testing::ElementsAre(7, 3, 3));
  array.release(&array);
  EXPECT_EQ(rows_of(&stream), 0);
}

TEST_F(Arrow, ReleasedAfterAnyNumberOfBatchesAndByAnotherThread) {
  query_.batch_rows = 250;
  query_.threads = 3;
  for (int batches = 0; batches < 14; ++batches) {
    ArrowArrayStream stream = start();
    for (int i = 0; i < batches; ++i) {
      ArrowArray array = {};
      ASSERT_EQ(stream.get_next(&stream, &array), 0);
      if (array.release != nullptr) array.release(&array);
    }
    std::thread([&] { stream.release(&stream); }).join();
  }
}

TEST_F(Arrow, PartsHaveEachRowOnce) {
  int64_t rows = 0;
  query_.parts = 3;
  for (query_.part = 0; query_.part < query_.parts; ++query_.part) {
    ArrowArrayStream stream = start();
    rows += rows_of(&stream);
  }
  EXPECT_EQ(rows, kFrames * static_cast<int64_t>(kParticles));
  EXPECT_THAT(refusal(), HasSubstr("part 3 of 3"));
  query_.struct_bytes = offsetof(swale_query, part);  // of a program that is older than parts
  ArrowArrayStream stream = start();
  EXPECT_EQ(rows_of(&stream), rows);
}

TEST_F(Arrow, ACancelledStreamSaysSo) {
  swale_cancel* cancel = nullptr;
  ASSERT_EQ(swale_cancel_make(&cancel), SWALE_OK);
  query_.cancel = cancel;
  query_.batch_rows = 10;
  ArrowArrayStream stream = start();
  EXPECT_EQ(stream.get_last_error(&stream), nullptr);
  swale_cancel_now(cancel);
  swale_cancel_free(cancel);
  ArrowArray array = {};
  EXPECT_NE(stream.get_next(&stream, &array), 0);
  EXPECT_THAT(stream.get_last_error(&stream), HasSubstr("cancelled"));
  swale_error_info info = {};
  info.struct_bytes = sizeof info;
  ASSERT_EQ(swale_stream_error(&stream, &info), SWALE_OK);
  EXPECT_EQ(info.code, SWALE_ABORTED);
  EXPECT_EQ(info.offset, -1);
  EXPECT_STREQ(info.file, "");
  stream.release(&stream);
  EXPECT_EQ(swale_stream_error(&stream, &info), SWALE_INVALID_ARGUMENT) << "released";
}

TEST_F(Arrow, WrongQuestionsAreRefused) {
  const char* const wrong[] = {"grup"};
  query_.columns = wrong;
  query_.column_count = 1;
  EXPECT_THAT(refusal(), HasSubstr("did you mean \"group\""));
  query_.columns = nullptr;
  query_.where = "x >";
  EXPECT_THAT(refusal(), HasSubstr("where"));
  query_.where = nullptr;
  query_.threads = 1'000;
  EXPECT_THAT(refusal(), HasSubstr("1000 threads"));
  query_.threads = 0;
  query_.reserved = 1;
  EXPECT_THAT(refusal(), HasSubstr("reserved"));
  query_.reserved = 0;
  query_.struct_bytes = 8;
  EXPECT_THAT(refusal(), HasSubstr("struct_bytes"));
  query_.struct_bytes = sizeof query_;
  const int64_t epoch = 3;
  query_.epochs = &epoch;
  query_.epoch_count = 1;
  ArrowArrayStream stream = {};
  EXPECT_EQ(swale_reader_stream(reader_, &query_, &stream), SWALE_NOT_FOUND);
  query_.epoch_count = 0;
  stream = start();
  EXPECT_EQ(rows_of(&stream), 0) << "no epochs are asked for";
}

TEST_F(Arrow, TheLargestComeInTheirOrder) {
  ArrowArrayStream stream = {};
  ASSERT_EQ(swale_reader_top_stream(reader_, "x", 1, 3, SWALE_TOP_LARGEST, &stream), SWALE_OK);
  ArrowArray array = {};
  ASSERT_EQ(stream.get_next(&stream, &array), 0);
  ASSERT_EQ(array.length, 3);
  const auto* const key = static_cast<const uint64_t*>(array.children[3]->buffers[1]);
  EXPECT_THAT(std::vector(key, key + 3), testing::ElementsAre(999, 998, 997));
  array.release(&array);
  EXPECT_EQ(rows_of(&stream), 0);
  EXPECT_EQ(swale_reader_top_stream(reader_, "y", 1, 3, SWALE_TOP_LARGEST, &stream), SWALE_INVALID_ARGUMENT);
}

TEST_F(Arrow, BatchesOfAReaderAreAppendedElsewhere) {
  const std::filesystem::path copy = path().string() + "-copy";
  std::filesystem::remove_all(copy);
  swale_job* job = nullptr;
  swale_dir* dir = nullptr;
  ASSERT_EQ(swale_job_open(nullptr, nullptr, &job), SWALE_OK);
  ASSERT_EQ(swale_dir_open(job, copy.c_str(), SWALE_CREATE,
                           "imd.schema=x:f8:m;id:u4;group:u4,imd.key=u64,imd.extrema=x", &dir),
            SWALE_OK)
      << swale_last_error();
  query_.batch_rows = 300;
  ArrowArrayStream stream = start();
  ArrowSchema schema = {};
  ASSERT_EQ(stream.get_schema(&stream, &schema), 0);
  size_t total = 0;
  for (;;) {
    ArrowArray batch = {};
    ASSERT_EQ(stream.get_next(&stream, &batch), 0);
    if (batch.release == nullptr) break;
    size_t appended = 0;
    // All but the first row, and the first one by itself: the batch's own offset counts.
    ArrowArray part = batch;
    part.offset = 1;
    part.length = batch.length - 1;
    ASSERT_EQ(swale_dir_append_arrow(dir, &schema, &part, &appended), SWALE_OK) << swale_last_error();
    total += appended;
    part.offset = 0;
    part.length = 1;
    ASSERT_EQ(swale_dir_append_arrow(dir, &schema, &part, &appended), SWALE_OK) << swale_last_error();
    total += appended;
    batch.release(&batch);
    EXPECT_EQ(swale_dir_append_arrow(dir, &schema, &batch, nullptr), SWALE_INVALID_ARGUMENT) << "released";
  }
  EXPECT_EQ(total, kParticles * kFrames);
  schema.release(&schema);
  stream.release(&stream);
  ArrowArray none = {};
  EXPECT_EQ(swale_dir_append_arrow(nullptr, &schema, &none, nullptr), SWALE_INVALID_ARGUMENT);
  EXPECT_EQ(swale_dir_append_arrow(dir, nullptr, &none, nullptr), SWALE_INVALID_ARGUMENT);
  ASSERT_EQ(swale_dir_epoch_end(dir, 0, 0), SWALE_OK);
  ASSERT_EQ(swale_dir_close(dir), SWALE_OK);
  ASSERT_EQ(swale_job_close(job), SWALE_OK);

  swale_reader* copied = nullptr;
  ASSERT_EQ(swale_reader_open(copy.c_str(), nullptr, &copied), SWALE_OK) << swale_last_error();
  std::swap(copied, reader_);
  query_.where = "id == key and x == id / 2.0";
  ArrowArrayStream again = start();
  EXPECT_EQ(rows_of(&again), static_cast<int64_t>(total)) << "every record is what it was";
  std::swap(copied, reader_);
  swale_reader_close(copied);
  std::filesystem::remove_all(copy);
}

TEST_F(Arrow, LastErrorInfoIsThatOfTheLastFailure) {
  swale_reader* none = nullptr;
  EXPECT_EQ(swale_reader_open("/nowhere/at-all", nullptr, &none), SWALE_NOT_FOUND);
  swale_error_info info = {};
  EXPECT_EQ(swale_last_error_info(&info), SWALE_INVALID_ARGUMENT) << "its size is not set";
  info.struct_bytes = sizeof info;
  ASSERT_EQ(swale_last_error_info(&info), SWALE_OK);
  EXPECT_EQ(info.code, SWALE_NOT_FOUND);
  EXPECT_STREQ(info.message, swale_last_error());
  EXPECT_THAT(info.file, HasSubstr("/nowhere/at-all"));
}

}  // namespace
}  // namespace swale::capi::arrow_test
