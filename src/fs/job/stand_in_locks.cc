#include "fs/job/stand_in_locks.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/contain.h"
#include "base/log.h"
#include "fs/job/stand_in_file.h"

namespace swale::fs {
namespace {

// Of processes that this one sees: "7: POSIX  ADVISORY  WRITE 123 08:01:456 0 EOF".
std::optional<std::set<std::pair<ino_t, uint64_t>>> kernels_locks() {
  const std::unique_ptr<FILE, int (*)(FILE*)> table(::fopen("/proc/locks", "re"), ::fclose);
  if (!table) return {};
  std::set<std::pair<ino_t, uint64_t>> found;
  char line[256];
  while (::fgets(line, sizeof(line), table.get()) != nullptr) {
    char kind[16];
    unsigned long long inode = 0;
    long long process = 0;
    if (::sscanf(line, "%*s %15s %*s %*s %lld %*x:%*x:%llu", kind, &process, &inode) != 3) continue;
    if (std::string_view(kind) == "POSIX") found.emplace(inode, static_cast<uint64_t>(process));
  }
  return found;
}

}  // namespace

std::optional<FileLock> lock_of(const UnmountedRequest& request, pid_t process) {
  FileLock wanted;
  const auto end = static_cast<uint64_t>(request.modified_ns);
  if (request.size >= kLockEnd || (end != 0 && end <= request.size)) return {};
  wanted.type = request.what == F_WRLCK   ? LockType::kWrite
                : request.what == F_RDLCK ? LockType::kRead
                                          : LockType::kNone;
  wanted.begin = request.size;
  wanted.end = end == 0 ? kLockEnd : end;
  wanted.pid = static_cast<uint32_t>(process);
  wanted.owner = wanted.pid;
  return wanted;
}

void tell_lock(const FileLock& found, UnmountedAnswer* answer) {
  answer->there = found.type == LockType::kWrite  ? F_WRLCK
                  : found.type == LockType::kRead ? F_RDLCK
                                                  : F_UNLCK;
  answer->stat.inode = found.pid;
  answer->stat.size = found.begin;
  answer->stat.blocks = found.end >= kLockEnd ? 0 : found.end - found.begin;
}

StandInLocks::~StandInLocks() {
  const MutexLock lock(mutex_);
  for (const auto& [id, file] : files_) static_cast<void>(contain([&] { end(*file); }));
}

void StandInLocks::end(File& file) {
  if (file.handle) fs_.release(std::move(file.handle));
  if (file.node != nullptr) fs_.forget(std::exchange(file.node, nullptr), 1);
}

std::shared_ptr<StandInLocks::File> StandInLocks::file_of(Node& node, int* failed) {
  const meta::FileId id = JobFs::file_id(node);
  const MutexLock lock(mutex_);
  if (const auto at = files_.find(id); at != files_.end()) return at->second;
  auto made = std::make_shared<File>();
  *failed = fs_.open_file(node, O_RDONLY | O_DIRECT, server_user(), &made->handle);
  if (*failed != 0) return nullptr;
  made->node = fs_.know(id);
  files_.emplace(id, made);
  return made;
}

// Each is answered at once, as none waits.
int StandInLocks::set(Node& node, ino_t inode, const FileLock& wanted) {
  int failed = 0;
  const auto file = file_of(node, &failed);
  if (file == nullptr) return failed;
  const MutexLock one(file->mutex);
  struct Answer {
    Mutex mutex;
    CondVar came;
    std::optional<int> error;
  };
  const auto answer = std::make_shared<Answer>();
  const uint64_t request = fs_.locks()->begin([answer](int error) {
    const MutexLock lock(answer->mutex);
    answer->error = error;
    answer->came.notify_all();
  });
  fs_.locks()->set(*file->handle, wanted, false, request);
  {
    const MutexLock lock(answer->mutex);
    answer->came.wait(lock, [&] { return answer->error.has_value(); });
    failed = *answer->error;
  }
  if (failed != 0 || wanted.type == LockType::kNone) return failed;
  const MutexLock lock(mutex_);
  file->owners[wanted.owner] = {inode, 0};
  return 0;
}

int StandInLocks::get(Node& node, const FileLock& wanted, FileLock* in_the_way) {
  int failed = 0;
  const auto file = file_of(node, &failed);
  return file == nullptr ? failed : fs_.locks()->get(*file->handle, wanted, in_the_way);
}

void StandInLocks::sweep(const std::function<void(const meta::FileId&)>& before) {
  std::vector<std::pair<meta::FileId, std::shared_ptr<File>>> all;
  {
    const MutexLock lock(mutex_);
    all.assign(files_.begin(), files_.end());
  }
  const auto kernels = all.empty() ? std::nullopt : kernels_locks();
  if (!kernels) return;
  for (auto& [id, file] : all) {
    std::vector<uint64_t> over;
    {
      const MutexLock lock(mutex_);
      for (auto& [owner, each] : file->owners) {
        each.misses = kernels->contains({each.inode, owner}) ? 0 : each.misses + 1;
        if (each.misses > kMissesMax) over.push_back(owner);
      }
    }
    const MutexLock one(file->mutex);
    for (const uint64_t owner : over) {
      {
        const MutexLock lock(mutex_);
        if (file->owners[owner].misses <= kMissesMax) continue;  // it has locked anew
      }
      before(id);
      if (const int failed = fs_.locks()->end_owner(*file->handle, owner); failed != 0)
        log_warn("{}: the locks of process {}: {}", text_of(id), owner,
                 errno_status(failed, "ending them").message());
    }
    const MutexLock lock(mutex_);
    for (const uint64_t owner : over)
      if (file->owners[owner].misses > kMissesMax) file->owners.erase(owner);
    if (!file->owners.empty() || file.use_count() > 2) continue;  // of the table, and here
    end(*file);
    files_.erase(id);
  }
}

}  // namespace swale::fs
