// PlainCalls: a plain directory, without what a job's tree refuses.
// Threads: one.
#pragma once

#include <cerrno>
#include <string>

#include "fs/testing/file_calls.h"

namespace swale::fs {

class PlainCalls final : public PosixCalls {
 public:
  enum class Above { kNothing, kKernel };  // a kernel says first that a name is taken
  explicit PlainCalls(const std::string& root, Above above = Above::kNothing)
      : PosixCalls(root), above_(above) {}
  int link(const std::string& from, const std::string& to) override {
    struct stat found;
    if (const int failed = look(from, &found); failed != 0) return failed;
    if (above_ == Above::kKernel && look(to, &found) == 0) return EEXIST;
    const size_t slash = to.rfind('/');
    const int failed = slash == std::string::npos ? 0 : look(to.substr(0, slash), &found);
    return failed != 0 ? failed : EPERM;
  }

 private:
  const Above above_;
};

}  // namespace swale::fs
