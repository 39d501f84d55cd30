#include "io/advised_queue.h"

#include <utility>

namespace swale::io {

void AdvisedQueue::submit(std::span<const Operation> operations) {
  reserve_more(&announced_, operations.size());
  reserve_more(&done_, operations.size());
  const bool alone = operations.size() == 1 && in_flight() == 0;
  for (const Operation& operation : operations) {
    if (operation.kind != Operation::Kind::kRead) {
      done_.push_back(execute(operation));
      continue;
    }
    if (alone) {
      announced_.push_back(operation);
      continue;
    }
    File& file = *operation.file;
    if (file.read_resident(operation.offset, operation.into)) {
      done_.push_back({operation.tag, operation.into.size(), {}});
      continue;
    }
    file.announce(operation.offset, operation.into.size());
    announced_.push_back(operation);
  }
}

size_t AdvisedQueue::wait(size_t at_least, std::vector<Completion>* out) {
  const size_t wanted = std::min(at_least, in_flight());
  reserve_more(out, std::max(wanted, done_.size()));
  size_t count = hand_out(&done_, out);
  for (; count < wanted; ++count) out->push_back(execute(announced_[taken_++]));
  if (taken_ == announced_.size()) {
    announced_.clear();
    taken_ = 0;
  }
  return count;
}

}  // namespace swale::io
