// The counters of a tiered write buffer: what a mount, an I/O server and a program that has one tell of it.
// Threads: free functions.
#pragma once

#include <span>

#include "base/counters.h"
#include "tier/store/store.h"

namespace swale::tier {

std::span<const CounterRow> tier_counter_rows();
// Of this moment, and of what opening the store has found. `rank`: of the job; 0 without one.
Counters tier_counters(const Store& store, int32_t rank = 0);

}  // namespace swale::tier
