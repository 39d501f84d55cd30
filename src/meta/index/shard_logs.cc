#include "meta/index/shard_logs.h"

#include <algorithm>
#include <cassert>

namespace swale::meta {
namespace {

uint64_t logs_bytes(const std::vector<ManifestLog>& logs) {
  uint64_t bytes = 0;
  for (const ManifestLog& log : logs) bytes += log.bytes;
  return bytes;
}

}  // namespace

std::shared_ptr<LogFile> ShardLogs::next() const {
  if (log_ != nullptr && current_bytes_ == 0) return log_;
  const ShardOptions& options = shared_.options;
  const uint32_t number = log_ ? log_->number() + 1 : first_log_;
  const store::LogIdentity identity{kShardLogKind, options.shard, owner_of(shared_.job(), number)};
  return std::make_shared<LogFile>(number, shared_.device, shared_.path_of(ShardFileKind::kLog, number),
                                   identity, options.sync_log, log_);
}

void ShardLogs::go_on_in(std::shared_ptr<LogFile> log, uint64_t group) {
  assert(group >= frozen_group_);
  replaced_.insert(replaced_.end(), earlier_.begin(), earlier_.end());
  earlier_.clear();
  frozen_group_ = group;
  if (log != log_) current_bytes_ = durable_bytes_ = 0;
  log_ = std::move(log);
}

void ShardLogs::fill(ShardManifest* manifest) {
  manifest->shard = shared_.options.shard;
  manifest->job = shared_.job();
  manifest->group = frozen_group_;
  manifest->first_log = log_->number();
  manifest->first_log_bytes = store::kLogHeaderBytes + (shared_.options.sync_log ? durable_bytes_ : 0);
  manifest->earlier_logs = earlier_;
  manifest->snapshot = {shared_.job(), take_number()};
}

void ShardLogs::list_obsolete(std::vector<std::string>* paths) const {
  for (uint32_t number = first_log_; number < log_->number(); ++number)
    paths->push_back(shared_.path_of(ShardFileKind::kLog, number));
  for (const ManifestLog& log : replaced_)
    paths->push_back(shared_.path_of(log.job, ShardFileKind::kLog, log.number));
  if (snapshot_.number != 0)
    paths->push_back(shared_.path_of(snapshot_.job, ShardFileKind::kSnapshot, snapshot_.number));
}

uint64_t ShardLogs::freed_bytes() const {
  return bytes_ - std::min(bytes_, current_bytes_ + logs_bytes(earlier_));
}

void ShardLogs::checkpointed(const ShardManifest& manifest, uint64_t snapshot_bytes, uint64_t freed_bytes) {
  assert(manifest.first_log >= first_log_ && manifest.first_log <= log_->number());
  replaced_.clear();
  first_log_ = manifest.first_log;
  snapshot_ = manifest.snapshot;
  snapshot_bytes_ = snapshot_bytes;
  bytes_ -= std::min(bytes_, freed_bytes);
}

void ShardLogs::restore(const ManifestFile& snapshot, uint64_t bytes) {
  snapshot_ = snapshot;
  snapshot_bytes_ = bytes;
}

void ShardLogs::restore(const ManifestLog& log) {
  earlier_.push_back(log);
  bytes_ += log.bytes;
}

Status ShardLogs::start(uint64_t group) {
  frozen_group_ = group;
  log_ = next();
  return log_->create();
}

bool ShardLogs::consistent() const {
  return log_ != nullptr && log_->number() >= first_log_ && current_bytes_ <= bytes_ &&
         current_bytes_ + logs_bytes(earlier_) <= bytes_;
}

}  // namespace swale::meta
