#include "meta/index/table_records.h"

#include <algorithm>
#include <new>

#include "store/record_log.h"

namespace swale::meta {
namespace {

// DO NOT CHANGE THESE VALUES: they are on disk.
constexpr uint16_t kTableFileKind = 2;  // of a record log
constexpr uint16_t kTableRecord = 1;
constexpr size_t kFileRecordBytes = kMiB;  // about so much of the table is one record of the file

// Space for `bytes` more, without a copy of everything each time.
void reserve_more(std::string* text, size_t bytes) {
  const size_t wanted = text->size() + bytes;
  if (wanted > text->capacity()) text->reserve(std::max(wanted, 2 * text->capacity()));
}

}  // namespace

void TableRecords::join(Bytes record, std::string* records) {
  constexpr size_t kSizeBytesMax = 10;  // of append_sized
  reserve_more(records, kSizeBytesMax + record.size());
  append_sized(records, record);
}

void TableRecords::begin_commit(Bytes records) {
  if (tail_.empty()) std::string().swap(tail_);
  reserve_more(&tail_, records.size());
  changes_ = table_ != nullptr ? table_->changes() : 0;
}

void TableRecords::durable(Bytes records) noexcept {
  tail_.append(records);
  if (table_ != nullptr) table_->keep(changes_);
}

void TableRecords::take_back() noexcept {
  if (table_ != nullptr) table_->undo();
}

Status TableRecords::replay(Bytes records, const std::string& where) {
  if (records.empty()) return {};
  if (table_ == nullptr)
    return invalid_argument("{}: has records of a table, and none is given to read them", where);
  tail_.append(records);
  for (Decoder in(records); in.remaining() > 0;) {
    const Bytes record = in.sized();
    if (!in.ok()) return corruption("{}: half a record of the table at byte {}", where, in.offset());
    const Status status = table_->replay(record);
    if (!status.ok()) return status.with_context(where);
    ++replayed_;
  }
  return {};
}

Status TableRecords::replay_file(io::Device& device, const std::string& path, uint32_t shard,
                                 const ManifestLog& file) {
  uint64_t sequence = 0;
  SWALE_ASSIGN_OR_RETURN(
      const store::LogScan scan,
      store::read_log(device, path, {kTableFileKind, shard, owner_of(file.job, file.number)}, file.bytes,
                      store::LogTail::kWhole, &sequence, [&](const store::Record& record) -> Status {
                        const std::string where = fmt::format("{}: record at offset {}", path, record.offset);
                        if (record.kind == kTableRecord) return replay(record.payload, where);
                        return error(Code::kUnsupported, Scope::kFile,
                                     "{}: is of kind {}, which is unknown; read it with a newer swale", where,
                                     record.kind);
                      }));
  if (scan.bytes != file.bytes)
    return corruption("{}: {} bytes, the manifest says {}: restore the file from a copy", path, scan.bytes,
                      file.bytes);
  std::string().swap(tail_);  // the file has it; clear() would keep the memory of all
  file_ = file;
  return {};
}

// After an attempt that failed, another one is wanted when the tail is twice as long.
bool TableRecords::wants_checkpoint(uint64_t written_bytes) {
  if (tail_.size() < std::max({bytes_min_, 2 * (written_bytes + file_.bytes), 2 * asked_bytes_}))
    return false;
  asked_bytes_ = tail_.size();
  if (wanted_bytes_ == 0) wanted_bytes_ = asked_bytes_;
  return true;
}

std::string TableRecords::encode_file(uint32_t shard, uint64_t owner) const {
  const store::LogIdentity identity{kTableFileKind, shard, owner};
  const uint32_t seed = store::record_seed(identity);
  std::string content = store::log_header(identity);
  std::string record(store::kRecordHeadBytes, '\0');
  uint64_t sequence = 0;
  const auto end_record = [&] {
    store::seal_record(seed, kTableRecord, ++sequence, &record);
    content += record;
    record.resize(store::kRecordHeadBytes);
  };
  table_->for_each_record([&](Bytes each) {
    join(each, &record);
    if (record.size() >= kFileRecordBytes) end_record();
  });
  if (record.size() > store::kRecordHeadBytes) end_record();
  return content;
}

void TableRecords::filed(const ManifestLog& file, size_t tail_bytes, bool committing) noexcept {
  tail_.erase(0, tail_bytes);
  file_ = file;
  if (committing || tail_.capacity() <= 4 * tail_.size()) return;  // a commit has reserved what it needs
  try {
    std::string(tail_).swap(tail_);
  } catch (const std::bad_alloc&) {  // it keeps its memory
  }
}

}  // namespace swale::meta
