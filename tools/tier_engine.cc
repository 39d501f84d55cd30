#include "tools/tier_engine.h"

#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>

#include "base/json.h"
#include "fs/tier_fs.h"
#include "io/lock_file.h"
#include "tier/log/log_format.h"
#include "tier/log/loss_list.h"
#include "tier/store/store.h"
#include "tier/store/store_seal.h"
#include "tools/bytes_text.h"

namespace swale::tools {
namespace {

enum class Part { kNone, kSsd, kBacking, kMountpoint };

std::string private_file(const std::string& backing, std::string_view name) {
  return fmt::format("{}/{}/{}", backing, tier::kPrivateDirectory, name);
}

bool is_mountpoint(const std::string& path) {
  return ::getxattr(path.c_str(), fs::kStatsAttribute, nullptr, 0) >= 0;
}

// A seal, a log that begins or ends with a segment header, or a log beside which a queue lies: one is enough,
// because the others may be damaged or missing.
bool is_ssd_directory(io::Device& device, const std::string& path) {
  if (const auto seal = tier::read_seal(device, path); seal.ok() && *seal) return true;
  const auto names = device.list(path);
  if (!names.ok() || std::find(names->begin(), names->end(), "log") == names->end()) return false;
  if (std::any_of(names->begin(), names->end(), [](const auto& name) { return name.starts_with("queue."); }))
    return true;
  const auto log = device.open(path + "/log", io::OpenMode::kRead);
  if (!log.ok()) return false;
  const auto size = (*log)->size();
  std::string header(tier::kSegmentHeaderBytes, '\0');
  if (!size.ok() || *size < header.size()) return false;
  for (const uint64_t at : {uint64_t{0}, *size - header.size()}) {
    if (!io::read_exactly(**log, at, header).ok()) continue;
    const Code code = tier::decode_segment_header(header).status().code();
    if (code == Code::kOk || code == Code::kUnsupported) return true;
  }
  return false;
}

Part part_of(io::Device& device, const std::string& path) {
  if (is_mountpoint(path)) return Part::kMountpoint;
  if (is_ssd_directory(device, path)) return Part::kSsd;
  return device.list(fmt::format("{}/{}", path, tier::kPrivateDirectory)).ok() ? Part::kBacking : Part::kNone;
}

bool tier_made(io::Device& device, const std::string& path) { return part_of(device, path) != Part::kNone; }

// The directory of a path that leads to it, or to a file in it; and which of the three it is.
std::pair<std::string, Part> find(io::Device& device, std::string path) {
  constexpr int kFolderDepthMax = 2;  // BACKING/.swale-tier/lost
  Part part = part_of(device, path);
  for (int depth = 0; part == Part::kNone && depth < kFolderDepthMax; ++depth) {
    path = io::parent_directory(path);
    part = part_of(device, path);
  }
  return {std::move(path), part};
}

// The process that has the directory open; "": none.
std::string holder_of(io::Device& device, const std::string& lock) {
  const auto found = io::read_lock(device, lock);
  if (!found.ok() || io::judge_lock(*found).kind != io::LockVerdict::Kind::kAlive) return {};
  return found->content.ok() ? found->content->who() : "another version of Swale";
}

Status of_a_mount(const std::string& path) {
  return error(
      Code::kBusy, Scope::kFile,
      "{}: is the mountpoint of a tiered write buffer; its state: swale tier stats {}; to look into the log, "
      "unmount, and name the SSD directory",
      path, path);
}

Result<InfoReport> ssd_info(io::Device& device, const std::string& path) {
  Json json = {{"path", path}, {"format", kTierEngine.format}, {"part", "ssd"}};
  if (const std::string holder = holder_of(device, path + "/lock"); !holder.empty()) {
    json["in_use_by"] = holder;
    return InfoReport{
        std::move(json),
        fmt::format("{}: the SSD directory of a tiered write buffer, in use by {}; how it stands: swale tier "
                    "stats MOUNTPOINT, or of an I/O server: swale tier stats {}\n",
                    path, holder, path)};
  }
  SWALE_ASSIGN_OR_RETURN(const tier::LogReport report, tier::Store::inspect(device, path, {}));
  json.update(json_of(report));
  json["problems"] = report.problems.size();
  std::string text = fmt::format(
      "{}: the SSD directory of a tiered write buffer; nobody has it open\nlog {:016x}: {} of {} segments of "
      "{} bytes are in "
      "use, {} records with {} bytes, {} writes in the queue\n",
      path, report.log_id, report.live_segments, report.segments, report.segment_bytes, report.records,
      report.payload_bytes, report.queued);
  text += report.problems.empty()
              ? "Use it with its backing directory: swale tier mount, or swale tier drain.\n"
              : fmt::format("{} PROBLEMS: swale verify {} names them\n", report.problems.size(), path);
  return InfoReport{std::move(json), std::move(text)};
}

Result<tier::LossList> losses_of(io::Device& device, const std::string& backing) {
  const std::string path = private_file(backing, "lost");
  const auto text = io::read_file(device, path, kJsonBytesMax);
  if (text.status().code() == Code::kNotFound) return tier::LossList();
  SWALE_RETURN_IF_ERROR(text.status());
  return tier::decode_loss_list(*text, path);
}

std::string words_of(const tier::LostRange& range) {
  return fmt::format("file {:016x}: bytes {} to {} are lost ({}){}", range.file, range.offset,
                     range.offset + range.length, tier::loss_reason_name(range.reason),
                     range.accepted ? ", accepted" : "");
}

Result<InfoReport> backing_info(io::Device& device, const std::string& path) {
  const auto marker = io::read_file(device, private_file(path, "log"), 256);
  if (!marker.ok() && marker.status().code() != Code::kNotFound) return marker.status();
  const std::string log = marker.ok() ? marker->substr(0, marker->find('\n')) : "no log yet";
  // What was abandoned by a process that went on has a second line: its queue may have writes.
  const bool drained =
      marker.ok() && marker->starts_with("abandoned ") && marker->find("\nqueues ") == std::string::npos;
  const std::string holder = holder_of(device, private_file(path, "lock"));
  SWALE_ASSIGN_OR_RETURN(const tier::LossList losses, losses_of(device, path));
  SWALE_ASSIGN_OR_RETURN(const auto kept, tier::Store::kept(device, path));
  Json json = {{"path", path}, {"format", kTierEngine.format}, {"part", "backing"},
               {"log", log},   {"lost", losses.ranges.size()}, {"kept", json_of(kept)}};
  if (!holder.empty()) json["in_use_by"] = holder;
  return InfoReport{
      std::move(json),
      fmt::format("{}: the backing directory of a tiered write buffer ({}), {}; {} lost ranges\n{}{}\n", path,
                  log, holder.empty() ? "nobody has it open" : "in use by " + holder, losses.ranges.size(),
                  kept.empty() ? ""
                               : fmt::format("BYTES OF {} FILES ARE KEPT ASIDE: swale verify {} names them\n",
                                             kept.size(), path),
                  drained
                      ? "Everything was drained: another SSD directory may be used"
                      : fmt::format("Files may have older bytes here until: swale tier drain SSD {}", path))};
}

Result<InfoReport> tier_info(const std::string& wanted) {
  io::PosixDevice device({}, wanted);
  const auto [path, part] = find(device, wanted);
  if (part == Part::kSsd) return ssd_info(device, path);
  if (part == Part::kBacking) return backing_info(device, path);
  SWALE_ASSIGN_OR_RETURN(const Json stats, ask_tier(path));
  Json json = {{"path", path}, {"format", kTierEngine.format}, {"part", "mountpoint"}};
  json.update(stats);
  return InfoReport{std::move(json), fmt::format("{}: the mountpoint of a tiered write buffer\n{}", path,
                                                 tier_stats_table(stats))};
}

Result<VerifyReport> tier_verify(const std::string& wanted, const VerifyRequest& request) {
  io::PosixDevice device({}, wanted);
  const auto [path, part] = find(device, wanted);
  if (part == Part::kMountpoint) return of_a_mount(path);
  VerifyReport report;
  if (part == Part::kSsd) {
    SWALE_RETURN_IF_ERROR(expect_unused(device, path));
    SWALE_ASSIGN_OR_RETURN(tier::LogReport found, tier::Store::inspect(device, path, {}));
    report.problems = std::move(found.problems);
    report.checked = {{"segments", "segments", found.segments},
                      {"records", "records", found.records},
                      {"payload_bytes", "bytes of payload", found.payload_bytes},
                      {"queued", "writes in the queue", found.queued}};
  } else {
    SWALE_ASSIGN_OR_RETURN(const tier::LossList losses, losses_of(device, path));
    for (const tier::LostRange& range : losses.ranges)
      if (!range.accepted) report.problems.push_back(corruption("{}: {}", path, words_of(range)));
    SWALE_ASSIGN_OR_RETURN(const auto kept, tier::Store::kept(device, path));
    for (const tier::KeptBytes& each : kept) report.problems.push_back(each.text());
    report.checked = {
        {"lost_ranges", "lost ranges; the log is verified by its SSD directory", losses.ranges.size()}};
  }
  if (report.problems.size() > request.problems_max) report.problems.resize(request.problems_max);
  return report;
}

Result<StatsReport> tier_stats(const std::string& wanted, const StatsRequest& request) {
  if (request.epoch) return invalid_argument("{}: a tiered write buffer has no epochs", wanted);
  io::PosixDevice device({}, wanted);
  const auto [path, part] = find(device, wanted);
  auto stats = ask_tier(path);
  if (part != Part::kMountpoint && stats.status().code() == Code::kInvalidArgument)
    return error(
        Code::kUnsupported, Scope::kOperation,
        "{}: a tiered write buffer counts while it is mounted: swale tier stats MOUNTPOINT; what lies here: "
        "swale info {}",
        path, path);
  SWALE_RETURN_IF_ERROR(stats.status());
  StatsReport report;
  if (request.show == StatsRequest::Show::kJson)
    report.lines.push_back(*std::move(stats));
  else
    report.text = tier_stats_table(*stats);
  return report;
}

Status tier_dump(io::Device& device, const std::string& wanted, DumpOutput* out) {
  const auto [path, part] = find(device, wanted);
  if (part == Part::kMountpoint) return of_a_mount(path);
  if (part == Part::kBacking) {
    SWALE_ASSIGN_OR_RETURN(const tier::LossList losses, losses_of(device, path));
    out->begin_file(private_file(path, "lost"));
    for (const tier::LostRange& range : losses.ranges)
      out->line({{"what", "lost"},
                 {"offset", range.offset},
                 {"id", hex16(range.file)},
                 {"length", range.length},
                 {"reason", tier::loss_reason_name(range.reason)},
                 {"accepted", range.accepted}});
    out->end_file();
    return {};
  }
  SWALE_RETURN_IF_ERROR(expect_unused(device, path));
  out->begin_file(path);
  const auto show_record = [&](const tier::LogRecord& record) { out->line(json_of(record)); };
  const auto show_file = [&](const tier::KnownFile& file) {
    out->line({{"what", file.removed ? "removed file" : "known file"},
               {"offset", file.address},
               {"in", "files"},
               {"id", hex16(file.file)},
               {"inode", file.inode},
               {"path", file.path}});
  };
  const auto report = tier::Store::inspect(device, path, show_record, show_file);
  SWALE_RETURN_IF_ERROR(report.status());
  for (const Status& problem : report->problems) out->damage(0, problem);
  out->end_file();
  return {};
}

Result<RepairReport> tier_repair(io::Device&, const std::string& path, const RepairRequest&) {
  return error(
      Code::kUnsupported, Scope::kOperation,
      "{}: a tiered write buffer recovers when it is mounted; without a mount: swale tier recover SSD "
      "BACKING",
      path);
}

}  // namespace

Status expect_unused(io::Device& device, const std::string& ssd) {
  const std::string holder = holder_of(device, ssd + "/lock");
  if (holder.empty()) return {};
  return error(Code::kBusy, Scope::kFile,
               "{}: is in use by {}, so its log changes while it is read; ask the mount (swale tier stats "
               "MOUNTPOINT) or the I/O server (swale tier stats {}), or end it first",
               ssd, holder, ssd);
}

Status expect_marked(io::Device& device, const std::string& backing) {
  SWALE_ASSIGN_OR_RETURN(const bool there, device.exists(backing));
  SWALE_ASSIGN_OR_RETURN(const bool marked, device.exists(private_file(backing, "log")));
  if (!there || marked) return {};  // opening the store says what is not there
  return invalid_argument(
      "{}: was not used with a log yet; name the backing directory that this log was made for", backing);
}

std::string tier_lock_path(io::Device& device, std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (path.ends_with(fmt::format("/{}", tier::kPrivateDirectory))) path = io::parent_directory(path);
  const Part part = part_of(device, path);
  return part == Part::kSsd ? path + "/lock" : part == Part::kBacking ? private_file(path, "lock") : "";
}

Json json_of(const tier::LogRecord& record) {
  return {{"what", record.type},         {"offset", record.address}, {"in", record.place},
          {"id", hex16(record.file)},    {"begin", record.offset},   {"length", record.length},
          {"sequence", record.sequence}, {"segment", record.segment}};
}

Json json_of(const tier::LogReport& report) {
  return {{"log", hex16(report.log_id)},
          {"segments", report.segments},
          {"segment_bytes", report.segment_bytes},
          {"live_segments", report.live_segments},
          {"records", report.records},
          {"payload_bytes", report.payload_bytes},
          {"queued", report.queued},
          {"generation", report.generation},
          {"closed", report.closed}};
}

Json json_of(const std::vector<tier::KeptBytes>& kept) {
  Json all = Json::array();
  for (const tier::KeptBytes& each : kept)
    all.push_back({{"path", each.path},
                   {"file", hex16(each.file)},
                   {"bytes", each.bytes},
                   {"kept_in", each.kept_in},
                   {"why", each.why}});
  return all;
}

constexpr Engine kTierEngine = {.format = "swale-tier",
                                .directory = "directory of a tiered write buffer",
                                .made = tier_made,
                                .info = tier_info,
                                .verify = tier_verify,
                                .stats = tier_stats,
                                .dump = tier_dump,
                                .repair = tier_repair};

}  // namespace swale::tools
