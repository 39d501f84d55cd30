#include "meta/index/shard_check.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/contain.h"
#include "meta/index/snapshot.h"
#include "meta/index/sorted_file.h"

namespace swale::meta {
namespace {

std::string words_of(const FileId& id) { return fmt::format("{:016x}{:016x}", id.high, id.low); }

std::string words_of(const Run& run) {
  std::string words = fmt::format("offset {} length {} log {} address {}", run.offset, run.length,
                                  run.place.log, run.place.address);
  for (uint32_t l = 0; l < run.levels; ++l)
    words +=
        fmt::format(" x {} by {} ({})", run.level[l].count, run.level[l].stride, run.level[l].address_stride);
  return words;
}

// Everything of one shard, told piece by piece. Problems are collected; nothing stops at the first one.
class Walk final : public LogVisitor, public SnapshotVisitor {
 public:
  using Sink = std::function<void(const std::string&)>;

  Walk(io::Device& device, std::string directory, uint32_t shard)
      : device_(device), directory_(std::move(directory)), shard_(shard) {}

  void set_sink(Sink sink, bool rows) {
    sink_ = std::move(sink);
    rows_ = rows;
  }
  ShardVerification& found() { return found_; }

  Status run() {
    SWALE_RETURN_IF_ERROR(read_manifest());
    for (const ManifestTable& table : manifest_.tables) walk_table(table);
    if (manifest_.snapshot.number != 0) note(walk_snapshot());
    uint64_t group = manifest_.group;
    for (const ManifestLog& log : manifest_.earlier_logs) note(walk_log(log, false, &group));
    for (auto at = logs_.lower_bound(manifest_.first_log); at != logs_.end(); ++at)
      note(walk_log({manifest_.job, *at, ~uint64_t{0}}, std::next(at) == logs_.end(), &group));
    for (const std::string& name : names_) found_.obsolete_files += used_.contains(name) ? 0 : 1;
    return {};
  }

  Status request(const RequestKey& key) override {
    say("  request {} of client {}", key.number, key.client);
    return {};
  }
  Status extents(const BlockView& block) override {
    found_.log_entries += block.rows();
    say("  {} extents", block.rows());
    if (rows_) say_rows(block);
    return {};
  }
  Status run(const FileId& file, Sequence sequence, const Run& run) override {
    say("  run of file {}, sequence {}: {}", words_of(file), sequence, words_of(run));
    return {};
  }
  Status truncate(const FileId& file, Sequence sequence, uint64_t size, uint64_t generation,
                  bool remove) override {
    say("  {} file {} at {} bytes, sequence {}, generation {}", remove ? "remove" : "truncate",
        words_of(file), size, sequence, generation);
    return {};
  }
  Status relocate(Sequence sequence, const Relocation& rule) override {
    say("  log {} from {} to {} is now log {} at {}, sequence {}", rule.from, rule.begin, rule.end,
        rule.to.log, rule.to.address, sequence);
    return {};
  }
  Status end_group(uint64_t group, Sequence sequence_end) override {
    ++found_.groups;
    say("  end of group {}, next sequence {}", group, sequence_end);
    return {};
  }
  Status file(const SnapshotFile& file) override {
    ++found_.files;
    found_.runs += file.runs.size();
    say("  file {}: size {}, generation {}{}", words_of(file.id), file.size, file.generation,
        file.known ? "" : ", nothing was put");
    for (const StoredRun& run : file.runs) say("    run, sequence {}: {}", run.sequence, words_of(run.run));
    return {};
  }
  Status relocation(const SequencedRelocation& relocation) override {
    return relocate(relocation.sequence, relocation.rule);
  }
  Status removed(const RemovedRange& range) override {
    say("  removed: files {} to {}", words_of(FileId{range.high, range.first}),
        words_of(FileId{range.high, range.last}));
    return {};
  }
  Status client(const SnapshotClient& client) override {
    ++found_.clients;
    say("  client {}: requests up to {}", client.client, client.window.highest);
    return {};
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    if (sink_) sink_(fmt::format(format, std::forward<Args>(args)...));
  }
  void note(const Status& status) {
    if (!status.ok()) found_.problems.push_back(status);
  }
  std::string name_of(uint32_t job, ShardFileKind kind, uint32_t number) {
    const std::string name = shard_file_name(shard_, job, kind, number);
    used_.insert(name);
    return directory_ + "/" + name;
  }
  void say_rows(const BlockView& block) {
    for (size_t i = 0; i < block.rows(); ++i) {
      const Entry row = block.row(i);
      say("      file {} offset {} length {} {}, sequence {}", words_of(block.file_id(row.file)), row.offset,
          row.length,
          row.log == kHoleLog ? std::string("hole") : fmt::format("log {} address {}", row.log, row.address),
          row.sequence);
    }
  }

  Status read_manifest() {
    SWALE_ASSIGN_OR_RETURN(const auto names, device_.list(directory_));
    uint32_t newest = 0;
    for (const std::string& name : names) {
      uint32_t job = 0, number = 0;
      ShardFileKind kind{};
      if (!parse_shard_file_name(name, shard_, &job, &kind, &number)) continue;
      names_.push_back(name);
      if (kind == ShardFileKind::kManifest) newest = std::max(newest, job);
    }
    if (newest == 0)
      return error(Code::kNotFound, Scope::kFile, "{}: shard {} has no manifest", directory_, shard_);
    const std::string path = name_of(newest, ShardFileKind::kManifest, 0);
    SWALE_ASSIGN_OR_RETURN(const std::string text, io::read_file(device_, path, kGiB));
    SWALE_ASSIGN_OR_RETURN(manifest_, ShardManifest::decode(text, path));
    for (const std::string& name : names) {
      uint32_t job = 0, number = 0;
      ShardFileKind kind{};
      if (parse_shard_file_name(name, shard_, &job, &kind, &number) && kind == ShardFileKind::kLog &&
          job == manifest_.job)
        logs_.insert(number);
    }
    say("shard {} of job {}: {} tables, sequence {}, logs after group {}", shard_, manifest_.job,
        manifest_.tables.size(), manifest_.sequence, manifest_.group);
    return {};
  }

  void walk_table(const ManifestTable& table) {
    ++found_.tables;
    say("table: {} entries, sequences {} to {}", table.entries, table.sequence_min, table.sequence_max);
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
    say("  {}: {} blocks, {} entries", path, sorted->blocks(), sorted->about().entries);
    std::string bytes;
    std::vector<Bytes> blocks;
    SWALE_RETURN_IF_ERROR(sorted->read_all(&bytes, &blocks));
    for (size_t i = 0; i < blocks.size(); ++i) {
      SWALE_ASSIGN_OR_RETURN(const BlockView block,
                             BlockView::parse(blocks[i], fmt::format("{}: block {}", path, i)));
      ++found_.blocks;
      *entries += block.rows();
      say("    block {}: {} rows in {} bytes, codec {}, from file {} offset {}", i, block.rows(),
          blocks[i].size(), static_cast<unsigned>(block.codec()), words_of(block.file_id(block.file(0))),
          block.offset(0));
      if (rows_) say_rows(block);
      SWALE_RETURN_IF_ERROR(
          check_order(block, sorted->index().first(i), fmt::format("{}: block {}", path, i)));
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

  Status walk_snapshot() {
    const std::string path =
        name_of(manifest_.snapshot.job, ShardFileKind::kSnapshot, manifest_.snapshot.number);
    SWALE_ASSIGN_OR_RETURN(const std::string bytes, io::read_file(device_, path, 64 * kGiB));
    say("{}: {} bytes", path, bytes.size());
    return visit_snapshot(bytes, path, shard_, owner_of(manifest_.snapshot.job, manifest_.snapshot.number),
                          this)
        .status();
  }

  Status walk_log(const ManifestLog& log, bool last, uint64_t* group) {
    const std::string path = name_of(log.job, ShardFileKind::kLog, log.number);
    say("{}:", path);
    ++found_.logs;
    SWALE_ASSIGN_OR_RETURN(
        const LogScan scan,
        replay_log(device_, path, shard_, owner_of(log.job, log.number), log.bytes, last, group, this));
    found_.torn_bytes += scan.torn_bytes;
    if (scan.torn_bytes != 0) say("  {} bytes after it were never acknowledged", scan.torn_bytes);
    return {};
  }

  io::Device& device_;
  const std::string directory_;
  const uint32_t shard_;
  Sink sink_;
  bool rows_ = false;
  ShardManifest manifest_;
  std::vector<std::string> names_;
  std::set<std::string> used_;
  std::set<uint32_t> logs_;
  std::optional<std::pair<Key, uint64_t>> before_;  // the row in front: its key and its end
  ShardVerification found_;
};

}  // namespace

Result<std::vector<uint32_t>> list_shards(io::Device& device, const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(const auto names, device.list(directory));
  std::set<uint32_t> shards;
  for (const std::string& name : names) {
    unsigned shard = 0;
    uint32_t job = 0, number = 0;
    ShardFileKind kind{};
    if (std::sscanf(name.c_str(), "shard-%u.", &shard) == 1 &&
        parse_shard_file_name(name, shard, &job, &kind, &number))
      shards.insert(shard);
  }
  return std::vector<uint32_t>(shards.begin(), shards.end());
}

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

Status dump_shard(io::Device& device, const std::string& directory, uint32_t shard, bool rows,
                  const std::function<void(const std::string& line)>& sink) {
  return contain([&]() -> Status {
    Walk walk(device, directory, shard);
    walk.set_sink(sink, rows);
    SWALE_RETURN_IF_ERROR(walk.run());
    if (walk.found().problems.empty()) return {};
    return walk.found().problems.front();
  });
}

}  // namespace swale::meta
