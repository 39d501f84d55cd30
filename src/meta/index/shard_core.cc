#include "meta/index/shard_core.h"

#include <algorithm>
#include <cassert>

namespace swale::meta {
namespace {

constexpr uint64_t kRemovalsMax = 8192;   // in the log, 100 bytes each, before a checkpoint cuts it
constexpr uint64_t kDeadRowsMin = 16384;  // fewer are no reason to merge everything

}  // namespace

Result<bool> ShardCore::admit(const RequestKey& key) {
  assert(shared_.claim && logs_.current() != nullptr);  // recovered
  if (!health_.ok()) return health_;
  if (key.client != 0 && (catalog_.done(key) || groups_.staged(key))) {
    ++shared_.counters.duplicates;
    return false;
  }
  if (accepts()) return true;
  // Nobody could say when there will be space: the caller tries again.
  if (!dues_.blocked().ok() && !dues_.running()) {
    dues_.retry();
    return dues_.blocked();
  }
  return error(Code::kBusy, Scope::kOperation,
               "shard {}: both write buffers are full: finish background work before the next put",
               shared_.options.shard);
}

Result<uint64_t> ShardCore::put(RequestKey key, std::span<const Put> puts) {
  SWALE_ASSIGN_OR_RETURN(const bool fresh, admit(key));
  if (!fresh) return groups_.last();
  dues_.settling = false;
  return groups_.put(key, puts);
}

Result<uint64_t> ShardCore::truncate(RequestKey key, const FileId& id, uint64_t size, uint64_t generation) {
  SWALE_ASSIGN_OR_RETURN(const bool fresh, admit(key));
  return fresh ? groups_.truncate(key, id, size, generation) : groups_.last();
}

Result<uint64_t> ShardCore::remove(RequestKey key, const FileId& id, uint64_t generation) {
  SWALE_ASSIGN_OR_RETURN(const bool fresh, admit(key));
  return fresh ? groups_.remove(key, id, generation) : groups_.last();
}

Result<uint64_t> ShardCore::relocate(RequestKey key, const Relocation& relocation) {
  SWALE_ASSIGN_OR_RETURN(const bool fresh, admit(key));
  return fresh ? groups_.relocate(key, relocation) : groups_.last();
}

uint64_t ShardCore::add_record(Bytes record) {
  assert(shared_.options.table != nullptr || record.empty());
  return groups_.add_record(record);
}

bool ShardCore::accepts_records() const {
  constexpr uint64_t kRecordsBytesMax = 4 * kMiB;  // of a group (meta/server/server_memory.cc counts with it)
  return !dues_.records_wait &&
         groups_.open_records().size() < std::min(kRecordsBytesMax, shared_.options.group_bytes_max);
}

// Allocates nothing that it cannot do without, as all that makes a Status.
void ShardCore::fail(const Status& why) {
  assert(!why.ok());
  if (!health_.ok()) return;
  health_ = why.with_context("the shard is read-only");
  // What the commit under way covers is settled when that ends (finish_commit).
  if (!groups_.committing()) take_back_records();
}

// The table is as of the durable group.
void ShardCore::take_back_records() noexcept {
  records_.take_back();
  groups_.records_taken_back();
}

// The group is durable: all of it becomes visible.
void ShardCore::apply(const Group& group) {
  const Catalog::Applied applied = catalog_.apply(group);
  groups_.applied(group);
  if (applied.rules_due) dues_.want_checkpoint();
  if (applied.removed) want_space_back();
}

// What is rewritten for it is at most what was put and removed since the last time, or what a checkpoint
// takes anyway.
void ShardCore::want_space_back() {
  dues_.merge_all |= catalog_.dead_rows() >= kDeadRowsMin && catalog_.dead_rows() > layers_.rows() / 2;
  if (catalog_.removals() >= kRemovalsMax || dues_.merge_all) dues_.want_checkpoint();
}

ShardState ShardCore::state() const {
  ShardState state;
  state.sequence = groups_.next_sequence();
  catalog_.describe(&state);
  layers_.describe(&state);
  state.log_bytes = logs_.bytes();
  state.snapshot_bytes = logs_.snapshot_bytes();
  state.table_file_bytes = records_.file().bytes;
  state.table_tail_bytes = records_.tail().size();
  state.buffer_memory_bytes += records_.memory_bytes();
  return state;
}

bool ShardCore::consistent() const {
  return !health_.ok() ||
         (catalog_.consistent() && layers_.consistent() && groups_.consistent() && logs_.consistent());
}

}  // namespace swale::meta
