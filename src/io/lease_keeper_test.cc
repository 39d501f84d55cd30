#include "io/lease_keeper.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/testing/sanitizers.h"
#include "base/testing/test_threads.h"
#include "io/lock_file.h"
#include "io/memory_device.h"

namespace swale::io::lease_keeper_test {
namespace {

// Waits for what happens in time, however busy the machine is; a minute is for the broken.
template <class Done>
bool wait_until(Done done) {
  for (int i = 0; i < 6'000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(LeaseKeeper, OneThreadRenewsAllLocksWhileThereAreAny) {
  LeaseKeeper& keeper = LeaseKeeper::of_this_process();
  EXPECT_FALSE(keeper.running());
  MemoryDevice device;
  LockRequest request;
  request.lease.lease = milliseconds(60);
  const auto counter = [&](const char* path) { return read_lock(device, path)->content->counter; };
  {
    auto first = LockFile::acquire(device, "/first", request);
    request.lease.lease = seconds(3'600);
    auto slow = LockFile::acquire(device, "/slow", request);
    request.lease.lease = milliseconds(120);
    auto second = LockFile::acquire(device, "/second", request);
    ASSERT_TRUE(first.ok() && slow.ok() && second.ok());
    EXPECT_TRUE(keeper.running());
    EXPECT_TRUE(wait_until([&] { return counter("/first") >= 3 && counter("/second") >= 3; }));
    first->release();
    EXPECT_TRUE(keeper.running());
    const uint64_t before = counter("/second");
    EXPECT_TRUE(wait_until([&] { return counter("/second") >= before + 2; }));
    EXPECT_EQ(counter("/slow"), 0u);
  }
  EXPECT_FALSE(keeper.running());
  EXPECT_TRUE(device.list("/")->empty());
}

TEST(LeaseKeeper, AChildOfForkRenewsItsOwnLocks) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer kills a child of fork that starts threads";
  MemoryDevice device, childs;  // fork may find the first one's mutex locked by the thread that renews
  LockRequest request;
  request.lease.lease = milliseconds(60);
  auto of_parent = LockFile::acquire(device, "/parent", request);
  ASSERT_TRUE(of_parent.ok());
  ASSERT_TRUE(LeaseKeeper::of_this_process().running());
  const pid_t child = fork();
  if (child == 0) {
    auto lock = LockFile::acquire(childs, "/child", request);
    const bool renewed =
        lock.ok() && wait_until([&] { return read_lock(childs, "/child")->content->counter >= 2; });
    if (lock.ok()) lock->release();
    _exit(renewed && !LeaseKeeper::of_this_process().running() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  of_parent->release();
}

TEST(LeaseKeeper, AnExceptionInARenewalDoesNotEndTheThread) {
  struct Thrower : Lease {
    Nanos renew(Nanos now) override {
      if (++calls == 1) throw std::bad_alloc();
      return now + seconds(3'600);
    }
    std::atomic<int> calls{0};
  };
  LeaseKeeper keeper;
  const auto lease = std::make_shared<Thrower>();
  ASSERT_TRUE(keeper.add(lease, 0).ok());
  EXPECT_TRUE(wait_until([&] { return lease->calls == 2; }));
  keeper.remove(lease.get());
  EXPECT_FALSE(keeper.running());
}

}  // namespace
}  // namespace swale::io::lease_keeper_test
