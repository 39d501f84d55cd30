#include "imd/format/epoch_log.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/coding.h"
#include "base/contain.h"
#include "base/crc32c.h"

namespace swale::imd {
namespace {

// DO NOT CHANGE THESE VALUES: they are embedded in the files.
constexpr uint64_t kHeaderMagic = 0x73636F7065777301;  // "\1swepocs"
constexpr uint32_t kRecordMagic = 0x636F7065;          // "epoc"
constexpr uint32_t kEpochLogVersion = 1;
constexpr uint32_t kInLogs = 0;  // places
constexpr uint32_t kInClusters = 1;
constexpr size_t kChecksumOffset = kEpochRecordBytes - sizeof(uint32_t);
constexpr size_t kChunkBytes = kMiB;
// Slots that are looked at after one that is not whole, to tell damage from a torn append.
constexpr size_t kLookAheadSlots = 64;
constexpr uint64_t kSalvageGapSlots = kMiB;  // damage beyond which repair looks no further
static_assert(kChunkBytes % kEpochSlotBytes == 0);

// The record, its checksum, and both again.
std::string twice(std::string record) {
  record.resize(kChecksumOffset, '\0');
  append_u32(&record, crc32c(record));
  return record + record;
}

bool is_whole(Bytes copy) {
  return copy.size() == kEpochRecordBytes &&
         get_u32(copy.data() + kChecksumOffset) == crc32c(copy.substr(0, kChecksumOffset));
}

// A copy in the slot whose checksum is right; none: neither is.
std::optional<Bytes> whole_copy(Bytes slot) {
  for (const size_t at : {size_t{0}, kEpochRecordBytes}) {
    const Bytes copy = slot.substr(std::min(at, slot.size()), kEpochRecordBytes);
    if (is_whole(copy)) return copy;
  }
  return std::nullopt;
}

void count_damage(Bytes slot, uint64_t offset, EpochLogContent* content) {
  if (is_whole(slot.substr(0, kEpochRecordBytes)) && is_whole(slot.substr(kEpochRecordBytes))) return;
  if (content->damaged_copies++ == 0) content->damaged_offset = offset;
}

std::string encode_header(uint32_t job) {
  std::string out;
  append_u64(&out, kHeaderMagic);
  append_u32(&out, kEpochLogVersion);
  append_u32(&out, job);
  return twice(std::move(out));
}

// { magic u32, epoch u32, job u32, recovered u32, epoch_id u64, step i64, time f64, records u64, data_bytes
//   u64, digest u64, large_values u64, large_bytes u64, summary_offset u64, summary_bytes u32, summary_job
//   u32, attributes_offset u64, attributes_bytes u32, attributes_job u32, described_by u32, origin u32, place
//   u32 } crc32c
std::string encode_record(const EpochEntry& epoch, const Manifest& manifest) {
  std::string out;
  append_u32(&out, kRecordMagic);
  append_u32(&out, epoch.epoch);
  append_u32(&out, manifest.jobs[epoch.job].number);
  append_u32(&out, static_cast<uint32_t>(epoch.recovered));
  append_u64(&out, epoch.epoch_id);
  append_i64(&out, epoch.step);
  append_double(&out, epoch.time);
  append_u64(&out, epoch.records);
  append_u64(&out, epoch.data_bytes);
  append_u64(&out, epoch.digest);
  append_u64(&out, epoch.large.values);
  append_u64(&out, epoch.large.bytes);
  append_u64(&out, epoch.summary.offset);
  append_u32(&out, epoch.summary.bytes);
  append_u32(&out, epoch.summary.job);
  append_u64(&out, epoch.attributes.offset);
  append_u32(&out, epoch.attributes.bytes);
  append_u32(&out, epoch.attributes.job);
  append_u32(&out, epoch.described_by ? *epoch.described_by + 1 : 0);
  append_u32(&out, epoch.origin);
  append_u32(&out, epoch.freed ? kInClusters : kInLogs);
  return twice(std::move(out));
}

// nullopt: not a possible record at this place.
std::optional<SalvagedEpochs::Record> decode_record(Bytes record, uint64_t number) {
  Decoder in(record);
  if (in.u32() != kRecordMagic) return std::nullopt;
  SalvagedEpochs::Record decoded;
  EpochEntry& epoch = decoded.epoch;
  epoch.epoch = EpochNumber(in.u32());
  decoded.job_number = in.u32();
  const uint32_t recovered = in.u32();
  epoch.epoch_id = in.u64();
  epoch.step = in.i64();
  epoch.time = in.f64();
  epoch.records = in.u64();
  epoch.data_bytes = in.u64();
  epoch.digest = in.u64();
  epoch.large.values = in.u64();
  epoch.large.bytes = in.u64();
  epoch.summary.offset = in.u64();
  epoch.summary.bytes = in.u32();
  epoch.summary.job = in.u32();
  epoch.attributes.offset = in.u64();
  epoch.attributes.bytes = in.u32();
  epoch.attributes.job = in.u32();
  const uint32_t described_by = in.u32();
  epoch.origin = in.u32();
  const uint32_t place = in.u32();
  epoch.freed = place == kInClusters;
  if (place > kInClusters || (epoch.freed && epoch.origin == 0)) return std::nullopt;
  if (epoch.epoch != number || recovered > static_cast<uint32_t>(Recovered::kWhole)) return std::nullopt;
  if (described_by > epoch.epoch + 1) return std::nullopt;
  if (described_by != 0) epoch.described_by = EpochNumber(described_by - 1);
  epoch.recovered = static_cast<Recovered>(recovered);
  return decoded;
}

// The same of a job that `manifest` names.
std::optional<EpochEntry> decode_record(Bytes record, uint64_t number, const Manifest& manifest) {
  std::optional<SalvagedEpochs::Record> decoded = decode_record(record, number);
  if (!decoded) return std::nullopt;
  const std::optional<size_t> index = manifest.job_index(decoded->job_number);
  if (!index) return std::nullopt;
  const uint32_t origin = decoded->epoch.origin;
  if (origin != 0 && !manifest.job_index(origin)) return std::nullopt;
  decoded->epoch.job = static_cast<uint32_t>(*index);
  return decoded->epoch;
}

// The slots of one log, in order.
class SlotReader {
 public:
  // Memory for as much as the file has now: clearing a whole chunk would be most of opening a small log.
  SlotReader(io::File& file, uint64_t size)
      : file_(file),
        chunk_bytes_(round_up(std::clamp<uint64_t>(size, kEpochSlotBytes, kChunkBytes), kEpochSlotBytes)) {}

  // Empty at the end of the file, short for a slot that is cut off.
  Result<Bytes> next() {
    if (at_ == chunk_.size()) {
      chunk_.resize(chunk_bytes_);
      SWALE_ASSIGN_OR_RETURN(const size_t got, file_.pread(offset_, {chunk_.data(), chunk_.size()}));
      chunk_.resize(got);
      at_ = 0;
    }
    const Bytes slot = Bytes(chunk_).substr(at_, kEpochSlotBytes);
    at_ += slot.size();
    offset_ += slot.size();
    return slot;
  }
  uint64_t offset() const { return offset_; }  // of the next slot

 private:
  io::File& file_;
  const size_t chunk_bytes_;  // whole slots
  std::string chunk_;
  size_t at_ = 0;
  uint64_t offset_ = 0;
};

// The generation whose log it is.
Result<uint32_t> decode_header(Bytes slot, const std::string& path) {
  const std::optional<Bytes> header = whole_copy(slot);
  Decoder in(header.value_or(Bytes()));
  if (!header || in.u64() != kHeaderMagic) {
    return corruption("{}: offset 0: is no header of an epoch log; run `swale repair`", path);
  }
  const uint32_t version = in.u32();
  if (version > kEpochLogVersion) {
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: is of format version {}, this build knows up to {}; read it with a newer swale", path,
                 version, kEpochLogVersion);
  }
  return in.u32();
}

Status check_header(Bytes slot, uint32_t generation, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const uint32_t job, decode_header(slot, path));
  if (job != generation) {
    return corruption("{}: offset 0: is the epoch log of job {}, expected {}; run `swale repair`", path, job,
                      generation);
  }
  return {};
}

// No record after this place: only then is a slot that is not whole the end of the log.
Result<bool> nothing_follows(SlotReader& slots) {
  for (size_t i = 0; i < kLookAheadSlots; ++i) {
    SWALE_ASSIGN_OR_RETURN(const Bytes slot, slots.next());
    if (slot.size() < kEpochSlotBytes) break;
    if (whole_copy(slot)) return false;
  }
  return true;
}

}  // namespace

Result<EpochLog> EpochLog::create(io::Device& device, const std::string& directory, uint32_t job,
                                  const Manifest& manifest) {
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<io::File> file,
                         device.open(epoch_log_path(directory, job), io::OpenMode::kCreate));
  EpochLog log(std::move(file));
  std::string chunk = encode_header(job);
  uint64_t offset = 0;
  for (const EpochEntry& epoch : manifest.epochs) {
    chunk += encode_record(epoch, manifest);
    if (chunk.size() < kChunkBytes) continue;
    SWALE_RETURN_IF_ERROR(log.file_->pwrite(offset, chunk));
    offset += chunk.size();
    chunk.clear();
  }
  SWALE_RETURN_IF_ERROR(log.file_->pwrite(offset, chunk));
  SWALE_RETURN_IF_ERROR(log.file_->sync());
  SWALE_RETURN_IF_ERROR(device.sync_directory(job_folder(directory, job)));
  log.epochs_ = manifest.epochs.size();
  return log;
}

Status EpochLog::append(const EpochEntry& epoch, const Manifest& manifest) {
  if (epochs_ >= kEpochsMax) {
    return error(Code::kResourceExhausted, Scope::kFile, "{}: has {} epochs, the limit", file_->path(),
                 epochs_);
  }
  const uint64_t offset = (epochs_ + 1) * kEpochSlotBytes;
  const Status status = contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(file_->pwrite(offset, encode_record(epoch, manifest)));
    return file_->sync();
  });
  if (!status.ok()) {
    // A record that was written and not synced would show readers an epoch whose job was told that it failed.
    static_cast<void>(contain([&] { return file_->truncate(offset); }));
    return status;
  }
  ++epochs_;
  return {};
}

Status EpochLog::take_back() {
  SWALE_RETURN_IF_ERROR(file_->truncate(epochs_ * kEpochSlotBytes));
  --epochs_;
  return file_->sync();
}

Result<EpochLogContent> read_epoch_log(io::Device& device, const std::string& directory,
                                       const Manifest& manifest) {
  const std::string path = epoch_log_path(directory, manifest.generation);
  SWALE_ASSIGN_OR_RETURN(const std::unique_ptr<io::File> file, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file->size());
  SlotReader slots(*file, size);
  EpochLogContent content;
  content.epochs.reserve(
      std::min(manifest.epochs_promised, size / kEpochSlotBytes));  // a promise may be forged
  SWALE_ASSIGN_OR_RETURN(const Bytes first, slots.next());
  SWALE_RETURN_IF_ERROR(check_header(first, manifest.generation, path));
  count_damage(first, 0, &content);
  const uint64_t epochs_max = manifest.closed ? manifest.epochs_promised : kEpochsMax;
  while (content.epochs.size() < epochs_max) {
    const uint64_t offset = slots.offset();
    SWALE_ASSIGN_OR_RETURN(const Bytes slot, slots.next());
    if (slot.empty()) break;
    const std::optional<Bytes> record = whole_copy(slot);
    const uint64_t number = content.epochs.size();
    std::optional<EpochEntry> epoch;
    if (record) epoch = decode_record(*record, number, manifest);
    if (!epoch) {
      content.torn_bytes = slot.size();
      SWALE_ASSIGN_OR_RETURN(const bool at_end, nothing_follows(slots));
      if (at_end && !record && number >= manifest.epochs_promised) break;
      return corruption("{}: offset {}: the record of epoch {} is damaged; run `swale repair`", path, offset,
                        number);
    }
    count_damage(slot, offset, &content);
    content.epochs.push_back(*epoch);
  }
  if (content.epochs.size() < manifest.epochs_promised) {
    return corruption(
        "{}: ends after {} epochs at offset {}, {} promises {}: the file was cut or replaced; "
        "restore it, or run `swale repair`",
        path, content.epochs.size(), slots.offset(), kManifestName, manifest.epochs_promised);
  }
  return content;
}

Result<SalvagedEpochs> salvage_epoch_log(io::Device& device, const std::string& directory, uint32_t job) {
  const std::string path = epoch_log_path(directory, job);
  SWALE_ASSIGN_OR_RETURN(const std::unique_ptr<io::File> file, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file->size());
  SlotReader slots(*file, size);
  SalvagedEpochs found;
  SWALE_ASSIGN_OR_RETURN(const Bytes first, slots.next());
  const Result<uint32_t> header = decode_header(first, path);
  if (!header.ok() && header.status().code() != Code::kCorruption) return header.status();
  if (header.ok()) found.generation = *header;
  for (uint64_t number = 0; number < kEpochsMax && found.tail_slots <= kSalvageGapSlots; ++number) {
    SWALE_ASSIGN_OR_RETURN(const Bytes slot, slots.next());
    if (slot.empty()) break;
    const std::optional<Bytes> copy = whole_copy(slot);
    std::optional<SalvagedEpochs::Record> record;
    if (copy) record = decode_record(*copy, number);
    ++found.tail_slots;
    if (!record) continue;
    found.tail_slots = 0;
    found.records.resize(number + 1);
    found.records.back() = record;
  }
  return found;
}

EpochSlot inspect_epoch_slot(Bytes slot, uint64_t index) {
  EpochSlot found;
  for (const size_t copy : {size_t{0}, size_t{1}}) {
    const Bytes one = slot.substr(std::min(slot.size(), copy * kEpochRecordBytes), kEpochRecordBytes);
    found.whole[copy] = is_whole(one);
  }
  const std::optional<Bytes> copy = whole_copy(slot);
  if (!copy) return found;
  Decoder in(*copy);
  if (index == 0) {
    if (in.u64() != kHeaderMagic) return found;
    found.kind = EpochSlot::Kind::kHeader;
    found.version = in.u32();
    found.job = in.u32();
    return found;
  }
  in.u64();
  found.job = in.u32();
  const std::optional<SalvagedEpochs::Record> record = decode_record(*copy, index - 1);
  if (!record) return found;
  found.kind = EpochSlot::Kind::kRecord;
  found.epoch = record->epoch;
  return found;
}

}  // namespace swale::imd
