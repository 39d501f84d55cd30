// Opening a shard: manifest, sorted files, snapshot, then the logs, in that order. Nothing of another job is
// written.
#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/contain.h"
#include "meta/index/shard_core.h"

namespace swale::meta {

// Applies what snapshot and logs say.
class Replay final : public LogVisitor, public SnapshotVisitor {
 public:
  using EndGroup = std::function<Status(const Group&)>;  // the group is durable
  Replay(Catalog* catalog, ShardLayers* layers, TableRecords* records, RecoveryReport* report, EndGroup end)
      : catalog_(*catalog),
        layers_(*layers),
        records_(*records),
        report_(*report),
        end_group_(std::move(end)) {}

  void set_snapshot_sequence(Sequence sequence) { snapshot_sequence_ = sequence; }

  Status file(const SnapshotFile& file) override { return catalog_.restore(file); }
  Status relocation(const SequencedRelocation& relocation) override {
    catalog_.restore(relocation);
    return {};
  }
  Status client(const SnapshotClient& client) override {
    catalog_.restore(client);
    return {};
  }
  Status removed(const RemovedRange& range) override {
    catalog_.restore(range);
    return {};
  }

  Status records(uint64_t group, Bytes records) override {
    snapshot_group_ = group;
    return records_.replay(records, "records of the table");
  }

  Status request(const RequestKey& key) override {
    group_.requests.push_back(key);
    return {};
  }
  Status extents(const BlockView& block) override {
    Memtable& to = layers_.active();
    to.reserve(block.rows());
    std::vector<uint32_t> local(block.files()), global(block.files());
    for (size_t i = 0; i < block.files(); ++i) {
      // The snapshot knows that it was removed later.
      local[i] = global[i] = FileTable::kNone;
      if (catalog_.removed(block.file_id(i))) continue;
      local[i] = to.files().index_of(block.file_id(i));
      global[i] = catalog_.number_of(block.file_id(i));
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
      SWALE_RETURN_IF_ERROR(records_.replay(group_.records, "records of the table"));
    ++report_.groups;
    group_.number = number;
    group_.sequence_end = sequence_end;
    return end_group_(std::exchange(group_, Group()));
  }

 private:
  Status stage(const FileId& file, StagedOperation operation) {
    if (operation.sequence < snapshot_sequence_) return {};  // the snapshot has it
    operation.file = catalog_.number_of(file);
    group_.operations.push_back(operation);
    return {};
  }

  Catalog& catalog_;
  ShardLayers& layers_;
  TableRecords& records_;
  RecoveryReport& report_;
  const EndGroup end_group_;
  Sequence snapshot_sequence_ = 0;
  uint64_t snapshot_group_ = 0;  // up to which it has the records of the table
  Group group_;
};

namespace {

struct Listing {
  uint32_t newest_job = 0;                      // that has a manifest
  uint32_t last_job = 0;                        // that has any file
  std::map<uint32_t, std::set<uint32_t>> logs;  // by job
  struct File {
    std::string path;
    ShardFileKind kind;
  };
  std::vector<File> files;
};

Result<Listing> list_files(io::Device& device, const ShardOptions& options) {
  SWALE_ASSIGN_OR_RETURN(const auto names, device.list(options.directory));
  Listing found;
  for (const std::string& name : names) {
    uint32_t job = 0, number = 0;
    ShardFileKind kind{};
    if (!parse_shard_file_name(name, options.shard, &job, &kind, &number)) continue;
    found.last_job = std::max(found.last_job, job);
    if (kind == ShardFileKind::kManifest) found.newest_job = std::max(found.newest_job, job);
    if (kind == ShardFileKind::kLog) found.logs[job].insert(number);
    found.files.push_back({options.directory + "/" + name, kind});
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

// The manifest of the newest job; of a new shard, one that names nothing.
Result<ShardManifest> ShardCore::read_manifest(uint32_t newest_job) {
  const uint32_t number = shared_.options.shard;
  ShardManifest manifest;
  manifest.shard = number;
  if (newest_job == 0) return manifest;
  const std::string path = shared_.path_of(newest_job, ShardFileKind::kManifest, 0);
  SWALE_ASSIGN_OR_RETURN(const std::string text, io::read_file(shared_.device, path, kGiB));
  SWALE_ASSIGN_OR_RETURN(manifest, ShardManifest::decode(text, path));
  if (manifest.shard != number || manifest.job != newest_job)
    return corruption("{}: is the manifest of shard {} and job {}", path, manifest.shard, manifest.job);
  return manifest;
}

// Tables, the file of the table beside the index, and the snapshot. *sequence: up to which the snapshot knows
// everything but extents.
Status ShardCore::read_files(const ShardManifest& manifest, SnapshotVisitor* replay, Sequence* sequence) {
  const uint32_t number = shared_.options.shard;
  SWALE_RETURN_IF_ERROR(layers_.open(manifest));
  if (const ManifestLog& file = manifest.attributes; file.number != 0) {
    const std::string path = shared_.path_of(file.job, ShardFileKind::kAttributes, file.number);
    SWALE_RETURN_IF_ERROR(records_.replay_file(shared_.device, path, number, file));
  }
  if (const ManifestFile& file = manifest.snapshot; file.number != 0) {
    const std::string path = shared_.path_of(file.job, ShardFileKind::kSnapshot, file.number);
    SWALE_ASSIGN_OR_RETURN(const std::string bytes, io::read_file(shared_.device, path, 64 * kGiB));
    SWALE_ASSIGN_OR_RETURN(*sequence,
                           visit_snapshot(bytes, path, number, owner_of(file.job, file.number), replay));
    logs_.restore(file, bytes.size());
  }
  catalog_.restored(layers_.rows());
  return {};
}

Status ShardCore::recover(RecoveryReport* report) {
  const ShardOptions& options = shared_.options;
  // Claims may have been lost with a copy of the store: its files have numbers, too.
  SWALE_ASSIGN_OR_RETURN(const Listing before, meta::list_files(shared_.device, options));
  const store::ClaimNames claims = claims_of(options.directory, options.shard, uint64_t{before.last_job} + 1);
  SWALE_RETURN_IF_ERROR(io::make_directories(shared_.device, claims.folder));
  // From here on no earlier job acknowledges anything. So what is read after this is all that was
  // acknowledged.
  SWALE_ASSIGN_OR_RETURN(shared_.claim, store::JobClaim::next(shared_.device, claims));
  SWALE_ASSIGN_OR_RETURN(const Listing listing, meta::list_files(shared_.device, options));
  if (listing.newest_job >= job()) {  // of a job that has claimed the shard since
    SWALE_RETURN_IF_ERROR(fence());
    return error(
        Code::kAlreadyExists, Scope::kFile,
        "{}: shard {} has a manifest of job {}, and this job has claimed number {}: restore the claims "
        "(shard-*.claims) from a copy",
        options.directory, options.shard, listing.newest_job, job());
  }
  if (listing.newest_job == 0) SWALE_RETURN_IF_ERROR(check_new(shared_.device, listing));
  SWALE_ASSIGN_OR_RETURN(ShardManifest manifest, read_manifest(listing.newest_job));

  Replay replay(&catalog_, &layers_, &records_, report, [this](Group group) -> Status {
    group.sequence_end = std::max(group.sequence_end, groups_.visible());
    layers_.active().show();
    apply(group);
    if (!layers_.active().full()) return {};
    // The log stays: the tree is in memory only.
    layers_.freeze(layers_.successor());
    dues_.begin();
    std::unique_ptr<Work> work = start_flush();
    work->run();
    return finish(std::move(work));
  });
  Sequence snapshot_sequence = 0;
  SWALE_RETURN_IF_ERROR(read_files(manifest, &replay, &snapshot_sequence));
  replay.set_snapshot_sequence(snapshot_sequence);
  groups_.restore(manifest.group, std::max<Sequence>(1, manifest.sequence));
  const auto found = listing.logs.find(manifest.job);
  uint64_t group = manifest.group;
  SWALE_RETURN_IF_ERROR(replay_logs(shared_.device, options.directory, manifest,
                                    found == listing.logs.end() ? std::set<uint32_t>() : found->second,
                                    &group, &replay, [&](const ManifestLog& log, const store::LogScan& scan) {
                                      if (scan.torn_bytes != 0) {
                                        report->torn_bytes = scan.torn_bytes;
                                        report->torn_log =
                                            shared_.path_of(log.job, ShardFileKind::kLog, log.number);
                                      }
                                      report->log_bytes += scan.bytes;
                                      if (scan.records != 0) logs_.restore(log);
                                    }));
  report->records = records_.replayed();
  SWALE_RETURN_IF_ERROR(groups_.start());
  SWALE_RETURN_IF_ERROR(sync_last_log());
  synced_group_ = groups_.durable();
  // Before the manifest, which promises it: a log that is missing later is known to be missing.
  SWALE_RETURN_IF_ERROR(logs_.start(manifest.group));

  manifest.job = job();
  manifest.sequence = groups_.visible();
  manifest.earlier_logs = logs_.earlier();
  manifest.first_log = logs_.current()->number();
  manifest.first_log_bytes = store::kLogHeaderBytes;
  SWALE_RETURN_IF_ERROR(fence());
  SWALE_RETURN_IF_ERROR(
      io::replace_file(shared_.device, shared_.path_of(ShardFileKind::kManifest, 0), manifest.encode()));
  SWALE_RETURN_IF_ERROR(fence());  // a job that has taken over meanwhile reads what the older manifest names
  remove_unnamed(manifest);
  return {};
}

// A killed job may have written groups that it was still to sync. From now on a manifest promises them.
Status ShardCore::sync_last_log() {
  if (logs_.earlier().empty()) return {};
  const ManifestLog& last = logs_.earlier().back();
  SWALE_ASSIGN_OR_RETURN(const auto file,
                         shared_.device.open(shared_.path_of(last.job, ShardFileKind::kLog, last.number),
                                             io::OpenMode::kReadWrite));
  return file->sync();
}

// What earlier jobs left and the manifest of this one does not name: nobody will read it again. A survivor of
// such a job reads on in the files that it has open, and the fence stops its commits. What cannot be removed,
// the next job removes.
void ShardCore::remove_unnamed(const ShardManifest& manifest) {
  const std::map<std::string, uint64_t> named = manifest.named_files();
  std::vector<std::string> unnamed;
  const Result<std::vector<std::string>> found = shared_.device.list(shared_.options.directory);
  if (!found.ok()) return;
  for (const std::string& each : *found) {
    uint32_t job = 0, number = 0;
    ShardFileKind kind{};
    const std::string_view stem =
        std::string_view(each).substr(0, each.size() - (each.ends_with(".tmp") ? 4 : 0));
    if (!parse_shard_file_name(std::string(stem), shared_.options.shard, &job, &kind, &number)) continue;
    if (job < manifest.job && !named.contains(each)) unnamed.push_back(each);
  }
  for (const std::string& each : unnamed)
    static_cast<void>(shared_.device.remove(shared_.options.directory + "/" + each));
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
