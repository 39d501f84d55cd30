// What names lead to without a node, by hand-made surveys: renames between servers that were cut off.
#include "fs/losses/loss_names.h"

#include <gtest/gtest.h>

namespace swale::fs::loss_names_test {
namespace {

using What = LossNames::Found::What;

constexpr uint32_t kNodes = 3;
constexpr NodeId kLost = 2;
const meta::FileId kDirectory{0, 9}, kOld{0, 5}, kMoved{1, 6};

std::string name_at(NodeId server) {
  for (int i = 0;; ++i) {
    std::string name = fmt::format("name-{}", i);
    if (meta::server_of(meta::EntryKey(kDirectory, name), kNodes) == server) return name;
  }
}

struct Case {
  std::vector<NodeSurvey> surveys{2};
  std::vector<LeftDetails> details{2};
  const meta::Transaction rename{1, 4, 77};  // of node 1, to a name that node 0 has
  const std::string target = name_at(0);
  const meta::EntryKey key{kDirectory, target};

  Case() {
    for (NodeId node = 0; node < 2; ++node) surveys[node].node = node;
    surveys[0].names.push_back({kDirectory, target, {kOld, meta::NodeType::kFile}});
  }
  void record_rename() {
    surveys[1].names.push_back({kDirectory, target, {kMoved, meta::NodeType::kFile}});
    details[1].renames.push_back({rename, key, {kMoved, meta::NodeType::kFile}});
  }
  LossNames::Found find(const std::string& name) const {
    LossPlan plan;
    plan.nodes = kNodes;
    plan.absent = {kLost};
    return LossNames(surveys, details, plan).find(kDirectory, name);
  }
};

TEST(LossNames, ANameThatALostNodeHadIsUnknownWhetherAnEntryIsKnownOrNot) {
  Case the;
  EXPECT_EQ(the.find(the.target).what, What::kEntry);
  EXPECT_EQ(the.find(the.target).entry.file, kOld);
  EXPECT_EQ(the.find(name_at(1)).what, What::kNothing);
  EXPECT_EQ(the.find(name_at(kLost)).what, What::kUnknown);
  EXPECT_EQ(the.find(name_at(kLost)).lost, kLost);
}

TEST(LossNames, ARecordedRenameCountsUntilTheTargetsServerHasHeardOfIt) {
  Case the;
  the.record_rename();
  // The target's server has let its lock go: what it has is newer.
  EXPECT_EQ(the.find(the.target).entry.file, kOld);
  the.details[0].locks.push_back({the.rename, the.key});
  EXPECT_EQ(the.find(the.target).entry.file, kMoved);
}

TEST(LossNames, ALockOfARenameThatNobodyHasRecordedChangesNothing) {
  Case the;
  the.details[0].locks.push_back({the.rename, the.key});
  EXPECT_EQ(the.find(the.target).what, What::kEntry);
  EXPECT_EQ(the.find(the.target).entry.file, kOld);
}

TEST(LossNames, ANameThatALostNodeWasChangingIsUnknown) {
  Case the;
  the.details[0].locks.push_back({{kLost, 4, 1}, the.key});
  EXPECT_EQ(the.find(the.target).what, What::kUnknown);
}

TEST(LossNames, DetailsOutliveTheirMessageAndGarbageIsRefused) {
  Case the;
  the.record_rename();
  the.details[1].locks.push_back({the.rename, the.key});
  the.details[1].files[kMoved] = {0640, 7, 8, -1, 2, 3, {{"user.a", "value"}, {"user.b", ""}}};
  const std::string text = encode(the.details[1]);
  const auto again = decode_left_details(text);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(encode(*again), text);
  EXPECT_EQ(again->files.at(kMoved).users.at("user.a"), "value");
  EXPECT_EQ(again->files.at(kMoved).accessed_ns, -1);
  EXPECT_EQ(again->locks.at(0).key, the.key);
  for (size_t bytes = 0; bytes < text.size(); ++bytes)
    EXPECT_EQ(decode_left_details(Bytes(text).substr(0, bytes)).status().code(), Code::kCorruption) << bytes;
}

}  // namespace
}  // namespace swale::fs::loss_names_test
