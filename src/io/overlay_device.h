// OverlayDevice: a writable view of another device: writes stay in memory and do not change the device. So a
// tool, or a job that only reads, can open a store as a later job would, including recovery, and leaves no
// trace.
//
// Threads: one at a time. Limits: a changed file is copied into memory whole, so files of MemoryDevice's
// kFileBytesMax or more cannot be changed. Not anchored.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "io/memory_device.h"

namespace swale::io {

class OverlayDevice final : public io::Device {
 public:
  explicit OverlayDevice(io::Device& below) : below_(below) {}

  Result<std::unique_ptr<io::Device>> anchored(const std::string& directory) override;
  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenMode mode) override;
  Status make_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_new(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<bool> exists(const std::string& path) override;

 private:
  Result<bool> below_has(const std::string& path);
  Status lift(const std::string& path);  // copies a file into memory
  Status lift_directory(const std::string& path);

  io::Device& below_;
  io::MemoryDevice memory_;
  std::set<std::string> hidden_;  // files of the device below that were removed, renamed or replaced
};

}  // namespace swale::io
