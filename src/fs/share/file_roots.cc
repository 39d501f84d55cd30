#include "fs/share/file_roots.h"

#include <algorithm>
#include <cerrno>

#include "base/coding.h"
#include "base/contain.h"
#include "fs/share/share_coding.h"

namespace swale::fs {
namespace {

// Of a record's parts.
enum class Kind : uint8_t { kRequest = 2, kState = 3, kLoose = 4 };

void append_part(Kind kind, Bytes bytes, std::string* record) {
  append_u8(record, static_cast<uint8_t>(kind));
  append_sized(record, bytes);
}

// Ranges with what nodes they are of; each begin is told from the end before it.
template <class Value, class NodeOf>
void append_ranges(const RangeMap<Value>& ranges, const NodeOf& node_of, std::string* out) {
  append_varint(out, ranges.size());
  uint64_t end = 0;
  ranges.visit(kWholeFile, [&](const Span& span, const Value& value) {
    append_varint(out, span.begin - end);
    append_varint(out, span.end - span.begin);
    append_u32(out, node_of(value));
    end = span.end;
  });
}
// False: these bytes are none.
template <class Put>
bool take_ranges(Decoder* in, const Put& put) {
  uint64_t end = 0;
  for (uint64_t left = in->varint64(); left > 0 && in->ok(); --left) {
    const uint64_t skip = in->varint64(), length = in->varint64();
    const NodeId node = in->u32();
    if (!in->ok() || skip > meta::kOffsetEnd - end || length > meta::kOffsetEnd - end - skip) return false;
    put(Span{end + skip, end + skip + length}, node);
    end += skip + length;
  }
  return true;
}

}  // namespace

void FileRoots::append_state(const meta::FileId& id, const File& file, std::string* record) {
  std::string state;
  append_id(&state, id);
  for (const uint64_t word : {file.size, file.backing_end, file.reserved_end}) append_u64(&state, word);
  append_seen(&state, file.backing);
  append_seen(&state, file.ours);
  append_varint(&state, file.nodes.size());
  for (const auto& [number, node] : file.nodes) {
    append_u32(&state, number);
    for (const uint64_t word : {node.changed, node.reserved, node.offset}) append_u64(&state, word);
  }
  append_ranges(
      file.parts, [](NodeId node) { return node; }, &state);
  append_part(Kind::kState, state, record);
  if (!file.loose.empty() || file.kept_size != file.size)
    append_loose(id, file.loose, file.kept_size, record);
}

void FileRoots::append_loose(const meta::FileId& id, const RangeMap<Loose>& loose, uint64_t kept_size,
                             std::string* record) {
  std::string text;
  append_id(&text, id);
  append_u64(&text, kept_size);
  append_ranges(
      loose, [](const Loose& each) { return each.before; }, &text);
  append_part(Kind::kLoose, text, record);
}

Status FileRoots::take_state(Bytes bytes) {
  Decoder in(bytes);
  const meta::FileId id = take_id(&in);
  auto file = std::make_unique<File>(SeenBacking{});
  file->size = in.u64();
  file->backing_end = in.u64();
  file->reserved_end = in.u64();
  file->backing = take_seen(&in);
  file->ours = take_seen(&in);
  for (uint64_t left = in.varint64(); left > 0 && in.ok(); --left) {
    Node& node = file->nodes[in.u32()];
    node.changed = in.u64(), node.reserved = in.u64(), node.offset = in.u64();
  }
  const bool good = take_ranges(&in, [&](const Span& span, NodeId node) { file->parts.put(span, node); });
  if (good) SWALE_RETURN_IF_ERROR(in.finish("the state of a file"));
  if (!good || id.none() || file->parts.end() > file->size)
    return corruption("the state of file {:x}:{:x}: its numbers are none of a file", id.high, id.low);
  file->kept_size = file->size;  // no kLoose follows where nothing is
  file->begun = true;
  files_.insert_or_assign(id, std::move(file));
  return {};
}

Status FileRoots::take_loose(Bytes bytes) {
  Decoder in(bytes);
  const meta::FileId id = take_id(&in);
  const uint64_t kept_size = in.u64();
  RangeMap<Loose> told;
  const bool good = take_ranges(&in, [&](const Span& span, NodeId before) { told.put(span, {before, 0}); });
  if (good) SWALE_RETURN_IF_ERROR(in.finish("the loose bytes of a file"));
  const auto at = files_.find(id);
  if (!good || at == files_.end() || kept_size > meta::kOffsetEnd)
    return corruption("the loose bytes of file {:x}:{:x}: its numbers are none of a file", id.high, id.low);
  // A commit that memory has ended for may have been under way, which has no record: its bytes are nobody's.
  File& file = *at->second;
  RangeMap<Loose> loose;
  told.visit(kWholeFile, [&](const Span& span, const Loose& each) {
    file.parts.visit(span, [&](const Span& part, NodeId) { loose.put(part, each); });
  });
  file.loose = std::move(loose);
  file.kept_size = std::min(kept_size, file.size);
  return {};
}

Status FileRoots::states(const std::function<Status(Bytes)>& visit) const noexcept {
  return contain([&]() -> Status {
    for (const auto& [id, file] : files_) {
      if (!file->begun) continue;
      std::string record;
      append_state(id, *file, &record);
      SWALE_RETURN_IF_ERROR(visit(record));
    }
    return {};
  });
}

void FileRoots::look(const ShareRequest& request, ShareAnswer* answer) const {
  const auto at = files_.find(request.file);
  if (at == files_.end()) {
    answer->size = answer->backing_end = request.backing.size;
    answer->backing_inode = request.backing.inode;
    return;
  }
  const File& file = *at->second;
  file.parts.visit(request.span, [&](const Span& span, NodeId node) {
    answer->parts.push_back({span, node});
  });
  const auto asking = file.nodes.find(request.node);
  if (asking != file.nodes.end()) answer->committed = asking->second.changed;
  answer->size = file.size;
  answer->backing_end = file.backing_end;
  answer->backing_inode = file.backing.inode;
  if (request.op == ShareOp::kLook && request.span.begin == request.span.end)
    answer->holds = appenders(file, request.node);
}

// Other nodes that have asked for a place since their last commit: what they append there may yet come.
std::vector<ShareHold> FileRoots::appenders(const File& file, NodeId but) {
  std::vector<ShareHold> found;
  for (const auto& [node, each] : file.nodes)
    if (node != but && each.reserved > each.changed) found.push_back({node, each.reserved});
  return found;
}

FileRoots::File& FileRoots::file_of(const meta::FileId& id, const SeenBacking& seen) {
  auto at = files_.find(id);
  if (at == files_.end()) at = files_.emplace(id, std::make_unique<File>(seen)).first;
  return *at->second;
}

void FileRoots::hold(const ShareRequest& request) { holds_[request.file][request.node] = ++last_hold_; }

// A node that holds it anew since has another number.
void FileRoots::let_go(const ShareRequest& request) {
  const auto at = holds_.find(request.file);
  if (at == holds_.end()) return;
  for (const ShareHold& each : request.holds) {
    const auto hold = at->second.find(each.node);
    if (hold != at->second.end() && hold->second == each.number) at->second.erase(hold);
  }
  if (at->second.empty()) holds_.erase(at);
}

// Also for a late copy of a change: its answer may be the one that the node gets.
std::vector<ShareHold> FileRoots::holds_of_others(const ShareRequest& request) const {
  std::vector<ShareHold> holds;
  const auto at = holds_.find(request.file);
  const bool shows = request.op == ShareOp::kTruncate || !request.spans.empty();
  if (at == holds_.end() || !shows) return holds;
  for (const auto& [node, number] : at->second)
    if (node != request.node) holds.push_back({node, number});
  return holds;
}

// The record is made before anything changes: what has no record must be obeyed when it is asked for again.
void FileRoots::change(const ShareRequest& request, ShareAnswer* answer, std::string* record) {
  File& file = file_of(request.file, request.backing);
  if (!file.begun) append_state(request.file, file, record);
  append_part(Kind::kRequest, encode(request), record);
  bool changed = false;
  *answer = obey(file, request, &changed);
  if (changed)
    file.begun = true;
  else
    record->clear();
  answer->holds = holds_of_others(request);
  answer->committed = file.nodes.at(request.node).changed;
  answer->size = file.size;
  answer->backing_end = file.backing_end;
  answer->backing_inode = file.backing.inode;
}

void FileRoots::commit(File& file, const ShareRequest& request) const {
  Draining* const draining = file.draining.get();
  for (const Span& span : request.spans) {
    loosen(file, span);
    file.parts.put(span, request.node);
    if (draining != nullptr && rules_.keep_changed) draining->unchanged.cut(span);
  }
  if (!request.spans.empty()) file.size = std::max(file.size, request.spans.back().end);
  if (request.op == ShareOp::kTruncate) {
    const Span gone{request.size, meta::kOffsetEnd};
    file.parts.cut(gone);
    file.loose.cut(gone);
    if (file.syncing) file.syncing->cut(gone);
    file.backing_end = std::min(file.backing_end, request.size);
    file.size = file.kept_size = request.size;
    if (!rules_.keeps_places || appenders(file, request.node).empty()) file.reserved_end = request.size;
    if (draining != nullptr) {
      draining->unchanged.cut(gone);
      draining->safe.cut(gone);
      if (draining->planned)
        draining->cut_to = std::min(draining->cut_to, request.size);
      else
        draining->parts.cut(gone);
    }
  }
  file.reserved_end = std::max(file.reserved_end, file.size);
}

// What the node has last, at this moment. What it had before, and another node has now, is that one's.
void FileRoots::fix(File& file, NodeId node) {
  file.parts.visit(kWholeFile, [&](const Span& span, NodeId owner) {
    if (owner != node) return;
    file.draining->parts.put(span, node);
    file.draining->unchanged.put(span, 0);
  });
}

int FileRoots::reserve(File& file, Node& node, const ShareRequest& request) {
  const uint64_t offset = std::max(file.reserved_end, request.span.end);
  if (request.size > meta::kOffsetEnd - offset) return EFBIG;
  node.reserved = request.order, node.offset = offset;
  file.reserved_end = offset + request.size;
  return 0;
}

ShareAnswer FileRoots::obey(File& file, const ShareRequest& request, bool* changed) {
  ShareAnswer answer;
  Node& node = file.nodes[request.node];
  if (request.op == ShareOp::kReserve) {
    if (request.order > node.reserved || !rules_.obey_once) {
      answer.error = reserve(file, node, request);
      *changed = answer.error == 0;
    } else if (request.order < node.reserved) {
      answer.error = ESTALE;  // a late copy: nobody waits for this answer
    }
    answer.offset = node.offset;
    return answer;
  }
  const bool fixes = request.op == ShareOp::kFix;
  if (fixes && (!file.draining || file.draining->number != request.size || file.draining->planned))
    answer.error = ESTALE;  // of a drain that was given up: it is a commit all the same
  if (request.order > node.changed || !rules_.obey_once) {
    commit(file, request);
    node.changed = request.order;
    *changed = true;
  }
  if (fixes && answer.error == 0) fix(file, request.node);
  return answer;
}

bool FileRoots::cuts(const ShareRequest& request) const {
  if (request.op != ShareOp::kTruncate) return false;
  const auto at = files_.find(request.file);
  return request.size < (at == files_.end() ? request.backing.size : at->second->size);
}

Result<ShareAnswer> FileRoots::handle(const ShareRequest& request, std::string* record) noexcept {
  ShareAnswer answer;
  record->clear();
  const Status status = contain([&] {
    if (may_change(request)) return change(request, &answer, record);
    if (request.op == ShareOp::kLetGo) return let_go(request);
    look(request, &answer);
    if (request.op == ShareOp::kHold) hold(request);
  });
  if (status.ok()) return answer;
  record->clear();
  return status;
}

// ---- drains

Result<FileRoots::Drain> FileRoots::begin_drain(const meta::FileId& id, const SeenBacking& seen) noexcept {
  Drain drain;
  const Status status = contain([&]() -> Status {
    File& file = file_of(id, seen);
    if (file.draining)
      return error(Code::kBusy, Scope::kFile, "file {:x}:{:x}: it is being drained", id.high, id.low);
    for (const auto& [node, changes] : file.nodes) drain.nodes.push_back(node);
    file.draining = std::make_unique<Draining>();
    file.draining->number = drain.number = ++drains_;
    return {};
  });
  if (!status.ok()) return status;
  return drain;
}

Result<FileRoots::File*> FileRoots::draining(const meta::FileId& id) {
  const auto at = files_.find(id);
  if (at != files_.end() && at->second->draining) return at->second.get();
  return error(Code::kInternal, Scope::kFile, "file {:x}:{:x}: no drain of it has begun", id.high, id.low);
}

Result<FileRoots::Plan> FileRoots::plan_drain(const meta::FileId& id) noexcept {
  Plan plan;
  const Status status = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(File* const file, draining(id));
    file->draining->parts.visit(kWholeFile, [&](const Span& span, NodeId node) {
      plan.parts.push_back({span, node});
    });
    plan.size = file->draining->size = file->size;
    plan.backing_end = file->backing_end;
    plan.backing = file->backing;
    plan.ours = file->ours;
    plan.nothing = plan.parts.empty() && file->backing.inode != 0 && file->size == file->backing.size &&
                   file->backing_end == file->size;
    file->draining->planned = true;
    return {};
  });
  if (!status.ok()) return status;
  return plan;
}

Status FileRoots::announce(const meta::FileId& id, const SeenBacking& ours, std::string* record) noexcept {
  return contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(File* const file, draining(id));
    const SeenBacking before = file->ours;
    file->ours = ours;
    const Status made = contain([&] { append_state(id, *file, record); });
    if (made.ok())
      file->begun = true;
    else
      file->ours = before;
    return made;
  });
}

// Ranges that another commit has changed meanwhile stay with their nodes.
Status FileRoots::drained(const meta::FileId& id, const SeenBacking& now, bool aside,
                          std::string* record) noexcept {
  return contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(File* const file, draining(id));
    const Draining& drain = *file->draining;
    drain.unchanged.visit(kWholeFile, [&](const Span& span, char) {
      file->parts.cut(span);
      file->loose.cut(span);
    });
    // What was before the others is on the backing, or has gone to where it counts no more.
    RangeMap<Loose> loose;
    file->loose.visit(kWholeFile, [&](const Span& span, const Loose& each) {
      loose.put(span, {kNobody, each.syncs});
      drain.safe.visit(span, [&](const Span& part, char) { loose.put(part, each); });
    });
    file->loose = std::move(loose);
    file->backing = now;
    file->ours = {};
    file->backing_end = std::min(now.size, drain.cut_to);
    if (aside) file->size = std::max(file->backing_end, file->parts.end());
    file->kept_size = std::min(file->size, std::max(file->kept_size, file->backing_end));
    file->begun = true;
    append_state(id, *file, record);
    return {};
  });
}

void FileRoots::end_drain(const meta::FileId& id) noexcept {
  const auto at = files_.find(id);
  if (at != files_.end()) at->second->draining.reset();
}

std::vector<Span> FileRoots::parts_of(const meta::FileId& id, NodeId node) const {
  std::vector<Span> spans;
  const auto at = files_.find(id);
  if (at == files_.end()) return spans;
  at->second->parts.visit(kWholeFile, [&](const Span& span, NodeId owner) {
    if (owner == node) spans.push_back(span);
  });
  return spans;
}

std::vector<FileRoots::Known> FileRoots::known() const {
  std::vector<Known> all;
  for (const auto& [id, file] : files_) {
    if (!file->begun) continue;
    Known& each = all.emplace_back();
    each.file = id;
    each.size = file->size;
    each.backing_end = file->backing_end;
    each.backing = file->backing;
    each.ours = file->ours;
    each.kept_size = file->kept_size;
    each.parts = file->parts;
    file->loose.visit(kWholeFile,
                      [&](const Span& span, const Loose& loose) { each.loose.put(span, loose.before); });
    for (const auto& [number, node] : file->nodes) each.changed[number] = node.changed;
  }
  return all;
}

Status FileRoots::replay(Bytes record) noexcept {
  return contain([&]() -> Status {
    Decoder in(record);
    while (in.remaining() > 0) {
      const uint8_t kind = in.u8();
      const Bytes bytes = in.sized();
      SWALE_RETURN_IF_ERROR(in.status("a record of the roots of files"));
      if (kind == static_cast<uint8_t>(Kind::kState) || kind == static_cast<uint8_t>(Kind::kLoose)) {
        SWALE_RETURN_IF_ERROR(kind == static_cast<uint8_t>(Kind::kState) ? take_state(bytes)
                                                                         : take_loose(bytes));
        continue;
      }
      if (kind != static_cast<uint8_t>(Kind::kRequest))
        return corruption("a record of the roots of files: byte {}: kind {} is none", in.offset(), kind);
      SWALE_ASSIGN_OR_RETURN(const ShareRequest request, decode_share_request(bytes));
      const auto at = files_.find(request.file);
      if (at == files_.end() || !may_change(request))
        return corruption("a record of the roots of files: byte {}: file {:x}:{:x} was never begun",
                          in.offset(), request.file.high, request.file.low);
      bool changed = false;
      static_cast<void>(obey(*at->second, request, &changed));
    }
    return {};
  });
}

}  // namespace swale::fs
