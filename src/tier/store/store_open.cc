// Opening a store: locks, the log and what it holds, the queues of killed processes, the files that they
// name.
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/coding.h"
#include "base/json.h"
#include "base/log.h"
#include "tier/store/store_core.h"
#include "tier/store/store_seal.h"

namespace swale::tier {
namespace {

std::string log_path(const std::string& ssd_directory) { return ssd_directory + "/log"; }

Result<std::unique_ptr<io::LockFile>> take_lock(io::Device& device, const std::string& path) {
  io::LockRequest request;
  request.job = "tier";
  request.lease.wait = 0;
  auto lock = io::LockFile::acquire(device, path, request);
  if (!lock.ok()) return lock.status();
  return std::make_unique<io::LockFile>(std::move(*lock));
}

// A log of its own id: headers of all segments, and all of its blocks.
Status make_log(io::Device& device, OpenedStore* opened) {
  Options& engine = opened->options.engine;
  engine.log_id = random_id();
  opened->report.made_anew = true;
  const std::string path = log_path(opened->options.ssd_directory);
  if (auto removed = device.remove(path); !removed.ok() && removed.code() != Code::kNotFound) return removed;
  SWALE_ASSIGN_OR_RETURN(opened->log, device.open(path, io::OpenMode::kCreate));
  const uint64_t bytes = engine.segment_count * engine.segment_bytes;
  if (opened->log->descriptor() >= 0) {
    if (const int failure = ::posix_fallocate(opened->log->descriptor(), 0, static_cast<off_t>(bytes));
        failure != 0)
      return errno_status(failure, fmt::format("{}: fallocate of {} bytes for the log", path, bytes));
  }
  std::string header(kSegmentHeaderBytes, '\0');
  for (uint32_t i = 0; i < engine.segment_count; ++i) {
    const SegmentHeader segment = {.index = i,
                                   .generation = 1,
                                   .log_id = engine.log_id,
                                   .segment_size = engine.segment_bytes,
                                   .segment_count = engine.segment_count,
                                   .alignment = engine.log_alignment};
    encode_segment_header(segment, header);
    const uint64_t begin = i * engine.segment_bytes;
    const uint64_t copy = begin + engine.segment_bytes - segment_tail_bytes(engine.log_alignment);
    SWALE_RETURN_IF_ERROR(opened->log->pwrite(begin, header));
    SWALE_RETURN_IF_ERROR(opened->log->pwrite(copy, header));
    opened->found.segments.push_back({});
    opened->found.segments.back().header = segment;
  }
  SWALE_RETURN_IF_ERROR(opened->log->sync());
  SWALE_RETURN_IF_ERROR(device.sync_directory(opened->options.ssd_directory));
  LogSeal seal{engine.log_id, opened->marker.generation, false, {}, {}};
  seal.segments.resize(engine.segment_count, {1, {}});
  SWALE_RETURN_IF_ERROR(write_seal(device, opened->options.ssd_directory, seal));
  // The queues of a process that went on without its log still bear that log's id.
  Marker& marker = opened->marker;
  if (marker.there) marker.queues_log_id = marker.log_id;
  marker.there = true;
  marker.abandoned = false;
  marker.log_id = engine.log_id;
  marker.trusted_ids = opened->id_attribute == kTrustedIdAttribute;
  return {};
}

// What an opening has made that has failed: the next one finds what this one has found. Failures of this
// leave an empty log, or an empty queue, which the next one takes for what they are.
void take_back(io::Device& device, OpenedStore* opened) {
  if (opened->queue) static_cast<void>(device.remove(opened->queue->path()));
  if (!opened->report.made_anew) return;
  remove_seal(device, opened->options.ssd_directory);
  static_cast<void>(device.remove(log_path(opened->options.ssd_directory)));
  static_cast<void>(device.remove(file_table_path(opened->options.ssd_directory)));
}

constexpr std::string_view kTrustedIds = "ids trusted\n";

// Takes a space and a number at *at, and moves it behind them.
bool take_number(const char** at, int base, uint64_t* number) {
  if (**at != ' ') return false;
  const char* const begin = *at + 1;
  char* end = nullptr;
  *number = std::strtoull(begin, &end, base);
  *at = end;
  return end != begin;
}

bool decode_marker(const std::string& text, Marker* marker) {
  const char* at = text.c_str() + std::min(text.size(), text.find(' '));
  marker->there = true;
  marker->abandoned = text.starts_with("abandoned ");
  if (!take_number(&at, 16, &marker->log_id) || *at++ != '\n') return false;
  constexpr std::string_view kGeneration = "generation";
  if (std::string_view(at).starts_with(kGeneration)) {
    at += kGeneration.size();
    if (!take_number(&at, 10, &marker->generation) || *at++ != '\n') return false;
    if (marker->generation > kOpeningsMax) return false;
  }
  constexpr std::string_view kQueues = "queues";
  if (std::string_view(at).starts_with(kQueues)) {
    at += kQueues.size();
    if (!take_number(&at, 16, &marker->queues_log_id) || !take_number(&at, 10, &marker->queues_from) ||
        *at++ != '\n')
      return false;
  }
  marker->trusted_ids = std::string_view(at) == kTrustedIds;
  return *at == '\0' || marker->trusted_ids;
}

Result<Marker> read_marker(io::Device& device, const std::string& backing_directory) {
  Marker marker;
  const std::string path = marker_path(backing_directory);
  const auto text = io::read_file(device, path, 256);
  if (!text.ok()) return text.status().code() == Code::kNotFound ? Result<Marker>(marker) : text.status();
  if (!decode_marker(*text, &marker))
    return corruption(
        "{}: expected 'log ID' or 'abandoned ID', 'generation NUMBER', and perhaps 'queues ID NUMBER' and "
        "'ids trusted'; found {} bytes of something else",
        path, text->size());
  return marker;
}

// Whether no segment was ever written to.
bool has_no_record(io::File& log, const SegmentHeader& geometry) {
  const uint64_t first = round_up(kSegmentHeaderBytes, geometry.alignment);
  std::string bytes(first + kRecordHeaderBytes, '\0');
  for (uint32_t i = 0; i < geometry.segment_count; ++i) {
    if (!io::read_exactly(log, i * geometry.segment_size, bytes).ok()) return false;
    const auto found = decode_segment_header(bytes);
    if (!found.ok() || found->generation != 1 || get_u32(bytes.data() + first) == kRecordMagic) return false;
  }
  return true;
}

// Whether, moreover, no queue has a write: the process that made the log was killed before it had named it.
bool is_untouched(io::Device& device, const std::string& ssd_directory, io::File& log,
                  const SegmentHeader& geometry) {
  const auto names = device.list(ssd_directory);
  const auto has_writes = [&](const std::string& name) {
    if (!name.starts_with("queue.")) return false;
    const auto queue = device.open(ssd_directory + "/" + name, io::OpenMode::kRead);
    const auto writes = queue.ok() ? SharedQueue::unknown_in(**queue, {}) : queue.status();
    return !writes.ok() || *writes > 0;
  };
  return names.ok() && std::none_of(names->begin(), names->end(), has_writes) && has_no_record(log, geometry);
}

// Records name files by ids. Those that a file's owner can write are not believed by a store that has others.
Status expect_ids(const OpenedStore& opened, io::File& log, const SegmentHeader& geometry) {
  const bool trusted = opened.id_attribute == kTrustedIdAttribute;
  if (opened.marker.trusted_ids == trusted || has_no_record(log, geometry)) return {};
  const StoreOptions& options = opened.options;
  return error(Code::kInvalidArgument, Scope::kFatal,
               "{}: log {:016x} names files by their attributes {}, this process keeps ids in {}{}; drain it "
               "first{}: swale tier drain {} {}",
               options.ssd_directory, geometry.log_id, trusted ? kIdAttribute : kTrustedIdAttribute,
               opened.id_attribute, trusted ? ", because owners of files could forge the others" : "",
               trusted ? " as the user who wrote it, or, if you trust all who could write to these files, by "
                         "root with setpriv "
                         "--bounding-set=-sys_admin"
                       : " as root",
               options.ssd_directory, options.backing_directory);
}

// The log is gone, and the user knows: any file that the tier has written to may lack writes.
Status go_on_without_log(io::Device& device, uint64_t log_id, OpenedStore* opened) {
  const std::filesystem::path root = opened->options.backing_directory;
  std::error_code failed;
  std::filesystem::recursive_directory_iterator walk(root, failed), end;
  for (; !failed && walk != end; walk.increment(failed)) {
    char id[8];
    if (!walk->is_regular_file(failed) || walk->is_symlink(failed)) continue;
    if (::getxattr(walk->path().c_str(), opened->id_attribute, id, sizeof(id)) != sizeof(id)) continue;
    opened->report.lost.push_back(
        {walk->path().lexically_relative(root).string(), 0, 0,
         fmt::format("log {:016x} is gone; it may have had writes of this file", log_id)});
  }
  if (failed)
    return error(Code::kIoError, Scope::kFatal, "{}: cannot be searched for files that may lack writes: {}",
                 root.string(), failed.message());
  return make_log(device, opened);
}

// Writes the missing copies of headers. Records that were torn when the process stopped must not look like
// damaged ones later, when newer records say that everything before them was settled.
Status mend_log(io::File& log, const Options& engine, OpenedStore* opened) {
  // After a clean end nothing is torn: what is damaged had been acknowledged.
  const bool closed = opened->seal && opened->seal->closed;
  const auto torn = closed ? std::vector<DamagedRecord>() : take_torn(&opened->found.segments);
  opened->report.torn = torn.size();
  for (const SegmentScan& scan : opened->found.segments) {
    opened->report.mended += scan.mended.size();
    for (const DamagedRecord& damaged : scan.damaged)
      opened->report.damaged.push_back(words_of(log.path(), damaged));
  }
  for (const auto& round : mends_of(opened->found.segments, torn, engine.log_id, engine.log_alignment)) {
    for (const LogWrite& write : round) SWALE_RETURN_IF_ERROR(log.pwrite(write.address, write.bytes));
    if (!round.empty()) SWALE_RETURN_IF_ERROR(log.sync());
  }
  return {};
}

// Programs see every file of the backing directory, and may write to it or remove it.
Status expect_apart(const StoreOptions& options) {
  std::error_code failed;
  const auto backing = std::filesystem::weakly_canonical(options.backing_directory, failed);
  const auto inside =
      std::filesystem::weakly_canonical(options.ssd_directory, failed).lexically_relative(backing);
  if (failed || inside.empty() || *inside.begin() == "..") return {};
  return invalid_argument(
      "{}: the SSD directory must lie outside of the backing directory {}, or programs could change the "
      "log; name another directory, or move this one there",
      options.ssd_directory, options.backing_directory);
}

// The mark says that a log does not count any more: that one may be replaced, or what an SSD that fails has
// left of it, or a log that a killed process was making in its place. Another one may have writes of another
// directory that are nowhere else.
Status replace_abandoned(io::Device& device, io::File* log, OpenedStore* opened) {
  const Marker& marker = opened->marker;
  if (log) {
    const auto geometry = log_geometry(*log, opened->options.engine);
    if (geometry.ok() && geometry->log_id != marker.log_id && !has_no_record(*log, *geometry))
      return error(Code::kInvalidArgument, Scope::kFatal,
                   "{}: log {:016x} does not belong to {}, which has abandoned log {:016x}; give "
                   "another SSD directory, or remove this log if nobody needs it",
                   opened->options.ssd_directory, geometry->log_id, opened->options.backing_directory,
                   marker.log_id);
  }
  return make_log(device, opened);
}

Status use_log(io::Device& device, OpenedStore* opened) {
  Options& engine = opened->options.engine;
  SWALE_ASSIGN_OR_RETURN(opened->marker, read_marker(device, opened->options.backing_directory));
  const Marker marker = opened->marker;
  auto log = device.open(log_path(opened->options.ssd_directory), io::OpenMode::kReadWrite);
  if (!log.ok() && log.status().code() != Code::kNotFound) return log.status();
  if (marker.abandoned) return replace_abandoned(device, log.ok() ? log->get() : nullptr, opened);
  if (!log.ok()) {
    if (!marker.there) return make_log(device, opened);
    if (opened->options.accept_loss) return go_on_without_log(device, marker.log_id, opened);
    return error(
        Code::kNotFound, Scope::kFatal,
        "{}: there is no log, but {} was used with log {:016x}, which may hold writes that are nowhere else; "
        "bring it back, or accept the loss with: swale tier recover --accept-loss {} {}",
        opened->options.ssd_directory, opened->options.backing_directory, marker.log_id,
        opened->options.ssd_directory, opened->options.backing_directory);
  }
  auto geometry = log_geometry(**log, engine);
  // A process was killed while it made the log.
  if (!geometry.ok() && !marker.there) return make_log(device, opened);
  if (!geometry.ok()) return geometry.status();
  if (!marker.there || marker.log_id != geometry->log_id) {
    const std::string& ssd = opened->options.ssd_directory;
    if (!marker.there && is_untouched(device, ssd, **log, *geometry)) return make_log(device, opened);
    return error(
        Code::kInvalidArgument, Scope::kFatal, "{}: log {:016x} does not belong to {}, which was {}", ssd,
        geometry->log_id, opened->options.backing_directory,
        marker.there ? fmt::format("used with log {:016x}", marker.log_id) : "not used with a log yet");
  }
  SWALE_RETURN_IF_ERROR(expect_ids(*opened, **log, *geometry));
  opened->log = std::move(*log);
  opened->marker.trusted_ids = opened->id_attribute == kTrustedIdAttribute;
  engine.log_id = geometry->log_id;
  engine.segment_bytes = geometry->segment_size;
  engine.segment_count = geometry->segment_count;
  engine.log_alignment = geometry->alignment;
  SWALE_RETURN_IF_ERROR(engine.validate());
  SWALE_RETURN_IF_ERROR(take_seal(device, *geometry, opened));
  SWALE_ASSIGN_OR_RETURN(opened->found.segments,
                         scan_log(*opened->log, *geometry, opened->seal, &opened->report));
  SWALE_RETURN_IF_ERROR(check_sealed_records(*opened->log, opened));
  return mend_log(*opened->log, engine, opened);
}

Status read_losses(io::Device& device, OpenedStore* opened) {
  const std::string path = losses_path(opened->options.backing_directory);
  const auto text = io::read_file(device, path, kJsonBytesMax);
  if (!text.ok()) return text.status().code() == Code::kNotFound ? Status() : text.status();
  SWALE_ASSIGN_OR_RETURN(opened->found.losses, decode_loss_list(*text, path));
  return {};
}

// A queue that holds nothing for this store is removed. One with writes of a log that nobody has named is
// not: somebody may want them. It gets another name, because no later process would know better.
Status put_queue_away(io::Device& device, io::File& file, const std::vector<uint64_t>& ids,
                      OpenedStore* opened) {
  SWALE_ASSIGN_OR_RETURN(const uint64_t unknown, SharedQueue::unknown_in(file, ids));
  if (unknown == 0) return device.remove(file.path());
  const std::string kept =
      fmt::format("{}/unknown-queue.{:016x}", opened->options.ssd_directory, random_id());
  SWALE_RETURN_IF_ERROR(device.rename_new(file.path(), kept));
  opened->report.damaged.push_back(
      corruption("{}: holds {} writes of a log that {} was not used with; kept as {}", file.path(), unknown,
                 opened->options.backing_directory, kept));
  return {};
}

// Queues of killed processes. Those that hold nothing are removed.
Status use_queues(io::Device& device, OpenedStore* opened) {
  const std::string& directory = opened->options.ssd_directory;
  const Marker& marker = opened->marker;
  SWALE_ASSIGN_OR_RETURN(const auto names, device.list(directory));
  uint64_t base = opened->options.engine.segment_count * opened->options.engine.segment_bytes;
  uint64_t next = std::max<uint64_t>(1, marker.queues_from);
  std::vector<uint64_t> ids = {opened->options.engine.log_id};
  if (marker.queues_log_id != 0) ids.push_back(marker.queues_log_id);
  for (const std::string& name : names) {
    if (!name.starts_with("queue.")) continue;
    const uint64_t number = std::strtoull(name.c_str() + 6, nullptr, 10);
    next = std::max(next, number + 1);
    const std::string path = directory + "/" + name;
    std::vector<DamagedRecord> damaged;
    std::vector<RecordHeader> left;
    SWALE_ASSIGN_OR_RETURN(auto file, device.open(path, io::OpenMode::kReadWrite));
    for (const uint64_t id : ids) {  // a queue is of one log
      if (number < marker.queues_from || !left.empty() || !damaged.empty()) break;
      SWALE_ASSIGN_OR_RETURN(left, SharedQueue::left_in(*file, id, &damaged));
    }
    if (left.empty() && damaged.empty()) {
      SWALE_RETURN_IF_ERROR(put_queue_away(device, *file, ids, opened));
      continue;
    }
    SWALE_ASSIGN_OR_RETURN(const uint64_t size, file->size());
    SWALE_RETURN_IF_ERROR(file->sync());  // later syncs of files sync the log alone
    for (RecordHeader& record : left) {
      record.address += base;
      opened->found.queued.push_back(record);
    }
    for (DamagedRecord& record : damaged) {
      opened->report.damaged.push_back(words_of(path, record));
      record.header.address += base;
      opened->found.queued_damaged.push_back(std::move(record));
    }
    opened->old_queues.push_back({path, std::move(file), base});
    base += round_up(size, 4096);
  }
  opened->report.queued = opened->found.queued.size();
  opened->queue_number = next;
  SWALE_ASSIGN_OR_RETURN(
      opened->queue,
      SharedQueue::create(device, fmt::format("{}/queue.{}", directory, next), opened->options.queue_slots,
                          opened->options.slot_bytes, opened->options.engine.log_id));
  return device.sync_directory(directory);
}

}  // namespace

// The sizes of a log, from the first segment header that is whole. A log's file is as long as its segments.
Result<SegmentHeader> log_geometry(io::File& log, const Options& otherwise) {
  std::string header(kSegmentHeaderBytes, '\0');
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, log.size());
  const uint64_t last = segment_tail_bytes(otherwise.log_alignment);
  for (const uint64_t at : {uint64_t{0}, size - std::min(size, last), otherwise.segment_bytes}) {
    if (at + kSegmentHeaderBytes > size) continue;
    SWALE_RETURN_IF_ERROR(io::read_exactly(log, at, header));
    auto found = decode_segment_header(header);
    if (found.status().code() == Code::kUnsupported) return found.status();
    if (found.ok() && found->segment_size * found->segment_count == size) return found;
  }
  return corruption(
      "{}: no segment header says what the log of {} bytes is; give the segment size that it was made with, "
      "or "
      "accept the loss with: rm {}; swale tier recover --accept-loss",
      log.path(), size, log.path());
}

Result<std::vector<SegmentScan>> scan_log(io::File& log, const SegmentHeader& geometry,
                                          const std::optional<LogSeal>& seal, RecoveryReport* report) {
  std::vector<SegmentScan> scans;
  std::string bytes(geometry.segment_size, '\0');
  for (uint32_t i = 0; i < geometry.segment_count; ++i) {
    const uint64_t at = i * geometry.segment_size;
    SWALE_RETURN_IF_ERROR(io::read_exactly(log, at, bytes));
    report->log_bytes_read += bytes.size();
    SegmentHeader expected = geometry;
    expected.index = i;
    const std::optional<KnownGeneration> known = known_generation(seal, i);
    auto scan = scan_segment(bytes, expected, known ? &*known : nullptr);
    if (!scan.ok()) return scan.status().with_context(log.path());
    scans.push_back(std::move(*scan));
  }
  return scans;
}

Status words_of(const std::string& path, const DamagedRecord& damaged) {
  const PayloadRange& first = damaged.ranges.front();
  return corruption("{}: offset {}: record of {} bytes for offset {} of file {:016x}: {}: bytes {} to {}{}",
                    path, damaged.header.address, damaged.header.length, damaged.header.offset,
                    damaged.header.file, damaged.reason, damaged.header.offset + first.begin,
                    damaged.header.offset + first.end, damaged.ranges.size() == 1 ? "" : " and others");
}

std::string losses_path(const std::string& backing_directory) {
  return backing_directory + "/" + kPrivateDirectory + "/lost";
}

std::string encode_marker(const Marker& marker) {
  std::string text = fmt::format("{} {:016x}\n", marker.abandoned ? "abandoned" : "log", marker.log_id);
  if (marker.generation != 0) text += fmt::format("generation {}\n", marker.generation);
  if (marker.queues_log_id != 0)
    text += fmt::format("queues {:016x} {}\n", marker.queues_log_id, marker.queues_from);
  if (marker.trusted_ids) text += kTrustedIds;
  return text;
}

std::string marker_path(const std::string& backing_directory) {
  return backing_directory + "/" + kPrivateDirectory + "/log";
}

uint64_t random_id() {
  uint64_t id = 0;
  while (id == 0)
    if (::getrandom(&id, sizeof(id), 0) != sizeof(id)) id = 0;
  return id;
}

Result<uint64_t> file_id_of(io::File& file, const char* attribute) {
  char id[8];
  const ssize_t got = ::fgetxattr(file.descriptor(), attribute, id, sizeof(id));
  if (got == sizeof(id)) return get_u64(id);
  if (got < 0 && errno != ENODATA)
    return errno_status(errno, fmt::format("{}: extended attribute {}", file.path(), attribute));
  return error(Code::kNotFound, Scope::kFile, "{}: has no id", file.path());
}

Status set_file_id(io::File& file, const char* attribute, uint64_t id) {
  char bytes[8];
  put_u64(bytes, id);
  if (::fsetxattr(file.descriptor(), attribute, bytes, sizeof(bytes), 0) == 0) return {};
  return errno_status(errno, fmt::format("{}: extended attribute {}", file.path(), attribute));
}

// Where the ids of files are kept: where only root can write, if this process may and the file system can.
Status choose_ids(io::Device& device, OpenedStore* opened) {
  const std::string& backing = opened->options.backing_directory;
  const std::string path = fmt::format("{}/{}/probe", backing, kPrivateDirectory);
  Status refused[2];
  {
    SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kOpenOrCreate));
    opened->id_attribute = kTrustedIdAttribute;
    refused[0] = set_file_id(*file, kTrustedIdAttribute, 1);
    if (!refused[0].ok()) {
      opened->id_attribute = kIdAttribute;
      refused[1] = set_file_id(*file, kIdAttribute, 1);
    }
  }
  SWALE_RETURN_IF_ERROR(device.remove(path));
  if (!refused[0].ok() && !refused[1].ok())
    return refused[1].with_context(fmt::format(
        "{}: the log finds files by an extended attribute, and this file system takes none: nothing can be "
        "buffered here; use one that has them (ext4, xfs, btrfs, tmpfs of Linux 6.6, NFS 4.2)",
        backing));
  if (!refused[0].ok() && ::geteuid() == 0)
    log_warn(
        "{}: ids of files are kept in {}, where owners can copy and change them, because {} is refused "
        "({}): two files with one id will be set apart, and their newest writes refused; run with "
        "CAP_SYS_ADMIN, on a file system with trusted. attributes",
        backing, kIdAttribute, kTrustedIdAttribute, refused[0].message());
  return {};
}

// The log and the queue, and what they say; `device`: with both private directories.
Status open_contents(io::Device& device, OpenedStore* opened) {
  SWALE_RETURN_IF_ERROR(choose_ids(device, opened));
  SWALE_RETURN_IF_ERROR(use_log(device, opened));
  SWALE_RETURN_IF_ERROR(use_queues(device, opened));
  SWALE_RETURN_IF_ERROR(read_losses(device, opened));
  SWALE_RETURN_IF_ERROR(check_counters(*opened));
  SWALE_RETURN_IF_ERROR(check_sealed_queues(opened));
  SWALE_RETURN_IF_ERROR(find_files(opened));
  // Last: an opening that fails leaves a clean end sealed, and no claim of a new log.
  return raise_generation(device, opened);
}

Result<OpenedStore> open_store(io::Device& device, const StoreOptions& options) {
  OpenedStore opened;
  opened.options = options;
  SWALE_RETURN_IF_ERROR(options.engine.validate());
  if (options.queue_slots < 1 || options.slot_bytes < 4096 || options.slot_bytes > kWriteBytesMax)
    return invalid_argument("queue_slots is {} and slot_bytes {}; expected at least 1, and 4 KiB to {} bytes",
                            options.queue_slots, options.slot_bytes, kWriteBytesMax);
  if (kRecordHeaderBytes * 2 + options.slot_bytes > options.engine.segment_bytes)
    return invalid_argument("segment_bytes is {}: a write of {} bytes has no space in it",
                            options.engine.segment_bytes, options.slot_bytes);
  SWALE_RETURN_IF_ERROR(expect_apart(options));
  SWALE_RETURN_IF_ERROR(io::make_directories(device, options.ssd_directory));
  SWALE_ASSIGN_OR_RETURN(opened.device, device.anchored_private(options.ssd_directory));
  SWALE_ASSIGN_OR_RETURN(const bool there, device.exists(options.backing_directory));
  if (!there)
    return error(Code::kNotFound, Scope::kFile, "{}: the backing directory is not there",
                 options.backing_directory);
  const std::string own = fmt::format("{}/{}", options.backing_directory, kPrivateDirectory);
  SWALE_RETURN_IF_ERROR(io::make_directories(*opened.device, own));
  SWALE_ASSIGN_OR_RETURN(opened.device, opened.device->anchored_private(own));
  SWALE_ASSIGN_OR_RETURN(opened.ssd_lock, take_lock(*opened.device, options.ssd_directory + "/lock"));
  SWALE_ASSIGN_OR_RETURN(opened.backing_lock, take_lock(*opened.device, own + "/lock"));
  const Status status = open_contents(*opened.device, &opened);
  if (status.ok()) return opened;
  take_back(*opened.device, &opened);
  return status;
}

}  // namespace swale::tier
