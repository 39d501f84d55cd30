// LossNames: what the names of a tree lead to, as far as the nodes that are left know it.
//
// An entry stands at the server that a hash of its directory and name chooses. So each name that a lost node
// had is kUnknown, whether the tree had it or not: that node may have made, removed or replaced it. A name is
// also kUnknown if a change of it by a lost node had begun. A rename that a left node has recorded counts.
//
// Threads: constant after its construction. Memory: all entries of the surveys.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "fs/losses/left_details.h"
#include "fs/losses/loss_plan.h"

namespace swale::fs {

class LossNames {
 public:
  // `details`: of the same nodes as `surveys`, in the same order.
  LossNames(std::span<const NodeSurvey> surveys, std::span<const LeftDetails> details, const LossPlan& plan,
            bool asks_partition = true);

  struct Found {
    enum class What { kNothing, kEntry, kUnknown };
    What what = What::kNothing;
    meta::DirEntry entry = {};  // kEntry
    NodeId lost = 0;            // kUnknown: who would know
  };
  Found find(const meta::FileId& directory, const std::string& name) const;

  // Those of the directory that are known.
  using Entries = std::map<std::string, meta::DirEntry>;
  const Entries& in(const meta::FileId& directory) const;

 private:
  using Key = std::pair<meta::FileId, std::string>;

  const uint32_t servers_;
  const std::set<NodeId> absent_;
  const bool asks_partition_;  // false: a canary
  std::unordered_map<meta::FileId, Entries, meta::FileIdHash> directories_;
  std::map<Key, NodeId> changing_;  // by a lost node
};

}  // namespace swale::fs
