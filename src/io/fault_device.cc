#include "io/fault_device.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace swale::io {

std::string_view call_kind_name(CallKind kind) {
  static constexpr std::array<std::string_view, kCallKinds> kNames = {
      "open",   "read",   "write",          "sync",           "truncate",
      "rename", "remove", "sync_directory", "make_directory", "query"};
  return kNames[static_cast<size_t>(kind)];
}

class FaultFile : public File {
 public:
  FaultFile(FaultDevice* device, std::unique_ptr<File> file) : device_(device), file_(std::move(file)) {}

  Result<size_t> pread(uint64_t offset, MutableBytes out) override {
    SWALE_ASSIGN_OR_RETURN(const auto fault, device_->next({CallKind::kRead, path(), offset, out.size()}));
    const Result<size_t> got = file_->pread(offset, out);
    if (fault && got.ok() && *got > 0) {
      const uint64_t bit = fault->position % (*got * 8);
      out[bit / 8] = static_cast<char>(out[bit / 8] ^ (1 << (bit % 8)));
    }
    return got;
  }

  Status pwrite(uint64_t offset, Bytes data) override {
    SWALE_ASSIGN_OR_RETURN(const auto fault, device_->next({CallKind::kWrite, path(), offset, data.size()}));
    if (!fault) return file_->pwrite(offset, data);
    if (fault->action == FaultAction::kDrop) return {};
    SWALE_RETURN_IF_ERROR(
        file_->pwrite(offset, data.substr(0, std::min<uint64_t>(fault->position, data.size()))));
    return fault->status;
  }

  Status sync() override {
    return device_->run({CallKind::kSync, path()}, [&] { return file_->sync(); });
  }
  Status truncate(uint64_t size) override {
    return device_->run({CallKind::kTruncate, path(), 0, size}, [&] { return file_->truncate(size); });
  }
  Result<uint64_t> size() override {
    SWALE_RETURN_IF_ERROR(device_->next({CallKind::kQuery, path()}).status());
    return file_->size();
  }

  void prefer_direct() override { file_->prefer_direct(); }
  size_t direct_alignment() const override { return file_->direct_alignment(); }
  void reserve(uint64_t end) override { file_->reserve(end); }
  const std::string& path() const override { return file_->path(); }

 private:
  FaultDevice* const device_;
  const std::unique_ptr<File> file_;
};

namespace {

bool matches(const Fault& fault, const Call& call) {
  return (!fault.kind || *fault.kind == call.kind) && call.path.find(fault.path_part) != std::string::npos;
}

bool can_be_dropped(CallKind kind) {
  return kind != CallKind::kOpen && kind != CallKind::kRead && kind != CallKind::kQuery;
}

// What the fault does to this kind of call; none: nothing.
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

Result<std::optional<Fault>> FaultDevice::next(const Call& call) {
  Hook hook;
  std::optional<Fault> due;
  {
    std::lock_guard lock(mutex_);
    hook = hook_;
    ++calls_[static_cast<size_t>(call.kind)];
    for (Armed& armed : armed_) {
      if (!matches(armed.fault, call)) continue;
      ++armed.matches;
      const bool hit =
          armed.matches == armed.fault.nth || (armed.fault.from_then_on && armed.matches > armed.fault.nth);
      const auto action = effect(armed.fault.action, call.kind);
      if (!hit || due || !action) continue;
      due = armed.fault;
      due->action = *action;
      ++faults_;
    }
  }
  if (hook) SWALE_RETURN_IF_ERROR(hook(call));
  if (due) due->status = planned_failure(*due, call);
  if (due && due->action == FaultAction::kFail) return due->status;
  return due;
}

Status FaultDevice::run(const Call& call, const std::function<Status()>& done) {
  SWALE_ASSIGN_OR_RETURN(const auto fault, next(call));
  return fault ? Status() : done();  // the only fault left is kDrop
}

void FaultDevice::inject(Fault fault) {
  std::lock_guard lock(mutex_);
  armed_.push_back({std::move(fault), 0});
}

void FaultDevice::clear() {
  std::lock_guard lock(mutex_);
  armed_.clear();
  hook_ = nullptr;
  calls_ = {};
  faults_ = 0;
}

void FaultDevice::set_hook(Hook hook) {
  std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

uint64_t FaultDevice::calls(CallKind kind) const {
  std::lock_guard lock(mutex_);
  return calls_[static_cast<size_t>(kind)];
}

uint64_t FaultDevice::calls() const {
  std::lock_guard lock(mutex_);
  return std::accumulate(calls_.begin(), calls_.end(), uint64_t{0});
}

uint64_t FaultDevice::faults() const {
  std::lock_guard lock(mutex_);
  return faults_;
}

Result<std::unique_ptr<File>> FaultDevice::open(const std::string& path, OpenMode mode) {
  SWALE_RETURN_IF_ERROR(next({CallKind::kOpen, path}).status());
  SWALE_ASSIGN_OR_RETURN(auto file, device_.open(path, mode));
  return std::unique_ptr<File>(std::make_unique<FaultFile>(this, std::move(file)));
}

Status FaultDevice::make_directory(const std::string& path) {
  return run({CallKind::kMakeDirectory, path}, [&] { return device_.make_directory(path); });
}
Status FaultDevice::rename(const std::string& from, const std::string& to) {
  return run({CallKind::kRename, from}, [&] { return device_.rename(from, to); });
}
Status FaultDevice::rename_new(const std::string& from, const std::string& to) {
  return run({CallKind::kRename, from}, [&] { return device_.rename_new(from, to); });
}
Status FaultDevice::remove(const std::string& path) {
  return run({CallKind::kRemove, path}, [&] { return device_.remove(path); });
}
Status FaultDevice::sync_directory(const std::string& path) {
  return run({CallKind::kSyncDirectory, path}, [&] { return device_.sync_directory(path); });
}
Result<std::vector<std::string>> FaultDevice::list(const std::string& path) {
  SWALE_RETURN_IF_ERROR(next({CallKind::kQuery, path}).status());
  return device_.list(path);
}
Result<bool> FaultDevice::exists(const std::string& path) {
  SWALE_RETURN_IF_ERROR(next({CallKind::kQuery, path}).status());
  return device_.exists(path);
}

}  // namespace swale::io
