#include "meta/names/name_table.h"

#include <algorithm>
#include <optional>

namespace swale::meta {
class NameTable::Undo {
 public:
  virtual ~Undo() = default;
  virtual void take_back() noexcept = 0;
};

// Whatever became of one row: afterwards it is as it was. The old row is kept as the map's own node, so that
// it comes back without an allocation.
template <class Map>
class NameTable::UndoRow final : public Undo {
 public:
  UndoRow(Map* map, const typename Map::key_type& key) : map_(map), key_(key) {}
  void take() { before_ = map_->extract(key_); }
  void take_back() noexcept override {
    map_->erase(key_);
    if (!before_.empty()) map_->insert(std::move(before_));
  }

 private:
  Map* const map_;
  const typename Map::key_type key_;
  typename Map::node_type before_;
};

NameTable::NameTable(uint32_t server) : server_(server) {
  if (server_of(kRootDirectory) != server) return;
  TreeNode root;
  root.type = NodeType::kDirectory;
  root.mode = 0755;
  nodes_.emplace(kRootDirectory, root);
}
NameTable::~NameTable() = default;

template <class Map, class... Value>
void NameTable::put(Map* map, const typename Map::key_type& key, Value&&... value) {
  auto row = std::make_unique<UndoRow<Map>>(map, key);
  UndoRow<Map>& taken = *row;
  undo_.push_back(std::move(row));
  taken.take();
  if constexpr (sizeof...(value) == 0) {
    map->insert(key);
  } else {
    map->emplace(key, std::forward<Value>(value)...);
  }
}

template <class Map>
void NameTable::erase(Map* map, const typename Map::key_type& key) {
  if (!map->contains(key)) return;
  auto row = std::make_unique<UndoRow<Map>>(map, key);
  UndoRow<Map>& taken = *row;
  undo_.push_back(std::move(row));
  taken.take();
}

void NameTable::erase_node(const FileId& id) {
  erase(&nodes_, id);
  for (auto at = users_.lower_bound({id, {}}); at != users_.end() && at->first.first == id;) {
    const auto key = (at++)->first;
    erase(&users_, key);
  }
  for (Pairs* const pairs : {&holders_, &members_}) {
    for (auto at = pairs->lower_bound({id, 0}); at != pairs->end() && at->first == id;) {
      const auto key = *at++;
      erase(pairs, key);
    }
  }
}

void NameTable::put_answer(const RequestKey& from, const DirEntry& entry) {
  const auto known = answers_.find(from.client);
  if (known != answers_.end()) erase(&answered_, known->second.order);
  put(&answers_, from.client, Answered{{from.number, entry}, ++order_});
  put(&answered_, order_, from.client);
  if (answers_.size() <= kClientsMax) return;
  const auto [order, client] = *answered_.begin();
  erase(&answered_, order);
  erase(&answers_, client);
}

Status NameTable::step(NameStep step) {
  switch (step.kind) {
    case StepKind::kEntry:
      put(&entries_, step.key, step.entry);
      break;
    case StepKind::kNoEntry:
      erase(&entries_, step.key);
      break;
    case StepKind::kNode:
      put(&nodes_, step.id, std::move(step.node));
      break;
    case StepKind::kNoNode:
      erase_node(step.id);
      break;
    case StepKind::kUser:
      put(&users_, {step.id, step.name}, std::move(step.value));
      break;
    case StepKind::kNoUser:
      erase(&users_, {step.id, step.name});
      break;
    case StepKind::kHolder:
    case StepKind::kMember:
      put(step.kind == StepKind::kHolder ? &holders_ : &members_, {step.id, step.other});
      break;
    case StepKind::kNoHolder:
    case StepKind::kNoMember:
      erase(step.kind == StepKind::kNoHolder ? &holders_ : &members_, {step.id, step.other});
      break;
    case StepKind::kEnrolled:
      put(&enrolled_, step.id);
      break;
    case StepKind::kNotEnrolled:
      erase(&enrolled_, step.id);
      break;
    case StepKind::kLock:
      put(&locks_, step.key, HeldLock{step.transaction, step.grant});
      break;
    case StepKind::kNoLock:
      erase(&locks_, step.key);
      break;
    case StepKind::kIntent:
      put(&intents_, step.transaction, std::move(step.intent));
      break;
    case StepKind::kNoIntent:
      erase(&intents_, step.transaction);
      break;
    case StepKind::kAnswer:
      put_answer(step.from, step.entry);
      break;
    case StepKind::kCounters:
      drawn_ = std::max(drawn_, step.drawn);
      grants_ = std::max(grants_, step.grants);
      break;
  }
  return {};
}

Status NameTable::apply(Bytes record) {
  const size_t rows = undo_.size();
  changes_.push_back(rows);
  const size_t change = changes_.size() - 1;
  try {
    const Status status = visit_record(record, [this](NameStep&& each) { return step(std::move(each)); });
    if (!status.ok()) undo_to(change);
    return status;
  } catch (...) {
    undo_to(change);
    throw;
  }
}

Status NameTable::replay(Bytes record) {
  SWALE_RETURN_IF_ERROR(apply(record));
  keep(changes_.size());
  return {};
}

void NameTable::keep(size_t count) noexcept {
  const size_t rows = count < changes_.size() ? changes_[count] : undo_.size();
  changes_.erase(changes_.begin(), changes_.begin() + static_cast<ptrdiff_t>(count));
  undo_.erase(undo_.begin(), undo_.begin() + static_cast<ptrdiff_t>(rows));
  for (size_t& each : changes_) each -= rows;
}

void NameTable::undo_to(size_t count) noexcept {
  if (count >= changes_.size()) return;
  while (undo_.size() > changes_[count]) {
    undo_.back()->take_back();
    undo_.pop_back();
  }
  changes_.resize(count);
}

const DirEntry* NameTable::find(const EntryKey& key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() ? &found->second : nullptr;
}

const TreeNode* NameTable::node(const FileId& id) const {
  const auto found = nodes_.find(id);
  return found != nodes_.end() ? &found->second : nullptr;
}

const std::string* NameTable::user(const FileId& id, Bytes name) const {
  const auto found = users_.find({id, std::string(name)});
  return found != users_.end() ? &found->second : nullptr;
}

size_t NameTable::holders(const FileId& id) const {
  size_t count = 0;
  for (auto at = holders_.lower_bound({id, 0}); at != holders_.end() && at->first == id; ++at) ++count;
  return count;
}

std::vector<uint64_t> NameTable::members(const FileId& directory) const {
  std::vector<uint64_t> servers;
  for (auto at = members_.lower_bound({directory, 0}); at != members_.end() && at->first == directory; ++at)
    servers.push_back(at->second);
  return servers;
}

const HeldLock* NameTable::lock(const EntryKey& key) const {
  const auto found = locks_.find(key);
  return found != locks_.end() ? &found->second : nullptr;
}

const LastAnswer* NameTable::answer(uint64_t client) const {
  const auto found = answers_.find(client);
  return found != answers_.end() ? &found->second.last : nullptr;
}

std::pair<NameTable::Users::const_iterator, NameTable::Users::const_iterator> NameTable::users(
    const FileId& id) const {
  const auto begin = users_.lower_bound({id, {}});
  return {begin, std::find_if(begin, users_.end(), [&](const auto& each) { return each.first.first != id; })};
}

bool NameTable::has_entries(const FileId& directory) const {
  EntryKey first;
  first.directory = directory;
  const auto found = entries_.lower_bound(first);
  return found != entries_.end() && found->first.directory == directory;
}

std::vector<FileId> NameTable::held_by(uint64_t client) const {
  std::vector<FileId> files;
  for (const auto& [file, holder] : holders_) {
    if (holder == client) files.push_back(file);
  }
  return files;
}

void NameTable::for_each_record(const std::function<void(Bytes)>& visit) const {
  visit(NameRecord().counters(drawn_, grants_).bytes());
  for (const auto& [key, entry] : entries_) visit(NameRecord().entry(key, entry).bytes());
  for (const auto& [id, node] : nodes_) visit(NameRecord().node(id, node).bytes());
  for (const auto& [key, value] : users_) visit(NameRecord().user(key.first, key.second, value).bytes());
  for (const auto& [id, client] : holders_) visit(NameRecord().pair(StepKind::kHolder, id, client).bytes());
  for (const auto& [id, server] : members_) visit(NameRecord().pair(StepKind::kMember, id, server).bytes());
  for (const FileId& id : enrolled_) visit(NameRecord().enrolled(id).bytes());
  for (const auto& [key, lock] : locks_) visit(NameRecord().lock(key, lock).bytes());
  for (const auto& [id, intent] : intents_) visit(NameRecord().intent(id, intent).bytes());
  for (const auto& [order, client] : answered_) {
    const LastAnswer& last = answers_.at(client).last;
    visit(NameRecord().answer({client, last.number}, last.entry).bytes());
  }
}

}  // namespace swale::meta
