#include "measure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fail.h"

namespace impact {
namespace {

void evict_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(fmt::format("cannot open {}", path));
  // Dirty pages cannot be dropped, so they are written first.
  const bool evicted = ::fdatasync(fd) == 0 && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
  ::close(fd);
  if (!evicted) fail(fmt::format("cannot drop the cached pages of {}", path));
}

}  // namespace

void evict(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return evict_file(path);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) evict_file(entry.path());
  }
}

uint64_t storage_bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string name;
  uint64_t value = 0;
  while (io >> name >> value) {
    if (name == "read_bytes:") return value;
  }
  return 0;
}

}  // namespace impact
