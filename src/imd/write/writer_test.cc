// The writer with its real threads: ranks are threads of this process, the wire is the loopback transport.
#include "imd/write/writer.h"
#include "imd/check/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>

#include "base/coding.h"
#include "base/rng.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::writer_test {
namespace {

using Contents = std::map<std::string, std::vector<std::string>>;  // of one epoch: key → values, sorted

std::string number_key(uint64_t number) {
  std::string key;
  append_u64(&key, number);
  return key;
}

std::string random_value(Rng* rng, size_t bytes) {
  std::string value;
  while (value.size() < bytes) append_u64(&value, rng->next());
  value.resize(bytes);
  return value;
}

Contents read_epoch(Reader& reader, uint32_t epoch) {
  Contents contents;
  const Status status = reader.scan(epoch, [&](uint32_t, Bytes key, Bytes value) {
    contents[std::string(key)].emplace_back(value);
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  for (auto& [key, values] : contents) std::sort(values.begin(), values.end());
  return contents;
}

struct Shape {
  int32_t ranks;
  uint32_t ways;
  size_t memory_bytes;
  bool variable;
  const char* posting = "direct";
};

class WriterShapes : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, WriterShapes,
                         testing::Values(Shape{1, 1, 4 * kMiB, false}, Shape{1, 3, 8 * kMiB, true},
                                         Shape{2, 1, 4 * kMiB, false}, Shape{4, 2, 6 * kMiB, true},
                                         Shape{7, 1, 4 * kMiB, false}, Shape{2, 1, 4 * kMiB, false, "queue"},
                                         Shape{4, 2, 6 * kMiB, true, "queue"}));

TEST_P(WriterShapes, EveryRecordOfEveryRankIsReadBack) {
  const Shape shape = GetParam();
  io::MemoryDevice device;
  std::mutex mutex;
  std::vector<Contents> expected(3);
  const auto write = [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = shape.memory_bytes;
    options.ways = shape.ways;
    auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    Rng rng(static_cast<uint64_t>(job.rank()) + 1);
    for (uint32_t epoch = 0; epoch < 3; ++epoch) {
      // The middle epoch is empty.
      for (int i = 0; epoch != 1 && i < 30'000; ++i) {
        const std::string key = number_key(rng.below(10'000));
        const std::string value = random_value(&rng, shape.variable ? rng.below(90) : 40);
        const Status status = (*writer)->append(key, value);
        ASSERT_TRUE(status.ok()) << status.to_string();
        const std::lock_guard lock(mutex);
        expected[epoch][key].push_back(value);
      }
      const Status status = (*writer)->epoch_end(epoch * 100, epoch * 0.25);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    const Status closed = (*writer)->close();
    EXPECT_TRUE(closed.ok()) << closed.to_string();
  };
  run_ranks(shape.ranks, write, shape.posting);

  auto reader = Reader::open(device, "/dir", {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  ASSERT_EQ((*reader)->manifest().epochs.size(), 3u);
  EXPECT_EQ((*reader)->manifest().epochs[2].step, 200);
  EXPECT_EQ((*reader)->manifest().epochs[2].time, 0.5);
  for (uint32_t epoch = 0; epoch < 3; ++epoch) {
    for (auto& [key, values] : expected[epoch]) std::sort(values.begin(), values.end());
    EXPECT_EQ(read_epoch(**reader, epoch), expected[epoch]) << epoch;
  }
  const VerifyReport report = verify_directory(**reader, 10);
  for (const Status& problem : report.problems) ADD_FAILURE() << problem.to_string();
  EXPECT_EQ(report.records, 2u * 30'000u * static_cast<uint64_t>(shape.ranks));
  // Through the index, too.
  size_t asked = 0;
  for (const auto& [key, values] : expected[2]) {
    if (asked++ % 97 != 0) continue;
    auto found = (*reader)->get(key, 2);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    std::vector<std::string> got;
    for (const Value& value : *found) got.push_back(value.bytes);
    std::sort(got.begin(), got.end());
    EXPECT_EQ(got, values);
  }
}

TEST(Writer, ValuesOfOneWriterStayInOrderAlsoFromSeveralThreads) {
  io::MemoryDevice device;
  run_ranks(2, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = 4 * kMiB;
    auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok());
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, thread] {
        for (uint32_t i = 0; i < 5'000; ++i) {
          std::string value;
          append_u32(&value, static_cast<uint32_t>(job.rank() * 3 + thread));
          append_u32(&value, i);
          EXPECT_TRUE((*writer)->append(number_key(i % 11), value).ok());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE((*writer)->epoch_end(0, 0).ok());
    EXPECT_TRUE((*writer)->close().ok());
  });
  auto reader = Reader::open(device, "/dir", {});
  ASSERT_TRUE(reader.ok());
  size_t total = 0;
  for (uint64_t key = 0; key < 11; ++key) {
    auto values = (*reader)->get(number_key(key), 0);
    ASSERT_TRUE(values.ok());
    std::map<uint32_t, uint32_t> last;  // by thread
    for (const Value& value : *values) {
      const uint32_t thread = get_u32(value.bytes.data());
      const uint32_t number = get_u32(value.bytes.data() + 4);
      EXPECT_TRUE(last.count(thread) == 0 || last[thread] < number);
      last[thread] = number;
      ++total;
    }
  }
  EXPECT_EQ(total, 30'000u);
}

TEST(Writer, ALaterJobWithOtherRanksAppendsFurtherEpochs) {
  io::MemoryDevice device;
  uint32_t epoch = 0;
  for (const int32_t ranks : {3, 1, 5}) {
    run_ranks(ranks, [&](net::Job& job) {
      auto writer =
          Writer::open(job, device, "/dir", Writer::Create::kIfMissing, {16 * kMiB, 1, 32 * kKiB, 4});
      ASSERT_TRUE(writer.ok()) << writer.status().to_string();
      for (uint64_t i = static_cast<uint64_t>(job.rank()); i < 500; i += static_cast<uint64_t>(job.size())) {
        ASSERT_TRUE((*writer)->append(number_key(i), fmt::format("{}/{}", epoch, i)).ok());
      }
      EXPECT_TRUE((*writer)->epoch_end(epoch, 0).ok());
      EXPECT_TRUE((*writer)->close().ok());
    });
    ++epoch;
  }
  auto reader = Reader::open(device, "/dir", {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ((*reader)->manifest().jobs.size(), 3u);
  for (uint64_t i = 0; i < 500; ++i) {
    auto values = (*reader)->get(number_key(i), Reader::kAllEpochs);
    ASSERT_TRUE(values.ok()) << values.status().to_string();
    ASSERT_EQ(values->size(), 3u);
    for (uint32_t e = 0; e < 3; ++e) EXPECT_EQ((*values)[e].bytes, fmt::format("{}/{}", e, i));
  }
}

TEST(Writer, ASecondWriterIsTurnedAwayByName) {
  io::MemoryDevice device;
  run_ranks(1, [&](net::Job& job) {
    auto first = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, {});
    ASSERT_TRUE(first.ok());
    auto second = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, {});
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code(), Code::kBusy) << second.status().to_string();
    EXPECT_TRUE((*first)->close().ok());
    EXPECT_TRUE(Writer::open(job, device, "/dir", Writer::Create::kNever, {}).ok());
  });
}

TEST(Writer, OpensOnlyWhatItIsToldTo) {
  io::MemoryDevice device;
  ASSERT_TRUE(device.make_directory("/taken").ok());
  ASSERT_TRUE(device.open("/taken/notes.txt", io::OpenMode::kCreate).ok());
  run_ranks(2, [&](net::Job& job) {
    const auto code = [&](const char* path, Writer::Create create) {
      auto writer = Writer::open(job, device, path, create, {16 * kMiB, 1, 32 * kKiB, 4});
      if (writer.ok()) {
        EXPECT_TRUE((*writer)->close().ok());
      }
      return writer.status().code();
    };
    EXPECT_EQ(code("/none", Writer::Create::kNever), Code::kNotFound);
    EXPECT_EQ(code("/taken", Writer::Create::kIfMissing), Code::kAlreadyExists);
    EXPECT_EQ(code("/new/deep", Writer::Create::kExclusive), Code::kOk);
    EXPECT_EQ(code("/new/deep", Writer::Create::kExclusive), Code::kAlreadyExists);
    EXPECT_EQ(code("/new/deep", Writer::Create::kNever), Code::kOk);
  });
}

TEST(Writer, RecordsAfterTheLastEpochEndAreDroppedAndCounted) {
  io::MemoryDevice device;
  run_ranks(2, [&](net::Job& job) {
    auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, {16 * kMiB, 1, 32 * kKiB, 4});
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE((*writer)->append("kept", "1").ok());
    EXPECT_TRUE((*writer)->epoch_end(1, 1).ok());
    for (int i = 0; job.rank() == 1 && i < 40'000; ++i)
      EXPECT_TRUE((*writer)->append(number_key(7), "lost").ok());
    const Status closed = (*writer)->close();
    EXPECT_EQ(closed.code(), job.rank() == 1 ? Code::kAborted : Code::kOk) << closed.to_string();
    if (job.rank() == 1) {
      EXPECT_NE(closed.message().find("40000 records"), std::string::npos);
    }
  });
  auto reader = Reader::open(device, "/dir", {});
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->get(number_key(7), Reader::kAllEpochs).status().code(), Code::kNotFound);
  EXPECT_EQ((*reader)->get("kept", 0)->size(), 2u);
}

TEST(Writer, LimitsAreSaidAndChangeNothing) {
  io::MemoryDevice device;
  run_ranks(1, [&](net::Job& job) {
    auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, {});
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ((*writer)->append("", "v").code(), Code::kInvalidArgument);
    EXPECT_EQ((*writer)->append(std::string(256, 'k'), "v").code(), Code::kInvalidArgument);
    EXPECT_EQ((*writer)->append("k", Bytes("", kGiB + 1)).code(), Code::kInvalidArgument);
    EXPECT_TRUE((*writer)->append(std::string(255, 'k'), std::string(16 * kKiB, 'v')).ok());
    EXPECT_TRUE((*writer)->append("empty", "").ok());
    EXPECT_TRUE((*writer)->epoch_end(0, 0).ok());
    EXPECT_TRUE((*writer)->close().ok());
  });
  auto reader = Reader::open(device, "/dir", {});
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->get(std::string(255, 'k'), 0)->front().bytes, std::string(16 * kKiB, 'v'));
  EXPECT_EQ((*reader)->get("empty", 0)->front().bytes, "");
  EXPECT_EQ((*reader)->get("missing", 0).status().code(), Code::kNotFound);
}

// For every storage call in turn: the epoch that meets the failure is lost as a whole and says why, on all
// ranks, and the epoch before it stays. `arm(device, n)`: call n from now on goes wrong.
void lose_the_open_epoch_only(const std::function<void(io::FaultDevice*, uint64_t)>& arm,
                              const std::string& reason) {
  int failures = 0;
  for (int call = 0;; ++call) {
    io::MemoryDevice memory;
    io::FaultDevice device(memory);
    std::atomic<int> told{0};
    std::atomic<bool> clean{true};
    run_ranks(2, [&](net::Job& job) {
      auto writer =
          Writer::open(job, device, "/dir", Writer::Create::kIfMissing, {16 * kMiB, 1, 32 * kKiB, 4});
      ASSERT_TRUE(writer.ok());
      EXPECT_TRUE((*writer)->append(number_key(static_cast<uint64_t>(job.rank())), "first").ok());
      ASSERT_TRUE((*writer)->epoch_end(1, 1).ok());
      ASSERT_TRUE(job.allgather("armed").ok());
      if (job.rank() == 0) arm(&device, static_cast<uint64_t>(call) + 1);
      ASSERT_TRUE(job.allgather("go").ok());
      for (uint64_t i = 0; i < 200; ++i) EXPECT_TRUE((*writer)->append(number_key(i), "second").ok());
      const Status ended = (*writer)->epoch_end(2, 2);
      if (!ended.ok()) {
        ++told;
        clean = false;
        EXPECT_NE(ended.message().find(reason), std::string::npos) << ended.to_string();
        EXPECT_EQ((*writer)->append("x", "y").code(), Code::kAborted);
      }
      static_cast<void>((*writer)->close());
    });
    auto reader = Reader::open(memory, "/dir", {});
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ((*reader)->get(number_key(0), 0)->front().bytes, "first");
    if (clean) {
      EXPECT_EQ((*reader)->manifest().epochs.size(), 2u);
      break;
    }
    EXPECT_EQ(told.load(), 2) << "call " << call;
    EXPECT_EQ((*reader)->manifest().epochs.size(), 1u) << "call " << call << ": what has failed is there";
    ++failures;
    ASSERT_LT(call, 200);
  }
  EXPECT_GT(failures, 10);
}

TEST(Writer, AStorageFailureAtAnyCallLosesTheOpenEpochOnly) {
  lose_the_open_epoch_only(
      [](io::FaultDevice* device, uint64_t n) {
        device->inject({.nth = n, .status = error(Code::kNoSpace, Scope::kFile, "injected: disk full")});
      },
      "disk full");
}

TEST(Writer, AThrowAtAnyStorageCallLosesTheOpenEpochOnly) {
  lose_the_open_epoch_only(
      [](io::FaultDevice* device, uint64_t n) {
        const auto calls = std::make_shared<std::atomic<uint64_t>>(0);
        device->set_hook([calls, n](const io::Call&) -> Status {
          if (++*calls == n) throw std::bad_alloc();
          return {};
        });
      },
      "memory");
}

// Canary: the look of the test above notices a record that is gone.
TEST(Writer, AnEpochWhoseDataWereLostIsNoticed) {
  io::MemoryDevice memory;
  run_ranks(1, [&](net::Job& job) {
    auto writer = Writer::open(job, memory, "/dir", Writer::Create::kIfMissing, {16 * kMiB, 1, 32 * kKiB, 4});
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE((*writer)->append(number_key(0), "first").ok());
    EXPECT_TRUE((*writer)->epoch_end(1, 1).ok());
    EXPECT_TRUE((*writer)->close().ok());
  });
  const std::vector<std::string> names = memory.list("/dir/p000").value();
  for (const std::string& name : names) {
    if (name.ends_with(".data")) {
      EXPECT_TRUE((*memory.open("/dir/p000/" + name, io::OpenMode::kReadWrite))->truncate(0).ok());
    }
  }
  auto reader = Reader::open(memory, "/dir", {});
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE((*reader)->get(number_key(0), 0).ok());
}

}  // namespace
}  // namespace swale::imd::writer_test
