// When `swale start` brings all to the backing without being asked: before a batch job's time limit.
// Threads: free functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace swale::tools {

// "2026-11-28T14:30" or with ":SS", in this node's time zone; none: it is no such text.
std::optional<int64_t> parse_local_time(const std::string& text);

// "+90s", "+10m", "+2h": from now. "-10m": before `job_end`, the end of the batch job's time.
// Else as parse_local_time. Times are seconds since 1970. kInvalidArgument:
// it is none of these, it has passed, or no batch job has said when it ends.
Result<int64_t> parse_drain_time(const std::string& text, int64_t now, std::optional<int64_t> job_end);

// When a drain is to begin, from a time on: again and again, one at a time, however long it takes. Seconds.
class DrainTurns {
 public:
  explicit DrainTurns(std::optional<int64_t> from) : next_(from) {}

  // Whether one is to begin now; then it has begun.
  bool begins(int64_t now);
  void ended() { under_way_ = false; }
  // Until the next one begins; none: not before something else happens.
  std::optional<int64_t> wait(int64_t now) const;

 private:
  std::optional<int64_t> next_;
  bool under_way_ = false;
};

}  // namespace swale::tools
