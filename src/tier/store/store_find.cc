// Opening a store: the files that the log's records name, found by the ids in their attributes.
//
// Two files with one id (a copy that took the attribute along, or somebody's forgery) are set apart. Nobody knows whose the records
// are, so neither file gets them: they go to a file of their own, .swale-tier/apart.ID. Both files get new ids, and their ranges that
// the records name are lost until they are overwritten or accepted, so that nobody reads older bytes unawares. The order of
// steps lets a kill between any two of them be finished by the next opening: the file apart has the id first, and the list of
// losses is durable before a file has its new id.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_set>

#include "base/coding.h"
#include "tier/store/store_core.h"

namespace swale::tier {
namespace {

constexpr std::string_view kApart = "apart.";

// The ids that records name.
std::unordered_set<uint64_t> named_files(const OpenedStore& opened) {
  std::unordered_set<uint64_t> ids;
  for (const RecordHeader& record : opened.found.queued) ids.insert(record.file);
  for (const DamagedRecord& record : opened.found.queued_damaged) ids.insert(record.header.file);
  for (const SegmentScan& scan : opened.found.segments) {
    for (const RecordHeader& record : scan.records)
      if (record.type != RecordType::kSettled) ids.insert(record.file);
    for (const DamagedRecord& record : scan.damaged) ids.insert(record.header.file);
  }
  for (const LostRange& range : opened.found.losses.ranges) ids.insert(range.file);
  return ids;
}

std::string path_of_apart(uint64_t id) { return fmt::format("{}/{}{:016x}", kPrivateDirectory, kApart, id); }

// Ids that were set apart before.
Result<std::unordered_set<uint64_t>> apart_before(const OpenedStore& opened) {
  std::unordered_set<uint64_t> ids;
  SWALE_ASSIGN_OR_RETURN(
      const auto names,
      opened.device->list(fmt::format("{}/{}", opened.options.backing_directory, kPrivateDirectory)));
  for (const std::string& name : names)
    if (name.starts_with(kApart)) ids.insert(std::strtoull(name.c_str() + kApart.size(), nullptr, 16));
  return ids;
}

// What the log names of a file's id, as losses of another id.
void lose_what_is_named(const OpenedStore& opened, uint64_t id, uint64_t as, std::vector<LostRange>* ranges) {
  const auto lose = [&](const RecordHeader& record) {
    const bool writes = record.type == RecordType::kWrite || record.type == RecordType::kQueued;
    if (record.file != id || !writes || record.length == 0) return;
    ranges->push_back({.file = as,
                       .offset = record.offset,
                       .length = record.length,
                       .sequence = record.sequence,
                       .address = LostRange::kNoAddress,
                       .reason = LossReason::kTwoFiles});
  };
  for (const SegmentScan& scan : opened.found.segments) {
    for (const RecordHeader& record : scan.records) lose(record);
    for (const DamagedRecord& record : scan.damaged) lose(record.header);
  }
  for (const RecordHeader& record : opened.found.queued) lose(record);
  for (const DamagedRecord& record : opened.found.queued_damaged) lose(record.header);
  for (const LostRange& range : std::vector(opened.found.losses.ranges)) {
    if (range.file != id || range.accepted) continue;
    ranges->push_back(range);
    ranges->back().file = as;
  }
}

Status set_apart(uint64_t id, const std::vector<std::string>& paths, OpenedStore* opened) {
  io::Device& device = *opened->device;
  const std::string root = opened->options.backing_directory + "/";
  SWALE_ASSIGN_OR_RETURN(const auto apart,
                         device.open(root + path_of_apart(id), io::OpenMode::kOpenOrCreate));
  SWALE_RETURN_IF_ERROR(set_file_id(*apart, opened->id_attribute, id));
  SWALE_RETURN_IF_ERROR(apart->sync());
  SWALE_RETURN_IF_ERROR(device.sync_directory(fmt::format("{}{}", root, kPrivateDirectory)));
  std::vector<uint64_t> fresh;
  LossList& losses = opened->found.losses;
  if (losses.ranges.empty()) losses.log_id = opened->options.engine.log_id;
  for (size_t i = 0; i < paths.size(); ++i) {
    fresh.push_back(random_id());
    lose_what_is_named(*opened, id, fresh.back(), &losses.ranges);
  }
  SWALE_RETURN_IF_ERROR(
      io::replace_file(device, losses_path(opened->options.backing_directory), encode_loss_list(losses)));
  std::string all;
  for (size_t i = 0; i < paths.size(); ++i) {
    SWALE_ASSIGN_OR_RETURN(const auto file, open_backing(device, root + paths[i]));
    const auto is = file_id_of(*file, opened->id_attribute);
    if (!is.ok() || *is != id) continue;  // it is another one by now
    SWALE_RETURN_IF_ERROR(set_file_id(*file, opened->id_attribute, fresh[i]));
    SWALE_RETURN_IF_ERROR(file->sync());
    opened->files.emplace_back(paths[i], fresh[i]);
    all += (all.empty() ? "" : " and ") + paths[i];
  }
  opened->report.damaged.push_back(corruption(
      "{}: {} had the same id {:016x}, so nobody knows whose its writes in the log are: they are kept in {}, and these "
      "ranges of the files are refused; copy them to the file that they belong to, which ends the refusal, and accept the "
      "loss for the other one: swale tier recover --accept-loss",
      opened->options.backing_directory, all, id, path_of_apart(id)));
  return {};
}

}  // namespace

Status find_files(OpenedStore* opened) {
  const auto named = named_files(*opened);
  if (named.empty()) return {};
  SWALE_ASSIGN_OR_RETURN(const auto apart, apart_before(*opened));
  struct Found {
    std::vector<std::string> paths;
    std::vector<std::pair<dev_t, ino_t>> files;
  };
  std::map<uint64_t, Found> found;
  const std::filesystem::path root = opened->options.backing_directory;
  std::error_code failed;
  std::filesystem::recursive_directory_iterator walk(root, failed), end;
  for (; !failed && walk != end; walk.increment(failed)) {
    if (walk->path().filename() == kPrivateDirectory) {
      walk.disable_recursion_pending();
      continue;
    }
    if (!walk->is_regular_file(failed) || walk->is_symlink(failed)) continue;
    char id[8];
    if (::lgetxattr(walk->path().c_str(), opened->id_attribute, id, sizeof(id)) != sizeof(id)) continue;
    const uint64_t name = get_u64(id);
    struct stat attributes;
    if (!named.contains(name) || ::lstat(walk->path().c_str(), &attributes) != 0) continue;
    Found& same = found[name];
    const std::pair<dev_t, ino_t> file(attributes.st_dev, attributes.st_ino);
    if (std::find(same.files.begin(), same.files.end(), file) != same.files.end()) continue;  // another name
    same.files.push_back(file);
    same.paths.push_back(walk->path().lexically_relative(root).string());
  }
  if (failed)
    return error(Code::kIoError, Scope::kFatal, "{}: cannot be searched for the files of the log: {}",
                 root.string(), failed.message());
  for (const auto& [id, same] : found) {
    if (same.paths.size() == 1 && !apart.contains(id)) {
      opened->files.emplace_back(same.paths.front(), id);
      continue;
    }
    SWALE_RETURN_IF_ERROR(set_apart(id, same.paths, opened));
    if (!apart.contains(id)) opened->files.emplace_back(path_of_apart(id), id);
  }
  for (const uint64_t id : apart)
    if (named.contains(id)) opened->files.emplace_back(path_of_apart(id), id);
  return {};
}

}  // namespace swale::tier
