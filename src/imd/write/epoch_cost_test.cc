// What the end of an epoch costs in calls of the storage and bytes, and what opening costs, does not depend
// on how many epochs there were.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/coding.h"
#include "base/rng.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::epoch_cost_test {
namespace {

constexpr uint32_t kEpochs = 2'000;
constexpr uint32_t kWindow = 64;  // epochs whose mean is taken: the trees of footers merge now and then
constexpr uint64_t kRecords = 10;

struct Cost {
  double calls = 0;
  double written = 0;
  double read = 0;

  Cost operator-(const Cost& other) const {
    return {calls - other.calls, written - other.written, read - other.read};
  }
  Cost operator/(double number) const { return {calls / number, written / number, read / number}; }
};

// A device in memory that counts.
class CountingStorage {
 public:
  CountingStorage() {
    device_.set_hook([this](const io::Call& call) -> Status {
      ++calls_;
      if (call.kind == io::CallKind::kWrite) written_ += call.bytes;
      if (call.kind == io::CallKind::kRead) read_ += call.bytes;
      return {};
    });
  }
  io::Device& device() { return device_; }
  Cost now() const {
    return {static_cast<double>(calls_), static_cast<double>(written_), static_cast<double>(read_)};
  }
  size_t files(const std::string& folder = "/dir") {
    const auto names = memory_.list(folder);
    if (!names.ok()) return 1;
    size_t count = 0;
    for (const std::string& name : *names) count += files(folder + "/" + name);
    return count;
  }

 private:
  io::MemoryDevice memory_;
  io::FaultDevice device_{memory_};
  std::atomic<uint64_t> calls_{0};
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> read_{0};
};

WriterOptions small_budget() {
  WriterOptions options;
  options.memory_bytes = 4 * kMiB;
  return options;
}

// One job of so many epochs; after each of them, when no rank does anything, `after(epoch)` on rank 0.
void write_epochs(CountingStorage& storage, int32_t ranks, uint32_t epochs,
                  const std::function<void(uint32_t)>& after) {
  run_ranks(ranks, [&](net::Job& job) {
    auto writer = Writer::open(job, storage.device(), "/dir", Writer::Create::kIfMissing, small_budget());
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    const auto rank = static_cast<uint64_t>(job.rank());
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
      for (uint64_t i = 0; i < kRecords; ++i) {
        std::string key;
        append_u64(&key, Rng((uint64_t{epoch} << 32) + (rank << 16) + i).next());
        ASSERT_TRUE((*writer)->append(key, "forty bytes of a value, as in many codes").ok());
      }
      const Status ended = (*writer)->epoch_end(epoch, epoch);
      ASSERT_TRUE(ended.ok()) << ended.to_string();
      ASSERT_TRUE(job.allgather("").ok());
      if (rank == 0) after(epoch);
      ASSERT_TRUE(job.allgather("").ok());
    }
    const Status closed = (*writer)->close();
    EXPECT_TRUE(closed.ok()) << closed.to_string();
  });
}

// Beyond what differs by chance. 10 % of bytes: trees merge when they will.
bool costs_more(const Cost& early, const Cost& late) {
  return late.calls > early.calls * 1.03 || late.written > early.written * 1.10 ||
         late.read > early.read * 1.03;
}

class EpochCost : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, EpochCost, testing::Values(1, 2));

TEST_P(EpochCost, IsTheSameHoweverManyThereWere) {
  CountingStorage storage;
  std::vector<Cost> after(kEpochs);
  size_t files_early = 0;
  size_t files_late = 0;
  write_epochs(storage, GetParam(), kEpochs, [&](uint32_t epoch) {
    after[epoch] = storage.now();
    if (epoch == 1) files_early = storage.files();
    if (epoch + 1 == kEpochs) files_late = storage.files();
  });
  const auto mean = [&](uint32_t last) { return (after[last] - after[last - kWindow]) / kWindow; };
  const Cost early = mean(100);
  const Cost late = mean(kEpochs - 1);
  fmt::print(
      "{} ranks, {} epochs: calls {:.2f} and {:.2f}, bytes written {:.0f} and {:.0f}, read {:.0f} and {:.0f} "
      "an end; {} and {} files\n",
      GetParam(), kEpochs, early.calls, late.calls, early.written, late.written, early.read, late.read,
      files_early, files_late);
  EXPECT_GT(early.calls, 2) << "a canary: calls are counted";
  EXPECT_GT(early.written, kRecords * 48) << "a canary: bytes are counted";
  EXPECT_FALSE(costs_more(early, late));
  EXPECT_EQ(files_early, files_late);
}

TEST(EpochCostCanary, AnEndThatWritesMoreEachTimeIsSeen) {
  CountingStorage storage;
  constexpr uint32_t kFew = 400;
  std::vector<Cost> after(kFew);
  write_epochs(storage, 1, kFew, [&](uint32_t epoch) {
    auto file = storage.device().open("/document", io::OpenMode::kOpenOrCreate);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->pwrite(0, std::string(8 * epoch, 'x')).ok());  // all epochs, 8 bytes each
    after[epoch] = storage.now();
  });
  const auto mean = [&](uint32_t last) { return (after[last] - after[last - kWindow]) / kWindow; };
  EXPECT_TRUE(costs_more(mean(100), mean(kFew - 1)));
}

// Calls and bytes read by `open` of a directory with few and with many epochs.
struct Opening {
  Cost reading;
  Cost writing;
};
Opening cost_of_opening(int32_t ranks, uint32_t epochs) {
  CountingStorage storage;
  write_epochs(storage, ranks, epochs, [](uint32_t) {});
  Opening opening;
  Cost before = storage.now();
  auto reader = Reader::open(storage.device(), "/dir", {});
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ((*reader)->manifest().epochs.size(), epochs);
  opening.reading = storage.now() - before;
  run_ranks(1, [&](net::Job& job) {
    before = storage.now();
    auto writer = Writer::open(job, storage.device(), "/dir", Writer::Create::kIfMissing, small_budget());
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    opening.writing = storage.now() - before;
    EXPECT_TRUE((*writer)->close().ok());
  });
  return opening;
}

TEST_P(EpochCost, OpeningReadsARecordAnEpoch) {
  constexpr uint32_t kFew = 20;
  constexpr uint32_t kMany = 5'000;
  const Opening few = cost_of_opening(GetParam(), kFew);
  const Opening many = cost_of_opening(GetParam(), kMany);
  fmt::print(
      "{} ranks, {} and {} epochs: to read {:.0f} and {:.0f} calls, {:.0f} and {:.0f} bytes read; to write "
      "{:.0f} and {:.0f} calls, {:.0f} and {:.0f} read, {:.0f} and {:.0f} written\n",
      GetParam(), kFew, kMany, few.reading.calls, many.reading.calls, few.reading.read, many.reading.read,
      few.writing.calls, many.writing.calls, few.writing.read, many.writing.read, few.writing.written,
      many.writing.written);
  EXPECT_GT(few.reading.calls, 2) << "a canary: calls are counted";
  // The slots are read in pieces of 1 MiB, the last of which asks for more than there is.
  constexpr double kMore = (kMany - kFew) * 256.0;
  EXPECT_LE(many.reading.calls, few.reading.calls + kMore / kMiB + 2);
  EXPECT_LE(many.reading.read, few.reading.read + kMore + kMiB);
  EXPECT_LE(many.writing.calls, few.writing.calls + 3 * (kMore / kMiB + 2));  // two readings and a copy
  EXPECT_LE(many.writing.read, few.writing.read + 2 * (kMore + kMiB));
  EXPECT_LE(many.writing.written, few.writing.written + kMore + 4 * kKiB);
}

}  // namespace
}  // namespace swale::imd::epoch_cost_test
