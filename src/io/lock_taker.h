// LockTaker: one attempt to get a lock, as a passive state machine: look, wait step(), look again (rules:
// lock_file.h).
//
// Threads: one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/patience.h"
#include "io/lock_file.h"

namespace swale::io {

class LockTaker {
 public:
  LockTaker(Device& device, std::string path, const LockRequest& request, Nanos now);
  ~LockTaker();

  // None: the lock's holder may be alive or dead; look again after step().
  Result<std::optional<LockFile>> look(Nanos now);
  Nanos step() const;

 private:
  // A lock under observation.
  struct Watch {
    FoundLock seen;
    Patience patience;
  };
  enum class Next { kAgain, kWait };

  Result<std::optional<Next>> try_once(Nanos now);  // none: the lock is ours, in `file_`
  Result<std::optional<Next>> take(const FoundLock& found, const std::string& why, Nanos now);
  Result<std::optional<Next>> judge_claim(const std::string& claim, Nanos now);
  LockVerdict judge(const FoundLock& found, std::optional<Watch>* watch, Nanos now) const;
  Status place(const std::string& path);
  bool is_ours(const FoundLock& found) const;
  void leave_nothing();
  Status alive(std::string_view how) const;
  Status undecided() const;
  void tell_what_is_waited_for(Nanos now);
  void remove_leftovers();

  Device& device_;
  const std::string path_;
  const LockRequest request_;
  LockContent content_;
  std::string draft_;
  std::shared_ptr<void> listed_;  // lists the nonce before the file appears
  std::unique_ptr<File> file_;
  std::optional<FoundLock> holder_;
  std::optional<Watch> watch_;
  std::optional<Watch> claim_watch_;
  const Nanos began_;
  Patience wait_;
  bool contended_ = false;  // another taker has the claim
  bool told_ = false;
  std::string took_over_;
};

}  // namespace swale::io
