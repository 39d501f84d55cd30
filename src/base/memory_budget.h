// MemoryBudget: the bytes that one part of the program may hold, and their holders.
//
// Stages reserve fixed amounts at setup, downstream first, so that no stage can starve the one after it.
// Running out is an error at setup that names every holder, not a surprise in the middle of a run.
//
// Threads: thread-safe. A Reservation is used by one thread at a time.
// Invariants: used() <= limit() at all times; used() is the sum of the living reservations.
// Limits: made for tens of reservations, not for one per record.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace swale {

class MemoryBudget {
  struct State;

 public:
  struct Row {
    std::string name;
    uint64_t bytes = 0;
  };

  // Returns its bytes when it is destroyed; may outlive the budget.
  class Reservation {
   public:
    Reservation() = default;
    ~Reservation() { release(); }
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;

    uint64_t bytes() const;
    void release();
    // Holds `bytes` from now on. Requires that it was made by reserve. kResourceExhausted leaves it as it
    // was.
    Status resize(uint64_t bytes);

   private:
    friend class MemoryBudget;
    std::shared_ptr<State> state_;
    std::list<Row>::iterator row_;  // valid while state_ is set
  };

  explicit MemoryBudget(uint64_t limit_bytes);

  // kResourceExhausted names the requester, the amount, what was free and the holders of the rest.
  Result<Reservation> reserve(std::string_view name, uint64_t bytes);

  uint64_t limit() const;
  uint64_t used() const;
  std::vector<Row> report() const;  // living reservations, in the order they were made

 private:
  std::shared_ptr<State> state_;
};

}  // namespace swale
