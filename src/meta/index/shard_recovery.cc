// Opening a shard: manifest, sorted files, snapshot, then the logs, in that order. Nothing of another job is
// written.
#include <algorithm>
#include <set>

#include "base/contain.h"
#include "meta/index/shard_core.h"

namespace swale::meta {

// Applies what snapshot and logs say.
class Replay final : public LogVisitor, public SnapshotVisitor {
 public:
  Replay(ShardCore* shard, RecoveryReport* report) : shard_(*shard), report_(*report) {}

  void set_snapshot_sequence(Sequence sequence) { snapshot_sequence_ = sequence; }

  Status file(const SnapshotFile& file) override {
    const uint32_t index = shard_.state_of(file.id);
    FileState& state = shard_.states_[index];
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
      ++shard_.runs_;
    }
    return {};
  }
  Status relocation(const SequencedRelocation& relocation) override {
    shard_.relocations_.push_back(relocation);
    return {};
  }
  Status client(const SnapshotClient& client) override {
    shard_.clients_[client.client] = client.window;
    return {};
  }
  Status removed(const RemovedRange& range) override {
    shard_.removed_.add(range);
    return {};
  }

  Status records(uint64_t group, Bytes records) override {
    snapshot_group_ = group;
    return shard_.records_.replay(records, "records of the table");
  }

  Status request(const RequestKey& key) override {
    group_.requests.push_back(key);
    return {};
  }
  Status extents(const BlockView& block) override {
    Memtable& to = *shard_.active_;
    to.reserve(block.rows());
    std::vector<uint32_t> local(block.files()), global(block.files());
    for (size_t i = 0; i < block.files(); ++i) {
      // The snapshot knows that it was removed later.
      local[i] = global[i] = FileTable::kNone;
      if (shard_.removed_.contains(block.file_id(i))) continue;
      local[i] = to.files().index_of(block.file_id(i));
      global[i] = shard_.state_of(block.file_id(i));
    }
    const bool one_by_one =
        std::any_of(group_.operations.begin(), group_.operations.end(),
                    [](const auto& operation) { return operation.kind != LogOperation::kRun; });
    Sequence first = 0, last = 0;
    uint64_t end = 0, rows = 0;
    uint32_t number = FileTable::kNone;
    const auto note = [&] {
      if (number != FileTable::kNone) group_.files.push_back({global[number], end, first, last, rows});
    };
    for (size_t i = 0; i < block.rows(); ++i) {
      Entry row = block.row(i);
      const uint32_t in_block = row.file;
      if (local[in_block] == FileTable::kNone) continue;
      const uint64_t row_end = row.log == kHoleLog || row.sequence < snapshot_sequence_ ? 0 : row.end();
      if (in_block != number || one_by_one) {
        note();
        number = in_block;
        first = row.sequence;
        end = rows = 0;
      }
      rows += row.sequence < snapshot_sequence_ ? 0 : 1;  // the snapshot has counted the others
      last = row.sequence;
      end = std::max(end, row_end);
      row.file = local[in_block];
      to.append(row);
    }
    note();
    report_.entries += block.rows();
    return {};
  }
  Status run(const FileId& file, Sequence sequence, const Run& run) override {
    ++report_.runs;
    StagedOperation operation;
    operation.kind = LogOperation::kRun;
    operation.sequence = sequence;
    operation.run = run;
    return stage(file, operation);
  }
  Status truncate(const FileId& file, Sequence sequence, uint64_t size, uint64_t generation,
                  bool remove) override {
    StagedOperation operation;
    operation.kind = remove ? LogOperation::kRemove : LogOperation::kTruncate;
    operation.sequence = sequence;
    operation.size = size;
    operation.generation = generation;
    return stage(file, operation);
  }
  Status relocate(Sequence sequence, const Relocation& relocation) override {
    if (sequence < snapshot_sequence_) return {};
    StagedOperation operation;
    operation.kind = LogOperation::kRelocate;
    operation.sequence = sequence;
    operation.relocation = relocation;
    group_.operations.push_back(operation);
    return {};
  }
  Status records(Bytes records) override {
    group_.records += records;
    return {};
  }
  Status end_group(uint64_t number, Sequence sequence_end) override {
    if (number > snapshot_group_)
      SWALE_RETURN_IF_ERROR(shard_.records_.replay(group_.records, "records of the table"));
    group_.number = number;
    group_.sequence_end = std::max(sequence_end, shard_.visible_sequence_);
    shard_.active_->show();
    shard_.apply(group_);
    group_ = Group();
    ++report_.groups;
    return shard_.active_->full() ? flush() : ok_status();
  }

 private:
  Status stage(const FileId& file, StagedOperation operation) {
    if (operation.sequence < snapshot_sequence_) return {};  // the snapshot has it
    operation.file = shard_.state_of(file);
    group_.operations.push_back(operation);
    return {};
  }
  // The log stays: the tree is in memory only.
  Status flush() {
    shard_.frozen_ = std::move(shard_.active_);
    shard_.active_ =
        std::make_shared<Memtable>(shard_.options_.write_buffer_entries, std::move(shard_.spare_));
    shard_.background_ = true;
    std::unique_ptr<Work> work = shard_.start_flush();
    work->run();
    return shard_.finish(std::move(work));
  }

  ShardCore& shard_;
  RecoveryReport& report_;
  Sequence snapshot_sequence_ = 0;
  uint64_t snapshot_group_ = 0;  // up to which it has the records of the table
  Group group_;
};

namespace {

struct Listing {
  uint32_t newest_job = 0;                      // that has a manifest
  std::map<uint32_t, std::set<uint32_t>> logs;  // by job
  struct File {
    std::string path;
    ShardFileKind kind;
  };
  std::vector<File> files;  // all but claims
};

Result<Listing> list_files(io::Device& device, const ShardOptions& options) {
  SWALE_ASSIGN_OR_RETURN(const auto names, device.list(options.directory));
  Listing found;
  for (const std::string& name : names) {
    uint32_t job = 0, number = 0;
    ShardFileKind kind{};
    if (!parse_shard_file_name(name, options.shard, &job, &kind, &number)) continue;
    if (kind == ShardFileKind::kManifest) found.newest_job = std::max(found.newest_job, job);
    if (kind == ShardFileKind::kLog) found.logs[job].insert(number);
    if (kind != ShardFileKind::kClaim) found.files.push_back({options.directory + "/" + name, kind});
  }
  return found;
}

// There is no manifest: of a shard that is new, or whose first job ended while it opened.
Status check_new(io::Device& device, const Listing& listing) {
  for (const Listing::File& file : listing.files) {
    bool unused = false;
    if (file.kind == ShardFileKind::kLog) {
      SWALE_ASSIGN_OR_RETURN(unused, is_unused_log(device, file.path));
    }
    if (!unused)
      return corruption("{}: is here, and the shard has no manifest: restore it from a copy", file.path);
  }
  return {};
}

}  // namespace

Status ShardCore::recover(RecoveryReport* report) {
  SWALE_ASSIGN_OR_RETURN(log_encoder_, BlockEncoder::create(BlockCodec::kFrame));
  // From here on no earlier job acknowledges anything. So what is read after this is all that was
  // acknowledged.
  SWALE_ASSIGN_OR_RETURN(claim_,
                         store::JobClaim::next(device_, claims_of(options_.directory, options_.shard)));
  SWALE_ASSIGN_OR_RETURN(const Listing listing, meta::list_files(device_, options_));
  if (listing.newest_job >= job()) {  // of a job that has claimed the shard since
    SWALE_RETURN_IF_ERROR(fence());
    return error(
        Code::kAlreadyExists, Scope::kFile,
        "{}: shard {} has a manifest of job {}, and this job has claimed number {}: restore the claims "
        "(shard-*.claim) from a copy",
        options_.directory, options_.shard, listing.newest_job, job());
  }
  ShardManifest manifest;
  manifest.shard = options_.shard;
  if (listing.newest_job != 0) {
    const std::string path = path_of(listing.newest_job, ShardFileKind::kManifest, 0);
    SWALE_ASSIGN_OR_RETURN(const std::string text, io::read_file(device_, path, kGiB));
    SWALE_ASSIGN_OR_RETURN(manifest, ShardManifest::decode(text, path));
    if (manifest.shard != options_.shard || manifest.job != listing.newest_job)
      return corruption("{}: is the manifest of shard {} and job {}", path, manifest.shard, manifest.job);
  } else {
    SWALE_RETURN_IF_ERROR(check_new(device_, listing));
  }
  SWALE_RETURN_IF_ERROR(open_tables(manifest));
  if (const ManifestLog& file = manifest.attributes; file.number != 0) {
    const std::string path = path_of(file.job, ShardFileKind::kAttributes, file.number);
    SWALE_RETURN_IF_ERROR(records_.replay_file(device_, path, options_.shard, file));
  }
  Replay replay(this, report);
  Sequence snapshot_sequence = 0;
  if (manifest.snapshot.number != 0) {
    const std::string path =
        path_of(manifest.snapshot.job, ShardFileKind::kSnapshot, manifest.snapshot.number);
    SWALE_ASSIGN_OR_RETURN(const std::string bytes, io::read_file(device_, path, 64 * kGiB));
    SWALE_ASSIGN_OR_RETURN(
        snapshot_sequence,
        visit_snapshot(bytes, path, options_.shard, owner_of(manifest.snapshot.job, manifest.snapshot.number),
                       &replay));
    snapshot_bytes_ = bytes.size();
    snapshot_number_ = manifest.snapshot.number;
    snapshot_job_ = manifest.snapshot.job;
  }
  replay.set_snapshot_sequence(snapshot_sequence);
  prune_barriers();
  // The snapshot has no count: what belongs to no file of it.
  dead_rows_ = rows();
  for (const FileState& state : states_) dead_rows_ -= std::min(dead_rows_, state.rows);
  durable_group_ = manifest.group;
  visible_sequence_ = std::max<Sequence>(1, manifest.sequence);
  const auto found = listing.logs.find(manifest.job);
  SWALE_RETURN_IF_ERROR(replay_logs(device_, options_.directory, manifest,
                                    found == listing.logs.end() ? std::set<uint32_t>() : found->second,
                                    &durable_group_, &replay,
                                    [&](const ManifestLog& log, const store::LogScan& scan) {
                                      if (scan.torn_bytes != 0) {
                                        report->torn_bytes = scan.torn_bytes;
                                        report->torn_log = path_of(log.job, ShardFileKind::kLog, log.number);
                                      }
                                      report->log_bytes += scan.bytes;
                                      if (scan.records == 0) return;
                                      earlier_logs_.push_back(log);
                                      logs_bytes_ += log.bytes;
                                    }));
  report->records = records_.replayed();
  next_sequence_ = visible_sequence_;
  frozen_group_ = manifest.group;
  open_ = Group();
  open_.number = durable_group_ + 1;
  open_.entries_begin = open_.entries_end = active_->size();
  open_.sequence_end = next_sequence_;
  log_ = next_log();
  // Before the manifest, which promises it: a log that is missing later is known to be missing.
  SWALE_RETURN_IF_ERROR(log_->create());

  manifest.job = job();
  manifest.sequence = visible_sequence_;
  manifest.earlier_logs = earlier_logs_;
  manifest.first_log = log_->number();
  manifest.first_log_bytes = store::kLogHeaderBytes;
  SWALE_RETURN_IF_ERROR(fence());
  SWALE_RETURN_IF_ERROR(io::replace_file(device_, path_of(ShardFileKind::kManifest, 0), manifest.encode()));
  SWALE_RETURN_IF_ERROR(fence());  // a job that has taken over meanwhile reads what the older manifest names
  remove_unnamed(manifest);
  return {};
}

// What earlier jobs left and the manifest of this one does not name: nobody will read it again. A survivor of
// such a job reads on in the files that it has open, and the fence stops its commits. What cannot be removed,
// the next job removes.
void ShardCore::remove_unnamed(const ShardManifest& manifest) {
  const std::map<std::string, uint64_t> named = manifest.named_files();
  std::vector<std::string> unnamed;
  const Result<std::vector<std::string>> found = device_.list(options_.directory);
  if (!found.ok()) return;
  for (const std::string& each : *found) {
    uint32_t job = 0, number = 0;
    ShardFileKind kind{};
    const std::string_view stem =
        std::string_view(each).substr(0, each.size() - (each.ends_with(".tmp") ? 4 : 0));
    if (!parse_shard_file_name(std::string(stem), options_.shard, &job, &kind, &number)) continue;
    if (kind == ShardFileKind::kClaim) continue;  // they stay for ever (store/job_claim.h)
    if (job < manifest.job && !named.contains(each)) unnamed.push_back(each);
  }
  for (const std::string& each : unnamed) static_cast<void>(device_.remove(options_.directory + "/" + each));
}

Status ShardCore::open_tables(const ShardManifest& manifest) {
  Sequence newer = ~Sequence{0};
  for (const ManifestTable& listed : manifest.tables) {
    auto table = std::make_shared<Table>();
    table->sequence_min = listed.sequence_min;
    table->sequence_max = listed.sequence_max;
    if (listed.sequence_max >= newer || listed.sequence_min > listed.sequence_max)
      return corruption("{}: shard {}: tables of the manifest are out of order", options_.directory,
                        options_.shard);
    newer = listed.sequence_min;
    for (const ManifestFile& file : listed.files) {
      const std::string path = path_of(file.job, ShardFileKind::kSorted, file.number);
      SWALE_ASSIGN_OR_RETURN(
          const auto opened,
          SortedFile::open(device_, path, owner_of(file.job, file.number), &cache_, &reads_));
      if (!table->sets.empty() &&
          opened->index().first(0) <= table->sets.back()->index().first(table->sets.back()->blocks() - 1))
        return corruption("{}: begins before the file in front of it ends", path);
      table->entries += opened->about().entries;
      table->sets.push_back(opened);
    }
    if (table->sets.empty() || table->entries != listed.entries)
      return corruption("{}: shard {}: a table has {} entries, the manifest says {}", options_.directory,
                        options_.shard, table->entries, listed.entries);
    tables_.push_back(std::move(table));
  }
  return {};
}

Result<std::unique_ptr<Shard>> Shard::open(io::Device& device, const ShardOptions& options,
                                           RecoveryReport* report) {
  if (options.write_buffer_entries == 0 || options.locality_percent > 100)
    return invalid_argument("shard {}: {} entries in a write buffer, locality {} %", options.shard,
                            options.write_buffer_entries, options.locality_percent);
  std::unique_ptr<ShardCore> shard;
  RecoveryReport unread;
  const Status opened = contain([&] {
    shard = std::make_unique<ShardCore>(device, options);
    return shard->recover(report != nullptr ? report : &unread);
  });
  if (!opened.ok()) return opened;
  return std::unique_ptr<Shard>(std::move(shard));
}

}  // namespace swale::meta
