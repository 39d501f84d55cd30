// Allocations that fail: operator new of a test program (test_allocations.cc) fails from the n-th counted
// allocation on, for a while.
//
// What is counted: every allocation of threads that the library has started, and those of the test's own
// threads while they are inside a Library. So the test itself and its checks never fail. After
// spare_library_threads() the latter alone: for a part whose neighbours do not outlive a failure.
// Threads: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace swale::test {

inline constexpr int64_t kForGood = int64_t{1} << 62;

class Allocations {
 public:
  // The n-th counted allocation from now on fails, from 1, and those after it until `length` have failed.
  static void fail(int64_t n, int64_t length) {
    seen_.store(0);
    first_.store(n);
    end_.store(length == kForGood ? kForGood : n + length);
    on_.store(true);
  }
  static void stop() { on_.store(false); }
  static void spare_library_threads() { inside_only_.store(true); }
  // An allocation that would fail does not if this says so, of the calls that lead to it.
  static void spare_if(bool (*spared)()) { spared_.store(spared); }
  static int64_t refused() { return refused_.load(); }  // so far
  static int64_t seen() { return seen_.load(); }
  static bool hit() { return seen_.load() >= first_.load(); }

  // This thread is inside the library.
  class Library {
   public:
    Library() : before_(mine_) {
      mine_ = false;
      ++inside_;
    }
    ~Library() {
      mine_ = before_;
      --inside_;
    }

   private:
    bool before_;
  };
  // This thread is the test's own.
  static void spare_this_thread() { mine_ = true; }

  static bool refuses() {
    if (!on_.load(std::memory_order_relaxed) || mine_) return false;
    if (inside_only_.load(std::memory_order_relaxed) && inside_ == 0) return false;
    const int64_t now = seen_.fetch_add(1) + 1;
    if (now < first_.load(std::memory_order_relaxed) || now >= end_.load(std::memory_order_relaxed))
      return false;
    if (const auto spared = spared_.load(); spared != nullptr && spared()) return false;
    refused_.fetch_add(1);
    return true;
  }

 private:
  inline static std::atomic<bool> on_{false};
  inline static std::atomic<int64_t> seen_{0};
  inline static std::atomic<int64_t> first_{kForGood};
  inline static std::atomic<int64_t> end_{kForGood};
  inline static std::atomic<bool> inside_only_{false};
  inline static std::atomic<bool (*)()> spared_{nullptr};
  inline static std::atomic<int64_t> refused_{0};
  inline static thread_local bool mine_ = false;
  inline static thread_local int inside_ = 0;  // Library scopes
};

}  // namespace swale::test
