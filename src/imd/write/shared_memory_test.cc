// Directories that are open at a time share the memory of their process (docs/design/shared-resources.md).
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_shares.h"
#include "imd/read/reader.h"
#include "imd/test_job.h"
#include "imd/write/memory_plan.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"

namespace swale::imd {
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
    const uint64_t alone = default_budget_bytes(job.ranks_on_fullest_node());
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
    const uint64_t alone = default_budget_bytes(job.ranks_on_fullest_node());
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

}  // namespace
}  // namespace swale::imd
