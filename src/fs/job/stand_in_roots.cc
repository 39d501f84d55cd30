#include "fs/job/stand_in_roots.h"

#include <algorithm>
#include <utility>

#include "base/coding.h"
#include "base/contain.h"
#include "fs/share/share_coding.h"

namespace swale::fs {

std::string encode(const StandInStep& step) {
  std::string out;
  append_id(&out, step.file);
  append_u8(&out, static_cast<uint8_t>(step.op));
  append_u8(&out, step.uses);
  append_u8(&out, step.changed ? 1 : 0);
  append_u8(&out, step.alone ? 1 : 0);
  append_u64(&out, step.number);
  return out;
}

Result<StandInStep> decode_stand_in_step(Bytes bytes) {
  Decoder in(bytes);
  StandInStep step;
  step.file = take_id(&in);
  const uint8_t op = in.u8();
  step.uses = in.u8();
  step.changed = in.u8() != 0;
  step.alone = in.u8() != 0;
  step.number = in.u64();
  SWALE_RETURN_IF_ERROR(in.finish("what a node says of its stand-in"));
  if (op > static_cast<uint8_t>(StandInOp::kTurnOver) || step.file.none())
    return corruption("what a node says of its stand-in: {} of file {:x}:{:x} is nothing that it may say", op,
                      step.file.high, step.file.low);
  step.op = static_cast<StandInOp>(op);
  return step;
}

std::string encode(const StandInAnswer& answer) {
  std::string out;
  append_u8(&out, answer.granted ? 1 : 0);
  append_u64(&out, answer.number);
  append_u64(&out, answer.before);
  append_u32(&out, answer.taking);
  append_varint(&out, answer.nodes.size());
  for (const NodeId node : answer.nodes) append_u32(&out, node);
  return out;
}

Result<StandInAnswer> decode_stand_in_answer(Bytes bytes) {
  Decoder in(bytes);
  StandInAnswer answer;
  answer.granted = in.u8() != 0;
  answer.number = in.u64();
  answer.before = in.u64();
  answer.taking = in.u32();
  for (uint64_t left = in.varint64(); left > 0 && in.ok(); --left) answer.nodes.push_back(in.u32());
  SWALE_RETURN_IF_ERROR(in.finish("which nodes have stand-ins of a file"));
  return answer;
}

std::string encode(const TakeInWish& wish) {
  std::string out;
  append_id(&out, wish.file);
  append_u8(&out, wish.takes ? 1 : 0);
  return out;
}

Result<TakeInWish> decode_take_in_wish(Bytes bytes) {
  Decoder in(bytes);
  TakeInWish wish;
  wish.file = take_id(&in);
  wish.takes = in.u8() != 0;
  SWALE_RETURN_IF_ERROR(in.finish("which file a node is to take in"));
  return wish;
}

std::string encode(const TakeInAnswer& answer) {
  std::string out;
  append_u64(&out, answer.size);
  append_u64(&out, static_cast<uint64_t>(answer.modified_ns));
  return out;
}

Result<TakeInAnswer> decode_take_in_answer(Bytes bytes) {
  Decoder in(bytes);
  TakeInAnswer answer;
  answer.size = in.u64();
  answer.modified_ns = static_cast<int64_t>(in.u64());
  SWALE_RETURN_IF_ERROR(in.finish("what a node has of a file"));
  return answer;
}

// This node's own appends come in beside it: as another node's.
bool StandInRoots::may_take_alone(const File& file, NodeId node, const StandInStep& step) const {
  if (file.number != step.number || file.taking != kNobody) return false;
  return std::all_of(file.uses.begin(), file.uses.end(), [&](const auto& each) {
    const int others = each.first == node ? each.second & ~step.uses : each.second;
    return (others & kUsesThatWrite) == 0;
  });
}

// Whose turn a node waits for; kNobody: its own may begin.
NodeId StandInRoots::in_the_way(const File& file, NodeId node, bool alone) {
  if (file.alone != kNobody && file.alone != node) return file.alone;
  if (alone)
    for (const NodeId each : file.turns)
      if (each != node) return each;
  return kNobody;
}

StandInAnswer StandInRoots::obey(NodeId from, const StandInStep& step) {
  const MutexLock lock(mutex_);
  StandInAnswer answer;
  auto at = files_.find(step.file);
  if (at == files_.end()) {
    if (step.op != StandInOp::kOpen && step.op != StandInOp::kTurn) {
      answer.granted = false;
      if (step.op == StandInOp::kTook && step.changed) answer.number = ++last_;
      return answer;
    }
    at = files_.emplace(step.file, File()).first;
    at->second.number = ++last_;
  }
  File& file = at->second;
  answer.before = file.number;
  switch (step.op) {
    case StandInOp::kWho:
      for (const auto& [node, uses] : file.uses)
        if (node != from && (uses & kUsesThatWrite) != 0) answer.nodes.push_back(node);
      break;
    case StandInOp::kOpen:
      answer.granted = (step.uses & kUsesThatWrite) == 0 || file.taking == kNobody;
      if (answer.granted) file.uses[from] |= step.uses;
      break;
    case StandInOp::kBegin:
      answer.granted = may_take_alone(file, from, step);
      if (answer.granted) file.taking = from;
      break;
    case StandInOp::kTook:
      if (step.changed) file.number = ++last_;
      if (file.taking == from && step.alone) file.taking = kNobody;
      if (const auto own = file.uses.find(from); own != file.uses.end()) {
        own->second = static_cast<uint8_t>(own->second & ~step.uses);
        if (own->second == 0) file.uses.erase(own);
      }
      break;
    case StandInOp::kTurn:
      answer.taking = in_the_way(file, from, step.alone);
      answer.granted = answer.taking == kNobody;
      if (answer.granted && step.alone) file.alone = from;
      if (answer.granted && !step.alone) file.turns.insert(from);
      break;
    case StandInOp::kTurnOver:
      if (file.alone == from) file.alone = kNobody;
      file.turns.erase(from);
      break;
  }
  answer.number = file.number;
  if (step.op != StandInOp::kTurn) answer.taking = file.taking;
  if (file.uses.empty() && file.taking == kNobody && file.alone == kNobody && file.turns.empty())
    files_.erase(at);
  return answer;
}

size_t StandInRoots::files() {
  const MutexLock lock(mutex_);
  return files_.size();
}

void StandInRoots::take_in_by(TakeIn take_in) {
  const MutexLock lock(mutex_);
  take_in_ = std::move(take_in);
  ended_.wait(lock, [this]() REQUIRES(mutex_) { return under_way_ == 0; });
}

Result<TakeInAnswer> StandInRoots::take_in(const TakeInWish& wish) {
  TakeIn take_in;
  {
    const MutexLock lock(mutex_);
    if (!take_in_) return TakeInAnswer();
    take_in = take_in_;
    ++under_way_;
  }
  Result<TakeInAnswer> answer = TakeInAnswer();
  const Status done = contain([&] { answer = take_in(wish); });
  const MutexLock lock(mutex_);
  --under_way_;
  ended_.notify_all();
  if (!done.ok()) return done;
  return answer;
}

}  // namespace swale::fs
