#include "meta/index/shard_check.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/contain.h"
#include "meta/index/snapshot.h"
#include "meta/index/sorted_file.h"
#include "meta/index/table_records.h"

namespace swale::meta {
namespace {

// Everything of one shard is read. Problems are collected; nothing stops at the first one.
class Walk final : public LogVisitor, public SnapshotVisitor {
 public:
  Walk(io::Device& device, std::string directory, uint32_t shard)
      : device_(device), directory_(std::move(directory)), shard_(shard) {}

  ShardVerification& found() { return found_; }

  Status run() {
    SWALE_RETURN_IF_ERROR(read_manifest());
    for (const ManifestTable& table : manifest_.tables) walk_table(table);
    if (manifest_.attributes.number != 0) note(walk_attributes());
    if (manifest_.snapshot.number != 0) note(walk_snapshot());
    note(walk_logs());
    for (const std::string& name : names_) found_.obsolete_files += used_.contains(name) ? 0 : 1;
    return {};
  }

  Status request(const RequestKey&) override { return {}; }
  Status extents(const BlockView& block) override {
    found_.log_entries += block.rows();
    return {};
  }
  Status run(const FileId&, Sequence, const Run&) override { return {}; }
  Status truncate(const FileId&, Sequence, uint64_t, uint64_t, bool) override { return {}; }
  Status relocate(Sequence, const Relocation&) override { return {}; }
  Status records(Bytes) override { return {}; }
  Status end_group(uint64_t, Sequence) override {
    ++found_.groups;
    return {};
  }
  Status file(const SnapshotFile& file) override {
    ++found_.files;
    found_.runs += file.runs.size();
    return {};
  }
  Status relocation(const SequencedRelocation&) override { return {}; }
  Status removed(const RemovedRange&) override { return {}; }
  Status records(uint64_t, Bytes) override { return {}; }
  Status client(const SnapshotClient&) override {
    ++found_.clients;
    return {};
  }

 private:
  void note(const Status& status) {
    if (!status.ok()) found_.problems.push_back(status);
  }
  std::string name_of(uint32_t job, ShardFileKind kind, uint32_t number) {
    const std::string name = shard_file_name(shard_, job, kind, number);
    used_.insert(name);
    return directory_ + "/" + name;
  }

  Status read_manifest() {
    SWALE_ASSIGN_OR_RETURN(const auto names, device_.list(directory_));
    uint32_t newest = 0;
    std::map<uint32_t, std::set<uint32_t>> logs;
    for (const std::string& name : names) {
      uint32_t job = 0, number = 0;
      ShardFileKind kind{};
      if (!parse_shard_file_name(name, shard_, &job, &kind, &number)) continue;
      names_.push_back(name);
      if (kind == ShardFileKind::kManifest) newest = std::max(newest, job);
      if (kind == ShardFileKind::kLog) logs[job].insert(number);
    }
    if (newest == 0)
      return error(Code::kNotFound, Scope::kFile, "{}: shard {} has no manifest", directory_, shard_);
    const std::string path = name_of(newest, ShardFileKind::kManifest, 0);
    SWALE_ASSIGN_OR_RETURN(const std::string text, io::read_file(device_, path, kGiB));
    SWALE_ASSIGN_OR_RETURN(manifest_, ShardManifest::decode(text, path));
    logs_ = logs[manifest_.job];
    return {};
  }

  void walk_table(const ManifestTable& table) {
    ++found_.tables;
    uint64_t entries = 0;
    before_.reset();
    for (const ManifestFile& file : table.files) note(walk_sorted(file, &entries));
    if (entries != table.entries)
      note(corruption("{}: shard {}: a table has {} entries, the manifest says {}", directory_, shard_,
                      entries, table.entries));
    found_.entries += entries;
  }

  Status walk_sorted(const ManifestFile& file, uint64_t* entries) {
    const std::string path = name_of(file.job, ShardFileKind::kSorted, file.number);
    SWALE_ASSIGN_OR_RETURN(const auto sorted, SortedFile::open(device_, path, owner_of(file.job, file.number),
                                                               nullptr, nullptr));
    ++found_.sorted_files;
    std::string bytes;
    std::vector<Bytes> blocks;
    SWALE_RETURN_IF_ERROR(sorted->read_all(&bytes, &blocks));
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::string where = fmt::format("{}: block {}", path, i);
      SWALE_ASSIGN_OR_RETURN(const BlockView block, BlockView::parse(blocks[i], where));
      ++found_.blocks;
      *entries += block.rows();
      SWALE_RETURN_IF_ERROR(check_order(block, sorted->index().first(i), where));
    }
    return {};
  }

  Status check_order(const BlockView& block, const Key& first, const std::string& where) {
    for (size_t i = 0; i < block.rows(); ++i) {
      const Entry row = block.row(i);
      const Key key{block.file_id(row.file), row.offset};
      if (i == 0 && key != first) return corruption("{}: does not begin where the metadata say", where);
      if (before_ &&
          (key < before_->first || (key.file == before_->first.file && key.offset < before_->second)))
        return corruption("{}: row {} begins before the row in front of it ends", where, i);
      before_ = {key, row.end()};
    }
    return {};
  }

  Status walk_attributes() {
    const ManifestLog& file = manifest_.attributes;
    TableRecords records(&unread_, 0);
    return records.replay_file(device_, name_of(file.job, ShardFileKind::kAttributes, file.number), shard_,
                               file);
  }

  Status walk_snapshot() {
    const std::string path =
        name_of(manifest_.snapshot.job, ShardFileKind::kSnapshot, manifest_.snapshot.number);
    SWALE_ASSIGN_OR_RETURN(const std::string bytes, io::read_file(device_, path, 64 * kGiB));
    return visit_snapshot(bytes, path, shard_, owner_of(manifest_.snapshot.job, manifest_.snapshot.number),
                          this)
        .status();
  }

  Status walk_logs() {
    for (const ManifestLog& log : manifest_.earlier_logs) name_of(log.job, ShardFileKind::kLog, log.number);
    for (auto at = logs_.lower_bound(manifest_.first_log); at != logs_.end(); ++at)
      name_of(manifest_.job, ShardFileKind::kLog, *at);
    uint64_t group = manifest_.group;
    return replay_logs(device_, directory_, manifest_, logs_, &group, this,
                       [this](const ManifestLog&, const store::LogScan& scan) {
                         ++found_.logs;
                         found_.torn_bytes += scan.torn_bytes;
                       });
  }

  // Its records are not looked into: opening the server's table reads them (store/reading.h).
  class Unread final : public LoggedTable {
   public:
    Status replay(Bytes) override { return {}; }
    void for_each_record(const std::function<void(Bytes)>&) const override {}
    size_t changes() const override { return 0; }
    void keep(size_t) noexcept override {}
    void undo() noexcept override {}
  };

  io::Device& device_;
  const std::string directory_;
  const uint32_t shard_;
  Unread unread_;
  ShardManifest manifest_;
  std::vector<std::string> names_;
  std::set<std::string> used_;
  std::set<uint32_t> logs_;
  std::optional<std::pair<Key, uint64_t>> before_;  // the row in front: its key and its end
  ShardVerification found_;
};

}  // namespace

Result<ShardVerification> verify_shard(io::Device& device, const std::string& directory, uint32_t shard) {
  ShardVerification found;
  const Status status = contain([&]() -> Status {
    Walk walk(device, directory, shard);
    SWALE_RETURN_IF_ERROR(walk.run());
    found = std::move(walk.found());
    return {};
  });
  if (!status.ok()) return status;
  return found;
}

}  // namespace swale::meta
