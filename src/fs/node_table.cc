#include "fs/node_table.h"

#include <cassert>
#include <utility>

namespace swale::fs {

TierNode* NodeTable::enter(io::Descriptor path, const struct stat& attributes, const TierNode* parent,
                           std::string_view name) {
  assert(path.valid());
  const tier::FileKey key{attributes.st_dev, attributes.st_ino};
  std::string called(name);
  std::list<TierNode*> last(1);  // what may lack memory comes before what changes the table
  const MutexLock lock(mutex_);
  std::unique_ptr<TierNode>& node = nodes_[key];
  if (!node) {
    try {
      node = std::make_unique<TierNode>();
    } catch (...) {
      nodes_.erase(key);
      throw;
    }
    node->path = std::move(path);
    node->key = key;
    node->type = attributes.st_mode & S_IFMT;
    node->changed_ns = attributes.st_ctim.tv_sec * 1'000'000'000 + attributes.st_ctim.tv_nsec;
    last.front() = node.get();
    node->place = last.begin();
    by_lookup_.splice(by_lookup_.end(), last);
  } else {
    by_lookup_.splice(by_lookup_.end(), by_lookup_, node->place);
  }
  // Its descriptor holds the inode, so no other one can have got its number.
  assert(node->key == key && node->type == (attributes.st_mode & S_IFMT));
  node->parent = parent;
  node->name.swap(called);
  ++node->lookups;
  if (crowded_ && nodes_.size() > crowd_) crowded_();
  return node.get();
}

void NodeTable::forget(TierNode* node, uint64_t count) {
  std::unique_ptr<TierNode> gone;  // closed without the mutex
  const MutexLock lock(mutex_);
  assert(node->lookups > 0);
  node->lookups -= std::min(count, node->lookups);
  if (node->lookups > 0) return;
  const auto found = nodes_.find(node->key);
  assert(found != nodes_.end() && found->second.get() == node);
  by_lookup_.erase(node->place);
  gone = std::move(found->second);
  nodes_.erase(found);
}

void NodeTable::renamed(const tier::FileKey& key, const TierNode* parent, std::string_view name) {
  std::string called(name);
  const MutexLock lock(mutex_);
  const auto found = nodes_.find(key);
  if (found == nodes_.end()) return;
  found->second->parent = parent;
  found->second->name.swap(called);
}

size_t NodeTable::size() const {
  const MutexLock lock(mutex_);
  return nodes_.size();
}

void NodeTable::call_above(size_t nodes, std::function<void()> crowded) {
  const MutexLock lock(mutex_);
  crowd_ = nodes;
  crowded_ = std::move(crowded);
}

std::vector<IdleName> NodeTable::take_idle(size_t count) {
  std::vector<IdleName> idle;
  const MutexLock lock(mutex_);
  size_t looks = by_lookup_.size();
  for (auto next = by_lookup_.begin(); looks > 0 && idle.size() < count; --looks) {
    const auto place = next++;
    TierNode& node = **place;
    if (S_ISDIR(node.type) || node.parent == nullptr) continue;
    if (!node.mutex.try_lock()) continue;  // it is in use
    const bool open = node.opens > 0;
    node.mutex.unlock();
    if (open) continue;
    idle.push_back({node.parent, node.name});
    by_lookup_.splice(by_lookup_.end(), by_lookup_, place);
  }
  return idle;
}

}  // namespace swale::fs
