// IondFs: nodes, and the bytes of files.
#include "fuse/iond_fs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/buffer.h"
#include "base/contain.h"
#include "base/log.h"
#include "fuse/iond_node.h"
#include "tier/engine/extent_map.h"

namespace swale::fuse {

using fs::Caller;
using fs::Entry;
using fs::Node;
using fs::OpenFile;

namespace {

// What a server that does not answer is to a program. Others have the errno of their call.
int errno_of(const Status& status) {
  switch (status.error_number() != 0 ? Code::kOk : status.code()) {
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kAborted:
      return EIO;
    default:
      return status.posix_error();
  }
}

int check_end(uint64_t offset, uint64_t length) {
  return offset <= tier::kFileBytesMax && length <= tier::kFileBytesMax - offset ? 0 : EFBIG;
}

}  // namespace

// A write that was lost has been told by flush or sync.
IondFs::Opened::~Opened() {
  const Status closed = contain([&] { return servers.close_file(&file); });
  if (!closed.ok()) log_error("{}", closed.message());
}

Result<std::unique_ptr<IondFs>> IondFs::open(iond::Iond& servers) {
  SWALE_ASSIGN_OR_RETURN(const iond::FileAttributes top, servers.stat(""));
  std::unique_ptr<IondFs> fs(new IondFs(servers));
  Entry root;
  fs->enter(top, "", &root);
  fs->root_ = root.node;  // with a lookup that nobody forgets
  return fs;
}

IondFs::IondFs(iond::Iond& servers) : servers_(servers) {}

IondFs::~IondFs() = default;

int IondFs::answer(const Status& status) const {
  if (status.ok()) return 0;
  const int failed = errno_of(status);
  if (failed == EIO) log_error("{}", status.message());
  return failed;
}

std::string IondFs::name_of(Node& node) const {
  const MutexLock lock(mutex_);
  return IondNode::of(node).path.value_or("a file without a name");
}

size_t IondFs::nodes_known() const {
  const MutexLock lock(mutex_);
  return nodes_.size();
}

std::shared_ptr<IondFs::Opened> IondFs::opened_of(const IondNode& node) {
  const MutexLock lock(node.mutex);
  return node.opened.lock();
}

int IondFs::open_node(IondNode& node, std::shared_ptr<Opened>* opened) {
  if (node.kind == iond::FileKind::kDirectory) return EISDIR;
  if (node.kind != iond::FileKind::kFile) return ELOOP;
  const MutexLock lock(node.mutex);
  *opened = node.opened.lock();
  if (*opened) return 0;
  std::string path;
  if (const int failed = path_of(node, &path); failed != 0) return failed;
  auto file = servers_.open_file(path, 0, 0, node.inode);
  if (!file.ok()) return answer(file.status());
  *opened = std::make_shared<Opened>(servers_, *std::move(file));
  node.opened = *opened;
  return 0;
}

int IondFs::open_file(Node& known, int flags, const Caller&, std::unique_ptr<OpenFile>* file) {
  IondNode& node = IondNode::of(known);
  std::shared_ptr<Opened> opened;
  if (const int failed = open_node(node, &opened); failed != 0) return failed;
  if ((flags & O_TRUNC) != 0)
    if (const int failed = answer(servers_.truncate(opened->file, 0)); failed != 0) return failed;
  *file = std::make_unique<IondOpenFile>(node, std::move(opened), flags);
  return 0;
}

int IondFs::create(Node& parent, const char* name, mode_t mode, int flags, const Caller& caller, Entry* entry,
                   std::unique_ptr<OpenFile>* file) {
  std::string path;
  if (const int failed = child_of(parent, name, &path); failed != 0) return failed;
  const uint32_t how =
      iond::kIondCreate | iond::kIondExactMode | ((flags & O_EXCL) != 0 ? uint32_t{iond::kIondExclusive} : 0);
  auto made = servers_.open_file(path, how, mode & ~caller.umask & 07777);
  if (!made.ok()) return answer(made.status());
  auto opened = std::make_shared<Opened>(servers_, *std::move(made));
  if ((flags & O_TRUNC) != 0)  // another node may have made it
    if (const int failed = answer(servers_.truncate(opened->file, 0)); failed != 0) return failed;
  const auto found = servers_.attributes(opened->file);
  if (!found.ok()) return answer(found.status());
  Entry there;
  enter(*found, path, &there);
  IondNode& node = IondNode::of(*there.node);
  {
    const MutexLock lock(node.mutex);
    if (auto before = node.opened.lock())
      opened = std::move(before);
    else
      node.opened = opened;
  }
  *file = std::make_unique<IondOpenFile>(node, std::move(opened), flags);
  *entry = there;
  return 0;
}

int IondFs::read(OpenFile& opened, uint64_t offset, MutableBytes out, size_t* got) {
  if (offset >= tier::kFileBytesMax) return *got = 0, 0;
  out = out.first(std::min<uint64_t>(out.size(), tier::kFileBytesMax - offset));
  if (out.empty()) return *got = 0, 0;
  const auto read = servers_.read(IondOpenFile::of(opened).file(), offset, out);
  if (!read.ok()) return answer(read.status());
  *got = *read;
  return 0;
}

int IondFs::write_at(OpenFile& opened, uint64_t offset, Bytes bytes, const Caller& caller) {
  IondOpenFile& file = IondOpenFile::of(opened);
  if (caller.appends.value_or(false)) return append(opened, bytes);
  if (const int failed = check_end(offset, bytes.size()); failed != 0) return failed;
  return answer(servers_.write(file.file(), offset, bytes));
}

int IondFs::append(OpenFile& opened, Bytes bytes) {
  IondOpenFile& file = IondOpenFile::of(opened);
  const MutexLock lock(file.node.append_mutex);
  const auto end = servers_.size(file.file());
  if (!end.ok()) return answer(end.status());
  if (const int failed = check_end(*end, bytes.size()); failed != 0) return failed;
  return answer(servers_.write(file.file(), *end, bytes));
}

int IondFs::write(OpenFile& file, uint64_t offset, uint64_t length, const Caller& caller, const Fill& fill) {
  auto bytes = Buffer::allocate(std::max<uint64_t>(length, 1));
  if (!bytes.ok()) return answer(bytes.status());
  const MutableBytes all = bytes->span().first(length);
  if (const Status filled = fill(all); !filled.ok()) return answer(filled);
  return write_at(file, offset, view(all), caller);
}

void IondFs::write(OpenFile& file, uint64_t offset, uint64_t length, const Caller& caller, const Fill& fill,
                   const std::function<void(int)>& answered) {
  answered(write(file, offset, length, caller, fill));
}

void IondFs::write_bytes(OpenFile& file, uint64_t offset, Bytes bytes, const Caller& caller,
                         const std::function<void(int)>& answered) {
  answered(write_at(file, offset, bytes, caller));
}

int IondFs::flush(OpenFile& opened) {
  const IondOpenFile& file = IondOpenFile::of(opened);
  return (file.flags & O_ACCMODE) == O_RDONLY ? 0 : answer(servers_.check(file.file()));
}

int IondFs::sync(OpenFile& opened) { return answer(servers_.sync(IondOpenFile::of(opened).file())); }

int IondFs::allocate(OpenFile& opened, int mode, uint64_t offset, uint64_t length, const Caller&) {
  const IondOpenFile& file = IondOpenFile::of(opened);
  if ((mode & ~FALLOC_FL_KEEP_SIZE) != 0) return EOPNOTSUPP;
  if (const int failed = check_end(offset, length); failed != 0) return failed;
  if (const int failed = answer(servers_.allocate(file.file(), offset, length)); failed != 0) return failed;
  if (mode == FALLOC_FL_KEEP_SIZE) return 0;
  const auto size = servers_.size(file.file());
  if (!size.ok()) return answer(size.status());
  return *size >= offset + length ? 0 : answer(servers_.truncate(file.file(), offset + length));
}

int IondFs::seek(OpenFile& opened, uint64_t offset, int whence, uint64_t* found) {
  const auto size = servers_.size(IondOpenFile::of(opened).file());
  if (!size.ok()) return answer(size.status());
  if (offset >= *size) return ENXIO;
  *found = whence == SEEK_HOLE ? *size : offset;
  return 0;
}

int IondFs::truncate(IondNode& node, uint64_t size) {
  if (const int failed = check_end(size, 0); failed != 0) return failed;
  std::shared_ptr<Opened> opened;
  if (const int failed = open_node(node, &opened); failed != 0) return failed;
  return answer(servers_.truncate(opened->file, size));
}

}  // namespace swale::fuse
