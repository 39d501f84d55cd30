#include "fs/job/hidden_times.h"

#include <fcntl.h>

#include <ctime>
#include <utility>

#include "base/contain.h"
#include "fs/job/job_marks.h"
#include "io/descriptor_path.h"

namespace swale::fs {
namespace {

bool is_same(const timespec& one, const timespec& other) {
  return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec;
}

}  // namespace

void HiddenTimes::show(const Times& times, struct stat* found) {
  if (times.under_way) found->st_mtim = times.modified;
  if (times.under_way || is_same(times.left, found->st_ctim)) found->st_ctim = times.changed;
}

void HiddenTimes::show(const meta::FileId& directory, struct stat* found) const {
  const MutexLock lock(mutex_);
  if (const auto known = known_.find(directory); known != known_.end()) show(known->second, found);
}

void HiddenTimes::changed(const meta::FileId& directory, const timespec* modified) {
  const MutexLock lock(mutex_);
  const auto known = known_.find(directory);
  if (known == known_.end() || !known->second.under_way) return;
  ::clock_gettime(CLOCK_REALTIME, &known->second.changed);
  if (modified != nullptr) known->second.modified = *modified;
}

// What it was before is shown on, or what that was shown as.
void HiddenTimes::touched(const TouchedDirectory& directory) {
  if (directory.directory.none()) return;
  const MutexLock lock(mutex_);
  Times& known = known_[directory.directory];
  if (known.under_way) return;
  const timespec before = timespec_of(directory.before_ns);
  if (!is_same(known.left, before)) known.changed = before;
  known.left = timespec_of(directory.after_ns);
}

HiddenTimes::Change::Change(HiddenTimes& times, const meta::FileId& id, io::Descriptor directory,
                            const timespec* modified)
    : times_(&times), id_(id), directory_(std::move(directory)) {
  struct stat found;
  if (!directory_.valid() || ::fstat(directory_.get(), &found) != 0) {
    directory_ = {};
    return;
  }
  before_ = found.st_ctim;
  const MutexLock lock(times.mutex_);
  Times& known = times.known_[id];
  show(known, &found);
  known.modified = modified != nullptr ? *modified : found.st_mtim;
  known.changed = found.st_ctim;
  known.under_way = true;
}

HiddenTimes::Change::Change(Change&& other) noexcept
    : times_(other.times_), id_(other.id_), directory_(std::move(other.directory_)), before_(other.before_) {}

TouchedDirectory HiddenTimes::Change::end() {
  if (!directory_.valid()) return {};
  MutexLock lock(times_->mutex_);
  const auto at = times_->known_.find(id_);
  if (at == times_->known_.end()) return {};
  Times& known = at->second;
  while (known.under_way) {
    const timespec times[2] = {{0, UTIME_OMIT}, known.modified};
    struct stat found = {};
    lock.unlock();  // the backing may hang
    static_cast<void>(
        contain([&] { ::utimensat(AT_FDCWD, io::descriptor_path(directory_).c_str(), times, 0); }));
    static_cast<void>(::fstat(directory_.get(), &found));
    lock.lock();
    known.left = found.st_ctim;
    known.under_way = !is_same(known.modified, times[1]);
  }
  directory_ = {};
  return {id_, nanos_of(before_), nanos_of(known.left)};
}

}  // namespace swale::fs
