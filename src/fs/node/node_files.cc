#include "fs/node/node_files.h"

#include <algorithm>
#include <cstring>

#include "base/contain.h"
#include "base/log.h"

namespace swale::fs {

std::string NodeFiles::name_of(const meta::FileId& file) {
  return fmt::format("file {:x}:{:x}", file.high, file.low);
}

Result<std::unique_ptr<NodeFiles>> NodeFiles::open(io::Device& memory, io::Device& storage,
                                                   const NodeLogsOptions& options, Backing& backing,
                                                   WriteWatcher* watcher) noexcept {
  std::unique_ptr<NodeFiles> files;
  const Status status = contain([&]() -> Status {
    if (options.spill_directory.empty())
      return invalid_argument("the server of a node needs a directory on node-local storage");
    files.reset(new NodeFiles(backing, watcher));
    files->takes_first_ = options.rules.takes_first;
    SWALE_RETURN_IF_ERROR(io::make_directories(storage, options.spill_directory));
    // The logs first: their lock keeps a second server away from the rows.
    SWALE_ASSIGN_OR_RETURN(files->logs_, NodeLogs::open(memory, storage, options));
    SWALE_ASSIGN_OR_RETURN(files->rows_, FilesLog::open(storage, options.spill_directory));
    return files->recover();
  });
  if (!status.ok()) return status;
  return files;
}

// Order 1 is nobody's, so that each write comes behind an order that a row can have.
Status NodeFiles::recover() {
  order_ = std::max<uint64_t>(rows_->order_max(), 1);
  logs_->count_from(order_ + 1);
  for (const auto& [id, row] : rows_->rows()) {
    auto file = std::make_unique<File>();
    file->row = row;
    file->size = row.size_order != 0 ? row.size : row.backing.size;
    add(id, std::move(file));
  }
  recovering_ = true;
  SWALE_RETURN_IF_ERROR(logs_->recover(*this));
  SWALE_RETURN_IF_ERROR(take_in());
  recovering_ = false;
  for (const meta::FileId& id : undrained()) {
    const auto path = backing_.path_of(id);
    if (path.status().code() == Code::kNotFound) SWALE_RETURN_IF_ERROR(remove(id));
  }
  return {};
}

Status NodeFiles::take(std::span<const Segment> segments) {
  pending_.insert(pending_.end(), segments.begin(), segments.end());
  return {};
}

void NodeFiles::damaged(const Status& status) {
  log_error("{}", status.message());
  if (damage_.size() < kDamageMax) damage_.push_back(status);
}

Status NodeFiles::take() noexcept {
  return contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(take_in());
    SWALE_RETURN_IF_ERROR(logs_->take(*this));
    return take_in();
  });
}

Status NodeFiles::end_log(uint32_t log) noexcept {
  return contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(take_in());
    SWALE_RETURN_IF_ERROR(logs_->end_log(log, *this));
    return take_in();
  });
}

Status NodeFiles::take_in() {
  for (; applied_ < pending_.size(); ++applied_, part_ = 0) SWALE_RETURN_IF_ERROR(apply(pending_[applied_]));
  pending_.clear();
  applied_ = 0;
  return {};
}

// A process can write any id: only those that have a name, or are open, are files. One that this server does
// not know was opened at a server before it, and had no bytes in logs.
// A file that cannot be looked at must not stop the others: it counts as new, and if it is not, the drain
// keeps the one that is there.
Result<NodeFiles::File*> NodeFiles::file_of(const Segment& segment) {
  const auto at = files_.find(segment.file);
  if (at != files_.end()) return at->second.get();
  auto file = std::make_unique<File>();
  Status looked = backing_.path_of(segment.file).status();
  if (looked.code() == Code::kNotFound) return static_cast<File*>(nullptr);
  if (looked.ok() && !recovering_) looked = look_at_backing(segment.file, *file);
  if (looked.code() == Code::kResourceExhausted) return looked;
  if (!looked.ok() && looked.code() != Code::kBusy) log_error("{}", looked.message());
  return add(segment.file, std::move(file))->second.get();
}

// What a server before this one has handed out, that has judged.
bool NodeFiles::is_admitted(const Segment& segment) {
  if (guard_ == nullptr || recovering_) return true;
  const WriteGuard::Verdict verdict = guard_->judge(segment.place.log, segment.file);
  if (verdict == WriteGuard::Verdict::kRefused)
    damaged(corruption(
        "log {}: offset {}: {} bytes at offset {} of {}: the process has not opened this file "
        "to write it here; they, and all that it writes like them, are dropped",
        segment.place.log, segment.place.address, segment.length, segment.offset, name_of(segment.file)));
  return verdict == WriteGuard::Verdict::kAdmitted;
}

// After a failure it goes on where it was: what was put into the index must not be put there again, which
// would drop it.
Status NodeFiles::apply(const Segment& segment) {
  File* file = nullptr;
  const bool admitted = part_ > 0 || is_admitted(segment);
  if (admitted) {
    SWALE_ASSIGN_OR_RETURN(file, file_of(segment));
  }
  const uint64_t end = file == nullptr ? 0 : file->row.end_of(segment.order);
  const uint64_t kept = end > segment.offset ? std::min(segment.length, end - segment.offset) : 0;
  while (part_ < kept) {
    const uint64_t offset = segment.offset + part_;
    const meta::Place place(segment.place.log, segment.place.address + part_);
    const uint64_t length = FileExtents::covered(offset, PlaceTable::covered(place, kept - part_));
    make_room_to_keep(*file, offset, offset + length);
    SWALE_ASSIGN_OR_RETURN(const uint64_t address, places_.add(place, length));
    const Status put = contain([&] {
      file->extents.put({offset, length, address}, [&](const auto& piece) { keep_or_drop(*file, piece); });
    });
    if (!put.ok()) {
      places_.remove(address, length);
      return put;
    }
    part_ += length;
  }
  if (watcher_ != nullptr && kept > 0)
    SWALE_RETURN_IF_ERROR(
        watcher_->wrote(segment.file, segment.order, {segment.offset, segment.offset + kept},
                        recovering_ ? WriteWatcher::When::kBefore : WriteWatcher::When::kNow));
  if (file == nullptr && admitted && !recovering_)
    damaged(corruption("log {}: offset {}: {} bytes at offset {} of {}, which has no name, are dropped",
                       segment.place.log, segment.place.address, segment.length, segment.offset,
                       name_of(segment.file)));
  if (kept < segment.length) {
    const meta::Place rest(segment.place.log, segment.place.address + kept);
    if (const Status dropped = logs_->drop(rest, segment.length - kept); !dropped.ok()) damaged(dropped);
  }
  order_ = std::max(order_, segment.order);
  if (kept == 0) return {};
  if (file->first_order == 0) file->first_order = segment.order;
  file->size = std::max(file->size, segment.offset + kept);
  put_in_order(segment.file, *file);
  return {};
}

void NodeFiles::drop(const FileExtents::Piece& piece) noexcept {
  const Status dropped = logs_->drop(places_.place_of(piece.address), piece.length);
  if (!dropped.ok()) log_error("{}", dropped.message());
  places_.remove(piece.address, piece.length);
}

void NodeFiles::keep_or_drop(File& file, const FileExtents::Piece& piece) noexcept {
  if (file.fixed && piece.age == FileExtents::Age::kMarked)
    file.held.push_back(piece);  // has space for it
  else
    drop(piece);
}

void NodeFiles::make_room_to_keep(File& file, uint64_t offset, uint64_t end) {
  if (!file.fixed) return;
  const size_t needed = file.held.size() + file.extents.count(offset, end);
  if (needed > file.held.capacity()) file.held.reserve(std::max(needed, 2 * file.held.capacity()));
}

// Of a truncate or removal: behind all that was taken, before all that comes.
uint64_t NodeFiles::next_order() {
  logs_->count_from(++order_ + 1);
  return order_;
}

Result<NodeFiles::File*> NodeFiles::known(const meta::FileId& file) {
  if (takes_first_) SWALE_RETURN_IF_ERROR(take());
  const auto at = files_.find(file);
  if (at == files_.end())
    return error(Code::kNotFound, Scope::kFile, "{}: it is not open on this node, and has no bytes here",
                 name_of(file));
  return at->second.get();
}

// What nobody on this node has changed, others may have.
Status NodeFiles::look_at_backing(const meta::FileId& id, File& file, const There* there) {
  There own;
  if (there == nullptr) {
    SWALE_ASSIGN_OR_RETURN(own, look_there(id));
    there = &own;
  }
  FileRow row = file.row;
  row.backing = there->stamp;
  if (there->file != nullptr) {
    if (row.backing != file.row.backing) SWALE_RETURN_IF_ERROR(rows_->put(id, row, order_));
    file.backing = there->file;
    file.backing_inode = 0;
  }
  file.fresh = there->file == nullptr;
  file.backing_stored = there->stored;
  file.size = row.backing.size;
  file.row = std::move(row);
  return {};
}

bool NodeFiles::lacks_there(const meta::FileId& id) const {
  const auto at = files_.find(id);
  if (at == files_.end()) return false;
  const File& file = *at->second;
  return file.opens > 0 && file.backing == nullptr && may_be_there(file) && file.row.backing_end() > 0;
}

bool NodeFiles::wants_there(const meta::FileId& id) const {
  const auto at = files_.find(id);
  if (at == files_.end()) return true;
  const File& file = *at->second;
  if (file.opens == 0 && !file.dirty() && !file.fixed) return true;
  return file.backing == nullptr && may_be_there(file);
}

Status NodeFiles::open_file(const meta::FileId& id, const There* there) noexcept {
  return contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(take());
    auto at = files_.find(id);
    const bool unknown = at == files_.end();
    if (unknown) at = add(id, std::make_unique<File>());
    File& file = *at->second;
    const bool looks = file.opens == 0 && !file.dirty() && !file.fixed;
    if (looks) {
      const Status looked = contain([&] { return look_at_backing(id, file, there); });
      if (!looked.ok()) {
        if (unknown) erase(at);
        return looked;
      }
    }
    ++file.opens;
    put_in_order(id, file);
    if (file.backing != nullptr || looks || !may_be_there(file)) return {};
    if (there != nullptr) {
      file.backing = there->file;
    } else if (auto opened = open_there(id); opened.ok()) {  // its name may go before it is read
      file.backing = std::move(*opened);
    }
    file.backing_inode = 0;
    return {};
  });
}

Status NodeFiles::open_new(const meta::FileId& id) noexcept {
  if (files_.contains(id)) return open_file(id);  // another program has opened it by its name
  return contain([&] {
    auto made = std::make_unique<File>();
    made->fresh = true;
    made->opens = 1;
    add(id, std::move(made));
  });
}

void NodeFiles::close_file(const meta::FileId& id) noexcept {
  const auto at = files_.find(id);
  if (at == files_.end() || at->second->opens == 0) return;
  if (--at->second->opens > 0) return;
  at->second->backing.reset();
  put_in_order(id, *at->second);
}

Status NodeFiles::retimed(const meta::FileId& id, const Stamp& before, const Stamp& now) noexcept {
  return contain([&]() -> Status {
    ++changes_there_;
    const auto at = files_.find(id);
    if (at == files_.end() || at->second->row.backing != before) return {};
    FileRow row = at->second->row;
    row.backing = now;
    SWALE_RETURN_IF_ERROR(rows_->put(id, row, order_));
    at->second->row = std::move(row);
    return {};
  });
}

Status NodeFiles::truncate(const meta::FileId& id, uint64_t size) noexcept {
  return contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(File* const file, known(id));
    if (size > meta::kOffsetEnd) return errno_status(EFBIG, name_of(id) + ": truncate");
    return size == file->size ? Status() : cut_file(id, *file, next_order(), size, {});
  });
}

Status NodeFiles::cut_file(const meta::FileId& id, File& file, uint64_t order, uint64_t size,
                           std::span<const Span> keep) {
  FileRow row = file.row;
  row.cut(order, size, size < file.size);
  if (row.cuts.size() > kCutsMax)
    return error(Code::kResourceExhausted, Scope::kFile, "{}: cut {} times since it was drained; drain it",
                 name_of(id), kCutsMax);
  make_room_to_keep(file, size, meta::kOffsetEnd);
  SWALE_RETURN_IF_ERROR(rows_->put(id, row, order_));
  logs_->announce_change();
  file.row = std::move(row);
  file.size = size;
  uint64_t at = size;
  const auto cut_to = [&](uint64_t end) {
    if (at < end) file.extents.cut(at, end, [&](const auto& piece) { keep_or_drop(file, piece); });
  };
  for (const Span& each : keep) {
    cut_to(each.begin);
    at = std::max(at, each.end);
    file.size = std::max(file.size, each.end);
  }
  cut_to(meta::kOffsetEnd);
  put_in_order(id, file);
  return {};
}

Result<uint64_t> NodeFiles::taken() noexcept {
  SWALE_RETURN_IF_ERROR(take());
  return order_;
}

Result<uint64_t> NodeFiles::draw_order() noexcept {
  SWALE_RETURN_IF_ERROR(take());
  return next_order();
}

void NodeFiles::go_on_after(uint64_t order) noexcept {
  order_ = std::max(order_, order);
  logs_->count_from(order_ + 1);
}

Status NodeFiles::read_own(const meta::FileId& id, const Span& span, MutableBytes out) noexcept {
  return contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(const File* const file, known(id));
    uint64_t at = span.begin;
    Status first;
    file->extents.visit(span.begin, span.end, [&](const FileExtents::Piece& piece) {
      if (!first.ok() || piece.offset != at) return;
      at = piece.offset + piece.length;
      first =
          logs_->read(places_.place_of(piece.address), out.subspan(piece.offset - span.begin, piece.length));
    });
    if (!first.ok()) return first.with_context(name_of(id));
    if (at == span.end) return {};
    return error(Code::kNotFound, Scope::kFile, "{}: this node has no bytes at offset {}", name_of(id), at);
  });
}

std::optional<SeenBacking> NodeFiles::seen_backing(const meta::FileId& id) const {
  const auto at = files_.find(id);
  if (at == files_.end()) return {};
  const Stamp& stamp = at->second->row.backing;
  return SeenBacking{stamp.inode, stamp.size, stamp.modified_ns};
}

NodeFiles::There NodeFiles::open_backing(const meta::FileId& id) const {
  const auto at = files_.find(id);
  if (at == files_.end()) return {};
  return {at->second->backing, {.inode = at->second->backing_inode}};
}

void NodeFiles::keep_there(const meta::FileId& id, const There& there, uint64_t changes) noexcept {
  const auto at = files_.find(id);
  if (at == files_.end() || at->second->opens == 0 || changes != changes_there_) return;
  at->second->backing = there.file;
  at->second->backing_inode = there.stamp.inode;
}

bool NodeFiles::is_open(const meta::FileId& id) const {
  const auto at = files_.find(id);
  return at != files_.end() && at->second->opens > 0;
}

void NodeFiles::on_backing(const meta::FileId& id, std::shared_ptr<io::File> there) noexcept {
  const auto at = files_.find(id);
  if (at == files_.end()) return;
  File& file = *at->second;
  ++changes_there_;
  file.fresh = false;
  file.backing_inode = 0;
  put_in_order(id, file);
  if (file.opens > 0 && there != nullptr) file.backing = std::move(there);
}

Status NodeFiles::cut(const meta::FileId& id, uint64_t order, uint64_t size,
                      std::span<const Span> keep) noexcept {
  return contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(File* const file, known(id));
    return cut_file(id, *file, order, size, keep);
  });
}

Status NodeFiles::remove(const meta::FileId& id) noexcept {
  return contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(take());
    const auto at = files_.find(id);
    if (at == files_.end()) return {};
    File& file = *at->second;
    FileRow row;
    row.floor = next_order();
    make_room_to_keep(file, 0, meta::kOffsetEnd);
    SWALE_RETURN_IF_ERROR(rows_->put(id, row, order_));
    ++changes_there_;
    file.row = std::move(row);
    file.size = file.first_order = 0;
    file.fresh = false;
    file.backing.reset();
    file.extents.cut(0, meta::kOffsetEnd, [&](const auto& piece) { keep_or_drop(file, piece); });
    put_in_order(id, file);
    return {};
  });
}

Status NodeFiles::serve() noexcept {
  logs_->grant_at_once();
  return contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(take());
    const Status served = logs_->serve();
    forget_clean();
    return served;
  });
}

// A file that is closed and drained is known by its row until none of its bytes is in a log: a server that
// comes next would find them.
void NodeFiles::forget_clean() noexcept {
  const uint64_t oldest = logs_->oldest_order();
  if (oldest == oldest_seen_) return;
  oldest_seen_ = oldest;
  while (!over_.empty() && over_.begin()->first < oldest) {
    const auto at = files_.find(over_.begin()->second);
    rows_->forget(at->first);
    erase(at);
  }
}

NodeFiles::Files::iterator NodeFiles::add(const meta::FileId& id, std::unique_ptr<File> file) {
  Order place = {{0, id}};
  file->spare = place.extract(place.begin());
  const auto at = files_.emplace(id, std::move(file)).first;
  put_in_order(id, *at->second);
  return at;
}

void NodeFiles::erase(Files::iterator at) noexcept {
  const File& file = *at->second;
  if (file.in != nullptr) file.in->erase(file.place);
  files_.erase(at);
}

// Allocates nothing.
void NodeFiles::put_in_order(const meta::FileId& id, File& file) noexcept {
  Order* in = nullptr;
  uint64_t number = file.row.floor;
  if (file.dirty() && !file.fixed) {
    in = &waiting_;
    number = file.extents.empty() ? kOrderMax : file.first_order;
  } else if (!file.fixed && file.opens == 0) {
    in = &over_;
  }
  if (in == file.in && (in == nullptr || file.place->first == number)) return;
  if (file.in != nullptr) file.spare = file.in->extract(file.place);
  file.in = in;
  if (in == nullptr) return;
  file.spare.value() = {number, id};
  file.place = in->insert(std::move(file.spare)).position;
}

}  // namespace swale::fs
