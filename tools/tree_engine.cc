#include "tools/tree_engine.h"

#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/crc32c.h"
#include "base/sealed_document.h"
#include "fs/job/backing_claim.h"
#include "fs/job/job_fs.h"
#include "fs/log/spill_file.h"
#include "fs/log/sync_journal.h"
#include "fs/node/files_log.h"
#include "fuse/job_mount.h"
#include "fuse/unmounted_trees.h"

namespace swale::tools {
namespace {

constexpr size_t kStatsBytesMax = 65'536;  // of an extended attribute

enum class Part { kNone, kMountpoint, kBuffer, kBacking };

bool is_there(io::Device& device, const std::string& path) {
  const auto there = device.exists(path);
  return there.ok() && *there;
}

Part part_of(io::Device& device, const std::string& path) {
  if (::getxattr(path.c_str(), fs::kJobStatsAttribute, nullptr, 0) >= 0) return Part::kMountpoint;
  if (is_there(device, path + "/" + fuse::kServeDocument)) return Part::kBuffer;
  return is_there(device, fmt::format("{}/{}/{}", path, fs::kSwaleDirectory, fs::kClaimLock)) ? Part::kBacking
                                                                                              : Part::kNone;
}

// The directory of a path that leads to it, or to what a buffer has: BUFFER/spill/spill-1-0. What is below
// the others is the user's.
std::pair<std::string, Part> find(io::Device& device, const std::string& path) {
  constexpr int kFolderDepthMax = 2;
  if (const Part part = part_of(device, path); part != Part::kNone) return {path, part};
  std::string above = path;
  for (int depth = 0; depth < kFolderDepthMax; ++depth) {
    above = io::parent_directory(above);
    if (part_of(device, above) == Part::kBuffer) return {above, Part::kBuffer};
  }
  return {path, Part::kNone};
}

bool tree_made(io::Device& device, const std::string& path) {
  return find(device, path).second != Part::kNone;
}

struct SpilledChunk {
  std::string path;
  Result<fs::SpillIndex> index = fs::SpillIndex();
};

// And what the journal of syncs has of others: a record counts as a chunk, without blocks to check.
Result<std::vector<SpilledChunk>> spilled_in(io::Device& device, const std::string& buffer) {
  const std::string folder = buffer + "/spill";
  const auto names = device.list(folder);
  if (names.status().code() == Code::kNotFound) return std::vector<SpilledChunk>();
  SWALE_RETURN_IF_ERROR(names.status());
  std::vector<SpilledChunk> chunks;
  for (const std::string& name : *names) {
    uint32_t log = 0;
    uint64_t number = 0;
    if (!fs::parse_spill_name(name, &log, &number)) continue;
    const std::string path = folder + "/" + name;
    const auto file = device.open(path, io::OpenMode::kRead);
    if (file.status().code() == Code::kNotFound) continue;  // its server lives, and has dropped it
    SWALE_RETURN_IF_ERROR(file.status());
    chunks.push_back({path, fs::read_spill_index(**file)});
  }
  std::set<std::pair<uint32_t, uint64_t>> in_files;
  for (const SpilledChunk& each : chunks)
    if (each.index.ok()) in_files.emplace(each.index->log, each.index->number);
  std::vector<Status> problems;
  const auto add = [&](const fs::JournalRecord& record) -> Status {
    if (record.entries.empty() || in_files.contains({record.log, record.number})) return {};
    const fs::SpillIndex part{record.log, record.number, record.chunk_bytes, record.end, record.entries, {}};
    chunks.push_back({folder + "/" + fs::kJournalName, part});
    return {};
  };
  SWALE_RETURN_IF_ERROR(fs::SyncJournal::look(device, folder, add, &problems));
  for (const Status& each : problems) chunks.push_back({folder + "/" + fs::kJournalName, each});
  return chunks;
}

struct Undrained {
  std::set<meta::FileId> files;
  uint64_t writes = 0, bytes = 0;
};
// Bytes that were overwritten count as long as their chunk is there.
Result<Undrained> undrained_in(io::Device& device, const std::string& buffer,
                               const std::vector<SpilledChunk>& chunks) {
  fs::FilesLog::Rows rows;
  if (is_there(device, buffer + "/spill")) {
    SWALE_ASSIGN_OR_RETURN(rows, fs::FilesLog::look(device, buffer + "/spill"));
  }
  Undrained found;
  for (const SpilledChunk& chunk : chunks) {
    if (!chunk.index.ok()) continue;
    for (const fs::SpilledEntry& each : chunk.index->entries) {
      const auto row = rows.find(each.entry.file);
      const uint64_t end = row == rows.end() ? meta::kOffsetEnd : row->second.end_of(each.order);
      if (end <= each.entry.offset) continue;
      found.files.insert(each.entry.file);
      ++found.writes;
      found.bytes += std::min<uint64_t>(each.entry.length, end - each.entry.offset);
    }
  }
  return found;
}

Result<InfoReport> buffer_info(io::Device& device, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const auto text,
                         io::read_file(device, path + "/" + fuse::kServeDocument, kStatsBytesMax));
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(text, path));
  SWALE_ASSIGN_OR_RETURN(const std::string job, document.root().text("job"));
  SWALE_ASSIGN_OR_RETURN(const auto chunks, spilled_in(device, path));
  SWALE_ASSIGN_OR_RETURN(const Undrained found, undrained_in(device, path, chunks));
  const auto damaged =
      std::count_if(chunks.begin(), chunks.end(), [](const auto& each) { return !each.index.ok(); });
  InfoReport report;
  report.json = {{"path", path},
                 {"format", kTreeEngine.format},
                 {"part", "buffer"},
                 {"job", job},
                 {"spilled_chunks", chunks.size()},
                 {"unreadable_chunks", damaged},
                 {"undrained_files", found.files.size()},
                 {"undrained_writes", found.writes},
                 {"undrained_bytes", found.bytes}};
  report.text = fmt::format(
      "{}: the buffer of a job's file system on this node, of {}\n{} spilled chunks have {} bytes of {} "
      "files, in {} writes, that are not in the backing directory yet; this node's memory may have more\n{}"
      "While its server lives: swale fs stat MOUNTPOINT; else: swale fs recover BACKING --buffer {}\n",
      path, job, chunks.size(), found.bytes, found.files.size(), found.writes,
      damaged == 0 ? ""
                   : fmt::format("{} CHUNKS CANNOT BE READ: swale verify {} names them\n", damaged, path),
      path);
  return report;
}

Result<InfoReport> backing_info(io::Device& device, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, jobs_on_backing(device, path));
  InfoReport report;
  report.json = {{"path", path}, {"format", kTreeEngine.format}, {"part", "backing"}, {"jobs", jobs}};
  report.text = fmt::format("{}: the backing directory of a job's file system\n", path);
  for (const std::string& job : jobs)
    report.text += fmt::format("{} works on it, or was killed and has not brought all to it\n", job);
  report.text += fmt::format("If no server has it mounted elsewhere (--at): swale fs recover {}\n", path);
  return report;
}

Result<InfoReport> tree_info(const std::string& wanted) {
  io::PosixDevice device({}, wanted);
  const auto [path, part] = find(device, wanted);
  if (part == Part::kBuffer) return buffer_info(device, path);
  if (part == Part::kBacking) return backing_info(device, path);
  SWALE_ASSIGN_OR_RETURN(const Json stats, ask_tree(path));
  InfoReport report;
  report.json = {{"path", path}, {"format", kTreeEngine.format}, {"part", "mountpoint"}};
  report.json.update(stats);
  report.text = fmt::format(
      "{}: the tree of a job's file system; {} files with {} bytes are not in the backing directory yet, of "
      "which {} bytes are in memory; fsync makes bytes durable {}\n",
      path, stats.value("undrained_files", 0), stats.value("undrained_bytes", uint64_t{0}),
      stats.value("memory_bytes", uint64_t{0}),
      stats.value("fsync", "") == "node" ? "on this node" : "there");
  return report;
}

// All blocks of a chunk against their checksums.
Status check_blocks(io::Device& device, const SpilledChunk& chunk) {
  SWALE_RETURN_IF_ERROR(chunk.index.status());
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(chunk.path, io::OpenMode::kRead));
  std::string block(fs::kBlockBytes, '\0');
  for (uint64_t i = 0; i < chunk.index->checks.size(); ++i) {
    const uint64_t at = i * fs::kBlockBytes;
    const auto bytes = MutableBytes(block).first(std::min<uint64_t>(block.size(), chunk.index->used - at));
    SWALE_RETURN_IF_ERROR(io::read_exactly(*file, at, bytes));
    if (const uint32_t found = crc32c(view(bytes)); found != chunk.index->checks[i])
      return corruption(
          "{}: offset {}: {} bytes have the checksum {:#x}, expected {:#x}; reads of them fail, and "
          "swale fs recover names their file",
          chunk.path, at, bytes.size(), found, chunk.index->checks[i]);
  }
  return {};
}

Result<VerifyReport> tree_verify(const std::string& wanted, const VerifyRequest& request) {
  io::PosixDevice device({}, wanted);
  const auto [path, part] = find(device, wanted);
  if (part != Part::kBuffer)
    return error(Code::kUnsupported, Scope::kOperation,
                 "{}: what a job's file system has on a node can be verified: name its buffer", path);
  SWALE_ASSIGN_OR_RETURN(const auto chunks, spilled_in(device, path));
  VerifyReport report;
  uint64_t bytes = 0;
  for (const SpilledChunk& chunk : chunks) {
    const Status whole = check_blocks(device, chunk);
    if (chunk.index.ok()) bytes += chunk.index->used;
    if (!whole.ok() && report.problems.size() < request.problems_max) report.problems.push_back(whole);
  }
  report.checked = {{"chunks", "spilled chunks", chunks.size()},
                    {"payload_bytes", "bytes of payload", bytes}};
  return report;
}

Result<StatsReport> tree_stats(const std::string& path, const StatsRequest& request) {
  if (request.epoch) return invalid_argument("{}: a job's file system has no epochs", path);
  SWALE_ASSIGN_OR_RETURN(const Json stats, ask_tree(path));
  StatsReport report;
  if (request.show == StatsRequest::Show::kJson)
    report.lines.push_back(stats);
  else
    for (const auto& [name, value] : stats.items())
      report.text += fmt::format("{:<16} {}\n", name, value.dump());
  return report;
}

Status tree_dump(io::Device& device, const std::string& wanted, DumpOutput* out) {
  const auto [path, part] = find(device, wanted);
  if (part != Part::kBuffer)
    return error(Code::kUnsupported, Scope::kOperation,
                 "{}: what a job's file system has on a node can be dumped: name its buffer", path);
  SWALE_ASSIGN_OR_RETURN(const auto chunks, spilled_in(device, path));
  for (const SpilledChunk& chunk : chunks) {
    out->begin_file(chunk.path);
    if (!chunk.index.ok()) out->damage(0, chunk.index.status());
    for (size_t i = 0; chunk.index.ok() && i < chunk.index->entries.size(); ++i) {
      const auto& [entry, order] = chunk.index->entries[i];
      out->line({{"what", "write"},
                 {"offset", entry.place},
                 {"file", fmt::format("{:x}:{:x}", entry.file.high, entry.file.low)},
                 {"at", entry.offset},
                 {"length", entry.length},
                 {"order", order}});
    }
    out->end_file();
  }
  return {};
}

Result<RepairReport> tree_repair(io::Device&, const std::string& path, const RepairRequest&) {
  return error(
      Code::kUnsupported, Scope::kOperation,
      "{}: a job's file system recovers when it is served again; without a mount: swale fs recover BACKING",
      path);
}

}  // namespace

Result<std::vector<std::string>> jobs_on_backing(io::Device& device, const std::string& path) {
  auto jobs = device.list(path + "/" + fs::kSwaleDirectory);
  if (jobs.status().code() == Code::kNotFound) return std::vector<std::string>();
  SWALE_RETURN_IF_ERROR(jobs.status());
  for (const char* const other : {fs::kClaimLock, fs::kMeetingFolder}) std::erase(*jobs, other);
  std::erase_if(*jobs, [](const std::string& name) { return name.starts_with(fs::kLostPrefix); });
  return jobs;
}

Result<Json> ask_tree(const std::string& path) {
  std::string text(kStatsBytesMax, '\0');
  const ssize_t bytes = ::getxattr(path.c_str(), fs::kJobStatsAttribute, text.data(), text.size());
  if (bytes >= 0) return Json::parse(text.substr(0, static_cast<size_t>(bytes)));
  const int why = errno;
  if (const auto place = fuse::find_unmounted(path); place.ok()) {
    text.clear();
    SWALE_RETURN_IF_ERROR(fuse::ask_unmounted(*place, fs::UnmountedCall::kStats, &text));
    return Json::parse(text);
  }
  if (why != ENODATA && why != EOPNOTSUPP) return errno_status(why, path);
  return invalid_argument("{}: no server has its tree mounted (swale serve, swale run --backing)", path);
}

const Engine kTreeEngine = {
    .format = "swale-tree",
    .directory = "directory of a job's file system",
    .made = tree_made,
    .info = tree_info,
    .verify = tree_verify,
    .stats = tree_stats,
    .dump = tree_dump,
    .repair = tree_repair,
};

}  // namespace swale::tools
