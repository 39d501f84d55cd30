// JobFs: how long files are, where they have no bytes, and space that is asked for or given back.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/buffer.h"
#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"

namespace swale::fs {
namespace {

constexpr uint64_t kZerosAtOnce = kHoleBytes;  // as drains make holes of
constexpr uint64_t kStatBlockBytes = 512;      // of st_blocks

// Where the backing file has data, or a hole, in [offset, end); `end`: nowhere. A file system that does not
// know says that all is data.
uint64_t find_on_backing(const io::File& file, uint64_t offset, uint64_t end, int whence) {
  const off_t place =
      file.descriptor() < 0 ? -1 : ::lseek(file.descriptor(), static_cast<off_t>(offset), whence);
  if (place >= 0) return std::min(static_cast<uint64_t>(place), end);
  const bool is_hole = file.descriptor() >= 0 && errno == ENXIO;
  return is_hole == (whence == SEEK_HOLE) ? offset : end;
}

// The same of any part of a file.
uint64_t find_in(const NodeFiles::Stretch& part, uint64_t offset, int whence) {
  const bool wants_data = whence == SEEK_DATA;
  if (part.logged) return wants_data ? offset : part.end;
  const uint64_t there =
      part.backing == nullptr ? offset : std::max(offset, std::min(part.end, part.backing_end));
  if (there > offset)
    if (const uint64_t place = find_on_backing(*part.backing, offset, there, whence); place < there)
      return place;
  return wants_data ? part.end : there;
}

}  // namespace

// As the backing has it while nobody has written the file.
Result<uint64_t> JobFs::size_of(const meta::FileId& id, const JobNode* node, uint64_t* blocks) {
  const auto blocks_of = [](uint64_t bytes) {
    return bytes / kStatBlockBytes + (bytes % kStatBlockBytes != 0);
  };
  if (shared_) {
    SWALE_ASSIGN_OR_RETURN(const SeenBacking seen, seen_there(id));
    SWALE_ASSIGN_OR_RETURN(const uint64_t size, shared_->size(id, seen));
    if (blocks != nullptr) *blocks = blocks_of(size);
    return size;
  }
  do {
    {
      const RequestLock lock(mutex_, requests_);
      uint64_t stored = 0;
      const auto size = files_->size(id, &stored);
      const bool all_is_data = node != nullptr && node->opens_that_may_map > 0;
      if (size.ok() && blocks != nullptr) *blocks = blocks_of(all_is_data ? *size : stored);
      if (size.status().code() != Code::kNotFound) return size;
    }
    SWALE_ASSIGN_OR_RETURN(const io::Descriptor backing, on_backing(id));
    struct stat there;
    if (backing.valid() && ::fstat(backing.get(), &there) != 0) return errno_status(errno, text_of(id));
    if (backing.valid()) {
      if (blocks != nullptr) *blocks = static_cast<uint64_t>(there.st_blocks);
      return static_cast<uint64_t>(there.st_size);
    }
  } while (wait_for_move(id));
  return errno_status(ENOENT, "its file");
}

int JobFs::seek_in_data(const JobFile& file, uint64_t offset, int whence, uint64_t* found) {
  const auto size = size_of(file.node.id);
  if (!size.ok()) return answer(size.status());
  if (offset >= *size) return ENXIO;
  *found = whence == SEEK_DATA ? offset : *size;
  return 0;
}

// All is data where the kernel may have pages that a program has changed, of which nobody has heard.
int JobFs::seek(OpenFile& opened, uint64_t offset, int whence, uint64_t* found) {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return EINVAL;
  const JobFile& file = JobFile::of(opened);
  bool has_pages = false;
  {
    const RequestLock lock(mutex_, requests_);
    has_pages = file.node.opens_that_may_map > 0;
  }
  return has_pages ? seek_in_data(file, offset, whence, found) : seek_stored(file, offset, whence, found);
}

// With several nodes all is data: nobody asks the others.
int JobFs::seek_stored(const JobFile& file, uint64_t offset, int whence, uint64_t* found) {
  if (shared_) return seek_in_data(file, offset, whence, found);
  const meta::FileId& id = file.node.id;
  uint64_t at = offset;
  while (true) {
    NodeFiles::Stretch part;
    bool in_logs = false;
    {
      RequestLock lock(mutex_, requests_);
      in_logs = file.node.in_logs;
      if (in_logs) {
        const int lacking = find_holes(file.node);
        auto stretch = files_->stretch(id, at);
        while (!stretch.ok() && moving_.settle(id)) stretch = files_->stretch(id, at);
        if (!stretch.ok()) return lacking != 0 ? lacking : answer(stretch.status());
        part = std::move(*stretch);
      }
    }
    if (!in_logs) {
      const off_t place = ::lseek(file.own.get(), static_cast<off_t>(offset), whence);
      if (place < 0) return errno;
      *found = static_cast<uint64_t>(place);
      return 0;
    }
    if (at >= part.size && (at == offset || whence == SEEK_DATA)) return ENXIO;
    const uint64_t place = find_in(part, at, whence);
    if (place < part.end || at >= part.size) {
      *found = place;
      return 0;
    }
    at = part.end;
  }
}

// Where there is nothing it need not be written; the kernel has written its pages before it asks for this.
int JobFs::write_zeros(const JobFile& file, uint64_t offset, uint64_t end) {
  auto zeros = Buffer::allocate(kZerosAtOnce);
  if (!zeros.ok()) return answer(zeros.status());
  std::fill(zeros->span().begin(), zeros->span().end(), char{0});
  while (offset < end) {
    uint64_t hole = 0;
    int failed = seek_stored(file, offset, SEEK_DATA, &offset);
    if (failed == ENXIO || (failed == 0 && offset >= end)) return 0;
    if (failed == 0) failed = seek_stored(file, offset, SEEK_HOLE, &hole);
    if (failed == ENXIO) return 0;  // it was cut meanwhile
    for (hole = std::min(hole, end); failed == 0 && offset < hole;) {
      const uint64_t bytes = std::min(hole - offset, kZerosAtOnce - offset % kZerosAtOnce);
      failed = append(file.node, offset, view(zeros->span().first(bytes)));
      offset += bytes;
    }
    if (failed != 0) return failed;
  }
  return 0;
}

// Space is not reserved: a write waits for the drain, and fails when the backing says so. Holes are zeros.
int JobFs::allocate(OpenFile& opened, int mode, uint64_t offset, uint64_t length, const Caller& caller) {
  JobNode& node = JobFile::of(opened).node;
  const bool zeros = (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0;
  if ((mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0) return EOPNOTSUPP;
  if (offset > meta::kOffsetEnd || length > meta::kOffsetEnd - offset) return EFBIG;
  if (const int failed = content_changes(node, caller); failed != 0) return failed;
  const auto found = size_of(node.id);
  if (!found.ok()) return answer(found.status());
  const uint64_t size = *found;
  if (zeros)
    if (const int failed = write_zeros(JobFile::of(opened), offset, std::min(offset + length, size));
        failed != 0)
      return failed;
  node.modified_ns.store(now_nanos());
  if ((mode & FALLOC_FL_KEEP_SIZE) != 0 || offset + length <= size) return 0;
  return grow(node, offset + length);
}

// Other nodes may make it longer meanwhile: nothing of theirs is cut.
int JobFs::grow(JobNode& node, uint64_t size) {
  if (!shared_) return truncate(node, size);
  if (const int failed = append(node, size - 1, Bytes("\0", 1)); failed != 0) return failed;
  return commit(node);
}

}  // namespace swale::fs
