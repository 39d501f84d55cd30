#include "io/io_queue.h"

#include <iterator>

#include "base/contain.h"

namespace swale::io {

namespace {

Status carry_out(const Operation& operation, size_t* bytes) {
  switch (operation.kind) {
    case Operation::Kind::kRead: {
      SWALE_ASSIGN_OR_RETURN(*bytes, operation.file->pread(operation.offset, operation.into));
      return {};
    }
    case Operation::Kind::kWrite:
      return operation.file->pwrite(operation.offset, operation.from);
    case Operation::Kind::kSync:
      return operation.file->sync();
  }
  return {};
}

}  // namespace

Completion execute(const Operation& operation) noexcept {
  Completion completion{operation.tag, 0, {}};
  completion.status = contain([&] { return carry_out(operation, &completion.bytes); });
  return completion;
}

Result<std::unique_ptr<IoQueue>> Device::make_read_queue(size_t depth, const File& /*file*/) {
  return make_queue(depth);
}

Result<std::unique_ptr<IoQueue>> Device::make_queue(size_t /*depth*/) {
  return std::unique_ptr<IoQueue>(std::make_unique<InlineQueue>());
}

Completion refused_after_fork(const Operation& operation) {
  return {operation.tag, 0,
          invalid_argument(
              "{}: submitted to a queue that was made before fork, by another process; make one after it",
              operation.file->path())};
}

size_t hand_out(std::vector<Completion>* done, std::vector<Completion>* out) {
  const size_t count = done->size();
  reserve_more(out, count);
  out->insert(out->end(), std::make_move_iterator(done->begin()), std::make_move_iterator(done->end()));
  done->clear();
  return count;
}

void InlineQueue::submit(std::span<const Operation> operations) {
  reserve_more(&done_, operations.size());
  for (const Operation& operation : operations) done_.push_back(execute(operation));
}

size_t InlineQueue::wait(size_t /*at_least*/, std::vector<Completion>* out) { return hand_out(&done_, out); }

}  // namespace swale::io
