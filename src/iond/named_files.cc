#include "iond/named_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "io/descriptor_path.h"
#include "iond/iond_messages.h"

namespace swale::iond {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{1} << 48;
constexpr uint32_t kModeBits = 07777;
constexpr int64_t kSecondNs = 1'000'000'000;

int64_t nanos_of(const struct statx_timestamp& time) { return time.tv_sec * kSecondNs + time.tv_nsec; }

Status check_end(const std::string& name, uint64_t offset, uint64_t bytes) {
  if (offset <= kFileBytesMax && bytes <= kFileBytesMax - offset) return {};
  return invalid_argument("{}: {} bytes at {}: a file has at most {}", name, bytes, offset, kFileBytesMax);
}

}  // namespace

Result<FileAttributes> attributes_of(tier::Store& store, int fd) {
  struct statx found;
  const auto look = [&] {
    return ::statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &found) == 0;
  };
  if (!look()) return errno_status(errno, "looking at a file");
  const tier::FileKey key{makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino};
  auto view = store.view(key);
  // If the store gave the file up meanwhile, it has set size and times right since we looked.
  if (!view && !look()) return errno_status(errno, "looking at a file");
  if (!view) view = store.view(key);
  FileAttributes attributes;
  attributes.key = key;
  attributes.kind = S_ISDIR(found.stx_mode)   ? FileKind::kDirectory
                    : S_ISLNK(found.stx_mode) ? FileKind::kSymlink
                                              : FileKind::kFile;
  attributes.size = view ? view->size : found.stx_size;
  attributes.mode = found.stx_mode & kModeBits;
  attributes.links = found.stx_nlink;
  attributes.changed_ns = nanos_of(found.stx_ctime);
  attributes.created_ns = (found.stx_mask & STATX_BTIME) != 0 ? nanos_of(found.stx_btime) : 0;
  attributes.modified_ns = view ? view->modified_ns : nanos_of(found.stx_mtime);
  return attributes;
}

FileAttributes attributes_now(tier::Store& store, FileAttributes at_open) {
  if (const auto view = store.view(at_open.key)) {
    at_open.size = view->size;
    at_open.modified_ns = view->modified_ns;
  }
  return at_open;
}

Status check_mode(std::string_view name, uint32_t mode, FileKind kind) {
  const uint32_t owners = kind == FileKind::kDirectory ? 0700 : 0600;
  if ((mode & ~0777u) == 0 && (mode & owners) == owners) return {};
  return invalid_argument(
      "{}: mode {:o}: expected permission bits (at most 777) with which the owner can read and write {} "
      "({:o})",
      name, mode, kind == FileKind::kDirectory ? "and search a directory" : "a file", owners);
}

Result<NamedFiles> NamedFiles::open(tier::Store* store, const std::string& backing_directory) {
  SWALE_ASSIGN_OR_RETURN(Beneath root, Beneath::open(backing_directory));
  return NamedFiles(store, std::move(root));
}

Result<Beneath::Place> NamedFiles::place_of(const std::string& name) const {
  SWALE_RETURN_IF_ERROR(check_iond_name(name));
  return root_.place_of(name);
}

Status NamedFiles::sync_name(const Beneath::Place& place) const {
  return store_->durability() == tier::Durability::kPageCache ? Status() : Beneath::sync_directory(place);
}

// A file has lost a name: if that was its last one, the store need not keep its bytes.
void NamedFiles::name_gone(const io::Descriptor& file) const {
  struct stat state;
  if (::fstat(file.get(), &state) == 0 && state.st_nlink == 0) store_->removed(file.get());
}

Result<NamedFiles::File> NamedFiles::open_file(const std::string& name, uint32_t flags, uint32_t mode) const {
  File file;
  file.name = name;
  SWALE_ASSIGN_OR_RETURN(Beneath::Place place, place_of(name));
  if ((flags & kCreate) != 0) {
    SWALE_RETURN_IF_ERROR(check_mode(name, mode));
    SWALE_ASSIGN_OR_RETURN(const bool made, root_.make(place, mode));
    if (!made && (flags & kExclusive) != 0)
      return errno_status(EEXIST, fmt::format("{}: making it", place.full));
    if (made) SWALE_RETURN_IF_ERROR(sync_name(place));
    file.name_unsynced = made ? std::make_unique<std::atomic<bool>>(true) : nullptr;
  }
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor look, root_.look(place));
  const auto adopted = store_->adopt_file(io::descriptor_path(look));
  if (!adopted.ok()) return adopted.status().with_context(place.full);
  file.handle = *adopted;
  const auto attributes = attributes_of(*store_, look.get());
  if (!attributes.ok()) {
    store_->close_file(file.handle);
    return attributes.status().with_context(place.full);
  }
  file.at_open = *attributes;
  if (file.name_unsynced) file.place = std::move(place);
  return file;
}

Status NamedFiles::close_file(File* file) const {
  const Status lost = store_->deferred_failure(file->handle);
  store_->close_file(file->handle);
  return lost;
}

Status NamedFiles::write(const File& file, uint64_t offset, Bytes data) const {
  SWALE_RETURN_IF_ERROR(check_end(file.name, offset, data.size()));
  return data.empty() ? Status() : store_->write(file.handle, offset, data);
}

Result<size_t> NamedFiles::read(const File& file, uint64_t offset, MutableBytes out) const {
  if (out.empty() || offset >= kFileBytesMax) return size_t{0};
  return store_->read(file.handle, offset, out.first(std::min<uint64_t>(out.size(), kFileBytesMax - offset)));
}

Status NamedFiles::truncate(const File& file, uint64_t size) const {
  SWALE_RETURN_IF_ERROR(check_end(file.name, size, 0));
  return store_->truncate(file.handle, size);
}

Status NamedFiles::sync(const File& file) const {
  SWALE_RETURN_IF_ERROR(store_->sync(file.handle));
  if (!file.name_unsynced || !file.name_unsynced->exchange(false)) return {};
  Status synced = Beneath::sync_directory(file.place);
  if (!synced.ok()) *file.name_unsynced = true;
  return synced;
}

Result<FileAttributes> NamedFiles::stat(const std::string& name) const {
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place place, place_of(name));
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor file, root_.look(place));
  SWALE_RETURN_IF_ERROR(store_->expect_whole(file.get()));
  return attributes_of(*store_, file.get());
}

Status NamedFiles::remove(const std::string& name) const {
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place place, place_of(name));
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor file, root_.look(place));
  if (::unlinkat(place.directory.get(), place.last.c_str(), 0) != 0)
    return errno_status(errno, place.full + ": removing");
  name_gone(file);
  return sync_name(place);
}

Status NamedFiles::rename(const std::string& from, const std::string& to) const {
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place source, place_of(from));
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place target, place_of(to));
  SWALE_RETURN_IF_ERROR(root_.look(source).status());
  if (from == to) return {};
  const auto replaced = root_.look(target);
  if (!replaced.ok() && replaced.status().code() != Code::kNotFound) return replaced.status();
  if (::renameat(source.directory.get(), source.last.c_str(), target.directory.get(), target.last.c_str()) !=
      0)
    return errno_status(errno, fmt::format("{}: renaming to {}", source.full, target.full));
  if (replaced.ok()) name_gone(*replaced);
  SWALE_RETURN_IF_ERROR(sync_name(source));
  return sync_name(target);
}

}  // namespace swale::iond
