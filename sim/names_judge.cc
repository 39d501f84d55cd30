#include "sim/names_judge.h"

#include <fmt/format.h>

#include <cerrno>

namespace swale::sim {

using meta::FileId;
using meta::NameOp;
using meta::NameRequest;
using meta::NameStep;
using meta::NameTable;
using meta::PeerOp;
using meta::StepKind;

const char* name_of(NameOp op) {
  switch (op) {
    case NameOp::kLookUp:
      return "look up";
    case NameOp::kStat:
      return "stat";
    case NameOp::kList:
      return "list";
    case NameOp::kCreate:
      return "create";
    case NameOp::kOpen:
      return "open";
    case NameOp::kMakeDirectory:
      return "mkdir";
    case NameOp::kSymlink:
      return "symlink";
    case NameOp::kUnlink:
      return "unlink";
    case NameOp::kRemoveDirectory:
      return "rmdir";
    case NameOp::kRename:
      return "rename";
    case NameOp::kSetNode:
      return "chmod";
    case NameOp::kHold:
      return "hold";
    default:
      return "release";
  }
}

void NamesJudge::begin(uint32_t client, const NameRequest& request) {
  Operation& operation = operations_[client];
  operation = {};
  operation.request = request;
  operation.busy = true;
  if (request.op == NameOp::kMembers) {
    operation.always = operation.ever = model_.names(request.file);
  } else {
    operation.right = model_.answers(request);
  }
}

NameRequest NamesJudge::request(uint32_t client) const {
  NameRequest request = operations_[client].request;
  const std::vector<uint64_t>& members = operations_[client].members;
  if (request.op == NameOp::kList && !members.empty()) request.file = {members.back(), 1};
  return request;
}

void NamesJudge::sent(const NameRequest& request, std::vector<uint32_t> clients) {
  Asked& asked = asked_[{request.from.client, request.from.number}];
  asked.request = request;
  asked.clients = std::move(clients);
}

void NamesJudge::sent_by_server(const std::string& payload) {
  if (static_cast<PeerOp>(payload[0]) != PeerOp::kRemove) return;
  const auto request = meta::decode_peer_request(payload);
  if (request.ok()) removers_[request->file] = request->from;
}

void NamesJudge::happen(const std::string& record) {
  std::vector<NameStep> steps;
  const Status status = meta::visit_record(record, [&](NameStep&& step) -> Status {
    steps.push_back(std::move(step));
    return {};
  });
  if (!status.ok()) return blame_(status.to_string());
  for (const NameStep& step : steps) {
    if (step.kind == StepKind::kAnswer) change(step.from, step.entry.file);
    if (step.kind == StepKind::kNoNode && model_.is_directory(step.id)) change(removers_[step.id], {});
  }
  for (const NameStep& step : steps) {
    if (step.kind != StepKind::kNoNode) continue;
    if (const std::string wrong = model_.gone(step.id); !wrong.empty()) blame_(wrong);
    if (holds_(step.id)) blame_("a file is gone that a node counts on");
  }
  look_again();
}

void NamesJudge::change(const meta::RequestKey& from, const FileId& file) {
  const auto found = asked_.find({from.client, from.number});
  if (found == asked_.end()) return blame_("a change that nobody has asked for");
  Asked& asked = found->second;
  if (asked.applied) return;  // when its directory was removed
  const NameRequest& request = asked.request;
  // To hold changes nothing for others, and whoever asked may ask again before he is answered.
  const bool holds = request.op == NameOp::kOpen || request.op == NameOp::kHold ||
                     request.op == NameOp::kRelease ||
                     (request.op == NameOp::kCreate && !model_.answers(request).begin()->file.none());
  if (const std::string wrong = model_.apply(request, file); !wrong.empty()) {
    return blame_(fmt::format("{} of {}.{} {}: {}", name_of(request.op), request.directory.high,
                              request.directory.low, request.name, wrong));
  }
  asked.applied = true;
  ++changed_;
  if (holds) return;
  for (const uint32_t client : asked.clients) {
    operations_[client].applied = true;
    operations_[client].result = file;
  }
}

// The tree has changed: what is right now for those that wait.
void NamesJudge::look_again() {
  for (Operation& operation : operations_) {
    if (!operation.busy) continue;
    if (operation.request.op == NameOp::kList || operation.request.op == NameOp::kMembers) {
      const std::set<std::string> names = model_.names(operation.request.file);
      operation.ever.insert(names.begin(), names.end());
      std::erase_if(operation.always, [&](const std::string& name) { return !names.contains(name); });
    } else {
      operation.right.merge(model_.answers(operation.request));
    }
  }
}

void NamesJudge::judge(const Operation& operation, const meta::NameAnswer& answer) {
  const NameRequest& request = operation.request;
  if (operation.applied && answer.error == ESTALE && request.op == NameOp::kCreate)
    return;  // unlinked at once
  if (operation.applied) {
    const bool right =
        answer.error == 0 && (operation.result.none() || answer.entry.file == operation.result);
    if (!right)
      blame_(
          fmt::format("{} has happened, and was answered with errno {}", name_of(request.op), answer.error));
    return;
  }
  ModelAnswer found{.error = answer.error, .file = answer.entry.file};
  if (request.op == NameOp::kStat && answer.node) found.mode = answer.node->mode;
  if (operation.right.contains(found)) return;
  std::string right;
  for (const ModelAnswer& each : operation.right)
    right += fmt::format(" [errno {}, file {}.{}{}]", each.error, each.file.high, each.file.low,
                         each.changes ? ", with a change" : "");
  blame_(fmt::format("client {:x}: {} of {}.{} {} was answered with errno {} and file {}.{}; right were{}",
                     request.from.client, name_of(request.op), request.directory.high, request.directory.low,
                     request.name, answer.error, answer.entry.file.high, answer.entry.file.low, right));
}

bool NamesJudge::end(uint32_t client, const meta::NameAnswer& answer) {
  Operation& operation = operations_[client];
  const NameOp op = operation.request.op;
  if (op == NameOp::kMembers || op == NameOp::kList) {
    if (!list(&operation, answer)) return false;
  } else if (op != NameOp::kRelease) {
    judge(operation, answer);
  }
  operation.busy = false;
  return true;
}

// False: there is more.
bool NamesJudge::list(Operation* operation, const meta::NameAnswer& answer) {
  NameRequest& request = operation->request;
  if (request.op == NameOp::kMembers) {
    if (answer.error != 0) {
      if (!operation->always.empty()) blame_("a directory with entries is not there");
      return true;
    }
    operation->members = answer.members;
    request.op = NameOp::kList;
    request.directory = request.file;
    request.name.clear();
    request.count = 1 + static_cast<uint32_t>(rng_.below(3));
  } else {
    check_names(operation, answer);
    if (!answer.list.empty()) request.name = answer.list.back().name;
    if (!answer.more) {
      operation->members.pop_back();
      request.name.clear();
    }
  }
  if (!operation->members.empty()) return false;
  for (const std::string& name : operation->always) {
    if (!operation->seen.contains(name)) blame_(fmt::format("{} was there all along and not listed", name));
  }
  ++listed_;
  return true;
}

void NamesJudge::check_names(Operation* operation, const meta::NameAnswer& answer) {
  for (const meta::ListedEntry& each : answer.list) {
    if (!operation->seen.insert(each.name).second) blame_(fmt::format("{} was listed twice", each.name));
    if (!operation->ever.contains(each.name)) blame_(fmt::format("{} was listed and never there", each.name));
  }
}

// What the tables say, as nodes of a model. Nothing is left over in them, and each entry is where it belongs.
std::map<FileId, NamesModel::Node> NamesJudge::collect(const std::vector<const NameTable*>& tables) {
  std::map<FileId, NamesModel::Node> nodes;
  for (const NameTable* const table : tables) {
    if (!table->locks().empty() || !table->intents().empty()) blame_("a lock or an intent is left over");
    for (const auto& [id, node] : table->nodes()) {
      NamesModel::Node& made = nodes[id];
      made.type = node.type;
      made.linked = !node.unlinked;
      made.mode = node.mode;
      if (node.type == meta::NodeType::kDirectory) made.parent = node.parent;
    }
  }
  for (uint32_t server = 0; server < tables.size(); ++server) {
    for (const auto& [key, entry] : tables[server]->entries()) {
      if (server_of(key, static_cast<uint32_t>(tables.size())) != server)
        blame_("an entry is at another server");
      const auto directory = nodes.find(key.directory);
      const auto file = nodes.find(entry.file);
      if (directory == nodes.end() || file == nodes.end() || file->second.type != entry.type) {
        blame_(fmt::format("the entry {} leads nowhere, or its directory is gone", key.name));
      } else {
        directory->second.entries[key.name] = entry.file;
      }
    }
  }
  return nodes;
}

void NamesJudge::compare(const std::vector<const NameTable*>& tables) {
  std::map<FileId, NamesModel::Node> nodes = collect(tables);
  for (const auto& [id, right] : model_.nodes()) {
    const auto found = nodes.find(id);
    if (found == nodes.end()) return blame_(fmt::format("node {}.{} is lost", id.high, id.low));
    const bool same = found->second.type == right.type && found->second.entries == right.entries &&
                      found->second.linked == right.linked && found->second.mode == right.mode &&
                      (right.type != meta::NodeType::kDirectory || found->second.parent == right.parent);
    if (!same) return blame_(fmt::format("node {}.{} differs from the model", id.high, id.low));
    nodes.erase(found);
  }
  if (!nodes.empty())
    blame_(fmt::format("node {}.{} is nobody's", nodes.begin()->first.high, nodes.begin()->first.low));
}

}  // namespace swale::sim
