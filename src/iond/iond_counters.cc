#include "iond/iond_counters.h"

#include <algorithm>
#include <array>

#include "tier/store/tier_counters.h"

namespace swale::iond {
namespace {

constexpr std::array kServerRows = {
    CounterRow{"clients", "", "ranks that have asked something and have not closed"},
    CounterRow{"files.open", "", "files that they have open"},
    CounterRow{"requests.waiting", "", "requests that no thread has taken yet"},
    CounterRow{"network.refused", "", "frames and messages dropped because they are not of this job"},
    CounterRow{"memory.requests", "bytes", "of the process's memory that requests reserve"}};

std::vector<CounterRow> all_rows() {
  std::vector<CounterRow> rows(tier::tier_counter_rows().begin(), tier::tier_counter_rows().end());
  rows.insert(rows.end(), kServerRows.begin(), kServerRows.end());
  return rows;
}

}  // namespace

std::span<const CounterRow> iond_counter_rows() {
  static const std::vector<CounterRow> rows = all_rows();
  return rows;
}

Counters iond_counters(const tier::Store& store, const IondLoad& load) {
  Counters counters = tier::tier_counters(store, load.rank);
  const uint64_t values[] = {load.clients, load.open_files, load.requests_waiting, load.refused_frames,
                             load.reserved_bytes};
  static_assert(std::size(values) == kServerRows.size());
  for (size_t i = 0; i < kServerRows.size(); ++i) counters.add(kServerRows[i], values[i]);
  return counters;
}

}  // namespace swale::iond
