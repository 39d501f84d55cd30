#include "fs/share/file_roots.h"

#include <algorithm>
#include <cerrno>

#include "base/coding.h"
#include "base/contain.h"

namespace swale::fs {
namespace {

// A record is a row of these, each with what follows it, sized.
enum class Kind : uint8_t {
  kBegin = 1,    // file u64 u64, size u64
  kRequest = 2,  // a request
};

void append_part(Kind kind, Bytes bytes, std::string* record) {
  append_u8(record, static_cast<uint8_t>(kind));
  append_sized(record, bytes);
}

}  // namespace

Status FileRoots::look(const ShareRequest& request, ShareAnswer* answer) {
  const auto at = files_.find(request.file);
  if (at == files_.end()) {
    SWALE_ASSIGN_OR_RETURN(answer->size, sizes_.size_of(request.file));
    answer->backing_end = answer->size;
    return {};
  }
  const File& file = *at->second;
  file.parts.visit(request.span, [&](const Span& span, NodeId node) {
    answer->parts.push_back({span, node});
  });
  const auto asking = file.nodes.find(request.node);
  if (asking != file.nodes.end()) answer->committed = asking->second.changed;
  answer->size = file.size;
  answer->backing_end = file.backing_end;
  return {};
}

// The record is made before anything changes: what has no record must be obeyed when it is asked for again.
Status FileRoots::change(const ShareRequest& request, ShareAnswer* answer, std::string* record) {
  auto at = files_.find(request.file);
  if (at == files_.end()) {
    SWALE_ASSIGN_OR_RETURN(const uint64_t size, sizes_.size_of(request.file));
    at = files_.emplace(request.file, std::make_unique<File>(size)).first;
  }
  File& file = *at->second;
  if (!file.begun) {
    std::string begin;
    for (const uint64_t word : {request.file.high, request.file.low, file.size}) append_u64(&begin, word);
    append_part(Kind::kBegin, begin, record);
  }
  append_part(Kind::kRequest, encode(request), record);
  bool changed = false;
  *answer = obey(file, request, &changed);
  if (changed)
    file.begun = true;
  else
    record->clear();
  answer->committed = file.nodes.at(request.node).changed;
  answer->size = file.size;
  answer->backing_end = file.backing_end;
  return {};
}

void FileRoots::commit(File& file, const ShareRequest& request) {
  for (const Span& span : request.spans) file.parts.put(span, request.node);
  if (!request.spans.empty()) file.size = std::max(file.size, request.spans.back().end);
  if (request.op == ShareOp::kTruncate) {
    file.parts.cut({request.size, meta::kOffsetEnd});
    file.backing_end = std::min(file.backing_end, request.size);
    file.size = file.reserved_end = request.size;
  }
  file.reserved_end = std::max(file.reserved_end, file.size);
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
  } else if (request.order > node.changed || !rules_.obey_once) {
    commit(file, request);
    node.changed = request.order;
    *changed = true;
  }
  return answer;
}

Result<ShareAnswer> FileRoots::handle(const ShareRequest& request, std::string* record) noexcept {
  ShareAnswer answer;
  record->clear();
  const Status status = contain([&]() -> Status {
    return request.op == ShareOp::kLook ? look(request, &answer) : change(request, &answer, record);
  });
  if (status.ok()) return answer;
  record->clear();
  return status;
}

Status FileRoots::replay(Bytes record) noexcept {
  return contain([&]() -> Status {
    Decoder in(record);
    while (in.remaining() > 0) {
      const uint8_t kind = in.u8();
      const Bytes bytes = in.sized();
      SWALE_RETURN_IF_ERROR(in.status("a record of the roots of files"));
      if (kind == static_cast<uint8_t>(Kind::kBegin) && bytes.size() == 24) {
        auto file = std::make_unique<File>(get_u64(bytes.data() + 16));
        file->begun = true;
        files_.insert_or_assign(meta::FileId{get_u64(bytes.data()), get_u64(bytes.data() + 8)},
                                std::move(file));
        continue;
      }
      if (kind != static_cast<uint8_t>(Kind::kRequest))
        return corruption("a record of the roots of files: byte {}: kind {} is none", in.offset(), kind);
      SWALE_ASSIGN_OR_RETURN(const ShareRequest request, decode_share_request(bytes));
      const auto at = files_.find(request.file);
      if (at == files_.end() || request.op == ShareOp::kLook)
        return corruption("a record of the roots of files: byte {}: file {:x}:{:x} was never begun",
                          in.offset(), request.file.high, request.file.low);
      bool changed = false;
      static_cast<void>(obey(*at->second, request, &changed));
    }
    return {};
  });
}

}  // namespace swale::fs
