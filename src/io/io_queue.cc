#include "io/io_queue.h"

#include <utility>

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

std::unique_ptr<IoQueue> Device::make_queue(size_t /*depth*/) { return std::make_unique<InlineQueue>(); }

void InlineQueue::submit(std::span<const Operation> operations) {
  for (const Operation& operation : operations) done_.push_back(execute(operation));
}

size_t InlineQueue::wait(size_t /*at_least*/, std::vector<Completion>* out) {
  const size_t count = done_.size();
  for (Completion& completion : done_) out->push_back(std::move(completion));
  done_.clear();
  return count;
}

}  // namespace swale::io
