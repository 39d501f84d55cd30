// The n-th allocation fails, for every n, in the calls that append many records. The call says how many it
// has appended; the caller goes on after them or gives up; and what is committed then is all of the epoch's
// records, each once, or no epoch. SWALE_FAULT_ROUNDS > 1: also allocations of all threads, several times.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "swale/swale_arrow.h"
#include "tests/faults/failing_new.h"

namespace swale::faults::append_allocations_test {
namespace {

constexpr size_t kRecords = 60;

// Columns "key" (u64) and "value" (bytes). Each twentieth value goes to the value log.
struct Rows {
  Rows() {
    for (uint64_t key = 0; key < kRecords; ++key) {
      keys.push_back(key);
      ends.push_back(static_cast<int32_t>(bytes.size()));
      bytes += std::string(key % 20 == 7 ? 40'000 : 24, static_cast<char>('a' + key % 26));
    }
    ends.push_back(static_cast<int32_t>(bytes.size()));
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  std::vector<uint64_t> keys;
  std::vector<int32_t> ends;
  std::string bytes;
};

// The tests own all memory.
template <class Struct>
void no_release(Struct* held) {
  held->release = nullptr;
}

ArrowSchema type(const char* format, const char* name) {
  ArrowSchema made = {};
  made.format = format;
  made.name = name;
  made.release = &no_release<ArrowSchema>;
  return made;
}

ArrowArray column(int64_t buffers, const void** of) {
  ArrowArray made = {};
  made.length = kRecords;
  made.n_buffers = buffers;
  made.buffers = of;
  made.release = &no_release<ArrowArray>;
  return made;
}

using Append = int(swale_dir* dir, const Rows& rows, size_t first, size_t* appended);

// The rows from `first` on, all with one value, which goes to the value log.
int append_many(swale_dir* dir, const Rows& rows, size_t first, size_t* appended) {
  return swale_dir_append_many(dir, &rows.keys[first], sizeof(uint64_t), sizeof(uint64_t), rows.bytes.data(),
                               20'000, 0, kRecords - first, appended);
}

int append_arrow(swale_dir* dir, const Rows& rows, size_t first, size_t* appended) {
  ArrowSchema types[] = {type("L", "key"), type("z", "value")};
  ArrowSchema* type_children[] = {&types[0], &types[1]};
  ArrowSchema schema = type("+s", "");
  schema.n_children = 2;
  schema.children = type_children;
  const void* no_buffers[] = {nullptr};
  const void* key_buffers[] = {nullptr, rows.keys.data()};
  const void* value_buffers[] = {nullptr, rows.ends.data(), rows.bytes.data()};
  ArrowArray columns[] = {column(2, key_buffers), column(3, value_buffers)};
  ArrowArray* children[] = {&columns[0], &columns[1]};
  ArrowArray batch = column(1, no_buffers);
  batch.offset = static_cast<int64_t>(first);
  batch.length = static_cast<int64_t>(kRecords - first);
  batch.n_children = 2;
  batch.children = children;
  return swale_dir_append_arrow(dir, &schema, &batch, appended);
}

// "": all records of one epoch, each once; or no epoch, if the writer failed.
std::string wrong_in(const std::string& path, bool must_be_there) {
  swale_reader* reader = nullptr;
  if (swale_reader_open(path.c_str(), nullptr, &reader) != SWALE_OK)
    return must_be_there ? fmt::format("cannot be opened: {}", swale_last_error()) : "";
  std::vector<int> times(kRecords);
  const char* const columns[] = {"key"};
  swale_query query = {};
  query.struct_bytes = sizeof query;
  query.columns = columns;
  query.column_count = 1;
  ArrowArrayStream stream = {};
  size_t rows = 0;
  std::string wrong;
  if (swale_reader_stream(reader, &query, &stream) != SWALE_OK) wrong = swale_last_error();
  for (ArrowArray batch = {}; wrong.empty(); batch = {}) {
    if (stream.get_next(&stream, &batch) != 0) wrong = stream.get_last_error(&stream);
    if (batch.release == nullptr) break;
    const auto* const keys = static_cast<const uint64_t*>(batch.children[0]->buffers[1]);
    for (int64_t row = 0; row < batch.length; ++row) {
      ++rows;
      if (keys[row] >= kRecords || ++times[keys[row]] != 1) wrong = fmt::format("key {}", keys[row]);
    }
    batch.release(&batch);
  }
  if (stream.release != nullptr) stream.release(&stream);
  swale_reader_close(reader);
  if (!wrong.empty()) return wrong;
  if (rows == kRecords || (rows == 0 && !must_be_there)) return "";
  return fmt::format("{} records of {}", rows, kRecords);
}

class AppendAllocations : public testing::Test {
 protected:
  ~AppendAllocations() override { std::filesystem::remove_all(path_); }

  struct Outcome {
    uint64_t failed = 0;  // allocations
    bool told = false;
    bool went_on = true;
    std::string wrong;
  };

  // `loses`, the canary: the caller goes on as if the call had appended one record more.
  Outcome run(Append* append, FailingNew::Which which, uint64_t n, FailingNew::Threads threads,
              bool loses = false) {
    std::filesystem::remove_all(path_);
    swale_job* job = nullptr;
    swale_dir* dir = nullptr;
    EXPECT_EQ(swale_job_open(nullptr, nullptr, &job), SWALE_OK) << swale_last_error();
    EXPECT_EQ(swale_dir_open(job, path_.c_str(), SWALE_CREATE, "imd.key=u64,imd.memory=8M", &dir), SWALE_OK)
        << swale_last_error();
    size_t done = 0;
    int code = SWALE_OK;
    Outcome outcome;
    {
      const FailingNew plan(which, n, threads);
      code = append(dir, rows_, 0, &done);
    }
    outcome.failed = FailingNew::failed();
    outcome.told = code != SWALE_OK;
    if (outcome.told) {
      EXPECT_EQ(code, SWALE_RESOURCE_EXHAUSTED) << swale_last_error();
      EXPECT_STRNE(swale_last_error(), "");
      if (loses) ++done;
      size_t rest = 0;
      code = done < kRecords ? append(dir, rows_, done, &rest) : SWALE_OK;
    }
    outcome.went_on = code == SWALE_OK && swale_dir_epoch_end(dir, 0, 0) == SWALE_OK;
    static_cast<void>(swale_dir_close(dir));
    static_cast<void>(swale_job_close(job));
    outcome.wrong = wrong_in(path_, outcome.went_on);
    return outcome;
  }

  void fail_each(const char* name, Append* append) {
    const char* const rounds = std::getenv("SWALE_FAULT_ROUNDS");
    std::vector<FailingNew::Threads> whose = {FailingNew::Threads::kThis};
    if (rounds != nullptr)
      whose.insert(whose.end(), static_cast<size_t>(std::atoi(rounds)), FailingNew::Threads::kAll);
    uint64_t points = 0;
    uint64_t told = 0;
    uint64_t went_on = 0;
    for (const FailingNew::Threads threads : whose) {
      for (const auto which : {FailingNew::Which::kOnce, FailingNew::Which::kFromThere}) {
        for (uint64_t n = 1;; ++n) {
          const Outcome outcome = run(append, which, n, threads);
          if (outcome.failed == 0) break;
          ++points;
          told += outcome.told ? 1 : 0;
          went_on += outcome.told && outcome.went_on ? 1 : 0;
          EXPECT_EQ(outcome.wrong, "") << n << (which == FailingNew::Which::kOnce ? " once" : " from there");
        }
      }
    }
    fmt::print("{} failed allocations of {}: {} calls said so, {} callers went on\n", points, name, told,
               went_on);
    EXPECT_GT(told, 0U);
  }

  const std::string path_ =
      std::filesystem::temp_directory_path() / fmt::format("swale-append-allocations-{}", ::getpid());
  const Rows rows_;
};

TEST_F(AppendAllocations, OfManyLeaveTheEpochWholeOrNotThere) {
  fail_each("swale_dir_append_many", &append_many);
}

TEST_F(AppendAllocations, OfArrowLeaveTheEpochWholeOrNotThere) {
  fail_each("swale_dir_append_arrow", &append_arrow);
}

TEST_F(AppendAllocations, CanaryALostRecordIsFoundOut) {
  const Outcome outcome =
      run(&append_arrow, FailingNew::Which::kOnce, 1, FailingNew::Threads::kThis, /*loses=*/true);
  ASSERT_TRUE(outcome.told);
  EXPECT_NE(outcome.wrong, "");
}

}  // namespace
}  // namespace swale::faults::append_allocations_test
