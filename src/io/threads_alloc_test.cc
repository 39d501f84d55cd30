// Whoever shares a thread joins while memory runs out, at every allocation in turn: either they have joined,
// or they are told and leave nothing behind, neither a thread nor themselves.
#include <gtest/gtest.h>

#include <signal.h>

#include <functional>
#include <memory>
#include <optional>

#include "base/contain.h"
#include "base/crew.h"
#include "base/memory_budget.h"
#include "base/testing/test_allocations.h"
#include "base/testing/test_threads.h"
#include "io/lease_keeper.h"
#include "io/memory_device.h"
#include "io/storage_thread.h"
#include "io/thread_queue.h"

namespace swale::io::threads_alloc_test {
namespace {

using swale::test::Allocations;
using swale::test::threads_expecting;
using swale::test::threads_of_this_process;

class Idle : public StorageClient {
 public:
  bool start(std::vector<Operation>*) override { return false; }
  void completed(const Completion&) override {}
  void failed(const Status& why) noexcept override { ADD_FAILURE() << why.to_string(); }
};

class NoWork : public Crew::Member {
 public:
  bool turn() noexcept override { return false; }
};

class NoLease : public Lease {
 public:
  Nanos renew(Nanos) override { return kForever; }
};

// `join` is given each n; it is told again without failures, and `leave` is called if that or the first was
// well.
void at_every_allocation(const std::function<Status()>& join, const std::function<void()>& leave) {
  Allocations::spare_this_thread();
  const size_t before = threads_of_this_process();
  bool hit = true;
  int refused = 0;
  for (int64_t n = 1; hit; ++n) {
    ASSERT_LT(n, 1'000) << "it allocates without end";
    Status joined;
    Allocations::fail(n, 1);
    {
      const Allocations::Library inside;
      joined = contain(join);
    }
    Allocations::stop();
    hit = Allocations::hit();
    if (!joined.ok()) {
      ++refused;
      EXPECT_EQ(joined.code(), Code::kResourceExhausted) << n << ": " << joined.to_string();
      EXPECT_EQ(threads_expecting(before), before) << "allocation " << n << " left a thread behind";
      ASSERT_TRUE(join().ok()) << n;
    }
    leave();
    ASSERT_EQ(threads_expecting(before), before) << n;
  }
  EXPECT_GT(refused, 0) << "no allocation was refused: this test has tested nothing";
}

TEST(ThreadAllocations, AStorageThreadIsNotLeftWithoutAClient) {
  MemoryDevice device;
  std::unique_ptr<StorageThread> thread;
  Idle client;
  at_every_allocation(
      [&] {
        thread = std::make_unique<StorageThread>(device);
        return thread->add(&client);
      },
      [&] {
        thread->remove(&client);
        thread.reset();
      });
}

TEST(ThreadAllocations, ACrewKeepsNoThreadForWhoDidNotJoin) {
  std::unique_ptr<Crew> crew;
  NoWork member;
  at_every_allocation(
      [&] {
        crew = std::make_unique<Crew>();
        return crew->join(&member, 3);
      },
      [&] {
        crew->leave(&member);
        crew.reset();
      });
}

TEST(ThreadAllocations, ALeaseKeeperKeepsNoLeaseThatWasRefused) {
  const auto lease = std::make_shared<NoLease>();
  std::unique_ptr<LeaseKeeper> keeper;
  at_every_allocation(
      [&] {
        keeper = std::make_unique<LeaseKeeper>();
        const Status added = contain([&] { return keeper->add(lease, kForever); });
        EXPECT_EQ(lease.use_count(), added.ok() ? 2 : 1) << added.to_string();
        return added;
      },
      [&] {
        keeper->remove(lease.get());
        keeper.reset();
      });
}

// It masks signals while it starts its threads.
TEST(ThreadAllocations, AThreadQueueLeavesTheCallersSignalsAsTheyWere) {
  std::unique_ptr<IoQueue> queue;
  at_every_allocation(
      [&]() -> Status {
        const Status made = contain([&]() -> Status {
          SWALE_ASSIGN_OR_RETURN(queue, ThreadQueue::make(3));
          return {};
        });
        sigset_t masked;
        pthread_sigmask(SIG_SETMASK, nullptr, &masked);
        EXPECT_EQ(sigismember(&masked, SIGUSR1), 0) << made.to_string();
        return made;
      },
      [&] { queue.reset(); });
}

TEST(ThreadAllocations, AMemoryBudgetKeepsNothingForWhoWasRefused) {
  MemoryBudget budget(100);
  std::optional<MemoryBudget::Reservation> held;
  at_every_allocation(
      [&]() -> Status {
        const Status reserved = contain([&]() -> Status {
          SWALE_ASSIGN_OR_RETURN(held,
                                 budget.reserve("a name that is too long to stand in the row itself", 100));
          return {};
        });
        EXPECT_EQ(budget.used(), reserved.ok() ? 100u : 0u);
        return reserved;
      },
      [&] { held.reset(); });
}

}  // namespace
}  // namespace swale::io::threads_alloc_test
