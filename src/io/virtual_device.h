// VirtualDevice: another Device whose operations take the time of a VirtualDisk, on a clock that only moves when told. For
// simulations: an engine that runs on it takes exactly the time that the model says, and the same on every machine.
//
// The device below carries out each operation at once; the disk then says when it completes. A blocking call moves the
// clock on to its completion; IoQueue::wait moves it on to the completions that it waits for, and an operation that finds no
// slot waits for one. Whoever has an event loop asks `next_event`, moves the clock there himself, and then calls wait(0).
//
// Place on the disk: a file gets pieces of kPieceBytes in the order in which they are first touched, one after the other,
// from the begin of the disk again once it is full. A renamed file keeps its pieces.
// No time: opening, listing, renaming, truncating, and operations that fail. sync_directory costs a sync.
//
// Threads: as Device says. A call that moves the clock holds the disk, so that several threads get an order by chance:
// deterministic is only what one thread does. Limits: those of the disk and of the device below.
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

  // The device below and the clock outlive this device, its files and its queues.
  VirtualDevice(Device& below, const DiskModel& model, ManualClock& clock);

  // The same disk, for files and queues of another priority.
  std::unique_ptr<Device> with_priority(DiskPriority priority);
  // When the disk will next complete something; kForever: nothing is under way.
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

  const std::unique_ptr<Device> owned_;  // of an anchored device
  Device& device_;
  const std::shared_ptr<Disk>
      disk_;  // shared with files, queues, anchored devices and those of other priorities
  const DiskPriority priority_;
};

}  // namespace swale::io
