// How a shard hands out work and takes it back: commits, flushes, checkpoints (shard_work.h has the works).
#include <algorithm>
#include <cassert>

#include "base/contain.h"
#include "meta/index/shard_work.h"

namespace swale::meta {

std::unique_ptr<Work> ShardCore::next_commit(store::AppendSync sync) {
  if (groups_.committing() || groups_.empty() || !health_.ok()) return nullptr;
  try {
    auto work =
        std::make_unique<CommitWork>(*shared_.claim, logs_.current(), groups_.open(), groups_.encode(), sync);
    records_.begin_commit(groups_.open_records());
    groups_.begin_commit();
    return work;
  } catch (const std::bad_alloc&) {
    fail(error(Code::kResourceExhausted, Scope::kFile, "shard {}: no memory for the record of group {}",
               shared_.options.shard, groups_.open()));
    return nullptr;
  }
}

// The visible entries leave the write buffer, and what comes later goes to another log. False: not now. What
// throws comes first.
bool ShardCore::freeze() {
  if (layers_.frozen() != nullptr || groups_.committing()) return false;
  std::shared_ptr<LogFile> log = logs_.next();
  std::shared_ptr<Memtable> buffer = layers_.successor();
  logs_.go_on_in(std::move(log), groups_.durable());
  if (buffer == nullptr) return true;
  layers_.freeze(std::move(buffer));
  groups_.moved();
  return true;
}

// About what a checkpoint would write, without the table beside the index.
uint64_t ShardCore::checkpoint_bytes() const {
  constexpr uint64_t kRowBytes = 4;  // of a compressed one
  return logs_.snapshot_bytes() + layers_.active().size() * kRowBytes + layers_.tree_bytes();
}

std::unique_ptr<Work> ShardCore::start_flush() {
  const std::shared_ptr<Memtable>& from = layers_.frozen();
  assert(from != nullptr);
  return std::make_unique<FlushWork>(from,
                                     catalog_.barriers_between(from->sequence_min(), from->sequence_max()),
                                     shared_.options.codec, catalog_.removed_ranges());
}

std::unique_ptr<Work> ShardCore::start_checkpoint(bool all) {
  assert(layers_.frozen() == nullptr);
  const ShardOptions& options = shared_.options;
  catalog_.prune_barriers();
  auto work = std::make_unique<CheckpointWork>(&shared_, &layers_);
  if (options.relocations_retire != 0 && (all || catalog_.relocations().size() >= options.relocations_retire))
    work->retired = catalog_.rules_to_retire(layers_.unmerged(groups_.visible()));
  all |= work->retired > 0 || dues_.merge_all;
  work->removals = catalog_.removals();
  work->dead_rows = all ? catalog_.dead_rows() : 0;
  ShardLayers::Merge merge = layers_.choose_merge(all, work->retired == 0 && catalog_.dead_rows() == 0);
  work->trees = merge.trees;
  work->kept = std::move(merge.kept);
  MergeRequest& request = work->request;
  request.tables = std::move(merge.tables);
  request.removed = catalog_.removed_ranges();
  const auto rules = catalog_.relocations().begin();
  request.rules.assign(rules, rules + static_cast<ptrdiff_t>(work->retired));
  request.barriers = catalog_.barriers();
  request.codec = options.codec;
  request.drop_holes = work->kept.empty();

  ShardManifest& manifest = work->manifest;
  logs_.fill(&manifest);
  manifest.sequence = groups_.visible();
  manifest.attributes = records_.file();
  work->log = logs_.current();  // the work makes it, if no commit has: the manifest promises its header
  work->freed_log_bytes = logs_.freed_bytes();
  if (records_.wants_file() && groups_.records_durable()) {
    const uint32_t number = logs_.take_number();
    work->attributes = records_.encode_file(options.shard, owner_of(job(), number));
    work->tail_bytes = records_.tail().size();
    manifest.attributes = {job(), number, work->attributes.size()};
    if (const ManifestLog& old = records_.file(); old.number != 0)
      work->obsolete.push_back(shared_.path_of(old.job, ShardFileKind::kAttributes, old.number));
  }
  work->next_file = logs_.next_number();
  work->snapshot = catalog_.encode_snapshot(options.shard, owner_of(job(), manifest.snapshot.number),
                                            groups_.visible(), work->retired, groups_.durable(),
                                            work->attributes.empty() ? Bytes(records_.tail()) : Bytes());

  logs_.list_obsolete(&work->obsolete);
  for (const auto& table : merge.taken) {
    for (const auto& set : table->sets) work->obsolete.push_back(static_cast<const SortedFile&>(*set).path());
  }
  return work;
}

// Null: nothing is due, or it waits for the end of a commit.
std::unique_ptr<Work> ShardCore::due_work() {
  if (layers_.frozen() == nullptr && (dues_.freeze || layers_.active().full() || logs_.too_long())) {
    if (logs_.too_long()) dues_.checkpoint = true;
    if (freeze()) dues_.freeze = false;
  }
  if (layers_.frozen() != nullptr) return start_flush();
  if (layers_.tree_bytes() < shared_.options.compression_buffer_bytes && (!dues_.checkpoint || dues_.freeze))
    return nullptr;
  // Trees that were replayed from logs: a checkpoint must not name these logs any more.
  if (logs_.has_earlier() && !freeze()) {
    dues_.freeze = true;
    return nullptr;
  }
  if (layers_.frozen() != nullptr) return start_flush();
  // The file of the table is made of what the table has, which must be durable: its changes wait for that.
  dues_.records_wait = records_.wants_file() && !groups_.records_durable();
  return dues_.records_wait ? nullptr : start_checkpoint(false);
}

std::unique_ptr<Work> ShardCore::next_background() {
  dues_.records_wait = false;
  if (!health_.ok() || !dues_.may_begin()) return nullptr;
  try {
    std::unique_ptr<Work> work = due_work();
    if (work != nullptr) dues_.begin();
    return work;
  } catch (const std::bad_alloc&) {
    // Not at once again: encoding a table costs time.
    static_cast<void>(background_failed(Status::out_of_memory()));
    return nullptr;
  }
}

bool ShardCore::settle() {
  if (!health_.ok() || !dues_.blocked().ok()) return false;
  const uint64_t bytes = layers_.visible_rows() * sizeof(Entry) + layers_.tree_bytes();
  const uint64_t again = logs_.snapshot_bytes() + layers_.rewritten_bytes();
  if (bytes == 0 || bytes < again / 4) return false;
  dues_.settling = true;
  layers_.drop_spare();
  if (layers_.active().visible() != 0) dues_.freeze = true;
  dues_.checkpoint = true;
  return true;
}

// A failure that may pass: the shard has lost nothing, and makes another attempt when the write buffer is
// full again or a put finds no space in memory.
Status ShardCore::background_failed(const Status& why) {
  if (why.code() != Code::kNoSpace && why.code() != Code::kResourceExhausted) {
    fail(why);
    return health_;
  }
  ++shared_.counters.background_failures;
  dues_.block(why);
  return why;
}

Status ShardCore::finish(std::unique_ptr<Work> done) {
  assert(done != nullptr);
  return contain([&] {
    switch (done->kind()) {
      case WorkKind::kCommit:
        return finish_commit(static_cast<CommitWork*>(done.get()));
      case WorkKind::kFlush:
        return finish_flush(static_cast<FlushWork*>(done.get()));
      default:
        return finish_checkpoint(static_cast<CheckpointWork*>(done.get()));
    }
  });
}

Status ShardCore::finish_commit(CommitWork* work) {
  assert(groups_.committing() && work->group() == groups_.in_flight().number);
  groups_.end_commit();
  if (!work->status().ok()) {
    const Status why = work->status().with_context("the log could not be written");
    if (work->taken_back()) {
      groups_.give_up();
      records_.take_back();
      return why;
    }
    take_back_records();
    fail(why);
    return health_;
  }
  const Group& group = groups_.in_flight();
  const Status applied = contain([&] {
    apply(group);
    layers_.active().show_until(group.entries_end);
  });
  records_.durable(group.records);
  if (!applied.ok()) {
    fail(applied);
    unreadable_ = health_;
    return health_;
  }
  ShardCounters& counters = shared_.counters;
  ++counters.groups;
  counters.log_syncs += shared_.options.sync_log && work->synced() ? 1 : 0;
  counters.log_bytes += work->bytes();
  logs_.wrote(work->bytes(), work->synced());
  if (work->synced()) synced_group_ = group.number;
  groups_.drop_in_flight();
  if (!health_.ok())
    take_back_records();  // background work has failed meanwhile: no commit comes after this one
  if (records_.wants_checkpoint(checkpoint_bytes())) {
    dues_.want_checkpoint();
    dues_.retry();
  }
  if (const std::vector<uint32_t> numbers = catalog_.renumber(); !numbers.empty()) groups_.renumber(numbers);
  if (layers_.active().full()) dues_.retry();
  // At once, because another commit may be under way whenever background work is asked for.
  if ((dues_.freeze || layers_.active().visible() >= shared_.options.write_buffer_entries) &&
      layers_.frozen() == nullptr)
    static_cast<void>(contain([this] { dues_.freeze &= !freeze(); }));  // else next_background does it
  return {};
}

Status ShardCore::finish_flush(FlushWork* work) {
  dues_.end();
  if (!work->status().ok()) return background_failed(work->status());
  const Status kept = contain([&] { layers_.flushed(work->table(), !dues_.settling); });
  if (!kept.ok()) return background_failed(kept);
  dues_.unblock();
  catalog_.rows_dropped(work->dropped());
  shared_.counters.rows_dropped += work->dropped();
  ++shared_.counters.flushes;
  shared_.counters.flushed_bytes += work->table()->stored_bytes();
  return {};
}

// After what can throw, all of it changes.
Status ShardCore::finish_checkpoint(CheckpointWork* work) {
  dues_.end();
  logs_.numbers_taken_until(work->next_file);
  if (!work->status().ok()) {
    const Status why = work->status().with_context("a checkpoint failed");
    if (work->log->usable()) return background_failed(why);
    fail(why);  // of the log that it could not make: no commit can follow
    return health_;
  }
  if (work->merged && !work->merged->sets.empty()) {
    const Status kept = contain([&] { work->kept.insert(work->kept.begin(), work->merged); });
    if (!kept.ok()) {
      fail(kept);  // the manifest has it, and so has the next job
      return health_;
    }
  }
  dues_.unblock();
  layers_.merged(work->trees, std::move(work->kept));
  catalog_.retire(work->retired);
  logs_.checkpointed(work->manifest, work->snapshot.size(), work->freed_log_bytes);
  if (!work->attributes.empty())
    records_.filed(work->manifest.attributes, work->tail_bytes, groups_.committing());
  records_.checkpointed();
  dues_.checkpoint = dues_.merge_all = false;
  catalog_.removals_kept(work->removals);
  // Counts of rows are of what was put, and rows that another one covers are gone: a merge of all has all.
  catalog_.rows_dropped(std::max(work->dead_rows, work->counters.dropped));
  ShardCounters& counters = shared_.counters;
  counters.rows_dropped += work->counters.dropped;
  ++counters.checkpoints;
  counters.checkpoint_bytes += work->snapshot.size();
  if (work->merged) {
    ++counters.merges;
    counters.merged_bytes += work->merged_bytes;
    counters.blocks_merged += work->counters.blocks_decoded;
    counters.blocks_copied += work->counters.blocks_copied;
  }
  return {};
}

Status ShardCore::commit() {
  if (std::unique_ptr<Work> work = next_commit()) {
    work->run();
    SWALE_RETURN_IF_ERROR(finish(std::move(work)));
  }
  return health_;
}

Status ShardCore::tidy() {
  constexpr uint64_t kRemovalsKept = 256;  // 25 KB of the log
  SWALE_RETURN_IF_ERROR(commit());
  dues_.merge_all |= catalog_.dead_rows() >= kRemovalsKept && catalog_.dead_rows() > layers_.rows() / 2;
  if (catalog_.removals() < kRemovalsKept && !dues_.merge_all) return {};
  return merge(dues_.merge_all);
}

Status ShardCore::drain() {
  SWALE_RETURN_IF_ERROR(commit());
  return merge(true);
}

// Everything goes to sorted files, and the log is empty after it. `all`: into one table.
Status ShardCore::merge(bool all) {
  assert(!groups_.committing() && !dues_.running());
  const auto run = [this](std::unique_ptr<Work> work) {
    dues_.begin();
    work->run();
    return finish(std::move(work));
  };
  return contain([&]() -> Status {
    for (int buffers = 0; buffers < 2; ++buffers) {
      layers_.drop_spare();  // else the next buffer would keep the memory of an older one
      freeze();
      if (layers_.frozen() != nullptr) SWALE_RETURN_IF_ERROR(run(start_flush()));
    }
    layers_.drop_spare();
    return run(start_checkpoint(all));
  });
}

}  // namespace swale::meta
