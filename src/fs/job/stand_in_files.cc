// StandIns: the plain files themselves: how they are made, kept for the next one, and given up when the
// machine has restarted; and what of one is durable before all of it is in the tree.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fs/job/shared_stand_in_names.h"
#include "fs/job/stand_in_file.h"
#include "fs/job/stand_ins.h"
#include "fs/log/unmounted_format.h"

namespace swale::fs {
namespace {

constexpr char kBoot[] = "boot", kBootId[] = "/proc/sys/kernel/random/boot_id";
constexpr size_t kSparesMax = 1024;

// "": it is not there.
std::string read_text(int at, const char* path) {
  char text[64];
  const io::Descriptor file(::openat(at, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  const ssize_t got = file.valid() ? ::read(file.get(), text, sizeof(text)) : -1;
  return got <= 0 ? std::string() : std::string(text, static_cast<size_t>(got));
}

}  // namespace

// What was written and not synced is not promised to outlive the machine, and the node's file system may have
// any part of it. The tree has what was synced.
Status look_for_restart(const io::Descriptor& directory, const std::string& folder, bool* restarted) {
  const std::string now = read_text(AT_FDCWD, kBootId), before = read_text(directory.get(), kBoot);
  *restarted = !before.empty() && !now.empty() && before != now;
  if (before == now) return {};
  const std::string made = std::string(kBoot) + std::string(kIsMade);
  const io::Descriptor file(
      ::openat(directory.get(), made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid() || ::write(file.get(), now.data(), now.size()) != static_cast<ssize_t>(now.size()) ||
      ::renameat(directory.get(), made.c_str(), directory.get(), kBoot) != 0)
    return errno_status(errno, folder + "/" + kBoot);
  return {};
}

// One that nobody needs any more gets the new name, when it is whole: ext4 takes 10 us for that, and up to
// 300 for a new file while others were removed shortly before.
int StandIns::make(StandIn& stand, Copy copy, io::Descriptor* out) {
  const std::string name = name_of_file(stand.id), is_copied = name + std::string(kBeingCopied);
  constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  std::string made;
  *out = take_spare(&made);
  if (!out->valid()) {
    made = copy == Copy::kAll ? is_copied : name;
    *out = io::Descriptor(::openat(directory_.get(), made.c_str(), kFlags, kStandInMode));
    if (!out->valid()) return errno;
  }
  int failed = copy == Copy::kAll ? copy_from_tree(stand, *out) : 0;
  if (failed == 0 && made != name &&
      ::renameat(directory_.get(), made.c_str(), directory_.get(), name.c_str()) != 0)
    failed = errno;
  // The change of its name is one of the inode.
  if (failed == 0 && ::fstat(out->get(), &stand.taken) != 0) failed = errno;
  if (failed != 0) ::unlinkat(directory_.get(), made.c_str(), 0);
  return failed;
}

io::Descriptor StandIns::take_spare(std::string* name) {
  const MutexLock lock(mutex_);
  if (spares_.empty()) return {};
  Spare spare = std::move(spares_.back());
  spares_.pop_back();
  *name = std::move(spare.name);
  return std::move(spare.file);
}

// Its name goes first: a killed server leaves no file that is empty and was not. False: it is to be removed.
bool StandIns::keep_as_spare(StandIn& stand) {
  Spare spare;
  {
    const MutexLock lock(mutex_);
    if (spares_.size() >= std::min(kSparesMax, most_)) return false;
    spare.name = fmt::format("{}{}", kSpare, spares_made_++);
    spares_.reserve(spares_.size() + 1);
  }
  if (::renameat(directory_.get(), name_of_file(stand.id).c_str(), directory_.get(), spare.name.c_str()) != 0)
    return false;
  if (::ftruncate(stand.own.get(), 0) != 0) return ::unlinkat(directory_.get(), spare.name.c_str(), 0) == 0;
  spare.file = std::move(stand.own);
  const MutexLock lock(mutex_);
  spares_.push_back(std::move(spare));
  return true;
}

// ---- a part of one

int StandIns::end(Node& node) {
  const auto stand = find_by_id(JobFs::file_id(node));
  if (stand == nullptr) return 0;
  const MutexLock lock(stand->mutex);
  if (const int failed = end_if_nobodys(*stand); failed != 0) return failed;
  return stand->over ? 0 : EBUSY;
}

// All else that was written is still to be taken in.
int StandIns::sync_part(Node& node, uint64_t offset, uint64_t bytes) {
  if (const auto stand = find_by_id(JobFs::file_id(node))) {
    const MutexLock lock(stand->mutex);
    const bool stands = !stand->over && stand->own.valid() && fs_.has_name(*stand->node);
    if (const int failed = stands ? copy_part(*stand, offset, bytes) : 0; failed != 0) return failed;
  }
  return sync_tree(node);
}

int StandIns::copy_part(StandIn& stand, uint64_t offset, uint64_t bytes) {
  struct stat now, before;
  if (::fstat(stand.own.get(), &now) != 0) return errno;
  if (const int failed = begin_writer(stand, stand.by); failed != 0) return failed;
  if (const int failed = fs_.attributes(*stand.node, &before); failed != 0) return failed;
  const auto size = static_cast<uint64_t>(now.st_size), old = static_cast<uint64_t>(before.st_size);
  if (size < old) return take_in_locked(stand);  // it was cut
  if (offset == kAppended) {
    offset = old;
    bytes = size - old;
  }
  stand.size.reset();
  return offset >= size ? 0 : write_part(stand, offset, offset + std::min(bytes, size - offset), false);
}

}  // namespace swale::fs
