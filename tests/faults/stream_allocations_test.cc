// The n-th allocation of any thread fails, for every n, in a stream of columns whose threads read ahead. The
// stream says so, after rows that are right, or gives them all; and it ends. SWALE_FAULT_ROUNDS > 1: with
// more threads, several times.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "swale/swale_arrow.h"
#include "tests/faults/failing_new.h"
#include "tests/faults/reader_calls.h"

namespace swale::faults::stream_allocations_test {
namespace {

struct Rows {
  std::vector<std::pair<int64_t, std::string>> places;
  int code = SWALE_OK;
};

// The test's own work neither counts nor fails.
void add_rows(ArrowArray* array, Rows* rows) {
  const FailingNew::Pause pause;
  const auto* const epochs = static_cast<const int64_t*>(array->children[0]->buffers[1]);
  const auto* const ends = static_cast<const int32_t*>(array->children[1]->buffers[1]);
  const auto* const keys = static_cast<const char*>(array->children[1]->buffers[2]);
  for (int64_t row = 0; row < array->length; ++row) {
    rows->places.emplace_back(epochs[row],
                              std::string(keys + ends[row], static_cast<size_t>(ends[row + 1] - ends[row])));
  }
  array->release(array);
}

Rows read(swale_reader* reader, uint32_t threads) {
  Rows rows;
  const char* const columns[] = {"epoch", "key", "x", "value"};
  swale_query query = {};
  query.struct_bytes = sizeof query;
  query.columns = columns;
  query.column_count = 4;
  query.where = "id % 2 == 0";
  query.threads = threads;
  query.batch_rows = 100;
  ArrowArrayStream stream = {};
  rows.code = swale_reader_stream(reader, &query, &stream);
  if (rows.code != SWALE_OK) return rows;
  for (;;) {
    ArrowArray array = {};
    if (stream.get_next(&stream, &array) != 0) {
      swale_error_info info = {};
      info.struct_bytes = sizeof info;
      EXPECT_EQ(swale_stream_error(&stream, &info), SWALE_OK);
      rows.code = info.code;
      EXPECT_STRNE(info.message, "");
    }
    if (array.release == nullptr) break;
    add_rows(&array, &rows);
  }
  stream.release(&stream);
  return rows;
}

class StreamAllocations : public testing::Test {
 protected:
  StreamAllocations() : sample_(200) {
    EXPECT_EQ(swale_reader_open(sample_.path().c_str(), nullptr, &reader_), SWALE_OK) << swale_last_error();
  }
  ~StreamAllocations() override { swale_reader_close(reader_); }

  ReaderSample sample_;
  swale_reader* reader_ = nullptr;
};

TEST_F(StreamAllocations, AfterAnyFailedOneItsRowsAreRight) {
  const Rows right = read(reader_, 1);
  ASSERT_EQ(right.code, SWALE_OK);
  ASSERT_GT(right.places.size(), 100U);
  const char* const rounds = std::getenv("SWALE_FAULT_ROUNDS");
  const int repeats = rounds == nullptr ? 1 : std::atoi(rounds) * 5;
  uint64_t points = 0;
  uint64_t told = 0;
  for (const uint32_t threads : {1U, 2U, 5U}) {
    for (const auto which : {FailingNew::Which::kOnce, FailingNew::Which::kFromThere}) {
      uint64_t unharmed = 0;  // in a row: the order of threads changes how many allocations there are
      for (uint64_t n = 1; unharmed < 20; ++n) {
        for (int i = 0; i < repeats; ++i) {
          Rows rows;
          {
            const FailingNew plan(which, n, FailingNew::Threads::kAll);
            rows = read(reader_, threads);
          }
          ++points;
          if (rows.code == SWALE_OK) {
            EXPECT_EQ(rows.places.size(), right.places.size())
                << n << " of " << threads << (which == FailingNew::Which::kOnce ? " once" : " from there");
          } else {
            EXPECT_EQ(rows.code, SWALE_RESOURCE_EXHAUSTED) << n;
            ++told;
          }
          unharmed = FailingNew::failed() == 0 ? unharmed + 1 : 0;
          ASSERT_LE(rows.places.size(), right.places.size()) << n;
          EXPECT_TRUE(std::equal(rows.places.begin(), rows.places.end(), right.places.begin())) << n;
        }
      }
    }
  }
  fmt::print("{} failed allocations: {} streams said so\n", points, told);
  EXPECT_GT(told, 100U);
  EXPECT_TRUE(read(reader_, 3).places == right.places);
}

}  // namespace
}  // namespace swale::faults::stream_allocations_test
