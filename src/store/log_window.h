// LogWindow: a log file read from front to back through a buffer, so that a replay takes the memory of its
// longest record and not that of the log.
//
// Threads: one. Errors: the device's; std::bad_alloc. Limits: the buffer grows to the longest range asked for
// by at().
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "io/device.h"

namespace swale::store {

inline constexpr size_t kWindowSlackBytes = 8;  // decoders may load whole words

class LogWindow {
 public:
  // Only the first `size` bytes of the file count. The file must outlive the window.
  LogWindow(io::File& file, uint64_t size) : file_(file), size_(size) {}

  uint64_t size() const { return size_; }
  // `count` bytes at `offset`, which requires that they are there. kWindowSlackBytes after them may be
  // read, whatever they are. Valid until the next call.
  Result<Bytes> at(uint64_t offset, size_t count);
  // crc32c_extend over a range of any length: in pieces, so that a damaged length costs no memory.
  Result<uint32_t> checksum(uint32_t crc, uint64_t offset, uint64_t count);
  // The first place at or after `from` where the four bytes of `magic` (little-endian) stand; size() if there
  // is none.
  Result<uint64_t> find(uint32_t magic, uint64_t from);

 private:
  io::File& file_;
  const uint64_t size_;
  std::string buffer_;
  uint64_t begin_ = 0, end_ = 0;  // of the file, in the buffer
};

}  // namespace swale::store
