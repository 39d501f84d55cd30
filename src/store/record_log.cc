#include "store/record_log.h"

#include <algorithm>
#include <cassert>

#include "base/coding.h"
#include "base/contain.h"
#include "base/crc32c.h"
#include "store/log_window.h"

namespace swale::store {
namespace {

// *whole: the header is one, of this log or of another.
Status check_header(Bytes bytes, const std::string& path, const LogIdentity& expected, bool* whole) {
  *whole = false;
  if (bytes.size() < kLogHeaderBytes) return corruption("{}: {} bytes are no log", path, bytes.size());
  if (get_u32(bytes.data()) != kLogMagic) return corruption("{}: offset 0: no header of a log", path);
  if (get_u32(bytes.data() + 4) != crc32c(bytes.substr(8)))
    return corruption("{}: offset 0: the header fails its checksum", path);
  *whole = true;
  if (const uint16_t version = get_u16(bytes.data() + 8); version != kLogVersion) {
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: log of version {}; this build reads version {}: read it with the swale that wrote it",
                 path, version, kLogVersion);
  }
  const LogIdentity found{get_u16(bytes.data() + 10), get_u32(bytes.data() + 12), get_u64(bytes.data() + 16)};
  if (found.kind == expected.kind && found.part == expected.part && found.owner == expected.owner) return {};
  return corruption(
      "{}: expected log {:016x} of part {} (kind {}), found log {:016x} of part {} (kind {}): "
      "was it renamed?",
      path, expected.owner, expected.part, expected.kind, found.owner, found.part, found.kind);
}

struct RecordHead {
  uint64_t bytes = 0;  // of the whole record; 0: there is none
  uint16_t kind = 0;
  uint16_t later = 0;
  uint64_t sequence = 0;
};

// What a head says. bytes is 0 if it says nothing that can be.
RecordHead head_of(Bytes head) {
  const uint64_t payload = get_u32(head.data() + 8);
  if (get_u32(head.data()) != kRecordMagic || payload > kPayloadBytesMax) return {};
  return {kRecordHeadBytes + payload, get_u16(head.data() + 12), get_u16(head.data() + 14),
          get_u64(head.data() + 16)};
}

// The record at `at`, if it is whole.
Result<RecordHead> whole_record(LogWindow* log, uint64_t at, uint32_t seed) {
  if (log->size() - at < kRecordHeadBytes) return RecordHead();
  SWALE_ASSIGN_OR_RETURN(const Bytes head, log->at(at, kRecordHeadBytes));
  const uint32_t crc = get_u32(head.data() + 4);
  const RecordHead record = head_of(head);
  if (record.bytes == 0 || record.bytes > log->size() - at) return RecordHead();
  SWALE_ASSIGN_OR_RETURN(const uint32_t found, log->checksum(seed, at + 8, record.bytes - 8));
  return found == crc ? record : RecordHead();
}

// The offset of a whole record at or after `from`; the end of the log if there is none.
Result<uint64_t> find_record(LogWindow* log, uint64_t from, uint32_t seed) {
  for (uint64_t at = from;; ++at) {
    SWALE_ASSIGN_OR_RETURN(at, log->find(kRecordMagic, at));
    if (at == log->size()) return at;
    SWALE_ASSIGN_OR_RETURN(const RecordHead record, whole_record(log, at, seed));
    if (record.bytes != 0) return at;
  }
}

// What is wrong with the record at `at`, which is not whole and should have the number `sequence`. OK: it may
// be the last one that a sync has reached, or after it, torn.
Status check_torn(LogWindow* log, uint64_t at, uint64_t sequence, uint32_t seed, const std::string& path) {
  const auto damaged = [&](const std::string& why) {
    return corruption("{}: the record at offset {} (number {}) is damaged: {}; restore the file from a copy",
                      path, at, sequence, why);
  };
  // Magic and sequence stand on both sides of the length: if they are right, so is the length, wherever a
  // write was torn. One append writes one record: what stands after its end came later, and a record that
  // was synced at once was durable then.
  if (log->size() - at > kRecordHeadBytes) {
    SWALE_ASSIGN_OR_RETURN(const Bytes bytes, log->at(at, kRecordHeadBytes));
    const RecordHead head = head_of(bytes);
    const bool synced = (head.later & kSyncLater) == 0;
    if (head.bytes != 0 && head.sequence == sequence && synced && head.bytes < log->size() - at)
      return damaged(fmt::format("the log goes on after its end at offset {}", at + head.bytes));
  }
  for (uint64_t later = at;;) {
    SWALE_ASSIGN_OR_RETURN(later, find_record(log, later, seed));
    if (later == log->size()) return {};
    SWALE_ASSIGN_OR_RETURN(const Bytes bytes, log->at(later, kRecordHeadBytes));
    const RecordHead head = head_of(bytes);
    const uint64_t unsynced = head.later & kUnsyncedMax;
    if (head.sequence <= unsynced || head.sequence - unsynced > sequence)
      return damaged(fmt::format("a whole one follows at offset {}", later));
    later += head.bytes;
  }
}

}  // namespace

std::string log_header(const LogIdentity& log) {
  std::string header(kLogHeaderBytes, '\0');
  put_u32(header.data(), kLogMagic);
  put_u16(header.data() + 8, kLogVersion);
  put_u16(header.data() + 10, log.kind);
  put_u32(header.data() + 12, log.part);
  put_u64(header.data() + 16, log.owner);
  put_u32(header.data() + 4, crc32c(Bytes(header).substr(8)));
  return header;
}

uint32_t record_seed(const LogIdentity& log) { return get_u32(log_header(log).data() + 4); }

void seal_record(uint32_t seed, uint16_t kind, uint64_t sequence, std::string* record, uint16_t later) {
  assert(record->size() >= kRecordHeadBytes && record->size() - kRecordHeadBytes <= kPayloadBytesMax);
  char* const head = record->data();
  put_u32(head, kRecordMagic);
  put_u32(head + 8, static_cast<uint32_t>(record->size() - kRecordHeadBytes));
  put_u16(head + 12, kind);
  put_u16(head + 14, later);
  put_u64(head + 16, sequence);
  put_u32(head + 4, crc32c_extend(seed, Bytes(*record).substr(8)));
}

// Writes, and takes back what was written if that failed for want of space or memory. After a failed sync
// nobody knows what is on storage.
template <class Act>
Status RecordLog::change(const Act& act) noexcept {
  bool sync_tried = false;
  Status status = contain([&]() -> Status {
    if (usable_) return act(&sync_tried);
    return error(Code::kAborted, Scope::kFile, "{}: takes no more, because a write to it has failed", path_);
  });
  if (status.ok() || !usable_) return status;
  const bool may_pass = status.code() == Code::kNoSpace || status.code() == Code::kResourceExhausted;
  usable_ = may_pass && !sync_tried && contain([this] { return take_back(); }).ok();
  return status;
}

Status RecordLog::create() noexcept {
  return change([this](bool* sync_tried) -> Status {
    if (bytes_ == 0) {
      bool unused = false;  // what a failed sync leaves goes with the file (take_back)
      SWALE_RETURN_IF_ERROR(write(log_header(identity_), true, &unused));
    } else if (!synced_ || unsynced_ > 0) {
      *sync_tried = true;
      SWALE_RETURN_IF_ERROR(file_->sync());
      unsynced_ = 0;
    }
    return {};
  });
}

Status RecordLog::append(uint16_t kind, uint64_t sequence, std::string* record, const Fence& fence,
                         AppendSync sync) noexcept {
  return change([&](bool* sync_tried) -> Status {
    if (record->size() - kRecordHeadBytes > kPayloadBytesMax) {
      return error(Code::kResourceExhausted, Scope::kOperation, "{}: a record of {} bytes, the limit is {}",
                   path_, record->size(), kPayloadBytesMax);
    }
    const bool later = synced_ && sync == AppendSync::kLater && bytes_ > 0 && unsynced_ < kUnsyncedMax;
    seal_record(seed_, kind, sequence, record,
                static_cast<uint16_t>(later ? kSyncLater | unsynced_ : unsynced_));
    if (bytes_ == 0) record->insert(0, log_header(identity_));
    SWALE_RETURN_IF_ERROR(write(*record, synced_ && !later, sync_tried));
    if (later) ++unsynced_;
    return fence ? fence() : ok_status();
  });
}

Status RecordLog::write(Bytes bytes, bool sync, bool* sync_tried) {
  const bool fresh = file_ == nullptr;
  if (fresh) {
    SWALE_ASSIGN_OR_RETURN(file_, device_.open(path_, io::OpenMode::kCreate));
  }
  SWALE_RETURN_IF_ERROR(file_->pwrite(bytes_, bytes));
  *sync_tried = true;
  if (sync) {
    SWALE_RETURN_IF_ERROR(file_->sync());
    unsynced_ = 0;
  }
  if (fresh) SWALE_RETURN_IF_ERROR(device_.sync_directory(io::parent_directory(path_)));
  bytes_ += bytes.size();
  return {};
}

// A record that is there in part would look like damage as soon as a later log exists.
Status RecordLog::take_back() {
  if (bytes_ > 0) {
    SWALE_RETURN_IF_ERROR(file_->truncate(bytes_));
    SWALE_RETURN_IF_ERROR(file_->sync());
    unsynced_ = 0;
    return {};
  }
  file_.reset();
  const Status removed = device_.remove(path_);
  if (removed.code() == Code::kNotFound) return {};
  SWALE_RETURN_IF_ERROR(removed);
  return device_.sync_directory(io::parent_directory(path_));
}

Result<LogScan> read_log(io::Device& device, const std::string& path, const LogIdentity& identity,
                         uint64_t end, LogTail tail, uint64_t* sequence,
                         const std::function<Status(const Record& record)>& visit) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(uint64_t size, file->size());
  size = std::min(size, end);
  LogWindow log(*file, size);
  LogScan scan;
  SWALE_ASSIGN_OR_RETURN(const Bytes front, log.at(0, std::min<uint64_t>(size, kLogHeaderBytes)));
  bool whole = false;
  const Status header = check_header(front, path, identity, &whole);
  if (!header.ok() && (whole || tail == LogTail::kWhole)) return header;
  const uint32_t seed = record_seed(identity);
  uint64_t at = header.ok() ? kLogHeaderBytes : 0;
  while (header.ok() && at < size) {
    SWALE_ASSIGN_OR_RETURN(const RecordHead head, whole_record(&log, at, seed));
    if (head.bytes == 0) break;
    if (head.sequence != *sequence + 1)
      return corruption("{}: record at offset {}: expected number {}, found {}", path, at, *sequence + 1,
                        head.sequence);
    SWALE_ASSIGN_OR_RETURN(const Bytes payload, log.at(at + kRecordHeadBytes, head.bytes - kRecordHeadBytes));
    SWALE_RETURN_IF_ERROR(visit({at, head.kind, head.sequence, payload}));
    *sequence = head.sequence;
    ++scan.records;
    at += head.bytes;
  }
  scan.bytes = at;
  scan.torn_bytes = size - at;
  if (scan.torn_bytes == 0) return scan;
  SWALE_RETURN_IF_ERROR(check_torn(&log, at, *sequence + 1, seed, path));
  if (tail == LogTail::kWhole) {
    return corruption(
        "{}: the record at offset {} (number {}) is damaged, and a later file exists; restore the file from "
        "a copy",
        path, at, *sequence + 1);
  }
  return scan;
}

}  // namespace swale::store
