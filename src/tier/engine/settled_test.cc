#include "tier/engine/settled.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace swale::tier::settled_test {
namespace {

// Appends that end in any order, against a set of those that are open.
TEST(Settled, AgreesWithASetOfWhatIsOpen) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Rng rng(seed);
    Settled settled;
    std::set<uint64_t> open;
    uint64_t last = 0;
    for (int step = 0; step < 20'000; ++step) {
      if (rng.chance(1, 2) && open.size() < 100) {
        last += 1 + rng.below(2);
        settled.begin(last);
        open.insert(last);
      } else if (rng.chance(1, 8)) {
        const uint64_t any = rng.below(last + 2);  // mostly one that is not open
        settled.end(any);
        open.erase(any);
      } else if (!open.empty()) {
        auto at = open.begin();
        if (seed > 1) std::advance(at, static_cast<ptrdiff_t>(rng.below(std::min<size_t>(open.size(), 4))));
        settled.end(*at);
        open.erase(at);
      }
      ASSERT_EQ(settled.all(), open.empty());
      ASSERT_EQ(settled.through(last), open.empty() ? last : *open.begin() - 1);
    }
  }
}

}  // namespace
}  // namespace swale::tier::settled_test
