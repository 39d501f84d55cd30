#include "fs/job/stand_ins.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "fs/job/insist.h"
#include "fs/job/job_marks.h"
#include "fs/job/stand_in_file.h"
#include "fs/log/unmounted_format.h"
#include "io/descriptor_path.h"

namespace swale::fs {
namespace {

constexpr Nanos kSweepEvery = milliseconds(100);
constexpr size_t kPieceBytes = 1 << 20;
constexpr uint64_t kHeldBlockBytes = 512;  // of st_blocks
constexpr size_t kCrowdedPart = 4;

bool is_zeros(MutableBytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char each) { return each == 0; });
}

}  // namespace

Result<std::unique_ptr<StandIns>> StandIns::open(JobFs& fs, const std::string& folder, size_t descriptors) {
  std::unique_ptr<StandIns> made(new StandIns(fs, folder, std::max<size_t>(descriptors / 8, 16)));
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return errno_status(errno, folder);
  made->directory_ = io::Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!made->directory_.valid()) return errno_status(errno, folder);
  SWALE_RETURN_IF_ERROR(contain([&] { return made->recover(); }));
  SWALE_RETURN_IF_ERROR(start_thread(&made->keeper_, "the thread that takes in what nobody has open",
                                     [self = made.get()] { self->keep(); }));
  return made;
}

StandIns::~StandIns() {
  rest();
  static_cast<void>(contain([this] {
    for (const auto& each : all()) {
      const MutexLock lock(each->mutex);
      struct stat now;
      const bool stays = each->own.valid() && has_changed(*each, &now);
      if (!each->over) end(*each, stays ? Then::kStays : Then::kGoes);
    }
  }));
}

void StandIns::rest() noexcept {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  if (keeper_.joinable()) keeper_.join();
}

// ---- what a killed server has left

Status StandIns::recover() {
  bool restarted = false;
  SWALE_RETURN_IF_ERROR(look_for_restart(directory_, folder_, &restarted));
  const int fd = ::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fd < 0 ? nullptr : ::fdopendir(fd), ::closedir);
  if (!stream) return errno_status(errno, folder_);
  std::vector<std::string> names;
  while (const dirent* const found = ::readdir(stream.get())) names.emplace_back(found->d_name);
  size_t dropped = 0;
  for (const std::string& name : names) {
    const bool drops = restarted && file_of_name(name);
    if (drops || name.ends_with(kBeingCopied) || name.starts_with(kSpare))
      ::unlinkat(directory_.get(), name.c_str(), 0);
    dropped += drops ? 1 : 0;
    if (!drops) SWALE_RETURN_IF_ERROR(recover_one(name));
  }
  if (dropped > 0)
    log_warn(
        "{}: the machine has restarted: {} files were open then, or just closed, and are as they were synced",
        folder_, dropped);
  return {};
}

Status StandIns::recover_one(const std::string& name) {
  const auto id = file_of_name(name);
  if (!id) return {};
  Entry entry;
  const int missing = fs_.find_file(*id, &entry);
  if (missing == ENOENT) {  // it was removed while it was open
    ::unlinkat(directory_.get(), name.c_str(), 0);
    return {};
  }
  if (missing != 0) return errno_status(missing, folder_ + "/" + name + ": finding its file");
  const auto stand = find_or_add(*id);
  const MutexLock lock(stand->mutex);
  stand->node = entry.node;
  stand->by = server_user();
  stand->may_be_written = true;
  stand->own = io::Descriptor(::openat(directory_.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  const int failed =
      stand->own.valid() ? fs_.open_file(*entry.node, O_RDONLY | O_DIRECT, stand->by, &stand->reader) : errno;
  if (failed != 0 || ::fstat(stand->own.get(), &stand->taken) != 0) {
    const int why = failed != 0 ? failed : errno;
    end(*stand, Then::kStays);
    return errno_status(why, folder_ + "/" + name);
  }
  stand->inode = stand->taken.st_ino;
  const MutexLock table(mutex_);
  by_inode_[stand->inode] = stand;
  return {};
}

// ---- the table

std::shared_ptr<StandIns::StandIn> StandIns::find_or_add(const meta::FileId& id) {
  const MutexLock lock(mutex_);
  auto& stand = by_id_[id];
  if (stand == nullptr) stand = std::make_shared<StandIn>(id);
  return stand;
}

std::shared_ptr<StandIns::StandIn> StandIns::find_by_id(const meta::FileId& id) {
  const MutexLock lock(mutex_);
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : at->second;
}

std::vector<std::shared_ptr<StandIns::StandIn>> StandIns::all() {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<StandIn>> found;
  found.reserve(by_id_.size());
  for (const auto& [id, stand] : by_id_) found.push_back(stand);
  return found;
}

size_t StandIns::count() {
  const MutexLock lock(mutex_);
  return by_id_.size();
}

Node* StandIns::find(ino_t inode) {
  std::shared_ptr<StandIn> stand;
  {
    const MutexLock lock(mutex_);
    const auto at = by_inode_.find(inode);
    if (at == by_inode_.end()) return nullptr;
    stand = at->second;
  }
  return fs_.know(stand->id);
}

// ---- opens

int StandIns::open_file(Node& node, int flags, const Caller& caller, io::Descriptor* out) {
  sweep_if_crowded();
  for (;;) {
    const auto stand = find_or_add(JobFs::file_id(node));
    const MutexLock lock(stand->mutex);
    if (stand->over) continue;
    const int failed = open_locked(*stand, node, flags, caller, out);
    if (!stand->over && !stand->own.valid()) end(*stand, Then::kStays);
    return failed;
  }
}

// Another program may have found the name, and opened it, before.
int StandIns::open_made(Node& node, std::unique_ptr<OpenFile> writer, int flags, const Caller& caller,
                        io::Descriptor* out) {
  sweep_if_crowded();
  for (;;) {
    const auto stand = find_or_add(JobFs::file_id(node));
    const MutexLock lock(stand->mutex);
    if (stand->over) continue;
    if (stand->writer)
      fs_.release(std::move(writer));
    else
      stand->writer = std::move(writer);
    int failed = 0;
    if (!stand->own.valid()) {
      stand->size = 0;
      failed = begin(*stand, node, Copy::kNothing, caller);
    }
    if (failed == 0) failed = pass(*stand, flags, caller, out);
    if (!stand->own.valid()) end(*stand, Then::kStays);
    return failed;
  }
}

int StandIns::open_locked(StandIn& stand, Node& node, int flags, const Caller& caller, io::Descriptor* out) {
  const bool cuts = (flags & O_TRUNC) != 0;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || cuts;
  if (!stand.own.valid() && !writes) {
    std::unique_ptr<OpenFile> file;
    if (const int failed = fs_.open_file(node, O_RDONLY | O_DIRECT, caller, &file); failed != 0)
      return failed;
    const io::Descriptor there = fs_.there(*file);
    if (there.valid())
      *out = io::Descriptor(::open(io::descriptor_path(there).c_str(), O_RDONLY | O_CLOEXEC));
    const int failed = there.valid() && !out->valid() ? errno : 0;
    fs_.release(std::move(file));
    if (there.valid()) return failed;
  }
  const bool begins = !stand.own.valid();
  if (begins)
    if (const int failed = begin(stand, node, cuts ? Copy::kNothing : Copy::kAll, caller); failed != 0)
      return failed;
  const int failed = pass(stand, flags, caller, out);
  if (failed != 0 && begins) end(stand, Then::kGoes);  // nothing was cut
  return failed;
}

// A descriptor of its own for who opens it.
int StandIns::pass(StandIn& stand, int flags, const Caller& caller, io::Descriptor* out) {
  constexpr int kKept = O_ACCMODE | O_APPEND | O_TRUNC | O_NONBLOCK | O_NOATIME | O_SYNC | O_DSYNC;
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0) {
    if (const int failed = begin_writer(stand, caller); failed != 0) return failed;
    stand.may_be_written = true;
    stand.by = caller;
  }
  *out = io::Descriptor(::open(io::descriptor_path(stand.own).c_str(), (flags & kKept) | O_CLOEXEC));
  return out->valid() ? 0 : errno;
}

// A file that is sealed is refused before anything of it is cut.
int StandIns::begin_writer(StandIn& stand, const Caller& caller) {
  if (stand.writer) return 0;
  return fs_.open_file(*stand.node, O_WRONLY | O_DIRECT, caller, &stand.writer);
}

int StandIns::begin(StandIn& stand, Node& node, Copy copy, const Caller& caller) {
  stand.node = fs_.know(stand.id);
  if (stand.node == nullptr) return ESTALE;
  const int refused = copy == Copy::kNothing
                          ? begin_writer(stand, caller)
                          : fs_.open_file(node, O_RDONLY | O_DIRECT, caller, &stand.reader);
  if (refused != 0) return refused;
  io::Descriptor made;
  if (const int failed = make(stand, copy, &made); failed != 0) {
    log_error("{}/{}: a plain file for a file of the tree: {}", folder_, name_of_file(stand.id),
              errno_status(failed, "making it").message());
    return failed;
  }
  stand.inode = stand.taken.st_ino;
  const MutexLock lock(mutex_);
  by_inode_[stand.inode] = by_id_[stand.id];
  stand.own = std::move(made);
  return 0;
}

int StandIns::copy_from_tree(StandIn& stand, const io::Descriptor& to) {
  auto buffer = Buffer::allocate(kPieceBytes);
  if (!buffer.ok()) return ENOMEM;
  uint64_t offset = 0;
  for (size_t got = 1; got > 0; offset += got) {
    if (const int failed = fs_.read(*stand.reader, offset, buffer->span(), &got); failed != 0) return failed;
    const MutableBytes part = buffer->span().first(got);
    if (const int failed = is_zeros(part) ? 0 : write_all(to.get(), part, offset); failed != 0) return failed;
  }
  if (::ftruncate(to.get(), static_cast<off_t>(offset)) != 0) return errno;
  stand.size = offset;
  struct stat found;
  if (const int failed = fs_.attributes(*stand.node, &found); failed != 0) return failed;
  const timespec times[2] = {found.st_atim, found.st_mtim};
  return ::futimens(to.get(), times) == 0 ? 0 : errno;
}

// ---- back into the tree

bool StandIns::has_changed(StandIn& stand, struct stat* now) {
  if (::fstat(stand.own.get(), now) != 0) return true;
  return stand.may_be_written || now->st_size != stand.taken.st_size ||
         !same(now->st_mtim, stand.taken.st_mtim) || !same(now->st_ctim, stand.taken.st_ctim);
}

// It has been empty since it was made: the tree has its times.
bool StandIns::is_as_made(const StandIn& stand, const struct stat& now) {
  return now.st_size == 0 && stand.size == 0 && stand.taken.st_size == 0 &&
         same(now.st_mtim, stand.taken.st_mtim);
}

// Nobody but this has it open, or mapped: else the kernel gives no lease. (Its signal, if somebody opens it
// meanwhile by /proc, is one that is ignored.) Without leases it counts as open until the end.
bool StandIns::is_nobodys(StandIn& stand) {
  if (!has_leases_.load()) return false;
  const int fd = stand.own.get();
  if (!stand.may_lease) stand.may_lease = ::fcntl(fd, F_SETSIG, SIGURG) == 0;
  if (stand.may_lease && ::fcntl(fd, F_SETLEASE, F_WRLCK) == 0) return ::fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
  if (errno == EAGAIN) return false;
  has_leases_.store(false);
  log_warn(
      "{}: it gives no leases ({}): what was written is taken in at fsync, and at the end; a --buffer on "
      "another file system may be better",
      folder_, errno_status(errno, "F_SETLEASE").message());
  return false;
}

int StandIns::write_part(StandIn& stand, uint64_t offset, uint64_t end, bool zeros) {
  auto buffer = Buffer::allocate(std::min<uint64_t>(kPieceBytes, end - offset));
  if (!buffer.ok()) return ENOMEM;
  const int from = stand.own.get();
  while (offset < end) {
    MutableBytes part = buffer->span().first(std::min<uint64_t>(buffer->size(), end - offset));
    if (zeros) {
      std::fill(part.begin(), part.end(), '\0');
    } else {
      const ssize_t got =
          io::continued([&] { return ::pread(from, part.data(), part.size(), static_cast<off_t>(offset)); });
      if (got < 0) return errno;
      if (got == 0) return 0;  // it was cut meanwhile, and is taken in again
      part = part.first(static_cast<size_t>(got));
    }
    int failed = 0;
    fs_.write_bytes(*stand.writer, offset, view(part), stand.by, [&](int error) { failed = error; });
    if (failed != 0) return failed;
    offset += part.size();
  }
  return 0;
}

// What the tree has beyond, or where this has holes, goes.
int StandIns::copy_to_tree(StandIn& stand, const struct stat& now) {
  struct stat before = {};
  const auto known = std::exchange(stand.size, std::nullopt);
  if (const int failed = known ? 0 : fs_.attributes(*stand.node, &before); failed != 0) return failed;
  const auto size = static_cast<uint64_t>(now.st_size);
  const uint64_t old = known.value_or(static_cast<uint64_t>(before.st_size));
  const bool has_holes = static_cast<uint64_t>(now.st_blocks) * kHeldBlockBytes < size;
  for (uint64_t at = 0; at < size;) {
    const off_t data =
        has_holes ? ::lseek(stand.own.get(), static_cast<off_t>(at), SEEK_DATA) : static_cast<off_t>(at);
    if (data < 0 && errno != ENXIO) return errno;
    const uint64_t begin = data < 0 ? size : std::min(size, static_cast<uint64_t>(data));
    if (at < std::min(begin, old))
      if (const int failed = write_part(stand, at, std::min(begin, old), true); failed != 0) return failed;
    if (begin == size) break;
    const off_t hole = has_holes ? ::lseek(stand.own.get(), data, SEEK_HOLE) : -1;
    const uint64_t end = hole < 0 ? size : std::min(size, static_cast<uint64_t>(hole));
    if (const int failed = write_part(stand, begin, end, false); failed != 0) return failed;
    at = std::max(end, begin + 1);
  }
  if (has_holes || old > size) {
    if (const int failed = fs_.attributes(*stand.node, &before); failed != 0) return failed;
    const Change cut{.size = size, .size_by_handle = true};
    if (static_cast<uint64_t>(before.st_size) != size)
      if (const int failed = fs_.change(*stand.node, cut, stand.by, &before); failed != 0) return failed;
  }
  stand.size = size;
  return 0;
}

int StandIns::take_in_locked(StandIn& stand) {
  return stand.own.valid() ? take_in_locked(stand, is_nobodys(stand)) : 0;
}

// Whose it was when that was asked is nobody's until the mutex is given up: all opens are made with it.
int StandIns::take_in_locked(StandIn& stand, bool nobodys) {
  struct stat now;
  if (!has_changed(stand, &now) || !fs_.has_name(*stand.node)) return 0;
  if (nobodys && is_as_made(stand, now)) return 0;
  const bool has_bytes =
      stand.may_be_written || now.st_size != stand.taken.st_size || !same(now.st_mtim, stand.taken.st_mtim);
  if (has_bytes) {
    int failed = begin_writer(stand, stand.by);
    // Sealed: nobody could have it so with bytes that the tree lacks. A server was killed before it went.
    const bool is_sealed = failed == EPERM;
    if (failed == 0) failed = copy_to_tree(stand, now);
    if (failed != 0 && !is_sealed) return failed;
  }
  struct stat said;
  const Change times{.accessed = now.st_atim, .modified = now.st_mtim};
  if (const int failed = fs_.change(*stand.node, times, stand.by, &said); failed != 0) return failed;
  stand.taken = now;
  if (nobodys) stand.may_be_written = false;
  return 0;
}

void StandIns::end(StandIn& stand, Then then) {
  if (stand.writer) fs_.release(std::move(stand.writer));
  if (stand.reader) fs_.release(std::move(stand.reader));
  if (then == Then::kGoes || (then == Then::kIsSpare && !keep_as_spare(stand)))
    ::unlinkat(directory_.get(), name_of_file(stand.id).c_str(), 0);
  stand.own = {};
  stand.over = true;
  if (stand.node != nullptr) fs_.forget(std::exchange(stand.node, nullptr), 1);
  const MutexLock lock(mutex_);
  if (stand.inode != 0) by_inode_.erase(stand.inode);
  by_id_.erase(stand.id);
}

int StandIns::end_if_nobodys(StandIn& stand) {
  if (stand.over || !stand.own.valid() || !is_nobodys(stand)) return 0;
  if (const int failed = take_in_locked(stand, true); failed != 0) return failed;
  end(stand, Then::kIsSpare);
  return 0;
}

void StandIns::sweep() {
  for (const auto& each : all()) {
    const MutexLock lock(each->mutex);
    const int failed = end_if_nobodys(*each);
    if (failed != 0 && !has_failed_.exchange(true))
      log_error("{}/{}: taking it into the tree: {}; it is tried again", folder_, name_of_file(each->id),
                errno_status(failed, "writing").message());
  }
}

// What programs have open stays: so the next look is due when there are some more.
void StandIns::sweep_if_crowded() {
  if (count() <= sweep_at_.load()) return;
  sweep();
  sweep_at_.store(std::max(most_, count() + most_ / kCrowdedPart));
}

void StandIns::keep() noexcept {
  for (;;) {
    static_cast<void>(contain([this] { sweep(); }));
    const MutexLock lock(mutex_);
    if (ends_) return;
    changed_.wait_for(lock, kSweepEvery, [this]() REQUIRES(mutex_) { return ends_; });
    if (ends_) return;
  }
}

Status StandIns::take_all() noexcept {
  Status first;
  const Status all_tried = contain([&] {
    for (const auto& each : all()) {
      const MutexLock lock(each->mutex);
      int failed = take_in_locked(*each);
      if (failed == 0) failed = end_if_nobodys(*each);
      if (failed != 0 && first.ok())
        first = errno_status(failed, fmt::format("{}/{}: taking it into the tree; it stays there", folder_,
                                                 name_of_file(each->id)));
    }
  });
  return first.ok() ? all_tried : first;
}

// ---- what calls of names do to them

// The tree is asked after the stand-in: one that has gone meanwhile has left all in the tree.
int StandIns::describe(Node& node, struct stat* found) {
  const auto stand = find_by_id(JobFs::file_id(node));
  if (stand == nullptr) return fs_.attributes(node, found);
  const MutexLock lock(stand->mutex);
  if (const int failed = fs_.attributes(node, found); failed != 0) return failed;
  struct stat now;
  if (stand->over || !stand->own.valid() || !has_changed(*stand, &now)) return 0;
  found->st_size = now.st_size;
  found->st_blocks = now.st_blocks;
  if (is_as_made(*stand, now)) return 0;
  found->st_atim = now.st_atim;
  found->st_mtim = now.st_mtim;
  if (nanos_of(now.st_ctim) > nanos_of(found->st_ctim)) found->st_ctim = now.st_ctim;
  return 0;
}

bool StandIns::is_there(Node& node) {
  std::unique_ptr<OpenFile> file;
  if (find_by_id(JobFs::file_id(node)) != nullptr) return false;
  if (fs_.open_file(node, O_RDONLY | O_DIRECT, server_user(), &file) != 0) return false;
  const bool there = fs_.there(*file).valid();
  fs_.release(std::move(file));
  return there;
}

int StandIns::take_in(Node& node) {
  const auto stand = find_by_id(JobFs::file_id(node));
  if (stand == nullptr) return 0;
  const MutexLock lock(stand->mutex);
  return stand->over ? 0 : take_in_locked(*stand);
}

int StandIns::sync(Node& node) {
  const int failed = take_in(node);
  return failed != 0 ? failed : sync_tree(node);
}

int StandIns::sync_tree(Node& node) {
  std::unique_ptr<OpenFile> file;
  if (const int failed = fs_.open_file(node, O_RDONLY | O_DIRECT, server_user(), &file); failed != 0)
    return failed;
  const int failed = errno_of([&] { return fs_.sync(*file); });
  fs_.release(std::move(file));
  return failed;
}

int StandIns::truncate(Node& node, uint64_t size, const Caller& caller) {
  const auto stand = find_by_id(JobFs::file_id(node));
  struct stat found;
  if (stand == nullptr) return fs_.change(node, {.size = size}, caller, &found);
  const MutexLock lock(stand->mutex);
  if (stand->over || !stand->own.valid()) return fs_.change(node, {.size = size}, caller, &found);
  if (const int failed = begin_writer(*stand, caller); failed != 0) return failed;
  stand->may_be_written = true;
  return ::ftruncate(stand->own.get(), static_cast<off_t>(size)) == 0 ? 0 : errno;
}

int StandIns::set_times(Node& node, const timespec times[2]) {
  const auto stand = find_by_id(JobFs::file_id(node));
  if (stand == nullptr) return 0;
  const MutexLock lock(stand->mutex);
  if (stand->over || !stand->own.valid()) return 0;
  struct stat now;
  const bool has_news = has_changed(*stand, &now);
  if (::futimens(stand->own.get(), times) != 0) return errno;
  return has_news || ::fstat(stand->own.get(), &stand->taken) == 0 ? 0 : errno;
}

}  // namespace swale::fs
