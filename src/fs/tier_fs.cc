// TierFs: bytes of regular files.
#include "fs/tier_fs.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cassert>

#include <cerrno>

#include "base/log.h"
#include "io/beneath.h"
#include "io/descriptor_path.h"
#include "tier/engine/extent_map.h"

namespace swale::fs {
namespace {

using Traced = tier::TraceRecord::Kind;

}  // namespace

Result<std::unique_ptr<TierFs>> TierFs::open(tier::Store& store, const std::string& backing_directory,
                                             tier::TraceWriter* trace) {
  io::Descriptor path(::open(backing_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat attributes;
  if (!path.valid() || ::fstat(path.get(), &attributes) != 0)
    return errno_status(errno, backing_directory + ": opening the backing directory");
  SWALE_ASSIGN_OR_RETURN(auto identity, Identity::of_this_process());
  std::unique_ptr<TierFs> fs(new TierFs(store, trace, std::move(identity)));
  fs->root_ = fs->tier_root_ = fs->nodes_.enter(std::move(path), attributes, nullptr, "");
  return fs;
}

TierFs::~TierFs() = default;

// The log of the program is told what a number cannot say.
int TierFs::answer(const Status& status) const {
  if (status.ok()) return 0;
  const int number = status.posix_error();
  if (status.code() != Code::kInvalidArgument && status.code() != Code::kNotFound)
    log_error("{}", status.message());
  return number;
}

// Counts an open of the node. With the first one that needs it, the node gets a handle of the store.
int TierFs::hold(TierNode& node, bool wanted) {
  assert(S_ISREG(node.type));
  const MutexLock lock(node.mutex);
  if (!node.handle) {
    node.handle = store_.handle_of(node.key);
    // The backing file alone would give older bytes than those that are kept aside for it.
    if (!node.handle)
      if (const Status whole = store_.expect_whole(node.path.get()); !whole.ok()) return answer(whole);
    if (!node.handle && wanted) {
      const auto adopted = store_.adopt_file(io::descriptor_path(node.path));
      if (!adopted.ok()) return answer(adopted.status());
      node.handle = *adopted;
    }
  }
  ++node.opens;
  return 0;
}

void TierFs::let_go(TierNode& node) {
  std::optional<tier::Store::Handle> last;
  {
    const MutexLock lock(node.mutex);
    assert(node.opens > 0);
    if (--node.opens > 0) return;
    last = std::exchange(node.handle, std::nullopt);
  }
  if (last) store_.close_file(*last);
}

std::optional<tier::Store::Handle> TierFs::handle(TierNode& node) const {
  const MutexLock lock(node.mutex);
  return node.handle;
}

// The file is the caller's from its first moment, with the mode and the ACLs that the backing file system
// gives it.
int TierFs::create(Node& known_parent, const char* name, mode_t mode, int flags, const Caller& caller,
                   Entry* entry, std::unique_ptr<OpenFile>* file) {
  TierNode& parent = TierNode::of(known_parent);
  if (is_private(parent, name)) return EPERM;
  // An ordinary user's store opens the file by its mode: the owner may read and write until it has.
  const mode_t first = identity_.switches() ? mode : mode | S_IRUSR | S_IWUSR;
  io::Descriptor fd;
  int failed = 0;
  {
    const AsCaller as(identity_, caller);
    if (as.failed() != 0) return as.failed();
    fd = io::Descriptor(io::open_beneath(parent.path.get(), name, O_CREAT | O_EXCL | O_RDWR, first));
    failed = fd.valid() ? 0 : errno;
  }
  if (failed != 0) {
    if (failed != EEXIST || (flags & O_EXCL) != 0) return failed;
    failed = lookup(parent, name, entry);
    if (failed != 0) return failed;
    failed = open_file(*entry->node, flags, caller, file);
    if (failed != 0) forget(entry->node, 1);
    return failed;
  }
  struct stat made;
  if (::fstat(fd.get(), &made) != 0) return errno;
  Entry there;
  failed = enter(io::Descriptor(::open(io::descriptor_path(fd).c_str(), O_PATH | O_CLOEXEC)), parent, name,
                 &there);
  if (failed != 0) {
    take_back(parent, name, fd, caller);
    return failed;
  }
  const io::Descriptor kept(first != mode ? ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0) : -1);
  std::unique_ptr<OpenFile> open;
  failed = opened(TierNode::of(*there.node), flags & ~O_TRUNC, std::move(fd), caller, &open);
  const mode_t wanted = made.st_mode & 07777 & (mode | ~static_cast<mode_t>(S_IRWXU));
  if (failed == 0 && first != mode && ::fchmod(kept.get(), wanted) != 0) failed = errno;
  if (failed == 0) failed = attributes(*there.node, &there.attributes);
  if (failed != 0) {
    take_back(parent, name, TierNode::of(*there.node).path, caller);
    if (open) release(std::move(open));
    forget(there.node, 1);
    return failed;
  }
  *file = std::move(open);
  *entry = there;
  return 0;
}

// Whether the caller may open the file so; a descriptor by which it did.
int TierFs::open_as(TierNode& node, int flags, const Caller& caller, io::Descriptor* own) const {
  constexpr int kToExecute = 040;  // the kernel's FMODE_EXEC: no program can ask for it by open()
  const std::string path = io::descriptor_path(node.path);
  int access = flags & O_ACCMODE;
  if (access == O_RDONLY && (flags & O_TRUNC) != 0) access = O_RDWR;
  if (access == O_RDONLY && (flags & kToExecute) != 0) {
    {
      const AsCaller as(identity_, caller);
      if (as.failed() != 0) return as.failed();
      if (::syscall(SYS_faccessat2, AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) != 0) return errno;
    }
    *own = io::Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return own->valid() ? 0 : errno;
  }
  const AsCaller as(identity_, caller);
  if (as.failed() != 0) return as.failed();
  *own = io::Descriptor(::open(path.c_str(), access | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  return own->valid() ? 0 : errno;
}

int TierFs::open_file(Node& known, int flags, const Caller& caller, std::unique_ptr<OpenFile>* file) {
  TierNode& node = TierNode::of(known);
  if (S_ISDIR(node.type)) return EISDIR;
  if (S_ISLNK(node.type)) return ELOOP;
  if (!S_ISREG(node.type)) return ENXIO;  // the kernel opens devices and pipes itself
  io::Descriptor own;
  if (const int failed = open_as(node, flags, caller, &own); failed != 0) return failed;
  return opened(node, flags, std::move(own), caller, file);
}

// `own`: by which the caller may read, if it opens only to read.
int TierFs::opened(TierNode& node, int flags, io::Descriptor own, const Caller& caller,
                   std::unique_ptr<OpenFile>* file) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  auto opened = std::make_unique<TierFile>(node);
  if (const int failed = hold(node, writes); failed != 0) return failed;
  if (!handle(node)) opened->own = std::move(own);
  if ((flags & O_TRUNC) != 0)
    if (const int failed = truncate(node, 0, caller); failed != 0) {
      let_go(node);
      return failed;
    }
  *file = std::move(opened);
  return 0;
}

void TierFs::release(std::unique_ptr<OpenFile> file) { let_go(TierFile::of(*file).node); }

int TierFs::read(OpenFile& opened, uint64_t offset, MutableBytes out, size_t* got) {
  TierFile& file = TierFile::of(opened);
  note(Traced::kRead, file.node, offset, out.size());
  if (const auto handle_there = handle(file.node)) {
    const auto count = store_.read(*handle_there, offset, out);
    if (!count.ok()) return answer(count.status());
    *got = *count;
    return 0;
  }
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = io::continued([&] {
      return ::pread(file.own.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    });
    if (count < 0) return errno;
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  *got = done;
  return 0;
}

int TierFs::writable(TierFile& file, uint64_t offset, uint64_t length, const Caller& caller,
                     tier::Store::Handle* found) const {
  const auto there = handle(file.node);
  if (!there) return EBADF;
  if (offset > tier::kFileBytesMax || length > tier::kFileBytesMax - offset) return EFBIG;
  *found = *there;
  return content_changes(file.node, caller);
}

int TierFs::write(OpenFile& opened, uint64_t offset, uint64_t length, const Caller& caller,
                  const Fill& fill) {
  TierFile& file = TierFile::of(opened);
  note(Traced::kWrite, file.node, offset, length);
  tier::Store::Handle there = 0;
  if (const int failed = writable(file, offset, length, caller, &there); failed != 0) return failed;
  const int failed = answer(store_.write(there, offset, length, fill));
  if (failed == 0) changed(file.node);
  return failed;
}

void TierFs::write(OpenFile& opened, uint64_t offset, uint64_t length, const Caller& caller, const Fill& fill,
                   const std::function<void(int)>& answered) {
  TierFile& file = TierFile::of(opened);
  note(Traced::kWrite, file.node, offset, length);
  tier::Store::Handle there = 0;
  if (const int failed = writable(file, offset, length, caller, &there); failed != 0) return answered(failed);
  store_.write(there, offset, length, fill, [&](const Status& status) {
    if (status.ok()) changed(file.node);
    answered(answer(status));
  });
}

int TierFs::flush(OpenFile& opened) {
  TierFile& file = TierFile::of(opened);
  const auto there = handle(file.node);
  return there ? answer(store_.deferred_failure(*there)) : 0;
}

int TierFs::sync(OpenFile& opened) {
  TierFile& file = TierFile::of(opened);
  note(Traced::kSync, file.node);
  if (const auto there = handle(file.node)) return answer(store_.sync(*there));
  return ::fsync(file.own.get()) == 0 ? 0 : errno;
}

int TierFs::truncate(TierNode& node, uint64_t size, const Caller& caller) {
  note(Traced::kTruncate, node, size);
  if (size >= tier::kFileBytesMax) return EFBIG;
  if (const int failed = hold(node, true); failed != 0) return failed;
  int answered = content_changes(node, caller);
  if (answered == 0) answered = answer(store_.truncate(*handle(node), size));
  if (answered == 0) changed(node);
  let_go(node);
  return answered;
}

// A handle may write whatever the mode says by now. An ordinary user's process gets another descriptor only
// if the mode lets it.
int TierFs::open_to_allocate(TierNode& node, io::Descriptor* fd) {
  const std::string path = io::descriptor_path(node.path);
  *fd = io::Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (fd->valid()) return 0;
  if (errno != EACCES) return errno;
  const MutexLock lock(node.mutex);
  struct stat now;
  if (::fstat(node.path.get(), &now) != 0) return errno;
  const mode_t mode = now.st_mode & 07777;
  if (::chmod(path.c_str(), mode | S_IRUSR | S_IWUSR) != 0) return EACCES;
  *fd = io::Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const int failed = fd->valid() ? 0 : errno;
  return ::chmod(path.c_str(), mode) != 0 ? errno : failed;
}

// Holes cannot be punched: the log has no record for them that the backing file could follow.
int TierFs::allocate(OpenFile& opened, int mode, uint64_t offset, uint64_t length, const Caller& caller) {
  TierFile& file = TierFile::of(opened);
  if ((mode & ~FALLOC_FL_KEEP_SIZE) != 0) return EOPNOTSUPP;
  const auto there = handle(file.node);
  if (!there) return EBADF;
  if (length > tier::kFileBytesMax || offset > tier::kFileBytesMax - length) return EFBIG;
  io::Descriptor fd;
  if (const int failed = open_to_allocate(file.node, &fd); failed != 0) return failed;
  if (const int failed = content_changes(file.node, caller); failed != 0) return failed;
  if (::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(length)) != 0)
    return errno;
  const auto size = store_.size(*there);
  if (!size.ok()) return answer(size.status());
  int failed = 0;
  if (mode != FALLOC_FL_KEEP_SIZE && offset + length > *size) {
    note(Traced::kTruncate, file.node, offset + length);
    failed = answer(store_.truncate(*there, offset + length));
  } else {
    failed = change_times(file.node, std::nullopt, Change::kNow, nullptr);  // as on any file system
  }
  if (failed == 0) changed(file.node);
  return failed;
}

int TierFs::seek(OpenFile& opened, uint64_t offset, int whence, uint64_t* found) {
  TierFile& file = TierFile::of(opened);
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return EINVAL;
  if (const auto there = handle(file.node)) {
    const auto place = store_.seek(*there, offset,
                                   whence == SEEK_DATA ? tier::Store::Seek::kData : tier::Store::Seek::kHole);
    if (!place.ok()) return place.status().code() == Code::kNotFound ? ENXIO : answer(place.status());
    *found = *place;
    return 0;
  }
  const off_t place = ::lseek(file.own.get(), static_cast<off_t>(offset), whence);
  if (place < 0) return errno;
  *found = static_cast<uint64_t>(place);
  return 0;
}

}  // namespace swale::fs
