// StoreCore: which files there are, their descriptors, names and times.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/contain.h"
#include "base/log.h"
#include "io/descriptor.h"
#include "tier/store/file_identity.h"
#include "tier/store/store_core.h"

namespace swale::tier {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr Nanos kRemovalSyncNs = kSecondNs;  // before a file system's own commit (5 s), as a rule

// A file whose mode forbids it its owner, as git makes them, is opened all the same. By descriptor: whoever
// may write to the folder can put a link in the name's place. A kill in between leaves the owner's bits set,
// which the owner could set at any time.
Result<std::unique_ptr<io::File>> open_forbidden(io::Device& device, int fd, const std::string& path,
                                                 const Status& refused) {
  const std::string link = fmt::format("/proc/self/fd/{}", fd);
  struct stat found;
  if (::fstat(fd, &found) != 0 || ::chmod(link.c_str(), (found.st_mode & 07777) | S_IRUSR | S_IWUSR) != 0)
    return refused;
  auto file = device.open(link, io::OpenMode::kReadWrite);
  if (::chmod(link.c_str(), found.st_mode & 07777) != 0)
    return errno_status(errno, path + ": setting its mode back");
  return file;
}

}  // namespace

Result<std::unique_ptr<io::File>> open_backing(io::Device& device, const std::string& path) {
  auto file = device.open(path, io::OpenMode::kReadWrite);
  if (file.ok() || file.status().error_number() != EACCES) return file;
  const io::Descriptor fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
  return fd.valid() ? open_forbidden(device, fd.get(), path, file.status()) : std::move(file);
}

Result<std::unique_ptr<io::File>> open_backing(io::Device& device, int fd, const std::string& path) {
  struct stat meant, found;
  if (::fstat(fd, &meant) != 0) return errno_status(errno, path + ": stat");
  auto file = device.open(path, io::OpenMode::kReadWrite);
  if (file.ok() && ::fstat((*file)->descriptor(), &found) == 0 && found.st_dev == meant.st_dev &&
      found.st_ino == meant.st_ino)
    return file;
  file = device.open(fmt::format("/proc/self/fd/{}", fd), io::OpenMode::kReadWrite);
  if (file.ok() || file.status().error_number() != EACCES) return file;
  return open_forbidden(device, fd, path, file.status());
}

// The engine has the file from now on.
FileIndex StoreCore::add_file(std::unique_ptr<io::File> file, const BackingState& state, uint64_t id) {
  // Nobody tells where a file lies: what was made later is taken to lie behind.
  const uint64_t base = next_base_++ << 40;
  const FileIndex index = engine_->open_file(id, base, state.view.size);
  files_.add(index, std::move(file), state, id);
  file_syncs_.opened(index);
  return index;
}

// A handle of an open backing file, which the store may have already.
Result<FileIndex> StoreCore::take_in(std::unique_ptr<io::File> file) {
  const MutexLock adoption(adoption_);
  SWALE_ASSIGN_OR_RETURN(const BackingState state, state_of(*file));
  if (const auto there = handle_of(state.key)) return *there;
  auto id = file_id_of(*file, opened_.id_attribute);
  if (!id.ok() && id.status().code() != Code::kNotFound) return id.status();
  uint64_t name = id.ok() ? *id : 0;
  SWALE_RETURN_IF_ERROR(expect_whole(file->descriptor()));
  SWALE_RETURN_IF_ERROR(expect_whole(name, file->path()));
  FileIdentity identity = identity_of(file->descriptor(), root_);
  if (name != 0 && opened_.table->is_of_another(name, identity)) name = 0;
  {
    // A copy that took the attribute along is another file.
    const MutexLock lock(mutex_);
    if (!poisoned_.ok()) return poisoned_;
    if (name != 0 && files_.has_id(name)) name = 0;
  }
  SWALE_RETURN_IF_ERROR(expect_room_for_a_file(file->path()));
  if (name == 0) {
    name = random_id();
    SWALE_RETURN_IF_ERROR(set_file_id(*file, opened_.id_attribute, name));
    if (opened_.options.engine.durability != Durability::kPageCache) SWALE_RETURN_IF_ERROR(file->sync());
  }
  // Again: a write of the file that was under way may have changed its size.
  SWALE_ASSIGN_OR_RETURN(const BackingState now_is, state_of(*file));
  if (!now_is.unlinked) note_file(name, std::move(identity));
  const MutexLock lock(mutex_);
  const FileIndex index = add_file(std::move(file), now_is, name);
  ++files_[index].references;
  return index;
}

// At the limit, bytes in the log of files that nobody has open go to these files, which are closed then.
Status StoreCore::expect_room_for_a_file(const std::string& path) {
  constexpr Nanos kErasure = 60'000'000'000;  // a few syncs
  const auto full = [this]() REQUIRES(mutex_) { return files_.count() >= opened_.options.open_files_max; };
  const auto tell = [&]() REQUIRES(mutex_) {
    return error(
        Code::kResourceExhausted, Scope::kFile,
        "{}: {} files are open already, and there may be {} that are or have bytes in the log; close some, "
        "or raise open_files_max",
        path, files_.count() - files_.waiting().size(), opened_.options.open_files_max);
  };
  {
    const MutexLock lock(mutex_);
    if (!full()) return {};
    if (files_.waiting().empty()) return tell();
  }
  if (const Status drained = drain(); !drained.ok())
    return drained.with_context(path + ": making room for one more open file");
  const MutexLock lock(mutex_);
  answered_.wait_for(lock, kErasure, [&]() REQUIRES(mutex_) {
    return !full() || files_.waiting().empty() || !poisoned_.ok();
  });
  if (!poisoned_.ok()) return poisoned_;
  return full() ? tell() : Status();
}

// Before the file has a record in the log.
void StoreCore::note_file(uint64_t id, FileIdentity identity) {
  if (opened_.table->is_long()) {
    uint64_t oldest = 0;
    {
      const MutexLock lock(mutex_);
      oldest = engine_->oldest_segment();
    }
    opened_.table->shorten(oldest);
  }
  opened_.table->add(id, std::move(identity));
}

bool StoreCore::is_kept(const KeptBytes& kept, int fd) const {
  struct stat found;
  return ::fstat(fd, &found) == 0 && found.st_dev == root_.device &&
         may_be_file(fd, {.inode = kept.inode, .born_ns = kept.born_ns}, kept.file, opened_.id_attribute);
}

Status StoreCore::expect_whole(int fd) const {
  for (const KeptBytes& kept : opened_.report.kept)
    if (is_kept(kept, fd)) return kept.text();
  return {};
}

Status StoreCore::expect_whole(uint64_t id, const std::string& path) const {
  for (const KeptBytes& kept : opened_.report.kept)
    if (id != 0 && kept.file == id) return kept.text().with_context(path);
  return {};
}

// What is kept of a file that has no name any more. It goes once the removal is durable: the file may be back
// after a power cut.
void StoreCore::give_up_removed(int fd) {
  for (const KeptBytes& kept : opened_.report.kept) {
    if (!is_kept(kept, fd)) continue;
    const io::Descriptor root(::open(root_.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root.valid() || ::syncfs(root.get()) != 0) continue;
    opened_.table->add_removed(kept.file);
    if (!opened_.table->sync().ok())
      continue;  // else the next opening would keep the log's records of it again
    Status status = device_.remove(kept.kept_in);
    if (status.ok()) status = device_.sync_directory(io::parent_directory(kept.kept_in));
    if (!status.ok() && status.code() != Code::kNotFound)
      log_warn("{}: the file was removed, and what is kept of it cannot be: {}", kept.path, status.message());
  }
}

// Without the mutex. A failure is told, and costs nothing: a file that is not found is kept.
void StoreCore::sync_removals() {
  removals_due_ = kForever;
  mutex_.unlock();
  static_cast<void>(contain([this] { return opened_.table->sync(); }));
  mutex_.lock();
}

Result<FileIndex> StoreCore::adopt_file(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(auto file, device_.open(path, io::OpenMode::kReadWrite));
  return take_in(std::move(file));
}

Result<FileIndex> StoreCore::open_file(const std::string& path, io::OpenMode mode) {
  if (path.empty() || path.front() == '/' || path.find("..") != std::string::npos ||
      path == kPrivateDirectory || path.starts_with(std::string(kPrivateDirectory) + "/"))
    return invalid_argument("'{}': expected a path below the backing directory, without ..", path);
  const std::string full = full_path(path);
  const bool makes = mode == io::OpenMode::kCreate || mode == io::OpenMode::kOpenOrCreate;
  auto file = mode == io::OpenMode::kRead ? open_backing(device_, full)
                                          : device_.open(full, makes ? mode : io::OpenMode::kReadWrite);
  if (!file.ok()) return file.status();
  auto index = take_in(std::move(*file));
  if (index.ok() && makes && opened_.options.engine.durability != Durability::kPageCache) {
    Status status = device_.sync_directory(io::parent_directory(full));
    if (!status.ok()) {
      close_file(*index);
      return status;
    }
  }
  return index;
}

std::optional<FileIndex> StoreCore::handle_of(const FileKey& key) {
  const MutexLock lock(mutex_);
  const auto found = files_.find(key);
  if (!found) return std::nullopt;
  ++files_[*found].references;
  return *found;
}

void StoreCore::close_file(FileIndex file) {
  const MutexLock lock(mutex_);
  if (!files_.has_handle(file)) return;
  --files_[file].references;
  settle(file);
}

// Gives the backing file the mtime that it should have. A failure leaves the one that it has: it is still a
// file.
void StoreCore::save_times(FileIndex file) {
  while (files_[file].times_unsaved) {
    files_[file].times_unsaved = false;
    const int64_t modified = files_[file].view.modified_ns;
    const int descriptor = files_.use(file)->descriptor();
    mutex_.unlock();
    const timespec times[2] = {{0, UTIME_OMIT}, {modified / kSecondNs, modified % kSecondNs}};
    static_cast<void>(::futimens(descriptor, times));
    mutex_.lock();
    files_.unuse(file);
  }
}

// A file without handles: its times are set right, its bytes go if it has no name, and once nothing of it is
// under way or in the log, it is closed.
void StoreCore::settle(FileIndex file) {
  const auto unreferenced = [&]() REQUIRES(mutex_) {
    return poisoned_.ok() && files_.is_open(file) && files_[file].references == 0;
  };
  const auto busy = [&]() REQUIRES(mutex_) { return files_[file].in_use > 0 || file_syncs_.busy(file); };
  if (!unreferenced()) return;
  if (busy()) return files_.wait(file);
  if (files_[file].unlinked) {
    if (!files_[file].discarded) discard(file);
  } else {
    save_times(file);
  }
  if (!unreferenced()) return;
  if (busy() || !engine_->close_file(file)) return files_.wait(file);
  opened_.table->closed(files_[file].id, engine_->newest_segment());
  file_syncs_.closed(file);
  auto closing = files_.remove(file);
  answered_.notify_all();
  mutex_.unlock();
  closing.reset();  // frees the blocks of a file without a name
  mutex_.lock();
}

void StoreCore::settle_all() {
  const auto waiting = files_.waiting();
  for (const FileIndex file : waiting) settle(file);
}

// What is in the log of a file without a name and without handles is not needed any more.
void StoreCore::discard(FileIndex file) {
  files_[file].discarded = true;
  engine_call([&]() REQUIRES(mutex_) { engine_->unlink(next_ticket_++, file, now()); });
}

// The table says so before the bytes are forgotten: a recovery that finds neither the file nor this keeps
// them.
void StoreCore::removed(int fd) {
  give_up_removed(fd);
  struct stat attributes;
  if (::fstat(fd, &attributes) != 0) return;
  const FileKey key{attributes.st_dev, attributes.st_ino};
  uint64_t id = 0;
  {
    const MutexLock lock(mutex_);
    const auto found = files_.find(key);
    if (!found) return;
    id = files_[*found].id;
  }
  if (opened_.table->add_removed(id) && opened_.options.engine.durability != Durability::kPageCache)
    static_cast<void>(opened_.table->sync());
  const MutexLock lock(mutex_);
  if (removals_due_ == kForever && opened_.options.engine.durability == Durability::kPageCache) {
    removals_due_ = now() + kRemovalSyncNs;
    timer_changed_.notify_one();
  }
  const auto found = files_.find(key);
  if (!found) return;
  files_[*found].unlinked = true;
  settle(*found);
}

Status StoreCore::remove(const std::string& path) {
  const std::string full = full_path(path);
  SWALE_ASSIGN_OR_RETURN(const auto file, device_.open(full, io::OpenMode::kRead));
  SWALE_RETURN_IF_ERROR(device_.remove(full));
  SWALE_ASSIGN_OR_RETURN(const BackingState state, state_of(*file));
  if (state.unlinked) removed(file->descriptor());
  if (opened_.options.engine.durability == Durability::kPageCache) return {};
  return device_.sync_directory(io::parent_directory(full));
}

Status StoreCore::rename(const std::string& from, const std::string& to) {
  if (from == to) return {};
  const std::string source = full_path(from);
  const std::string target = full_path(to);
  auto replaced = device_.open(target, io::OpenMode::kRead);
  if (!replaced.ok() && replaced.status().code() != Code::kNotFound) return replaced.status();
  SWALE_RETURN_IF_ERROR(device_.rename(source, target));
  if (replaced.ok()) {
    SWALE_ASSIGN_OR_RETURN(const BackingState state, state_of(**replaced));
    if (state.unlinked) removed((*replaced)->descriptor());
  }
  if (opened_.options.engine.durability == Durability::kPageCache) return {};
  SWALE_RETURN_IF_ERROR(device_.sync_directory(io::parent_directory(source)));
  return device_.sync_directory(io::parent_directory(target));
}

std::optional<FileView> StoreCore::view(const FileKey& key) {
  const MutexLock lock(mutex_);
  const auto found = files_.find(key);
  if (!found) return std::nullopt;
  FileView view = files_[*found].view;
  view.size = engine_->file_size(*found);
  return view;
}

void StoreCore::set_modified(const FileKey& key, int64_t modified_ns) {
  const MutexLock lock(mutex_);
  const auto found = files_.find(key);
  if (!found) return;
  files_.set_modified(*found, modified_ns);
}

Status StoreCore::deferred_failure(FileIndex file) {
  const MutexLock lock(mutex_);
  if (!poisoned_.ok()) return poisoned_;
  if (!files_.has_handle(file)) return unknown(file);
  return failure(engine_->deferred_failure(file), file, "a write that was acknowledged before");
}

Result<uint64_t> StoreCore::seek(FileIndex file, uint64_t offset, Store::Seek what) {
  ReadPlan plan;
  uint64_t size = 0;
  int descriptor = -1;
  {
    const MutexLock lock(mutex_);
    if (!poisoned_.ok()) return poisoned_;
    if (!files_.has_handle(file)) return unknown(file);
    size = engine_->file_size(file);
    if (offset >= size)
      return error(Code::kNotFound, Scope::kOperation, "offset {} is not before the end {}", offset, size);
    descriptor = files_.use(file)->descriptor();
    engine_->plan_read(file, offset, size - offset, &plan);
  }
  uint64_t found = what == Store::Seek::kHole ? size : ~uint64_t{0};
  for (const ReadPiece& piece : plan.pieces) {
    uint64_t at = piece.offset;  // of what is looked for
    if (piece.from != ReadPiece::From::kBacking) {
      if (what == Store::Seek::kHole) continue;
    } else {
      const off_t next = ::lseek(descriptor, static_cast<off_t>(piece.offset),
                                 what == Store::Seek::kData ? SEEK_DATA : SEEK_HOLE);
      // Beyond the backing file's end there is a hole; a file system that knows of none has data everywhere.
      if (next < 0 && errno == ENXIO && what == Store::Seek::kData) continue;
      if (next < 0 && errno != ENXIO && what == Store::Seek::kHole) continue;
      if (next >= 0) at = static_cast<uint64_t>(next);
      if (at >= piece.offset + piece.length) continue;
    }
    found = at;
    break;
  }
  const MutexLock lock(mutex_);
  files_.unuse(file);
  engine_call([&]() REQUIRES(mutex_) { engine_->read_done(plan, now()); });
  if (found == ~uint64_t{0})
    return error(Code::kNotFound, Scope::kOperation, "no data at {} or behind", offset);
  return found;
}

// The path by which the system knows the file now.
std::string StoreCore::name_of(FileIndex file) const {
  return files_.is_open(file) ? files_.name_of(file) : opened_.options.backing_directory;
}

std::vector<std::pair<std::string, uint64_t>> StoreCore::dirty_files() {
  std::error_code failed;
  const auto root = std::filesystem::canonical(opened_.options.backing_directory, failed);
  const MutexLock lock(mutex_);
  std::vector<std::pair<std::string, uint64_t>> named;
  for (const auto& [file, bytes] : engine_->dirty_files()) {
    const std::filesystem::path path = name_of(file);
    named.emplace_back(failed ? path.string() : path.lexically_relative(root).string(), bytes);
  }
  return named;
}

}  // namespace swale::tier
