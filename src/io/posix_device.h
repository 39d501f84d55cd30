// PosixDevice: the operating system's file systems, by plain system calls through the page cache.
//
// Interrupted and short transfers are continued. Files are made with mode 0666 and directories with 0777,
// both less the user's umask; descriptors close on exec. read_many announces all its ranges first
// (POSIX_FADV_WILLNEED), so that the kernel reads them in parallel while the first is being copied.
//
// Threads: as Device says; it has no state of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/device.h"

namespace swale::io {

class PosixDevice : public Device {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override;
  Status make_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<bool> exists(const std::string& path) override;
};

}  // namespace swale::io
