#include "imd/read/reader_values.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace swale::imd {
namespace {

constexpr size_t kReadBytes = kMiB;
static_assert(kReadBytes % run::kValuePieceBytes == 0);

uint32_t seed_of(const run::ValueHead& head) { return run::epoch_seed(head.writer, head.epoch_id); }

// Bytes that begin with piece `piece` of the value, and end with a piece.
Status check_pieces(const run::ValueHead& head, size_t piece, Bytes bytes, const std::string& path) {
  for (; !bytes.empty(); ++piece) {
    const Bytes part = bytes.substr(0, run::kValuePieceBytes);
    const uint64_t offset = head.value_offset() + piece * run::kValuePieceBytes;
    const uint32_t found = run::value_piece_checksum(seed_of(head), offset, part);
    if (found != head.pieces[piece]) {
      return corruption(
          "{}: offset {}: {} bytes of a value of epoch {} have checksum {:08x}, expected {:08x}; run `swale "
          "verify`",
          path, offset, part.size(), head.epoch, found, head.pieces[piece]);
    }
    bytes.remove_prefix(part.size());
  }
  return {};
}

Status check_place(const run::ValueHead& head, const ValueReader::Place& place, const std::string& path) {
  const run::ValuePointer& pointer = place.pointer;
  if (head.checksum == pointer.checksum && head.value_bytes == pointer.value_bytes &&
      head.epoch_id == place.epoch_id && head.epoch == place.epoch && head.key_hash == place.key_hash) {
    return {};
  }
  return corruption(
      "{}: offset {}: a record of epoch {} points there for {} bytes with checksum {:08x}; found is a value "
      "of epoch {} with {} bytes and {:08x}{}; run `swale verify`",
      path, pointer.offset, place.epoch, pointer.value_bytes, pointer.checksum, head.epoch, head.value_bytes,
      head.checksum, head.key_hash == place.key_hash ? "" : ", of another key");
}

// Before memory is taken for a value that is long, if what says so is true.
Status expect_to_hold(io::File& file, uint64_t end_offset) {
  SWALE_ASSIGN_OR_RETURN(const uint64_t bytes, file.size());
  if (end_offset <= bytes) return {};
  return corruption("{}: offset {}: the file ends here, but a value reaches to offset {}; run `swale verify`",
                    file.path(), bytes, end_offset);
}

}  // namespace

Status check_page(Bytes page, PartitionNumber writer, uint64_t number, EpochNumber epoch, uint64_t epoch_id,
                  const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const run::ValuePageTrailer trailer,
                         run::verify_value_page(page, writer, number, path));
  if (trailer.epoch == epoch && trailer.epoch_id == epoch_id) return {};
  return corruption(
      "{}: offset {}: expected values of epoch {} ({:016x}), found a page of epoch {} ({:016x}); run `swale "
      "verify`",
      path, number * run::kValuePageBytes, epoch, epoch_id, trailer.epoch, trailer.epoch_id);
}

Result<run::ValueHead> read_value_head(io::File& file, PartitionNumber writer, uint64_t offset) {
  std::string bytes(run::kValueHeadBytes, '\0');
  SWALE_RETURN_IF_ERROR(io::read_exactly(file, offset, bytes));
  SWALE_ASSIGN_OR_RETURN(const size_t head_bytes, run::peek_value_head(bytes, offset, file.path()));
  bytes.resize(head_bytes);
  SWALE_RETURN_IF_ERROR(io::read_exactly(file, offset + run::kValueHeadBytes,
                                         MutableBytes(bytes).subspan(run::kValueHeadBytes)));
  return run::decode_value_head(bytes, writer, offset, file.path());
}

Status check_value(io::File& file, const run::ValueHead& head,
                   const std::function<void(uint64_t)>& progress) {
  std::vector<char> buffer(std::min<size_t>(kReadBytes, head.value_bytes));
  for (uint64_t at = 0; at < head.value_bytes; at += kReadBytes) {
    const MutableBytes out(buffer.data(), std::min<uint64_t>(kReadBytes, head.value_bytes - at));
    SWALE_RETURN_IF_ERROR(io::read_exactly(file, head.value_offset() + at, out));
    SWALE_RETURN_IF_ERROR(check_pieces(head, at / run::kValuePieceBytes, view(out), file.path()));
    if (progress) progress(out.size());
  }
  return {};
}

Result<ValueReader::Place> ValueReader::place_of(const Manifest& manifest, const EpochEntry& epoch, Bytes key,
                                                 Bytes stored, std::string_view what) {
  const run::ValueRule rule = manifest.layout.values();
  SWALE_ASSIGN_OR_RETURN(const run::LargeValue value, run::decode_stored_value(rule, stored, what));
  return Place{rule, value.pointer, manifest.origin_of(epoch), epoch.epoch, epoch.epoch_id, hash_bytes(key)};
}

Result<std::shared_ptr<io::File>> ValueReader::file(run::ValueRule rule, LogId id) {
  const MutexLock lock(mutex_);
  if (const auto found = open_.find(id); found != open_.end()) return found->second;
  const bool paged = rule == run::ValueRule::kPaged;
  const std::string path =
      paged ? value_pages_path(files_.directory, id) : value_log_path(files_.directory, id);
  Result<std::unique_ptr<io::File>> opened = files_.device.open(path, io::OpenMode::kRead);
  if (opened.status().code() == Code::kNotFound) {
    return corruption("{}: is missing, though records point to values in it; restore the file", path);
  }
  SWALE_RETURN_IF_ERROR(opened.status());
  if (open_.size() >= kOpenMax) open_.clear();  // those in use live on
  return open_[id] = std::shared_ptr<io::File>(std::move(*opened));
}

Status ValueReader::read_counted(io::File& file, uint64_t offset, MutableBytes out) {
  files_.counters.reads.add();
  files_.counters.bytes_read.add(out.size());
  return io::read_exactly(file, offset, out);
}

Result<run::ValueHead> ValueReader::head(const Place& place) {
  SWALE_ASSIGN_OR_RETURN(const std::shared_ptr<io::File> log, file_of(place));
  std::string bytes(run::value_head_bytes(place.pointer.value_bytes), '\0');
  SWALE_RETURN_IF_ERROR(read_counted(*log, place.pointer.offset, bytes));
  SWALE_ASSIGN_OR_RETURN(run::ValueHead head, run::decode_value_head(bytes, place.pointer.writer,
                                                                     place.pointer.offset, log->path()));
  SWALE_RETURN_IF_ERROR(check_place(head, place, log->path()));
  return head;
}

Result<std::string> ValueReader::read(const Place& place) {
  if (place.rule == run::ValueRule::kPaged) {
    if (place.pointer.value_bytes > kOneReadBytes) {
      SWALE_ASSIGN_OR_RETURN(const std::shared_ptr<io::File> pages, file_of(place));
      const uint64_t last = run::page_of(place.pointer.offset + place.pointer.value_bytes - 1);
      SWALE_RETURN_IF_ERROR(expect_to_hold(*pages, (last + 1) * run::kValuePageBytes));
    }
    std::string value(place.pointer.value_bytes, '\0');
    SWALE_RETURN_IF_ERROR(read_paged(place, 0, value));
    return value;
  }
  const size_t head_bytes = run::value_head_bytes(place.pointer.value_bytes);
  if (head_bytes + place.pointer.value_bytes > kOneReadBytes) {
    SWALE_ASSIGN_OR_RETURN(const run::ValueHead found, head(place));  // before memory is taken for the value
    SWALE_ASSIGN_OR_RETURN(const std::shared_ptr<io::File> log, file_of(place));
    SWALE_RETURN_IF_ERROR(expect_to_hold(*log, found.end_offset()));
    std::string value(place.pointer.value_bytes, '\0');
    SWALE_RETURN_IF_ERROR(read_pieces(*log, found, 0, value));
    return value;
  }
  SWALE_ASSIGN_OR_RETURN(const std::shared_ptr<io::File> log, file_of(place));
  std::string bytes(head_bytes + place.pointer.value_bytes, '\0');
  SWALE_RETURN_IF_ERROR(read_counted(*log, place.pointer.offset, bytes));
  SWALE_ASSIGN_OR_RETURN(const run::ValueHead found,
                         run::decode_value_head(Bytes(bytes).substr(0, head_bytes), place.pointer.writer,
                                                place.pointer.offset, log->path()));
  SWALE_RETURN_IF_ERROR(check_place(found, place, log->path()));
  SWALE_RETURN_IF_ERROR(check_pieces(found, 0, Bytes(bytes).substr(head_bytes), log->path()));
  bytes.erase(0, head_bytes);
  return bytes;
}

Status ValueReader::read(const Place& place, uint64_t first, MutableBytes out) {
  if (place.rule == run::ValueRule::kPaged) return read_paged(place, first, out);
  SWALE_ASSIGN_OR_RETURN(const run::ValueHead found, head(place));
  SWALE_ASSIGN_OR_RETURN(const std::shared_ptr<io::File> log, file_of(place));
  return read_pieces(*log, found, first, out);
}

// Whole pieces go where they are wanted; of those at the ends that are wanted in part, a copy is verified
// first.
Status ValueReader::read_pieces(io::File& file, const run::ValueHead& head, uint64_t first,
                                MutableBytes out) {
  std::vector<char> piece_memory;
  while (!out.empty()) {
    const uint64_t piece = first / run::kValuePieceBytes;
    const uint64_t begin = piece * run::kValuePieceBytes;
    const uint64_t piece_bytes = std::min<uint64_t>(run::kValuePieceBytes, head.value_bytes - begin);
    if (first == begin && out.size() >= piece_bytes) {
      uint64_t whole = std::min<uint64_t>(out.size(), kReadBytes);
      if (begin + whole < head.value_bytes) whole -= whole % run::kValuePieceBytes;
      const MutableBytes part = out.subspan(0, whole);
      SWALE_RETURN_IF_ERROR(read_counted(file, head.value_offset() + begin, part));
      SWALE_RETURN_IF_ERROR(check_pieces(head, piece, view(part), file.path()));
      out = out.subspan(whole);
      first += whole;
      continue;
    }
    piece_memory.resize(piece_bytes);
    SWALE_RETURN_IF_ERROR(read_counted(file, head.value_offset() + begin, piece_memory));
    SWALE_RETURN_IF_ERROR(check_pieces(head, piece, {piece_memory.data(), piece_bytes}, file.path()));
    const uint64_t count = std::min<uint64_t>(out.size(), begin + piece_bytes - first);
    std::memcpy(out.data(), piece_memory.data() + (first - begin), count);
    out = out.subspan(count);
    first += count;
  }
  return {};
}

Status ValueReader::read_paged(const Place& place, uint64_t first, MutableBytes out) {
  SWALE_ASSIGN_OR_RETURN(const std::shared_ptr<io::File> log, file_of(place));
  uint64_t position = place.pointer.offset + first;
  std::vector<char> pages;
  while (!out.empty()) {
    const uint64_t first_page = run::page_of(position);
    const uint64_t last_page = run::page_of(position + out.size() - 1);
    const uint64_t count = std::min<uint64_t>(last_page - first_page + 1, kReadBytes / run::kValuePageBytes);
    pages.resize(count * run::kValuePageBytes);
    SWALE_RETURN_IF_ERROR(read_counted(*log, first_page * run::kValuePageBytes, pages));
    for (uint64_t i = 0; i < count; ++i) {
      const Bytes page(pages.data() + i * run::kValuePageBytes, run::kValuePageBytes);
      SWALE_RETURN_IF_ERROR(
          check_page(page, place.pointer.writer, first_page + i, place.epoch, place.epoch_id, log->path()));
      const Bytes part = page.substr(0, run::kValuePagePayloadBytes)
                             .substr(position % run::kValuePagePayloadBytes, out.size());
      part.copy(out.data(), part.size());
      out = out.subspan(part.size());
      position += part.size();
    }
  }
  return {};
}

Status ValueReader::check(const Place& place) {
  if (place.rule == run::ValueRule::kPaged) return read(place).status();
  SWALE_ASSIGN_OR_RETURN(const run::ValueHead found, head(place));
  SWALE_ASSIGN_OR_RETURN(const std::shared_ptr<io::File> log, file_of(place));
  return check_value(*log, found, {});
}

}  // namespace swale::imd
