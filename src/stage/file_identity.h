// FileIdentity: what a file is and in which state, as one look at it says: two looks that agree saw the same
// file, unchanged in between (as far as its file system's clock tells).
// Threads: a value.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "base/coding.h"

namespace swale::stage {

struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;

  static FileIdentity of(const struct stat& attributes) {
    const auto nanos = [](const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; };
    return {attributes.st_dev, attributes.st_ino, static_cast<uint64_t>(attributes.st_size),
            nanos(attributes.st_mtim), nanos(attributes.st_ctim)};
  }
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;

  void append_to(std::string* out) const {
    for (const uint64_t field : {device, inode, size}) append_u64(out, field);
    for (const int64_t field : {modified_ns, changed_ns}) append_i64(out, field);
  }
  static FileIdentity take(Decoder* in) {
    FileIdentity found;
    for (uint64_t* const field : {&found.device, &found.inode, &found.size}) *field = in->u64();
    for (int64_t* const field : {&found.modified_ns, &found.changed_ns}) *field = in->i64();
    return found;
  }
};

}  // namespace swale::stage
