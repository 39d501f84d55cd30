#include "fs/node/files_log.h"

#include <algorithm>

#include "base/coding.h"
#include "base/contain.h"

namespace swale::fs {
namespace {

constexpr uint16_t kRowsKind = 2;
constexpr size_t kRowBytes = 112;
constexpr size_t kCutBytes = 16;

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
  std::string record = StateLog::new_record();
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

Result<std::unique_ptr<FilesLog>> FilesLog::open(io::Device& device, const std::string& folder) noexcept {
  std::unique_ptr<FilesLog> log;
  const Status status = contain([&]() -> Status {
    log.reset(new FilesLog());
    SWALE_RETURN_IF_ERROR(log->find(device, folder));
    return log->log_->begin(log->whole(log->rows_, log->order_max_));
  });
  if (!status.ok()) return status;
  return log;
}

Result<FilesLog::Rows> FilesLog::look(io::Device& device, const std::string& folder) noexcept {
  Rows rows;
  const Status status = contain([&]() -> Status {
    FilesLog log;
    SWALE_RETURN_IF_ERROR(log.find(device, folder));
    rows = std::move(log.rows_);
    return {};
  });
  if (!status.ok()) return status;
  return rows;
}

Status FilesLog::find(io::Device& device, const std::string& folder) {
  SWALE_ASSIGN_OR_RETURN(log_, StateLog::open(device, {folder, "files-", kFilesLogKind, kRowsKind},
                                              [&](Bytes payload) { return take(payload); }));
  return {};
}

bool FilesLog::take(Bytes payload) {
  if (payload.size() < 8) return false;
  order_max_ = std::max(order_max_, get_u64(payload.data()));
  payload.remove_prefix(8);
  while (!payload.empty()) {
    meta::FileId id;
    FileRow row;
    if (!take_row(&payload, &id, &row)) return false;
    rows_[id] = std::move(row);
  }
  return true;
}

std::string FilesLog::whole(const Rows& rows, uint64_t order_max) {
  std::string record = new_record(order_max);
  for (const auto& [file, row] : rows) append_row(file, row, &record);
  return record;
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
  if (log_->is_long(kRowBytes * rows_.size())) {
    Rows all = rows_;
    for (const auto& [file, row] : *rows) all.insert_or_assign(file, row);
    SWALE_RETURN_IF_ERROR(log_->begin(whole(all, order_max)));
  } else {
    std::string record = new_record(order_max);
    for (const auto& [file, row] : *rows) append_row(file, row, &record);
    SWALE_RETURN_IF_ERROR(log_->append(std::move(record)));
  }
  // Nothing from here on fails: what is on storage is in memory, too.
  order_max_ = order_max;
  for (const auto& [file, row] : *rows) rows_.erase(file);
  rows_.merge(*rows);
  return {};
}

}  // namespace swale::fs
