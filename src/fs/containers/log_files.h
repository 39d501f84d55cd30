// LogFiles: the logs that a metadata store's addresses are of. The store knows their numbers; where they
// stand is the program's matter, and said by a pattern: "out/log-%s", %s being the number.
//
// Threads: any. Errors: kNotFound for a log that is not there, kCorruption for one that is shorter than the
// store says; both name the log's path.
// Limits: kOpenMax logs are open at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"
#include "io/device.h"

namespace swale::fs {

class LogFiles {
 public:
  static constexpr size_t kOpenMax = 256;

  // kInvalidArgument: the pattern has no %s, or several.
  static Status check_pattern(const std::string& pattern);

  // Requires a pattern that passes check_pattern. `device` must outlive it.
  LogFiles(io::Device& device, std::string pattern) : device_(device), pattern_(std::move(pattern)) {}

  std::string path_of(uint32_t log) const;
  // All of `out`, from `address` on.
  Status read(uint32_t log, uint64_t address, MutableBytes out);

 private:
  Result<std::shared_ptr<io::File>> open(uint32_t log);

  io::Device& device_;
  const std::string pattern_;
  Mutex mutex_;
  std::map<uint32_t, std::shared_ptr<io::File>> open_ GUARDED_BY(mutex_);
};

}  // namespace swale::fs
