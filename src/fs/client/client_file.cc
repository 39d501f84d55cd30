#include "fs/client/client_file.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "base/contain.h"
#include "fs/client/client_seal.h"

namespace swale::fs {

Status ClientFile::failed(int error_number, const char* what) const {
  return tree_failure(tree_, path_, error_number, what);
}

// A file on no tree is neither made nor opened.
Result<std::unique_ptr<ClientFile>> ClientFile::open(const std::string& path, const Options& options) {
  SWALE_ASSIGN_OR_RETURN(TreePlace tree, find_tree(directory_of(path), path));
  std::unique_ptr<ClientFile> made(new ClientFile(path, std::move(tree), options));
  SWALE_RETURN_IF_ERROR(made->begin());
  return made;
}

bool ClientFile::may_have_log() const {
  return options_.by != By::kMount && (options_.flags & O_ACCMODE) != O_RDONLY &&
         (options_.flags & (O_APPEND | O_DSYNC)) == 0;  // O_SYNC has the bit of O_DSYNC
}

Status ClientFile::begin() {
  file_ = io::Descriptor(io::continued(
      [&] { return ::open(path_.c_str(), options_.flags | O_DIRECT | O_CLOEXEC, options_.mode); }));
  if (!file_.valid()) return failed(errno, "opening it");
  // A link may have led elsewhere.
  SWALE_RETURN_IF_ERROR(find_tree(file_.get(), path_).status());
  if ((options_.flags & O_ACCMODE) == O_RDONLY) {
    SWALE_ASSIGN_OR_RETURN(const struct stat found, stat());
    if (S_ISDIR(found.st_mode)) return failed(EISDIR, "opening it");
  }
  if (!may_have_log()) {
    if (options_.by != By::kLogOnly) return {};
    return invalid_argument(
        "{}: only a file that is opened to write, and not to append or with O_SYNC, has a log", path_);
  }
  Status asked = right_.ask(tree_, file_.get());
  return options_.by == By::kLogOnly ? asked.with_context(path_) : Status();
}

Status ClientFile::close() {
  if (!file_.valid()) return {};
  // Linux has closed it in any case.
  return ::close(file_.release()) == 0 || errno == EINTR ? Status() : failed(errno, "closing it");
}

// Of this process: a child of fork asks anew, and so does whoever was refused, at its commits.
Attachment* ClientFile::log() {
  if (Attachment* const found = right_.log()) return found;
  if (!right_.had()) return nullptr;
  static_cast<void>(right_.ask(tree_, file_.get()));
  return right_.log();
}

Status ClientFile::write_by(Attachment& log, uint64_t offset, Bytes bytes) {
  thread_local LogTrouble trouble;
  while (!bytes.empty()) {
    const int64_t written = log.writer.write(right_.file(), offset, bytes.data(), bytes.size(), &trouble);
    if (written < 0) return errno_status(static_cast<int>(-written), trouble.text).with_context(path_);
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  if (log.writer.must_show()) static_cast<void>(::ioctl(file_.get(), kAskShow));
  return {};
}

Status ClientFile::write_through(uint64_t offset, Bytes bytes) {
  if (offset > meta::kOffsetEnd || bytes.size() > meta::kOffsetEnd - offset) return failed(EFBIG, "a write");
  while (!bytes.empty()) {
    const ssize_t written = io::continued(
        [&] { return ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (written < 0) return failed(errno, "a write");
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

Status ClientFile::write(uint64_t offset, Bytes bytes) {
  Attachment* const by = log();
  return by != nullptr ? write_by(*by, offset, bytes) : write_through(offset, bytes);
}

Status ClientFile::write(uint64_t offset, std::span<const Bytes> parts) {
  for (const Bytes part : parts) {
    SWALE_RETURN_IF_ERROR(write(offset, part));
    offset += part.size();
  }
  return {};
}

Status ClientFile::write(const StridedRecords& where, const char* data) {
  for (size_t i = 0; i < where.count; ++i)
    SWALE_RETURN_IF_ERROR(
        write(where.offset + i * where.stride, Bytes(data + i * where.record_bytes, where.record_bytes)));
  return {};
}

Status ClientFile::write_next(Bytes bytes) {
  if ((options_.flags & O_APPEND) == 0) return write(next_.fetch_add(bytes.size()), bytes);
  while (!bytes.empty()) {
    const ssize_t written = io::continued([&] { return ::write(file_.get(), bytes.data(), bytes.size()); });
    if (written < 0) return failed(errno, "an append");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Result<size_t> ClientFile::read(uint64_t offset, MutableBytes out) const {
  const auto ask = [this](MapRequest* map) { return ::ioctl(file_.get(), kAskMap, map) == 0 ? 0 : errno; };
  size_t done = 0;
  if (may_read_logs() && offset < meta::kOffsetEnd) {
    const auto in_logs = reads_.read(ask, offset, out);
    if (in_logs.how == MapReader::How::kAll) return in_logs.bytes;
    done = in_logs.bytes;
  }
  while (done < out.size() && offset + done < meta::kOffsetEnd) {
    const ssize_t got = io::continued([&] {
      return ::pread(file_.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    });
    if (got < 0) return failed(errno, "a read");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

Status ClientFile::commit() {
  if (::ioctl(file_.get(), kAskCommit) != 0) return failed(errno, "a commit");
  if (may_have_log() && right_.log() == nullptr) static_cast<void>(right_.ask(tree_, file_.get()));
  return {};
}

Status ClientFile::sync() {
  const int done = io::continued([&] { return ::fsync(file_.get()); });
  return done == 0 ? Status() : failed(errno, "a sync");
}

Status ClientFile::truncate(uint64_t size) {
  if (size > meta::kOffsetEnd) return failed(EFBIG, "a truncate");
  const int done = io::continued([&] { return ::ftruncate(file_.get(), static_cast<off_t>(size)); });
  return done == 0 ? Status() : failed(errno, "a truncate");
}

Result<struct stat> ClientFile::stat() const {
  struct stat found;
  if (::fstat(file_.get(), &found) != 0) return failed(errno, "its attributes");
  return found;
}

Result<bool> ClientFile::sealed() const {
  SWALE_ASSIGN_OR_RETURN(const struct stat found, stat());
  constexpr mode_t kMayWrite = 0222;
  if ((found.st_mode & kMayWrite) != 0) return false;
  return is_sealed(file_.get(), path_);
}

}  // namespace swale::fs
