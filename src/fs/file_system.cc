#include "fs/file_system.h"

#include <algorithm>
#include <cerrno>

#include "base/buffer.h"
#include "base/log.h"

namespace swale::fs {
namespace {

constexpr uint64_t kCopyBytes = kMiB;

FileSystem::Fill fill_from(const char* at) {
  return [at](MutableBytes out) mutable -> Status {
    std::copy_n(at, out.size(), out.data());
    at += out.size();
    return {};
  };
}

}  // namespace

bool is_usual_refusal(int error_number) {
  switch (error_number) {
    case ENOENT:
    case EEXIST:
    case ENOTEMPTY:
    case ENOTDIR:
    case EISDIR:
    case ENODATA:
    case ERANGE:
    case ENOTTY:
    case EOPNOTSUPP:
      return true;
    default:
      return false;
  }
}

void FileSystem::write_bytes(OpenFile& file, uint64_t offset, Bytes bytes, const Caller& caller,
                             const std::function<void(int)>& answered) {
  write(file, offset, bytes.size(), caller, fill_from(bytes.data()), answered);
}

int FileSystem::copy(OpenFile& from, uint64_t from_offset, OpenFile& to, uint64_t to_offset, uint64_t length,
                     const Caller& caller, uint64_t* copied) {
  auto buffer = Buffer::allocate(std::min(length, kCopyBytes));
  if (!buffer.ok()) {
    log_error("{}", buffer.status().message());
    return buffer.status().posix_error();
  }
  uint64_t done = 0;
  while (done < length) {
    size_t got = 0;
    const MutableBytes part = buffer->span().first(std::min<uint64_t>(length - done, buffer->size()));
    int failed = read(from, from_offset + done, part, &got);
    if (failed == 0 && got > 0) failed = write(to, to_offset + done, got, caller, fill_from(part.data()));
    if (failed != 0 && done == 0) return failed;
    if (failed != 0 || got == 0) break;
    done += got;
  }
  *copied = done;
  return 0;
}

}  // namespace swale::fs
