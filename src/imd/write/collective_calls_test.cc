// Ranks that make different collective calls are told at once, by name; those that do not come at all, after
// collective_deadline. And what counts as the same time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"
#include "net/job/opening.h"

namespace swale::imd::collective_calls_test {
namespace {

using testing::HasSubstr;

constexpr char kDir[] = "/run/x";

WriterOptions small() {
  WriterOptions options;
  options.memory_bytes = 6 * kMiB;
  return options;
}

// One rank with an open directory.
struct Rank {
  net::Job& job;
  io::Device& device;
  std::unique_ptr<Writer> writer;
  bool job_closed = false;
};

struct CollectiveCall {
  const char* name;
  const char* says;  // in messages
  std::function<Status(Rank&)> make;
};

const std::vector<CollectiveCall>& calls() {
  static const std::vector<CollectiveCall> all = {
      {"epoch_end", "ends epoch 0 of", [](Rank& rank) { return rank.writer->epoch_end(1, 0.5); }},
      {"close", "closes ", [](Rank& rank) { return rank.writer->close(); }},
      {"set_attributes", "sets attributes of ",
       [](Rank& rank) { return rank.writer->set_attributes(Writer::Described::kEpoch, R"({"a":1})"); }},
      {"dir_open", "opens ",
       [](Rank& rank) {
         return Writer::open(rank.job, rank.device, "/run/y", Writer::Create::kIfMissing, small()).status();
       }},
      {"mkdir", "makes ",
       [](Rank& rank) {
         SWALE_RETURN_IF_ERROR(net::begin_collective(rank.job, net::CallKind::kMakeDirectory, "/run/z", {}));
         return make_massive_directory(rank.job, rank.device, "/run/z");
       }},
  };
  return all;
}

// All ranks make the first call, but `odd`, which makes the second one. What each was told.
std::vector<Status> make_calls(int32_t size, const CollectiveCall& usual, const CollectiveCall& other,
                               net::Rank odd) {
  io::MemoryDevice device;
  std::vector<Status> told(static_cast<size_t>(size));
  const auto group = std::make_shared<net::LocalGroup>(size);
  std::vector<std::thread> threads;
  for (net::Rank number = 0; number < size; ++number) {
    threads.emplace_back([&, number] {
      net::JobOptions options;
      options.transport = "loopback";
      auto job = net::Job::open(net::local_bootstrap(group, number), options);
      ASSERT_TRUE(job.ok());
      auto writer = Writer::open(**job, device, kDir, Writer::Create::kIfMissing, small());
      ASSERT_TRUE(writer.ok()) << writer.status().to_string();
      Rank rank{**job, device, *std::move(writer)};
      told[static_cast<size_t>(number)] = (number == odd ? other : usual).make(rank);
      static_cast<void>(rank.writer->close());
      if (!rank.job_closed) static_cast<void>(rank.job.close());
      rank.writer.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return told;
}

TEST(CollectiveCalls, EveryPairThatDiffersIsToldToAllRanksByName) {
  set_log_level(LogLevel::kOff);
  int pairs = 0;
  for (const CollectiveCall& usual : calls()) {
    for (const CollectiveCall& other : calls()) {
      if (&usual == &other) continue;
      for (const int32_t size : {2, 3}) {
        const net::Rank odd = size - 1;
        const std::vector<Status> told = make_calls(size, usual, other, odd);
        for (int32_t number = 0; number < size; ++number) {
          const Status& status = told[static_cast<size_t>(number)];
          const std::string where =
              fmt::format("{} ranks, {} and {} (by rank {}): rank {} is told \"{}\"", size, usual.name,
                          other.name, odd, number, status.to_string());
          EXPECT_FALSE(status.ok()) << where;
          EXPECT_THAT(std::string(status.message()), HasSubstr(fmt::format("rank {}", odd))) << where;
          EXPECT_THAT(std::string(status.message()), HasSubstr(usual.says)) << where;
          EXPECT_THAT(std::string(status.message()), HasSubstr(other.says)) << where;
          EXPECT_THAT(std::string(status.message()), HasSubstr("the same collective calls")) << where;
        }
        ++pairs;
      }
    }
  }
  set_log_level(LogLevel::kWarn);
  fmt::print("{} pairs of calls\n", pairs);
}

TEST(CollectiveCalls, AnErrorThatRanksMeetAtDifferentCallsIsNoMismatch) {
  io::MemoryDevice device;
  run_ranks(2, [&](net::Job& job) {
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, small());
    ASSERT_TRUE(writer.ok());
    // Rank 1 gives up without an epoch's end.
    if (job.rank() == 1) {
      writer->reset();
    } else {
      const Status ended = (*writer)->epoch_end(1, 1);
      EXPECT_EQ(ended.code(), Code::kAborted) << ended.to_string();
      EXPECT_THAT(std::string(ended.message()), HasSubstr("rank 1"));
      EXPECT_FALSE((*writer)->close().ok());
    }
    // The job goes on.
    auto again = Writer::open(job, device, kDir, Writer::Create::kIfMissing, small());
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_TRUE((*again)->epoch_end(1, 1).ok());
    EXPECT_TRUE((*again)->close().ok());
  });
}

TEST(CollectiveCalls, ARankThatDoesNotComeIsNamedAfterTheDeadline) {
  io::MemoryDevice device;
  std::promise<void> told;
  std::shared_future<void> told_all = told.get_future().share();
  run_ranks(2, [&](net::Job& job) {
    WriterOptions options = small();
    if (job.rank() == 0) options.collective_deadline = milliseconds(200);
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok());
    if (job.rank() == 0) {
      const Status ended = (*writer)->epoch_end(1, 1);
      told.set_value();
      EXPECT_EQ(ended.code(), Code::kDeadlineExceeded);
      EXPECT_THAT(std::string(ended.message()), HasSubstr("rank 1 to end epoch 0"));
      EXPECT_THAT(std::string(ended.message()), HasSubstr("imd.collective_deadline_s"));
    } else {
      told_all.wait();  // it lives, and computes
      const Status ended = (*writer)->epoch_end(1, 1);
      EXPECT_EQ(ended.code(), Code::kAborted);
      EXPECT_THAT(std::string(ended.message()), HasSubstr("rank 0 failed"));
    }
    EXPECT_FALSE((*writer)->close().ok());
  });
}

TEST(CollectiveCalls, TimesAreTheSameIfTheirBitsAre) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const double other_nan = std::bit_cast<double>(std::bit_cast<uint64_t>(nan) + 1);
  struct Case {
    double mine, theirs;
    bool same;
  };
  for (const Case& each : {Case{nan, nan, true},
                           {inf, inf, true},
                           {-inf, -inf, true},
                           {-0.0, -0.0, true},
                           {nan, other_nan, false},
                           {-0.0, 0.0, false},
                           {inf, -inf, false},
                           {nan, 1, false}}) {
    io::MemoryDevice device;
    run_ranks(2, [&](net::Job& job) {
      auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, small());
      ASSERT_TRUE(writer.ok());
      const Status ended = (*writer)->epoch_end(1, job.rank() == 0 ? each.mine : each.theirs);
      EXPECT_EQ(ended.ok(), each.same) << ended.to_string();
      EXPECT_EQ(ended.code(), each.same ? Code::kOk : Code::kInvalidArgument) << ended.to_string();
      static_cast<void>((*writer)->close());
    });
    if (!each.same) continue;
    auto reader = Reader::open(device, kDir, {});
    ASSERT_TRUE(reader.ok());
    ASSERT_EQ((*reader)->manifest().epochs.size(), 1u);
    const double read = (*reader)->manifest().epochs[0].time;
    EXPECT_TRUE(std::isnan(each.mine) ? std::isnan(read) : read == each.mine) << read;
  }
}

}  // namespace
}  // namespace swale::imd::collective_calls_test
