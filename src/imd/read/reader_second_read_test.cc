// What a reader says of bytes that are wrong: the answer of a second read, a damaged file, or a directory
// that has changed; and that top counts its own reads alone.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/log.h"
#include "imd/read/reader.h"
#include "imd/testing/test_directory.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::reader_second_read_test {
namespace {

using test::Model;
using test::TestDirectory;
using test::text_key;
using testing::HasSubstr;

constexpr char kDir[] = "/dir";
constexpr uint64_t kKeys = 60;

class ReaderSecondRead : public testing::Test {
 protected:
  ReaderSecondRead() : written_(device_, kDir), faults_(device_) {
    set_log_sink([this](LogLevel, std::string_view message) { log_.emplace_back(message); });
    written_.manifest.schema = *run::Schema::parse("x:f8;_:*", "");
    written_.begin_job(1, 2);
    for (uint32_t epoch = 0; epoch < 2; ++epoch) {
      Rng rng(epoch + 1);
      written_.write_epoch(test::numbered_records(rng, 300, kKeys, 200), {.records_per_run = 100});
    }
  }
  ~ReaderSecondRead() override { set_log_sink({}); }

  std::unique_ptr<Reader> open() {
    auto reader = Reader::open(faults_, kDir, {});
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    return std::move(*reader);
  }

  // By get_many, get, scan and sample; `*wrong` is set if an answer is not what was written.
  using Query = std::function<Status(Reader&, bool* wrong)>;
  std::vector<Query> queries() {
    const auto batch = [this](Reader& reader, bool* wrong) {
      std::vector<std::string> keys;
      for (uint64_t i = 0; i < kKeys; ++i) keys.push_back(text_key(i));
      const std::vector<Bytes> views(keys.begin(), keys.end());
      Model got;
      const auto found = reader.get_many(views, 1, [&](size_t index, uint32_t, Bytes value) {
        got[keys[index]].emplace_back(value);
        return true;
      });
      for (auto& [key, values] : got) std::sort(values.begin(), values.end());
      Model wanted = written_.models[1];
      for (auto& [key, values] : wanted) std::sort(values.begin(), values.end());
      *wrong = found.ok() && got != wanted;
      return found.status();
    };
    const auto one = [this](Reader& reader, bool* wrong) {
      const std::string key = written_.models[0].begin()->first;
      const auto got = reader.get(key, 0);
      std::vector<std::string> values;
      if (got.ok()) {
        for (const Value& value : *got) values.push_back(value.bytes);
      }
      *wrong = got.ok() && values != written_.models[0].begin()->second;
      return got.status().code() == Code::kNotFound ? Status(Code::kInternal, Scope::kOperation, "lost")
                                                    : got.status();
    };
    const auto all = [this](Reader& reader, bool* wrong) {
      Model got;
      const Status status = reader.scan(0, [&](uint32_t, Bytes key, Bytes value) {
        got[std::string(key)].emplace_back(value);
        return true;
      });
      *wrong = status.ok() && got != written_.models[0];
      return status;
    };
    const auto some = [this](Reader& reader, bool* wrong) {
      size_t unknown = 0;
      const Status status = reader.sample(0, 1, 7, [&](Bytes key) {
        unknown += written_.models[0].count(std::string(key)) == 0 ? 1 : 0;
        return true;
      });
      *wrong = status.ok() && unknown != 0;
      return status;
    };
    const auto best = [](Reader& reader, bool* wrong) {
      const auto top = reader.top(0, "x", 5, run::Extreme::kLargest);
      *wrong = top.ok() && top->records.size() != 5;
      return top.status();
    };
    return {batch, one, all, some, best};
  }

  io::MemoryDevice device_;
  TestDirectory written_;
  io::FaultDevice faults_;
  std::vector<std::string> log_;
};

TEST_F(ReaderSecondRead, AnswersWhenAnyOneReadWasWrong) {
  uint64_t points = 0;
  uint64_t refused = 0;
  for (const Query& query : queries()) {
    for (uint64_t nth = 1;; ++nth) {
      const auto reader = open();
      bool wrong = false;
      // The footers first: what is read of them has no second read.
      ASSERT_TRUE(reader->get(text_key(1), Reader::kAllEpochs).ok());
      faults_.clear();
      faults_.inject({.action = io::FaultAction::kFlip,
                      .kind = io::CallKind::kRead,
                      .path_part = "part-",
                      .nth = nth,
                      .position = nth * 7919});
      const Status status = query(*reader, &wrong);
      const bool reached = faults_.faults() > 0;
      faults_.clear();
      if (!reached) break;
      ++points;
      refused += status.ok() ? 0 : 1;
      EXPECT_FALSE(wrong) << nth;
      EXPECT_TRUE(status.ok()) << nth << ": " << status.to_string();
    }
  }
  fmt::print("{} reads with a wrong bit, {} refused\n", points, refused);
  EXPECT_GT(points, 15u);
  const auto told = std::count_if(log_.begin(), log_.end(), [](const std::string& line) {
    return line.find("a second read gives the right bytes") != std::string::npos;
  });
  EXPECT_EQ(told, 1);
}

TEST_F(ReaderSecondRead, SaysThatAFileIsDamaged) {
  const auto file =
      device_.open(data_log_path(kDir, {1, PartitionNumber(0)}), io::OpenMode::kReadWrite).value();
  const uint64_t size = file->size().value();
  std::vector<char> bytes(size);
  ASSERT_TRUE(io::read_exactly(*file, 0, bytes).ok());
  for (uint64_t at = 100; at < size; at += run::kBlockBytes) bytes[at] = static_cast<char>(bytes[at] ^ 1);
  ASSERT_TRUE(file->pwrite(0, {bytes.data(), bytes.size()}).ok());
  const auto reader = open();
  bool wrong = false;
  for (const Query& query : queries()) {
    const Status status = query(*reader, &wrong);
    EXPECT_EQ(status.code(), Code::kCorruption);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("a second read gives the same bytes: the file is damaged"));
  }
}

TEST_F(ReaderSecondRead, SaysThatMemoryOrTheDeviceErrsIfEachReadIsAnother) {
  const auto reader = open();
  ASSERT_TRUE(reader->get(text_key(1), 0).ok());
  uint64_t at = 0;
  faults_.set_hook([&](const io::Call& call) {
    if (call.kind != io::CallKind::kRead) return Status();
    faults_.inject(
        {.action = io::FaultAction::kFlip, .kind = io::CallKind::kRead, .nth = 1, .position = at += 1'001});
    return Status();
  });
  const Status status = reader->get(text_key(1), 0).status();
  faults_.clear();
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a second read gives other bytes, wrong as well"));
}

TEST_F(ReaderSecondRead, SaysThatTheDirectoryHasChanged) {
  const auto reader = open();
  ASSERT_TRUE(reader->get(text_key(1), Reader::kAllEpochs).ok());
  const auto file =
      device_.open(data_log_path(kDir, {1, PartitionNumber(0)}), io::OpenMode::kReadWrite).value();
  ASSERT_TRUE(file->truncate(file->size().value() / 2).ok());
  Status status = reader->scan(1, [](uint32_t, Bytes, Bytes) { return true; });
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(std::string(status.message()), HasSubstr("restore"));
  // The same of a job that went back and took the file with it.
  written_.manifest.epochs.pop_back();
  written_.commit();
  for (const Query& query : queries()) {
    bool wrong = false;
    status = query(*reader, &wrong);
    if (status.ok()) continue;  // it asks the first epoch
    EXPECT_EQ(status.code(), Code::kAborted) << status.to_string();
    EXPECT_THAT(std::string(status.message()), HasSubstr("the directory has changed"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("refresh"));
  }
  EXPECT_EQ(reader->scan(1, [](uint32_t, Bytes, Bytes) { return true; }).code(), Code::kAborted);
  ASSERT_TRUE(reader->refresh().ok());
  EXPECT_TRUE(reader->scan(0, [](uint32_t, Bytes, Bytes) { return true; }).ok());
}

// Another query reads while top does.
TEST_F(ReaderSecondRead, TopCountsItsOwnReadsAlone) {
  const auto quiet = open()->top(0, "x", 5, run::Extreme::kLargest);
  ASSERT_TRUE(quiet.ok()) << quiet.status().to_string();
  const auto reader = open();
  bool inside = false;
  uint64_t others = 0;
  faults_.set_hook([&](const io::Call& call) {
    if (inside || call.kind != io::CallKind::kRead) return Status();
    inside = true;
    ++others;
    const Status status = reader->scan(1, [](uint32_t, Bytes, Bytes) { return true; });
    inside = false;
    return status;
  });
  const auto busy = reader->top(0, "x", 5, run::Extreme::kLargest);
  faults_.clear();
  ASSERT_TRUE(busy.ok()) << busy.status().to_string();
  EXPECT_GT(others, 0u);
  // A footer may have been read by the other query.
  EXPECT_LE(busy->reads, quiet->reads);
  EXPECT_LE(busy->bytes_read, quiet->bytes_read);
  EXPECT_GT(busy->bytes_read, 0u);
  EXPECT_GT(reader->stats().bytes_read, busy->bytes_read);
}

}  // namespace
}  // namespace swale::imd::reader_second_read_test
