#include "io/fault_device.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "base/mutex.h"

namespace swale::io {

std::string_view call_kind_name(CallKind kind) {
  static constexpr std::array<std::string_view, kCallKinds> kNames = {
      "open",   "read",   "write",          "sync",           "truncate",
      "rename", "remove", "sync_directory", "make_directory", "query"};
  return kNames[static_cast<size_t>(kind)];
}

// The pending faults and the calls so far; shared with the open files and the anchored devices.
class FaultDevice::Plan {
 public:
  // Counts the call, runs the hook and looks for a fault. Returns a failure for the caller to return at once,
  // or a kTear, kFlip or kDrop for the caller to carry out, or none.
  Result<std::optional<Fault>> next(const Call& call);
  // Carries out a call that can only fail, be dropped or succeed.
  Status run(const Call& call, const std::function<Status()>& done);

  struct Armed {
    Fault fault;
    uint64_t matches = 0;
  };

  Mutex mutex;
  std::vector<Armed> armed GUARDED_BY(mutex);
  Hook hook GUARDED_BY(mutex);
  std::array<uint64_t, kCallKinds> calls GUARDED_BY(mutex){};
  uint64_t faults GUARDED_BY(mutex) = 0;
  std::atomic<bool> shows_descriptors = false;
};

class FaultFile : public File {
 public:
  FaultFile(std::shared_ptr<FaultDevice::Plan> plan, std::unique_ptr<File> file)
      : plan_(std::move(plan)), file_(std::move(file)) {}

  Result<size_t> pread(uint64_t offset, MutableBytes out) override {
    SWALE_ASSIGN_OR_RETURN(const auto fault, plan_->next({CallKind::kRead, path(), offset, out.size()}));
    const Result<size_t> got = file_->pread(offset, out);
    if (fault && got.ok() && *got > 0) {
      const uint64_t bit = fault->position % (*got * 8);
      out[bit / 8] = static_cast<char>(out[bit / 8] ^ (1 << (bit % 8)));
    }
    return got;
  }

  Status pwrite(uint64_t offset, Bytes data) override {
    SWALE_ASSIGN_OR_RETURN(const auto fault, plan_->next({CallKind::kWrite, path(), offset, data.size()}));
    if (!fault) return file_->pwrite(offset, data);
    if (fault->action == FaultAction::kDrop) return {};
    SWALE_RETURN_IF_ERROR(
        file_->pwrite(offset, data.substr(0, std::min<uint64_t>(fault->position, data.size()))));
    return fault->status;
  }

  Status sync() override {
    return plan_->run({CallKind::kSync, path()}, [&] { return file_->sync(); });
  }
  Status truncate(uint64_t size) override {
    return plan_->run({CallKind::kTruncate, path(), 0, size}, [&] { return file_->truncate(size); });
  }
  Result<uint64_t> size() override {
    SWALE_RETURN_IF_ERROR(plan_->next({CallKind::kQuery, path()}).status());
    return file_->size();
  }

  void prefer_direct() override { file_->prefer_direct(); }
  size_t direct_alignment() const override { return file_->direct_alignment(); }
  void reserve(uint64_t end) override { file_->reserve(end); }
  bool give_back() override { return file_->give_back(); }
  void discard(uint64_t offset, uint64_t bytes) override { file_->discard(offset, bytes); }
  uint64_t next_data(uint64_t offset) override { return file_->next_data(offset); }
  const std::string& path() const override { return file_->path(); }
  int descriptor() const override { return plan_->shows_descriptors ? file_->descriptor() : -1; }

 private:
  const std::shared_ptr<FaultDevice::Plan> plan_;
  const std::unique_ptr<File> file_;
};

namespace {

bool matches(const Fault& fault, const Call& call) {
  return (!fault.kind || *fault.kind == call.kind) && call.path.find(fault.path_part) != std::string::npos;
}

bool can_be_dropped(CallKind kind) {
  return kind != CallKind::kOpen && kind != CallKind::kRead && kind != CallKind::kQuery;
}

// The fault's action for this kind of call; none: the fault does not apply.
std::optional<FaultAction> effect(FaultAction action, CallKind kind) {
  switch (action) {
    case FaultAction::kFail:
      return FaultAction::kFail;
    case FaultAction::kTear:
      return kind == CallKind::kWrite ? FaultAction::kTear : FaultAction::kFail;
    case FaultAction::kFlip:
      return kind == CallKind::kRead ? std::optional(action) : std::nullopt;
    case FaultAction::kDrop:
      return can_be_dropped(kind) ? std::optional(action) : std::nullopt;
  }
  return std::nullopt;
}

Status planned_failure(const Fault& fault, const Call& call) {
  const std::string where = fmt::format("{}: {} at offset {}, {} bytes: injected fault", call.path,
                                        call_kind_name(call.kind), call.offset, call.bytes);
  if (fault.status.ok()) return Status(Code::kIoError, Scope::kFile, where);
  return fault.status.with_context(where);
}

}  // namespace

Result<std::optional<Fault>> FaultDevice::Plan::next(const Call& call) {
  Hook asked;
  std::optional<Fault> due;
  {
    const MutexLock lock(mutex);
    asked = hook;
    ++calls[static_cast<size_t>(call.kind)];
    for (Armed& one : armed) {
      if (!matches(one.fault, call)) continue;
      ++one.matches;
      const bool hit =
          one.matches == one.fault.nth || (one.fault.from_then_on && one.matches > one.fault.nth);
      const auto action = effect(one.fault.action, call.kind);
      if (!hit || due || !action) continue;
      due = one.fault;
      due->action = *action;
      ++faults;
    }
  }
  if (asked) SWALE_RETURN_IF_ERROR(asked(call));
  if (due) due->status = planned_failure(*due, call);
  if (due && due->action == FaultAction::kFail) return due->status;
  return due;
}

Status FaultDevice::Plan::run(const Call& call, const std::function<Status()>& done) {
  SWALE_ASSIGN_OR_RETURN(const auto fault, next(call));
  return fault ? Status() : done();  // the only fault left is kDrop
}

FaultDevice::FaultDevice(Device& device) : device_(device), plan_(std::make_shared<Plan>()) {}

FaultDevice::FaultDevice(std::unique_ptr<Device> owned, std::shared_ptr<Plan> plan)
    : owned_(std::move(owned)), device_(*owned_), plan_(std::move(plan)) {}

void FaultDevice::inject(Fault fault) {
  const MutexLock lock(plan_->mutex);
  plan_->armed.push_back({std::move(fault), 0});
}

void FaultDevice::clear() {
  const MutexLock lock(plan_->mutex);
  plan_->armed.clear();
  plan_->hook = nullptr;
  plan_->calls = {};
  plan_->faults = 0;
}

void FaultDevice::show_descriptors() { plan_->shows_descriptors = true; }

void FaultDevice::set_hook(Hook hook) {
  const MutexLock lock(plan_->mutex);
  plan_->hook = std::move(hook);
}

uint64_t FaultDevice::calls(CallKind kind) const {
  const MutexLock lock(plan_->mutex);
  return plan_->calls[static_cast<size_t>(kind)];
}

uint64_t FaultDevice::calls() const {
  const MutexLock lock(plan_->mutex);
  return std::accumulate(plan_->calls.begin(), plan_->calls.end(), uint64_t{0});
}

uint64_t FaultDevice::faults() const {
  const MutexLock lock(plan_->mutex);
  return plan_->faults;
}

Result<std::unique_ptr<Device>> FaultDevice::anchored(const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(auto below, device_.anchored(directory));
  return std::unique_ptr<Device>(new FaultDevice(std::move(below), plan_));
}

Result<std::unique_ptr<Device>> FaultDevice::anchored_private(const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(auto below, device_.anchored_private(directory));
  return std::unique_ptr<Device>(new FaultDevice(std::move(below), plan_));
}

Result<std::unique_ptr<File>> FaultDevice::open(const std::string& path, OpenMode mode) {
  SWALE_RETURN_IF_ERROR(plan_->next({CallKind::kOpen, path}).status());
  SWALE_ASSIGN_OR_RETURN(auto file, device_.open(path, mode));
  return std::unique_ptr<File>(std::make_unique<FaultFile>(plan_, std::move(file)));
}

Status FaultDevice::make_directory(const std::string& path) {
  return plan_->run({CallKind::kMakeDirectory, path}, [&] { return device_.make_directory(path); });
}
Status FaultDevice::rename(const std::string& from, const std::string& to) {
  return plan_->run({CallKind::kRename, from}, [&] { return device_.rename(from, to); });
}
Status FaultDevice::rename_new(const std::string& from, const std::string& to) {
  return plan_->run({CallKind::kRename, from}, [&] { return device_.rename_new(from, to); });
}
Status FaultDevice::remove(const std::string& path) {
  return plan_->run({CallKind::kRemove, path}, [&] { return device_.remove(path); });
}
Status FaultDevice::sync_directory(const std::string& path) {
  return plan_->run({CallKind::kSyncDirectory, path}, [&] { return device_.sync_directory(path); });
}
Result<std::vector<std::string>> FaultDevice::list(const std::string& path) {
  SWALE_RETURN_IF_ERROR(plan_->next({CallKind::kQuery, path}).status());
  return device_.list(path);
}
Result<bool> FaultDevice::exists(const std::string& path) {
  SWALE_RETURN_IF_ERROR(plan_->next({CallKind::kQuery, path}).status());
  return device_.exists(path);
}

}  // namespace swale::io
