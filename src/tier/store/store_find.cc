// Opening a store: the files that the log's records name.
//
// Each is looked for by what the table of files says of it (file_identity.h); only what that does not find is
// looked for by its id, in the whole backing directory. A file that is found neither way has its bytes kept
// (store_keep.h), unless the table says that it was removed; it is looked for all the same, because a power
// cut may have undone the removal. A path alone is never believed: a file that was renamed would give its
// bytes to the next one of its name.
//
// Two files with one id (a copy that took the attribute along, or somebody's forgery) are set apart, if the
// table does not know which one it is. Nobody knows whose the records are, so neither file gets them: they go
// to a file of their own, .swale-tier/apart.ID. Both files get new ids, and their ranges that the records
// name are lost until they are overwritten or accepted, so that nobody reads older bytes unawares. The order
// of steps lets a kill between any two of them be finished by the next opening: the file apart has the id
// first, and the list of losses is durable before a file has its new id.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <unordered_set>

#include "base/coding.h"
#include "base/log.h"
#include "io/beneath.h"
#include "tier/store/file_identity.h"
#include "tier/store/store_core.h"
#include "tier/store/store_keep.h"
#include "tier/store/store_search.h"

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

Status set_apart(uint64_t id, const std::vector<Holder>& holders, OpenedStore* opened) {
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
  for (size_t i = 0; i < holders.size(); ++i) {
    fresh.push_back(random_id());
    lose_what_is_named(*opened, id, fresh.back(), &losses.ranges);
  }
  SWALE_RETURN_IF_ERROR(
      io::replace_file(device, losses_path(opened->options.backing_directory), encode_loss_list(losses)));
  std::string all;
  for (size_t i = 0; i < holders.size(); ++i) {
    SWALE_ASSIGN_OR_RETURN(auto file, open_backing(device, holders[i].fd.get(), root + holders[i].path));
    const auto is = file_id_of(*file, opened->id_attribute);
    if (!is.ok() || *is != id) continue;  // it is another one by now
    SWALE_RETURN_IF_ERROR(set_file_id(*file, opened->id_attribute, fresh[i]));
    SWALE_RETURN_IF_ERROR(file->sync());
    opened->files.push_back({std::move(file), fresh[i]});
    all += (all.empty() ? "" : " and ") + holders[i].path;
  }
  opened->report.damaged.push_back(corruption(
      "{}: {} had the same id {:016x}, so nobody knows whose its writes in the log are: they are kept in "
      "{}, and these ranges of the files are refused; copy them to the file that they belong to, which ends "
      "the refusal, and accept the loss for the other one: swale tier recover --accept-loss",
      opened->options.backing_directory, all, id, path_of_apart(id)));
  return {};
}

// The file that has the bytes of an id that several files had.
Status take_apart(uint64_t id, OpenedStore* opened) {
  SWALE_ASSIGN_OR_RETURN(
      auto file, open_backing(*opened->device, opened->options.backing_directory + "/" + path_of_apart(id)));
  opened->files.push_back({std::move(file), id});
  return {};
}

// What is looked for, and why it is missing.
struct Quest {
  std::map<uint64_t, FileIdentity> wanted;  // by id; an inode of 0: nothing is known of it
  // The removal is in the table, but a power cut may have undone it in the backing directory: these are
  // looked for, too. The identity as the table has it.
  std::map<uint64_t, FileIdentity> removed;
  std::map<uint64_t, FileIdentity> given_up;  // with accept_loss, now or before
  std::map<uint64_t, std::string> why;
};

Quest quest_of(const std::unordered_set<uint64_t>& named, const std::map<uint64_t, FoundKept>& kept,
               const FileTableScan& table, const std::unordered_set<uint64_t>& apart,
               const BackingRoot& root) {
  Quest quest;
  for (const uint64_t id : named) quest.wanted[id];
  for (const auto& [id, each] : kept) quest.wanted[id] = each.kept.identity;
  for (const FileEntry& entry : table.entries) {
    const auto wanted = quest.wanted.find(entry.file);
    if (wanted == quest.wanted.end() || apart.contains(entry.file)) continue;
    wanted->second = entry.identity;
    quest.removed.erase(entry.file);
    quest.given_up.erase(entry.file);
    if (entry.kind == FileEntryKind::kGivenUp && !kept.contains(entry.file))
      quest.given_up[entry.file] = entry.identity;
    if (entry.kind == FileEntryKind::kRemoved) quest.removed[entry.file] = entry.identity;
  }
  // Also of a file that is there again: it may have newer bytes than the records, under another id.
  for (const auto& [id, identity] : quest.given_up) quest.wanted.erase(id);
  for (auto& [id, identity] : quest.wanted)
    if (!is_of_root(identity, root)) identity = {.path = std::move(identity.path)};
  return quest;
}

// A file that its owner may not open, and whom another user owns: the bytes are kept until that has changed.
bool is_forbidden(const Status& status) {
  return status.error_number() == EACCES || status.error_number() == EPERM;
}

// Opens the file of an id. False: it may not be opened.
Result<bool> take_file(uint64_t id, int fd, const std::string& path, Quest* quest, OpenedStore* opened) {
  quest->removed.erase(id);  // it is there
  auto file = open_backing(*opened->device, fd, opened->options.backing_directory + "/" + path);
  if (!file.ok() && is_forbidden(file.status())) {
    quest->why[id] = fmt::format("it may not be opened ({})", std::strerror(file.status().error_number()));
    return false;
  }
  if (!file.ok()) return file.status();
  const auto has = file_id_of(**file, opened->id_attribute);
  // Attributes that a mode forbids to read are nobody else's: the file was known by its inode and birth time.
  if (!has.ok() && has.status().code() != Code::kNotFound && !is_forbidden(has.status())) return has.status();
  if (!has.ok() && !is_forbidden(has.status()))
    SWALE_RETURN_IF_ERROR(set_file_id(**file, opened->id_attribute, id));
  opened->files.push_back({std::move(*file), id});
  quest->wanted.erase(id);
  return true;
}

Status find_known(int root, Quest* quest, OpenedStore* opened) {
  for (const auto& [id, identity] : std::map(quest->wanted)) {
    if (identity.inode == 0) continue;
    std::string why;
    bool gone = false;
    const io::Descriptor fd = open_identity(root, identity, id, opened->id_attribute, &why, &gone);
    if (!fd.valid()) {
      quest->why[id] = why;
      if (gone && quest->removed.contains(id)) quest->wanted.erase(id);  // a removal needs no search
      continue;
    }
    SWALE_RETURN_IF_ERROR(take_file(id, fd.get(), identity.path, quest, opened).status());
  }
  return {};
}

// What was set apart before has its file already; a kill may have left the id with the others.
Status find_others(int root, const std::unordered_set<uint64_t>& named,
                   const std::unordered_set<uint64_t>& apart, Quest* quest, OpenedStore* opened) {
  if (quest->wanted.empty()) return {};
  const std::map<uint64_t, FileIdentity> wanted = quest->wanted;
  Search search(*opened, wanted);
  search.run(root);
  for (auto& [id, holders] : search.found()) {
    // The table's own file has the bytes, and not a copy that took the id along: it does not get those of a
    // removed file either.
    const bool known =
        std::any_of(holders.begin(), holders.end(), [](const Holder& each) { return each.meant; });
    if (known || (quest->removed.contains(id) && wanted.at(id).inode != 0))
      std::erase_if(holders, [](const Holder& each) { return !each.meant; });
    if (holders.empty()) continue;
    const bool parted = apart.contains(id);
    if (holders.size() == 1 && !parted) {
      SWALE_RETURN_IF_ERROR(
          take_file(id, holders.front().fd.get(), holders.front().path, quest, opened).status());
    } else if (named.contains(id)) {
      SWALE_RETURN_IF_ERROR(set_apart(id, holders, opened));
      if (!parted) SWALE_RETURN_IF_ERROR(take_apart(id, opened));
      quest->wanted.erase(id);
      quest->removed.erase(id);
    } else {
      quest->why[id] = "several files have its id";
    }
  }
  for (const uint64_t id : apart) quest->wanted.erase(id);
  for (const auto& [id, identity] : quest->wanted) {
    if (!quest->why.contains(id)) quest->why[id] = "it was not found";
    quest->why[id] += search.unsearched();
  }
  return {};
}

// How a user shows the file, where everything that the tier knows of it is gone: in a copy without
// attributes.
std::string how_to_show(uint64_t id, const char* attribute) {
  char bytes[8];
  put_u64(bytes, id);
  std::string hex;
  for (const char each : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(each));
  return fmt::format(" (if a file is a copy of it: setfattr -n {} -v 0x{} FILE)", attribute, hex);
}

Status keep_missing(const std::unordered_set<uint64_t>& named, const std::map<uint64_t, FoundKept>& kept,
                    Quest* quest, OpenedStore* opened) {
  for (const auto& [id, identity] : quest->wanted) {
    const auto before = kept.find(id);
    const FoundKept* const there = before == kept.end() ? nullptr : &before->second;
    if (there)
      quest->removed.erase(id);  // named until the user gives it up
    else if (quest->removed.contains(id))
      continue;
    const std::string why = quest->why[id] + how_to_show(id, opened->id_attribute);
    if (opened->options.accept_loss) {
      if (there) SWALE_RETURN_IF_ERROR(give_up_kept(*there, opened));
      if (named.contains(id) && has_news(id, opened))
        opened->report.lost.push_back(
            {identity.path, 0, 0,
             fmt::format("the log's records of file {:016x} are given up: {}", id, why)});
      quest->given_up[id] = identity;
      continue;
    }
    if (there && !there->damaged.ok()) return there->damaged;  // what it keeps may be readable by hand
    if (named.contains(id))
      SWALE_RETURN_IF_ERROR(keep_bytes(id, identity, there, why, opened));
    else
      name_kept(there->kept, why, opened);
  }
  return {};
}

// The table of all files that the log names from now on.
void make_table(const std::unordered_set<uint64_t>& named, const Quest& quest, OpenedStore* opened) {
  opened->table = std::make_unique<FileTable>(*opened->device, opened->options.ssd_directory,
                                              opened->options.engine.log_id);
  const BackingRoot root = backing_root(opened->options.backing_directory);
  std::vector<FileEntry> entries;
  for (const FoundFile& found : opened->files)
    entries.push_back({FileEntryKind::kFile, found.id, identity_of(found.file->descriptor(), root)});
  for (const auto& [id, identity] : quest.wanted)
    if (named.contains(id) && !quest.removed.contains(id) && !quest.given_up.contains(id))
      entries.push_back({FileEntryKind::kFile, id, identity});
  // With their identities: the removal may not be durable yet, and the next opening looks again.
  for (const auto& [id, identity] : quest.removed) entries.push_back({FileEntryKind::kRemoved, id, identity});
  for (const auto& [id, identity] : quest.given_up)
    entries.push_back({FileEntryKind::kGivenUp, id, identity});
  opened->table->make(entries);
}

Result<FileTableScan> read_table(OpenedStore* opened) {
  const std::string path = file_table_path(opened->options.ssd_directory);
  const auto bytes = io::read_file(*opened->device, path, kFileTableBytesMax);
  if (!bytes.ok() && bytes.status().code() == Code::kNotFound) return FileTableScan{};
  if (!bytes.ok()) return bytes.status();
  std::vector<uint64_t> ids = {opened->options.engine.log_id};
  if (opened->marker.queues_log_id != 0) ids.push_back(opened->marker.queues_log_id);
  FileTableScan scan = decode_file_table(*bytes, ids, path);
  if (!opened->report.made_anew)
    opened->report.damaged.insert(opened->report.damaged.end(), scan.problems.begin(), scan.problems.end());
  return scan;
}

// Not O_PATH where that is possible: handles want more.
Result<io::Descriptor> open_root(const std::string& path) {
  io::Descriptor root(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) root = io::Descriptor(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return errno_status(errno, path + ": opening the backing directory");
  return root;
}

}  // namespace

Status find_files(OpenedStore* opened) {
  const auto named = named_files(*opened);
  SWALE_ASSIGN_OR_RETURN(const FileTableScan table, read_table(opened));
  SWALE_ASSIGN_OR_RETURN(auto kept, read_kept(*opened->device, opened->options.backing_directory));
  SWALE_ASSIGN_OR_RETURN(const auto apart, apart_before(*opened));
  Quest quest = quest_of(named, kept, table, apart, backing_root(opened->options.backing_directory));
  if (!quest.wanted.empty()) {
    SWALE_ASSIGN_OR_RETURN(const io::Descriptor root, open_root(opened->options.backing_directory));
    SWALE_RETURN_IF_ERROR(find_known(root.get(), &quest, opened));
    SWALE_RETURN_IF_ERROR(find_others(root.get(), named, apart, &quest, opened));
  }
  for (const uint64_t id : apart)
    if (named.contains(id)) SWALE_RETURN_IF_ERROR(take_apart(id, opened));
  for (const FoundFile& found : opened->files) {
    const auto there = kept.find(found.id);
    if (there == kept.end()) continue;
    if (!there->second.damaged.ok() && opened->options.accept_loss)
      SWALE_RETURN_IF_ERROR(give_up_kept(there->second, opened));
    else
      SWALE_RETURN_IF_ERROR(bring_bytes(there->second, *found.file, opened));
  }
  // They were reported when they were given up, and are no records of removed files.
  for (const auto& [id, identity] : quest.given_up) static_cast<void>(has_news(id, opened));
  SWALE_RETURN_IF_ERROR(keep_missing(named, kept, &quest, opened));
  for (const KeptBytes& each : opened->report.kept) log_error("{}", each.text().message());
  make_table(named, quest, opened);
  return {};
}

}  // namespace swale::tier
