#include "fuse/kept_blocks.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include <cstdint>
#include <fstream>

namespace swale::fuse {
namespace {

constexpr uint64_t kMebi = 1 << 20;

// The line of /proc/self/mountinfo that says how the file system of this device is mounted.
std::string line_of(dev_t device, const std::string& mounts) {
  const std::string number = fmt::format(" {}:{} ", major(device), minor(device));
  std::ifstream file(mounts);
  for (std::string line; std::getline(file, line);)
    if (line.find(number) != std::string::npos) return line;
  return "";
}

}  // namespace

std::string warning_of_kept_blocks(const std::string& directory, const std::string& mounts) {
  struct statvfs space;
  struct stat found;
  if (::statvfs(directory.c_str(), &space) != 0 || ::stat(directory.c_str(), &found) != 0) return "";
  if (space.f_bfree <= space.f_bavail) return "";
  const std::string line = line_of(found.st_dev, mounts);
  // Others keep blocks, too, but from root as well.
  if (line.find(" - ext") == std::string::npos || line.find("resuid=") != std::string::npos) return "";
  return fmt::format(
      "{}: its file system keeps {} MiB for root, which users can take through this mount, because root "
      "writes their bytes; to keep them, mount it with the option resuid=1: processes of root that may pass "
      "over limits still get them",
      directory, (space.f_bfree - space.f_bavail) * space.f_frsize / kMebi);
}

}  // namespace swale::fuse
