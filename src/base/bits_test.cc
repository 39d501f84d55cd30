#include "base/bits.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"

namespace swale::bits_test {
namespace {

// The same by the bit, as a model.
struct Model {
  std::vector<bool> bits;

  uint64_t after(bool wanted, uint64_t from, uint64_t n) const {
    if (n == 0) return from;
    for (uint64_t at = from; at < bits.size(); ++at) {
      if (bits[at] == wanted && --n == 0) return at + 1;
    }
    return bits.size();
  }
};

TEST(Bits, WithBitSetsTheBitModulo64) {
  for (uint64_t bit = 0; bit < 200; ++bit) {
    EXPECT_EQ(with_bit(0, bit), uint64_t{1} << bit % 64);
    EXPECT_EQ(with_bit(~uint64_t{0}, bit), ~uint64_t{0});
  }
}

TEST(BitSpan, AgreesWithABitwiseModel) {
  Rng rng(1);
  for (int round = 0; round < 300; ++round) {
    const uint64_t size = rng.below(400);
    const uint64_t density = rng.below(17);
    Model model;
    std::string bytes((size + 7) / 8, '\0');
    for (uint64_t i = 0; i < size; ++i) {
      model.bits.push_back(rng.chance(density, 16));
      if (model.bits.back()) bytes[i / 8] = static_cast<char>(bytes[i / 8] | 1 << i % 8);
    }
    if (size % 8 != 0)
      bytes.back() = static_cast<char>(bytes.back() | 0xff << size % 8);  // is not to be seen
    const std::vector<char> exact(bytes.begin(), bytes.end());  // a sanitizer sees reads past its end
    const BitSpan span(exact.data(), size);
    for (int query = 0; query < 50; ++query) {
      const uint64_t from = rng.below(size + 1);
      const uint64_t n = rng.below(size + 2);
      EXPECT_EQ(span.after_zeros(from, n), model.after(false, from, n));
      EXPECT_EQ(span.after_ones(from, n), model.after(true, from, n));
      const uint64_t word = span.load(from);
      for (uint64_t i = 0; i < 64; ++i) {
        EXPECT_EQ(word >> i & 1, from + i < size && model.bits[from + i] ? 1u : 0u);
      }
    }
  }
}

TEST(BitSpan, NothingIsFoundInNothing) {
  const BitSpan none;
  EXPECT_EQ(none.after_zeros(0, 1), 0u);
  EXPECT_EQ(none.load(0), 0u);
}

}  // namespace
}  // namespace swale::bits_test
