// NodeLogs without memory: an allocation that fails is an error, and nothing is lost or handed out twice.
#include <gtest/gtest.h>

#include "base/testing/test_allocations.h"
#include "fs/log/testing/log_rig.h"

namespace swale::fs::log_alloc_test {
namespace {

using test::Allocations;

class LogAllocTest : public LogRig {
 protected:
  void SetUp() override { Allocations::spare_this_thread(); }
  template <class Call>
  Status inside(Call call) {
    const Allocations::Library library;
    return call();
  }
  void fail_each();
};

void LogAllocTest::fail_each() {
  small_chunks(64 * 1024, 16);
  int points = 0;
  for (int64_t n = 1;; ++n) {
    options_.memory_directory = memory_.path() + "/node" + std::to_string(n);
    options_.spill_directory = storage_.path() + "/spill" + std::to_string(n);
    options_.memory_bytes = 3 * 64 * 1024;
    files_ = Files();
    open();
    LogWriter writer;
    Allocations::fail(n, 1);
    uint32_t log = 0;
    const auto add_it = [&]() -> Status {
      SWALE_ASSIGN_OR_RETURN(log, logs_->add_log());
      return {};
    };
    // Everything is tried again once: one allocation fails.
    const auto twice = [&](auto call) {
      Status status = inside(call);
      if (!status.ok()) status = inside(call);
      EXPECT_TRUE(status.ok()) << status.to_string() << " at allocation " << n;
    };
    twice(add_it);
    attach(writer, log);
    for (uint64_t i = 0; i < 12; ++i) {
      const std::string bytes = pattern(i, 20'000);
      ASSERT_EQ(writer.write(kFile, i * 20'000, bytes.data(), bytes.size()), 20'000);
      twice([&] { return logs_->take(files_); });
      twice([&] { return logs_->serve(); });
    }
    twice([&] { return logs_->end_log(log, files_); });
    Allocations::stop();
    const bool hit = Allocations::hit();
    std::string expected;
    for (uint64_t i = 0; i < 12; ++i) expected += pattern(i, 20'000);
    ASSERT_EQ(files_.taken.size(), 12u) << "at allocation " << n;
    ASSERT_EQ(files_.bytes(*logs_), expected) << "at allocation " << n;
    files_.drop_all(*logs_);
    serve();
    logs_.reset();
    std::filesystem::remove_all(options_.memory_directory);
    std::filesystem::remove_all(options_.spill_directory);
    if (!hit) break;
    ++points;
  }
  std::printf("%d allocations failed\n", points);
  EXPECT_GT(points, 50);
}

TEST_F(LogAllocTest, EachAllocationMayFail) { fail_each(); }
TEST_F(LogAllocTest, AlsoWhereChunksAreSpilledAhead) {
  options_.outlives_power = true;
  options_.rules.direct_bytes_min = kPageBytes;
  fail_each();
}

}  // namespace
}  // namespace swale::fs::log_alloc_test
