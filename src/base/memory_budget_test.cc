#include "base/memory_budget.h"

#include <gmock/gmock.h>

#include <optional>
#include <thread>

namespace swale::memory_budget_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Reservation = MemoryBudget::Reservation;

TEST(MemoryBudget, CountsWhatIsHeldAndItsPeak) {
  MemoryBudget budget(100);
  {
    const Reservation a = budget.reserve("memtables", 60).value();
    const Reservation b = budget.reserve("frames", 40).value();
    EXPECT_EQ(a.bytes(), 60u);
    EXPECT_EQ(budget.used(), 100u);
    ASSERT_EQ(budget.report().size(), 2u);
    EXPECT_EQ(budget.report()[0].name, "memtables");
    EXPECT_EQ(budget.report()[1].bytes, 40u);
  }
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_TRUE(budget.report().empty());
}

TEST(MemoryBudget, RefusalSaysWhoWantedWhatAndWhoHoldsTheRest) {
  MemoryBudget budget(100);
  const Reservation held = budget.reserve("memtables", 60).value();
  const Result<Reservation> refused = budget.reserve("frames", 41);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("frames wants 41 bytes"), HasSubstr("40 of 100 are free"),
                    HasSubstr("held: memtables 60")));
  EXPECT_EQ(budget.used(), 60u);
}

TEST(MemoryBudget, HugeWishDoesNotOverflow) {
  MemoryBudget budget(100);
  const Reservation held = budget.reserve("a", 50).value();
  EXPECT_FALSE(budget.reserve("b", UINT64_MAX).ok());
}

TEST(MemoryBudget, MoveReleasesOnceAndAssignmentReleasesTheOld) {
  MemoryBudget budget(100);
  Reservation a = budget.reserve("a", 60).value();
  Reservation b = std::move(a);
  EXPECT_EQ(a.bytes(), 0u);  // NOLINT: the state after a move is what is tested
  EXPECT_EQ(budget.used(), 60u);
  b = budget.reserve("c", 10).value();
  EXPECT_EQ(budget.used(), 10u);
  b.release();
  b.release();
  EXPECT_EQ(budget.used(), 0u);
}

TEST(MemoryBudget, ReservationMayOutliveTheBudget) {
  std::optional<MemoryBudget> budget(std::in_place, 100);
  const Reservation held = budget->reserve("a", 60).value();
  budget.reset();
  EXPECT_EQ(held.bytes(), 60u);
}

TEST(MemoryBudget, ThreadsNeverHoldMoreThanTheLimit) {
  MemoryBudget budget(3);
  auto work = [&] {
    for (int i = 0; i < 2000; ++i) {
      const Result<Reservation> reservation = budget.reserve("thread", 1);
      EXPECT_LE(budget.used(), 3u);
    }
  };
  std::thread other(work);
  std::thread third(work);
  work();
  other.join();
  third.join();
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace swale::memory_budget_test
