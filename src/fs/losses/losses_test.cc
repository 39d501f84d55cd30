// Recovery without all nodes: which ranges are lost, by the surveys of the nodes that are left.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "fs/losses/loss_plan.h"
#include "fs/losses/loss_report.h"
#include "fs/node/known_paths.h"
#include "io/memory_device.h"

namespace swale::fs::losses_test {
namespace {

constexpr uint32_t kNodes = 3;

NodeSurvey survey_of(NodeId node) {
  NodeSurvey survey;
  survey.node = node, survey.nodes = kNodes, survey.tree = 77, survey.job = "job-1";
  return survey;
}
void add_file(NodeSurvey* root, const meta::FileId& id, const std::string& name) {
  root->names.push_back({meta::kRootDirectory, name, {id, meta::NodeType::kFile}});
  root->files[id];
}
void add_root(NodeSurvey* survey, const FileRoots& roots) { survey->roots = roots.known(); }

ShareRequest commit(NodeId node, const meta::FileId& id, uint64_t order, std::vector<Span> spans) {
  ShareRequest request;
  request.op = ShareOp::kCommit;
  request.node = node, request.file = id, request.order = order, request.spans = std::move(spans);
  return request;
}

// Random commits of nodes with a real root; then node `lost` is gone. The model has the owner of each byte.
struct RandomFile {
  static constexpr uint64_t kBytes = 64;
  std::vector<NodeSurvey> surveys;
  std::vector<int> owners = std::vector<int>(kBytes, -1);
  uint64_t end = 0;

  RandomFile(uint64_t seed, NodeId lost) {
    Rng rng(seed);
    const meta::FileId id{(lost + 1) % kNodes, 5};
    FileRoots roots;
    std::vector<NodeSurvey> all;
    for (NodeId node = 0; node < kNodes; ++node) all.push_back(survey_of(node));
    add_file(&all[id.high], id, "shared");
    for (uint64_t order = 2; order < 22; ++order) {
      const auto node = static_cast<NodeId>(rng.below(kNodes));
      const uint64_t begin = rng.below(kBytes - 1), stop = begin + 1 + rng.below(kBytes - begin);
      const bool committed = order < 18 || node == lost;
      all[node].logs[id].orders.put({begin, stop}, order);
      if (committed) {
        std::string record;
        const auto answer = roots.handle(commit(node, id, order, {{begin, stop}}), &record);
        EXPECT_TRUE(answer.ok()) << answer.status().to_string();
        std::fill(owners.begin() + begin, owners.begin() + stop, static_cast<int>(node));
      } else {
        uncommitted.push_back({{begin, stop}, node});
      }
      end = std::max(end, stop);
    }
    // Over all that is committed; of two nodes either.
    for (const SharePart& each : uncommitted)
      std::fill(owners.begin() + each.span.begin, owners.begin() + each.span.end, -2);
    add_root(&all[id.high], roots);
    for (NodeId node = 0; node < kNodes; ++node)
      if (node != lost) surveys.push_back(all[node]);
  }
  std::vector<SharePart> uncommitted;

  // What a plan says that is not so; "": nothing.
  std::string judge(NodeId lost, const LossRules& rules = {}) const {
    const auto plan = plan_losses(surveys, {lost}, rules);
    if (!plan.ok()) return plan.status().to_string();
    if (plan->files.size() != 1) return "a file is missing";
    const FileLoss& loss = plan->files[0];
    std::vector<int> said(kBytes, -1);
    loss.kept.visit(kEachByte, [&](const Span& span, NodeId node) {
      std::fill(said.begin() + span.begin, said.begin() + span.end, static_cast<int>(node));
    });
    bool any_lost = false;
    loss.lost.visit(kEachByte, [&](const Span& span, NodeId node) {
      for (uint64_t at = span.begin; at < span.end; ++at) said[at] = static_cast<int>(node) + 100;
    });
    for (uint64_t at = 0; at < kBytes; ++at) {
      const bool is_lost = owners[at] == static_cast<int>(lost);
      any_lost = any_lost || is_lost;
      if (owners[at] == -2 && said[at] >= 0 && said[at] < 100) continue;
      if (said[at] != (is_lost ? owners[at] + 100 : owners[at]))
        return fmt::format("byte {}: {} instead of {}", at, said[at], owners[at]);
    }
    if (any_lost != (loss.fate == FileLoss::Fate::kLostRanges)) return "its fate is another one";
    return loss.size == end ? "" : "its size is another one";
  }
};

TEST(Losses, EachRangeThatALostNodeAloneHadIsListedAndNoOther) {
  for (uint64_t seed = 1; seed <= 300; ++seed)
    for (NodeId lost = 0; lost < kNodes; ++lost)
      ASSERT_EQ(RandomFile(seed, lost).judge(lost), "") << "seed " << seed << ", node " << lost;
}

// Node 1 has lost its power: what it had committed last is gone, and its older bytes are not what was there.
TEST(Losses, WhatANodeHadNotMadeDurableHidesNothingOnceItsPowerIsLost) {
  const meta::FileId id{0, 5};
  FileRoots roots;
  std::string record;
  std::vector<NodeId> ask;
  ASSERT_TRUE(roots.handle(commit(0, id, 3, {{0, 50}}), &record).ok());
  ASSERT_TRUE(roots.begin_sync(id, 0, &ask).ok());
  ASSERT_TRUE(roots.end_sync(id, true, &record).ok());
  ASSERT_TRUE(roots.handle(commit(1, id, 7, {{20, 60}}), &record).ok());
  for (const bool has_lost_power : {true, false}) {
    std::vector<NodeSurvey> surveys = {survey_of(0), survey_of(1)};
    add_file(surveys.data(), id, "shared");
    add_root(surveys.data(), roots);
    surveys[0].logs[id].orders.put({0, 50}, 3);
    surveys[1].logs[id].orders.put({20, 30}, 2);
    surveys[1].has_lost_power = has_lost_power;
    const auto plan = plan_losses(surveys, {2});
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    ASSERT_EQ(plan->files.size(), 1u);
    const FileLoss& loss = plan->files[0];
    EXPECT_EQ(loss.lost.empty(), has_lost_power);
    EXPECT_EQ(loss.size, has_lost_power ? 50u : 60u);
    std::vector<std::pair<Span, NodeId>> kept;
    loss.kept.visit(kEachByte, [&](const Span& span, NodeId node) { kept.emplace_back(span, node); });
    if (!has_lost_power) continue;
    EXPECT_EQ(kept, (std::vector<std::pair<Span, NodeId>>{{{0, 50}, 0}}));
  }
}

TEST(Losses, AReportThatOmitsRangesIsNoticed) {
  bool noticed = false;
  for (uint64_t seed = 1; seed <= 20; ++seed)
    noticed = noticed || !RandomFile(seed, 1).judge(1, {.see_absent = false}).empty();
  EXPECT_TRUE(noticed);
}

// The memory of a node that has started anew is empty: what its logs should have is lost, too.
TEST(Losses, BytesThatALeftNodeShouldHaveAndHasNotAreLost) {
  const meta::FileId id{0, 5};
  FileRoots roots;
  std::string record;
  ASSERT_TRUE(roots.handle(commit(0, id, 9, {{0, 100}}), &record).ok());
  NodeSurvey left = survey_of(0);
  add_file(&left, id, "f");
  add_root(&left, roots);
  left.logs[id].orders.put({20, 30}, 9);
  const std::vector<NodeSurvey> surveys = {left, survey_of(1)};
  const auto plan = plan_losses(surveys, {2});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ASSERT_EQ(plan->files.size(), 1u);
  EXPECT_EQ(plan->files[0].fate, FileLoss::Fate::kLostRanges);
  std::vector<Span> lost;
  plan->files[0].lost.visit(kEachByte, [&](const Span& span, NodeId) { lost.push_back(span); });
  EXPECT_EQ(lost, (std::vector<Span>{{0, 20}, {30, 100}}));
  const auto blind = plan_losses(surveys, {2}, {.see_missing = false});
  ASSERT_TRUE(blind.ok());
  EXPECT_TRUE(blind->files[0].is_whole());  // the canary
}

TEST(Losses, OfAFileWhoseRootIsLostEachNodesBytesAreKeptApart) {
  const meta::FileId id{2, 5};
  std::vector<NodeSurvey> surveys = {survey_of(0), survey_of(1)};
  surveys[0].logs[id].orders.put({0, 10}, 4);
  surveys[1].logs[id].orders.put({5, 20}, 3);
  surveys[1].paths[id] = "d/f";
  const auto plan = plan_losses(surveys, {2});
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->files.size(), 1u);
  const FileLoss& loss = plan->files[0];
  EXPECT_EQ(loss.fate, FileLoss::Fate::kLostRoot);
  EXPECT_EQ(loss.path, "");
  EXPECT_EQ(loss.copies.size(), 2u);
  EXPECT_EQ(loss.known_as, "d/f");
  EXPECT_NE(loss_document(*plan, {}).find("\"known_as\":\"d/f\""), std::string::npos);
  EXPECT_EQ(loss.size, 20u);
  EXPECT_TRUE(plan->loses());
}

TEST(Losses, NewFilesAreWholeUnlessALostNodeHadThemOpenOrTheirDirectoryIsLost) {
  std::vector<NodeSurvey> surveys = {survey_of(0), survey_of(1)};
  const meta::FileId empty{0, 5}, open{0, 6}, below{0, 7}, there{0, 8}, directory{2, 9};
  add_file(&surveys[0], empty, "empty");
  add_file(&surveys[0], open, "open");
  surveys[0].files[open].holders = {2};
  add_file(&surveys[0], below, "below");
  surveys[0].names.back().directory = directory;
  add_file(&surveys[0], there, "there");
  surveys[0].files[there].on_backing = true;
  const auto plan = plan_losses(surveys, {2});
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->files.size(), 3u);
  EXPECT_EQ(plan->files[0].path, "empty");
  EXPECT_TRUE(plan->files[0].is_whole());
  EXPECT_EQ(plan->files[1].fate, FileLoss::Fate::kOpen);
  EXPECT_EQ(plan->files[2].fate, FileLoss::Fate::kNameless);
}

TEST(Losses, NothingIsPlannedUnlessTheAbsentNodesAreTheNamedOnes) {
  std::vector<NodeSurvey> surveys = {survey_of(0), survey_of(1)};
  EXPECT_EQ(plan_losses(surveys, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(plan_losses(surveys, {1}).status().code(), Code::kInvalidArgument);
  surveys[1].node = 0;
  EXPECT_EQ(plan_losses(surveys, {1, 2}).status().code(), Code::kInvalidArgument);
  surveys[1] = survey_of(1);
  surveys[1].tree = 5;
  EXPECT_EQ(plan_losses(surveys, {2}).status().code(), Code::kInvalidArgument);
}

TEST(Losses, SurveysOutliveTheirMessageAndGarbageIsRefused) {
  const RandomFile file(3, 1);
  for (const NodeSurvey& each : file.surveys) {
    const std::string text = encode(each);
    const auto again = decode_survey(text);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(encode(*again), text);
    for (size_t bytes = 0; bytes < text.size(); ++bytes)
      EXPECT_EQ(decode_survey(Bytes(text).substr(0, bytes)).status().code(), Code::kCorruption) << bytes;
  }
}

TEST(Losses, KnownPathsOutliveTheirServerAndTheLaterOneCounts) {
  io::MemoryDevice device;
  const meta::FileId one{1, 5}, other{2, 6};
  {
    const auto paths = KnownPaths::open(device, "/state");
    ASSERT_TRUE(paths.ok()) << paths.status().to_string();
    ASSERT_TRUE((*paths)->put(other, "gone").ok());
    (*paths)->forget(other);
    for (int i = 0; i < 100'000; ++i) ASSERT_TRUE((*paths)->put(one, fmt::format("d/{}", i)).ok());
  }
  const auto again = KnownPaths::open(device, "/state");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ((*again)->paths(), (KnownPaths::Paths{{one, "d/99999"}}));  // the other went with a rewriting
}

TEST(Losses, TheReportNamesEachFileAndRange) {
  auto plan = plan_losses(RandomFile(1, 1).surveys, {1});
  for (uint64_t seed = 2; plan.ok() && plan->files[0].lost.empty() && seed < 100; ++seed)
    plan = plan_losses(RandomFile(seed, 1).surveys, {1});
  ASSERT_TRUE(plan.ok());
  ASSERT_FALSE(plan->files[0].lost.empty());
  const std::string text = loss_text(*plan, {}), document = loss_document(*plan, {});
  plan->files[0].lost.visit(kEachByte, [&](const Span& span, NodeId) {
    EXPECT_NE(text.find(fmt::format("bytes {} to {} were on node 1 alone", span.begin, span.end)),
              std::string::npos);
  });
  EXPECT_NE(document.find("\"path\":\"shared\""), std::string::npos) << document;
  EXPECT_NE(document.find("lost ranges"), std::string::npos);
}

}  // namespace
}  // namespace swale::fs::losses_test
