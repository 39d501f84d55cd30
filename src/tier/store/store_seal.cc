#include "tier/store/store_seal.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/log.h"

namespace swale::tier {
namespace {

std::array<std::string, 2> seal_paths(const std::string& ssd_directory) {
  return {ssd_directory + "/seal", ssd_directory + "/seal.copy"};
}

// How to go on without the log, for one that knows that nothing in it is missed.
std::string how_to_give_up(const StoreOptions& options) {
  return fmt::format(
      "if nobody has a newer one, accept the loss of what the log holds: remove {}/log and {}/seal*, then "
      "swale tier recover --accept-loss {} {}",
      options.ssd_directory, options.ssd_directory, options.ssd_directory, options.backing_directory);
}

Status refused(const OpenedStore& opened, std::string_view what) {
  return error(Code::kCorruption, Scope::kFatal, "{}: {}; {}", opened.options.ssd_directory, what,
               how_to_give_up(opened.options));
}

}  // namespace

Result<std::optional<LogSeal>> read_seal(io::Device& device, const std::string& ssd_directory) {
  std::optional<LogSeal> newest;
  Status damaged;
  for (const std::string& path : seal_paths(ssd_directory)) {
    const auto bytes = io::read_file(device, path, kSealBytesMax);
    if (!bytes.ok() && bytes.status().code() == Code::kNotFound) continue;
    if (!bytes.ok()) return bytes.status();
    auto seal = decode_log_seal(*bytes, path);
    if (!seal.ok()) {
      if (damaged.ok()) damaged = seal.status();
      continue;
    }
    // Of two with one generation the closed one is newer: a clean end was writing them.
    const auto age = [](const LogSeal& each) { return std::pair(each.generation, each.closed); };
    if (!newest || age(*seal) > age(*newest)) newest = *std::move(seal);
  }
  if (!newest && !damaged.ok()) return damaged;
  return newest;
}

Status write_seal(io::Device& device, const std::string& ssd_directory, const LogSeal& seal) {
  const std::string bytes = encode_log_seal(seal);
  for (const std::string& path : seal_paths(ssd_directory))
    SWALE_RETURN_IF_ERROR(io::replace_file(device, path, bytes));
  return {};
}

void remove_seal(io::Device& device, const std::string& ssd_directory) {
  for (const std::string& path : seal_paths(ssd_directory)) static_cast<void>(device.remove(path));
}

Status take_seal(io::Device& device, const SegmentHeader& geometry, OpenedStore* opened) {
  const Marker& marker = opened->marker;
  auto seal = read_seal(device, opened->options.ssd_directory);
  if (!seal.ok() && seal.status().code() != Code::kCorruption) return seal.status();
  if (!seal.ok()) {
    if (!opened->options.accept_loss)
      return refused(*opened,
                     fmt::format("both copies of the log's seal are damaged ({}): restore one of them",
                                 seal.status().message()));
    opened->report.damaged.push_back(seal.status());
    return {};
  }
  opened->seal = *std::move(seal);
  if (!opened->seal && marker.generation == 0) return {};  // of a log that was never opened
  if (!opened->seal)
    return opened->options.accept_loss
               ? ok_status()
               : refused(*opened,
                         "the log's seal is missing (files seal and seal.copy): restore one of them");
  const LogSeal& found = *opened->seal;
  if (const Status belongs = check_belongs(found, geometry, opened->options.ssd_directory); !belongs.ok())
    return error(Code::kCorruption, Scope::kFatal, "{}; {}", belongs.message(),
                 how_to_give_up(opened->options));
  if (found.generation < marker.generation)
    return refused(
        *opened,
        fmt::format(
            "is an older copy: it was opened {} times, and {} has been used with it {} times; bring the "
            "newest one back",
            found.generation, opened->options.backing_directory, marker.generation));
  if (found.generation > marker.generation + 1)
    return refused(
        *opened,
        fmt::format("{} is an older copy: it was used {} times, and the log has been opened {} times; "
                    "bring the newest one back",
                    opened->options.backing_directory, marker.generation, found.generation));
  return {};
}

std::optional<KnownGeneration> known_generation(const std::optional<LogSeal>& seal, uint32_t segment) {
  if (!seal || segment >= seal->segments.size()) return std::nullopt;
  return KnownGeneration{seal->segments[segment].generation, seal->closed};
}

Status check_sealed_records(const io::File& log, OpenedStore* opened) {
  if (!opened->seal || !opened->seal->closed) return {};
  const std::vector<Status> missing = missing_records(*opened->seal, opened->found.segments, log.path());
  if (missing.empty()) return {};
  if (!opened->options.accept_loss)
    return missing.front().with_context(fmt::format(
        "{}: bring the log back from a copy of this clean end, or give the bytes up with swale tier recover "
        "--accept-loss",
        opened->options.ssd_directory));
  opened->report.damaged.insert(opened->report.damaged.end(), missing.begin(), missing.end());
  return {};
}

Status check_sealed_queues(OpenedStore* opened) {
  if (!opened->seal || !opened->seal->closed) return {};
  uint64_t named = 0;
  std::string names;
  for (const QueueSeal& queue : opened->seal->queues) {
    named += queue.records;
    names += (names.empty() ? "" : ", ") + queue.name;
  }
  const uint64_t found = opened->found.queued.size() + opened->found.queued_damaged.size();
  if (found >= named) return {};
  const Status missing = corruption(
      "{}: {} of the {} writes in the queues ({}) that the clean end of the log has sealed are not there: "
      "acknowledged bytes are lost; bring the files back, or give the bytes up with swale tier recover "
      "--accept-loss",
      opened->options.ssd_directory, named - found, named, names);
  if (!opened->options.accept_loss) return missing;
  opened->report.damaged.push_back(missing);
  return {};
}

Status check_counters(const OpenedStore& opened) {
  const auto check = [&](const RecordHeader& record) -> Status {
    if (record.sequence <= kSequenceMax) return {};
    return refused(
        opened, fmt::format("log or queue: the record at address {} has sequence {}, which is out of range",
                            record.address, record.sequence));
  };
  const auto check_all = [&](const std::vector<RecordHeader>& records,
                             const std::vector<DamagedRecord>& damaged) -> Status {
    for (const RecordHeader& record : records) SWALE_RETURN_IF_ERROR(check(record));
    for (const DamagedRecord& record : damaged) SWALE_RETURN_IF_ERROR(check(record.header));
    return {};
  };
  for (const SegmentScan& scan : opened.found.segments) {
    const SegmentHeader& header = scan.header;
    if (header.sequence > kSequenceMax || header.generation > kErasuresMax)
      return refused(opened,
                     fmt::format("log: segment {} has sequence {} and generation {}, which is out of range",
                                 header.index, header.sequence, header.generation));
    SWALE_RETURN_IF_ERROR(check_all(scan.records, scan.damaged));
  }
  return check_all(opened.found.queued, opened.found.queued_damaged);
}

Status raise_generation(io::Device& device, OpenedStore* opened) {
  LogSeal seal;
  seal.log_id = opened->options.engine.log_id;
  seal.generation = std::max(opened->marker.generation, opened->seal ? opened->seal->generation : 0) + 1;
  for (const SegmentScan& scan : opened->found.segments)
    seal.segments.push_back({scan.header.generation, {}});
  Marker marker = opened->marker;
  marker.generation = seal.generation;
  Status raised = write_seal(device, opened->options.ssd_directory, seal);
  if (raised.ok())
    raised = io::replace_file(device, marker_path(opened->options.backing_directory), encode_marker(marker));
  if (!raised.ok()) {  // as it was, as far as that is possible: a clean end stays sealed
    if (opened->seal) static_cast<void>(write_seal(device, opened->options.ssd_directory, *opened->seal));
    return raised;
  }
  opened->marker = marker;
  opened->seal = std::move(seal);
  return {};
}

// Nothing is under way any more.
void StoreCore::seal_log() {
  const auto seal_it = [this]() -> Status {
    LogSeal seal = *opened_.seal;
    {
      const MutexLock lock(mutex_);
      auto segments = engine_->segment_seals();
      if (!segments) return {};  // the log has failed, or was abandoned
      seal.segments = *std::move(segments);
    }
    SWALE_RETURN_IF_ERROR(opened_.log->sync());
    SWALE_ASSIGN_OR_RETURN(const auto names, device_.list(opened_.options.ssd_directory));
    for (const OpenedStore::OldQueue& queue : opened_.old_queues) {
      const std::string name = queue.path.substr(queue.path.rfind('/') + 1);
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;  // it was flushed
      std::vector<DamagedRecord> damaged;
      uint64_t records = 0;
      for (const uint64_t id : {opened_.options.engine.log_id, opened_.marker.queues_log_id}) {
        if (id == 0 || records > 0) continue;
        SWALE_ASSIGN_OR_RETURN(const auto left, SharedQueue::left_in(*queue.file, id, &damaged));
        records = left.size() + damaged.size();
      }
      seal.queues.push_back({name, records});
    }
    seal.closed = true;
    return write_seal(device_, opened_.options.ssd_directory, seal);
  };
  // Without it the next opening takes this end for that of a killed process: nothing is lost.
  const Status sealed = contain(seal_it);
  if (!sealed.ok())
    log_warn("{}: the log is not sealed: {}", opened_.options.ssd_directory, sealed.message());
}

}  // namespace swale::tier
