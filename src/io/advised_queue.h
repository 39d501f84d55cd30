// AdvisedQueue: an IoQueue for reads through the page cache of a local file system. submit reads what is in
// memory (File::read_resident), one system call each, and announces the other ranges (File::announce), which
// starts their transfer. wait then reads the oldest announced range by the file's own blocking read,
// whose pages are in memory or in transfer. A read that is alone is left to wait: announcing it would be a
// second system call, and overlap nothing.
//
// Measurements show it quicker than a ring for few small reads (docs/design/reader.md), and it needs no
// set-up. On a file system that ignores the advice, the ranges are read one after the other. Threads, errors,
// ownership: as IoQueue says. submit itself carries out writes and syncs.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "io/io_queue.h"

namespace swale::io {

class AdvisedQueue final : public IoQueue {
 public:
  void submit(std::span<const Operation> operations) override;
  size_t wait(size_t at_least, std::vector<Completion>* out) override;
  void wake() override {}  // wait blocks no longer than a read
  size_t in_flight() const override { return announced_.size() - taken_ + done_.size(); }

 private:
  std::vector<Operation> announced_;
  size_t taken_ = 0;  // of these
  std::vector<Completion> done_;
};

}  // namespace swale::io
