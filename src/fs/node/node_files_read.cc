// NodeFiles: what is read of a file, here or by others, and where others may read it themselves.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/contain.h"
#include "fs/node/node_files.h"

namespace swale::fs {
namespace {

constexpr uint64_t kToldBytesMax = 64 << 20, kToldAtOnce = 1 << 20;  // of places
constexpr uint64_t kStatBlockBytes = 512;                            // of st_blocks

}  // namespace

Status NodeFiles::lacks(const meta::FileId& id) {
  return error(Code::kNotFound, Scope::kFile, "{}: it is not open on the backing", name_of(id));
}

Status NodeFiles::add_hole(const meta::FileId& id, File& file, uint64_t offset, MutableBytes out,
                           Holes* holes) {
  const uint64_t end = file.row.backing_end();
  const size_t there = offset < end ? std::min<uint64_t>(out.size(), end - offset) : 0;
  if (there > 0) {
    if (file.backing == nullptr) {
      if (!holes->opens_) return lacks(id);
      SWALE_ASSIGN_OR_RETURN(file.backing, open_there(id));
    }
    holes->file_ = id;
    holes->backing_ = file.backing;
    holes->parts_.push_back({offset, out.first(there)});
  }
  if (there < out.size()) std::memset(out.data() + there, 0, out.size() - there);
  return {};
}

Status NodeFiles::Holes::fill() noexcept {
  return contain([&]() -> Status {
    for (const Part& part : parts_) {
      const auto got = backing_->pread(part.offset, part.out);
      if (!got.ok()) return got.status().with_context(name_of(file_));
      if (*got < part.out.size()) std::memset(part.out.data() + *got, 0, part.out.size() - *got);
    }
    return {};
  });
}

Result<std::shared_ptr<io::File>> NodeFiles::open_there(const meta::FileId& id) const noexcept {
  std::shared_ptr<io::File> there;
  const Status opened = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(const std::string path, backing_.path_of(id));
    SWALE_ASSIGN_OR_RETURN(there, backing_.device().open(path, io::OpenMode::kRead));
    return {};
  });
  if (!opened.ok()) return opened;
  return there;
}

Result<NodeFiles::There> NodeFiles::look_there(const meta::FileId& id) const noexcept {
  There there;
  const Status looked = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(const std::string path, backing_.path_of(id));
    auto opened = backing_.device().open(path, io::OpenMode::kRead);
    if (opened.status().code() == Code::kNotFound) return {};
    SWALE_RETURN_IF_ERROR(opened.status());
    there.file = std::move(*opened);
    SWALE_ASSIGN_OR_RETURN(there.stamp, backing_.stamp(*there.file));
    struct stat found;
    if (::fstat(there.file->descriptor(), &found) == 0)
      there.stored = static_cast<uint64_t>(found.st_blocks) * kStatBlockBytes;
    return {};
  });
  if (!looked.ok()) return looked;
  return there;
}

// The file that was open when the name went is the one that counts.
Result<NodeFiles::There> NodeFiles::find_there(const meta::FileId& id, uint64_t inode,
                                               There open) const noexcept {
  const Status found = contain([&]() -> Status {
    if (open.file != nullptr && open.stamp.inode == 0) {
      SWALE_ASSIGN_OR_RETURN(open.stamp, backing_.stamp(*open.file));
    }
    if (open.file == nullptr || open.stamp.inode != inode) {
      SWALE_ASSIGN_OR_RETURN(open, look_there(id));
    }
    if (open.file != nullptr && open.stamp.inode == inode) return {};
    return error(Code::kNotFound, Scope::kFile, "{}: the backing has inode {} in the place of {}",
                 name_of(id), open.stamp.inode, inode);
  });
  if (!found.ok()) return found;
  return open;
}

Result<size_t> NodeFiles::read(const meta::FileId& id, uint64_t offset, MutableBytes out,
                               Holes* holes) noexcept {
  size_t bytes = 0;
  Holes own;
  own.opens_ = true;
  if (holes == nullptr) holes = &own;
  const Status status = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(File* const file, known(id));
    if (offset >= file->size) return {};
    const auto wanted = out.first(std::min<uint64_t>(out.size(), file->size - offset));
    const uint64_t end = offset + wanted.size();
    const auto part = [&](uint64_t from, uint64_t to) { return wanted.subspan(from - offset, to - from); };
    uint64_t at = offset;
    Status first;
    file->extents.visit(offset, end, [&](const FileExtents::Piece& piece) {
      if (!first.ok()) return;
      first = add_hole(id, *file, at, part(at, piece.offset), holes);
      at = piece.offset + piece.length;
      if (first.ok()) first = logs_->read(places_.place_of(piece.address), part(piece.offset, at));
    });
    if (!first.ok())
      return first.with_context(fmt::format("{}: bytes from {} to {}", name_of(id), offset, end));
    SWALE_RETURN_IF_ERROR(add_hole(id, *file, at, part(at, end), holes));
    bytes = wanted.size();
    return own.fill();
  });
  if (!status.ok()) return status;
  return bytes;
}

Result<uint64_t> NodeFiles::size(const meta::FileId& id, uint64_t* stored) noexcept {
  uint64_t size = 0;
  const Status status = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(const File* const file, known(id));
    size = file->size;
    const uint64_t there = std::min(file->row.backing_end(), file->backing_stored);
    if (stored != nullptr) *stored = std::min(size, file->extents.bytes() + there);
    return {};
  });
  if (!status.ok()) return status;
  return size;
}

Result<NodeFiles::Stretch> NodeFiles::stretch(const meta::FileId& id, uint64_t offset) noexcept {
  Stretch found;
  const Status status = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(File* const file, known(id));
    found.size = file->size;
    found.end = std::max(offset, file->size);
    const Span logged = file->extents.stretch(offset);
    found.logged = logged.end != 0 && logged.begin == offset;
    if (logged.end != 0) found.end = std::min(found.end, found.logged ? logged.end : logged.begin);
    found.backing_end = file->row.backing_end();
    if (found.logged || offset >= found.backing_end) return {};
    if (file->backing == nullptr) return lacks(id);
    found.backing = file->backing;
    return {};
  });
  if (!status.ok()) return status;
  return found;
}

bool NodeFiles::show(const meta::FileId& id, uint64_t offset, uint64_t length, ShownBytes* shown) noexcept {
  bool all = false;
  static_cast<void>(contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(const File* const file, known(id));
    if (offset >= file->size) return {};
    const uint64_t end = offset + std::min(length, file->size - offset);
    uint64_t at = offset;
    file->extents.visit(offset, end, [&](const FileExtents::Piece& piece) {
      const bool follows = piece.offset == at;  // else a hole, or one that was not shown, is before it
      if (follows && logs_->show(places_.place_of(piece.address), piece.length, shown)) at += piece.length;
    });
    all = at == end;
    return {};
  }));
  return all;
}

// What is on the backing only has no places.
Status NodeFiles::tell_places(const meta::FileId& id, ToldPlaces* told) noexcept {
  return contain([&]() -> Status {
    if (takes_first_) SWALE_RETURN_IF_ERROR(take());
    return tell_taken_places(id, nullptr, told);
  });
}

// The marks first: they are of what was taken in.
Status NodeFiles::tell_taken_places(const meta::FileId& id, const OwnParts* own, ToldPlaces* told) {
  if (!logs_->tell_marks(told))
    return error(Code::kBusy, Scope::kOperation, "{}: a process is in the middle of a write", name_of(id));
  told->end = own != nullptr ? own->span.end : meta::kOffsetEnd;
  const auto at = files_.find(id);
  if (at == files_.end()) return {};
  const File& file = *at->second;
  const uint64_t last = told->offset + std::min(kToldBytesMax, told->end - told->offset);
  bool full = false;
  const auto tell = [&](const FileExtents::Piece& piece, const Span& part) {
    if (full) return;
    const meta::Place place = places_.place_of(piece.address + (part.begin - piece.offset));
    full = !logs_->tell_place(place, part.end - part.begin, part.begin, told);
    if (full) told->end = part.begin;
  };
  for (uint64_t from = told->offset; !full && from < std::min(last, file.size); from += kToldAtOnce) {
    file.extents.visit(from, std::min(last, from + kToldAtOnce), [&](const FileExtents::Piece& piece) {
      const Span whole{piece.offset, piece.offset + piece.length};
      if (own == nullptr) return tell(piece, whole);
      own->bytes.visit(whole, [&](const Span& part, char) { tell(piece, part); });
    });
  }
  if (!full && file.size > last) told->end = last;
  return {};
}

Result<uint64_t> NodeFiles::map_begin(const meta::FileId& id, uint64_t offset) noexcept {
  SWALE_ASSIGN_OR_RETURN(PublishedMaps* const maps, logs_->maps());
  const uint64_t begin = maps->beginning(id, offset).value_or(offset);
  return offset - begin < kToldBytesMax ? begin : offset;
}

bool NodeFiles::is_logged(const meta::FileId& id) const {
  const auto at = files_.find(id);
  return at != files_.end() && !at->second->extents.empty();
}

// From where another process has asked, so that one map serves both; but what it has written since may leave
// no space in that map for the place that is asked for now.
Status NodeFiles::publish_map(const meta::FileId& id, MapRequest* answer, const AskOwn& ask_own) noexcept {
  return contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(PublishedMaps* const maps, logs_->maps());
    if (takes_first_) SWALE_RETURN_IF_ERROR(take());
    std::optional<OwnParts> own;
    if (ask_own) {
      SWALE_ASSIGN_OR_RETURN(own, ask_own());
    }
    auto told = std::make_unique<ToldPlaces>();
    told->offset = own ? own->span.begin : maps->beginning(id, answer->offset).value_or(answer->offset);
    SWALE_RETURN_IF_ERROR(tell_taken_places(id, own ? &*own : nullptr, told.get()));
    if (told->end <= answer->offset && told->offset != answer->offset) {
      told = std::make_unique<ToldPlaces>();
      told->offset = answer->offset;
      SWALE_RETURN_IF_ERROR(tell_taken_places(id, own ? &*own : nullptr, told.get()));
    }
    const auto at = files_.find(id);
    const uint64_t size = own ? own->size : at == files_.end() ? kSizeUnknown : at->second->size;
    return maps->publish(id, *told, size, answer);
  });
}

}  // namespace swale::fs
