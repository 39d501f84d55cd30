#include "fs/peers/shared_drain.h"

#include <algorithm>
#include <cerrno>

#include "base/contain.h"
#include "base/log.h"
#include "fs/peers/remote_peers.h"

namespace swale::fs {
namespace {

constexpr size_t kRangesNamed = 8;  // of a node that is down

SeenBacking seen_of(const Stamp& stamp) { return {stamp.inode, stamp.size, stamp.modified_ns}; }
Stamp as_stamp(const SeenBacking& seen) { return {0, seen.inode, seen.size, seen.modified_ns}; }

std::string ranges_of(const std::vector<Span>& spans) {
  std::string text;
  for (size_t i = 0; i < std::min(spans.size(), kRangesNamed); ++i)
    text += fmt::format("{}{} to {}", i == 0 ? "" : ", ", spans[i].begin, spans[i].end);
  if (spans.size() > kRangesNamed) text += fmt::format(" and {} more", spans.size() - kRangesNamed);
  return text;
}

}  // namespace

Result<bool> SharedDrain::prepare(const meta::FileId& file, NodeId asks, const SeenBacking& seen) noexcept {
  bool begun = false;
  const Status status = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(drain_, roots_.begin_drain(file, seen));
    begun = true;
    return fix_all(file, asks);
  });
  if (status.ok()) return !plan_.nothing;
  if (begun && rules_.end)
    end(file, false);  // also where there was no memory to fix it: else the root keeps it for good
  return status;
}

bool SharedDrain::is_known(const Stamp& now) const {
  return is_as_seen(as_stamp(plan_.backing), now) || is_as_seen(as_stamp(plan_.ours), now);
}

Status SharedDrain::fix_all(const meta::FileId& file, NodeId asks) {
  asked_ = drain_.nodes;
  for (const NodeId each : {asks, peers_.own()})
    if (std::find(asked_.begin(), asked_.end(), each) == asked_.end()) asked_.push_back(each);
  Status first;
  for (const NodeId each : asked_) {
    Status fixed;
    if (each == peers_.own())
      fixed = shared_.fix(file, drain_.number);
    else
      fixed = peers_
                  .call(each, PeerMethod::kFix, encode(DrainStep{.file = file, .drain = drain_.number}),
                        kSmallAnswer, text_of(file))
                  .status();
    if (fixed.ok()) continue;
    // What it alone has, as far as it has told. One that has nothing is not needed.
    const auto lost = roots_.parts_of(file, each);
    if (lost.empty() && each != peers_.own()) {
      log_warn("{}", fixed.message());
      continue;
    }
    fixed = fixed.with_context(fmt::format("node {} has its bytes from {}", each, ranges_of(lost)));
    if (first.ok()) first = fixed;
  }
  SWALE_RETURN_IF_ERROR(first);
  SWALE_ASSIGN_OR_RETURN(plan_, roots_.plan_drain(file));
  spans_.clear();
  for (const SharePart& part : plan_.parts) spans_[part.node].push_back(part.span);
  now_ = plan_.backing;
  return keep_left(file);
}

Result<DrainSource::Fixed> SharedDrain::fix(const meta::FileId& file) noexcept {
  Fixed fixed;
  const Status status = contain([&]() NO_THREAD_SAFETY_ANALYSIS -> Status {
    fixed.size = plan_.size;
    fixed.backing_end = plan_.backing_end;
    fixed.backing = as_stamp(plan_.backing);
    fixed.ours = as_stamp(plan_.ours);
    const auto own = spans_.find(peers_.own());
    if (own == spans_.end()) return {};
    SWALE_ASSIGN_OR_RETURN(fixed.pieces, shared_.fixed_pieces(file, own->second));
    return {};
  });
  if (!status.ok()) return status;
  return fixed;
}

Status SharedDrain::read_piece(const FileExtents::Piece& piece, uint64_t from, MutableBytes out) noexcept {
  return files_.read_piece(piece, from, out);
}

Status SharedDrain::write_others(const meta::FileId& file, io::File& out) noexcept {
  return contain([&]() -> Status {
    if (spans_.empty() || (spans_.size() == 1 && spans_.contains(peers_.own()))) return {};
    // Its inode and length must be there before others look.
    SWALE_RETURN_IF_ERROR(out.sync());
    SWALE_ASSIGN_OR_RETURN(const Stamp stamp, backing_.stamp(out));
    for (const auto& [node, spans] : spans_) {
      if (node == peers_.own()) continue;
      const DrainStep step{.file = file,
                           .drain = drain_.number,
                           .backing = seen_of(stamp),
                           .path = out.path().substr(backing_.root().size() + 1),
                           .spans = spans};
      const Status written =
          peers_.call(node, PeerMethod::kWriteOut, encode(step), kSmallAnswer, text_of(file)).status();
      if (!written.ok())
        return written.with_context(fmt::format("node {} has its bytes from {}", node, ranges_of(spans)));
    }
    return {};
  });
}

// Batches are of one file here: prepare() has fixed one.
Status SharedDrain::announce(std::span<const std::pair<meta::FileId, Stamp>> ours) noexcept {
  for (const auto& [file, stamp] : ours) SWALE_RETURN_IF_ERROR(roots_.announce(file, seen_of(stamp)));
  return {};
}

// All nodes drop what they have fixed, also what another one's commit lies over: it must not be gone before
// that commit's bytes are durable.
Status SharedDrain::keep_left(const meta::FileId& file) {
  if (!remote_.keeps()) return {};
  SWALE_ASSIGN_OR_RETURN(const KeptRoots::Sync sync, roots_.begin_sync_of_drain(file));
  if (!sync.begun) return {};
  const Status kept = remote_.keep_at(sync.ask, file);
  SWALE_RETURN_IF_ERROR(roots_.end_sync(file, kept.ok()));
  if (kept.posix_error() != EAGAIN) return kept;
  return error(Code::kBusy, Scope::kFile, "{}; drain it again", kept.message());
}

Status SharedDrain::drained(std::span<const Done> files) noexcept {
  for (const Done& done : files) {
    now_ = seen_of(done.now);
    SWALE_RETURN_IF_ERROR(roots_.drained(done.file, now_, done.aside));
  }
  return {};
}

// Nodes that are not told keep their bytes until the next drain: the root knows that they do not count.
void SharedDrain::end(const meta::FileId& file, bool published, const TouchedDirectory& touched) noexcept {
  static_cast<void>(contain([&] {
    const DrainStep step{
        .file = file, .drain = published ? drain_.number : 0, .backing = now_, .touched = touched};
    for (NodeId node = 0; node < peers_.nodes(); ++node) {
      const bool has_fixed = std::find(asked_.begin(), asked_.end(), node) != asked_.end();
      if (!published && !has_fixed) continue;
      Status told;
      if (node == peers_.own() && published)
        told = shared_.published(file, drain_.number, now_);
      else if (node == peers_.own())
        shared_.give_up(file);
      else
        told = peers_.call(node, PeerMethod::kBrought, encode(step), kSmallAnswer, text_of(file)).status();
      if (!told.ok()) log_warn("{}", told.message());
    }
  }));
  roots_.end_drain(file);
  asked_.clear();
  spans_.clear();
}

Status SharedDrain::write_out(const DrainStep& step) {
  const std::string path = backing_.root() + "/" + step.path;
  if (!is_of_names(step.path)) return corruption("a step of a drain: no path: {}", step.path);
  auto opened = backing_.device().open(path, io::OpenMode::kReadWrite);
  const int missing = opened.status().posix_error();
  if (missing == ENOENT || missing == ENOTDIR || missing == EISDIR)
    return error(Code::kBusy, Scope::kFile, "{}: it was renamed or removed meanwhile; drain it again", path);
  SWALE_RETURN_IF_ERROR(opened.status());
  const auto out = std::move(*opened);
  SWALE_ASSIGN_OR_RETURN(const Stamp stamp, backing_.stamp(*out));
  if (stamp.inode != step.backing.inode)
    return error(Code::kBusy, Scope::kFile, "{}: it has another inode than the root says; drain it again",
                 path);
  SWALE_RETURN_IF_ERROR(shared_.write_out(step.file, step.drain, step.spans, *out));
  return out->sync();
}

Result<std::string> SharedDrain::answer(PeerMethod method, Bytes payload) {
  SWALE_ASSIGN_OR_RETURN(const DrainStep step, decode_drain_step(payload));
  Status done;
  if (method == PeerMethod::kFix)
    done = shared_.fix(step.file, step.drain);
  else if (method == PeerMethod::kWriteOut)
    done = write_out(step);
  else if (step.drain != 0)
    done = shared_.published(step.file, step.drain, step.backing);
  else
    shared_.give_up(step.file);
  SWALE_RETURN_IF_ERROR(done);
  return std::string();
}

}  // namespace swale::fs
