#include "tier/engine/ops.h"

#include <utility>

namespace swale::tier {

OpIndex Ops::make(Op::Kind kind, Ticket ticket, FileIndex file) {
  if (first_free_ == kNoOp) {
    ops_.push_back(new_op_);
    first_free_ = static_cast<OpIndex>(ops_.size() - 1);
  }
  const OpIndex index = first_free_;
  Op& op = ops_[index];
  first_free_ = op.next_free;
  ++count_;
  assert(op.stage == Op::Stage::kFree && op.pins == 0);
  op = new_op_;
  op.kind = kind;
  op.ticket = ticket;
  op.file = file;
  op.file_epoch = (*files_)[file].epochs.enter();
  op.epoch = epochs_.enter();
  return index;
}

void Ops::finish(OpIndex index, Code code) {
  Op& op = ops_[index];
  assert(op.stage != Op::Stage::kFree && op.stage != Op::Stage::kPinned);
  leave_epochs(op);
  if (op.pins > 0) {  // reads see only what is acknowledged
    assert(op.acknowledged);
    op.stage = Op::Stage::kPinned;
    return;
  }
  if (op.acknowledged) return release(index);
  outbox_->answer(op.ticket, op.file, code);
  free(index);
}

void Ops::release(OpIndex index) {
  assert(ops_[index].acknowledged);
  outbox_->emit(Action::Kind::kRelease, ops_[index].file, ops_[index].ticket);
  free(index);
}

void Ops::free(OpIndex index) {
  assert(ops_[index].stage != Op::Stage::kFree && ops_[index].pins == 0);
  ops_[index].stage = Op::Stage::kFree;
  ops_[index].next_free = std::exchange(first_free_, index);
  --count_;
}

}  // namespace swale::tier
