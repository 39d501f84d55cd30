// MappedLog: a file in a node's folder of logs (fs/log/log_format.h), open to be read. It is mapped for its
// words; bytes are read by calls of the system. Pages with words stay as long as the file does, so that no
// look at one can raise SIGBUS.
//
// Threads: any. Errors: null, or false.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "io/descriptor.h"

namespace swale::fs {

class MappedLog {
 public:
  // Of this user, and closed to others; else null.
  static std::shared_ptr<const MappedLog> open(const std::string& path);
  MappedLog(const MappedLog&) = delete;
  MappedLog& operator=(const MappedLog&) = delete;
  ~MappedLog();

  // Whether that path leads to it still.
  bool is_at(const std::string& path) const;

  // Whether the word at `at`, in a page that is there, is `expected`.
  bool has_word(uint64_t at, uint64_t expected) const;
  bool read(uint64_t at, MutableBytes out) const;

 private:
  MappedLog() = default;

  io::Descriptor file_;
  void* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace swale::fs
