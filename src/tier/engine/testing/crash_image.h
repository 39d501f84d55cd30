// Image: bytes on a device, for tests that crash: what a running process reads, and what is left when the
// power fails.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/rng.h"

namespace swale::tier {

class Image {
 public:
  void write(uint64_t offset, Bytes bytes);
  void resize(uint64_t size);
  void sync();
  // As Linux has it: what was to be synced is readable, but no later sync makes it durable. Sizes are kept.
  void fail_sync();
  void lose_power(Rng* rng);  // what was not synced happens, happens in part, or does not
  std::string read(uint64_t offset, uint64_t length) const;  // zeros behind the end
  uint64_t size() const { return now_.size(); }
  const std::string& bytes() const { return now_; }
  const std::string& durable_bytes() const { return durable_; }

 private:
  struct Change {
    uint64_t offset;
    std::string bytes;
    bool resize;
  };
  static void apply(std::string* to, const Change& change);
  std::string now_;
  std::string durable_;
  std::vector<Change> changes_;
};

}  // namespace swale::tier
