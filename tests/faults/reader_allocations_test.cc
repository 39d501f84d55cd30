// The n-th allocation fails, for every n, in every call of a reader. The call says so or gives the right
// answer; and after it the same reader gives the right answer to everything. SWALE_FAULT_ROUNDS > 1 visits
// every n also of long calls.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/rng.h"
#include "tests/faults/failing_new.h"
#include "tests/faults/reader_calls.h"

namespace swale::faults::reader_allocations_test {
namespace {

constexpr uint64_t kEveryMax = 30;  // of the allocations of one call; beyond, a random sample of kSampled
constexpr uint64_t kSampled = 8;

bool is_long() {
  const char* rounds = std::getenv("SWALE_FAULT_ROUNDS");
  return rounds != nullptr && std::atoi(rounds) > 1;
}

std::vector<uint64_t> points_of(uint64_t allocations, Rng& rng) {
  std::vector<uint64_t> points;
  for (uint64_t n = 1; n <= (is_long() ? allocations : std::min(allocations, kEveryMax)); ++n)
    points.push_back(n);
  for (uint64_t i = 0; !is_long() && allocations > kEveryMax && i < kSampled; ++i) {
    points.push_back(kEveryMax + 1 + rng.below(allocations - kEveryMax));
  }
  return points;
}

class Handle {
 public:
  Handle(const ReaderSample& sample, const std::string& options) {
    const int code = swale_reader_open(sample.path().c_str(), options.c_str(), &reader_);
    EXPECT_EQ(code, SWALE_OK) << swale_last_error();
  }
  ~Handle() { swale_reader_close(reader_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  swale_reader* get() const { return reader_; }

 private:
  swale_reader* reader_ = nullptr;
};

// The right answers: those of a reader that nothing happens to, which are compared with what was written.
class Truth {
 public:
  explicit Truth(const ReaderSample& sample) : sample_(sample) {
    const Handle reader(sample, "");
    for (const ReaderCall& call : reader_calls())
      answers_.push_back(call.ask(sample, reader.get(), as_it_is));
    compare_with_written(reader.get());
  }

  // Every answer of the reader that is not the right one, or says what it may not; "" if there is none.
  std::string wrong_in(swale_reader* reader) const {
    std::string wrong;
    for (size_t i = 0; i < answers_.size(); ++i)
      wrong += wrong_at(i, reader_calls()[i].ask(sample_, reader, as_it_is));
    return wrong;
  }
  std::string wrong_at(size_t call, const Answer& answer) const {
    if (answer == answers_[call]) return "";
    return fmt::format("[{}: code {}, {} bytes, expected {} and {}: {}]", reader_calls()[call].name,
                       answer.code, answer.text.size(), answers_[call].code, answers_[call].text.size(),
                       swale_last_error());
  }
  void spoil(size_t call) { answers_[call].text += "x"; }

 private:
  void compare_with_written(swale_reader* reader) const {
    struct All {
      std::map<std::pair<int64_t, std::string>, std::vector<std::string>> found;
      static int add(void* all, int64_t epoch, const void* key, size_t key_bytes, const void* value,
                     size_t bytes) {
        static_cast<All*>(all)
            ->found[{epoch, std::string(static_cast<const char*>(key), key_bytes)}]
            .emplace_back(static_cast<const char*>(value), bytes);
        return 0;
      }
    } all;
    ASSERT_EQ(swale_reader_scan(reader, SWALE_ALL_EPOCHS, &All::add, &all), SWALE_OK);
    for (auto& [place, values] : all.found) std::sort(values.begin(), values.end());
    EXPECT_TRUE(all.found == sample_.written);
  }

  const ReaderSample& sample_;
  std::vector<Answer> answers_;
};

struct Tally {
  uint64_t points = 0, told = 0, unharmed = 0;
};

class ReaderAllocations : public testing::Test {
 protected:
  static void SetUpTestSuite() { sample = new ReaderSample(150); }
  static void TearDownTestSuite() { delete sample; }

  // Fails point `n` of a call, and asks everything afterwards.
  static void visit(const Truth& truth, size_t index, const std::string& options, bool warm, uint64_t n,
                    FailingNew::Which which, Tally* tally) {
    const ReaderCall& call = reader_calls()[index];
    const std::string name =
        fmt::format("{} ({}, {}, {} {})", call.name, options, warm ? "warm" : "cold",
                    which == FailingNew::Which::kOnce ? "allocation" : "from allocation", n);
    const Handle reader(*sample, options);
    if (warm) {
      ASSERT_EQ(truth.wrong_at(index, call.ask(*sample, reader.get(), as_it_is)), "") << name;
    }
    const Answer answer = call.ask(*sample, reader.get(), [&](const std::function<int()>& inside) {
      const FailingNew plan(which, n);
      return inside();
    });
    ++tally->points;
    if (answer.code == SWALE_RESOURCE_EXHAUSTED) {
      ++tally->told;
      EXPECT_NE(std::string(swale_last_error()), "") << name;
    } else {
      ++tally->unharmed;
      EXPECT_EQ(truth.wrong_at(index, answer), "") << name;
    }
    EXPECT_EQ(truth.wrong_in(reader.get()), "") << "after " << name;
  }

  static uint64_t allocations_of(size_t index, const std::string& options, bool warm) {
    const Handle reader(*sample, options);
    if (warm) reader_calls()[index].ask(*sample, reader.get(), as_it_is);
    reader_calls()[index].ask(*sample, reader.get(), [](const std::function<int()>& inside) {
      const FailingNew plan(FailingNew::Which::kOnce, 0);
      return inside();
    });
    return FailingNew::seen();
  }

  static ReaderSample* sample;
};
ReaderSample* ReaderAllocations::sample = nullptr;

TEST_F(ReaderAllocations, AfterAnyFailedOneTheSameReaderAnswersRightly) {
  const Truth truth(*sample);
  Tally tally;
  Rng rng(11);
  for (const char* options : {"imd.map=never", "imd.map=auto"}) {
    for (const bool warm : {false, true}) {
      for (size_t call = 0; call < reader_calls().size(); ++call) {
        for (const uint64_t n : points_of(allocations_of(call, options, warm), rng)) {
          visit(truth, call, options, warm, n, FailingNew::Which::kOnce, &tally);
          if (is_long() || n % 5 == 1) {
            visit(truth, call, options, warm, n, FailingNew::Which::kFromThere, &tally);
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  fmt::print("{} failed allocations: {} calls said so, {} gave the right answer all the same\n", tally.points,
             tally.told, tally.unharmed);
  EXPECT_GT(tally.told, tally.points / 2);
}

TEST_F(ReaderAllocations, InOpenLeaveNothingBehind) {
  const Truth truth(*sample);
  uint64_t points = 0;
  for (const auto which : {FailingNew::Which::kOnce, FailingNew::Which::kFromThere}) {
    for (uint64_t n = 1;; ++n, ++points) {
      swale_reader* reader = nullptr;
      int code = SWALE_OK;
      {
        const FailingNew plan(which, n);
        code = swale_reader_open(sample->path().c_str(), "", &reader);
      }
      if (code == SWALE_OK) {
        EXPECT_EQ(truth.wrong_in(reader), "") << n;
        swale_reader_close(reader);
        if (FailingNew::failed() == 0) break;
        continue;
      }
      EXPECT_EQ(code, SWALE_RESOURCE_EXHAUSTED) << n << swale_last_error();
      EXPECT_EQ(reader, nullptr) << n;
    }
  }
  fmt::print("{} failed allocations of swale_reader_open\n", points);
}

TEST_F(ReaderAllocations, InRefreshLeaveTheReaderAsItWasOrAsItWillBe) {
  const Truth truth(*sample);
  uint64_t points = 0;
  for (const bool warm : {false, true}) {
    for (const auto which : {FailingNew::Which::kOnce, FailingNew::Which::kFromThere}) {
      for (uint64_t n = 1;; ++n, ++points) {
        sample->go_back();
        const Handle reader(*sample, "");
        if (warm) {
          EXPECT_NE(truth.wrong_in(reader.get()), "");  // half of the epochs
        }
        sample->go_on();
        int changed = -1;
        int code = SWALE_OK;
        {
          const FailingNew plan(which, n);
          code = swale_reader_refresh(reader.get(), &changed);
        }
        const bool failed = FailingNew::failed() > 0;
        if (code != SWALE_OK) {
          EXPECT_EQ(code, SWALE_RESOURCE_EXHAUSTED) << n << swale_last_error();
          EXPECT_EQ(changed, -1) << n;
          EXPECT_EQ(swale_reader_epoch_count(reader.get()), 2) << n;
          EXPECT_EQ(swale_reader_refresh(reader.get(), &changed), SWALE_OK) << n << swale_last_error();
        }
        EXPECT_EQ(changed, SWALE_REFRESH_ADDED) << n;
        EXPECT_EQ(truth.wrong_in(reader.get()), "") << n;
        if (!failed) break;
      }
    }
  }
  fmt::print("{} failed allocations of swale_reader_refresh\n", points);
}

// The canary: a checker that did not notice a wrong answer would notice nothing.
TEST_F(ReaderAllocations, CheckerNoticesAWrongAnswer) {
  for (size_t call = 0; call < reader_calls().size(); ++call) {
    Truth truth(*sample);
    truth.spoil(call);
    const Handle reader(*sample, "");
    EXPECT_NE(truth.wrong_in(reader.get()), "") << reader_calls()[call].name;
  }
}

}  // namespace
}  // namespace swale::faults::reader_allocations_test
