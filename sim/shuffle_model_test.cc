#include "sim/shuffle_model.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace swale::sim::shuffle_model_test {
namespace {

size_t missed(const ShuffleMachine& first, const ShuffleMachine& second, const QueryStorage& first_storage,
              const QueryStorage& other_storage) {
  const std::vector<PrintedValue> values = printed_values(first, second, first_storage, other_storage);
  return static_cast<size_t>(
      std::count_if(values.begin(), values.end(), [](const PrintedValue& value) { return !value.hit(); }));
}

TEST(ShuffleModel, ThePapersMethodGivesThePapersNumbers) {
  for (const PrintedValue& value :
       printed_values(trinity(), second_machine(), trinity_storage(), second_storage()))
    EXPECT_TRUE(value.hit()) << value.place << ", " << value.what << ": " << value.modelled;
}

// The constants are not to be changed so that ours looks better: they follow from the papers.
TEST(ShuffleModel, TheConstantsAreThoseThatWereFixed) {
  const ShuffleMachine first = trinity();
  EXPECT_DOUBLE_EQ(first.storage_bytes_per_s, 5.3e9 / 32);
  EXPECT_DOUBLE_EQ(first.storage_use, 0.9675);
  EXPECT_DOUBLE_EQ(first.frame_s, 614.5e-6);
  EXPECT_DOUBLE_EQ(first.wire_bytes_per_s_64, 274.6e6);
  EXPECT_DOUBLE_EQ(first.wire_exponent, 0.17);
  const ShuffleMachine second = second_machine();
  EXPECT_DOUBLE_EQ(second.frame_s, 4 * first.frame_s);
  EXPECT_DOUBLE_EQ(second.wire_bytes_per_s_64, first.wire_bytes_per_s_64 / 3);
  EXPECT_DOUBLE_EQ(second.storage_bytes_per_s, 110.2e6);
  EXPECT_DOUBLE_EQ(second_storage().read_s, 0.060);
  EXPECT_DOUBLE_EQ(trinity_storage().scan_bytes_per_s, 241e9);
}

// Canaries: a wrong constant misses a number of the papers.
TEST(ShuffleModel, AWrongConstantIsNoticed) {
  const auto wrong = [](auto change) {
    ShuffleMachine first = trinity(), second = second_machine();
    QueryStorage first_storage = trinity_storage(), other_storage = second_storage();
    change(&first, &second, &first_storage, &other_storage);
    return missed(first, second, first_storage, other_storage);
  };
  using Machine = ShuffleMachine*;
  using Storage = QueryStorage*;
  EXPECT_EQ(wrong([](Machine, Machine, Storage, Storage) {}), 0u);
  EXPECT_GE(wrong([](Machine m, Machine, Storage, Storage) { m->storage_bytes_per_s *= 1.05; }), 1u);
  EXPECT_GE(wrong([](Machine m, Machine, Storage, Storage) { m->storage_use *= 1.02; }), 1u);
  EXPECT_GE(wrong([](Machine m, Machine, Storage, Storage) { m->frame_s *= 1.05; }), 1u);
  EXPECT_GE(wrong([](Machine m, Machine, Storage, Storage) { m->wire_bytes_per_s_64 *= 1.05; }), 1u);
  EXPECT_GE(wrong([](Machine m, Machine, Storage, Storage) { m->wire_exponent *= 1.2; }), 1u);
  EXPECT_GE(wrong([](Machine, Machine m, Storage, Storage) { m->storage_bytes_per_s *= 1.05; }), 1u);
  EXPECT_GE(wrong([](Machine, Machine m, Storage, Storage) { m->wire_bytes_per_s_64 *= 1.05; }), 1u);
  EXPECT_GE(wrong([](Machine, Machine, Storage s, Storage) { s->bytes_per_s *= 1.05; }), 1u);
  EXPECT_GE(wrong([](Machine, Machine, Storage s, Storage) { s->scan_bytes_per_s *= 1.05; }), 1u);
  EXPECT_GE(wrong([](Machine, Machine, Storage, Storage s) { s->read_s *= 1.05; }), 1u);
  EXPECT_GE(wrong([](Machine, Machine, Storage, Storage s) { s->bytes_per_s *= 1.2; }), 1u);
}

TEST(ShuffleModel, DirectBuffersGrowWithTheRanksAndThoseOfThreeHopsWithTheNodesOfARank) {
  EXPECT_DOUBLE_EQ(papers_buffer_bytes(4, 4, false), 15 * 32768.0);
  EXPECT_DOUBLE_EQ(papers_buffer_bytes(4, 4, true),
                   4 * 32768.0);  // the papers' example: 3 local and 1 remote
}

}  // namespace
}  // namespace swale::sim::shuffle_model_test
