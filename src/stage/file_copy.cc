#include "stage/file_copy.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/crc32c.h"
#include "base/crc32c_join.h"
#include "io/fresh_file.h"
#include "stage/attributes.h"

namespace swale::stage {
namespace {

// A smaller one is written through the page cache, so that a batch of them is synced together.
constexpr uint64_t kDirectBytes = kMiB;
// Of a read: its checksum finds the bytes in the processor's cache.
constexpr size_t kReadBytes = 256 * kKiB;

uint64_t up_to_pages(uint64_t bytes) {
  return (bytes + Buffer::kPageBytes - 1) / Buffer::kPageBytes * Buffer::kPageBytes;
}

}  // namespace

Status stage_was_stopped(const std::string& path) {
  return error(Code::kAborted, Scope::kOperation, "{}: the stage was told to stop", path);
}

Result<std::unique_ptr<FileCopy>> FileCopy::begin(const CopyPlace& place, const Entry& entry) {
  std::unique_ptr<FileCopy> copy(new FileCopy(place, entry));
  SWALE_RETURN_IF_ERROR(copy->open_source());
  SWALE_ASSIGN_OR_RETURN(auto out, io::create_fresh(place.device, copy->part_path_));
  Status opened = copy->open_part(std::move(out));
  if (opened.ok()) opened = copy->out_->truncate(entry.bytes());
  if (opened.ok()) return copy;
  copy->discard();
  return opened;
}

Result<std::unique_ptr<FileCopy>> FileCopy::go_on(const CopyPlace& place, const Entry& entry, uint64_t device,
                                                  uint64_t inode) {
  std::unique_ptr<FileCopy> copy(new FileCopy(place, entry));
  SWALE_RETURN_IF_ERROR(copy->open_source());
  auto out = place.device.open(copy->part_path_, io::OpenMode::kReadWrite);
  if (!out.ok() || !copy->open_part(*std::move(out)).ok() || copy->part_.st_dev != device ||
      copy->part_.st_ino != inode || static_cast<uint64_t>(copy->part_.st_size) != entry.bytes())
    return std::unique_ptr<FileCopy>();
  return copy;
}

Status FileCopy::open_source() {
  SWALE_ASSIGN_OR_RETURN(source_, place_.source.open(entry_.source, O_RDONLY | O_NONBLOCK, "opening"));
  static_cast<void>(::posix_fadvise(source_.get(), 0, 0, POSIX_FADV_SEQUENTIAL));
  return check_source();
}

Status FileCopy::check_source() const {
  struct stat now;
  if (::fstat(source_.get(), &now) != 0) return errno_status(errno, entry_.source + ": looking at it");
  const FileIdentity before = entry_.identity(), after = FileIdentity::of(now);
  if (before == after) return {};
  if (before.inode != after.inode || before.device != after.device)
    return error(Code::kIoError, Scope::kFile, "{}: was replaced while it was staged; stage it again",
                 entry_.source);
  return error(Code::kIoError, Scope::kFile,
               "{}: changed while it was staged ({} bytes, now {}); stage it again when nobody writes to it",
               entry_.source, before.size, after.size);
}

Status FileCopy::open_part(std::unique_ptr<io::File> out) {
  out_ = std::move(out);
  SWALE_ASSIGN_OR_RETURN(part_fd_, place_.destination.open(part_path_, O_RDWR, "opening"));
  if (::fstat(part_fd_.get(), &part_) != 0) return errno_status(errno, part_path_ + ": looking at it");
  struct stat same = part_;
  if (out_->descriptor() >= 0 && ::fstat(out_->descriptor(), &same) != 0)
    return errno_status(errno, part_path_ + ": looking at it");
  if (!S_ISREG(part_.st_mode) || part_.st_nlink != 1 || same.st_ino != part_.st_ino ||
      same.st_dev != part_.st_dev || part_.st_uid != ::geteuid()) {
    return error(Code::kIoError, Scope::kFile,
                 "{}: somebody else has put another file there; who may write to its folder?", part_path_);
  }
  if (::fchmod(part_fd_.get(), 0600) != 0) return errno_status(errno, part_path_ + ": setting its mode");
  if (place_.durable() && is_written_direct()) out_->prefer_direct();
  return {};
}

// From its beginning, before several threads share the file.
bool FileCopy::is_written_direct() const {
  return entry_.bytes() >= std::min(kDirectBytes, place_.options.piece_bytes);
}

Result<uint32_t> FileCopy::copy(uint64_t offset, uint64_t bytes, Buffer& buffer) {
  const uint64_t end = offset + bytes;
  uint32_t crc = 0;
  const auto seek = [this](uint64_t at, int whence) {
    return ::lseek(source_.get(), static_cast<off_t>(at), whence);  // pread asks for no position
  };
  for (uint64_t at = offset; at < end;) {
    const off_t next = seek(at, SEEK_DATA);
    // No more data: a hole up to the end. A file system that knows no holes: all is data.
    const uint64_t data = next >= 0        ? std::min<uint64_t>(static_cast<uint64_t>(next), end)
                          : errno == ENXIO ? end
                                           : at;
    crc = data > at ? crc32c_extend_zeros(crc, data - at) : crc;
    place_.bytes_copied += data - at;
    at = data;
    if (at == end) break;
    const uint64_t data_end = std::min(end_of_data(at), end);
    allocate(at, data_end - at);
    SWALE_RETURN_IF_ERROR(copy_data(at, data_end - at, buffer, &crc));
    at = data_end;
  }
  return crc;
}

// A file system in memory looks at each page up to the next hole, 7 ms a GiB: once a file, not once a piece.
uint64_t FileCopy::end_of_data(uint64_t at) {
  {
    const MutexLock lock(known_mutex_);
    if (at >= known_data_ && at < known_data_end_) return known_data_end_;
  }
  const off_t hole = ::lseek(source_.get(), static_cast<off_t>(at), SEEK_HOLE);
  const uint64_t found = hole > static_cast<off_t>(at) ? static_cast<uint64_t>(hole) : UINT64_MAX;
  const MutexLock lock(known_mutex_);
  known_data_ = at;
  known_data_end_ = found;
  return found;
}

Status FileCopy::copy_data(uint64_t at, uint64_t bytes, Buffer& buffer, uint32_t* crc) {
  for (const uint64_t end = at + bytes; at < end;) {
    if (place_.stop.load(std::memory_order_relaxed)) return stage_was_stopped(entry_.source);
    const size_t take = std::min<uint64_t>(buffer.size(), end - at);
    for (size_t got = 0; got < take;) {
      char* const to = buffer.data() + got;
      const size_t wanted = std::min(kReadBytes, take - got);
      const ssize_t n =
          io::continued([&] { return ::pread(source_.get(), to, wanted, static_cast<off_t>(at + got)); });
      if (n < 0)
        return errno_status(
            errno, fmt::format("{}: reading {} bytes at offset {}", entry_.source, wanted, at + got));
      if (n == 0)
        return error(Code::kIoError, Scope::kFile,
                     "{}: ends at {}, expected {} bytes: it was cut while it was staged; stage it again",
                     entry_.source, at + got, entry_.bytes());
      *crc = crc32c_extend(*crc, Bytes(to, static_cast<size_t>(n)));
      got += static_cast<size_t>(n);
    }
    SWALE_RETURN_IF_ERROR(out_->pwrite(at, Bytes(buffer.data(), take)));
    place_.bytes_copied += take;
    at += take;
  }
  return {};
}

// One extent for many writes, which then do not extend the file one after the other. Only advice: a full disk
// is told by the writes.
void FileCopy::allocate(uint64_t at, uint64_t bytes) {
  if (bytes <= kDirectBytes) return;
  static_cast<void>(
      ::fallocate(part_fd_.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at), static_cast<off_t>(bytes)));
}

Status FileCopy::settle(uint32_t crc) {
  if (entry_.crc && *entry_.crc != crc) {
    return corruption(
        "{}: expected the content of checksum crc32c:{:08x}, as the manifest says, found "
        "crc32c:{:08x}",
        entry_.source, *entry_.crc, crc);
  }
  SWALE_RETURN_IF_ERROR(check_source());
  return copy_attributes(source_.get(), entry_.attributes, part_fd_.get(), entry_.destination,
                         place_.options.attributes);
}

// The kernel keeps pages that are dirty or mapped; synced ones go.
void FileCopy::drop_pages() { static_cast<void>(::posix_fadvise(part_fd_.get(), 0, 0, POSIX_FADV_DONTNEED)); }

Status FileCopy::read_back(uint64_t offset, uint64_t bytes, uint32_t crc, Buffer& buffer) {
  if (place_.options.read_back == ReadBack::kNo) return {};
  if (place_.durable()) {
    if (!is_written_direct()) out_->prefer_direct();
    if (out_->direct_alignment() == 0) drop_pages();
  }
  const uint64_t end = offset + bytes;
  uint32_t found = 0;
  for (uint64_t at = offset; at < end;) {
    if (place_.stop.load(std::memory_order_relaxed)) return stage_was_stopped(entry_.source);
    const uint64_t data = std::min(std::max(out_->next_data(at), at), end);
    if (data > at) found = crc32c_extend_zeros(found, data - at);
    at = data;
    const size_t take = std::min<uint64_t>(buffer.size(), end - at);
    if (take == 0) break;
    // Whole pages, else the end of the file would come from the page cache.
    SWALE_ASSIGN_OR_RETURN(const size_t got, out_->pread(at, MutableBytes(buffer.data(), up_to_pages(take))));
    if (got < take)
      return corruption("{}: reading it back at offset {}: expected {} bytes, found {}", part_path_, at, take,
                        got);
    found = crc32c_extend(found, Bytes(buffer.data(), take));
    at += take;
  }
  if (found == crc) return {};
  return corruption(
      "{}: bytes {} to {} read back are not those that were written (crc32c:{:08x}, expected "
      "{:08x}); check the storage and its memory, and stage again",
      part_path_, offset, end, found, crc);
}

Result<FileIdentity> FileCopy::publish() {
  SWALE_RETURN_IF_ERROR(place_.device.rename(part_path_, entry_.destination));
  struct stat now;
  if (::fstat(part_fd_.get(), &now) != 0) return errno_status(errno, entry_.destination + ": looking at it");
  return FileIdentity::of(now);
}

void FileCopy::discard() {
  out_.reset();
  part_fd_ = {};
  static_cast<void>(place_.device.remove(part_path_));  // what is left is the next run's
}

Status copy_link(const CopyPlace& place, const Entry& entry) {
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor source,
                         place.source.open(entry.source, O_PATH, "looking at the link"));
  std::string target(PATH_MAX, '\0');
  const ssize_t length = ::readlinkat(source.get(), "", target.data(), target.size());
  if (length < 0) return errno_status(errno, entry.source + ": reading the link");
  target.resize(static_cast<size_t>(length));
  const std::string part = part_path(entry.destination);
  const std::string folder = io::parent_directory(entry.destination);
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor in,
                         place.destination.open(folder + "/.", O_RDONLY | O_DIRECTORY, "opening the folder"));
  const std::string name = part.substr(part.rfind('/') + 1);
  const Status removed = place.device.remove(part);
  if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  if (::symlinkat(target.c_str(), in.get(), name.c_str()) != 0)
    return errno_status(errno, entry.destination + ": making the link");
  const timespec times[] = {entry.attributes.st_atim, entry.attributes.st_mtim};
  if (::utimensat(in.get(), name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0 && errno != ENOSYS)
    return errno_status(errno, entry.destination + ": setting its times");
  return place.device.rename(part, entry.destination);
}

}  // namespace swale::stage
