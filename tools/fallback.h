// Fallback: whether a program may have a directory itself where its tree cannot be mounted (--fallback). Not
// where a job lives there, or has ended without bringing all to it: the program would read old bytes, and
// what it writes would pass for the change of others, beside which the job's bytes are put aside.
//
// What was there is looked at before a start is tried: a start that fails may leave a job of its own, into
// which nobody has written.
//
// Threads: one.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace swale::tools {

class Fallback {
 public:
  // `wanted`: by --fallback. `backing`: whole.
  Fallback(bool wanted, std::string backing);

  bool wanted() const { return wanted_; }
  const std::string& backing() const { return backing_; }
  // What was there before the start was tried.
  Status expect_none_before() const;
  // After it has failed. kBusy: a job is in the way; the message says what to do.
  Status expect_free() const;

 private:
  const bool wanted_;
  const std::string backing_;
  bool mounted_ = false;     // a server has its tree mounted
  bool looked_into_ = true;  // else a mount is over it that does not answer
  std::vector<std::string> jobs_;
  Status failed_;
};

}  // namespace swale::tools
