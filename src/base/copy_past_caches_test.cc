#include "base/copy_past_caches.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"

namespace swale::copy_past_caches_test {
namespace {

TEST(CopyPastCaches, CopiesEveryLengthFromAndToEveryPlaceAndNothingElse) {
  constexpr size_t kPlaces = 64, kLengthMax = 4 * 64 + 3;
  Rng rng(5);
  std::string from(kPlaces + kLengthMax, '\0');
  for (char& byte : from) byte = static_cast<char>(rng.next());
  for (size_t place = 0; place < kPlaces; ++place) {
    for (size_t length = 0; length <= kLengthMax; ++length) {
      const size_t source = rng.below(kPlaces);
      std::string to(kPlaces + kLengthMax + 1, '#'), expected = to;
      copy_past_caches(to.data() + place, from.data() + source, length);
      expected.replace(place, length, from, source, length);
      ASSERT_EQ(to, expected) << length << " bytes to " << place;
    }
  }
}

}  // namespace
}  // namespace swale::copy_past_caches_test
