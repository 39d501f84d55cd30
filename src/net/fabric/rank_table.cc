#include "net/fabric/rank_table.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

namespace swale::net {
namespace {

constexpr size_t kUnwrittenMax = 64 * kKiB;

}  // namespace

RankTable::RankTable(RankTable&& other) noexcept
    : shape_(other.shape_),
      memory_(std::move(other.memory_)),
      path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      unwritten_(std::move(other.unwritten_)),
      unwritten_at_(other.unwritten_at_) {}

RankTable::~RankTable() {
  if (fd_ >= 0) ::close(fd_);
}

RankTable RankTable::in_memory(const Shape& shape) {
  RankTable table("", -1, shape);
  table.memory_.resize(table.bytes());
  return table;
}

Result<RankTable> RankTable::create(const std::string& path, const Shape& shape) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return errno_status(errno, fmt::format("create {}", path));
  return RankTable(path, fd, shape);
}

Result<RankTable> RankTable::open(const std::string& path, const Shape& shape) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return errno_status(errno, fmt::format("open {}", path));
  RankTable table(path, fd, shape);
  struct stat found;
  if (::fstat(fd, &found) != 0) return errno_status(errno, fmt::format("fstat {}", path));
  if (!S_ISREG(found.st_mode) || found.st_uid != ::geteuid()) {
    return error(Code::kInvalidArgument, Scope::kFatal,
                 "{} is not a file of this job: it belongs to user {} and has mode {:o}", path, found.st_uid,
                 found.st_mode);
  }
  return table;
}

size_t RankTable::piece_at(size_t offset) const {
  return std::min(shape_.piece_bytes, shape_.row_bytes - offset);
}

uint64_t RankTable::place_of(Rank rank, size_t offset) const {
  return uint64_t{offset} * static_cast<uint64_t>(shape_.ranks) +
         static_cast<uint64_t>(rank) * piece_at(offset);
}

Status RankTable::put(Rank rank, size_t offset, Bytes piece) {
  assert(rank >= 0 && rank < shape_.ranks && offset < shape_.row_bytes);
  const size_t length = piece_at(offset);
  assert(offset % shape_.piece_bytes == 0 && piece.size() <= length);
  const uint64_t place = place_of(rank, offset);
  if (fd_ < 0) {
    piece.copy(memory_.data() + place, piece.size());
    return {};
  }
  if (place != unwritten_at_ + unwritten_.size() || unwritten_.size() + length > kUnwrittenMax) {
    SWALE_RETURN_IF_ERROR(flush());
    unwritten_at_ = place;
  }
  unwritten_.append(piece);
  unwritten_.append(length - piece.size(), '\0');
  return {};
}

Status RankTable::flush() {
  size_t done = 0;
  while (done < unwritten_.size()) {
    const uint64_t place = unwritten_at_ + done;
    const ssize_t count =
        ::pwrite(fd_, unwritten_.data() + done, unwritten_.size() - done, static_cast<off_t>(place));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return errno_status(count < 0 ? errno : ENOSPC, fmt::format("write {} at {}", path_, place));
    done += static_cast<size_t>(count);
  }
  unwritten_.clear();
  return {};
}

Result<std::string> RankTable::row(Rank rank) const {
  assert(rank >= 0 && rank < shape_.ranks);
  std::string row(shape_.row_bytes, '\0');
  for (size_t offset = 0; offset < row.size(); offset += shape_.piece_bytes) {
    const size_t length = piece_at(offset);
    const uint64_t place = place_of(rank, offset);
    if (fd_ < 0) {
      memory_.copy(row.data() + offset, length, place);
      continue;
    }
    for (size_t done = 0; done < length;) {
      const ssize_t count =
          ::pread(fd_, row.data() + offset + done, length - done, static_cast<off_t>(place + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno_status(errno, fmt::format("read {} at {}", path_, place + done));
      if (count == 0) {
        return error(
            Code::kCorruption, Scope::kFatal,
            "{} ends before offset {}, where the row of rank {} of {} stands: the file was cut, or is "
            "another job's",
            path_, place + length, rank, shape_.ranks);
      }
      done += static_cast<size_t>(count);
    }
  }
  return row;
}

}  // namespace swale::net
