// A replacement of the global operator new that fails when it is told to: link failing_new.cc into a test
// program.
//
//   FailingNew plan(FailingNew::Which::kOnce, 7);   // the 7th allocation from here on throws std::bad_alloc
//
// Threads: one plan at a time. It counts the allocations of the thread that made it, or of all threads.
#pragma once

#include <cstdint>

namespace swale::faults {

class FailingNew {
 public:
  enum class Which { kOnce, kFromThere };  // the n-th allocation alone, or all from the n-th on
  enum class Threads { kThis, kAll };

  FailingNew(Which which, uint64_t nth, Threads threads = Threads::kThis);
  ~FailingNew();
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;

  static uint64_t seen();    // by the last plan
  static uint64_t failed();  // by the last plan

  // Also keeps both numbers there, for the parent of a process that may end at any time.
  static void report_to(uint64_t* seen_and_failed);

  // Neither counts nor fails allocations of this thread: for callbacks of the test.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    const bool before_;
  };
};

}  // namespace swale::faults
