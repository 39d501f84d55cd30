#include "imd/reader_io.h"

#include <algorithm>

namespace swale::imd {

void ReadWave::add(io::File& file, uint64_t offset, MutableBytes out) {
  files_.push_back(&file);
  requests_.push_back({.offset = offset, .out = out, .got = 0, .status = {}});
}

Status ReadWave::run() {
  Status status;
  for (size_t begin = 0; begin < requests_.size() && status.ok();) {
    size_t end = begin + 1;
    while (end < requests_.size() && files_[end] == files_[begin] && end - begin < reads_in_flight_max_)
      ++end;
    status = run_part(begin, end);
    begin = end;
  }
  files_.clear();
  requests_.clear();
  return status;
}

Status ReadWave::run_part(size_t begin, size_t end) {
  io::File& file = *files_[begin];
  const auto part = std::span(requests_).subspan(begin, end - begin);
  file.read_many(part);
  counters_.reads.add(part.size());
  for (const io::ReadRequest& request : part) {
    SWALE_RETURN_IF_ERROR(request.status);
    counters_.bytes_read.add(request.got);
    if (request.got < request.out.size()) {
      return corruption(
          "{}: offset {}: expected {} bytes, found {}: the file was cut off; restore it, or run `swale "
          "verify` to see "
          "what is left",
          file.path(), request.offset, request.out.size(), request.got);
    }
  }
  return {};
}

}  // namespace swale::imd
