// JobFs: what it says of itself.
#include "base/json_writer.h"
#include "fs/job/job_fs.h"

namespace swale::fs {

std::string JobFsStats::json() const {
  JsonWriter json;
  json.object();
  json.member("undrained_files", undrained_files).member("undrained_bytes", undrained_bytes);
  json.member("memory_bytes", memory_bytes).member("spilled_bytes", spilled_bytes);
  json.member("ready_bytes", ready_bytes);
  json.member("drained_files", drained_files).member("kept_aside", kept_aside);
  json.member("lost_attributes", lost_attributes);
  json.member("program_writes", program_writes).member("light_creates", light_creates);
  json.member("light_opens", light_opens).member("light_looks", light_looks).member("light_open", light_open);
  json.member("reads", reads).member("asked_roots", asked_roots);
  json.member("failed_drains", failed_drains).member("last_failure", last_failure);
  json.member("fsync", fsync_drains ? "backing" : "node");
  json.end();
  return json.text();
}

JobFsStats JobFs::stats() noexcept {
  JobFsStats stats;
  stats.fsync_drains = fsync_drains();
  {
    const MutexLock lock(mutex_);
    static_cast<void>(files_->take());
    for (const meta::FileId& id : undrained()) stats.undrained_files += !nodes_.is_nameless(id);
    stats.undrained_bytes = files_->logs().live_bytes();
    stats.memory_bytes = files_->logs().memory_bytes();
    stats.ready_bytes = files_->logs().free_bytes() + files_->logs().warm_bytes();
    stats.spilled_bytes = files_->logs().spilled_bytes();
    stats.spilled_chunks = files_->logs().spilled_chunks();
    stats.program_writes = grants_.admitted();
    stats.light_creates = light_creates_.load();
    stats.light_opens = light_opens_.load();
    stats.light_looks = light_looks_.load();
    stats.light_open = light_open_.load();
  }
  stats.reads = reads_.load();
  if (shared_) stats.asked_roots = shared_->asked();
  stats.drained_files = drained_files_;
  stats.kept_aside = kept_aside_.count();
  stats.lost_attributes = lost_.size();
  stats.failed_drains = failed_drains_;
  const MutexLock lock(failure_mutex_);
  stats.last_failure = last_failure_;
  return stats;
}

}  // namespace swale::fs
