#include "net/route/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "base/rng.h"

namespace swale::net::router_test {
namespace {

constexpr uint64_t kSecret = 0x1122334455667788;

FrameHeader header_of(const Post& post) {
  const auto decoded =
      FrameHeader::decode(Bytes(post.header.data(), post.header.size()), post.payload, kSecret);
  EXPECT_TRUE(decoded.ok()) << decoded.status().to_string();
  return *decoded;
}

Router make(Rank rank, int32_t size, uint16_t window) { return Router({rank, size, 1, kSecret, window}); }

FrameHeader a_header(FrameKind kind) {
  FrameHeader header;
  header.channel = 7;
  header.secret = kSecret;
  header.sequence = 0xfffffffe;
  header.credits = 300;
  header.kind = kind;
  return header;
}

TEST(FrameHeader, RoundTripsAndRefusesStrangers) {
  const auto bytes = a_header(FrameKind::kControl).encode("payload");
  const Bytes good(bytes.data(), bytes.size());
  const auto back = FrameHeader::decode(good, "payload", kSecret);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->channel, 7u);
  EXPECT_EQ(back->sequence, 0xfffffffeu);
  EXPECT_EQ(back->credits, 300u);
  EXPECT_EQ(back->kind, FrameKind::kControl);
  const Status too_short = FrameHeader::decode(good.substr(1), "payload", kSecret).status();
  EXPECT_EQ(too_short.code(), Code::kCorruption);
  EXPECT_EQ(too_short.scope(), Scope::kOperation);
  const Status stranger = FrameHeader::decode(good, "payload", kSecret + 1).status();
  EXPECT_THAT(std::string(stranger.message()), testing::HasSubstr("secret"));
  EXPECT_EQ(stranger.scope(), Scope::kOperation);
  std::string nonsense(FrameHeader::kBytes, '\xff');
  EXPECT_EQ(FrameHeader::decode(nonsense, "payload", kSecret).status().scope(), Scope::kOperation)
      << "neither secret nor checksum";
  const auto newer = a_header(static_cast<FrameKind>(9)).encode({});
  const Status unknown = FrameHeader::decode({newer.data(), newer.size()}, {}, kSecret).status();
  EXPECT_EQ(unknown.code(), Code::kCorruption);
  EXPECT_EQ(unknown.scope(), Scope::kPeer);
}

TEST(FrameHeader, SeesEveryFlippedBit) {
  const std::string payload = "END of epoch 3";
  for (const FrameKind kind :
       {FrameKind::kData, FrameKind::kControl, FrameKind::kCredit, FrameKind::kAbort, FrameKind::kExchange}) {
    const auto bytes = a_header(kind).encode(payload);
    const std::string frame = std::string(bytes.data(), bytes.size()) + payload;
    for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      std::string bad = frame;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      const Bytes view(bad);
      const Status status =
          FrameHeader::decode(view.substr(0, bytes.size()), view.substr(bytes.size()), kSecret).status();
      const bool of_data = kind == FrameKind::kData && bit / 8 >= bytes.size();  // which its reader checks
      ASSERT_EQ(status.ok(), of_data) << bit;
      // A sender of a wrong magic or secret is a stranger, however right the rest.
      const size_t byte = bit / 8;
      const bool stranger = byte < 4 || (byte >= 8 && byte < 16);
      ASSERT_TRUE(of_data || status.scope() == (stranger ? Scope::kOperation : Scope::kPeer)) << bit;
    }
  }
}

TEST(Router, StopsAtTheWindowAndGoesOnWithCredit) {
  Router a = make(0, 2, 2);
  Router b = make(1, 2, 2);
  for (uint64_t i = 0; i < 3; ++i) a.submit(1, FrameKind::kData, "x", i);
  for (uint64_t i = 0; i < 2; ++i) {
    const auto post = a.next_post();
    ASSERT_TRUE(post.has_value());
    EXPECT_EQ(post->cookie, i);
    ASSERT_TRUE(b.on_frame(0, header_of(*post)).ok());
  }
  EXPECT_FALSE(a.next_post().has_value());
  EXPECT_EQ(a.waits_for_credit(), 1u);
  EXPECT_FALSE(a.idle());
  EXPECT_FALSE(b.next_post().has_value()) << "nothing is owed yet";
  b.consumed(0);
  const auto credit = b.next_post();
  ASSERT_TRUE(credit.has_value()) << "half a window is owed";
  EXPECT_EQ(header_of(*credit).kind, FrameKind::kCredit);
  EXPECT_EQ(credit->cookie, kNoCookie);
  ASSERT_TRUE(a.on_frame(1, header_of(*credit)).ok());
  EXPECT_EQ(a.next_post()->cookie, 2u);
  EXPECT_TRUE(a.idle());
}

TEST(Router, ControlFramesNeedNoDataCreditButKeepTheirPlace) {
  Router a = make(0, 2, 1);
  a.submit(1, FrameKind::kData, "", 0);
  a.submit(1, FrameKind::kControl, "", 1);
  a.submit(1, FrameKind::kData, "", 2);
  a.submit(1, FrameKind::kControl, "", 3);
  EXPECT_EQ(a.next_post()->cookie, 0u);
  EXPECT_EQ(a.next_post()->cookie, 1u);
  EXPECT_FALSE(a.next_post().has_value());
}

TEST(Router, ControlFramesHaveAWindowOfTheirOwn) {
  Router a = make(0, 2, 1);
  Router b = make(1, 2, 1);
  const uint64_t sent = 5 * Router::kControlWindow;
  for (uint64_t i = 0; i < sent; ++i) a.submit(1, FrameKind::kControl, "", i);
  uint64_t arrived = 0, credits = 0;
  for (bool moved = true; moved;) {
    moved = false;
    uint64_t burst = 0;
    for (; const auto post = a.next_post(); ++burst) {
      EXPECT_EQ(post->cookie, arrived++);
      ASSERT_TRUE(b.on_frame(0, header_of(*post)).ok());
      moved = true;
    }
    EXPECT_LE(burst, Router::kControlWindow);
    while (const auto credit = b.next_post()) {
      EXPECT_EQ(header_of(*credit).kind, FrameKind::kCredit);
      ++credits;
      ASSERT_TRUE(a.on_frame(1, header_of(*credit)).ok());
      moved = true;
    }
  }
  EXPECT_EQ(arrived, sent);
  EXPECT_LE(credits, 5u) << "one frame gives many back";
}

TEST(Router, RefusesControlFramesWithoutCredit) {
  Router b = make(1, 2, 1);
  FrameHeader header;
  header.secret = kSecret;
  header.kind = FrameKind::kControl;
  for (header.sequence = 0; header.sequence < Router::kControlWindow; ++header.sequence) {
    ASSERT_TRUE(b.on_frame(0, header).ok());
  }
  EXPECT_THAT(std::string(b.on_frame(0, header).message()),
              testing::HasSubstr("control frame 32 without credit"));
  Router c = make(1, 2, 1);
  header.sequence = 0;
  header.kind = FrameKind::kCredit;
  header.control_credits = 1;
  EXPECT_THAT(std::string(c.on_frame(0, header).message()), testing::HasSubstr("1 for control"));
}

TEST(Router, CreditsRideOnFramesTheOtherWayAndFlushSendsTheRest) {
  Router a = make(0, 2, 8);
  Router b = make(1, 2, 8);
  for (uint64_t i = 0; i < 2; ++i) {
    a.submit(1, FrameKind::kData, "", i);
    ASSERT_TRUE(b.on_frame(0, header_of(*a.next_post())).ok());
    b.consumed(0);
  }
  EXPECT_FALSE(b.next_post().has_value()) << "two of eight are not worth a frame";
  b.submit(0, FrameKind::kControl, "", 5);
  EXPECT_EQ(header_of(*b.next_post()).credits, 2u);
  a.submit(1, FrameKind::kData, "", 3);
  ASSERT_TRUE(b.on_frame(0, header_of(*a.next_post())).ok());
  b.consumed(0);
  b.flush_credits();
  EXPECT_EQ(header_of(*b.next_post()).credits, 1u);
  EXPECT_FALSE(b.next_post().has_value());
}

TEST(Router, TakesPeersInTurn) {
  Router a = make(0, 4, 8);
  for (uint64_t i = 0; i < 3; ++i) a.submit(1, FrameKind::kData, "", i);
  for (Rank to : {2, 3}) a.submit(to, FrameKind::kData, "", 9);
  std::vector<Rank> order;
  while (const auto post = a.next_post()) order.push_back(post->to);
  EXPECT_EQ(order, (std::vector<Rank>{1, 2, 3, 1, 1}));
}

TEST(Router, ADownPeerGivesCookiesBackAndBlocksNobody) {
  Router a = make(0, 3, 1);
  for (uint64_t i = 0; i < 3; ++i) a.submit(1, FrameKind::kData, "", i);
  EXPECT_EQ(a.next_post()->cookie, 0u);
  std::vector<uint64_t> dropped;
  a.on_down(1, &dropped);
  EXPECT_EQ(dropped, (std::vector<uint64_t>{1, 2}));
  EXPECT_TRUE(a.idle());
  EXPECT_FALSE(a.next_post().has_value());
  a.submit(1, FrameKind::kData, "", 4);
  a.submit(1, FrameKind::kData, "", 5);
  EXPECT_EQ(a.next_post()->cookie, 4u) << "the transport gives it back";
  EXPECT_EQ(a.next_post()->cookie, 5u);
}

// Frames in flight between routers, and what a correct receiver may see.
class Network {
 public:
  Network(int32_t size, uint16_t window, uint64_t seed) : size_(size), window_(window), rng_(seed) {
    for (Rank rank = 0; rank < size; ++rank)
      routers_.push_back(std::make_unique<Router>(Router::Params{rank, size, 1, kSecret, window}));
  }

  // Runs random steps until everything is delivered and consumed. The first failure, or OK.
  Status run(uint64_t frames_per_link) {
    for (uint64_t step = 0; step < 2'000'000; ++step) {
      const auto a = static_cast<Rank>(rng_.below(static_cast<uint64_t>(size_)));
      auto b = static_cast<Rank>(rng_.below(static_cast<uint64_t>(size_ - 1)));
      if (b >= a) ++b;
      switch (rng_.below(4)) {
        case 0:
          submit(a, b, frames_per_link);
          break;
        case 1:
          post(a);
          break;
        case 2:
          SWALE_RETURN_IF_ERROR(deliver(a, b));
          break;
        case 3:
          consume(a, b);
          break;
      }
      if (step % 64 == 0 && finished(frames_per_link)) return ok_status();
    }
    return error(Code::kDeadlineExceeded, Scope::kOperation, "deadlock: frames are left and nothing moves");
  }

  enum class Fault { kNone, kLose, kDouble, kSwap };
  Fault fault = Fault::kNone;

 private:
  struct Link {
    uint64_t submitted = 0;
    uint64_t delivered = 0;
    uint64_t unconsumed = 0;
    std::deque<Post> wire;
  };
  Link& link(Rank a, Rank b) { return links_[{a, b}]; }

  void submit(Rank a, Rank b, uint64_t limit) {
    Link& l = link(a, b);
    if (l.submitted == limit) return;
    routers_[static_cast<size_t>(a)]->submit(b, rng_.chance(1, 5) ? FrameKind::kControl : FrameKind::kData,
                                             Bytes(), l.submitted++);
  }
  void post(Rank a) {
    for (auto next = routers_[static_cast<size_t>(a)]->next_post(); next;
         next = routers_[static_cast<size_t>(a)]->next_post()) {
      link(a, next->to).wire.push_back(*next);
      if (rng_.chance(1, 3)) return;
    }
  }
  void damage(std::deque<Post>* wire) {
    if (fault == Fault::kNone || wire->size() < 2) return;
    if (fault == Fault::kLose) wire->pop_front();
    if (fault == Fault::kDouble) wire->push_front(wire->front());
    if (fault == Fault::kSwap) std::swap((*wire)[0], (*wire)[1]);
    if (fault != Fault::kDouble || rng_.chance(1, 2)) fault = Fault::kNone;
  }
  Status deliver(Rank a, Rank b) {
    Link& l = link(a, b);
    damage(&l.wire);
    if (l.wire.empty()) return ok_status();
    const Post frame = l.wire.front();
    l.wire.pop_front();
    const FrameHeader header = header_of(frame);
    SWALE_RETURN_IF_ERROR(routers_[static_cast<size_t>(b)]->on_frame(a, header));
    if (header.kind == FrameKind::kCredit) return ok_status();
    if (frame.cookie != l.delivered++) return error(Code::kInternal, Scope::kOperation, "out of order");
    if (header.kind == FrameKind::kData && ++l.unconsumed > window_) {
      return error(Code::kInternal, Scope::kOperation, "more than the window unconsumed");
    }
    return ok_status();
  }
  void consume(Rank a, Rank b) {
    Link& l = link(a, b);
    if (l.unconsumed == 0) return;
    --l.unconsumed;
    routers_[static_cast<size_t>(b)]->consumed(a);
  }
  bool finished(uint64_t limit) {
    for (Rank a = 0; a < size_; ++a) {
      for (Rank b = 0; b < size_; ++b) {
        if (a != b && (link(a, b).delivered != limit || link(a, b).unconsumed != 0)) return false;
      }
    }
    return true;
  }

  const int32_t size_;
  const uint16_t window_;
  Rng rng_;
  std::vector<std::unique_ptr<Router>> routers_;
  std::map<std::pair<Rank, Rank>, Link> links_;
};

TEST(Router, AnyInterleavingKeepsOrderAndWindowAndNeverBlocks) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const auto size = static_cast<int32_t>(2 + seed % 2);
    const auto window = static_cast<uint16_t>(1 + seed % 7);
    const Status status = Network(size, window, seed).run(100);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.to_string();
  }
}

// The canary of the test above, and of the sequence numbers.
TEST(Router, NamesALostADoubledAndAReorderedFrame) {
  for (const auto fault : {Network::Fault::kLose, Network::Fault::kDouble, Network::Fault::kSwap}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      Network network(2, 4, seed);
      network.fault = fault;
      const Status status = network.run(100);
      ASSERT_EQ(status.code(), Code::kCorruption) << status.to_string();
      EXPECT_EQ(status.scope(), Scope::kPeer);
      EXPECT_THAT(std::string(status.message()),
                  testing::ContainsRegex("expected frame [0-9]+ from rank [01], found frame [0-9]+"));
    }
  }
}

TEST(Router, AProbeShowsTheLossOfAFrameThatNothingFollows) {
  Router a = make(0, 3, 1);
  Router b = make(1, 3, 1);
  a.probe();
  EXPECT_FALSE(a.next_post().has_value()) << "nobody has had a frame from here";
  for (uint64_t i = 0; i < 2; ++i) a.submit(1, FrameKind::kData, "x", i);
  ASSERT_TRUE(a.next_post().has_value());  // lost; the window is used up, so frame 1 will never follow
  ASSERT_FALSE(a.next_post().has_value());
  a.probe();
  const auto probe = a.next_post();
  ASSERT_TRUE(probe.has_value());
  EXPECT_EQ(probe->to, 1);
  EXPECT_FALSE(a.next_post().has_value()) << "one probe a call";
  EXPECT_EQ(b.on_frame(0, header_of(*probe)).code(), Code::kCorruption);
}

TEST(Router, NewsOfAFailureOvertakesDataThatWaitsForCredit) {
  Router a = make(0, 2, 1);
  for (uint64_t i = 0; i < 3; ++i) a.submit(1, FrameKind::kData, "x", i);
  ASSERT_EQ(a.next_post()->cookie, 0u);
  a.submit(1, FrameKind::kControl, "abort", 7);
  ASSERT_FALSE(a.next_post().has_value());
  std::vector<uint64_t> dropped;
  a.abandon_data(&dropped);
  EXPECT_THAT(dropped, testing::ElementsAre(1u, 2u));
  const auto post = a.next_post();
  ASSERT_TRUE(post.has_value());
  EXPECT_EQ(post->cookie, 7u);
  EXPECT_TRUE(a.idle());
}

TEST(Router, RefusesFramesWithoutCreditAndCreditsOfNothing) {
  Router b = make(1, 2, 1);
  FrameHeader header;
  header.secret = kSecret;
  ASSERT_TRUE(b.on_frame(0, header).ok());
  header.sequence = 1;
  EXPECT_THAT(std::string(b.on_frame(0, header).message()), testing::HasSubstr("without credit"));
  Router c = make(1, 2, 1);
  header.sequence = 0;
  header.kind = FrameKind::kCredit;
  header.credits = 1;
  EXPECT_THAT(std::string(c.on_frame(0, header).message()), testing::HasSubstr("credits"));
  EXPECT_EQ(c.on_frame(5, header).code(), Code::kCorruption);
}

}  // namespace
}  // namespace swale::net::router_test
