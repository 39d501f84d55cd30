#include "tests/faults/cut_disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace swale::faults {
namespace {

// <linux/fs.h> has them since 6.10 only.
constexpr unsigned long kShutdown = _IOR('X', 125, uint32_t);
constexpr uint32_t kWithoutFlushingTheJournal = 2;

constexpr long kImageBytes = 512L << 20;  // sparse; XFS takes no less than 300 MiB

// The first line of the command's output; "" if it fails.
std::string output_of(const std::string& command) {
  FILE* output = ::popen((command + " 2>/dev/null").c_str(), "r");
  if (output == nullptr) return "";
  char line[512] = "";
  if (std::fgets(line, sizeof line, output) == nullptr) line[0] = '\0';
  const std::string text(line, std::strcspn(line, "\n"));
  return ::pclose(output) == 0 ? text : "";
}

bool succeeds(const std::string& command) {
  return output_of(fmt::format("{} > /dev/null && echo done", command)) == "done";
}

bool has_loop_devices() { return ::access("/dev/loop-control", R_OK | W_OK) == 0; }

}  // namespace

bool keep_mounts_to_oneself() { return ::unshare(CLONE_NEWNS) == 0; }

bool has_device_mapper() {
  std::ifstream devices("/proc/misc");
  for (std::string number, name; devices >> number >> name;) {
    if (name == "device-mapper") return true;
  }
  return false;
}

std::unique_ptr<CutDisk> CutDisk::make(const std::string& kind, const std::string& scratch,
                                       std::string* why) {
  const std::string image = scratch + "/image";
  const std::string path = scratch + "/disk";
  if (::geteuid() != 0 || !has_loop_devices()) {
    *why = "needs root and loop devices";
    return nullptr;
  }
  const int file = ::open(image.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, kImageBytes) != 0) throw std::runtime_error("no image");
  ::close(file);
  if (!succeeds(fmt::format("PATH=$PATH:/usr/sbin:/sbin mkfs.{} -q {}", kind, image))) {
    *why = fmt::format("needs mkfs.{}", kind);
    return nullptr;
  }
  const std::string device =
      output_of(fmt::format("PATH=$PATH:/usr/sbin:/sbin losetup --find --show --direct-io=on {}", image));
  if (device.empty()) {
    *why = "no loop device is free";
    return nullptr;
  }
  ::mkdir(path.c_str(), 0755);
  std::unique_ptr<CutDisk> disk(new CutDisk(kind, device, path));
  if (disk->bind() && disk->mount()) return disk;
  *why = fmt::format("mounting {}: {}", kind, std::strerror(errno));
  return nullptr;
}

CutDisk::CutDisk(std::string kind, std::string device, std::string path)
    : kind_(std::move(kind)), device_(std::move(device)), path_(std::move(path)) {}

CutDisk::~CutDisk() {
  if (unmount() && bound_) ::umount(path_.c_str());
  succeeds(fmt::format("PATH=$PATH:/usr/sbin:/sbin losetup --detach {}", device_));
}

// On a shared mount, as those of systemd are, a new mount appears in other namespaces, too; on a private one
// it does not.
bool CutDisk::bind() {
  bound_ = ::mount(path_.c_str(), path_.c_str(), nullptr, MS_BIND, nullptr) == 0;
  return bound_ && ::mount(nullptr, path_.c_str(), nullptr, MS_PRIVATE, nullptr) == 0;
}

bool CutDisk::mount() {
  mounted_ = ::mount(device_.c_str(), path_.c_str(), kind_.c_str(), 0, nullptr) == 0;
  return mounted_;
}

// A killed process may keep the mount busy for the moment that its requests take to end.
bool CutDisk::unmount() {
  for (int time = 0; mounted_ && time < 1'200; ++time) {
    if (::umount(path_.c_str()) == 0) {
      mounted_ = false;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  return !mounted_;
}

void CutDisk::cut() {
  const int root = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  uint32_t how = kWithoutFlushingTheJournal;
  const bool done = root >= 0 && ::ioctl(root, kShutdown, &how) == 0;
  ::close(root);
  if (!done) throw std::runtime_error(fmt::format("{} cannot be shut down: {}", kind_, std::strerror(errno)));
}

bool CutDisk::restart() { return unmount() && mount(); }

}  // namespace swale::faults
