#include "fs/node/backing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/crc32c.h"
#include "io/beneath.h"

namespace swale::fs {

Stamp stamp_of(const struct stat& found) {
  return {found.st_dev, found.st_ino, static_cast<uint64_t>(found.st_size),
          found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec};
}

Result<Stamp> stamp_of(io::File& file) {
  struct stat found;
  if (::fstat(file.descriptor(), &found) != 0) return errno_status(errno, file.path() + ": its attributes");
  return stamp_of(found);
}

Status dress_as(io::File& file, io::File* replaced) {
  if (replaced == nullptr || file.descriptor() < 0 || replaced->descriptor() < 0) return {};
  struct stat found, own;
  if (::fstat(replaced->descriptor(), &found) != 0 || ::fstat(file.descriptor(), &own) != 0)
    return errno_status(errno, replaced->path() + ": its attributes");
  mode_t mode = found.st_mode & 07777;
  const bool other = found.st_uid != own.st_uid || found.st_gid != own.st_gid;
  if (other && ::fchown(file.descriptor(), found.st_uid, found.st_gid) != 0) {
    if (errno != EPERM) return errno_status(errno, file.path() + ": the owner of the file that it replaces");
    mode &= 0777;  // nobody's program runs as another user
  }
  if (::fchmod(file.descriptor(), mode) != 0)
    return errno_status(errno, file.path() + ": the mode of the file that it replaces");
  return {};
}

void start_writeback(io::File& file, uint64_t offset, uint64_t bytes) {
  if (file.descriptor() < 0) return;
  static_cast<void>(::sync_file_range(file.descriptor(), static_cast<off_t>(offset),
                                      static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE));
}

namespace {

Status expect_same(io::File& out, uint64_t offset, MutableBytes bytes) {
  const uint32_t crc = crc32c(view(bytes));
  SWALE_RETURN_IF_ERROR(read_exactly(out, offset, bytes));
  if (crc32c(view(bytes)) == crc) return {};
  return corruption(
      "{}: offset {}: {} bytes have another checksum than those that were committed; the logs keep them: "
      "check the disk, and drain again",
      out.path(), offset, bytes.size());
}

bool is_hole(uint64_t offset, Bytes bytes) {
  if (offset % kHoleBytes != 0 || bytes.size() < kHoleBytes || bytes[0] != 0) return false;
  return std::memcmp(bytes.data(), bytes.data() + 1, kHoleBytes - 1) == 0;
}

// Where the file ends before them there is nothing to do.
Status make_hole(io::File& out, uint64_t offset, MutableBytes zeros) {
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, out.size());
  if (size <= offset) return {};
  zeros = zeros.first(std::min<uint64_t>(zeros.size(), size - offset));
  const int fd = out.descriptor();
  const bool punched =
      fd >= 0 && ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                             static_cast<off_t>(zeros.size())) == 0;
  if (!punched) SWALE_RETURN_IF_ERROR(out.pwrite(offset, view(zeros)));
  return expect_same(out, offset, zeros);
}

}  // namespace

Status write_checked(io::File& out, uint64_t offset, MutableBytes bytes) {
  while (!bytes.empty()) {
    const bool hole = is_hole(offset, view(bytes));
    size_t length = 0;
    while (length < bytes.size() && is_hole(offset + length, view(bytes.subspan(length))) == hole)
      length += std::min<uint64_t>(kHoleBytes - (offset + length) % kHoleBytes, bytes.size() - length);
    const MutableBytes part = bytes.first(length);
    if (hole) {
      SWALE_RETURN_IF_ERROR(make_hole(out, offset, part));
    } else {
      SWALE_RETURN_IF_ERROR(out.pwrite(offset, view(part)));
      SWALE_RETURN_IF_ERROR(expect_same(out, offset, part));
    }
    bytes = bytes.subspan(length);
    offset += length;
  }
  return {};
}

bool is_of_names(std::string_view path) {
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    if (!io::is_one_name(path.substr(0, slash))) return false;
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return true;
}

}  // namespace swale::fs
