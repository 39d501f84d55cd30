#include "net/talk/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "net/talk/inbox.h"

namespace swale::net::conversation_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kSecret = 0xfeed;

// All ranks' conversations; posts travel when the test says so.
class Room {
 public:
  explicit Room(int32_t size, uint16_t window = 2, const std::vector<int32_t>& nodes = {})
      : heard(static_cast<size_t>(size)), frames(static_cast<size_t>(size)) {
    Conversation::Params params;
    if (!nodes.empty()) {
      params.nodes = std::make_shared<const NodeMap>(*NodeMap::in_blocks(nodes));
      params.hops = ThreeHopRouter::hops_within(*params.nodes, kMiB);
    }
    params.size = size;
    params.secret = kSecret;
    params.window = window;
    params.frames_per_rank = 3;
    params.frame_bytes = 64;
    for (params.rank = 0; params.rank < size; ++params.rank) {
      ranks_.push_back(std::make_unique<Conversation>(*Conversation::create(params)));
    }
  }
  Conversation& operator[](Rank rank) { return *ranks_[static_cast<size_t>(rank)]; }

  // One frame of `from` arrives and is given back. False: nothing may leave.
  bool step(Rank from) {
    const std::optional<Post> post = (*this)[from].next_post();
    if (!post) return false;
    const auto to = static_cast<size_t>(post->to);
    ++frames[static_cast<size_t>(from)];
    const FrameHeader header =
        *FrameHeader::decode({post->header.data(), post->header.size()}, post->payload, kSecret);
    switch ((*this)[post->to].on_frame(from, header, post->payload)) {
      case Conversation::Came::kControl:
        heard[to].emplace_back(post->payload);
        break;
      case Conversation::Came::kData:
        (*this)[post->to].keep(from, post->payload);
        break;
      case Conversation::Came::kNothing:
        break;
    }
    (*this)[from].on_sent(post->cookie);
    return true;
  }
  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank rank = 0; rank < static_cast<Rank>(ranks_.size()); ++rank) moved = step(rank) || moved;
    }
  }
  void send(Rank from, Rank to, Bytes text) {
    Frame frame = (*this)[from].take_frame(to);
    text.copy(frame.data, text.size());
    frame.bytes = static_cast<uint32_t>(text.size());
    (*this)[from].send(to, frame);
  }

  std::vector<std::vector<std::string>> heard;  // control messages, by receiver
  std::vector<uint64_t> frames;                 // by sender
  Inbox& data(Rank rank) { return (*this)[rank].inbox(); }

 private:
  std::vector<std::unique_ptr<Conversation>> ranks_;
};

TEST(Conversation, FramesComeBackToThePoolWhenTheyAreSent) {
  Room room(2);
  for (const char* text : {"a", "b", "c"}) room.send(0, 1, text);
  EXPECT_FALSE(room[0].frame_available(1));
  EXPECT_TRUE(room[0].frame_available(0)) << "each destination has frames of its own";
  room.run();
  EXPECT_EQ(room.data(1).size(), 2u) << "the window is 2";
  EXPECT_TRUE(room[0].frame_available(1));
  EXPECT_FALSE(room[0].all_said());
  room[1].finish_front();
  room.run();
  EXPECT_EQ(room.data(1).size(), 2u);
  EXPECT_EQ(room.data(1).front(), "b");
  EXPECT_TRUE(room[0].all_said());
  EXPECT_GT(room[0].waits_for_credit(), 0u);
}

TEST(Conversation, AnEmptyFrameGoesBackAtOnce) {
  Room room(2);
  for (int i = 0; i < 3; ++i) static_cast<void>(room[0].take_frame(1));
  room[0].send(1, Frame());
  EXPECT_FALSE(room[0].frame_available(1));
  Room other(2);
  const Frame frame = other[0].take_frame(1);
  other[0].send(1, frame);
  EXPECT_TRUE(other[0].all_said());
}

TEST(Conversation, ControlMessagesKeepTheirPlaceAmongData) {
  Room room(2, 1);
  room.send(0, 1, "first");
  room[0].send_control(1, "between");
  room.send(0, 1, "second");
  room[0].send_control(1, "last");
  room.run();
  EXPECT_THAT(room.heard[1], ElementsAre("between"));
  room[1].finish_front();
  room.run();
  EXPECT_EQ(room.data(1).front(), "second");
  EXPECT_THAT(room.heard[1], ElementsAre("between", "last"));
}

// More than the window: they leave as the receiver reads, and none is lost.
TEST(Conversation, ControlMessagesWaitForAReceiverThatDoesNotRead) {
  Room room(2);
  std::vector<std::string> sent;
  for (int i = 0; i < 3 * Router::kControlWindow; ++i) {
    sent.push_back(fmt::format("message {} that is too long for a short string", i));
    room[0].send_control(1, sent.back());
  }
  uint64_t unread = 0;
  std::vector<Post> posts;
  while (const std::optional<Post> post = room[0].next_post()) {
    posts.push_back(*post);
    ++unread;
  }
  EXPECT_EQ(unread, Router::kControlWindow);
  EXPECT_EQ(room[0].frames_lent(), unread);
  for (const Post& post : posts) {
    const FrameHeader header =
        *FrameHeader::decode({post.header.data(), post.header.size()}, post.payload, kSecret);
    ASSERT_EQ(room[1].on_frame(0, header, post.payload), Conversation::Came::kControl);
    room.heard[1].emplace_back(post.payload);
    room[0].on_sent(post.cookie);
  }
  room.run();
  EXPECT_EQ(room.heard[1], sent);
  EXPECT_TRUE(room[0].all_said());
  EXPECT_EQ(room[0].take_frames_lent_max(), Router::kControlWindow);
  EXPECT_EQ(room[0].take_frames_lent_max(), 0u);
}

TEST(Conversation, AFailureReachesAllWithItsReasonAndStopsData) {
  Room room(4);
  for (int i = 0; i < 3; ++i) room.send(2, 3, "data");
  room[2].send_control(0, "before");
  room[2].fail(error(Code::kNoSpace, Scope::kFile, "part-000002.data: disk full"));
  room[2].fail(error(Code::kIoError, Scope::kFile, "a later one"));
  EXPECT_TRUE(room[2].owes_news());
  room.run();
  EXPECT_THAT(room.heard[0], ElementsAre("before"));
  EXPECT_TRUE(room.data(3).empty());
  EXPECT_EQ(room[2].failure().code(), Code::kNoSpace);
  for (const Rank rank : {0, 1, 3}) {
    EXPECT_EQ(room[rank].failure().code(), Code::kAborted);
    EXPECT_THAT(std::string(room[rank].failure().message()), HasSubstr("rank 2 failed: part-000002.data"));
    EXPECT_FALSE(room[rank].owes_news());
  }
  for (const Rank rank : {0, 1, 2, 3}) EXPECT_TRUE(room[rank].all_said());
}

TEST(Conversation, AMistakeOfTheCallerStaysOneOnAllRanks) {
  Room room(2);
  room[1].fail(invalid_argument("steps differ"));
  room.run();
  EXPECT_EQ(room[0].failure().code(), Code::kInvalidArgument);
}

TEST(Conversation, TheNewsOfAFailureNeedsNoCredit) {
  Room room(2);
  for (int i = 0; i < Router::kControlWindow; ++i) room[0].send_control(1, "x");
  while (room[0].next_post()) {
  }
  room[0].fail(invalid_argument("late"));
  const std::optional<Post> news = room[0].next_post();
  ASSERT_TRUE(news.has_value());
  EXPECT_EQ(FrameHeader::decode({news->header.data(), news->header.size()}, news->payload, kSecret)->kind,
            FrameKind::kAbort);
}

TEST(Conversation, NewsThatCannotBeReadAreAFailureThatNamesTheSender) {
  for (const std::string& news : {std::string("\x01", 1), std::string(), std::string(16, '\0')}) {
    Room room(2);
    FrameHeader header;
    header.kind = FrameKind::kAbort;
    EXPECT_EQ(room[0].on_frame(1, header, news), Conversation::Came::kNothing);
    EXPECT_EQ(room[0].failure().code(), Code::kCorruption);
    EXPECT_THAT(std::string(room[0].failure().message()), HasSubstr("rank 1"));
    EXPECT_TRUE(room[0].owes_news());
  }
}

TEST(Conversation, ALostFrameFailsTheReceiver) {
  Room room(2);
  room[0].send_control(1, "lost");
  room[0].send_control(1, "found");
  static_cast<void>(room[0].next_post());
  room.run();
  EXPECT_EQ(room[1].failure().code(), Code::kCorruption);
  EXPECT_THAT(std::string(room[0].failure().message()), HasSubstr("rank 1 failed"));
}

TEST(Conversation, FramesForADeadPeerComeBack) {
  Room room(3);
  for (int i = 0; i < 3; ++i) room.send(0, 1, "x");
  room[0].send_control(1, "y");
  room[0].on_down(1);
  EXPECT_TRUE(room[0].frame_available(1));
  EXPECT_TRUE(room[0].all_said());
  EXPECT_TRUE(room[0].failure().ok()) << "that is for the owner to decide";
  room[0].send_control(2, "still here");
  room.run();
  EXPECT_THAT(room.heard[2], ElementsAre("still here"));
}

TEST(Conversation, AloneItHasNobodyToTell) {
  Room room(1);
  room[0].fail(invalid_argument("x"));
  EXPECT_TRUE(room[0].all_said());
}

TEST(Conversation, AFrameToThisRankItselfIsReadAndComesBack) {
  Room room(2);
  room.send(0, 0, "own");
  for (int i = 0; i < 2; ++i) static_cast<void>(room[0].take_frame(0));
  EXPECT_FALSE(room[0].frame_available(0));
  EXPECT_TRUE(room[0].all_said()) << "nothing of it leaves";
  EXPECT_EQ(room.data(0).from(), 0);
  EXPECT_EQ(room.data(0).front(), "own");
  room.data(0).advance(2);
  EXPECT_EQ(room.data(0).front(), "n");
  room[0].finish_front();
  EXPECT_TRUE(room.data(0).empty());
  EXPECT_TRUE(room[0].frame_available(0));
}

TEST(Inbox, AppendKeepsTheOrder) {
  Inbox inbox, later;
  inbox.push(1, "a");
  later.push(2, "b");
  later.push(1, "c");
  inbox.append(&later);
  EXPECT_TRUE(later.empty());
  std::string all;
  for (; !inbox.empty(); static_cast<void>(inbox.pop()))
    all += fmt::format("{}{} ", inbox.from(), inbox.front());
  EXPECT_EQ(all, "1a 2b 1c ");
}

TEST(LentMessages, PlacesAreUsedAgainAndMessagesStayWhereTheyAre) {
  LentMessages lent;
  Rng rng(7);
  std::map<uint32_t, std::pair<std::string, const char*>> out;
  uint32_t highest = 0;
  for (int i = 0; i < 2000; ++i) {
    if (out.size() < 20 && rng.chance(3, 5)) {
      const std::string text = fmt::format("{}", rng.next());
      const uint32_t place = lent.add(std::string(text));
      ASSERT_TRUE(out.emplace(place, std::pair(text, lent.bytes(place).data())).second);
      highest = std::max(highest, place);
    } else if (!out.empty()) {
      EXPECT_EQ(lent.release(out.begin()->first), out.begin()->second.first);
      out.erase(out.begin());
    }
    for (const auto& [place, message] : out) {
      ASSERT_EQ(lent.bytes(place), message.first);
      ASSERT_EQ(lent.bytes(place).data(), message.second);
    }
  }
  EXPECT_LT(highest, 20u);
}

// By three hops nobody tells all ranks of a failure: each tells those that it has links with.
TEST(Conversation, ByThreeHopsTheNewsOfAFailureReachesAllRanksAndNamesItsOrigin) {
  for (const std::vector<int32_t>& nodes :
       {std::vector<int32_t>{2, 2}, {4, 4, 4, 4, 4, 4, 4, 4}, {1, 5, 2}, {1, 1, 1}, {3}}) {
    int32_t size = 0;
    for (const int32_t ranks : nodes) size += ranks;
    for (Rank origin = 0; origin < size; ++origin) {
      Room room(size, 2, nodes);
      room[origin].fail(error(Code::kIoError, Scope::kFile, "part-000002.data: EIO"));
      room.run();
      for (Rank rank = 0; rank < size; ++rank) {
        if (rank == origin) continue;
        EXPECT_THAT(std::string(room[rank].failure().message()),
                    testing::StartsWith(fmt::format("rank {} failed: part-000002.data", origin)));
        EXPECT_FALSE(room[rank].owes_news());
      }
      const uint64_t most = *std::max_element(room.frames.begin(), room.frames.end());
      if (size == 32) {
        EXPECT_LE(most, 3 + 2u) << "four ranks share the links to seven nodes";
      }
    }
  }
}

}  // namespace
}  // namespace swale::net::conversation_test
