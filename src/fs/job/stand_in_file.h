// What stand-ins of one node and of several have alike (stand_ins.h, shared_stand_ins.h): their names, and
// how a plain file is written.
//
// Threads: functions without state. Errors: errnos.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "fs/file_system.h"
#include "io/descriptor.h"
#include "meta/index/types.h"

namespace swale::fs {

inline constexpr size_t kStandInHexDigits = 16;

inline std::string name_of_file(const meta::FileId& id) {
  return fmt::format("{:016x}-{:016x}", id.high, id.low);
}

// None: it is no name of a stand-in.
inline std::optional<meta::FileId> file_of_name(std::string_view name) {
  if (name.size() != 2 * kStandInHexDigits + 1 || name[kStandInHexDigits] != '-') return {};
  meta::FileId id;
  const auto read = [](std::string_view digits, uint64_t* out) {
    const auto [end, failed] = std::from_chars(digits.begin(), digits.end(), *out, 16);
    return failed == std::errc() && end == digits.end();
  };
  if (!read(name.substr(0, kStandInHexDigits), &id.high)) return {};
  if (!read(name.substr(kStandInHexDigits + 1), &id.low)) return {};
  return id;
}

inline bool same(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

inline int write_all(int fd, Bytes bytes, uint64_t offset) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t put = io::continued([&] {
      return ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    });
    if (put < 0) return errno;
    done += static_cast<size_t>(put);
  }
  return 0;
}

inline int write_all(int fd, MutableBytes bytes, uint64_t offset) {
  return write_all(fd, view(bytes), offset);
}

// As many bytes as are there; the rest of `out` becomes zeros.
inline int read_all(int fd, MutableBytes out, uint64_t offset, size_t* got) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = io::continued(
        [&] { return ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done)); });
    if (count < 0) return errno;
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  std::fill(out.begin() + static_cast<ptrdiff_t>(done), out.end(), '\0');
  *got = done;
  return 0;
}

// *restarted: the stand-ins of a folder are of an earlier start of the machine, as its file "boot" says. From
// now on it names this one.
Status look_for_restart(const io::Descriptor& directory, const std::string& folder, bool* restarted);

inline Caller server_user() { return {::geteuid(), ::getegid(), 0, 0, {}}; }

}  // namespace swale::fs
