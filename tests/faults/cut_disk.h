// CutDisk: a file system of its own on a loop device whose machine loses its memory at any moment:
// FS_IOC_SHUTDOWN without flushing the journal throws away everything that the kernel has not handed to the
// device, names and file contents alike; mounting it again replays the journal, as after a power cut. What
// the device was given stays: the write cache of a real disk, which may lose or tear what was not flushed, is
// the part of io/MemoryDevice (sim/crash_test.cc).
//
// dm-flakey and dm-log-writes would lose such writes, too; a kernel without the device mapper (CONFIG_MD) has
// neither.
// Threads: one object is used by one thread, several may be used by several. Needs root, loop devices and
// mkfs; and keep_mounts_to_oneself(), as who makes a mount namespace meanwhile takes a copy of each mount
// along: the disk is then still mounted there when it restarts, and stays cut.
#pragma once

#include <memory>
#include <string>

namespace swale::faults {

// A mount namespace for the calling thread and those that it starts from here on. False: needs root.
bool keep_mounts_to_oneself();

class CutDisk {
 public:
  // kind: "ext4", "xfs". Null: not possible here; `why` says the reason.
  static std::unique_ptr<CutDisk> make(const std::string& kind, const std::string& scratch, std::string* why);
  ~CutDisk();
  CutDisk(const CutDisk&) = delete;
  CutDisk& operator=(const CutDisk&) = delete;

  const std::string& path() const { return path_; }
  void cut();      // from here on every call fails
  bool restart();  // false: it cannot be mounted again

 private:
  CutDisk(std::string kind, std::string device, std::string path);
  bool bind();
  bool mount();
  bool unmount();

  const std::string kind_, device_, path_;
  bool bound_ = false, mounted_ = false;
};

// Whether the kernel has the device mapper, with which there would be dm-flakey and dm-log-writes.
bool has_device_mapper();

}  // namespace swale::faults
