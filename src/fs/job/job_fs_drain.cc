// JobFs: the drain: when a program asks, when memory is short, and when nobody writes.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/clock.h"
#include "base/contain.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"
#include "io/descriptor_path.h"

namespace swale::fs {
namespace {

constexpr int kDrainTries = 8;  // of a file that is renamed while it is drained
constexpr Nanos kLookEvery = milliseconds(100);

}  // namespace

std::string JobFsStats::json() const {
  JsonWriter json;
  json.object();
  json.member("undrained_files", undrained_files).member("undrained_bytes", undrained_bytes);
  json.member("memory_bytes", memory_bytes).member("spilled_bytes", spilled_bytes);
  json.member("drained_files", drained_files).member("kept_aside", kept_aside);
  json.member("failed_drains", failed_drains).member("last_failure", last_failure);
  json.end();
  return json.text();
}

// Programs go on between the steps; the longest, the syncs, need nothing of theirs.
Result<Drain::Outcome> JobFs::drain_once(const meta::FileId& file) {
  {
    const MutexLock lock(mutex_);
    SWALE_ASSIGN_OR_RETURN(const bool begun, drain_->begin(file));
    if (!begun) return Drain::Outcome::kNothing;
  }
  for (bool more = true; more;) {
    const MutexLock lock(mutex_);
    SWALE_ASSIGN_OR_RETURN(more, drain_->write_some());
  }
  Status published = drain_->settle();
  const MutexLock changing(change_mutex_);
  if (published.ok()) {
    const MutexLock lock(mutex_);
    published = drain_->announce();
  }
  if (published.ok()) {
    // The programs made the file before: the time of its directory is theirs.
    const io::Descriptor directory = parent_on_backing(file);
    struct stat before = {};
    const bool known = directory.valid() && ::fstat(directory.get(), &before) == 0;
    published = drain_->publish();
    const timespec times[2] = {{0, UTIME_OMIT}, before.st_mtim};
    if (known) ::utimensat(AT_FDCWD, io::descriptor_path(directory).c_str(), times, 0);
  }
  const MutexLock lock(mutex_);
  if (!published.ok()) {
    drain_->abandon();
    return published;
  }
  SWALE_ASSIGN_OR_RETURN(const Drain::Outcome outcome, drain_->finish());
  if (outcome == Drain::Outcome::kNothing) return outcome;
  const Status marked = set_mode(file, 0, kOnBacking);
  if (!marked.ok() && marked.posix_error() != ENOENT) return marked;
  return outcome;
}

Result<Drain::Outcome> JobFs::drain_file(const meta::FileId& file) noexcept {
  Result<Drain::Outcome> outcome = Drain::Outcome::kNothing;
  const Status contained = contain([&] {
    const MutexLock draining(drain_mutex_);
    for (int tries = 0; tries < kDrainTries; ++tries) {
      outcome = drain_once(file);
      if (outcome.status().code() != Code::kBusy) break;
    }
    if (!outcome.ok()) {
      ++failed_drains_;
      log_error("{}", outcome.status().message());
      const MutexLock lock(failure_mutex_);
      last_failure_ = outcome.status().message();
      return;
    }
    if (*outcome == Drain::Outcome::kKeptAside) ++kept_aside_;
    if (*outcome != Drain::Outcome::kNothing) ++drained_files_;
  });
  if (!contained.ok()) return contained;
  return outcome;
}

Status JobFs::drain_all() noexcept {
  return contain([&]() -> Status {
    std::vector<meta::FileId> undrained;
    {
      const MutexLock lock(mutex_);
      SWALE_RETURN_IF_ERROR(files_->take());
      undrained = files_->undrained();
    }
    Status first;
    for (const meta::FileId& id : undrained) {
      const auto drained = drain_file(id);
      Status failed = drained.status();
      if (drained.ok() && *drained == Drain::Outcome::kKeptAside)
        failed = error(Code::kIoError, Scope::kFile,
                       "{}: others have changed it; what the job has written is beside it, as .swale-{}",
                       nodes_.path_of(id).value_or("a file"), options_.job);
      if (first.ok() && !failed.ok()) first = std::move(failed);
    }
    return first;
  });
}

JobFsStats JobFs::stats() noexcept {
  JobFsStats stats;
  {
    const MutexLock lock(mutex_);
    static_cast<void>(files_->take());
    for (const meta::FileId& id : files_->undrained()) stats.undrained_files += !nodes_.is_nameless(id);
    stats.undrained_bytes = files_->logs().live_bytes();
    stats.memory_bytes = files_->logs().memory_bytes();
    stats.spilled_bytes = files_->logs().spilled_bytes();
  }
  stats.drained_files = drained_files_;
  stats.kept_aside = kept_aside_;
  stats.failed_drains = failed_drains_;
  const MutexLock lock(failure_mutex_);
  stats.last_failure = last_failure_;
  return stats;
}

// Drains the oldest files until no writer waits. What the backing has no space for fails those that wait.
void JobFs::make_space() {
  std::set<meta::FileId> tried;
  for (;;) {
    std::optional<meta::FileId> oldest;
    {
      const MutexLock lock(mutex_);
      const Status served = files_->serve();
      if (!served.ok() && tried.empty()) log_warn("{}", served.message());
      if (!files_->logs().starves()) return;
      oldest = files_->oldest(tried);
    }
    if (!oldest || stopping_.load()) return;
    tried.insert(*oldest);
    const auto drained = drain_file(*oldest);
    if (drained.status().code() != Code::kNoSpace) continue;
    const MutexLock lock(mutex_);
    files_->logs().refuse(drained.status().posix_error());
    return;
  }
}

// Closed files, until somebody writes. Those that failed are tried again after the next write.
void JobFs::drain_idle(uint64_t writes, std::set<meta::FileId>* failed) {
  std::set<meta::FileId> passed_over = *failed;
  while (!stopping_.load() && writes_.load() == writes) {
    std::optional<meta::FileId> oldest;
    {
      const MutexLock lock(mutex_);
      oldest = files_->oldest(passed_over);
      if (!oldest) return;
      JobNode* const node = nodes_.find(*oldest);
      const bool open = node != nullptr && node->opens > 0;
      if (node != nullptr) nodes_.forget(node, 1);
      passed_over.insert(*oldest);
      if (open) continue;
    }
    if (!drain_file(*oldest).ok()) failed->insert(*oldest);
  }
}

void JobFs::keep() noexcept {
  NodeLogs* logs = nullptr;
  {
    const MutexLock lock(mutex_);
    logs = &files_->logs();
  }
  const Clock& clock = system_clock();
  uint64_t writes = writes_.load();
  Nanos quiet_since = clock.now();
  std::set<meta::FileId> failed;
  while (!stopping_.load()) {
    const Status kept = contain([&] {
      make_space();
      if (writes_.load() != writes) {
        writes = writes_.load();
        quiet_since = clock.now();
        failed.clear();
      } else if (options_.drains_alone && clock.now() - quiet_since >= options_.idle) {
        drain_idle(writes, &failed);
        quiet_since = clock.now();
      }
    });
    if (!kept.ok()) log_warn("{}", kept.message());
    logs->wait(kLookEvery);
  }
}

}  // namespace swale::fs
