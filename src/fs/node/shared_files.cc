#include "fs/node/shared_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "base/buffer.h"
#include "base/contain.h"
#include "base/log.h"

namespace swale::fs {
namespace {

constexpr int kReadAttempts = 16;
constexpr size_t kWriteBytes = 256 * kKiB;
constexpr size_t kTablesMax = 10'000;      // of sealed files; beyond it all are asked for again
constexpr size_t kTablePartsMax = 4096;    // of 24 bytes
constexpr uint64_t kMapBytes = 64 * kMiB;  // of a file, for one map

// What an answer about a whole file says of a part of it.
ShareAnswer within(const ShareAnswer& whole, const Span& span) {
  ShareAnswer answer = whole;
  answer.parts.clear();
  auto part = std::partition_point(whole.parts.begin(), whole.parts.end(),
                                   [&](const SharePart& each) { return each.span.end <= span.begin; });
  for (; part != whole.parts.end() && part->span.begin < span.end; ++part)
    answer.parts.push_back(
        {{std::max(part->span.begin, span.begin), std::min(part->span.end, span.end)}, part->node});
  return answer;
}

}  // namespace

// NodeFiles calls it in calls that are made with the mutex held, or before start().
Status SharedFiles::wrote(const meta::FileId& file, uint64_t order, const Span& span,
                          When when) NO_THREAD_SAFETY_ANALYSIS {
  return when == When::kNow ? share_.wrote(file, span) : share_.found(file, order, span);
}

Result<ShareAnswer> SharedFiles::ask(ShareRequest request) {
  if (const auto seen = files_->seen_backing(request.file)) request.backing = *seen;
  asked_.fetch_add(1, std::memory_order_relaxed);
  const MutexUnlock meanwhile(mutex_);
  return peers_.ask(request);
}

// A server that is new asks which of the bytes that it has found are committed.
Status SharedFiles::learn(const meta::FileId& file) {
  while (const auto question = share_.question(file)) {
    SWALE_ASSIGN_OR_RETURN(const ShareAnswer answer, ask(*question));
    SWALE_RETURN_IF_ERROR(share_.learn(file, answer));
  }
  return {};
}

// ---- changes

Status SharedFiles::change(const meta::FileId& file, const ShareRequest& request) {
  ShareAnswer answer;
  const Status asked = contain([&]() REQUIRES(mutex_) -> Status {
    SWALE_ASSIGN_OR_RETURN(answer, ask(request));
    if (answer.holds.empty() || !rules_.takes_back) return {};
    const MutexUnlock meanwhile(mutex_);
    return peers_.take_back(file, answer.holds);
  });
  withdraw_maps(file);  // in them are own bytes on top that may now be under another node's
  const bool obeyed = asked.ok() && answer.error == 0;
  share_.end_change(file, obeyed ? NodeShare::Ended::kObeyed : NodeShare::Ended::kUnknown);
  changed_.notify_all();
  SWALE_RETURN_IF_ERROR(asked);
  return obeyed ? Status() : errno_status(answer.error, "the root of a file");
}

template <class Begin>
std::invoke_result_t<Begin, uint64_t> SharedFiles::begin_change(
    const meta::FileId& file, Result<uint64_t> (NodeFiles::*draw)() noexcept, const Begin& begin) {
  for (;;) {
    SWALE_RETURN_IF_ERROR(learn(file));
    SWALE_ASSIGN_OR_RETURN(const uint64_t order, (files_->*draw)());
    auto request = begin(order);
    if (request.status().code() != Code::kBusy) return request;
    changed_.wait(mutex_);
  }
}

Status SharedFiles::commit(const meta::FileId& file) noexcept {
  const MutexLock lock(mutex_);
  return contain([&]() REQUIRES(mutex_) -> Status {
    const auto begin = [&](uint64_t order) REQUIRES(mutex_) { return share_.begin_commit(file, order); };
    SWALE_ASSIGN_OR_RETURN(const auto request, begin_change(file, &NodeFiles::taken, begin));
    return request ? change(file, *request) : Status();
  });
}

Result<bool> SharedFiles::sync(const meta::FileId& file, const std::function<Result<bool>()>& keep) noexcept {
  bool done = false;
  const MutexLock lock(mutex_);
  const Status status = contain([&]() REQUIRES(mutex_) -> Status {
    const auto begin = [&](uint64_t order) REQUIRES(mutex_) { return share_.begin_sync(file, order); };
    SWALE_ASSIGN_OR_RETURN(ShareRequest request, begin_change(file, &NodeFiles::taken, begin));
    Result<bool> kept = true;
    if (rules_.keeps_first) {
      const MutexUnlock meanwhile(mutex_);
      if (const Status thrown = contain([&] { kept = keep(); }); !thrown.ok()) kept = thrown;
    }
    done = kept.ok() && *kept;
    if (!done) request.op = ShareOp::kCommit;  // which takes nothing of it back
    const Status synced = change(file, request);
    const bool takes_drain = synced.posix_error() == EAGAIN;
    done = done && !takes_drain;
    return !kept.ok() ? kept.status() : takes_drain ? Status() : synced;
  });
  if (!status.ok()) return status;
  return done;
}

Status SharedFiles::commit_found() noexcept {
  std::vector<meta::FileId> files;
  {
    const MutexLock lock(mutex_);
    SWALE_RETURN_IF_ERROR(contain([&]() REQUIRES(mutex_) { files = share_.found(); }));
  }
  for (const meta::FileId& file : files) SWALE_RETURN_IF_ERROR(commit(file));
  return {};
}

// What they have appended comes before a truncate, which cuts it: else it would come after it, behind zeros.
// A node that does not answer is left: its bytes keep their places.
Status SharedFiles::have_appenders_commit(const meta::FileId& file) {
  if (!rules_.asks_appenders) return {};
  SWALE_RETURN_IF_ERROR(learn(file));
  SWALE_ASSIGN_OR_RETURN(const ShareAnswer answer, ask({.op = ShareOp::kLook, .node = node_, .file = file}));
  if (answer.holds.empty()) return {};
  const MutexUnlock meanwhile(mutex_);
  if (const Status asked = peers_.commit_at(file, answer.holds); !asked.ok()) log_warn("{}", asked.message());
  return {};
}

Status SharedFiles::truncate(const meta::FileId& file, uint64_t size) noexcept {
  if (size > meta::kOffsetEnd) return errno_status(EFBIG, "truncate");
  const MutexLock lock(mutex_);
  return contain([&]() REQUIRES(mutex_) -> Status {
    SWALE_RETURN_IF_ERROR(have_appenders_commit(file));
    const auto begin = [&](uint64_t order)
                           REQUIRES(mutex_) { return share_.begin_truncate(file, order, size); };
    SWALE_ASSIGN_OR_RETURN(const ShareRequest request, begin_change(file, &NodeFiles::draw_order, begin));
    SWALE_RETURN_IF_ERROR(change(file, request));
    // All that is not committed now has been written since.
    SWALE_RETURN_IF_ERROR(files_->take());
    SWALE_ASSIGN_OR_RETURN(const auto since, share_.own_at_end({file, {0, meta::kOffsetEnd}, {}, 0}));
    return files_->cut(file, request.order, size, since);
  });
}

Result<uint64_t> SharedFiles::reserve(const meta::FileId& file, uint64_t bytes) noexcept {
  uint64_t offset = 0;
  const MutexLock lock(mutex_);
  const Status status = contain([&]() REQUIRES(mutex_) -> Status {
    SWALE_RETURN_IF_ERROR(learn(file));
    SWALE_ASSIGN_OR_RETURN(const uint64_t order, files_->draw_order());
    SWALE_ASSIGN_OR_RETURN(const ShareAnswer answer, ask(share_.reservation(file, order, bytes)));
    if (answer.error != 0) return errno_status(answer.error, "a place for an append");
    offset = answer.offset;
    return {};
  });
  if (!status.ok()) return status;
  return offset;
}

// ---- maps

Status SharedFiles::publish_map(const meta::FileId& file, MapRequest* map, uint64_t withdrawn) noexcept {
  const MutexLock lock(mutex_);
  return contain([&]() REQUIRES(mutex_) -> Status {
    const auto later = [&file](const char* why) {
      return error(Code::kBusy, Scope::kOperation, "file {:x}:{:x}: {}", file.high, file.low, why);
    };
    SWALE_RETURN_IF_ERROR(files_->take());
    if (!files_->is_logged(file)) return later("this node has nothing of it in logs");
    SWALE_RETURN_IF_ERROR(learn(file));
    SWALE_ASSIGN_OR_RETURN(const uint64_t begin, files_->map_begin(file, map->offset));
    const Span span{begin, begin + std::min(kMapBytes, meta::kOffsetEnd - begin)};
    SWALE_ASSIGN_OR_RETURN(const auto reading, share_.begin_read(file, span));
    ShareRequest request = share_.look(reading);
    request.op = ShareOp::kHold;
    SWALE_ASSIGN_OR_RETURN(const ShareAnswer answer, ask(std::move(request)));
    if (maps_withdrawn_ != withdrawn) return later("others change it");
    return files_->publish_map(file, map, [&]() REQUIRES(mutex_) -> Result<NodeFiles::OwnParts> {
      SWALE_ASSIGN_OR_RETURN(RangeMap<char> own, share_.own_on_top(reading, answer));
      return NodeFiles::OwnParts{span, std::move(own), share_.size(file, answer)};
    });
  });
}

void SharedFiles::withdraw_maps(const meta::FileId& file) noexcept NO_THREAD_SAFETY_ANALYSIS {
  ++maps_withdrawn_;
  files_->withdraw_maps(file);
}

void SharedFiles::let_go(const meta::FileId& file) noexcept {
  const MutexLock lock(mutex_);
  withdraw_maps(file);
}

bool SharedFiles::let_go_at_once(const meta::FileId& file) noexcept {
  if (!mutex_.try_lock()) return false;
  const MutexLock lock(mutex_, std::adopt_lock);
  withdraw_maps(file);
  return true;
}

// ---- drains

Status SharedFiles::fix(const meta::FileId& file, uint64_t drain) noexcept {
  const MutexLock lock(mutex_);
  return contain([&]() REQUIRES(mutex_) -> Status {
    give_up_locked(file);  // of a drain whose leader has given it up
    for (;;) {
      SWALE_RETURN_IF_ERROR(learn(file));
      SWALE_ASSIGN_OR_RETURN(uint64_t order, files_->taken());
      // Its place is there before the change begins, which nothing ends that fails in between.
      const auto place = fixed_.try_emplace(file).first;
      auto fixed = files_->fix(file);
      if (!fixed.ok()) fixed_.erase(place);
      if (!fixed.ok() && fixed.status().code() != Code::kNotFound) return fixed.status();
      if (fixed.ok()) order = fixed->order;
      // Nothing is taken in between: what is fixed, and no more, is in the request.
      const auto request = share_.begin_fix(file, order, drain);
      if (!request.ok()) give_up_locked(file);
      if (request.status().code() == Code::kBusy) {
        changed_.wait(mutex_);
        continue;
      }
      SWALE_RETURN_IF_ERROR(request.status());
      if (fixed.ok()) place->second = {drain, std::move(*fixed)};
      const Status done = change(file, *request);
      if (!done.ok()) give_up_locked(file);
      return done;
    }
  });
}

Result<std::vector<FileExtents::Piece>> SharedFiles::fixed_pieces(const meta::FileId& file,
                                                                  std::span<const Span> spans) noexcept {
  std::vector<FileExtents::Piece> parts;
  const Status status = contain([&]() REQUIRES(mutex_) -> Status {
    const auto found = fixed_.find(file);
    if (!rules_.owner_leads && found != fixed_.end()) {
      parts = found->second.fixed.pieces;
      return {};
    }
    auto piece = found == fixed_.end() ? nullptr : found->second.fixed.pieces.data();
    const auto end = found == fixed_.end() ? nullptr : piece + found->second.fixed.pieces.size();
    for (const Span& span : spans) {
      uint64_t at = span.begin;
      while (piece != end && piece->offset + piece->length <= at) ++piece;
      while (piece != end && at < span.end && piece->offset <= at) {
        const uint64_t skip = at - piece->offset;
        const uint64_t length = std::min(piece->length - skip, span.end - at);
        parts.push_back({at, length, piece->address + skip, piece->age});
        at += length;
        if (piece->offset + piece->length <= at) ++piece;
      }
      if (at < span.end)
        return error(Code::kCorruption, Scope::kFile,
                     "file {:x}:{:x}: bytes from {} to {} were committed by node {}, and it has none of them",
                     file.high, file.low, at, span.end, node_);
    }
    return {};
  });
  if (!status.ok()) return status;
  return parts;
}

Status SharedFiles::write_out(const meta::FileId& file, uint64_t drain, std::span<const Span> spans,
                              io::File& out) noexcept {
  return contain([&]() -> Status {
    std::vector<FileExtents::Piece> pieces;
    {
      const MutexLock lock(mutex_);
      const auto part = fixed_.find(file);
      if (part != fixed_.end() && part->second.drain != drain)
        return error(Code::kBusy, Scope::kFile, "file {:x}:{:x}: its drain {} was given up for drain {}",
                     file.high, file.low, drain, part->second.drain);
      SWALE_ASSIGN_OR_RETURN(pieces, fixed_pieces(file, spans));
    }
    SWALE_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate(kWriteBytes));
    for (const FileExtents::Piece& piece : pieces) {
      for (uint64_t done = 0; done < piece.length;) {
        const uint64_t most = buffer.span().size() - (piece.offset + done) % kHoleBytes;
        const MutableBytes bytes = buffer.span().first(std::min<uint64_t>(piece.length - done, most));
        {
          const MutexLock lock(mutex_);
          const auto part = fixed_.find(file);
          if (part == fixed_.end() || part->second.drain != drain)
            return error(Code::kAborted, Scope::kFile, "file {:x}:{:x}: its drain was given up", file.high,
                         file.low);
          SWALE_RETURN_IF_ERROR(files_->read_piece(piece, done, bytes));
        }
        SWALE_RETURN_IF_ERROR(write_checked(out, piece.offset + done, bytes));
        done += bytes.size();
      }
    }
    return {};
  });
}

Status SharedFiles::published(const meta::FileId& file, uint64_t drain, const SeenBacking& now) noexcept {
  MutexLock lock(mutex_);
  std::shared_ptr<io::File> there;
  // Now, while there is a name: it may go before the next read. The backing may hang: nobody else waits.
  for (bool opens = true; opens && there == nullptr && files_->is_open(file);) {
    const NodeFiles& files = *files_;
    lock.unlock();
    auto opened = files.open_there(file);
    opens = opened.ok();
    if (opens) there = std::move(*opened);
    lock.lock();
  }
  return contain([&]() REQUIRES(mutex_) -> Status {
    const auto found = fixed_.find(file);
    Status done;
    if (found != fixed_.end() && found->second.drain != drain) return {};
    if (found != fixed_.end()) {
      const NodeFiles::Done all{
          file, &found->second.fixed, {0, now.inode, now.size, now.modified_ns}, false, there};
      done = files_->drained({&all, 1});
      if (!done.ok()) files_->give_up(file);
      fixed_.erase(found);
    }
    files_->on_backing(file, std::move(there));
    return done;
  });
}

void SharedFiles::give_up_locked(const meta::FileId& file) {
  fixed_.erase(file);
  files_->give_up(file);
}

void SharedFiles::give_up(const meta::FileId& file) noexcept {
  const MutexLock lock(mutex_);
  give_up_locked(file);
}

// ---- tables of sealed files

void SharedFiles::keep_table(const meta::FileId& file) NO_THREAD_SAFETY_ANALYSIS {
  if (tables_.size() >= kTablesMax && !tables_.contains(file)) tables_.clear();
  tables_.try_emplace(file);
}

void SharedFiles::drop_table(const meta::FileId& file) noexcept NO_THREAD_SAFETY_ANALYSIS {
  tables_.erase(file);
  ++tables_dropped_;
}

void SharedFiles::forget_table(const meta::FileId& file) {
  if (const auto kept = tables_.find(file); kept != tables_.end()) kept->second.whole.reset();
}

Result<ShareAnswer> SharedFiles::look(ShareRequest request) {
  auto kept = tables_.find(request.file);
  if (kept == tables_.end() || kept->second.too_large) return ask(std::move(request));
  if (kept->second.whole) return within(*kept->second.whole, request.span);
  const uint64_t dropped = tables_dropped_;
  ShareRequest all = request;
  all.span = {0, meta::kOffsetEnd};
  auto whole = ask(std::move(all));
  const bool too_large =
      whole.ok() ? whole->parts.size() > kTablePartsMax : whole.status().code() == Code::kResourceExhausted;
  if (!whole.ok() && !too_large) return whole;
  kept = tables_.find(request.file);
  const bool keeps =
      kept != tables_.end() && tables_dropped_ == dropped && (!whole.ok() || whole->error == 0);
  if (keeps && !too_large) kept->second.whole = std::make_unique<const ShareAnswer>(*whole);
  if (keeps && too_large) kept->second.too_large = true;
  if (!whole.ok()) return ask(std::move(request));
  return within(*whole, request.span);
}

// ---- reads

Result<uint64_t> SharedFiles::size(const meta::FileId& file, const SeenBacking& seen) noexcept {
  uint64_t size = 0;
  const MutexLock lock(mutex_);
  const Status status = contain([&]() REQUIRES(mutex_) -> Status {
    SWALE_RETURN_IF_ERROR(files_->take());
    SWALE_RETURN_IF_ERROR(learn(file));
    // What ends its commit while the root is asked counts.
    SWALE_ASSIGN_OR_RETURN(const auto reading, share_.begin_read(file, {}));
    ShareRequest request = share_.look(reading);
    request.backing = seen;
    SWALE_ASSIGN_OR_RETURN(const ShareAnswer answer, look(std::move(request)));
    size = std::max(reading.own_end, share_.size(file, answer));
    return {};
  });
  if (!status.ok()) return status;
  return size;
}

Result<SeenBacking> SharedFiles::on_backing_alone(const meta::FileId& file) noexcept {
  SeenBacking seen;
  const MutexLock lock(mutex_);
  const Status status = contain([&]() REQUIRES(mutex_) -> Status {
    SWALE_RETURN_IF_ERROR(files_->take());
    SWALE_RETURN_IF_ERROR(learn(file));
    SWALE_ASSIGN_OR_RETURN(const auto reading, share_.begin_read(file, kWholeFile));
    SWALE_ASSIGN_OR_RETURN(const ShareAnswer answer, look(share_.look(reading)));
    if (reading.own_end == 0 && answer.parts.empty() && answer.size == answer.backing_end)
      seen = {answer.backing_inode, answer.size, 0};
    return {};
  });
  if (!status.ok()) return status;
  return seen;
}

// Of each node once, all that is wanted of it.
Status SharedFiles::fetch_parts(const NodeShare::Reading& reading, const Parts& parts, MutableBytes out) {
  std::map<NodeId, std::vector<SharePeers::Wanted>> wanted;
  for (const ReadPart& part : parts)
    if (part.from == ReadPart::From::kNode)
      wanted[part.node].push_back(
          {part.span, out.subspan(part.span.begin - reading.span.begin, part.span.end - part.span.begin)});
  const MutexUnlock meanwhile(mutex_);
  for (const auto& [node, of_node] : wanted) SWALE_RETURN_IF_ERROR(peers_.fetch(node, reading.file, of_node));
  return {};
}

// It may hang: nobody else waits for it.
Status SharedFiles::read_backing(const NodeShare::Reading& reading, const Parts& parts, uint64_t inode,
                                 MutableBytes out) {
  const auto reads = [](const ReadPart& part) { return part.from == ReadPart::From::kBacking; };
  if (std::none_of(parts.begin(), parts.end(), reads)) return {};
  const NodeFiles& files = *files_;
  const uint64_t changes = files.changes_there();
  NodeFiles::There there = files.open_backing(reading.file);
  Status done;
  {
    const MutexUnlock meanwhile(mutex_);
    done = contain([&]() -> Status {
      SWALE_ASSIGN_OR_RETURN(there, files.find_there(reading.file, inode, std::move(there)));
      for (const ReadPart& part : parts) {
        if (!reads(part)) continue;
        const auto bytes = out.subspan(part.span.begin - reading.span.begin, part.span.end - part.span.begin);
        SWALE_ASSIGN_OR_RETURN(const size_t got, there.file->pread(part.span.begin, bytes));
        if (got < bytes.size()) std::memset(bytes.data() + got, 0, bytes.size() - got);
      }
      return {};
    });
  }
  if (done.ok()) files_->keep_there(reading.file, there, changes);
  return done;
}

Status SharedFiles::read_parts(const NodeShare::Reading& reading, const Parts& parts, MutableBytes out) {
  using From = ReadPart::From;
  const auto bytes_of = [&](const Span& span) {
    return out.subspan(span.begin - reading.span.begin, span.end - span.begin);
  };
  for (const ReadPart& part : parts) {
    const MutableBytes bytes = bytes_of(part.span);
    if (part.from == From::kOwn)
      SWALE_RETURN_IF_ERROR(files_->read_own(reading.file, part.span, bytes));
    else if (part.from == From::kZeros)
      std::fill(bytes.begin(), bytes.end(), '\0');
  }
  SWALE_ASSIGN_OR_RETURN(const auto own, share_.own_at_end(reading));
  for (Span span : own) {
    span.end = std::min(span.end, reading.span.begin + out.size());
    if (span.begin < span.end) SWALE_RETURN_IF_ERROR(files_->read_own(reading.file, span, bytes_of(span)));
  }
  return {};
}

Result<size_t> SharedFiles::read_once(const meta::FileId& file, const Span& span, MutableBytes out) {
  SWALE_RETURN_IF_ERROR(files_->take());
  SWALE_RETURN_IF_ERROR(learn(file));
  SWALE_ASSIGN_OR_RETURN(const auto reading, share_.begin_read(file, span));
  SWALE_ASSIGN_OR_RETURN(const ShareAnswer answer, look(share_.look(reading)));
  SWALE_ASSIGN_OR_RETURN(const Parts parts, share_.plan(reading, answer));
  const MutableBytes bytes = out.first(parts.empty() ? 0 : parts.back().span.end - span.begin);
  SWALE_RETURN_IF_ERROR(fetch_parts(reading, parts, bytes));
  SWALE_RETURN_IF_ERROR(read_backing(reading, parts, answer.backing_inode, bytes));
  SWALE_RETURN_IF_ERROR(files_->take());
  SWALE_RETURN_IF_ERROR(read_parts(reading, parts, bytes));
  return bytes.size();
}

Result<size_t> SharedFiles::read(const meta::FileId& file, uint64_t offset, MutableBytes out) noexcept {
  if (offset >= meta::kOffsetEnd || out.empty()) return size_t{0};
  const Span span{offset, offset + std::min<uint64_t>(out.size(), meta::kOffsetEnd - offset)};
  size_t bytes = 0;
  const MutexLock lock(mutex_);
  const Status status = contain([&]() REQUIRES(mutex_) -> Status {
    for (int attempt = 1;; ++attempt) {
      const auto read = read_once(file, span, out);
      if (read.ok()) {
        bytes = *read;
        return {};
      }
      if (read.status().code() != Code::kNotFound) return read.status();
      forget_table(file);  // a drain has brought its bytes to the backing
      if (attempt == kReadAttempts)
        return error(Code::kUnavailable, Scope::kFile, "bytes {} to {}: asked {} times: {}", span.begin,
                     span.end, attempt, read.status().message());
    }
  });
  if (!status.ok()) return status;
  return bytes;
}

Status SharedFiles::serve(const meta::FileId& file, std::span<const Span> spans, MutableBytes out) noexcept {
  const MutexLock lock(mutex_);
  for (const Span& span : spans) {
    const uint64_t length = span.end - span.begin;
    SWALE_RETURN_IF_ERROR(files_->read_own(file, span, out.first(length)));
    out = out.subspan(length);
  }
  return {};
}

bool SharedFiles::serve_at_once(const meta::FileId& file, const Span& span, const Give& give) noexcept {
  if (!mutex_.try_lock()) return false;
  const MutexLock lock(mutex_, std::adopt_lock);
  ShownBytes shown;
  uint64_t bytes = 0;
  if (!files_->show(file, span.begin, span.end - span.begin, &shown)) return false;
  for (const Bytes& part : shown.parts) bytes += part.size();
  return bytes == span.end - span.begin && contain([&] { give(shown.parts); }).ok();
}

}  // namespace swale::fs
