#include "imd/write/memory_plan.h"

#include <gtest/gtest.h>

#include "base/memory_shares.h"
#include "run/record.h"

namespace swale::imd::memory_plan_test {
namespace {

TEST(MemoryPlan, StaysWithinEveryBudgetAndLeavesNoStageWithoutRoom) {
  int plans = 0;
  for (const size_t budget : {4 * kMiB, 6 * kMiB, 16 * kMiB, 64 * kMiB, 512 * kMiB, 4 * kGiB}) {
    for (const int32_t ranks : {1, 2, 4, 16, 64, 200, 1000}) {
      for (const uint32_t ways : {1u, 2u, 4u, 8u}) {
        const Result<MemoryPlan> plan = plan_memory({budget, ranks, ways, 32 * kKiB, 4});
        if (!plan.ok()) {
          EXPECT_EQ(plan.status().code(), Code::kResourceExhausted);
          continue;
        }
        ++plans;
        MemoryBudget charged(budget);
        const auto reservations = reserve(charged, *plan);
        ASSERT_TRUE(reservations.ok()) << reservations.status().to_string();
        EXPECT_EQ(charged.used(), budget) << ranks << " ranks, " << ways << " ways";
        EXPECT_EQ(charged.report().size(), 6u);
        MemoryBudget short_of_it(budget - 1);
        EXPECT_EQ(reserve(short_of_it, *plan).status().code(), Code::kResourceExhausted);
        EXPECT_GE(plan->frame_bytes, run::kEncodedRecordBytesMax);
        EXPECT_GE(plan->window, 1);
        EXPECT_GT(plan->output_buffers, ways);
        EXPECT_GE(plan->memtable_bytes, 4 * run::kEncodedRecordBytesMax);
        EXPECT_GE(plan->sketch_bytes, budget / 32);
        EXPECT_EQ(plan->output_buffer_bytes % 4096, 0u);
      }
    }
  }
  EXPECT_GT(plans, 80);
}

TEST(MemoryPlan, TooManyRanksForTheBudgetSaysWhatWouldDo) {
  const Result<MemoryPlan> plan = plan_memory({64 * kMiB, 5000, 1, 32 * kKiB, 4});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::kResourceExhausted);
  const std::string text(plan.status().message());
  const size_t at = text.find("give at least ");
  ASSERT_NE(at, std::string::npos) << text;
  const size_t enough = std::stoull(text.substr(at + 14));
  EXPECT_TRUE(plan_memory({enough, 5000, 1, 32 * kKiB, 4}).ok()) << text;
}

std::shared_ptr<const net::NodeMap> nodes_of(size_t nodes, int32_t ranks) {
  return std::make_shared<const net::NodeMap>(*net::NodeMap::in_blocks(std::vector<int32_t>(nodes, ranks)));
}

// Directly where the least frames fit into a quarter of the budget, else by three hops: no job is refused for
// its size.
TEST(MemoryPlan, JobsThatAreTooLargeForDirectFramesTakeThreeHops) {
  const auto plan_of = [](size_t budget, size_t nodes, int32_t ranks, net::RouteChoice route) {
    MemoryWish wish{.budget_bytes = budget, .ranks = static_cast<int32_t>(nodes) * ranks};
    wish.route = route;
    wish.nodes = nodes_of(nodes, ranks);
    return plan_memory(wish);
  };
  using net::RouteChoice;
  EXPECT_FALSE(plan_of(64 * kMiB, 8, 32, RouteChoice::kAuto)->hops.has_value()) << "256 ranks";
  EXPECT_TRUE(plan_of(64 * kMiB, 12, 32, RouteChoice::kAuto)->hops.has_value()) << "384 ranks";
  EXPECT_TRUE(plan_of(64 * kMiB, 2, 2, RouteChoice::kThreeHop)->hops.has_value());
  EXPECT_FALSE(plan_of(64 * kMiB, 12, 32, RouteChoice::kDirect).ok());
  for (const size_t budget : {4 * kMiB, 16 * kMiB, 64 * kMiB}) {
    const Result<MemoryPlan> plan = plan_of(budget, 4096, 32, RouteChoice::kAuto);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    ASSERT_TRUE(plan->hops.has_value());
    EXPECT_LE(plan->hop_bytes, budget / 4);
    EXPECT_GT(plan->record_bytes_max, run::kKeyBytesMax + 100);
    EXPECT_LE(plan->record_bytes_max, net::ThreeHopRouter::message_bytes_max(*plan->hops));
    MemoryBudget charged(budget);
    const auto reservations = reserve(charged, *plan);
    ASSERT_TRUE(reservations.ok()) << reservations.status().to_string();
    EXPECT_EQ(charged.used(), budget) << "all of it is given out, and nothing twice";
  }
  // Keys of the lossy format: a stage of their own, and records are not bound to what a message holds.
  // 16 MiB is what a rank gets by default on a full node.
  for (const auto& [budget, nodes] : {std::pair{16 * kMiB, 4}, {16 * kMiB, 4096}, {64 * kMiB, 4096}}) {
    MemoryWish lossy{.budget_bytes = budget, .ranks = nodes * 32, .route = net::RouteChoice::kThreeHop};
    lossy.layout.format = run::ShuffleFormat::kLossy;
    lossy.nodes = nodes_of(static_cast<size_t>(nodes), 32);
    const Result<MemoryPlan> plan = plan_memory(lossy);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    ASSERT_TRUE(plan->hops.has_value());
    EXPECT_LE(plan->hop_bytes + plan->key_stage_bytes, budget / 8);
    EXPECT_GE(plan->key_stage_bytes, budget / 16 - kKiB);
    EXPECT_GE(plan->key_message_bytes_max(), 1000u);
    EXPECT_EQ(plan->record_bytes_max, run::kEncodedRecordBytesMax);
    MemoryBudget charged(budget);
    const auto reservations = reserve(charged, *plan);
    ASSERT_TRUE(reservations.ok()) << reservations.status().to_string();
    EXPECT_EQ(charged.used(), budget);
  }
  MemoryWish schema{.budget_bytes = 16 * kMiB, .ranks = 131'072};
  schema.nodes = nodes_of(4096, 32);
  schema.schema_bytes = 16'000;
  const Status refused = plan_memory(schema).status();
  ASSERT_FALSE(refused.ok()) << "no message holds the fields of a large value";
  const size_t at = refused.message().find("give at least ");
  ASSERT_NE(at, std::string::npos) << refused.message();
  schema.budget_bytes = std::stoull(std::string(refused.message().substr(at + 14)));
  EXPECT_TRUE(plan_memory(schema).ok());
  EXPECT_FALSE(plan_of(64 * kMiB, 1, 1, RouteChoice::kThreeHop)->hops.has_value())
      << "there is nobody to send to";
}

TEST(MemoryPlan, ExtremaHaveRoomForARunAndStayWithinTheBudget) {
  for (const size_t budget : {4 * kMiB, 16 * kMiB, 64 * kMiB, 4 * kGiB}) {
    for (const uint32_t fields : {1u, 8u}) {
      const Result<MemoryPlan> plan = plan_memory({budget, 2, 2, 32 * kKiB, 4, fields});
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      EXPECT_GE(plan->extrema_blocks, plan->memtable_bytes / 4096);
      EXPECT_LE(plan->extrema_blocks, 65'536u);
      EXPECT_GE(plan->extrema_bytes, 2 * 2 * size_t{plan->extrema_blocks} * fields * 16);
      MemoryBudget charged(budget);
      const auto reservations = reserve(charged, *plan);
      ASSERT_TRUE(reservations.ok()) << reservations.status().to_string();
      EXPECT_EQ(charged.used(), budget);
      EXPECT_EQ(charged.report().size(), 7u);
    }
  }
}

TEST(MemoryPlan, RefusesAbsurdWishes) {
  EXPECT_EQ(plan_memory({64 * kMiB, 0, 1, 32 * kKiB, 4}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(plan_memory({64 * kMiB, 1, 0, 32 * kKiB, 4}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(plan_memory({64 * kMiB, 1, 1, 32 * kKiB, 0}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(plan_memory({64 * kMiB, 1, 1, 12, 4}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(plan_memory({4096, 1, 1, 32 * kKiB, 4}).status().code(), Code::kResourceExhausted);
}

TEST(MemoryPlan, TheDefaultIsAShareOfTheNodeNotOfTheJob) {
  struct Row {
    int32_t nodes;
    int32_t ranks_on_node;
    uint64_t machine_bytes;
    bool fits;
  };
  const Row rows[] = {
      {1, 1, 4 * kGiB, true},      {1, 4, 4 * kGiB, true},      {4, 64, 128 * kGiB, true},
      {8, 32, 128 * kGiB, true},   {2, 128, 512 * kGiB, true},  {16, 16, 64 * kGiB, true},
      {256, 1, 4 * kGiB, true},    {1, 256, 128 * kGiB, false},  // 16 MiB for frames to 256 ranks: not enough
      {64, 32, 128 * kGiB, false},                               // 64 MiB, and frames to 2,048 ranks
  };
  for (const Row& row : rows) {
    const int32_t ranks = row.nodes * row.ranks_on_node;
    const size_t budget = default_share_bytes(row.ranks_on_node, row.machine_bytes);
    EXPECT_LE(budget, 64 * kMiB);
    const Result<MemoryPlan> plan = plan_memory({budget, ranks, 1, 32 * kKiB, 4});
    EXPECT_EQ(plan.ok(), row.fits) << row.nodes << " nodes of " << row.ranks_on_node << " ranks: " << budget;
  }
  EXPECT_EQ(default_share_bytes(64, 128 * kGiB), 128 * kGiB / 100 * 3 / 64);
}

}  // namespace
}  // namespace swale::imd::memory_plan_test
