#include "tier/policy/backing_cost.h"

#include <algorithm>

namespace swale::tier {

double BackingCost::slot_written(uint64_t before, uint64_t position, uint64_t length, double took_ns) {
  const auto modelled =
      static_cast<double>(disk_.positioning(before, position) + disk_.transfer(length, true));
  smooth(&measured_ns_, took_ns, kWeight);
  smooth(&modelled_ns_, modelled, kWeight);
  return modelled;
}

void BackingCost::sync_answered(double took, uint32_t writes) {
  smooth(&synced_write_ns_, took / std::max(1u, writes), kWeight);
}

}  // namespace swale::tier
