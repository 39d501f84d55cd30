// Engine: where the bytes of a file are.
#include <algorithm>
#include <cassert>

#include "tier/engine/engine.h"

namespace swale::tier {
namespace {

bool reads_backing(const ReadPlan& plan) {
  return std::any_of(plan.pieces.begin(), plan.pieces.end(),
                     [](const ReadPiece& piece) { return piece.from == ReadPiece::From::kBacking; });
}

}  // namespace

void Engine::plan_read(FileIndex index, uint64_t offset, uint64_t length, ReadPlan* plan) {
  const FileState& file = shared_.files[index];
  plan->file = index;
  plan->pieces.clear();
  const auto add_stored = [&](uint64_t from, uint64_t to) {
    uint64_t at = from;
    const auto backing = [&](uint64_t end) {
      if (at < end)
        plan->pieces.push_back({.from = ReadPiece::From::kBacking, .offset = at, .length = end - at});
      at = end;
    };
    file.map.visit(from, to, [&](const Extent& extent) {
      if (Losses::is_lost(extent)) {
        const LostRange& lost = losses_.range(extent);
        backing(extent.offset);
        plan->pieces.push_back({.from = ReadPiece::From::kLost,
                                .offset = extent.offset,
                                .length = extent.length,
                                .address = lost.address,
                                .reason = lost.reason});
        at = extent.end();
        return;
      }
      const uint32_t segment = shared_.log.segment_of(extent.address);
      // What is being erased, and what a failing SSD has, is read where it is whole.
      const bool elsewhere =
          extent.state == ExtentState::kClean &&
          (!records_.usable() || shared_.log.at(segment).state >= Segment::State::kErasing);
      if (elsewhere) return;
      backing(extent.offset);
      ++shared_.log.at(segment).pins;
      plan->pieces.push_back({.from = ReadPiece::From::kLog,
                              .offset = extent.offset,
                              .length = extent.length,
                              .address = extent.address,
                              .record = shared_.log.record_of(extent.address),
                              .on_backing = extent.state == ExtentState::kClean,
                              .pinned = segment});
      at = extent.end();
    });
    backing(to);
  };
  uint64_t at = offset;
  const uint64_t asked = offset + length;
  const uint64_t end = std::clamp(file.size, offset, asked);
  for (const OpIndex op_index : order_.holders(index, offset, end)) {
    Op& op = shared_.ops[op_index];
    if (!op.acknowledged) continue;  // its bytes may be read as they were
    const uint64_t from = std::max(op.offset, offset);
    const uint64_t to = std::min(op.offset + op.length, end);
    if (at < from) add_stored(at, from);
    ++op.pins;
    plan->pieces.push_back({.from = ReadPiece::From::kQueue,
                            .offset = from,
                            .length = to - from,
                            .ticket = op.ticket,
                            .skip = from - op.offset,
                            .pinned = op_index});
    at = to;
  }
  if (at < end) add_stored(at, end);
  if (reads_backing(*plan)) costs_.wait_begins();
  if (end < asked)
    plan->pieces.push_back({.from = ReadPiece::From::kZeros, .offset = end, .length = asked - end});
}

void Engine::read_done(const ReadPlan& plan, Nanos now) {
  set_now(now);
  if (reads_backing(plan)) costs_.wait_ends();
  for (const ReadPiece& piece : plan.pieces) {
    if (piece.from == ReadPiece::From::kLog) {
      Segment& segment = shared_.log.at(piece.pinned);
      if (--segment.pins == 0 && segment.state == Segment::State::kLogSync) shared_.segments_changed = true;
    } else if (piece.from == ReadPiece::From::kQueue) {
      Op& op = shared_.ops[piece.pinned];
      if (--op.pins == 0 && op.stage == Op::Stage::kPinned) shared_.ops.release(piece.pinned);
    }
  }
  pump();
}

std::vector<std::pair<FileIndex, uint64_t>> Engine::dirty_files() const {
  std::vector<std::pair<FileIndex, uint64_t>> dirty;
  for (FileIndex i = 0; i < shared_.files.size(); ++i) {
    uint64_t bytes = 0;
    shared_.files[i].map.visit(0, kFileBytesMax, [&bytes](const Extent& extent) {
      if (extent.state < ExtentState::kClean) bytes += extent.length;
    });
    if (bytes > 0) dirty.emplace_back(i, bytes);
  }
  return dirty;
}

}  // namespace swale::tier
