#include "store/log_window.h"

#include <algorithm>

#include "base/coding.h"
#include "base/crc32c.h"

namespace swale::store {
namespace {

constexpr size_t kWindowBytes = kMiB;

}  // namespace

Result<Bytes> LogWindow::at(uint64_t offset, size_t count) {
  if (offset < begin_ || offset + count > end_) {
    const auto want = static_cast<size_t>(std::min<uint64_t>(std::max(count, kWindowBytes), size_ - offset));
    begin_ = end_ = 0;
    if (buffer_.size() < want + kWindowSlackBytes) buffer_.resize(want + kWindowSlackBytes);
    SWALE_RETURN_IF_ERROR(io::read_exactly(file_, offset, MutableBytes(buffer_.data(), want)));
    begin_ = offset;
    end_ = offset + want;
  }
  return Bytes(buffer_).substr(static_cast<size_t>(offset - begin_), count);
}

Result<uint32_t> LogWindow::checksum(uint32_t crc, uint64_t offset, uint64_t count) {
  while (count > 0) {
    const auto piece = static_cast<size_t>(std::min<uint64_t>(count, kWindowBytes));
    SWALE_ASSIGN_OR_RETURN(const Bytes bytes, at(offset, piece));
    crc = crc32c_extend(crc, bytes);
    offset += piece;
    count -= piece;
  }
  return crc;
}

Result<uint64_t> LogWindow::find(uint32_t magic, uint64_t from) {
  char wanted[4];
  put_u32(wanted, magic);
  for (uint64_t offset = from; offset + sizeof(wanted) <= size_;) {
    const auto piece = static_cast<size_t>(std::min<uint64_t>(size_ - offset, kWindowBytes));
    SWALE_ASSIGN_OR_RETURN(const Bytes bytes, at(offset, piece));
    if (const size_t found = bytes.find(Bytes(wanted, sizeof(wanted))); found != Bytes::npos)
      return offset + found;
    offset += piece - (sizeof(wanted) - 1);
  }
  return size_;
}

}  // namespace swale::store
