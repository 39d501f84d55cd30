#include "fs/losses/loss_plan.h"

#include <algorithm>

#include "base/contain.h"

namespace swale::fs {
namespace {

constexpr int kDepthMax = 4096;  // of a path: what is deeper is a cycle

class Planner {
 public:
  Planner(std::span<const NodeSurvey> surveys, const LossRules& rules) : surveys_(surveys), rules_(rules) {}

  Status begin(const std::set<NodeId>& without, LossPlan* plan) {
    if (surveys_.empty()) return invalid_argument("no node is left");
    plan->job = surveys_.front().job;
    plan->nodes = surveys_.front().nodes;
    for (const NodeSurvey& each : surveys_) {
      if (each.tree != surveys_.front().tree || each.nodes != plan->nodes || each.node >= plan->nodes)
        return invalid_argument("node {} is of another job than node {}", each.node, surveys_.front().node);
      if (!by_node_.emplace(each.node, &each).second)
        return invalid_argument("two of these nodes are node {} of the job: which of them is a copy?",
                                each.node);
      for (const NodeSurvey::Name& name : each.names) places_.emplace(name.entry.file, &name);
    }
    for (NodeId node = 0; node < plan->nodes; ++node)
      if (!by_node_.contains(node)) plan->absent.insert(node);
    if (plan->absent == without) return {};
    return invalid_argument(
        "of the {} nodes of the job, those that are not here: {}; those to go on without: {}: start it on "
        "all nodes that are left, and name the others (--without)",
        plan->nodes, list_of(plan->absent), list_of(without));
  }

  void plan(LossPlan* plan) {
    std::set<meta::FileId> ids;
    for (const NodeSurvey& each : surveys_) {
      for (const auto& [id, logged] : each.logs) ids.insert(id);
      for (const FileRoots::Known& root : each.roots) {
        roots_.emplace(root.file, &root);
        ids.insert(root.file);
      }
      for (const auto& [id, file] : each.files) ids.insert(id);
      for (const NodeSurvey::Name& name : each.names)
        if (name.entry.type == meta::NodeType::kFile) ids.insert(name.entry.file);
    }
    for (const meta::FileId& id : ids) {
      FileLoss loss;
      loss.file = id;
      loss.path = path_of(id);
      for (const NodeSurvey& each : surveys_)
        if (const auto at = each.paths.find(id); loss.path.empty() && at != each.paths.end())
          loss.known_as = at->second;
      const auto root = by_node_.find(static_cast<NodeId>(id.high));
      if (root == by_node_.end() ? is_rootless(&loss) : is_rooted(*root->second, &loss))
        plan->files.push_back(std::move(loss));
    }
  }

 private:
  std::string path_of(meta::FileId id) const {
    std::string path;
    for (int depth = 0; id != meta::kRootDirectory; ++depth) {
      const auto at = places_.find(id);
      if (at == places_.end() || depth == kDepthMax) return "";
      path = path.empty() ? at->second->name : at->second->name + "/" + path;
      id = at->second->directory;
    }
    return path;
  }

  // Of the bytes of a node, those that another one may have overwritten cannot be told from others.
  bool is_rootless(FileLoss* loss) const {
    loss->fate = FileLoss::Fate::kLostRoot;
    for (const auto& [node, survey] : by_node_) {
      const auto at = survey->logs.find(loss->file);
      if (at == survey->logs.end()) continue;
      loss->backing = at->second.seen;
      at->second.orders.visit(kEachByte,
                              [&](const Span& span, uint64_t) { loss->copies[node].put(span, 0); });
      loss->size = std::max(loss->size, at->second.orders.end());
    }
    return true;
  }

  // False: nothing of it is to be brought, or no name leads to it any more.
  bool is_rooted(const NodeSurvey& root, FileLoss* loss) const {
    const auto file = root.files.find(loss->file);
    if (file == root.files.end()) return false;
    RangeMap<NodeId> owners;
    const bool is_new = !take_root(loss, &owners);
    add_uncommitted(loss, &owners);
    owners.visit(kEachByte, [&](const Span& span, NodeId node) { share_out(loss, span, node); });
    const SeenBacking& there = loss->backing;
    const bool drained = owners.empty() && (is_new ? file->second.on_backing : there.inode != 0) &&
                         loss->size == there.size && loss->backing_end == there.size;
    if (drained) return false;
    const bool open = is_new && std::any_of(file->second.holders.begin(), file->second.holders.end(),
                                            [&](NodeId holder) { return !by_node_.contains(holder); });
    if (!loss->lost.empty())
      loss->fate = FileLoss::Fate::kLostRanges;
    else if (open)
      loss->fate = FileLoss::Fate::kOpen;
    else if (loss->path.empty())
      loss->fate = FileLoss::Fate::kNameless;
    return true;
  }

  // What is committed. False: nothing was.
  bool take_root(FileLoss* loss, RangeMap<NodeId>* owners) const {
    const auto at = roots_.find(loss->file);
    if (at != roots_.end()) {
      const FileRoots::Known& root = *at->second;
      loss->size = root.size, loss->backing_end = root.backing_end;
      loss->backing = root.backing, loss->ours = root.ours;
      *owners = root.parts;
      if (take_back(root, owners)) loss->size = std::max({root.kept_size, root.backing_end, owners->end()});
      return true;
    }
    for (const auto& [node, survey] : by_node_) {
      const auto logged = survey->logs.find(loss->file);
      if (logged != survey->logs.end()) loss->backing = logged->second.seen;
    }
    loss->size = loss->backing_end = loss->backing.size;
    return false;
  }

  // What a node that has lost its power had not made durable is gone, and does not hide what was before it.
  bool take_back(const FileRoots::Known& root, RangeMap<NodeId>* owners) const {
    bool takes = false;
    root.loose.visit(kEachByte, [&](const Span& span, NodeId before) {
      root.parts.visit(span, [&](const Span& part, NodeId owner) {
        const auto survey = by_node_.find(owner);
        if (survey == by_node_.end() || !survey->second->has_lost_power) return;
        before == kNobody ? owners->cut(part) : owners->put(part, before);
        takes = true;
      });
    });
    return takes;
  }

  // What a node has written since its last commit is over all others' bytes.
  void add_uncommitted(FileLoss* loss, RangeMap<NodeId>* owners) const {
    const auto root = roots_.find(loss->file);
    for (const auto& [node, survey] : by_node_) {
      const auto logged = survey->logs.find(loss->file);
      if (logged == survey->logs.end()) continue;
      uint64_t changed = 0;
      if (root != roots_.end()) {
        const auto at = root->second->changed.find(node);
        if (at != root->second->changed.end()) changed = at->second;
      }
      logged->second.orders.visit(kEachByte, [&, node = node](const Span& span, uint64_t order) {
        if (order <= changed) return;
        owners->put(span, node);
        loss->size = std::max(loss->size, span.end);
      });
    }
  }

  void share_out(FileLoss* loss, const Span& span, NodeId node) const {
    const auto survey = by_node_.find(node);
    if (survey == by_node_.end()) {
      (rules_.see_absent ? loss->lost : loss->kept).put(span, node);
      return;
    }
    const auto logged = survey->second->logs.find(loss->file);
    if (rules_.see_missing) loss->lost.put(span, node);
    if (logged == survey->second->logs.end()) return;
    logged->second.orders.visit(span, [&](const Span& there, uint64_t) {
      loss->lost.cut(there);
      loss->kept.put(there, node);
    });
  }

  const std::span<const NodeSurvey> surveys_;
  const LossRules rules_;
  std::map<NodeId, const NodeSurvey*> by_node_;
  std::map<meta::FileId, const NodeSurvey::Name*> places_;
  std::map<meta::FileId, const FileRoots::Known*> roots_;
};

}  // namespace

std::string list_of(const std::set<NodeId>& nodes) {
  std::string text;
  for (const NodeId node : nodes) text += fmt::format("{}{}", text.empty() ? "" : ",", node);
  return text.empty() ? "none" : text;
}

bool LossPlan::loses() const {
  return std::any_of(files.begin(), files.end(), [](const FileLoss& each) { return !each.is_whole(); });
}

Result<LossPlan> plan_losses(std::span<const NodeSurvey> surveys, const std::set<NodeId>& without,
                             const LossRules& rules) {
  LossPlan plan;
  const Status planned = contain([&]() -> Status {
    Planner planner(surveys, rules);
    SWALE_RETURN_IF_ERROR(planner.begin(without, &plan));
    planner.plan(&plan);
    return {};
  });
  if (!planned.ok()) return planned;
  return plan;
}

}  // namespace swale::fs
