// What a node's requests become: combined, numbered, repeated. Answers are made here.
#include "meta/client/node_names.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace swale::meta::node_names_test {
namespace {

constexpr FileId kFile{0, 9};

class Node {
 public:
  Node() : names({.servers = 1, .node = 5, .slots_max = 2}) {}
  NodeNames names;

  NodeNames::Id open(const std::string& name, Nanos until = kForever) {
    return names.ask({.op = NameOp::kOpen, .directory = kRootDirectory, .name = name}, until);
  }
  NodeNames::Id create(const std::string& name, Nanos until = kForever) {
    return names.ask({.op = NameOp::kCreate, .directory = kRootDirectory, .name = name}, until);
  }
  // The requests that leave now.
  std::vector<NameRequest> leave() {
    std::vector<NodeCall> calls;
    names.take_calls(&calls);
    std::vector<NameRequest> requests;
    tags.clear();
    for (const NodeCall& each : calls) {
      requests.push_back(*decode_name_request(each.payload));
      tags.push_back(each.tag);
    }
    return requests;
  }
  void answer(uint64_t tag, const NameAnswer& answer) { names.on_completion(tag, encode(answer)); }
  size_t finished() {
    size_t count = 0;
    for (NodeNames::Finished each; names.take_finished(&each);) {
      last = each.answer;
      ++count;
    }
    return count;
  }
  std::vector<uint64_t> tags;
  Result<NameAnswer> last{NameAnswer()};
};

NameAnswer held() { return {.entry = {kFile, NodeType::kFile}, .held = true, .node = TreeNode{}}; }

TEST(NodeNames, EqualOpensLeaveAsOneAndWhatComesMeanwhileAsOneMore) {
  Node node;
  for (int i = 0; i < 10; ++i) node.open("f");
  ASSERT_EQ(node.leave().size(), 1u);
  const uint64_t first = node.tags[0];
  for (int i = 0; i < 6; ++i) node.open("f");
  EXPECT_TRUE(node.leave().empty());
  node.answer(first, held());
  EXPECT_EQ(node.finished(), 10u);
  ASSERT_EQ(node.leave().size(), 1u);
  node.answer(node.tags[0], held());
  EXPECT_EQ(node.finished(), 6u);
  // The server hears of the last release.
  for (int i = 0; i < 15; ++i) EXPECT_TRUE(node.names.release(kFile));
  EXPECT_TRUE(node.leave().empty());
  EXPECT_TRUE(node.names.release(kFile));
  ASSERT_EQ(node.leave().size(), 1u);
  EXPECT_FALSE(node.names.release(kFile));
  node.answer(node.tags[0], {});
  EXPECT_TRUE(node.names.at_rest());
}

TEST(NodeNames, ARepetitionHasTheNumberOfTheFirst) {
  Node node;
  node.create("a");
  const NameRequest first = node.leave().at(0);
  node.names.on_completion(node.tags[0], error(Code::kDeadlineExceeded, Scope::kOperation, "late"));
  const NameRequest second = node.leave().at(0);
  EXPECT_EQ(first.from.client, second.from.client);
  EXPECT_EQ(first.from.number, second.from.number);
  node.names.on_completion(node.tags[0], encode_life(8));
  EXPECT_EQ(node.leave().at(0).life, 8u);
}

TEST(NodeNames, AChangeWaitsForASlotAndOneWithoutAnAnswerKeepsIt) {
  Node node;
  node.create("a", 10), node.create("b"), node.create("c");
  ASSERT_EQ(node.leave().size(), 2u);
  const std::vector<uint64_t> tags = node.tags;
  node.names.expire(10);
  EXPECT_EQ(node.finished(), 1u);
  EXPECT_EQ(node.last.status().code(), Code::kDeadlineExceeded);
  node.names.on_completion(tags[0], error(Code::kDeadlineExceeded, Scope::kOperation, "late"));
  EXPECT_TRUE(node.leave().empty());  // perhaps it comes late
  node.answer(tags[1], {});
  const auto third = node.leave();
  ASSERT_EQ(third.size(), 1u);
  EXPECT_EQ(third[0].name, "c");
  EXPECT_EQ(third[0].from.number, 2u);
}

TEST(NodeNames, AReleaseWaitsForAnOpenThatMayBeOfTheSameFile) {
  Node node;
  node.open("f");
  node.leave();
  node.answer(node.tags[0], held());
  node.open("f");
  node.leave();
  const uint64_t open = node.tags[0];
  EXPECT_TRUE(node.names.release(kFile));
  EXPECT_TRUE(node.leave().empty());
  node.answer(open, held());
  EXPECT_TRUE(node.leave().empty());  // it is held again
  EXPECT_TRUE(node.names.release(kFile));
  EXPECT_EQ(node.leave().at(0).op, NameOp::kRelease);
}

// The server has perhaps seen the release after the open.
TEST(NodeNames, AnOpenThatCrossesAReleaseHoldsAnew) {
  Node node;
  node.open("f");
  node.leave();
  node.answer(node.tags[0], held());
  node.names.release(kFile);
  node.leave();
  const uint64_t release = node.tags[0];
  node.open("g");  // another name of the same file, after a rename
  node.leave();
  const uint64_t open = node.tags[0];
  node.finished();
  node.answer(open, held());
  EXPECT_EQ(node.finished(), 0u);
  EXPECT_TRUE(node.leave().empty());  // not before the release has ended
  node.answer(release, {});
  const auto hold = node.leave();
  ASSERT_EQ(hold.size(), 1u);
  EXPECT_EQ(hold[0].op, NameOp::kHold);
  node.answer(node.tags[0], held());
  EXPECT_EQ(node.finished(), 1u);
  EXPECT_TRUE(node.names.holds(kFile));
}

TEST(NodeNames, AnOpenWhoseFileWasRemovedMeanwhileOpensTheNameAnew) {
  Node node;
  node.open("f");
  node.leave();
  node.answer(node.tags[0], held());
  node.names.release(kFile);
  node.leave();
  const uint64_t release = node.tags[0];
  node.open("f");
  node.leave();
  const uint64_t open = node.tags[0];
  node.answer(release, {});
  node.answer(open, held());
  ASSERT_EQ(node.leave().size(), 1u);
  node.answer(node.tags[0], {.error = ENOENT});
  const auto again = node.leave();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].op, NameOp::kOpen);
  node.finished();
  node.answer(node.tags[0], {.error = ENOENT});
  EXPECT_EQ(node.finished(), 1u);
  EXPECT_EQ(node.last->error, ENOENT);
  EXPECT_FALSE(node.names.holds(kFile));
}

// Nobody waits for it any more, and the server counts this node.
TEST(NodeNames, AHoldThatComesTooLateIsGivenBack) {
  Node node;
  node.open("f", 10);
  node.leave();
  node.names.expire(10);
  node.answer(node.tags[0], held());
  const auto release = node.leave();
  ASSERT_EQ(release.size(), 1u);
  EXPECT_EQ(release[0].op, NameOp::kRelease);
}

}  // namespace
}  // namespace swale::meta::node_names_test
