// VirtualDevice: wraps a Device so that operations take the time of a VirtualDisk, on a ManualClock. For
// simulations: an engine that runs on it takes exactly the time that the model says, and the same on every
// machine.
//
// The device below carries out each operation at once; the disk then computes when it completes. A blocking
// call advances the clock to its completion. IoQueue::wait advances it to the completions that it waits for.
// An operation that finds no free slot waits for one. A program with an event loop asks `next_event`,
// advances the clock itself, and calls wait(0).
//
// Place on the disk: each piece of kPieceBytes of a file gets the next place when it is first touched; when
// the disk is full, places start again from its begin. A renamed file keeps its pieces.
// No time: opening, listing, renaming, truncating, and operations that fail. sync_directory costs a sync.
//
// Threads: as Device says. A call that advances the clock locks the disk, so the order among several threads
// is random: only single-threaded use is deterministic. Limits: those of the disk and of the device below.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "io/device.h"
#include "io/io_queue.h"
#include "io/virtual_disk.h"

namespace swale::io {

class VirtualDevice : public Device {
 public:
  static constexpr uint64_t kPieceBytes = 64 * kMiB;

  // The device below and the clock must outlive this device, its files and its queues.
  VirtualDevice(Device& below, const DiskModel& model, ManualClock& clock);

  // The same disk, for files and queues of another priority.
  std::unique_ptr<Device> with_priority(DiskPriority priority);
  // The time of the disk's next event; kForever: it is idle.
  Nanos next_event() const;
  DiskUse use() const;

  Result<std::unique_ptr<IoQueue>> make_queue(size_t depth) override;
  Result<std::unique_ptr<Device>> anchored(const std::string& directory) override;
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override;
  Status make_directory(const std::string& path) override { return device_.make_directory(path); }
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_new(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override { return device_.list(path); }
  Result<bool> exists(const std::string& path) override { return device_.exists(path); }

 private:
  friend class VirtualFile;
  friend class VirtualQueue;
  class Disk;

  VirtualDevice(std::unique_ptr<Device> owned, Device& below, std::shared_ptr<Disk> disk,
                DiskPriority priority);

  const std::unique_ptr<Device> owned_;  // set in an anchored device
  Device& device_;
  // shared with files, queues, anchored devices and those of other priorities
  const std::shared_ptr<Disk> disk_;
  const DiskPriority priority_;
};

}  // namespace swale::io
