// NameTable: one server's part of the tree: entries that hash to it, nodes that it has drawn, and what it has
// promised to other servers. A passive table: a record (name_record.h) goes in and changes it.
//
// A change in operation and in recovery is the same call with the same bytes, so the table is a function of
// its records. The shard's log keeps them (LoggedTable): torn tails, damage and checkpoints are its matter.
//
// Invariants: (1) a record is applied whole or not at all; (2) undo() needs no memory; (3) counters never go
//   back, so that no id is drawn twice, also when its record is lost.
// Threads: none; the owner serialises calls. Errors: apply and replay: kCorruption names the byte of the
// record; std::bad_alloc: the table is as it was.
// Limits: the answers of the last kClientsMax clients are known; each has one change under way.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "meta/names/name_record.h"

namespace swale::meta {

class NameTable final : public LoggedTable {
 public:
  static constexpr size_t kClientsMax = 1 << 16;

  // Server 0 has the root directory from the start.
  explicit NameTable(uint32_t server);
  ~NameTable() override;

  // One change, which may be taken back until it is kept.
  Status apply(Bytes record);

  const DirEntry* find(const EntryKey& key) const;
  const TreeNode* node(const FileId& id) const;
  const std::string* user(const FileId& id, Bytes name) const;
  bool has(const FileId& id, uint64_t holder) const { return holders_.contains({id, holder}); }
  bool held(const FileId& id) const { return holders(id) > 0; }
  size_t holders(const FileId& id) const;
  bool member(const FileId& directory, uint64_t server) const {
    return members_.contains({directory, server});
  }
  std::vector<uint64_t> members(const FileId& directory) const;
  bool enrolled(const FileId& directory) const { return enrolled_.contains(directory); }
  const HeldLock* lock(const EntryKey& key) const;
  const LastAnswer* answer(uint64_t client) const;
  // Names and values of a file's user attributes, in order of the names.
  using Users = std::map<std::pair<FileId, std::string>, std::string>;
  std::pair<Users::const_iterator, Users::const_iterator> users(const FileId& id) const;
  // Whether an entry of the directory stands here. The first one after `after`, which need not be there.
  bool has_entries(const FileId& directory) const;
  using Entries = std::map<EntryKey, DirEntry>;
  Entries::const_iterator after(const EntryKey& after) const { return entries_.upper_bound(after); }

  uint64_t drawn() const { return drawn_; }
  uint64_t grants() const { return grants_; }
  uint32_t server() const { return server_; }
  const Entries& entries() const { return entries_; }
  const std::map<FileId, TreeNode>& nodes() const { return nodes_; }
  const std::map<EntryKey, HeldLock>& locks() const { return locks_; }
  const std::map<Transaction, Intent>& intents() const { return intents_; }
  // Files that `client` holds.
  std::vector<FileId> held_by(uint64_t client) const;

  Status replay(Bytes record) override;
  void for_each_record(const std::function<void(Bytes)>& visit) const override;
  size_t changes() const override { return changes_.size(); }
  void keep(size_t count) noexcept override;
  void undo() noexcept override { undo_to(0); }
  void undo_to(size_t count) noexcept;

 private:
  class Undo;
  template <class Map>
  class UndoRow;
  using Pairs = std::set<std::pair<FileId, uint64_t>>;

  Status step(NameStep step);
  template <class Map, class... Value>
  void put(Map* map, const typename Map::key_type& key, Value&&... value);
  template <class Map>
  void erase(Map* map, const typename Map::key_type& key);
  void erase_node(const FileId& id);
  void put_answer(const RequestKey& from, const DirEntry& entry);

  const uint32_t server_;
  Entries entries_;
  std::map<FileId, TreeNode> nodes_;
  Users users_;
  Pairs holders_, members_;
  std::set<FileId> enrolled_;
  std::map<EntryKey, HeldLock> locks_;
  std::map<Transaction, Intent> intents_;
  struct Answered {
    LastAnswer last;
    uint64_t order = 0;
  };
  std::map<uint64_t, Answered> answers_;   // by client
  std::map<uint64_t, uint64_t> answered_;  // order -> client
  uint64_t order_ = 0;
  uint64_t drawn_ = kRootDirectory.low;
  uint64_t grants_ = 0;
  std::vector<std::unique_ptr<Undo>> undo_;  // of rows, oldest first
  std::deque<size_t> changes_;               // how many rows each change has
};

}  // namespace swale::meta
