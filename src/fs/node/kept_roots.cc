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

Status KeptRoots::keep(Bytes record) {
  if (behind_ || log_->is_long(state_bytes_)) return begin_anew();
  return log_->append(StateLog::new_record().append(record), store::AppendSync::kLater);
}

Result<ShareAnswer> KeptRoots::handle(const ShareRequest& request) noexcept {
  const MutexLock lock(mutex_);
  std::string record;
  auto answer = roots_.handle(request, &record);
  if (!answer.ok() || record.empty()) return answer;
  const Status kept = contain([&]() REQUIRES(mutex_) { return keep(record); });
  behind_ = !kept.ok();
  if (!kept.ok()) return kept.with_context("what the root of a file keeps");
  return answer;
}

}  // namespace swale::fs
