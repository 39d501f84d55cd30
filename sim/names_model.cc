#include "sim/names_model.h"

#include <cerrno>

namespace swale::sim {

using meta::EntryKey;
using meta::FileId;
using meta::NameOp;
using meta::NameRequest;
using meta::NodeType;

NamesModel::NamesModel(uint32_t servers) : servers_(servers) {
  nodes_[meta::kRootDirectory] = {.type = NodeType::kDirectory, .mode = 0755};
  drawn_.insert(meta::kRootDirectory);
}

const NamesModel::Node* NamesModel::find(const FileId& file) const {
  const auto found = nodes_.find(file);
  return found != nodes_.end() ? &found->second : nullptr;
}

bool NamesModel::is_directory(const FileId& file) const {
  const Node* const node = find(file);
  return node != nullptr && node->type == NodeType::kDirectory;
}

FileId NamesModel::entry(const FileId& directory, const std::string& name) const {
  const Node* const node = find(directory);
  if (node == nullptr) return {};
  const auto found = node->entries.find(name);
  return found != node->entries.end() ? found->second : FileId();
}

std::set<std::string> NamesModel::names(const FileId& directory) const {
  std::set<std::string> names;
  if (const Node* const node = find(directory); node != nullptr) {
    for (const auto& [name, file] : node->entries) names.insert(name);
  }
  return names;
}

// Whether `file` is `directory` or above it.
bool NamesModel::above(const FileId& file, const FileId& directory) const {
  for (FileId at = directory; !at.none(); at = find(at)->parent) {
    if (at == file) return true;
    if (find(at) == nullptr) return false;
  }
  return false;
}

bool NamesModel::holds_more(const NameRequest& request, const FileId& file) const {
  const Node& node = *find(file);
  const bool holds = request.op == NameOp::kOpen || (request.flags & meta::kAndHold) != 0;
  const bool here = meta::server_of(file) == server_of(EntryKey(request.directory, request.name), servers_);
  return holds && here && node.type == NodeType::kFile && !node.holders.contains(holder_of(request.from));
}

std::set<ModelAnswer> NamesModel::answers(const NameRequest& request) const {
  std::set<ModelAnswer> all = {answer(request)};
  const Node* const node = find(request.file);
  if (node == nullptr || node->linked) return all;
  // Its server may not know yet that it has ended, or that its last entry has gone.
  if (node->holders.empty() || request.op == NameOp::kHold) {
    const bool read = request.op == NameOp::kStat;
    all.insert({.error = ENOENT});
    all.insert({.file = request.file, .changes = !read, .mode = read ? node->mode : 0});
    if (request.op == NameOp::kRelease) all.insert({});
  }
  return all;
}

ModelAnswer NamesModel::answer(const NameRequest& request) const {
  if (request.op == NameOp::kRename) return rename(request);
  if (request.op >= NameOp::kSetNode || request.op == NameOp::kStat) {
    const Node* const node = find(request.file);
    if (request.op == NameOp::kRelease && node == nullptr) return {};
    if (node == nullptr) return {.error = ENOENT};
    const bool held = node->holders.contains(holder_of(request.from));
    ModelAnswer right{.file = request.file};
    if (request.op == NameOp::kStat) right.mode = node->mode;
    right.changes = request.op == NameOp::kSetNode || (request.op == NameOp::kHold && !held) ||
                    (request.op == NameOp::kRelease && held);
    return right;
  }
  const bool there = is_directory(request.directory);
  const FileId found = entry(request.directory, request.name);
  const bool directory = is_directory(found);
  switch (request.op) {
    case NameOp::kLookUp:
      return found.none() ? ModelAnswer{.error = ENOENT} : ModelAnswer{.file = found};
    case NameOp::kOpen:
      if (found.none()) return {.error = ENOENT};
      return {.file = found, .changes = holds_more(request, found)};
    case NameOp::kCreate:
    case NameOp::kMakeDirectory:
    case NameOp::kSymlink:
      if (!there) return {.error = find(request.directory) == nullptr ? ENOENT : ENOTDIR};
      if (found.none()) return {.changes = true};
      if (request.op != NameOp::kCreate || (request.flags & meta::kExclusive) != 0) return {.error = EEXIST};
      if (directory) return {.error = EISDIR};
      return {.file = found, .changes = holds_more(request, found)};
    case NameOp::kUnlink:
      if (found.none()) return {.error = ENOENT};
      if (directory) return {.error = EISDIR};
      return {.file = found, .changes = true};
    case NameOp::kRemoveDirectory:
      if (found.none()) return {.error = ENOENT};
      if (!directory) return {.error = ENOTDIR};
      if (!find(found)->entries.empty()) return {.error = ENOTEMPTY};
      return {.file = found, .changes = true};
    default:
      return {.error = EINVAL};
  }
}

// In the order of Linux: fs/namei.c, do_renameat2 and vfs_rename.
ModelAnswer NamesModel::rename(const NameRequest& request) const {
  const FileId moved = entry(request.directory, request.name);
  const FileId replaced = entry(request.target, request.target_name);
  const bool exchange = (request.flags & meta::kExchange) != 0;
  if (moved.none()) return {.error = ENOENT};
  if (!is_directory(request.target)) return {.error = find(request.target) == nullptr ? ENOENT : ENOTDIR};
  if (!replaced.none() && (request.flags & meta::kNoReplace) != 0) return {.error = EEXIST};
  if (request.directory == request.target && request.name == request.target_name) return {};
  if (replaced.none() && exchange) return {.error = ENOENT};
  if (is_directory(moved) && above(moved, request.target)) return {.error = EINVAL};
  if (is_directory(replaced) && above(replaced, request.directory))
    return {.error = exchange ? EINVAL : ENOTEMPTY};
  if (!exchange && !replaced.none()) {
    if (is_directory(moved) && !is_directory(replaced)) return {.error = ENOTDIR};
    if (!is_directory(moved) && is_directory(replaced)) return {.error = EISDIR};
    if (is_directory(replaced) && !find(replaced)->entries.empty()) return {.error = ENOTEMPTY};
  }
  return {.file = moved, .changes = true};
}

void NamesModel::unlink(const FileId& file) {
  Node& node = nodes_.at(file);
  node.linked = false;
  if (node.type == NodeType::kDirectory) nodes_.erase(file);
}

void NamesModel::apply_rename(const NameRequest& request) {
  const FileId moved = entry(request.directory, request.name);
  const FileId replaced = entry(request.target, request.target_name);
  auto& from = nodes_.at(request.directory).entries;
  auto& to = nodes_.at(request.target).entries;
  from.erase(request.name);
  to[request.target_name] = moved;
  nodes_.at(moved).parent = request.target;
  if (replaced.none()) return;
  if ((request.flags & meta::kExchange) == 0) return unlink(replaced);
  from[request.name] = replaced;
  nodes_.at(replaced).parent = request.directory;
}

std::string NamesModel::apply(const NameRequest& request, const FileId& made) {
  const ModelAnswer right = answer(request);
  const bool by_id = request.op >= NameOp::kSetNode;
  if (right.error != 0 && !(by_id && find(request.file) != nullptr))
    return fmt::format("a change {} was made that fails with errno {}", static_cast<int>(request.op),
                       right.error);
  const uint64_t holder = holder_of(request.from);
  switch (request.op) {
    case NameOp::kCreate:
    case NameOp::kMakeDirectory:
    case NameOp::kSymlink: {
      if (!right.file.none()) {
        nodes_.at(right.file).holders.insert(holder);
        break;
      }
      if (made.none() || !drawn_.insert(made).second)
        return fmt::format("id {}.{} was drawn twice", made.high, made.low);
      Node node;
      node.type = request.op == NameOp::kCreate          ? NodeType::kFile
                  : request.op == NameOp::kMakeDirectory ? NodeType::kDirectory
                                                         : NodeType::kLink;
      node.parent = request.directory;
      node.mode = request.mode;
      if (request.op == NameOp::kCreate && (request.flags & meta::kAndHold) != 0) node.holders.insert(holder);
      nodes_[made] = node;
      nodes_.at(request.directory).entries[request.name] = made;
      break;
    }
    case NameOp::kOpen:
      nodes_.at(right.file).holders.insert(holder);
      break;
    case NameOp::kUnlink:
    case NameOp::kRemoveDirectory:
      nodes_.at(request.directory).entries.erase(request.name);
      unlink(right.file);
      break;
    case NameOp::kRename:
      apply_rename(request);
      break;
    case NameOp::kSetNode:
      nodes_.at(request.file).mode = request.mode;
      break;
    case NameOp::kHold:
      nodes_.at(request.file).holders.insert(holder);
      break;
    case NameOp::kRelease:
      nodes_.at(request.file).holders.erase(holder);
      break;
    default:
      break;
  }
  return {};
}

std::string NamesModel::gone(const FileId& file) {
  const Node* const node = find(file);
  if (node == nullptr) return {};  // a directory, whose removal is a change of its own
  if (node->linked || !node->holders.empty())
    return fmt::format("file {}.{} is gone, and {}", file.high, file.low,
                       node->linked ? "an entry leads to it" : "somebody holds it");
  nodes_.erase(file);
  return {};
}

}  // namespace swale::sim
