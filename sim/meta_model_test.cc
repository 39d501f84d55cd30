#include "sim/meta_model.h"

#include <gtest/gtest.h>

namespace swale::sim::meta_model_test {
namespace {

double ratio(StormMethod slow, StormMethod fast, uint32_t servers_per_node = 1) {
  StormParams params;
  params.servers_per_node = servers_per_node;
  params.method = slow;
  const Nanos first = run_storm(params).slowest;
  params.method = fast;
  return static_cast<double>(first) / static_cast<double>(run_storm(params).slowest);
}

// The constants are not to be changed so that ours looks better: they follow from the paper.
TEST(MetaModel, ThePapersRingIsAsMuchFasterThanItsPlainMethodAsThePaperSays) {
  EXPECT_NEAR(ratio(StormMethod::kPaperPlain, StormMethod::kPaperRing), 5.7, 0.1);
}

TEST(MetaModel, EveryMethodAnswersEveryClientOnce) {
  for (const auto method : {StormMethod::kPaperPlain, StormMethod::kPaperDirect, StormMethod::kPaperRing,
                            StormMethod::kOursPlain, StormMethod::kOursDirect, StormMethod::kOursRing}) {
    StormParams params;
    params.method = method;
    params.nodes = 8;
    const StormResult result = run_storm(params);
    EXPECT_GE(result.messages, 2u * 8 * 16);
    EXPECT_GT(result.slowest, 2 * params.costs.local_latency);
  }
}

TEST(MetaModel, PlainCostsTheRootTwoMessagesAClient) {
  StormParams params;
  params.method = StormMethod::kPaperPlain;
  EXPECT_EQ(run_storm(params).root_messages, 2u * 1024);
  params.method = StormMethod::kOursRing;
  EXPECT_LT(run_storm(params).root_messages, 400u);
}

}  // namespace
}  // namespace swale::sim::meta_model_test
