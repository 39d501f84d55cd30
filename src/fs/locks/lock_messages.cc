#include "fs/locks/lock_messages.h"

#include "fs/share/share_coding.h"

namespace swale::fs {
namespace {

void append_lock(std::string* out, const FileLock& lock) {
  append_u8(out, static_cast<uint8_t>(lock.kind));
  append_u8(out, static_cast<uint8_t>(lock.type));
  append_u64(out, lock.begin);
  append_u64(out, lock.end);
  append_u64(out, lock.owner);
  append_u32(out, lock.pid);
}

// False: these bytes are none.
bool take_lock(Decoder* in, FileLock* lock) {
  const uint8_t kind = in->u8(), type = in->u8();
  lock->kind = static_cast<LockKind>(kind);
  lock->type = static_cast<LockType>(type);
  lock->begin = in->u64();
  lock->end = in->u64();
  lock->owner = in->u64();
  lock->pid = in->u32();
  const bool whole = lock->kind == LockKind::kWhole;
  return kind >= 1 && kind <= 2 && type <= 2 && lock->begin < lock->end && lock->end <= kLockEnd &&
         (!whole || (lock->begin == 0 && lock->end == kLockEnd));
}

}  // namespace

std::string encode(const LockMessage& message) {
  std::string out;
  append_u8(&out, static_cast<uint8_t>(message.op));
  append_u32(&out, message.wanted.node);
  append_u64(&out, message.number);
  append_u64(&out, message.floor);
  append_u64(&out, message.target);
  append_id(&out, message.file);
  append_lock(&out, message.wanted.lock);
  append_u8(&out, message.waits ? 1 : 0);
  return out;
}

Result<LockMessage> decode_lock_message(Bytes bytes) {
  Decoder in(bytes);
  LockMessage message;
  const uint8_t op = in.u8();
  message.op = static_cast<LockOp>(op);
  message.wanted.node = in.u32();
  message.number = in.u64();
  message.floor = in.u64();
  message.target = in.u64();
  message.file = take_id(&in);
  const bool good = take_lock(&in, &message.wanted.lock);
  const uint8_t waits = in.u8();
  message.waits = waits == 1;
  SWALE_RETURN_IF_ERROR(in.finish("a message about a lock"));
  if (!good || waits > 1 || op < static_cast<uint8_t>(LockOp::kSet) ||
      op > static_cast<uint8_t>(LockOp::kCancel) || message.file.none() || message.floor > message.number)
    return corruption("a message about a lock: op {} of node {}: its numbers are none of a lock", op,
                      message.wanted.node);
  return message;
}

std::string encode(const LockAnswer& answer) {
  std::string out;
  append_u8(&out, static_cast<uint8_t>(answer.outcome));
  append_u32(&out, answer.found.node);
  append_lock(&out, answer.found.lock);
  return out;
}

Result<LockAnswer> decode_lock_answer(Bytes bytes) {
  Decoder in(bytes);
  LockAnswer answer;
  const uint8_t outcome = in.u8();
  answer.outcome = static_cast<LockOutcome>(outcome);
  answer.found.node = in.u32();
  const bool good = take_lock(&in, &answer.found.lock);
  SWALE_RETURN_IF_ERROR(in.finish("an answer about a lock"));
  if (!good || outcome < static_cast<uint8_t>(LockOutcome::kDone) ||
      outcome > static_cast<uint8_t>(LockOutcome::kLate))
    return corruption("an answer about a lock: outcome {}: its numbers are none of a lock", outcome);
  return answer;
}

}  // namespace swale::fs
