// FileRoots: committed bytes that the disks of their nodes may lack, and what makes them durable.
#include <algorithm>

#include "base/contain.h"
#include "fs/share/file_roots.h"

namespace swale::fs {
// Bytes are committed there, whose node's disk may lack them.
void FileRoots::loosen(File& file, const Span& span) {
  RangeMap<NodeId> before;
  file.parts.visit(span, [&](const Span& part, NodeId node) { before.put(part, node); });
  file.loose.visit(span, [&](const Span& part, const Loose& loose) { before.put(part, loose.before); });
  file.loose.put(span, {kNobody, file.syncs});
  before.visit(kWholeFile, [&](const Span& part, NodeId node) { file.loose.put(part, {node, file.syncs}); });
}

bool FileRoots::is_syncing(const meta::FileId& id) const {
  const auto at = files_.find(id);
  return at != files_.end() && at->second->syncing != nullptr;
}

bool FileRoots::is_draining(const meta::FileId& id) const {
  const auto at = files_.find(id);
  return at != files_.end() && at->second->draining != nullptr;
}

Result<bool> FileRoots::begin_sync(const meta::FileId& id, NodeId asks, std::vector<NodeId>* ask) noexcept {
  bool begun = false;
  const Status status = contain([&] {
    const auto at = files_.find(id);
    begun = at == files_.end() || !at->second->syncing;
    if (at == files_.end() || !begun) return;
    File& file = *at->second;
    auto syncing = std::make_unique<RangeMap<NodeId>>();
    file.loose.visit(kWholeFile, [&](const Span& span, const Loose&) {
      file.parts.visit(span, [&](const Span& part, NodeId node) {
        syncing->put(part, node);
        const bool is_known = std::find(ask->begin(), ask->end(), node) != ask->end();
        if (node != asks && !is_known && rules_.asks_owners) ask->push_back(node);
      });
    });
    if (file.draining) {
      RangeMap<char> safe;
      syncing->visit(kWholeFile, [&](const Span& span, NodeId) { safe.put(span, 0); });
      file.draining->unchanged.visit(kWholeFile, [&](const Span& span, char) { safe.cut(span); });
      file.draining->safe = std::move(safe);
    }
    ++file.syncs;
    file.syncing = std::move(syncing);
  });
  if (!status.ok()) return status;
  return begun;
}

Status FileRoots::end_sync(const meta::FileId& id, bool kept, std::string* record) noexcept {
  record->clear();
  const auto at = files_.find(id);
  if (at == files_.end() || !at->second->syncing) return {};
  File& file = *at->second;
  const std::unique_ptr<RangeMap<NodeId>> syncing = std::move(file.syncing);
  if (!kept || syncing->empty()) return {};
  return contain([&] {
    RangeMap<Loose> loose = file.loose;
    uint64_t kept_size = file.kept_size;
    syncing->visit(kWholeFile, [&](const Span& span, NodeId node) {
      file.loose.visit(span, [&](const Span& part, const Loose& each) {
        each.syncs < file.syncs ? loose.cut(part) : loose.put(part, {node, each.syncs});
        kept_size = std::max(kept_size, part.end);
      });
    });
    append_loose(id, loose, kept_size, record);
    file.loose = std::move(loose);
    file.kept_size = kept_size;
  });
}

// False: it had nothing that is loose.
bool FileRoots::lose(File& file, NodeId node) {
  RangeMap<NodeId> gone;
  file.loose.visit(kWholeFile, [&](const Span& span, const Loose& loose) {
    file.parts.visit(span, [&](const Span& part, NodeId owner) {
      if (owner == node) gone.put(part, loose.before);
    });
  });
  gone.visit(kWholeFile, [&](const Span& span, NodeId before) {
    file.loose.cut(span);
    before == kNobody ? file.parts.cut(span) : file.parts.put(span, before);
  });
  if (!gone.empty()) file.size = std::max({file.kept_size, file.backing_end, file.parts.end()});
  return !gone.empty();
}

Result<uint64_t> FileRoots::begin_node(NodeId node, bool has_lost_power, std::string* record) noexcept {
  record->clear();
  uint64_t order = 0;
  const Status status = contain([&] {
    for (const auto& [id, file] : files_) {
      const auto known = file->nodes.find(node);
      if (known == file->nodes.end()) continue;
      order = std::max({order, known->second.changed, known->second.reserved});
      if (has_lost_power && lose(*file, node)) append_state(id, *file, record);
    }
  });
  if (!status.ok()) return status;
  return order;
}

// A commit that has come between the fixing of two nodes may lie over bytes that neither gave to the drain.
Result<bool> FileRoots::needs_sync(const meta::FileId& id) noexcept {
  bool needs = false;
  const Status status = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(File* const file, draining(id));
    RangeMap<char> left;
    file->loose.visit(kWholeFile, [&](const Span& span, const Loose& each) {
      if (each.before != kNobody) left.put(span, 0);
    });
    const auto cut = [&](const Span& span, const auto&) { left.cut(span); };
    file->draining->parts.visit(kWholeFile, cut);
    file->draining->safe.visit(kWholeFile, cut);
    needs = !left.empty();
    return {};
  });
  if (!status.ok()) return status;
  return needs;
}

}  // namespace swale::fs
