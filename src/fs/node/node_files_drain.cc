// NodeFiles: what waits for a drain, and what a drain or an fsync needs of it.
#include <algorithm>

#include "base/contain.h"
#include "base/log.h"
#include "fs/node/node_files.h"

namespace swale::fs {
namespace {

bool is_same_chunk(const NodeLogs::ChunkPart& one, const NodeLogs::ChunkPart& other) {
  return one.log == other.log && one.number == other.number;
}

}  // namespace

std::vector<meta::FileId> NodeFiles::oldest(size_t count, const std::set<meta::FileId>& but) const {
  std::vector<meta::FileId> oldest;
  oldest.reserve(std::min(count, waiting_.size()));
  for (const auto& [order, id] : waiting_) {
    if (oldest.size() == count) break;
    if (!but.contains(id)) oldest.push_back(id);
  }
  return oldest;
}

std::vector<meta::FileId> NodeFiles::undrained() const {
  std::vector<meta::FileId> ids;
  for (const auto& [id, file] : files_)
    if (file->dirty()) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

bool NodeFiles::is_undrained(const meta::FileId& file) const {
  const auto at = files_.find(file);
  return at != files_.end() && at->second->dirty();
}

bool NodeFiles::awaits_drain(const meta::FileId& file) const {
  const auto at = files_.find(file);
  return at != files_.end() && at->second->dirty() && !at->second->fixed;
}

Result<std::vector<NodeLogs::ChunkPart>> NodeFiles::in_memory(const meta::FileId& id) noexcept {
  std::vector<NodeLogs::ChunkPart> chunks;
  const Status status = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(const File* const file, known(id));
    file->extents.visit(0, meta::kOffsetEnd, [&](const FileExtents::Piece& piece) {
      const auto part = logs_->in_memory(places_.place_of(piece.address), piece.length);
      if (!part) return;
      if (!chunks.empty() && is_same_chunk(chunks.back(), *part))
        chunks.back().end = std::max(chunks.back().end, part->end);
      else
        chunks.push_back(*part);
    });
    std::sort(chunks.rbegin(), chunks.rend());  // of each chunk the last part first
    chunks.erase(std::unique(chunks.begin(), chunks.end(), is_same_chunk), chunks.end());
    std::reverse(chunks.begin(), chunks.end());
    return {};
  });
  if (!status.ok()) return status;
  return chunks;
}

Result<NodeLogs::Kept> NodeFiles::keep(std::span<const NodeLogs::ChunkPart> parts,
                                       const FileTime& time) noexcept {
  SWALE_RETURN_IF_ERROR(take());
  return logs_->keep(parts, time);
}

Result<NodeFiles::Fixed> NodeFiles::fix(const meta::FileId& id) noexcept {
  Fixed fixed;
  const Status status = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(File* const file, known(id));
    SWALE_RETURN_IF_ERROR(logs_->settle());
    if (file->fixed) return error(Code::kBusy, Scope::kFile, "{}: it is being drained", name_of(id));
    if (!file->dirty())
      return error(Code::kNotFound, Scope::kFile, "{}: there is nothing to drain", name_of(id));
    fixed.pieces.reserve(file->extents.count(0, meta::kOffsetEnd));
    file->extents.visit(0, meta::kOffsetEnd, [&](const auto& piece) { fixed.pieces.push_back(piece); });
    fixed.order = order_;
    fixed.size = file->size;
    fixed.backing_end = file->row.backing_end();
    fixed.backing = file->row.backing;
    fixed.ours = file->row.ours;
    fixed.is_open = file->opens > 0;
    file->extents.mark();
    file->fixed = true;
    put_in_order(id, *file);
    return {};
  });
  if (!status.ok()) return status;
  return fixed;
}

Status NodeFiles::announce(std::span<const std::pair<meta::FileId, Stamp>> ours) noexcept {
  return contain([&]() -> Status {
    FilesLog::Rows rows;
    for (const auto& [id, stamp] : ours) rows.emplace(id, files_.at(id)->row).first->second.ours = stamp;
    SWALE_RETURN_IF_ERROR(rows_->put(std::move(rows), order_));
    for (const auto& [id, stamp] : ours) files_.at(id)->row.ours = stamp;
    return {};
  });
}

Status NodeFiles::read_piece(const FileExtents::Piece& piece, uint64_t from, MutableBytes out) noexcept {
  return logs_->read(places_.place_of(piece.address + from), out);
}

Status NodeFiles::drained(std::span<const Done> files) noexcept {
  return contain([&]() -> Status {
    FilesLog::Rows rows;
    for (const Done& done : files) {
      FileRow& row = rows.emplace(done.file, files_.at(done.file)->row).first->second;
      if (row.floor < done.fixed->order) row.drained(done.fixed->order, done.now);  // else it was removed
    }
    FilesLog::Rows now = rows;
    SWALE_RETURN_IF_ERROR(rows_->put(std::move(rows), order_));
    ++changes_there_;
    for (auto& [id, row] : now) files_.at(id)->row = std::move(row);
    for (const Done& done : files) leave_logs(done);
    return {};
  });
}

// Its row says that it is drained.
void NodeFiles::leave_logs(const Done& done) noexcept {
  File& file = *files_.find(done.file)->second;
  file.extents.remove_marked([&](const auto& piece) { drop(piece); });
  if (file.fresh) file.backing_stored = 0;
  for (const auto& piece : done.fixed->pieces) file.backing_stored += piece.length;
  if (done.aside || file.backing_stored > meta::kOffsetEnd) file.backing_stored = meta::kOffsetEnd;
  file.fresh = false;
  file.first_order = file.extents.empty() ? 0 : done.fixed->order + 1;
  if (file.row.size_order == 0) {
    file.size = file.row.backing.size;
    file.extents.visit(0, meta::kOffsetEnd, [&](const auto& piece) {
      file.size = std::max(file.size, piece.offset + piece.length);
    });
  }
  give_up(done.file);
  file.backing = file.opens > 0 ? done.there : nullptr;  // null: the caller opens it, if lacks_there()
  file.backing_inode = 0;
}

// Of a file of several nodes the row does not know whether another one has brought it to the backing.
bool NodeFiles::may_be_there(const File& file) const {
  return file.row.backing.inode != 0 || watcher_ != nullptr;
}

void NodeFiles::give_up(const meta::FileId& id) noexcept {
  const auto at = files_.find(id);
  if (at == files_.end() || !at->second->fixed) return;
  File& file = *at->second;
  for (const FileExtents::Piece& piece : file.held) drop(piece);
  file.held.clear();
  file.extents.unmark();
  file.fixed = false;
  put_in_order(id, file);
}

}  // namespace swale::fs
