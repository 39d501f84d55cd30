#include "base/counters.h"

#include <gtest/gtest.h>

namespace swale::counters_test {
namespace {

constexpr CounterRow kBytes = {"write.bytes", "bytes", "written"};
constexpr CounterRow kPeak = {"queue.depth_max", "", "the most that waited", true};
constexpr CounterRow kRows[] = {kBytes, kPeak};

Counters of_rank(int32_t rank, uint64_t bytes, uint64_t peak) {
  Counters counters = Counters::of_rank(rank);
  counters.add(kBytes, bytes);
  counters.add(kPeak, peak);
  return counters;
}

TEST(Counters, MergeNamesTheLowestRanksWithTheLeastAndTheGreatest) {
  Counters all = of_rank(2, 10, 7);
  all.merge(of_rank(1, 10, 9));
  all.merge(of_rank(0, 30, 9));
  EXPECT_EQ(all.ranks(), 3u);
  EXPECT_EQ(all.find("write.bytes")->value, (MergedCount{50, 10, 30, 1, 0}));
  EXPECT_EQ(all.find("queue.depth_max")->value, (MergedCount{25, 7, 9, 2, 0}));
  EXPECT_EQ(all.sum("write.bytes"), 50u);
  EXPECT_EQ(all.find("write.byte"), nullptr);
  EXPECT_EQ(all.sum("write.byte"), 0u);
}

TEST(Counters, ACounterThatOneSideLacksIsKept) {
  Counters one = Counters::of_rank(0), other = Counters::of_rank(1);
  one.add(kBytes, 1);
  other.add(kPeak, 2);
  one.merge(other);
  EXPECT_EQ(one.sum("write.bytes"), 1u);
  EXPECT_EQ(one.sum("queue.depth_max"), 2u);
}

TEST(Counters, JsonHasOneShape) {
  Counters counters = Counters::of_rank(3);
  counters.add(kBytes, 5);
  EXPECT_EQ(counters.json(),
            "{\"ranks\":1,\"stats\":{\"write.bytes\":{\"unit\":\"bytes\",\"sum\":5,\"min\":5,\"min_rank\":3,"
            "\"max\":5,\"max_rank\":3}}}");
}

TEST(Counters, AMessageComesBackAsItWas) {
  Counters counters = of_rank(0, ~uint64_t{0}, 0);
  counters.merge(of_rank(1, 1, 2));
  counters.add({"of.another.build", "", "unknown here"}, 3);
  std::string message;
  counters.append_to(&message);
  const auto found = Counters::read(message, kRows);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->json(), counters.json());
  EXPECT_EQ(found->find("write.bytes")->unit, "bytes");
  EXPECT_EQ(found->find("of.another.build")->unit, "");
}

TEST(Counters, AMessageThatIsCutOrTooLongIsRefused) {
  std::string message;
  of_rank(0, 1, 2).append_to(&message);
  for (size_t bytes = 0; bytes < message.size(); ++bytes)
    EXPECT_EQ(Counters::read(Bytes(message).substr(0, bytes), kRows).status().code(), Code::kCorruption)
        << bytes;
  EXPECT_EQ(Counters::read(message + "x", kRows).status().code(), Code::kCorruption);
  EXPECT_EQ(Counters::read(std::string("\x01\xff\xff\xff\xff\x0f"), kRows).status().code(),
            Code::kCorruption);
}

}  // namespace
}  // namespace swale::counters_test
