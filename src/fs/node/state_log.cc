#include "fs/node/state_log.h"

#include <algorithm>
#include <charconv>

#include "base/contain.h"
#include "base/log.h"

namespace swale::fs {
namespace {

constexpr uint64_t kRewriteBytes = 4 << 20;  // and twice what the state takes

}  // namespace

Result<std::unique_ptr<StateLog>> StateLog::open(io::Device& device, const Place& place, const Visit& visit) {
  std::unique_ptr<StateLog> log(new StateLog(device, place));
  SWALE_RETURN_IF_ERROR(log->find(visit));
  return log;
}

Status StateLog::find(const Visit& visit) {
  SWALE_ASSIGN_OR_RETURN(const auto names, device_.list(place_.folder));
  for (const std::string& name : names) {
    uint64_t number = 0;
    if (!name.starts_with(place_.prefix)) continue;
    const char* const end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + place_.prefix.size(), end, number);
    if (parsed.ec == std::errc() && parsed.ptr == end) numbers_.push_back(number);
  }
  std::sort(numbers_.rbegin(), numbers_.rend());
  for (const uint64_t number : numbers_) {
    bool begun = false;
    SWALE_RETURN_IF_ERROR(read(number, visit, &begun));
    if (begun) break;
  }
  return {};
}

// One that was begun has a record: it has all that those before it had.
Status StateLog::read(uint64_t number, const Visit& visit, bool* begun) {
  const std::string path = path_of(number);
  SWALE_ASSIGN_OR_RETURN(const auto file, device_.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t end, file->size());
  if (end < store::kLogHeaderBytes) return {};
  uint64_t sequence = 0;
  const auto scanned = store::read_log(
      device_, path, {place_.kind, 0, number}, end, store::LogTail::kMayBeTorn, &sequence,
      [&](const store::Record& record) -> Status {
        if (record.kind == place_.record_kind && visit(record.payload)) return {};
        return corruption("{}: offset {}: a record of kind {} with {} bytes is none of this log; restore it",
                          path, record.offset, record.kind, record.payload.size());
      });
  SWALE_RETURN_IF_ERROR(scanned.status());
  *begun = scanned->records > 0;
  return {};
}

Status StateLog::begin(std::string whole) noexcept {
  return contain([&]() -> Status {
    const uint64_t number = numbers_.empty() ? 1 : numbers_.front() + 1;
    auto log = std::make_unique<store::RecordLog>(device_, path_of(number),
                                                  store::LogIdentity{place_.kind, 0, number});
    const uint64_t bytes = whole.size();
    std::vector<uint64_t> only = {number};
    Status status = log->create();
    if (status.ok()) status = log->append(place_.record_kind, 1, &whole, {});
    if (!status.ok()) {
      static_cast<void>(device_.remove(log->path()));
      return status;
    }
    numbers_.swap(only);
    log_ = std::move(log);
    sequence_ = 2, bytes_ = bytes;
    for (const uint64_t before : only)
      if (const Status removed = device_.remove(path_of(before)); !removed.ok())
        log_warn("{}; it is removed at the next start", removed.message());
    return {};
  });
}

Status StateLog::append(std::string change, store::AppendSync sync) noexcept {
  const uint64_t bytes = change.size();
  SWALE_RETURN_IF_ERROR(log_->append(place_.record_kind, sequence_, &change, {}, sync));
  ++sequence_, bytes_ += bytes;
  return {};
}

bool StateLog::is_long(uint64_t state_bytes) const {
  return !log_->usable() || bytes_ > kRewriteBytes + 2 * state_bytes;
}

}  // namespace swale::fs
