#include "fs/job/shared_stand_ins.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "fs/job/insist.h"
#include "fs/job/job_marks.h"
#include "fs/job/shared_stand_in_names.h"
#include "fs/job/stand_in_file.h"
#include "fs/log/unmounted_format.h"
#include "io/descriptor_path.h"

namespace swale::fs {
namespace {

constexpr Nanos kLookForClosed = milliseconds(100);

}  // namespace

Result<std::unique_ptr<SharedStandIns>> SharedStandIns::open(JobFs& fs, const std::string& folder,
                                                             size_t descriptors,
                                                             const SharedStandInRules& rules) {
  const size_t most = std::max<size_t>(descriptors / 8, 16);
  std::unique_ptr<SharedStandIns> made(new SharedStandIns(fs, folder, most, rules));
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return errno_status(errno, folder);
  made->directory_ = io::Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!made->directory_.valid()) return errno_status(errno, folder);
  SWALE_RETURN_IF_ERROR(contain([&] { return made->recover(); }));
  fs.stand_in_roots().take_in_by([self = made.get()](const TakeInWish& wish) { return self->answer(wish); });
  SWALE_RETURN_IF_ERROR(start_thread(&made->keeper_, "the thread that takes in what nobody has open",
                                     [self = made.get()] { self->keep(); }));
  return made;
}

SharedStandIns::~SharedStandIns() {
  fs_.stand_in_roots().take_in_by(nullptr);
  rest();
  static_cast<void>(contain([this] {
    for (const auto& each : all()) {
      const MutexLock lock(each->mutex);
      if (!each->over) end(*each, each->own.valid() && each->base.valid());
    }
  }));
}

void SharedStandIns::rest() noexcept {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  if (keeper_.joinable()) keeper_.join();
}

std::string SharedStandIns::name_of(const StandIn& stand) const {
  return name_of_file(stand.id) + std::string(stand.kind == Kind::kTail ? kTailSuffix : "");
}

// ---- what a killed server has left

Status SharedStandIns::recover() {
  const int fd = ::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fd < 0 ? nullptr : ::fdopendir(fd), ::closedir);
  if (!stream) return errno_status(errno, folder_);
  std::vector<std::string> names;
  while (const dirent* const found = ::readdir(stream.get())) names.emplace_back(found->d_name);
  bool restarted = false;
  SWALE_RETURN_IF_ERROR(look_for_restart(directory_, folder_, &restarted));
  for (const std::string& name : names) {
    const bool drops = restarted && file_of_name(std::string_view(name).substr(0, name.find('.')));
    if (drops || name.ends_with(kIsMade))
      ::unlinkat(directory_.get(), name.c_str(), 0);
    else
      SWALE_RETURN_IF_ERROR(recover_one(name));
  }
  return {};
}

Status SharedStandIns::recover_one(const std::string& name) {
  const Kind kind = name.ends_with(kTailSuffix) ? Kind::kTail : Kind::kCopy;
  const auto id = file_of_name(
      std::string_view(name).substr(0, name.size() - (kind == Kind::kTail ? kTailSuffix.size() : 0)));
  if (!id) return {};
  const std::string beside = name + std::string(kind == Kind::kTail ? kPlaceSuffix : kBaseSuffix);
  Entry entry;
  const int missing = fs_.find_file(*id, &entry);
  if (missing == ENOENT) {  // it was removed while it was open
    ::unlinkat(directory_.get(), name.c_str(), 0);
    ::unlinkat(directory_.get(), beside.c_str(), 0);
    return {};
  }
  if (missing != 0) return errno_status(missing, folder_ + "/" + name + ": finding its file");
  const auto stand = find_or_add(*id, kind);
  const MutexLock lock(stand->mutex);
  stand->node = entry.node;
  stand->by = server_user();
  stand->own = io::Descriptor(::openat(directory_.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  stand->base = io::Descriptor(::openat(directory_.get(), beside.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  stand->may_be_written = stand->base.valid();
  int failed = stand->own.valid() ? 0 : errno;
  if (failed == 0) failed = fs_.open_file(*entry.node, O_RDONLY | O_DIRECT, stand->by, &stand->reader);
  if (failed == 0 && ::fstat(stand->own.get(), &stand->taken) != 0) failed = errno;
  if (failed == 0 && kind == Kind::kTail) failed = recover_tail(*stand);
  const uint8_t uses = kind == Kind::kTail   ? kTailIsWritten
                       : stand->base.valid() ? kCopyIsWritten
                                             : kCopyIsRead;
  uint64_t now = 0;  // whose base it has, nobody knows
  if (failed == 0) failed = say(*id, uses, &now);
  if (failed != 0) {
    end(*stand, true);
    return errno_status(failed, folder_ + "/" + name);
  }
  stand->uses = uses;
  stand->inode = stand->taken.st_ino;
  const MutexLock table(mutex_);
  by_inode_[stand->inode] = stand;
  return {};
}

// ---- the table

SharedStandIns::Stand SharedStandIns::find_or_add(const meta::FileId& id, Kind kind) {
  const MutexLock lock(mutex_);
  auto& stand = by_id_[{id, kind}];
  if (stand == nullptr) stand = std::make_shared<StandIn>(id, kind);
  return stand;
}

SharedStandIns::Stand SharedStandIns::find_by_id(const meta::FileId& id, Kind kind) {
  const MutexLock lock(mutex_);
  const auto at = by_id_.find({id, kind});
  return at == by_id_.end() ? nullptr : at->second;
}

// Copies before tails: what is appended comes behind what the node has written.
std::vector<SharedStandIns::Stand> SharedStandIns::all() {
  const MutexLock lock(mutex_);
  std::vector<Stand> found;
  found.reserve(by_id_.size());
  for (const auto& [id, stand] : by_id_) found.push_back(stand);
  return found;
}

size_t SharedStandIns::count() {
  const MutexLock lock(mutex_);
  return by_id_.size();
}

Node* SharedStandIns::find(ino_t inode) {
  Stand stand;
  {
    const MutexLock lock(mutex_);
    const auto at = by_inode_.find(inode);
    if (at == by_inode_.end()) return nullptr;
    stand = at->second;
  }
  return fs_.know(stand->id);
}

// ---- opens

// The same descriptor serves all that read what the backing has.
int SharedStandIns::pass_backings(Node& node, const Caller& caller, io::Descriptor* out) {
  std::unique_ptr<OpenFile> file;
  if (const int failed = fs_.open_file(node, O_RDONLY | O_DIRECT, caller, &file); failed != 0) return failed;
  *out = fs_.there(*file);
  fs_.release(std::move(file));
  return 0;
}

int SharedStandIns::open_file(Node& node, int flags, const Caller& caller, io::Descriptor* out) {
  const meta::FileId id = JobFs::file_id(node);
  if ((flags & O_ACCMODE) == O_RDONLY) flags &= ~O_APPEND;
  const bool appends = (flags & O_APPEND) != 0;
  if (appends && (flags & O_ACCMODE) != O_WRONLY) return EOPNOTSUPP;
  if (count() > most_) sweep();
  if (appends && (flags & O_TRUNC) != 0)
    if (const int failed = truncate(node, 0, caller); failed != 0) return failed;
  if (const int failed = take_in_of(id, appends ? Kind::kCopy : Kind::kTail); failed != 0) return failed;
  for (;;) {
    const auto stand = find_or_add(id, appends ? Kind::kTail : Kind::kCopy);
    uint64_t number = 0;
    const int unasked = errno_of([&] { return bring_once(*stand, &number); });
    const MutexLock lock(stand->mutex);
    if (stand->over) continue;
    const int failed = unasked != 0 ? unasked : errno_of([&]() NO_THREAD_SAFETY_ANALYSIS {
      return open_stand_in(*stand, node, flags, caller, number, out);
    });
    if (!stand->own.valid()) end(*stand, true);
    return failed;
  }
}

int SharedStandIns::open_stand_in(StandIn& stand, Node& node, int flags, const Caller& caller,
                                  uint64_t number, io::Descriptor* out) {
  const bool is_tail = stand.kind == Kind::kTail;
  const bool cuts = (flags & O_TRUNC) != 0 && !is_tail;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || cuts;
  if (!stand.own.valid() && !writes) {
    const int failed = pass_backings(node, caller, out);
    if (failed != 0 || out->valid()) return failed;
  }
  int failed = 0;
  if (!stand.own.valid())
    failed = begin(stand, node, !cuts, caller);
  else if (!cuts && !is_tail)
    failed = refresh(stand, number);
  if (failed == 0 && writes) failed = begin_writes(stand, caller);
  if (failed == 0 && cuts) failed = cut(stand, 0, caller);
  if (failed != 0) return failed;
  constexpr int kKept = O_ACCMODE | O_APPEND | O_NONBLOCK | O_NOATIME;
  if (writes) {
    stand.may_be_written = true;
    stand.by = caller;
  }
  *out = io::Descriptor(::open(io::descriptor_path(stand.own).c_str(), (flags & kKept) | O_CLOEXEC));
  return out->valid() ? 0 : errno;
}

// `copies`: what the tree has. The root knows of it before that is read.
int SharedStandIns::begin(StandIn& stand, Node& node, bool copies, const Caller& caller) {
  stand.node = fs_.know(stand.id);
  if (stand.node == nullptr) return ESTALE;
  if (const int failed = fs_.open_file(node, O_RDONLY | O_DIRECT, caller, &stand.reader); failed != 0)
    return failed;
  const uint8_t uses = stand.kind == Kind::kTail ? kTailIsWritten : kCopyIsRead;
  if (const int failed = say(stand.id, uses, &stand.number); failed != 0) return failed;
  stand.uses = uses;
  const std::string name = name_of(stand), is_made = name + std::string(kIsMade);
  constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  io::Descriptor made(::openat(directory_.get(), is_made.c_str(), kFlags, 0600));
  int failed = made.valid() ? 0 : errno;
  struct stat in_tree = {};
  if (failed == 0 && stand.kind == Kind::kTail) {
    failed = fs_.attributes(*stand.node, &in_tree);
    if (failed == 0) failed = begin_tail(stand, static_cast<uint64_t>(in_tree.st_size));
    if (failed == 0 && ::ftruncate(made.get(), in_tree.st_size) != 0) failed = errno;
  } else if (failed == 0 && copies) {
    failed = copy_from_tree(stand, made);
  }
  if (failed == 0 && ::fchmod(made.get(), kStandInMode) != 0) failed = errno;
  if (failed == 0 && ::renameat(directory_.get(), is_made.c_str(), directory_.get(), name.c_str()) != 0)
    failed = errno;
  // The change of its name is one of the inode.
  if (failed == 0 && ::fstat(made.get(), &stand.taken) != 0) failed = errno;
  if (failed != 0) {
    ::unlinkat(directory_.get(), is_made.c_str(), 0);
    log_error("{}/{}: a plain file for a file of the tree: {}", folder_, name,
              errno_status(failed, "making it").message());
    return failed;
  }
  stand.inode = stand.taken.st_ino;
  const MutexLock lock(mutex_);
  by_inode_[stand.inode] = by_id_[{stand.id, stand.kind}];
  stand.own = std::move(made);
  return 0;
}

// A file that is sealed is refused before anything of it is cut.
int SharedStandIns::begin_writer(StandIn& stand, const Caller& caller) {
  if (stand.writer) return 0;
  return fs_.open_file(*stand.node, O_WRONLY | O_DIRECT, caller, &stand.writer);
}

// Before a program may write it: so what is there is the tree's.
int SharedStandIns::begin_writes(StandIn& stand, const Caller& caller) {
  if (const int failed = begin_writer(stand, caller); failed != 0) return failed;
  if (stand.kind == Kind::kTail) return 0;
  if ((stand.uses & kCopyIsWritten) == 0) {
    uint64_t now = 0;
    if (const int failed = say(stand.id, kCopyIsWritten, &now); failed != 0) return failed;
    stand.uses |= kCopyIsWritten;
  }
  return stand.base.valid() ? 0 : make_base(stand);
}

// ---- back into the tree

// As StandIns::is_nobodys.
bool SharedStandIns::is_nobodys(StandIn& stand) {
  if (!has_leases_.load()) return false;
  const int fd = stand.own.get();
  if (::fcntl(fd, F_SETSIG, SIGURG) == 0 && ::fcntl(fd, F_SETLEASE, F_WRLCK) == 0)
    return ::fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
  if (errno == EAGAIN) return false;
  has_leases_.store(false);
  log_warn(
      "{}: it gives no leases ({}): what was written is taken in when another node opens it, at fsync, at "
      "the end; a --buffer on another file system may be better",
      folder_, errno_status(errno, "F_SETLEASE").message());
  return false;
}

int SharedStandIns::take_in_locked(StandIn& stand) {
  if (stand.over || !stand.own.valid() || !stand.base.valid() || !fs_.has_name(*stand.node)) return 0;
  ++stand.takes;
  const int failed = errno_of([&]() NO_THREAD_SAFETY_ANALYSIS {
    return stand.kind == Kind::kTail ? take_in_tail(stand) : take_in_copy(stand, is_nobodys(stand));
  });
  if (failed != 0) --stand.takes;
  return failed;
}

void SharedStandIns::end(StandIn& stand, bool keeps_file) {
  if (stand.writer) fs_.release(std::move(stand.writer));
  if (stand.reader) fs_.release(std::move(stand.reader));
  if (!keeps_file) {
    const std::string name = name_of(stand);
    ::unlinkat(directory_.get(), name.c_str(), 0);
    for (const std::string_view suffix : {kBaseSuffix, kPlaceSuffix})
      ::unlinkat(directory_.get(), (name + std::string(suffix)).c_str(), 0);
  }
  stand.own = {};
  stand.base = {};
  stand.over = true;
  if (stand.node != nullptr) fs_.forget(std::exchange(stand.node, nullptr), 1);
  bool ends = false;
  {
    const MutexLock lock(mutex_);
    ends = ends_;
  }
  // Before another one of this file begins.
  if (const uint8_t uses = std::exchange(stand.uses, 0); uses != 0 && !ends)
    if (const auto told = ask({.file = stand.id, .op = StandInOp::kTook, .uses = uses}); !told.ok())
      log_debug("{}", told.status().message());
  const MutexLock lock(mutex_);
  if (stand.inode != 0) by_inode_.erase(stand.inode);
  by_id_.erase({stand.id, stand.kind});
}

int SharedStandIns::end_if_nobodys(StandIn& stand) {
  if (stand.over || !stand.own.valid() || !is_nobodys(stand)) return 0;
  if (const int failed = take_in_locked(stand); failed != 0) return failed;
  end(stand, false);
  return 0;
}

int SharedStandIns::take_in_of(const meta::FileId& id, Kind kind) {
  const auto stand = find_by_id(id, kind);
  if (stand == nullptr) return 0;
  const MutexLock lock(stand->mutex);
  return take_in_locked(*stand);
}

int SharedStandIns::take_in_own(const meta::FileId& id) {
  const int failed = take_in_of(id, Kind::kCopy);
  return failed != 0 ? failed : take_in_of(id, Kind::kTail);
}

void SharedStandIns::sweep() {
  for (const auto& each : all()) {
    if (each->kind == Kind::kTail) {  // behind what the node has written
      bool looks = false;
      {
        const MutexLock lock(each->mutex);
        looks = !each->over && each->own.valid() && is_nobodys(*each);
      }
      if (!looks) continue;
      log_failure(*each, take_in_of(each->id, Kind::kCopy));
    }
    const MutexLock lock(each->mutex);
    log_failure(*each, end_if_nobodys(*each));
  }
}

void SharedStandIns::log_failure(const StandIn& stand, int failed) {
  if (failed != 0 && !has_failed_.exchange(true))
    log_error("{}/{}: taking it into the tree: {}; it is tried again", folder_, name_of(stand),
              errno_status(failed, "writing").message());
}

void SharedStandIns::keep() noexcept {
  for (;;) {
    static_cast<void>(contain([this] {
      sweep();
      locks_.sweep([this](const meta::FileId& id) { static_cast<void>(take_in_own(id)); });
    }));
    const MutexLock lock(mutex_);
    if (ends_) return;
    changed_.wait_for(lock, kLookForClosed, [this]() REQUIRES(mutex_) { return ends_; });
    if (ends_) return;
  }
}

Status SharedStandIns::take_all() noexcept {
  Status first;
  const Status all_tried = contain([&] {
    for (const auto& each : all()) {
      const MutexLock lock(each->mutex);
      int failed = take_in_locked(*each);
      if (failed == 0) failed = end_if_nobodys(*each);
      if (failed != 0 && first.ok())
        first = errno_status(
            failed, fmt::format("{}/{}: taking it into the tree; it stays there", folder_, name_of(*each)));
    }
  });
  return first.ok() ? all_tried : first;
}

// ---- what calls of names do to them

// The tree is asked after the stand-ins: one that has gone meanwhile has left all in the tree. Nobody else
// holds two of them.
int SharedStandIns::describe(Node& node, struct stat* found) NO_THREAD_SAFETY_ANALYSIS {
  if (!JobFs::is_file(node)) return fs_.attributes(node, found);
  const meta::FileId id = JobFs::file_id(node);
  struct stat elsewhere = {};
  if (const int failed = look_elsewhere(id, &elsewhere); failed != 0) return failed;
  const auto copy = find_by_id(id, Kind::kCopy), tail = find_by_id(id, Kind::kTail);
  std::optional<MutexLock> of_copy, of_tail;
  if (copy != nullptr) of_copy.emplace(copy->mutex);
  if (tail != nullptr) of_tail.emplace(tail->mutex);
  if (const int failed = fs_.attributes(node, found); failed != 0) return failed;
  found->st_size = std::max(found->st_size, elsewhere.st_size);
  if (nanos_of(elsewhere.st_mtim) > nanos_of(found->st_mtim)) found->st_mtim = elsewhere.st_mtim;
  for (const auto& each : {copy, tail}) {
    struct stat now;
    if (each == nullptr || each->over || !each->own.valid() || !each->may_be_written) continue;
    if (::fstat(each->own.get(), &now) != 0) return errno;
    found->st_size = std::max(found->st_size, now.st_size);
    found->st_blocks = std::max(found->st_blocks, now.st_blocks);
    if (same(now.st_mtim, each->taken.st_mtim)) continue;
    if (nanos_of(now.st_mtim) > nanos_of(found->st_mtim)) found->st_mtim = now.st_mtim;
    if (nanos_of(now.st_ctim) > nanos_of(found->st_ctim)) found->st_ctim = now.st_ctim;
  }
  return 0;
}

bool SharedStandIns::is_there(Node& node) {
  io::Descriptor there;
  uint64_t number = 0;
  const meta::FileId id = JobFs::file_id(node);
  if (bring(id, &number) != 0 || find_by_id(id, Kind::kCopy) != nullptr ||
      find_by_id(id, Kind::kTail) != nullptr)
    return false;
  return pass_backings(node, server_user(), &there) == 0 && there.valid();
}

int SharedStandIns::take_in(Node& node) {
  const meta::FileId id = JobFs::file_id(node);
  uint64_t number = 0;
  const int failed = bring(id, &number);
  return failed != 0 ? failed : take_in_own(id);
}

// What others have synced before is seen here, too, from now on.
int SharedStandIns::sync(Node& node) {
  const meta::FileId id = JobFs::file_id(node);
  if (const int failed = take_in_own(id); failed != 0) return failed;
  std::unique_ptr<OpenFile> file;
  if (const int failed = fs_.open_file(node, O_RDONLY | O_DIRECT, server_user(), &file); failed != 0)
    return failed;
  const int failed = errno_of([&] { return fs_.sync(*file); });
  fs_.release(std::move(file));
  return failed != 0 ? failed : refresh_own(id);
}

// Nothing is in the tree that would have to be cut, but what another node has written since.
int SharedStandIns::open_made(Node& node, std::unique_ptr<OpenFile> writer, int flags, const Caller& caller,
                              io::Descriptor* out) {
  const int failed = open_file(node, flags & ~O_TRUNC, caller, out);
  fs_.release(std::move(writer));
  return failed;
}

// On this node: whoever seals the file asks the others, whose stand-ins have it open to write.
int SharedStandIns::end(Node& node) {
  for (const Kind kind : {Kind::kCopy, Kind::kTail}) {
    const auto stand = find_by_id(JobFs::file_id(node), kind);
    if (stand == nullptr) continue;
    const MutexLock lock(stand->mutex);
    if (const int failed = end_if_nobodys(*stand); failed != 0) return failed;
    if (!stand->over) return EBUSY;
  }
  return 0;
}

int SharedStandIns::truncate(Node& node, uint64_t size, const Caller& caller) {
  const meta::FileId id = JobFs::file_id(node);
  uint64_t number = 0;
  if (const int failed = bring(id, &number); failed != 0) return failed;
  if (const int failed = take_in_own(id); failed != 0) return failed;
  bool is_done = false;
  if (const auto copy = find_by_id(id, Kind::kCopy); copy != nullptr) {
    const MutexLock lock(copy->mutex);
    is_done = !copy->over && copy->own.valid();
    int failed = is_done ? begin_writes(*copy, caller) : 0;
    if (is_done && failed == 0) failed = cut(*copy, size, caller);
    if (is_done && failed == 0) copy->may_be_written = true;
    if (failed != 0) return failed;
  }
  if (!is_done)
    if (const int failed = cut_elsewhere(node, size, caller); failed != 0) return failed;
  return cut_tail(id, size);
}

int SharedStandIns::set_times(Node& node, const timespec times[2]) {
  const auto stand = find_by_id(JobFs::file_id(node), Kind::kCopy);
  if (stand == nullptr) return 0;
  const MutexLock lock(stand->mutex);
  if (stand->over || !stand->own.valid()) return 0;
  if (::futimens(stand->own.get(), times) != 0) return errno;
  return ::fstat(stand->own.get(), &stand->taken) == 0 ? 0 : errno;
}

}  // namespace swale::fs
