#include "fs/share/node_share.h"

#include "base/contain.h"

namespace swale::fs {
namespace {

void add(const RangeMap<char>& from, const Span& span, RangeMap<char>* to) {
  from.visit(span, [&](const Span& part, char) { to->put(part, 0); });
}

constexpr Span kAll{0, meta::kOffsetEnd};

Status ask_first() {
  return Status(Code::kUnavailable, Scope::kFile, "its root has not said yet which bytes are committed");
}

}  // namespace

NodeShare::File& NodeShare::file_of(const meta::FileId& id) {
  const auto at = files_.find(id);
  if (at != files_.end()) return *at->second;
  auto made = std::make_unique<File>();
  return *files_.emplace(id, std::move(made)).first->second;
}

const NodeShare::File* NodeShare::find(const meta::FileId& id) const {
  const auto at = files_.find(id);
  return at == files_.end() ? nullptr : at->second.get();
}

Status NodeShare::wrote(const meta::FileId& id, const Span& span) noexcept {
  return contain([&]() -> Status {
    file_of(id).fresh.put(span, 0);
    return {};
  });
}

Status NodeShare::found(const meta::FileId& id, uint64_t order, const Span& span) noexcept {
  return contain([&]() -> Status {
    File& file = file_of(id);
    if (rules_.learn_orders)
      file.found.push_back({order, span});
    else
      file.fresh.put(span, 0);
    return {};
  });
}

std::optional<ShareRequest> NodeShare::question(const meta::FileId& id) const {
  const File* const file = find(id);
  if (file == nullptr || file->found.empty()) return {};
  return ShareRequest{.op = ShareOp::kLook, .node = node_, .file = id};
}

std::vector<meta::FileId> NodeShare::found() const {
  std::vector<meta::FileId> files;
  for (const auto& [id, file] : files_)
    if (!file->found.empty()) files.push_back(id);
  return files;
}

Status NodeShare::learn(const meta::FileId& id, const ShareAnswer& answer) noexcept {
  return contain([&]() -> Status {
    File& file = file_of(id);
    for (const Found& each : file.found)
      if (each.order > answer.committed) file.fresh.put(each.span, 0);
    file.found.clear();
    return {};
  });
}

Result<ShareRequest> NodeShare::begin(const meta::FileId& id, File& file, ShareOp op, uint64_t order) {
  if (!file.found.empty()) return ask_first();
  if (file.busy)
    return Status(Code::kBusy, Scope::kFile, "a commit or truncate of this file is under way on this node");
  ShareRequest request{.op = op, .node = node_, .file = id, .order = order};
  RangeMap<char> all = file.underway;
  add(file.fresh, kAll, &all);
  request.spans.reserve(all.size());
  all.visit(kAll, [&](const Span& span, char) { request.spans.push_back(span); });
  file.underway = std::move(all);
  file.fresh.clear();
  file.busy = true;
  return request;
}

Result<std::optional<ShareRequest>> NodeShare::begin_commit(const meta::FileId& id, uint64_t order) noexcept {
  std::optional<ShareRequest> request;
  const Status status = contain([&]() -> Status {
    const auto at = files_.find(id);
    if (at == files_.end()) return {};
    File& file = *at->second;
    const bool nothing = file.fresh.empty() && file.underway.empty() && file.found.empty() && !file.unknown;
    if (nothing) return {};
    SWALE_ASSIGN_OR_RETURN(request, begin(id, file, ShareOp::kCommit, order));
    return {};
  });
  if (!status.ok()) return status;
  return request;
}

Result<ShareRequest> NodeShare::begin_sized(const meta::FileId& id, ShareOp op, uint64_t order,
                                            uint64_t size) noexcept {
  ShareRequest request;
  const Status status = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(request, begin(id, file_of(id), op, order));
    request.size = size;
    return {};
  });
  if (!status.ok()) return status;
  return request;
}

Result<ShareRequest> NodeShare::begin_truncate(const meta::FileId& id, uint64_t order,
                                               uint64_t size) noexcept {
  return begin_sized(id, ShareOp::kTruncate, order, size);
}

Result<ShareRequest> NodeShare::begin_fix(const meta::FileId& id, uint64_t order, uint64_t drain) noexcept {
  return begin_sized(id, ShareOp::kFix, order, drain);
}

Result<ShareRequest> NodeShare::begin_sync(const meta::FileId& id, uint64_t order) noexcept {
  return begin_sized(id, ShareOp::kSync, order, 0);
}

void NodeShare::end_change(const meta::FileId& id, Ended ended) noexcept {
  const auto at = files_.find(id);
  if (at == files_.end()) return;
  File& file = *at->second;
  file.busy = false;
  file.unknown = ended == Ended::kUnknown;
  if (file.unknown) return;
  file.underway.clear();
  if (file.fresh.empty() && file.found.empty()) files_.erase(at);
}

ShareRequest NodeShare::reservation(const meta::FileId& id, uint64_t order, uint64_t bytes) const {
  const File* const file = find(id);
  const uint64_t end = file == nullptr ? 0 : file->end();
  return {
      .op = ShareOp::kReserve, .node = node_, .file = id, .order = order, .span = {0, end}, .size = bytes};
}

Result<NodeShare::Reading> NodeShare::begin_read(const meta::FileId& id, const Span& span) const noexcept {
  Reading reading{id, span, {}, 0};
  const Status status = contain([&]() -> Status {
    const File* const file = find(id);
    if (file == nullptr) return {};
    if (!file->found.empty()) return ask_first();
    reading.own_end = file->end();
    if (!rules_.own_from_begin) return {};
    add(file->underway, span, &reading.own);
    add(file->fresh, span, &reading.own);
    return {};
  });
  if (!status.ok()) return status;
  return reading;
}

ShareRequest NodeShare::look(const Reading& reading) const {
  return {.op = ShareOp::kLook, .node = node_, .file = reading.file, .span = reading.span};
}

Result<std::vector<ReadPart>> NodeShare::plan(const Reading& reading,
                                              const ShareAnswer& answer) const noexcept {
  std::vector<ReadPart> parts;
  const Status status = contain([&]() -> Status {
    using From = ReadPart::From;
    struct Source {
      From from;
      NodeId node;
      bool operator==(const Source&) const = default;
    };
    RangeMap<Source> sources;
    const uint64_t end = std::min(reading.span.end, std::max(answer.size, reading.own_end));
    const auto put = [&](const Span& span, const Source& source) {
      sources.put({std::max(span.begin, reading.span.begin), std::min(span.end, end)}, source);
    };
    put({0, end}, {From::kZeros, 0});
    put({0, answer.backing_end}, {From::kBacking, 0});
    for (const SharePart& part : answer.parts)
      put(part.span, part.node == node_ ? Source{From::kOwn, 0} : Source{From::kNode, part.node});
    reading.own.visit(reading.span, [&](const Span& span, char) { put(span, {From::kOwn, 0}); });
    sources.visit(kAll, [&](const Span& span, const Source& source) {
      parts.push_back({span, source.from, source.node});
    });
    return {};
  });
  if (!status.ok()) return status;
  return parts;
}

Result<std::vector<Span>> NodeShare::own_at_end(const Reading& reading) const noexcept {
  std::vector<Span> spans;
  const Status status = contain([&]() -> Status {
    const File* const file = find(reading.file);
    if (file == nullptr) return {};
    RangeMap<char> own;
    add(file->underway, reading.span, &own);
    add(file->fresh, reading.span, &own);
    own.visit(reading.span, [&](const Span& span, char) { spans.push_back(span); });
    return {};
  });
  if (!status.ok()) return status;
  return spans;
}

Result<RangeMap<char>> NodeShare::own_on_top(const Reading& reading,
                                             const ShareAnswer& answer) const noexcept {
  RangeMap<char> own;
  const Status status = contain([&]() -> Status {
    for (const SharePart& part : answer.parts)
      if (part.node == node_) own.put(part.span, 0);
    const File* const file = find(reading.file);
    if (file == nullptr) return {};
    add(file->underway, reading.span, &own);
    add(file->fresh, reading.span, &own);
    return {};
  });
  if (!status.ok()) return status;
  return own;
}

uint64_t NodeShare::size(const meta::FileId& id, const ShareAnswer& answer) const {
  const File* const file = find(id);
  return file == nullptr ? answer.size : std::max(answer.size, file->end());
}

}  // namespace swale::fs
