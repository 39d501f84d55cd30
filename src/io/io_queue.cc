#include "io/io_queue.h"

#include <iterator>

namespace swale::io {

Completion execute(const Operation& operation) {
  Completion completion{operation.tag, 0, {}};
  switch (operation.kind) {
    case Operation::Kind::kRead: {
      const Result<size_t> got = operation.file->pread(operation.offset, operation.into);
      if (got.ok()) {
        completion.bytes = *got;
      } else {
        completion.status = got.status();
      }
      break;
    }
    case Operation::Kind::kWrite:
      completion.status = operation.file->pwrite(operation.offset, operation.from);
      break;
    case Operation::Kind::kSync:
      completion.status = operation.file->sync();
      break;
  }
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
  out->insert(out->end(), std::make_move_iterator(done->begin()), std::make_move_iterator(done->end()));
  done->clear();
  return count;
}

void InlineQueue::submit(std::span<const Operation> operations) {
  for (const Operation& operation : operations) done_.push_back(execute(operation));
}

size_t InlineQueue::wait(size_t /*at_least*/, std::vector<Completion>* out) { return hand_out(&done_, out); }

}  // namespace swale::io
