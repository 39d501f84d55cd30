#include "fs/log/sync_journal.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/coding.h"
#include "base/crc32c.h"
#include "base/entropy.h"

namespace swale::fs {
namespace {

constexpr size_t kRecordHeadBytes = 96;
constexpr size_t kCrcBegin = 12;  // of a record: magic and the crc itself are before it
constexpr size_t kHeadCrcBegin = 16;
constexpr int kReadTries = 8;

uint64_t in_pages(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

std::string head_of(uint64_t generation) {
  std::string head;
  append_u64(&head, kJournalMagic);
  append_u32(&head, kJournalVersion);
  append_u32(&head, 0);
  append_u64(&head, generation);
  head.resize(kPageBytes, '\0');
  put_u32(head.data() + 12, crc32c(Bytes(head).substr(kHeadCrcBegin)));
  return head;
}

void encode(const JournalRecord& record, uint64_t generation, uint64_t sequence, MutableBytes out) {
  std::string head;
  append_u64(&head, kJournalMagic);
  append_u32(&head, 0);
  append_u32(&head, kJournalVersion);
  append_u64(&head, generation);
  append_u64(&head, sequence);
  append_u32(&head, record.log);
  append_u32(&head, record.chunk_bytes);
  append_u64(&head, record.number);
  append_u32(&head, record.from);
  append_u32(&head, record.end);
  append_u32(&head, static_cast<uint32_t>(record.entries.size()));
  append_u32(&head, record.entries_end);
  append_u64(&head, record.time.file.high);
  append_u64(&head, record.time.file.low);
  append_u64(&head, static_cast<uint64_t>(record.time.modified_ns));
  head.resize(kRecordHeadBytes, '\0');
  for (const SpilledEntry& entry : record.entries) append_entry(&head, entry);
  std::memcpy(out.data(), head.data(), head.size());
  if (!record.payload.empty())
    std::memcpy(out.data() + head.size(), record.payload.data(), record.payload.size());
  const size_t end = head.size() + record.payload.size();
  std::memset(out.data() + end, 0, out.size() - end);
  put_u32(out.data() + 8, crc32c(view(out).substr(kCrcBegin, end - kCrcBegin)));
}

struct Decoded {
  JournalRecord record;
  uint64_t sequence = 0;
  uint64_t bytes = 0;  // that it takes; 0: there is no whole record of this generation
  Status status;       // of its entries
};

// The record that `bytes`, at `offset` of the file, begin with.
Result<Decoded> decode(Bytes bytes, uint64_t generation, const std::string& path, uint64_t offset) {
  Decoded found;
  JournalRecord& record = found.record;
  if (bytes.size() < kRecordHeadBytes || get_u64(bytes.data()) != kJournalMagic) return found;
  Decoder in(bytes.substr(16, kRecordHeadBytes - 16));
  const uint64_t of = in.u64();
  found.sequence = in.u64();
  record.log = in.u32();
  record.chunk_bytes = in.u32();
  record.number = in.u64();
  record.from = in.u32();
  record.end = in.u32();
  const uint64_t entries = in.u32();
  record.entries_end = in.u32();
  record.time.file.high = in.u64();
  record.time.file.low = in.u64();
  record.time.modified_ns = in.i64();
  const uint64_t index_end = kRecordHeadBytes + entries * sizeof(LogEntry);
  const uint64_t end = index_end + (uint64_t{record.end} - record.from);
  if (of != generation || record.from > record.end || end > bytes.size()) return found;
  if (get_u32(bytes.data() + 8) != crc32c(bytes.substr(kCrcBegin, end - kCrcBegin))) return found;
  if (const uint32_t version = get_u32(bytes.data() + 12); version != kJournalVersion)
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: offset {}: version {} of a journal; this build reads {}", path, offset, version,
                 kJournalVersion);
  const KnownChunk chunk{record.log, record.number, record.chunk_bytes, record.end};
  auto index = decode_entries(bytes.substr(kRecordHeadBytes, entries * sizeof(LogEntry)), chunk, path,
                              offset + kRecordHeadBytes);
  found.status = index.status();
  if (index.ok()) record.entries = std::move(*index);
  record.payload = bytes.substr(index_end, record.end - record.from);
  found.bytes = in_pages(end);
  return found;
}

bool has_records(Bytes all) {
  for (uint64_t at = kJournalHeadBytes; at + kPageBytes <= all.size(); at += kPageBytes)
    if (get_u64(all.data() + at) == kJournalMagic) return true;
  return false;
}

}  // namespace

uint64_t JournalRecord::bytes() const {
  return in_pages(kRecordHeadBytes + entries.size() * sizeof(LogEntry) + (end - from));
}

// 0: none.
uint64_t SyncJournal::generation_of(Bytes all) {
  uint64_t found = 0;
  for (const uint64_t at : {uint64_t{0}, uint64_t{kPageBytes}}) {
    const Bytes head = all.substr(at, kPageBytes);
    const uint64_t generation = get_u64(head.data() + kHeadCrcBegin);
    if (head == head_of(generation)) found = std::max(found, generation);
  }
  return found;
}

// All of it. It may be written, and begin anew, meanwhile.
Result<std::string> SyncJournal::read_all(io::File& file) {
  for (int tries = 1;; ++tries) {
    SWALE_ASSIGN_OR_RETURN(const uint64_t size, file.size());
    std::string all(std::min(size, kJournalBytesMax) / kPageBytes * kPageBytes, '\0');
    SWALE_RETURN_IF_ERROR(io::read_exactly(file, 0, all));
    if (all.size() <= kJournalHeadBytes) return all;
    std::string heads(kJournalHeadBytes, '\0');
    SWALE_RETURN_IF_ERROR(io::read_exactly(file, 0, heads));
    if (generation_of(heads) == generation_of(all) || tries == kReadTries) return all;
  }
}

Status SyncJournal::read(Bytes all, const Visit& visit, std::vector<Status>* problems) {
  for (uint64_t at = kJournalHeadBytes; at < bytes_;) {
    SWALE_ASSIGN_OR_RETURN(const Decoded found, decode(all.substr(at), generation_, path_, at));
    if (found.bytes == 0 || found.sequence < sequence_) {
      at += kPageBytes;
      continue;
    }
    if (found.sequence != sequence_)
      problems->push_back(
          corruption("{}: offset {}: records {} to {} of the journal are damaged; what fsyncs "
                     "had written there, and no spilled chunk has, is lost",
                     path_, end_, sequence_, found.sequence - 1));
    sequence_ = found.sequence + 1;
    at += found.bytes;
    end_ = at;
    if (found.status.ok())
      SWALE_RETURN_IF_ERROR(visit(found.record));
    else
      problems->push_back(found.status);
    note(found.record);
  }
  return {};
}

Result<bool> SyncJournal::look(io::File& file, const Visit& visit, std::vector<Status>* problems) {
  SWALE_ASSIGN_OR_RETURN(const std::string all, read_all(file));
  generation_ = all.size() <= kJournalHeadBytes ? 0 : generation_of(all);
  if (generation_ == 0 && !has_records(all)) return false;
  bytes_ = all.size();
  usable_ = generation_ != 0;
  if (usable_) SWALE_RETURN_IF_ERROR(read(all, visit, problems));
  if (!usable_)
    problems->push_back(
        corruption("{}: offset 0: the head of the journal is damaged; what fsyncs had written "
                   "there, and no spilled chunk has, is lost",
                   path_));
  return true;
}

Status SyncJournal::look(io::Device& device, const std::string& folder, const Visit& visit,
                         std::vector<Status>* problems) {
  SyncJournal journal(device, folder);
  const auto file = device.open(journal.path_, io::OpenMode::kRead);
  if (file.status().code() == Code::kNotFound) return {};
  SWALE_RETURN_IF_ERROR(file.status());
  return journal.look(**file, visit, problems).status();
}

Status SyncJournal::find(const Visit& visit, std::vector<Status>* problems) {
  auto file = device_.open(path_, io::OpenMode::kReadWrite);
  if (file.status().code() == Code::kNotFound) return {};
  SWALE_RETURN_IF_ERROR(file.status());
  SWALE_ASSIGN_OR_RETURN(const bool begun, look(**file, visit, problems));
  if (!begun) return device_.remove(path_);
  (*file)->prefer_direct();
  file_ = std::move(*file);
  return {};
}

void SyncJournal::note(const JournalRecord& record) noexcept {
  for (const SpilledEntry& each : record.entries) oldest_order_ = std::min(oldest_order_, each.order);
}

Status SyncJournal::sync() { return syncs_ ? file_->sync() : Status(); }

Status SyncJournal::need_buffer() {
  if (buffer_.size() > 0) return {};
  SWALE_ASSIGN_OR_RETURN(buffer_, Buffer::allocate(kJournalRecordsMax));
  return {};
}

Status SyncJournal::put_head() {
  const std::string head = head_of(generation_);
  std::memcpy(buffer_.data(), head.data(), head.size());
  SWALE_RETURN_IF_ERROR(file_->pwrite(generation_ % 2 * kPageBytes, buffer_.bytes().substr(0, head.size())));
  return sync();
}

// The head comes last: without one, and without records, it was never finished.
Status SyncJournal::make() {
  SWALE_ASSIGN_OR_RETURN(file_, device_.open(path_, io::OpenMode::kOpenOrCreate));
  SWALE_RETURN_IF_ERROR(file_->truncate(0));
  file_->prefer_direct();
  std::memset(buffer_.data(), 0, buffer_.size());
  for (uint64_t at = 0; at < bytes_; at += buffer_.size())
    SWALE_RETURN_IF_ERROR(
        file_->pwrite(at, buffer_.bytes().substr(0, std::min<uint64_t>(buffer_.size(), bytes_ - at))));
  SWALE_RETURN_IF_ERROR(sync());
  generation_ = random_number() / 2 + 1;
  SWALE_RETURN_IF_ERROR(put_head());
  return syncs_ ? device_.sync_directory(folder_) : Status();
}

Status SyncJournal::append(std::span<const JournalRecord> records) {
  SWALE_RETURN_IF_ERROR(need_buffer());
  usable_ = false;  // until all has gone well
  if (file_ == nullptr) {
    const Status made = make();
    if (!made.ok()) {
      file_.reset();
      static_cast<void>(device_.remove(path_));
      return made;
    }
  }
  uint64_t bytes = 0;
  for (const JournalRecord& each : records) {
    const uint64_t size = each.bytes();
    encode(each, generation_, sequence_ + static_cast<uint64_t>(&each - records.data()),
           buffer_.span().subspan(bytes, size));
    bytes += size;
  }
  SWALE_RETURN_IF_ERROR(file_->pwrite(end_, buffer_.bytes().substr(0, bytes)));
  SWALE_RETURN_IF_ERROR(sync());
  end_ += bytes;
  sequence_ += records.size();
  for (const JournalRecord& each : records) note(each);
  usable_ = true;
  return {};
}

Status SyncJournal::begin_anew() {
  if (file_ == nullptr) return {};
  SWALE_RETURN_IF_ERROR(need_buffer());
  usable_ = false;
  ++generation_;
  SWALE_RETURN_IF_ERROR(put_head());
  end_ = kJournalHeadBytes;
  sequence_ = 0;
  oldest_order_ = kOrderMax;
  usable_ = true;
  return {};
}

}  // namespace swale::fs
