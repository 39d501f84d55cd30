// WriteGuard: which processes may write which files. NodeFiles asks before it puts bytes of a log into the
// index of a file, as a process can put any file's id into its own log.
// Threads: as NodeFiles, whose calls it is called from. Must not call it.
#pragma once

#include <cstdint>

#include "meta/index/types.h"

namespace swale::fs {

class WriteGuard {
 public:
  enum class Verdict {
    kAdmitted,
    kRefused,  // and told
    kRefusedAgain,
  };
  virtual ~WriteGuard() = default;
  // A log has a write of a file.
  virtual Verdict judge(uint32_t log, const meta::FileId& file) = 0;
};

}  // namespace swale::fs
