// Groups: the group that requests join, and the one that is being committed.
//
//   put, truncate, remove, relocate, add_record -> open -> in flight (begin_commit) -> applied, or given up
//
// Threads: the shard's.
// Invariants: (1) Numbers of groups have no gaps: durable() + 1 is in flight or open. (2) Rows of the active
// buffer that are not visible are those of the two groups, in their order. (3) Sequences ascend without a
// gap; visible() is the first one that is not durable. (4) A request is among the staged ones until its group
// ends.
// Errors: a call that answers an error, or throws, has done nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "meta/index/catalog.h"
#include "meta/index/group.h"
#include "meta/index/layers.h"
#include "meta/index/shard_shared.h"

namespace swale::meta {

class Groups {
 public:
  Groups(ShardShared* shared, Catalog* catalog, ShardLayers* layers)
      : shared_(*shared), catalog_(*catalog), layers_(*layers) {
    open_.number = 1;
  }

  // Recovery: before the logs are read, and after them.
  void restore(uint64_t durable, Sequence visible);
  Status start();

  // Requests that are not duplicates. Each returns the group that it waits for.
  bool staged(const RequestKey& key) const { return staged_requests_.contains({key.client, key.number}); }
  Result<uint64_t> put(const RequestKey& key, std::span<const Put> puts);
  Result<uint64_t> truncate(const RequestKey& key, const FileId& id, uint64_t size, uint64_t generation);
  Result<uint64_t> remove(const RequestKey& key, const FileId& id, uint64_t generation);
  Result<uint64_t> relocate(const RequestKey& key, const Relocation& relocation);
  uint64_t add_record(Bytes record);  // of the table beside the index

  uint64_t open() const { return open_.number; }
  const std::string& open_records() const { return open_.records; }
  uint64_t durable() const { return durable_group_; }
  Sequence next_sequence() const { return next_sequence_; }
  Sequence visible() const { return visible_sequence_; }
  // What a request waits for that has joined none: what it repeats may be in any group that is not durable.
  uint64_t last() const {
    return !open_.empty() ? open_.number : committing_ ? in_flight_.number : durable_group_;
  }
  bool empty() const { return open_.empty(); }
  bool committing() const { return committing_; }
  const Group& in_flight() const { return in_flight_; }
  bool records_durable() const {
    return open_.records.empty() && (!committing_ || in_flight_.records.empty());
  }

  // A commit: the record of the open group; then that group is in flight; then it has ended.
  std::string encode();
  void begin_commit();
  void end_commit() { committing_ = false; }
  void applied(const Group& group);  // it is durable and visible
  void drop_in_flight() { in_flight_ = Group(); }
  void records_taken_back() noexcept { records_group_ = durable_group_; }
  // No group after the durable one exists any more. Allocates nothing.
  void give_up();

  // The active buffer is another one, which has the rows of the open group alone.
  void moved();
  void renumber(const std::vector<uint32_t>& numbers);

  bool consistent() const;  // the invariants

 private:
  struct KeyHash {
    size_t operator()(const std::pair<uint64_t, uint64_t>& key) const {
      return key.first * 0x9e3779b97f4a7c15 ^ key.second;
    }
  };
  // What a request that fails half way takes back.
  struct Before {
    size_t entries, operations, files, requests;
    Sequence sequence;
  };
  Before before() const;
  void take_back(const Before& before);
  // stage() and the note of the request happen, or nothing.
  template <class Stage>
  Status join(const RequestKey& key, const Stage& stage);

  Status check(std::span<const Put> puts) const;
  uint64_t open_rows() const { return layers_.active().size() - open_.entries_begin; }
  void stage(const Put& put, StagedFile* mark);
  void stage_extents(uint32_t local, std::span<const Extent> extents, StagedFile* mark);
  void stage_run(uint32_t local, const Run& run, StagedFile* mark);
  void stage_expanded(uint32_t local, const Run& run, StagedFile* mark);
  bool keep_as_run(uint32_t file, const Run& run) const;
  void stage_operation(StagedOperation operation);
  uint64_t newest_generation(uint32_t file) const;
  void reserve_marks(size_t count);
  void note_file(const StagedFile& mark);
  void open_group(uint64_t number);

  ShardShared& shared_;
  Catalog& catalog_;
  ShardLayers& layers_;
  Sequence next_sequence_ = 1;
  Sequence visible_sequence_ = 1;
  uint64_t durable_group_ = 0;
  Group open_, in_flight_;
  bool committing_ = false;
  uint64_t records_group_ = 0;  // the last one that has a record of the table beside the index
  std::unordered_set<std::pair<uint64_t, uint64_t>, KeyHash> staged_requests_;
  std::unique_ptr<BlockEncoder> encoder_;
  std::vector<StagedFile> marks_;  // of the put that is being staged
};

}  // namespace swale::meta
