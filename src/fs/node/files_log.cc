#include "fs/node/files_log.h"

#include <algorithm>
#include <charconv>

#include "base/coding.h"
#include "base/contain.h"
#include "base/log.h"

namespace swale::fs {
namespace {

constexpr std::string_view kPrefix = "files-";
constexpr uint16_t kRowsKind = 2;
constexpr size_t kRowBytes = 112;
constexpr size_t kCutBytes = 16;
constexpr uint64_t kRewriteBytes = 4 << 20;  // and twice what the rows take

void append_row(const meta::FileId& file, const FileRow& row, std::string* out) {
  for (const uint64_t value :
       {file.high, file.low, row.floor, row.size_order, row.size, row.backing.device, row.backing.inode,
        row.backing.size, static_cast<uint64_t>(row.backing.modified_ns), row.ours.device, row.ours.inode,
        row.ours.size, static_cast<uint64_t>(row.ours.modified_ns)})
    append_u64(out, value);
  append_u64(out, row.cuts.size());
  for (const FileRow::Cut& cut : row.cuts) {
    append_u64(out, cut.order);
    append_u64(out, cut.size);
  }
}

// False: these bytes are none.
bool take_row(Bytes* bytes, meta::FileId* file, FileRow* row) {
  if (bytes->size() < kRowBytes) return false;
  const auto word = [&](size_t index) { return get_u64(bytes->data() + 8 * index); };
  *file = {word(0), word(1)};
  row->floor = word(2), row->size_order = word(3), row->size = word(4);
  row->backing = {word(5), word(6), word(7), static_cast<int64_t>(word(8))};
  row->ours = {word(9), word(10), word(11), static_cast<int64_t>(word(12))};
  const uint64_t cuts = word(13);
  bytes->remove_prefix(kRowBytes);
  if (file->none() || cuts > kCutsMax || bytes->size() < cuts * kCutBytes) return false;
  for (uint64_t i = 0; i < cuts; ++i) {
    row->cuts.push_back({get_u64(bytes->data()), get_u64(bytes->data() + 8)});
    bytes->remove_prefix(kCutBytes);
  }
  return true;
}

std::string new_record(uint64_t order_max) {
  std::string record(store::kRecordHeadBytes, '\0');
  append_u64(&record, order_max);
  return record;
}

}  // namespace

uint64_t FileRow::end_of(uint64_t order) const {
  if (order <= floor) return 0;
  const auto first =
      std::find_if(cuts.begin(), cuts.end(), [=](const Cut& cut) { return order <= cut.order; });
  return first == cuts.end() ? meta::kOffsetEnd : first->size;
}

void FileRow::cut(uint64_t order, uint64_t new_size, bool shrinks) {
  size_order = order, size = new_size;
  if (!shrinks) return;
  while (!cuts.empty() && cuts.back().size >= new_size) cuts.pop_back();
  cuts.push_back({order, new_size});
}

void FileRow::drained(uint64_t order, const Stamp& now) {
  floor = order, backing = now, ours = {};
  if (size_order <= order) size_order = 0, size = 0;
  std::erase_if(cuts, [=](const Cut& cut) { return cut.order <= order; });
}

uint64_t FileRow::backing_end() const {
  return cuts.empty() ? backing.size : std::min(backing.size, cuts.front().size);
}

std::string FilesLog::path_of(uint64_t number) const {
  return fmt::format("{}/{}{}", folder_, kPrefix, number);
}

Result<std::unique_ptr<FilesLog>> FilesLog::open(io::Device& device, const std::string& folder) noexcept {
  std::unique_ptr<FilesLog> log;
  const Status status = contain([&]() -> Status {
    log.reset(new FilesLog(device, folder));
    return log->find();
  });
  if (!status.ok()) return status;
  return log;
}

Status FilesLog::find() {
  SWALE_ASSIGN_OR_RETURN(const auto names, device_.list(folder_));
  std::vector<uint64_t> numbers;
  for (const std::string& name : names) {
    uint64_t number = 0;
    if (!name.starts_with(kPrefix)) continue;
    const char* const end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, number);
    if (parsed.ec == std::errc() && parsed.ptr == end) numbers.push_back(number);
  }
  std::sort(numbers.rbegin(), numbers.rend());
  for (const uint64_t number : numbers) {
    bool begun = false;
    SWALE_RETURN_IF_ERROR(read(number, &begun));
    if (begun) break;
  }
  const uint64_t next = numbers.empty() ? 1 : numbers.front() + 1;
  SWALE_RETURN_IF_ERROR(begin(next, rows_, order_max_));
  for (const uint64_t number : numbers) SWALE_RETURN_IF_ERROR(device_.remove(path_of(number)));
  return {};
}

// One that was begun has a record: it has all that those before it had.
Status FilesLog::read(uint64_t number, bool* begun) {
  const std::string path = path_of(number);
  SWALE_ASSIGN_OR_RETURN(const auto file, device_.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t end, file->size());
  if (end < store::kLogHeaderBytes) return {};
  uint64_t sequence = 0;
  const auto scanned = store::read_log(
      device_, path, {kFilesLogKind, 0, number}, end, store::LogTail::kMayBeTorn, &sequence,
      [&](const store::Record& record) -> Status {
        Bytes left = record.payload;
        const auto broken = [&] {
          return corruption(
              "{}: offset {}: a record of kind {} with {} bytes is none of this log; restore it", path,
              record.offset, record.kind, record.payload.size());
        };
        if (record.kind != kRowsKind || left.size() < 8) return broken();
        order_max_ = std::max(order_max_, get_u64(left.data()));
        left.remove_prefix(8);
        while (!left.empty()) {
          meta::FileId id;
          FileRow row;
          if (!take_row(&left, &id, &row)) return broken();
          rows_[id] = std::move(row);
        }
        return {};
      });
  SWALE_RETURN_IF_ERROR(scanned.status());
  *begun = scanned->records > 0;
  return {};
}

Status FilesLog::begin(uint64_t number, const Rows& rows, uint64_t order_max) {
  std::string record = new_record(order_max);
  for (const auto& [file, row] : rows) append_row(file, row, &record);
  auto log = std::make_unique<store::RecordLog>(device_, path_of(number),
                                                store::LogIdentity{kFilesLogKind, 0, number});
  const uint64_t bytes = record.size();
  Status status = log->create();
  if (status.ok()) status = log->append(kRowsKind, 1, &record, {});
  if (!status.ok()) {
    static_cast<void>(device_.remove(log->path()));
    return status;
  }
  log_ = std::move(log);
  number_ = number, sequence_ = 2, bytes_ = bytes;
  return {};
}

Status FilesLog::put(const meta::FileId& file, const FileRow& row, uint64_t order_max) noexcept {
  return contain([&] {
    Rows one;
    one.emplace(file, row);
    return change(&one, order_max);
  });
}

Status FilesLog::put(Rows rows, uint64_t order_max) noexcept {
  return contain([&] { return change(&rows, order_max); });
}

Status FilesLog::change(Rows* rows, uint64_t order_max) {
  order_max = std::max(order_max, order_max_);
  if (!log_->usable() || bytes_ > kRewriteBytes + 2 * kRowBytes * rows_.size()) {
    Rows all = rows_;
    for (const auto& [file, row] : *rows) all.insert_or_assign(file, row);
    const uint64_t before = number_;
    SWALE_RETURN_IF_ERROR(begin(number_ + 1, all, order_max));
    if (const Status removed = device_.remove(path_of(before)); !removed.ok())
      log_warn("{}; it is removed at the next start", removed.message());
  } else {
    std::string record = new_record(order_max);
    for (const auto& [file, row] : *rows) append_row(file, row, &record);
    const uint64_t bytes = record.size();
    SWALE_RETURN_IF_ERROR(log_->append(kRowsKind, sequence_, &record, {}));
    ++sequence_, bytes_ += bytes;
  }
  // Nothing from here on fails: what is on storage is in memory, too.
  order_max_ = order_max;
  for (const auto& [file, row] : *rows) rows_.erase(file);
  rows_.merge(*rows);
  return {};
}

}  // namespace swale::fs
