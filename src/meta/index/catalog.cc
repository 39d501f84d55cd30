#include "meta/index/catalog.h"

#include <algorithm>
#include <cassert>
#include <new>

#include "meta/index/relocation.h"

namespace swale::meta {
namespace {

constexpr size_t kNumbersMin = 1024;  // of files: fewer are not worth renumbering

}  // namespace

uint32_t Catalog::number_of(const FileId& file) {
  const uint32_t number = files_.index_of(file);
  if (number >= states_.size()) {
    try {
      states_.resize(number + 1);
    } catch (const std::bad_alloc&) {
      files_.free(number);  // no number without a state
      throw;
    }
  }
  states_[number].free = false;
  return number;
}

FileSize Catalog::size(const FileId& file) const {
  const uint32_t number = find(file);
  if (number == FileTable::kNone) return {};
  const FileState& state = states_[number];
  return {state.known, state.generation, state.known ? state.size : 0};
}

void Catalog::list_files(const FileId* after, size_t files_max, std::vector<FileId>* out) const {
  std::vector<FileId> ids;
  for (uint32_t i = 0; i < states_.size(); ++i) {
    if (states_[i].known && (after == nullptr || files_.id(i) > *after)) ids.push_back(files_.id(i));
  }
  const size_t count = std::min(files_max, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count), ids.end());
  out->insert(out->end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count));
}

Status Catalog::check_alive(const FileId& file) const {
  const uint32_t number = find(file);
  const bool removing = number != FileTable::kNone && states_[number].removing;
  return removing ? was_removed(file) : check_there(file);
}

Status Catalog::check_files(std::span<const Put> puts) const {
  if (files_.files() + puts.size() <= options_.files_max) return {};
  size_t unknown = 0;
  for (const Put& put : puts) unknown += files_.find(put.file) == FileTable::kNone ? 1 : 0;
  if (files_.files() + unknown <= options_.files_max) return {};
  return error(Code::kResourceExhausted, Scope::kOperation,
               "shard {}: {} files are the limit: use more servers", options_.shard, options_.files_max);
}

// Layers are looked at as they are now: a group that is not durable yet may still add to them, so the bound
// on layers may be passed by as many as a group has. That costs time, not truth.
bool Catalog::fits(uint32_t number, const Run& run) const {
  if (runs_ >= options_.runs_max) return false;
  const RunLayers* const runs = states_[number].runs.get();
  return runs == nullptr || runs->fits(run, options_.layers_max);
}

// True: a checkpoint should retire rules.
bool Catalog::apply_operation(const StagedOperation& operation) {
  if (operation.kind == LogOperation::kRelocate) {
    relocations_.push_back({operation.relocation, operation.sequence});
    barriers_.push_back(operation.sequence);
    return options_.relocations_retire != 0 && relocations_.size() % options_.relocations_retire == 0;
  }
  assert(operation.file < states_.size());
  FileState& state = states_[operation.file];
  if (operation.kind == LogOperation::kRun) {
    if (!state.runs) state.runs = std::make_unique<RunLayers>();
    const Sequence moved = relocations_.empty() ? 0 : relocations_.back().sequence;
    state.runs->insert(operation.run, operation.sequence, std::max(state.irregular_max, moved));
    state.known = true;
    state.size = std::max(state.size, end_of(operation.run));
    barriers_.push_back(operation.sequence);
    ++runs_;
    return false;
  }
  if (operation.kind == LogOperation::kRemove) {
    apply_removal(operation);
    return false;
  }
  if (operation.generation <= state.generation) return false;
  if (state.runs) {
    runs_ -= std::min(runs_, state.runs->runs());
    state.runs->truncate(operation.size);
    runs_ += state.runs->runs();
    if (state.runs->empty()) state.runs.reset();
  }
  state.generation = operation.generation;
  state.size = operation.size;
  state.known = true;
  return false;
}

// No hole is needed: nothing asks for the id any more, and flushes and merges leave its rows out.
void Catalog::apply_removal(const StagedOperation& operation) {
  removed_.add(files_.id(operation.file));
  FileState& state = states_[operation.file];
  if (state.runs) runs_ -= std::min(runs_, state.runs->runs());
  dead_rows_ += state.rows;
  state = FileState();
  state.free = true;
  files_.free(operation.file);
  ++removals_;
}

Catalog::Applied Catalog::apply(const Group& group) {
  Applied applied;
  size_t done = 0;
  std::vector<StagedFile> files = group.files;
  std::sort(files.begin(), files.end(),
            [](const StagedFile& a, const StagedFile& b) { return a.first < b.first; });
  for (const StagedFile& noted : files) {
    states_[noted.file].irregular_max = std::max(states_[noted.file].irregular_max, noted.last);
    states_[noted.file].rows += noted.rows;
  }
  const auto apply_files_before = [&](Sequence sequence) {
    for (; done < files.size() && files[done].first < sequence; ++done) {
      if (files[done].end == 0) continue;
      FileState& state = states_[files[done].file];
      state.known = true;
      state.size = std::max(state.size, files[done].end);
    }
  };
  for (const StagedOperation& operation : group.operations) {
    if (operation.kind == LogOperation::kTruncate || operation.kind == LogOperation::kRemove)
      apply_files_before(operation.sequence);
    applied.removed |= operation.kind == LogOperation::kRemove;
    applied.rules_due |= apply_operation(operation);
  }
  apply_files_before(~Sequence{0});
  for (const RequestKey& key : group.requests) clients_[key.client].mark(key.number);
  return applied;
}

std::vector<uint32_t> Catalog::renumber() noexcept {
  if (files_.size() < kNumbersMin || files_.files() > files_.size() / 4) return {};
  try {
    FileTable files;
    std::vector<FileState> states(files_.files());
    std::vector<uint32_t> numbers(files_.size(), FileTable::kNone);
    for (uint32_t i = 0; i < states_.size(); ++i) {
      if (!states_[i].free) numbers[i] = files.index_of(files_.id(i));
    }
    if (files.size() != states.size()) return {};  // some have a number and no state yet
    for (uint32_t i = 0; i < states_.size(); ++i) {
      if (numbers[i] != FileTable::kNone) states[numbers[i]] = std::move(states_[i]);
    }
    std::swap(files_, files);
    states_.swap(states);
    return numbers;
  } catch (const std::bad_alloc&) {
    return {};
  }
}

void Catalog::prune_barriers() {
  std::vector<Sequence> alive;
  runs_ = 0;
  for (const FileState& state : states_) {
    if (!state.runs) continue;
    state.runs->for_each([&](const Run&, Sequence sequence) {
      ++runs_;
      alive.push_back(sequence);
    });
  }
  for (const SequencedRelocation& relocation : relocations_) alive.push_back(relocation.sequence);
  std::sort(alive.begin(), alive.end());
  alive.erase(std::unique(alive.begin(), alive.end()), alive.end());
  barriers_.swap(alive);
}

std::vector<Sequence> Catalog::barriers_between(Sequence first, Sequence last) const {
  const auto begin = std::lower_bound(barriers_.begin(), barriers_.end(), first);
  const auto end = std::upper_bound(begin, barriers_.end(), last);
  return {begin, end};
}

size_t Catalog::rules_to_retire(Sequence unmerged) const {
  const auto newer = std::find_if(relocations_.begin(), relocations_.end(),
                                  [&](const SequencedRelocation& each) { return each.sequence >= unmerged; });
  auto count = static_cast<size_t>(newer - relocations_.begin());
  for (const FileState& state : states_) {
    if (count == 0) break;
    if (!state.runs) continue;
    state.runs->for_each([&](const Run& run, Sequence sequence) {
      Place unused;
      count = rules_for_whole(std::span(relocations_).first(count), run, sequence, &unused);
    });
  }
  return count;
}

void Catalog::retire(size_t rules) {
  assert(rules <= relocations_.size());
  const auto retired = relocations_.begin() + static_cast<ptrdiff_t>(rules);
  for (const FileState& state : states_) {
    if (state.runs && rules > 0) state.runs->relocate({relocations_.begin(), retired});
  }
  relocations_.erase(relocations_.begin(), retired);
}

std::string Catalog::encode_snapshot(uint32_t shard, uint64_t owner, Sequence sequence, size_t retired,
                                     uint64_t group, Bytes tail) const {
  SnapshotBuilder builder(shard, owner, sequence);
  for (uint32_t i = 0; i < states_.size(); ++i) {
    const FileState& state = states_[i];
    if (state.free) continue;
    SnapshotFile file{files_.id(i), state.known, state.generation, state.size, state.irregular_max,
                      state.rows,   {}};
    if (state.runs) {
      state.runs->for_each([&](const Run& run, Sequence of_run) {
        StoredRun& stored = file.runs.emplace_back(run, of_run);
        rules_for_whole(std::span(relocations_).first(retired), run, of_run, &stored.run.place);
      });
      std::stable_sort(file.runs.begin(), file.runs.end(),
                       [](const StoredRun& a, const StoredRun& b) { return a.sequence < b.sequence; });
    }
    builder.add(file);
  }
  for (const SequencedRelocation& relocation : std::span(relocations_).subspan(retired))
    builder.add(relocation);
  builder.add_records(group, tail);
  for (const auto& [client, window] : clients_) builder.add(SnapshotClient{client, window});
  for (const RemovedRange& range : removed_.list()) builder.add(range);
  return builder.finish();
}

void Catalog::removals_kept(uint64_t removals) {
  assert(removals <= removals_);
  removals_ -= removals;
}

Status Catalog::restore(const SnapshotFile& file) {
  FileState& state = states_[number_of(file.id)];
  state.known = file.known;
  state.generation = file.generation;
  state.size = file.size;
  state.irregular_max = file.irregular_max;
  state.rows = file.rows;
  Sequence before = 0;
  for (const StoredRun& stored : file.runs) {
    if (stored.sequence < before)
      return corruption("file {:016x}{:016x}: runs are out of order", file.id.high, file.id.low);
    before = stored.sequence;
    if (!state.runs) state.runs = std::make_unique<RunLayers>();
    state.runs->insert(stored.run, stored.sequence, ~Sequence{0});
    ++runs_;
  }
  return {};
}

void Catalog::restored(uint64_t rows) {
  prune_barriers();
  dead_rows_ = rows;  // what belongs to no file of the snapshot
  for (const FileState& state : states_) rows_dropped(state.rows);
}

void Catalog::describe(ShardState* state) const {
  state->files = files_.files();
  state->removed_ranges = removed_.ranges();
  state->relocations = relocations_.size();
  for (const FileState& file : states_) {
    if (!file.runs) continue;
    state->runs += file.runs->runs();
    state->run_layers_max = std::max<uint64_t>(state->run_layers_max, file.runs->layers());
    state->index_memory_bytes += file.runs->memory_bytes();
  }
  state->index_memory_bytes += files_.memory_bytes() + states_.capacity() * sizeof(FileState) +
                               barriers_.capacity() * sizeof(Sequence) + clients_.size() * 48 +
                               removed_.ranges() * 72;
}

bool Catalog::consistent() const {
  if (!std::is_sorted(barriers_.begin(), barriers_.end())) return false;
  const auto stopped = [&](Sequence sequence) {
    return std::binary_search(barriers_.begin(), barriers_.end(), sequence);
  };
  Sequence before = 0;
  for (const SequencedRelocation& rule : relocations_) {
    if (rule.sequence <= before || !stopped(rule.sequence)) return false;
    before = rule.sequence;
  }
  size_t numbered = 0;
  for (uint32_t i = 0; i < states_.size(); ++i) {
    const FileState& state = states_[i];
    if (state.free && (state.known || state.removing || state.runs)) return false;
    if (state.free) continue;
    if (files_.find(files_.id(i)) != i || removed_.contains(files_.id(i))) return false;
    ++numbered;
    bool all = true;
    if (state.runs) state.runs->for_each([&](const Run&, Sequence sequence) { all &= stopped(sequence); });
    if (!all) return false;
  }
  return numbered == files_.files();
}

}  // namespace swale::meta
