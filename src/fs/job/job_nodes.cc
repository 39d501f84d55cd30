#include "fs/job/job_nodes.h"

#include <algorithm>

namespace swale::fs {
namespace {

constexpr size_t kDepthMax = 4096;  // of a path: PATH_MAX has no more names

}  // namespace

void JobNodes::note_looked_up(JobNode* node) {
  ++node->lookups;
  by_lookup_.splice(by_lookup_.end(), by_lookup_, node->place);
}

JobNode* JobNodes::enter(const meta::FileId& id, meta::NodeType type, io::Descriptor* directory) {
  const MutexLock lock(mutex_);
  const auto at = nodes_.find(id);
  if (at != nodes_.end()) {
    note_looked_up(at->second.get());
    return at->second.get();
  }
  auto made = std::make_unique<JobNode>();
  made->id = id;
  made->type = type;
  JobNode* const node = made.get();
  node->place = by_lookup_.insert(by_lookup_.end(), node);
  try {
    nodes_.emplace(id, std::move(made));
  } catch (...) {
    by_lookup_.pop_back();
    throw;
  }
  node->directory = std::move(*directory);
  node->lookups = 1;
  if (crowded_ && nodes_.size() > crowd_) crowded_();
  return node;
}

JobNode* JobNodes::find(const meta::FileId& id) {
  const MutexLock lock(mutex_);
  const auto at = nodes_.find(id);
  if (at == nodes_.end()) return nullptr;
  note_looked_up(at->second.get());
  return at->second.get();
}

std::vector<JobNode*> JobNodes::changed_directories() {
  std::vector<JobNode*> changed;
  const MutexLock lock(mutex_);
  for (const auto& [id, node] : nodes_)
    if (node->type == meta::NodeType::kDirectory && node->modified_ns.load() != 0)
      changed.push_back(node.get());
  for (JobNode* const node : changed) note_looked_up(node);
  return changed;
}

std::unique_ptr<JobNode> JobNodes::forget(JobNode* node, uint64_t count) {
  std::unique_ptr<JobNode> last;
  const MutexLock lock(mutex_);
  node->lookups -= std::min(count, node->lookups);
  if (node->lookups > 0) return last;
  by_lookup_.erase(node->place);
  const auto at = nodes_.find(node->id);
  last = std::move(at->second);
  nodes_.erase(at);
  return last;
}

uint64_t JobNodes::begin_look_up() {
  const MutexLock lock(mutex_);
  look_ups_.insert(changes_);
  return changes_;
}

void JobNodes::end_look_up(uint64_t began) noexcept {
  const MutexLock lock(mutex_);
  look_ups_.erase(look_ups_.find(began));
  if (look_ups_.empty())
    changed_.clear();
  else if (const uint64_t oldest = *look_ups_.begin(); oldest > began)
    std::erase_if(changed_, [&](const auto& each) { return each.second.number <= oldest; });
}

void JobNodes::note_change(const meta::FileId& id, std::optional<Place> place) {
  ++changes_;
  if (!look_ups_.empty()) changed_[id] = {changes_, std::move(place)};
}

bool JobNodes::put_found(const LookUp& by, const meta::FileId& id, const Place& place) {
  const MutexLock lock(mutex_);
  const auto change = changed_.find(id);
  const bool changed = change != changed_.end() && change->second.number > by.began_;
  if (changed && !change->second.place) return false;
  places_.insert_or_assign(id, Place(changed ? *change->second.place : place));
  return true;
}

void JobNodes::put(const meta::FileId& id, const Place& place) {
  const MutexLock lock(mutex_);
  note_change(id, place);
  places_.insert_or_assign(id, Place(place));
}

void JobNodes::put_if_met(const meta::FileId& id, const Place& place) {
  const MutexLock lock(mutex_);
  note_change(id, place);
  if (const auto met = places_.find(id); met != places_.end()) met->second = Place(place);
}

void JobNodes::remove(const meta::FileId& id) {
  const MutexLock lock(mutex_);
  note_change(id, {});
  places_.erase(id);
}

std::optional<JobNodes::Place> JobNodes::place_of(const meta::FileId& id) const {
  const MutexLock lock(mutex_);
  const auto at = places_.find(id);
  if (at == places_.end()) return {};
  return at->second;
}

std::optional<std::string> JobNodes::path_of(const meta::FileId& id) const {
  const MutexLock lock(mutex_);
  std::string path;
  meta::FileId at = id;
  for (size_t depth = 0; at != meta::kRootDirectory; ++depth) {
    const auto found = places_.find(at);
    if (found == places_.end() || depth == kDepthMax) return {};
    path = path.empty() ? found->second.name : found->second.name + "/" + path;
    at = found->second.parent;
  }
  return path;
}

template <class Stop>
bool JobNodes::climb(const meta::FileId& id, const Stop& stop) const {
  meta::FileId at = id;
  for (size_t depth = 0; depth <= kDepthMax; ++depth) {
    if (stop(at)) return true;
    const auto found = places_.find(at);
    if (at == meta::kRootDirectory || found == places_.end()) return false;
    at = found->second.parent;
  }
  return false;
}

bool JobNodes::is_beneath(const meta::FileId& id, std::span<const meta::FileId> these) const {
  const MutexLock lock(mutex_);
  return climb(
      id, [&](const meta::FileId& at) { return std::find(these.begin(), these.end(), at) != these.end(); });
}

bool JobNodes::is_unchanged(const LookUp& by, const meta::FileId& id) const {
  const MutexLock lock(mutex_);
  return !climb(id, [&](const meta::FileId& at) REQUIRES(mutex_) {
    const auto change = changed_.find(at);
    return change != changed_.end() && change->second.number > by.began_;
  });
}

std::vector<std::pair<meta::FileId, JobNodes::Place>> JobNodes::all_places() const {
  const MutexLock lock(mutex_);
  return {places_.begin(), places_.end()};
}

void JobNodes::add_nameless(const meta::FileId& id) {
  const MutexLock lock(mutex_);
  nameless_.insert(id);
}
void JobNodes::remove_nameless(const meta::FileId& id) {
  const MutexLock lock(mutex_);
  nameless_.erase(id);
}
bool JobNodes::is_nameless(const meta::FileId& id) const {
  const MutexLock lock(mutex_);
  return nameless_.contains(id);
}

size_t JobNodes::size() const {
  const MutexLock lock(mutex_);
  return nodes_.size();
}

void JobNodes::call_above(size_t nodes, std::function<void()> crowded) {
  const MutexLock lock(mutex_);
  crowd_ = nodes;
  crowded_ = std::move(crowded);
}

std::vector<IdleName> JobNodes::take_idle(size_t count) {
  const MutexLock lock(mutex_);
  std::vector<IdleName> idle;
  size_t left = by_lookup_.size();
  for (auto at = by_lookup_.begin(); left > 0 && idle.size() < count; --left) {
    JobNode* const node = *at;
    const auto next = std::next(at);
    const auto place = places_.find(node->id);
    if (node->type != meta::NodeType::kDirectory && place != places_.end()) {
      const auto parent = nodes_.find(place->second.parent);
      if (parent != nodes_.end()) idle.push_back({parent->second.get(), place->second.name});
      by_lookup_.splice(by_lookup_.end(), by_lookup_, at);
    }
    at = next;
  }
  return idle;
}

}  // namespace swale::fs
