// AdvisedQueue: an IoQueue for reads through the page cache of a local file system. submit takes what is in memory
// (File::read_resident), one system call each, and announces the other ranges (POSIX_FADV_WILLNEED), which starts their
// transfer; wait then takes the oldest of those by the files' own blocking reads, which find their pages on the way or
// there.
//
// For few small reads it was measured to be quicker than a ring (docs/design/reader.md), and it needs no set-up.
// A file system that takes no such advice reads one range after the other.
// Threads, errors, ownership: as IoQueue says. Writes and syncs are carried out by submit itself.
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
  size_t taken_ = 0;  // of them
  std::vector<Completion> done_;
};

}  // namespace swale::io
