#include "fs/node_table.h"

namespace swale::fs {

Node* NodeTable::enter(io::Descriptor path, const struct stat& attributes) {
  const tier::FileKey key{attributes.st_dev, attributes.st_ino};
  const MutexLock lock(mutex_);
  std::unique_ptr<Node>& node = nodes_[key];
  if (!node) {
    node = std::make_unique<Node>();
    node->path = std::move(path);
    node->key = key;
    node->type = attributes.st_mode & S_IFMT;
    node->changed_ns = attributes.st_ctim.tv_sec * 1'000'000'000 + attributes.st_ctim.tv_nsec;
  }
  ++node->lookups;
  return node.get();
}

void NodeTable::forget(Node* node, uint64_t count) {
  std::unique_ptr<Node> gone;  // closed without the mutex
  const MutexLock lock(mutex_);
  node->lookups -= std::min(count, node->lookups);
  if (node->lookups > 0) return;
  const auto found = nodes_.find(node->key);
  gone = std::move(found->second);
  nodes_.erase(found);
}

size_t NodeTable::size() const {
  const MutexLock lock(mutex_);
  return nodes_.size();
}

}  // namespace swale::fs
