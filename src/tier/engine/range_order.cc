#include "tier/engine/range_order.h"

#include <cassert>

namespace swale::tier {

bool RangeOrder::conflicts(const Op& op) const {
  const FileState& file = shared_.files[op.file];
  if (file.barrier != kNoOp) return true;
  if (!op.is_write()) {
    if (file.held > 0) return true;
  } else if (!shared_.options.canaries.overlap_in_queue && held_.overlaps(op.file, op.offset, op.end())) {
    return true;
  }
  return file.blocked > 0 && blocked_before(op);
}

bool RangeOrder::blocked_before(const Op& op) const {
  for (const OpIndex index : blocked_) {
    const Op& before = shared_.ops[index];
    if (&before == &op) break;
    if (before.file != op.file) continue;
    if (!before.is_write() || !op.is_write()) return true;
    if (before.offset < op.end() && op.offset < before.end() && !shared_.options.canaries.overlap_in_queue)
      return true;
  }
  return false;
}

void RangeOrder::replace(OpIndex old, OpIndex by) {
  const Op& op = shared_.ops[by];
  assert(op.file == shared_.ops[old].file && op.offset == shared_.ops[old].offset);
  held_.remove(old);
  const bool held = held_.add_if_free(by, op.file, op.offset, op.end());
  assert(held);
  static_cast<void>(held);
}

void RangeOrder::block(OpIndex index) {
  Op& op = shared_.ops[index];
  op.stage = Op::Stage::kBlocked;
  ++shared_.files[op.file].blocked;
  blocked_.push_back(index);
}

void RangeOrder::unblock(size_t i) {
  FileState& file = shared_.files[shared_.ops[blocked_[i]].file];
  assert(file.blocked > 0);
  --file.blocked;
  blocked_.erase(blocked_.begin() + static_cast<ptrdiff_t>(i));
}

void RangeOrder::refuse_blocked(FileIndex file, Code code) {
  for (size_t i = 0; i < blocked_.size();) {
    const OpIndex index = blocked_[i];
    if (shared_.ops[index].file != file) {
      ++i;
      continue;
    }
    unblock(i);
    shared_.ops.finish(index, code);
  }
}

}  // namespace swale::tier
