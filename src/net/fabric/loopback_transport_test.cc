#include "net/fabric/loopback_transport.h"

#include "net/fabric/testing/transport_test_util.h"

namespace swale::net::loopback_transport_test {
namespace {

class LoopbackFaults : public testing::Test {
 protected:
  LoopbackFaults() {
    std::vector<std::string> addresses;
    for (Rank rank = 0; rank < 3; ++rank) {
      transports_.push_back(fabric_->transport(rank));
      addresses.push_back(transports_.back()->address());
    }
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(transports_[i]->start(book_of(addresses), &recorders_[i]).ok());
  }
  std::shared_ptr<LoopbackFabric> fabric_ = LoopbackFabric::create(3);
  Recorder recorders_[3];
  std::vector<std::unique_ptr<Transport>> transports_;
};

TEST_F(LoopbackFaults, AKilledRankIsDownForAllOthersOnceAndCookiesComeHome) {
  post(transports_[1].get(), &recorders_[1], 0, "h", "last words", 0);
  ASSERT_TRUE(recorders_[1].wait_for([&] { return recorders_[1].sent_count == 1; }));
  fabric_->kill(1);
  for (const size_t rank : {0u, 2u}) {
    ASSERT_TRUE(recorders_[rank].wait_for([&] { return recorders_[rank].downs.count(1) == 1; }));
    EXPECT_EQ(recorders_[rank].downs[1].code(), Code::kUnavailable);
    EXPECT_THAT(std::string(recorders_[rank].downs[1].message()), testing::HasSubstr("rank 1"));
  }
  EXPECT_EQ(recorders_[0].frames.size(), 1u) << "what it sent before its death still came";
  post(transports_[0].get(), &recorders_[0], 1, "h", "hello?", 9);
  ASSERT_TRUE(recorders_[0].wait_for([&] { return recorders_[0].sent.count(9) == 1; }));
  EXPECT_TRUE(recorders_[1].downs.empty());
}

TEST_F(LoopbackFaults, ACutLinkLosesFramesSilently) {
  fabric_->cut(0, 1);
  post(transports_[0].get(), &recorders_[0], 1, "h", "lost", 1);
  post(transports_[1].get(), &recorders_[1], 0, "h", "lost", 1);
  post(transports_[0].get(), &recorders_[0], 2, "h", "arrives", 2);
  ASSERT_TRUE(recorders_[2].wait_for([&] { return recorders_[2].frames.size() == 1; }));
  ASSERT_TRUE(recorders_[0].wait_for([&] { return recorders_[0].sent_count == 2; }));
  for (auto& each : transports_) EXPECT_TRUE(each->close(Deadline::none()).ok());
  EXPECT_TRUE(recorders_[0].frames.empty());
  EXPECT_TRUE(recorders_[1].frames.empty());
  EXPECT_TRUE(recorders_[0].downs.empty());
}

TEST(LoopbackFabric, IsFoundByItsNumberWhileItLives) {
  auto fabric = LoopbackFabric::create(1);
  const uint64_t id = fabric->id();
  EXPECT_EQ(LoopbackFabric::find(id), fabric);
  fabric.reset();
  EXPECT_EQ(LoopbackFabric::find(id), nullptr);
}

}  // namespace
}  // namespace swale::net::loopback_transport_test
