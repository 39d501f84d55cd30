#include "tier/store/shared_queue.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/coding.h"

namespace swale::tier {
namespace {

constexpr uint64_t kStep = 4096;  // slots begin at multiples of it

}  // namespace

Result<std::unique_ptr<SharedQueue>> SharedQueue::create(io::Device& device, const std::string& path,
                                                         uint32_t slots, uint32_t slot_bytes,
                                                         uint64_t log_id) {
  SWALE_ASSIGN_OR_RETURN(auto file, device.open(path, io::OpenMode::kCreate));
  auto queue = make(std::move(file), path, slots, slot_bytes, log_id);
  // Nothing of one that has no space stays: each try would leave another one.
  if (!queue.ok()) static_cast<void>(device.remove(path));
  return queue;
}

Result<std::unique_ptr<SharedQueue>> SharedQueue::make(std::unique_ptr<io::File> file,
                                                       const std::string& path, uint32_t slots,
                                                       uint32_t slot_bytes, uint64_t log_id) {
  std::unique_ptr<SharedQueue> queue(new SharedQueue);
  queue->file_ = std::move(file);
  queue->path_ = path;
  queue->slots_ = slots;
  queue->slot_bytes_ = slot_bytes;
  queue->log_id_ = log_id;
  queue->stride_ = round_up(kHeadBytes + slot_bytes + kRecordHeaderBytes + kAlignmentMax, kStep);
  queue->bytes_ = queue->stride_ * slots;
  const int descriptor = queue->file_->descriptor();
  if (descriptor < 0)
    return error(Code::kUnsupported, Scope::kOperation,
                 "{}: the tier's queue needs a file of the operating system", path);
  // A page of a mapping that finds no block on the device would end the process.
  if (const int failure = ::posix_fallocate(descriptor, 0, static_cast<off_t>(queue->bytes_)); failure != 0)
    return errno_status(failure, fmt::format("{}: fallocate of {} bytes for the queue", path, queue->bytes_));
  void* const memory = ::mmap(nullptr, queue->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED)
    return errno_status(errno, fmt::format("{}: mmap of {} bytes", path, queue->bytes_));
  queue->memory_ = static_cast<char*>(memory);
  return queue;
}

SharedQueue::~SharedQueue() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

Bytes SharedQueue::log_record(uint32_t slot, const RecordHeader& record, uint32_t alignment) {
  char* const at = payload(slot) - record.head_bytes();
  const uint64_t space = record.space(alignment);
  char* const end = at + space - kRecordHeaderBytes;
  encode_record_header(record, log_id_, MutableBytes(at, kRecordHeaderBytes));
  char* const padding = at + record.head_bytes() + record.length;
  std::memset(padding, 0, static_cast<size_t>(end - padding));
  encode_record_end(record, log_id_, MutableBytes(end, kRecordHeaderBytes));
  return {at, space};
}

void SharedQueue::seal(uint32_t slot, RecordHeader record) {
  char* const at = begin(slot);
  record.address = static_cast<uint64_t>(at - memory_);
  char header[kRecordHeaderBytes];
  encode_record_header(record, log_id_, header);
  std::memcpy(at, header, sizeof(header));
  std::atomic_signal_fence(std::memory_order_seq_cst);  // a kill comes between instructions
}

void SharedQueue::clear(uint32_t slot) {
  std::memset(begin(slot), 0, kRecordHeaderBytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

Status SharedQueue::sync() { return file_->sync(); }

Result<std::vector<RecordHeader>> SharedQueue::left_in(io::File& file, uint64_t log_id,
                                                       std::vector<DamagedRecord>* damaged) {
  std::vector<RecordHeader> left;
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file.size());
  std::string header(kRecordHeaderBytes, '\0');
  std::string payload;
  for (uint64_t at = 0; at + kHeadBytes <= size; at += kStep) {
    SWALE_RETURN_IF_ERROR(io::read_exactly(file, at, header));
    auto record = decode_record_header(header, log_id);
    if (!record.ok() || record->type != RecordType::kQueued || record->address != at) continue;
    const uint64_t begin = at + kHeadBytes;
    if (record->length > size - begin || record->length > kWriteBytesMax) continue;
    const uint32_t checks = record->checks_bytes();
    payload.resize(checks + record->length);
    SWALE_RETURN_IF_ERROR(io::read_exactly(file, begin - checks, payload));
    record->address = begin - record->head_bytes();
    const Bytes all(payload);
    if (!checks_are_whole(*record, all)) {
      damaged->push_back({*record, "its checksums are damaged", {{0, record->length}}});
      continue;
    }
    auto ranges = damaged_ranges(*record, all, 0, all.substr(checks));
    if (ranges.empty())
      left.push_back(*record);
    else
      damaged->push_back({*record, "its payload fails its checksums", std::move(ranges)});
  }
  return left;
}

// Without the id the header's checksum says nothing; what is left to compare is its magic, its type and its
// own place.
Result<uint64_t> SharedQueue::unknown_in(io::File& file, const std::vector<uint64_t>& log_ids) {
  uint64_t unknown = 0;
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file.size());
  std::string header(kRecordHeaderBytes, '\0');
  for (uint64_t at = 0; at + kHeadBytes <= size; at += kStep) {
    SWALE_RETURN_IF_ERROR(io::read_exactly(file, at, header));
    const bool sealed = get_u32(header.data()) == kRecordMagic &&
                        static_cast<RecordType>(header[8]) == RecordType::kQueued &&
                        get_u64(header.data() + 56) == at;
    unknown += sealed && std::none_of(log_ids.begin(), log_ids.end(),
                                      [&](uint64_t id) { return decode_record_header(header, id).ok(); });
  }
  return unknown;
}

}  // namespace swale::tier
