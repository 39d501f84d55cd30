// Store::inspect: the log of a store that nobody has open.
#include "tier/log/file_table_format.h"
#include "tier/log/log_format.h"
#include "tier/store/shared_queue.h"
#include "tier/store/store_core.h"
#include "tier/store/store_seal.h"

namespace swale::tier {
namespace {

std::string_view type_name(RecordType type) {
  switch (type) {
    case RecordType::kWrite:
      return "write";
    case RecordType::kPunch:
      return "punch";
    case RecordType::kTruncate:
      return "truncate";
    case RecordType::kTruncateDone:
      return "truncate done";
    case RecordType::kUnlink:
      return "unlink";
    case RecordType::kQueued:
      return "queued";
    case RecordType::kSettled:
      return "settled";
    case RecordType::kTruncateCancelled:
      return "truncate cancelled";
  }
  return "?";
}

LogRecord shown(const RecordHeader& record, const std::string& place) {
  return {place,         type_name(record.type), record.sequence, record.file,
          record.offset, record.length,          record.segment,  record.address};
}

Status inspect_files(io::Device& device, const std::string& ssd_directory, uint64_t log_id, LogReport* report,
                     const std::function<void(const KnownFile&)>& visit) {
  const std::string path = file_table_path(ssd_directory);
  const auto bytes = io::read_file(device, path, kFileTableBytesMax);
  if (!bytes.ok() && bytes.status().code() == Code::kNotFound) return {};  // ids find the files
  if (!bytes.ok()) return bytes.status();
  const FileTableScan scan = decode_file_table(*bytes, {log_id}, path);
  report->problems.insert(report->problems.end(), scan.problems.begin(), scan.problems.end());
  for (size_t i = 0; i < scan.entries.size() && visit; ++i) {
    const FileEntry& entry = scan.entries[i];
    visit({scan.places[i], entry.kind == FileEntryKind::kRemoved, entry.kind == FileEntryKind::kGivenUp,
           entry.file, entry.identity.inode, entry.identity.path});
  }
  return {};
}

// What is left in the queues, and whether it is all that a clean end has sealed.
Status inspect_queues(io::Device& device, const std::string& ssd_directory,
                      const std::optional<LogSeal>& known, LogReport* report,
                      const std::function<void(const LogRecord&)>& visit) {
  uint64_t queued_damaged = 0;
  SWALE_ASSIGN_OR_RETURN(const auto names, device.list(ssd_directory));
  for (const std::string& name : names) {
    if (!name.starts_with("queue.")) continue;
    SWALE_ASSIGN_OR_RETURN(const auto file, device.open(ssd_directory + "/" + name, io::OpenMode::kRead));
    std::vector<DamagedRecord> damaged;
    SWALE_ASSIGN_OR_RETURN(const auto left, SharedQueue::left_in(*file, report->log_id, &damaged));
    for (const DamagedRecord& record : damaged) report->problems.push_back(words_of(file->path(), record));
    queued_damaged += damaged.size();
    for (const RecordHeader& record : left) {
      ++report->queued;
      if (visit) visit(shown(record, name));
    }
  }
  uint64_t sealed = 0;
  if (report->closed)
    for (const QueueSeal& queue : known->queues) sealed += queue.records;
  if (report->queued + queued_damaged < sealed)
    report->problems.push_back(
        corruption("{}: {} of the {} writes in queues that the clean end has sealed are not there",
                   ssd_directory, sealed - report->queued - queued_damaged, sealed));
  return {};
}

}  // namespace

std::string KnownFile::text() const {
  return fmt::format("{} file {:016x} inode {} address {}: {}",
                     given_up  ? "given up"
                     : removed ? "removed"
                               : "known",
                     file, inode, address, path.empty() ? "(no path)" : path);
}

std::string LogRecord::text() const {
  return fmt::format("{}{} sequence {} file {:016x} offset {} length {} segment {} address {}",
                     place == "log" ? "" : place + " ", type, sequence, file, offset, length, segment,
                     address);
}

Result<LogReport> Store::inspect(io::Device& device, const std::string& ssd_directory,
                                 const std::function<void(const LogRecord&)>& visit,
                                 const std::function<void(const KnownFile&)>& visit_file) {
  SWALE_ASSIGN_OR_RETURN(const auto log, device.open(ssd_directory + "/log", io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const SegmentHeader geometry, log_geometry(*log, Options{}));
  LogReport report;
  report.log_id = geometry.log_id;
  report.segment_bytes = geometry.segment_size;
  report.segments = geometry.segment_count;
  RecoveryReport read;
  auto seal = read_seal(device, ssd_directory);
  if (!seal.ok() && seal.status().code() != Code::kCorruption) return seal.status();
  if (!seal.ok()) report.problems.push_back(seal.status());
  if (seal.ok() && *seal) {
    if (const Status belongs = check_belongs(**seal, geometry, ssd_directory); !belongs.ok()) {
      report.problems.push_back(belongs);
      seal->reset();
    }
  }
  const std::optional<LogSeal> known = seal.ok() ? *std::move(seal) : std::nullopt;
  SWALE_ASSIGN_OR_RETURN(auto scans, scan_log(*log, geometry, known, &read));
  report.generation = known ? known->generation : 0;
  report.closed = known && known->closed;
  if (report.closed)
    for (Status& missing : missing_records(*known, scans, log->path()))
      report.problems.push_back(std::move(missing));
  else
    report.torn = take_torn(&scans).size();
  for (const SegmentScan& scan : scans) {
    if (scan.header_damaged)
      report.problems.push_back(corruption(
          "{}: offset {}: {} of segment {} fails its checksum", log->path(),
          scan.header.index * geometry.segment_size,
          scan.generation_guessed ? "both copies of the header" : "a copy of the header", scan.header.index));
    for (const DamagedRecord& damaged : scan.damaged)
      report.problems.push_back(words_of(log->path(), damaged));
    for (const RecordHeader& record : scan.mended)
      report.problems.push_back(corruption(
          "{}: offset {}: one of the two copies of a record's header is damaged or missing; the other one "
          "tells all, and nothing is lost",
          log->path(), record.address));
    report.live_segments += !scan.records.empty();
    for (const RecordHeader& record : scan.records) {
      ++report.records;
      if (record.has_payload()) report.payload_bytes += record.length;
      if (visit) visit(shown(record, "log"));
    }
  }
  SWALE_RETURN_IF_ERROR(inspect_files(device, ssd_directory, geometry.log_id, &report, visit_file));
  SWALE_RETURN_IF_ERROR(inspect_queues(device, ssd_directory, known, &report, visit));
  return report;
}

}  // namespace swale::tier
