#include "io/advised_queue.h"

#include <fcntl.h>

#include <utility>

namespace swale::io {

void AdvisedQueue::submit(std::span<const Operation> operations) {
  for (const Operation& operation : operations) {
    if (operation.kind != Operation::Kind::kRead) {
      done_.push_back(execute(operation));
      continue;
    }
    const int fd = operation.file->descriptor();
    if (fd >= 0) {
      static_cast<void>(::posix_fadvise(fd, static_cast<off_t>(operation.offset),
                                        static_cast<off_t>(operation.into.size()), POSIX_FADV_WILLNEED));
    }
    announced_.push_back(operation);
  }
}

size_t AdvisedQueue::wait(size_t at_least, std::vector<Completion>* out) {
  size_t count = done_.size();
  for (Completion& completion : done_) out->push_back(std::move(completion));
  done_.clear();
  for (; count < at_least && taken_ < announced_.size(); ++count)
    out->push_back(execute(announced_[taken_++]));
  if (taken_ == announced_.size()) {
    announced_.clear();
    taken_ = 0;
  }
  return count;
}

}  // namespace swale::io
