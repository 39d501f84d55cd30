#include "fs/node/kept_roots.h"

#include "base/contain.h"

namespace swale::fs {
namespace {

constexpr uint16_t kRecordKind = 1;

}  // namespace

Result<std::unique_ptr<KeptRoots>> KeptRoots::open(io::Device& device, const std::string& folder,
                                                   const ShareRules& rules) noexcept {
  std::unique_ptr<KeptRoots> roots;
  const Status status = contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(io::make_directories(device, folder));
    roots.reset(new KeptRoots(rules));
    return roots->find(device, folder);
  });
  if (!status.ok()) return status;
  return roots;
}

Status KeptRoots::find(io::Device& device, const std::string& folder) {
  const MutexLock lock(mutex_);
  SWALE_ASSIGN_OR_RETURN(
      log_, StateLog::open(device, {folder, "roots-", kRootsLogKind, kRecordKind},
                           [this](Bytes record) REQUIRES(mutex_) { return roots_.replay(record).ok(); }));
  return begin_anew();
}

Status KeptRoots::begin_anew() {
  std::string whole = StateLog::new_record();
  SWALE_RETURN_IF_ERROR(roots_.states([&](Bytes record) {
    whole.append(record);
    return ok_status();
  }));
  const uint64_t bytes = whole.size();
  SWALE_RETURN_IF_ERROR(log_->begin(std::move(whole)));
  state_bytes_ = bytes;
  return {};
}

Status KeptRoots::keep(Bytes record, store::AppendSync sync) {
  const Status kept = contain([&]() REQUIRES(mutex_) -> Status {
    if (behind_ || log_->is_long(state_bytes_)) return begin_anew();
    return log_->append(StateLog::new_record().append(record), sync);
  });
  behind_ = !kept.ok();
  return kept.with_context("what the root of a file keeps");
}

Result<ShareAnswer> KeptRoots::handle(const ShareRequest& request) noexcept {
  const MutexLock lock(mutex_);
  std::string record;
  const bool cuts = roots_.cuts(request);  // bytes that nodes drop
  auto answer = roots_.handle(request, &record);
  if (!answer.ok() || record.empty()) return answer;
  SWALE_RETURN_IF_ERROR(keep(record, cuts ? store::AppendSync::kNow : store::AppendSync::kLater));
  return answer;
}

std::optional<ShareAnswer> KeptRoots::look_at_once(const ShareRequest& request) noexcept {
  const bool looks = request.op == ShareOp::kLook || request.op == ShareOp::kHold;
  if (!looks || !mutex_.try_lock()) return {};
  const MutexLock lock(mutex_, std::adopt_lock);
  std::string record;
  auto answer = roots_.handle(request, &record);
  if (!answer.ok()) return {};
  return *std::move(answer);
}

Result<FileRoots::Drain> KeptRoots::begin_drain(const meta::FileId& file, const SeenBacking& seen) noexcept {
  MutexLock lock(mutex_);
  synced_.wait(lock, [&]() REQUIRES(mutex_) { return !roots_.is_syncing(file); });
  return roots_.begin_drain(file, seen);
}

Result<FileRoots::Plan> KeptRoots::plan_drain(const meta::FileId& file) noexcept {
  const MutexLock lock(mutex_);
  return roots_.plan_drain(file);
}

Status KeptRoots::announce(const meta::FileId& file, const SeenBacking& ours) noexcept {
  const MutexLock lock(mutex_);
  std::string record;
  SWALE_RETURN_IF_ERROR(roots_.announce(file, ours, &record));
  return keep(record, store::AppendSync::kNow);
}

Status KeptRoots::drained(const meta::FileId& file, const SeenBacking& now, bool aside) noexcept {
  const MutexLock lock(mutex_);
  std::string record;
  SWALE_RETURN_IF_ERROR(roots_.drained(file, now, aside, &record));
  return keep(record, store::AppendSync::kNow);
}

void KeptRoots::end_drain(const meta::FileId& file) noexcept {
  const MutexLock lock(mutex_);
  roots_.end_drain(file);
}

// The commit counts also where the sync then cannot begin.
Result<KeptRoots::Sync> KeptRoots::begin_sync(const ShareRequest& request) noexcept {
  Sync sync;
  SWALE_ASSIGN_OR_RETURN(sync.answer, handle(request));
  if (sync.answer.error != 0) return sync;
  MutexLock lock(mutex_);
  synced_.wait(lock, [&]() REQUIRES(mutex_) { return !roots_.is_syncing(request.file); });
  if (roots_.is_draining(request.file)) return sync;
  SWALE_ASSIGN_OR_RETURN(sync.begun, roots_.begin_sync(request.file, request.node, &sync.ask));
  return sync;
}

Result<KeptRoots::Sync> KeptRoots::begin_sync_of_drain(const meta::FileId& file) noexcept {
  Sync sync;
  const MutexLock lock(mutex_);
  SWALE_ASSIGN_OR_RETURN(const bool needs, roots_.needs_sync(file));
  if (!needs) return sync;
  SWALE_ASSIGN_OR_RETURN(sync.begun, roots_.begin_sync(file, kNobody, &sync.ask));
  return sync;
}

Status KeptRoots::end_sync(const meta::FileId& file, bool kept) noexcept {
  const MutexLock lock(mutex_);
  std::string record;
  const Status ended = roots_.end_sync(file, kept, &record);
  synced_.notify_all();
  SWALE_RETURN_IF_ERROR(ended);
  if (!kept || !rules_.syncs_commits) return {};
  if (!record.empty() || behind_) return keep(record, store::AppendSync::kNow);
  const Status synced = log_->sync();
  behind_ = !synced.ok();
  return synced.with_context("what the root of a file keeps");
}

Result<uint64_t> KeptRoots::begin_node(NodeId node, bool has_lost_power) noexcept {
  const MutexLock lock(mutex_);
  std::string record;
  SWALE_ASSIGN_OR_RETURN(const uint64_t order, roots_.begin_node(node, has_lost_power, &record));
  if (!record.empty()) SWALE_RETURN_IF_ERROR(keep(record, store::AppendSync::kNow));
  return order;
}

std::vector<FileRoots::Known> KeptRoots::known() {
  const MutexLock lock(mutex_);
  return roots_.known();
}

std::vector<Span> KeptRoots::parts_of(const meta::FileId& file, NodeId node) {
  const MutexLock lock(mutex_);
  return roots_.parts_of(file, node);
}

}  // namespace swale::fs
