#include "fs/job/request_lock.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace swale::fs::request_lock_test {
namespace {

TEST(RequestLock, WhoLetsRequestsPassComesAfterThoseThatWait) {
  for (int round = 0; round < 50; ++round) {
    Mutex mutex;
    Requests requests;
    std::atomic<int> next = 0;
    int request_was = -1, supplier_was = -1;
    mutex.lock();
    std::thread request([&] {
      const RequestLock lock(mutex, requests);
      request_was = next++;
    });
    while (requests.waiting() == 0) std::this_thread::yield();
    std::thread supplier([&] {
      requests.let_pass();
      const MutexLock lock(mutex);
      supplier_was = next++;
    });
    mutex.unlock();
    request.join();
    supplier.join();
    EXPECT_EQ(request_was, 0);
    EXPECT_EQ(supplier_was, 1);
  }
}

TEST(RequestLock, AllGetItBesideAThreadThatTakesItAgainAndAgain) {
  constexpr int kThreads = 4, kLocks = 2'000;
  Mutex mutex;
  Requests requests;
  std::atomic<bool> over = false;
  uint64_t count = 0;
  std::thread supplier([&] {
    while (!over.load()) {
      requests.let_pass();
      const MutexLock lock(mutex);
      ++count;
    }
  });
  std::vector<std::thread> threads;
  std::vector<int> had(kThreads, 0);
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < kLocks; ++k) {
        RequestLock lock(mutex, requests);
        ++count;
        lock.unlock();
        lock.lock();
        had[i] += 1;
      }
    });
  for (std::thread& each : threads) each.join();
  over.store(true);
  supplier.join();
  EXPECT_GE(count, static_cast<uint64_t>(kThreads * kLocks));
  for (const int each : had) EXPECT_EQ(each, kLocks);
  EXPECT_EQ(requests.waiting(), 0u);
}

}  // namespace
}  // namespace swale::fs::request_lock_test
