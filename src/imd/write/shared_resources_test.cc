// Directories that are open at a time share the memory and the threads of their process
// (docs/design/shared-resources.md).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/crew.h"
#include "base/memory_shares.h"
#include "base/testing/test_threads.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/memory_plan.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"

namespace swale::imd::shared_resources_test {
namespace {

uint64_t held() { return MemoryShares::of_this_process().used(); }

std::unique_ptr<Writer> open_one(net::Job& job, io::Device& device, size_t number,
                                 WriterOptions options = {}) {
  auto writer = Writer::open(job, device, fmt::format("/d{}", number), Writer::Create::kExclusive, options);
  EXPECT_TRUE(writer.ok()) << writer.status().to_string();
  return writer.ok() ? *std::move(writer) : nullptr;
}

// Appends some records and ends the epoch.
void write_epoch(Writer& writer, size_t records) {
  for (size_t i = 0; i < records; ++i)
    ASSERT_TRUE(writer.append(fmt::format("key{}", i), std::string(40, 'v')).ok());
  const Status ended = writer.epoch_end(7, 0.5);
  ASSERT_TRUE(ended.ok()) << ended.to_string();
}

// Opens so many directories, writes to all of them, and reads one record back from each.
void write_to_many(size_t directories, size_t records, uint64_t bytes_max) {
  io::MemoryDevice device;
  ASSERT_EQ(held(), 0u);
  run_ranks(1, [&](net::Job& job) {
    const uint64_t alone = default_share_bytes(job.ranks_on_fullest_node());
    std::vector<std::unique_ptr<Writer>> writers;
    for (size_t i = 0; i < directories; ++i) {
      writers.push_back(open_one(job, device, i));
      ASSERT_NE(writers.back(), nullptr);
      if (i == 0) {
        EXPECT_EQ(held(), alone);  // as if it were the only one
      }
    }
    EXPECT_LE(held(), bytes_max);
    EXPECT_LE(held(), 2 * alone + directories * least_budget_bytes({.budget_bytes = 0}));
    for (auto& writer : writers) write_epoch(*writer, records);
    for (auto& writer : writers) {
      EXPECT_TRUE(writer->close().ok());
      writer.reset();
    }
    EXPECT_EQ(held(), 0u);
  });
  for (size_t i = 0; i < directories; ++i) {
    const auto reader = Reader::open(device, fmt::format("/d{}", i), {});
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    EXPECT_EQ((*reader)->get("key3", 0)->size(), 1u);
  }
}

TEST(SharedMemory, TenDirectoriesDoNotTakeTenTimesTheMemoryOfOne) {
  write_to_many(10, 20'000, 10 * 64 * kMiB / 4);
}

TEST(SharedMemory, TwoHundredWritersFitIntoOneProcess) { write_to_many(200, 100, kGiB); }

// What one gives back the next one gets; a budget that a user has given is nobody's to change.
TEST(SharedMemory, ClosingGivesBackAndAnExplicitBudgetIsExact) {
  io::MemoryDevice device;
  run_ranks(1, [&](net::Job& job) {
    const uint64_t alone = default_share_bytes(job.ranks_on_fullest_node());
    auto first = open_one(job, device, 0);
    auto second = open_one(job, device, 1);
    EXPECT_EQ(held(), alone + alone / 2);
    EXPECT_TRUE(first->close().ok());
    first.reset();
    EXPECT_EQ(held(), alone / 2);
    WriterOptions options;
    options.memory_bytes = 200 * kMiB;
    auto third = open_one(job, device, 2, options);
    EXPECT_EQ(held(), alone / 2 + 200 * kMiB);
    auto fourth = open_one(job, device, 3);
    EXPECT_EQ(held(), alone / 2 + 200 * kMiB + least_budget_bytes({.budget_bytes = 0}));
    for (auto* writer : {&second, &third, &fourth}) EXPECT_TRUE((*writer)->close().ok());
  });
  EXPECT_EQ(held(), 0u);
}

// job.memory: nothing is opened beyond it, and the refusal says who holds it.
TEST(SharedMemory, AUsersLimitOfTheProcessIsKept) {
  io::MemoryDevice device;
  net::JobOptions options;
  options.memory_bytes = 20 * kMiB;
  const auto job = net::Job::open(net::solo_bootstrap(), options);
  ASSERT_TRUE(job.ok());
  std::vector<std::unique_ptr<Writer>> writers;
  for (size_t i = 0; i < 3; ++i) writers.push_back(open_one(**job, device, i));
  EXPECT_EQ(held(), 10 * kMiB + 5 * kMiB + 4 * kMiB);
  const auto refused = Writer::open(**job, device, "/late", Writer::Create::kExclusive, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  for (const char* word : {"job.memory", "/d0", "/d2", "/late"})
    EXPECT_NE(refused.status().message().find(word), std::string_view::npos) << refused.status().to_string();
  EXPECT_TRUE(writers[0]->close().ok());
  writers.erase(writers.begin());
  writers.push_back(open_one(**job, device, 3));
  for (auto& writer : writers) {
    write_epoch(*writer, 1'000);
    EXPECT_TRUE(writer->close().ok());
  }
  writers.clear();
  EXPECT_TRUE((*job)->close().ok());
  EXPECT_EQ(held(), 0u);
}

// Ranks get equal shares, whatever each of them could offer: their frames must fit each other.
TEST(SharedMemory, RanksAgreeOnTheSmallestOffer) {
  io::MemoryDevice device;
  run_ranks(4, [&](net::Job& job) {
    auto first = open_one(job, device, 0);
    auto second = open_one(job, device, 1);
    ASSERT_TRUE(first != nullptr && second != nullptr);
    const auto budget = [](const Writer& writer) {
      uint64_t sum = 0;
      for (const auto& metric : writer.metrics())
        if (metric.name.starts_with("memory: ")) sum += metric.value;
      return sum;
    };
    std::string mine = fmt::format("{} {}", budget(*first), budget(*second));
    const auto all = job.allgather(mine);
    ASSERT_TRUE(all.ok());
    for (const std::string& theirs : *all) EXPECT_EQ(theirs, mine);
    write_epoch(*second, 2'000);
    write_epoch(*first, 2'000);
    EXPECT_TRUE(first->close().ok());
    EXPECT_TRUE(second->close().ok());
  });
  EXPECT_EQ(held(), 0u);
}

void expect_threads(size_t expected) { EXPECT_EQ(test::threads_expecting(expected), expected); }

// One worker, one storage thread and the lease keeper, for one directory and for ten.
TEST(SharedThreads, TenDirectoriesHaveTheThreadsOfOne) {
  io::MemoryDevice device;
  run_ranks(1, [&](net::Job& job) {
    const size_t before = test::threads_of_this_process();
    std::vector<std::unique_ptr<Writer>> writers;
    writers.push_back(open_one(job, device, 0));
    expect_threads(before + 3);
    for (size_t i = 1; i < 10; ++i) writers.push_back(open_one(job, device, i));
    expect_threads(before + 3);
    for (auto& writer : writers) {
      for (size_t i = 0; i < 20'000; ++i)
        ASSERT_TRUE(writer->append(fmt::format("key{}", i), std::string(40, 'v')).ok());
      ASSERT_TRUE(writer->epoch_end_begin(7, 0.5).ok());
      EXPECT_EQ(test::threads_of_this_process(), before + 3);
    }
    for (auto& writer : writers) ASSERT_TRUE(writer->epoch_end_wait().ok());
    expect_threads(before + 3);
    while (!writers.empty()) {
      expect_threads(before + 3);
      EXPECT_TRUE(writers.back()->close().ok());
      writers.pop_back();
    }
    expect_threads(before);
  });
  for (size_t i = 0; i < 10; ++i) {
    const auto reader = Reader::open(device, fmt::format("/d{}", i), {});
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    EXPECT_EQ((*reader)->get("key19999", 0)->size(), 1u);
  }
}

// As many workers as the directory with the most ways asks for, not their sum; also if the ranks are threads.
TEST(SharedThreads, WorkersAreThoseOfTheWidestDirectory) {
  io::MemoryDevice device;
  run_ranks(2, [&](net::Job& job) {
    WriterOptions options;
    options.ways = 3;
    auto narrow = open_one(job, device, 0);
    auto wide = open_one(job, device, 1, options);
    ASSERT_TRUE(narrow != nullptr && wide != nullptr);
    EXPECT_EQ(Crew::of_this_process()->thread_count(), 3u);
    write_epoch(*wide, 5'000);
    write_epoch(*narrow, 5'000);
    ASSERT_TRUE(job.allgather("").ok());
    EXPECT_TRUE(wide->close().ok());
    wide.reset();
    ASSERT_TRUE(job.allgather("").ok());
    EXPECT_EQ(Crew::of_this_process()->thread_count(), 1u);
    ASSERT_TRUE(job.allgather("").ok());
    EXPECT_TRUE(narrow->close().ok());
  });
  EXPECT_EQ(Crew::of_this_process()->thread_count(), 0u);
}

}  // namespace
}  // namespace swale::imd::shared_resources_test
