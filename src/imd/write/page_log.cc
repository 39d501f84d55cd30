#include "imd/write/page_log.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace swale::imd {

void PageLog::begin_epoch(EpochNumber epoch, uint64_t epoch_id) {
  assert(page_bytes_ == 0 && "the epoch before was not finished");
  epoch_ = epoch;
  epoch_id_ = epoch_id;
  written_ = {};
  written_.range.offset = page_number_ * run::kValuePageBytes;
}

Status PageLog::make_file() {
  SWALE_ASSIGN_OR_RETURN(file_, device_->open(path_, io::OpenMode::kCreate));
  buffer_.resize(kBufferPages * run::kValuePageBytes);
  return device_->sync_directory(folder_);
}

Result<run::ValuePointer> PageLog::append(Bytes value) {
  assert(value.size() >= run::kPagePointerBytes && value.size() <= run::kLargeValueBytesMax);
  if (!file_) SWALE_RETURN_IF_ERROR(make_file());
  const run::ValuePointer pointer{position(), static_cast<uint32_t>(value.size()), writer_, 0};
  if (pointer.offset + value.size() > run::kValuePositionMax) {
    return error(Code::kResourceExhausted, Scope::kFile,
                 "{}: a job can append {} bytes of values on one rank; open the directory by a new job",
                 path_, run::kValuePositionMax);
  }
  if (page_values_++ == 0) first_start_ = static_cast<uint16_t>(page_bytes_);
  written_.tally.add({1, value.size()});
  while (!value.empty()) {
    const size_t part = std::min(value.size(), run::kValuePagePayloadBytes - page_bytes_);
    std::memcpy(page() + page_bytes_, value.data(), part);
    page_bytes_ += part;
    value.remove_prefix(part);
    if (page_bytes_ == run::kValuePagePayloadBytes) SWALE_RETURN_IF_ERROR(end_page());
  }
  return pointer;
}

Status PageLog::end_page() {
  char* const end = page() + page_bytes_;
  std::memset(end, 0, run::kValuePagePayloadBytes - page_bytes_);
  run::seal_value_page(page(), writer_,
                       {.epoch_id = epoch_id_,
                        .epoch = epoch_,
                        .page = static_cast<uint32_t>(page_number_),
                        .values = page_values_,
                        .first_start = first_start_,
                        .crc32c = 0});
  ++page_number_;
  page_bytes_ = 0;
  page_values_ = 0;
  first_start_ = run::kNoValueStarts;
  return page_number_ - first_buffered_ == kBufferPages ? write_buffer() : Status();
}

Status PageLog::write_buffer() {
  const uint64_t bytes = (page_number_ - first_buffered_) * run::kValuePageBytes;
  SWALE_RETURN_IF_ERROR(file_->pwrite(first_buffered_ * run::kValuePageBytes, Bytes(buffer_.data(), bytes)));
  first_buffered_ = page_number_;
  return {};
}

Status PageLog::finish_epoch() {
  if (page_bytes_ > 0) SWALE_RETURN_IF_ERROR(end_page());
  if (page_number_ > first_buffered_) SWALE_RETURN_IF_ERROR(write_buffer());
  written_.range.values = written_.tally.values;
  written_.range.bytes = page_number_ * run::kValuePageBytes - written_.range.offset;
  return {};
}

}  // namespace swale::imd
