#include "meta/index/groups.h"

#include <algorithm>
#include <cassert>
#include <new>

#include "meta/index/table_records.h"

namespace swale::meta {
namespace {

constexpr size_t kFilesOfAGroup = 64;  // how far back a file is looked for before it is noted again

uint64_t extents_end(std::span<const Extent> extents) {
  uint64_t end = 0;
  for (const Extent& extent : extents) end = std::max(end, extent.offset + extent.length);
  return end;
}

void extend(StagedFile* mark, uint64_t end, Sequence first, Sequence last, uint64_t rows) {
  mark->end = std::max(mark->end, end);
  mark->rows += rows;
  if (mark->last == 0) mark->first = first;
  mark->last = last;
}

}  // namespace

void Groups::restore(uint64_t durable, Sequence visible) {
  durable_group_ = durable;
  visible_sequence_ = visible;
}

Status Groups::start() {
  SWALE_ASSIGN_OR_RETURN(encoder_, BlockEncoder::create(BlockCodec::kFrame));
  next_sequence_ = visible_sequence_;
  open_group(durable_group_ + 1);
  return {};
}

void Groups::open_group(uint64_t number) {
  open_ = Group();
  open_.number = number;
  open_.entries_begin = open_.entries_end = layers_.active().size();
  open_.sequence_end = next_sequence_;
}

// ---- requests

Groups::Before Groups::before() const {
  return {layers_.active().size(), open_.operations.size(), open_.files.size(), open_.requests.size(),
          next_sequence_};
}

// Vectors that become shorter allocate nothing.
void Groups::take_back(const Before& before) {
  layers_.active().shrink(before.entries);
  open_.operations.resize(before.operations);
  open_.files.resize(before.files);
  open_.requests.resize(before.requests);
  next_sequence_ = before.sequence;
}

template <class Stage>
Status Groups::join(const RequestKey& key, const Stage& stage) {
  assert(encoder_ != nullptr && !staged(key));
  const Before was = before();
  try {
    stage();
    if (key.client != 0) {
      open_.requests.push_back(key);
      staged_requests_.emplace(key.client, key.number);  // last: it throws, or all is done
    }
  } catch (const std::bad_alloc&) {
    take_back(was);
    return Status::out_of_memory();
  }
  open_.entries_end = layers_.active().size();
  open_.sequence_end = next_sequence_;
  return {};
}

Status Groups::check(std::span<const Put> puts) const {
  uint64_t extents = 0;
  for (const Put& put : puts) {
    extents += put.extents.size();
    // Without branches: all but never is one wrong.
    bool wrong = false;
    for (const Extent& extent : put.extents) {
      wrong |= extent.length - 1 >= kOffsetEnd || extent.offset > kOffsetEnd - extent.length ||
               extent.place.log == kHoleLog;
    }
    if (wrong)
      return invalid_argument("file {:016x}{:016x}: an extent is empty, ends beyond 2^63 or has no log",
                              put.file.high, put.file.low);
    for (const Run& run : put.runs) {
      if (!valid(run) || run.place.log == kHoleLog)
        return invalid_argument("file {:016x}{:016x}: the run at offset {} is not valid", put.file.high,
                                put.file.low, run.offset);
    }
    if (!put.run_at.empty() &&
        (put.run_at.size() != put.runs.size() || !std::is_sorted(put.run_at.begin(), put.run_at.end()) ||
         put.run_at.back() > put.extents.size()))
      return invalid_argument("file {:016x}{:016x}: run_at names extents that are not there", put.file.high,
                              put.file.low);
  }
  if ((open_rows() + extents) * sizeof(Entry) > shared_.options.group_bytes_max && !open_.empty())
    return error(Code::kBusy, Scope::kOperation,
                 "the open group has {} bytes already: commit it before the next put",
                 open_rows() * sizeof(Entry));
  return {};
}

// Space for `count` calls of note_file.
void Groups::reserve_marks(size_t count) {
  const size_t wanted = open_.files.size() + count;
  if (wanted > open_.files.capacity()) open_.files.reserve(std::max(wanted, 2 * open_.files.capacity()));
}

void Groups::note_file(const StagedFile& mark) {
  const size_t known = open_.files.size();
  for (size_t i = known; i-- > open_.files_begin && known - i <= kFilesOfAGroup;) {
    StagedFile& noted = open_.files[i];
    if (noted.file != mark.file) continue;
    noted.end = std::max(noted.end, mark.end);
    noted.last = mark.last;
    noted.rows += mark.rows;
    return;
  }
  assert(known < open_.files.capacity());  // reserve_marks: nothing is allocated here
  open_.files.push_back(mark);
}

void Groups::stage_operation(StagedOperation operation) {
  operation.sequence = next_sequence_;
  open_.operations.push_back(operation);
  ++next_sequence_;
}

void Groups::stage_extents(uint32_t local, std::span<const Extent> extents, StagedFile* mark) {
  if (extents.empty()) return;
  layers_.active().append(extents, local, next_sequence_);
  extend(mark, extents_end(extents), next_sequence_, next_sequence_ + extents.size() - 1, extents.size());
  next_sequence_ += extents.size();
  shared_.counters.extents += extents.size();
}

void Groups::stage_expanded(uint32_t local, const Run& run, StagedFile* mark) {
  const uint64_t blocks = blocks_of(run);
  for (uint64_t i = 0; i < blocks; ++i) {
    const Extent block = block_at(run, i);
    layers_.active().append(
        {block.offset, block.length, block.place.address, next_sequence_, block.place.log, local});
  }
  extend(mark, end_of(run), next_sequence_, next_sequence_, blocks);
  ++next_sequence_;
  ++shared_.counters.runs_expanded;
}

bool Groups::keep_as_run(uint32_t file, const Run& run) const {
  if (run.levels == 0) return false;
  const ShardOptions& options = shared_.options;
  const uint64_t blocks = blocks_of(run);
  if (blocks > options.expand_blocks_max) return true;
  // Lattices upon lattices: what a group may become in memory is bounded, whatever the bound on layers says.
  if ((open_rows() + blocks) * sizeof(Entry) > options.group_bytes_max) return true;
  return options.keep_runs && blocks >= options.run_blocks_min && catalog_.fits(file, run);
}

void Groups::stage_run(uint32_t local, const Run& run, StagedFile* mark) {
  if (!keep_as_run(mark->file, run)) {
    stage_expanded(local, run, mark);
    return;
  }
  StagedOperation operation;
  operation.kind = LogOperation::kRun;
  operation.file = mark->file;
  operation.run = run;
  stage_operation(operation);
  ++shared_.counters.runs;
}

void Groups::stage(const Put& put, StagedFile* mark) {
  mark->file = catalog_.number_of(put.file);
  const uint32_t local = layers_.active().files().index_of(put.file);
  size_t done = 0;
  for (size_t i = 0; i < put.runs.size(); ++i) {
    const size_t until = put.run_at.empty() ? put.extents.size() : put.run_at[i];
    stage_extents(local, put.extents.subspan(done, until - done), mark);
    done = until;
    stage_run(local, put.runs[i], mark);
  }
  stage_extents(local, put.extents.subspan(done), mark);
}

Result<uint64_t> Groups::put(const RequestKey& key, std::span<const Put> puts) {
  SWALE_RETURN_IF_ERROR(check(puts));
  for (const Put& put : puts) SWALE_RETURN_IF_ERROR(catalog_.check_alive(put.file));
  SWALE_RETURN_IF_ERROR(catalog_.check_files(puts));
  SWALE_RETURN_IF_ERROR(join(key, [&] {
    marks_.clear();
    marks_.reserve(puts.size());
    reserve_marks(puts.size());
    for (const Put& put : puts) stage(put, &marks_.emplace_back());
  }));
  for (const StagedFile& mark : marks_) {
    if (mark.last != 0) note_file(mark);
  }
  ++shared_.counters.puts;
  return last();  // a put of nothing joins no group
}

uint64_t Groups::newest_generation(uint32_t file) const {
  uint64_t newest = catalog_.state(file).generation;
  for (const Group* group : {&in_flight_, &open_}) {
    for (const StagedOperation& staged : group->operations) {
      if (staged.file == file && staged.kind == LogOperation::kTruncate)
        newest = std::max(newest, staged.generation);
    }
  }
  return newest;
}

Result<uint64_t> Groups::truncate(const RequestKey& key, const FileId& id, uint64_t size,
                                  uint64_t generation) {
  if (size > kOffsetEnd) return invalid_argument("truncate to {} bytes: files end at 2^63", size);
  SWALE_RETURN_IF_ERROR(catalog_.check_alive(id));
  const Sequence sequence = next_sequence_;
  StagedOperation operation;
  operation.kind = LogOperation::kTruncate;
  operation.size = size;
  operation.generation = generation;
  bool newer = false;
  SWALE_RETURN_IF_ERROR(join(key, [&] {
    operation.file = catalog_.number_of(id);
    newer = generation > newest_generation(operation.file);
    reserve_marks(1);
    if (!newer) return;
    if (size < kOffsetEnd) {
      Memtable& active = layers_.active();
      active.append({size, kOffsetEnd - size, 0, sequence, kHoleLog, active.files().index_of(id)});
    }
    stage_operation(operation);
  }));
  if (newer) {
    if (size < kOffsetEnd) note_file({operation.file, 0, sequence, sequence, 1});
    open_.files_begin = open_.files.size();
  }
  return last();
}

Result<uint64_t> Groups::remove(const RequestKey& key, const FileId& id, uint64_t generation) {
  if (!catalog_.check_alive(id).ok()) return last();
  StagedOperation operation;
  operation.kind = LogOperation::kRemove;
  operation.generation = generation;
  SWALE_RETURN_IF_ERROR(join(key, [&] {
    operation.file = catalog_.number_of(id);
    stage_operation(operation);
  }));
  catalog_.set_removing(operation.file, true);
  open_.files_begin = open_.files.size();
  return open_.number;
}

Result<uint64_t> Groups::relocate(const RequestKey& key, const Relocation& relocation) {
  constexpr size_t kRelocationsMax = 4096;
  if (relocation.begin > relocation.end || relocation.from == kHoleLog || relocation.to.log == kHoleLog)
    return invalid_argument("relocation of log {} from {} to {}: no range of a log", relocation.from,
                            relocation.begin, relocation.end);
  if (catalog_.relocations().size() + open_.operations.size() >= kRelocationsMax)
    return error(Code::kResourceExhausted, Scope::kOperation, "shard {}: {} relocations are the limit",
                 shared_.options.shard, kRelocationsMax);
  StagedOperation operation;
  operation.kind = LogOperation::kRelocate;
  operation.relocation = relocation;
  SWALE_RETURN_IF_ERROR(join(key, [&] { stage_operation(operation); }));
  return open_.number;
}

uint64_t Groups::add_record(Bytes record) {
  if (record.empty()) return records_group_;
  TableRecords::join(record, &open_.records);
  return records_group_ = open_.number;
}

// ---- commits

std::string Groups::encode() {
  std::string record(store::kRecordHeadBytes, '\0');
  append_u64(&record, open_.sequence_end);
  for (const RequestKey& key : open_.requests) {
    append_u8(&record, static_cast<uint8_t>(LogOperation::kRequest));
    append_varint(&record, key.client);
    append_varint(&record, key.number);
  }
  for (const StagedOperation& operation : open_.operations) {
    append_u8(&record, static_cast<uint8_t>(operation.kind));
    if (operation.kind == LogOperation::kRelocate) {
      append_varint(&record, operation.sequence);
      append_relocation(operation.relocation, &record);
      continue;
    }
    append_file_id(catalog_.id(operation.file), &record);
    append_varint(&record, operation.sequence);
    if (operation.kind == LogOperation::kRun) {
      append_run(operation.run, &record);
    } else {
      append_varint(&record, operation.size);
      append_varint(&record, operation.generation);
    }
  }
  if (!open_.records.empty()) {
    append_u8(&record, static_cast<uint8_t>(LogOperation::kRecords));
    append_sized(&record, open_.records);
  }
  constexpr size_t kLogBlockBytes = 64 * kKiB;
  const Memtable& active = layers_.active();
  std::span<const Entry> rest =
      active.entries().subspan(open_.entries_begin, open_.entries_end - open_.entries_begin);
  while (!rest.empty()) {
    append_u8(&record, static_cast<uint8_t>(LogOperation::kExtents));
    rest = rest.subspan(encoder_->encode(rest, active.files(), kLogBlockBytes, &record));
  }
  return record;
}

void Groups::begin_commit() {
  assert(!committing_ && !open_.empty() && in_flight_.empty());
  const uint64_t number = open_.number;
  in_flight_ = std::move(open_);
  open_group(number + 1);
  committing_ = true;
}

void Groups::applied(const Group& group) {
  assert(group.number == durable_group_ + 1 && group.sequence_end >= visible_sequence_);
  for (const RequestKey& key : group.requests) staged_requests_.erase({key.client, key.number});
  visible_sequence_ = group.sequence_end;
  durable_group_ = group.number;
}

void Groups::give_up() {
  assert(!committing_);
  shared_.counters.groups_void += 1 + (open_.empty() ? 0 : 1);
  for (const Group* group : {&in_flight_, &open_}) {
    for (const StagedOperation& operation : group->operations) {
      if (operation.kind == LogOperation::kRemove) catalog_.set_removing(operation.file, false);
    }
  }
  layers_.active().shrink(layers_.active().visible());
  records_taken_back();
  staged_requests_.clear();
  next_sequence_ = visible_sequence_;
  in_flight_ = Group();
  open_group(durable_group_ + 1);
}

void Groups::moved() {
  open_.entries_begin = 0;
  open_.entries_end = layers_.active().size();
}

void Groups::renumber(const std::vector<uint32_t>& numbers) {
  for (StagedOperation& operation : open_.operations) operation.file = numbers[operation.file];
  for (StagedFile& noted : open_.files) noted.file = numbers[noted.file];
}

bool Groups::consistent() const {
  const Memtable& active = layers_.active();
  const size_t begin = committing_ ? in_flight_.entries_begin : open_.entries_begin;
  if (begin != active.visible() || open_.entries_end != active.size()) return false;
  if (committing_ && in_flight_.entries_end != open_.entries_begin) return false;
  if (open_.number != durable_group_ + (committing_ ? 2 : 1)) return false;
  if (open_.sequence_end != next_sequence_ || visible_sequence_ > next_sequence_) return false;
  size_t requests = open_.requests.size();
  if (committing_) requests += in_flight_.requests.size();
  if (requests != staged_requests_.size()) return false;
  for (const Group* group : {&in_flight_, &open_}) {
    for (const StagedOperation& operation : group->operations) {
      if (operation.kind == LogOperation::kRelocate) continue;
      if (operation.file >= catalog_.numbers() || catalog_.state(operation.file).free) return false;
    }
  }
  return true;
}

}  // namespace swale::meta
