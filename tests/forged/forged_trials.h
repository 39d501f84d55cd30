// ForgedTrials: which of a test's forged numbers a run tries, and what each of them may take.
//
// SWALE_FORGED_SHARE=N: only each N-th number (1: all). SWALE_FORGED_SEED=S: which of the N parts, by S
// modulo N (default 0); make test takes S from the commit, so that a commit's runs are alike, and commits
// try all. SWALE_FORGED_ONLY=TEXT: all numbers whose description has this text, and no other. A failure
// names what repeats it. SWALE_FORGED_SHOW=1: prints each number.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>

namespace swale::forged {

class ForgedTrials {
 public:
  // `share`: if the environment says nothing.
  explicit ForgedTrials(uint64_t share = 1);

  // From now on each number is taken, whatever the share.
  void take_all() { share_ = 1, seed_ = 0; }
  // Whether this run tries the next number, described by `what`.
  bool takes(const std::string& what);

  // What a failure says: `what`, and how to repeat it.
  static std::string trace(const std::string& what);

  // Call before a number is tried, and after it: then it fails the test if it took too much. Time is that of
  // the processor, so that a loaded machine does not matter; what waits for ever ends with the test's limit.
  void begin();
  void end() const;

 private:
  uint64_t share_;
  uint64_t seed_;
  uint64_t numbers_ = 0;
  const char* only_ = nullptr;
  const bool show_;
  const long kilobytes_before_;
  double began_ = 0;
};

}  // namespace swale::forged
