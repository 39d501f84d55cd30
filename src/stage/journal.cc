#include "stage/journal.h"

#include <utility>

#include "base/coding.h"

namespace swale::stage {
namespace {

constexpr char kNew[] = ".new";

std::string piece_payload(const std::string& destination, const FileIdentity& source, uint64_t device,
                          uint64_t inode, const PieceDone& piece) {
  std::string payload;
  append_sized(&payload, destination);
  source.append_to(&payload);
  for (const uint64_t field : {device, inode, piece.offset, piece.bytes}) append_u64(&payload, field);
  append_u32(&payload, piece.crc);
  return payload;
}

std::string done_payload(const std::string& destination, const Finished& file) {
  std::string payload;
  append_sized(&payload, destination);
  file.source.append_to(&payload);
  file.copy.append_to(&payload);
  append_u32(&payload, file.crc);
  return payload;
}

}  // namespace

Journal::Journal(io::Device& device, std::string path, uint64_t owner)
    : device_(device),
      path_(std::move(path)),
      identity_{kJournalKind, 0, owner},
      log_(device, path_ + kNew, identity_) {}

Result<std::unique_ptr<Journal>> Journal::open(io::Device& device, const std::string& path, uint64_t owner) {
  std::unique_ptr<Journal> journal(new Journal(device, path, owner));
  const Status found = journal->read();
  if (!found.ok() && found.code() != Code::kNotFound) {
    journal->unfinished_.clear();
    journal->finished_.clear();
    const MutexLock lock(journal->mutex_);
    journal->remark_ = fmt::format("{}; all files are staged from their beginning", found.message());
  }
  SWALE_RETURN_IF_ERROR(journal->begin_anew());
  return journal;
}

Status Journal::read() {
  uint64_t bytes = 0;
  {
    SWALE_ASSIGN_OR_RETURN(const auto file, device_.open(path_, io::OpenMode::kRead));
    SWALE_ASSIGN_OR_RETURN(bytes, file->size());
  }
  uint64_t sequence = 0;
  return store::read_log(device_, path_, identity_, bytes, store::LogTail::kMayBeTorn, &sequence,
                         [this](const store::Record& record) { return take(record); })
      .status();
}

Status Journal::take(const store::Record& record) {
  Decoder in(record.payload);
  const auto whole = [&] { return in.finish(fmt::format("{}: the record at {}", path_, record.offset)); };
  if (record.kind == static_cast<uint16_t>(JournalRecord::kBegan)) {
    while (in.ok() && in.remaining() > 0) begun_.emplace(in.sized());
    return whole();
  }
  const std::string destination(in.sized());
  const FileIdentity source = FileIdentity::take(&in);
  if (record.kind == static_cast<uint16_t>(JournalRecord::kPiece)) {
    const uint64_t device = in.u64(), inode = in.u64();
    PieceDone piece;
    piece.offset = in.u64();
    piece.bytes = in.u64();
    piece.crc = in.u32();
    SWALE_RETURN_IF_ERROR(whole());
    Unfinished& file = unfinished_[destination];
    if (!(file.source == source) || file.device != device || file.inode != inode)
      file = {source, device, inode, {}};
    file.pieces.push_back(piece);
    return {};
  }
  Finished file;
  file.source = source;
  file.copy = FileIdentity::take(&in);
  file.crc = in.u32();
  SWALE_RETURN_IF_ERROR(whole());
  if (record.kind != static_cast<uint16_t>(JournalRecord::kDone))
    return error(Code::kUnsupported, Scope::kFile, "{}: a record of kind {}; was it made by a newer swale?",
                 path_, record.kind);
  begun_.erase(destination);
  unfinished_.erase(destination);
  finished_[destination] = file;
  return {};
}

// Under another name, so that a kill meanwhile leaves the old one.
Status Journal::begin_anew() {
  const Status removed = device_.remove(path_ + kNew);
  if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  const MutexLock lock(mutex_);
  SWALE_RETURN_IF_ERROR(log_.create());
  std::string began;
  for (const std::string& destination : begun_) append_sized(&began, destination);
  if (!began.empty()) append(JournalRecord::kBegan, began);
  for (const auto& [destination, file] : finished_)
    append(JournalRecord::kDone, done_payload(destination, file));
  for (const auto& [destination, file] : unfinished_)
    for (const PieceDone& piece : file.pieces)
      append(JournalRecord::kPiece, piece_payload(destination, file.source, file.device, file.inode, piece));
  return device_.rename(path_ + kNew, path_);
}

const Unfinished* Journal::unfinished(const std::string& destination) const {
  const auto found = unfinished_.find(destination);
  return found == unfinished_.end() ? nullptr : &found->second;
}

const Finished* Journal::finished(const std::string& destination) const {
  const auto found = finished_.find(destination);
  return found == finished_.end() ? nullptr : &found->second;
}

void Journal::begin(std::span<const std::string* const> destinations) {
  std::string payload;
  for (const std::string* const destination : destinations) append_sized(&payload, *destination);
  const MutexLock lock(mutex_);
  append(JournalRecord::kBegan, payload);
}

void Journal::add(const std::string& destination, const FileIdentity& source, const struct stat& part,
                  const PieceDone& piece) {
  const std::string payload = piece_payload(destination, source, part.st_dev, part.st_ino, piece);
  const MutexLock lock(mutex_);
  append(JournalRecord::kPiece, payload);
}

void Journal::add(const std::string& destination, const Finished& file) {
  const std::string payload = done_payload(destination, file);
  const MutexLock lock(mutex_);
  append(JournalRecord::kDone, payload);
}

void Journal::append(JournalRecord kind, const std::string& payload) {
  if (!log_.usable()) return;
  std::string record(store::kRecordHeadBytes, '\0');
  record += payload;
  const Status added =
      log_.append(static_cast<uint16_t>(kind), sequence_ + 1, &record, {}, store::AppendSync::kLater);
  if (added.ok()) ++sequence_;
  if (added.ok()) return;
  if (remark_.empty())
    remark_ = fmt::format("{}; if this run is stopped, it cannot be continued where it was", added.message());
}

std::string Journal::remark() const {
  const MutexLock lock(mutex_);
  return remark_;
}

Status Journal::remove() {
  const Status removed = device_.remove(path_);
  return removed.code() == Code::kNotFound ? Status() : removed;
}

}  // namespace swale::stage
