#include "base/testing/test_shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <stdexcept>

namespace swale::test {
namespace {

constexpr char kShm[] = "/dev/shm/";

struct Known {
  std::mutex mutex;
  bool isolated = false;
  std::set<pid_t> processes;     // of this program
  std::set<std::string> mapped;  // files that one of them had mapped
};

Known& known() {
  static Known known;
  return known;
}

// The machine's /dev/shm, however the program's own is called later.
int neighbours_folder() {
  static const int folder = ::open(kShm, O_PATH | O_DIRECTORY | O_CLOEXEC);
  return folder;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The files of /dev/shm in the text of /proc/PID/maps.
std::set<std::string> mapped_files(const std::string& maps) {
  std::set<std::string> found;
  std::istringstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(kShm);
    if (at != std::string::npos) found.insert(line.substr(at, line.find(' ', at) - at));
  }
  return found;
}

bool write_file(const char* path, const std::string& text) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(file);
  return written;
}

// A caller that is not root becomes the owner of a user namespace first, under its own number.
bool own_namespaces() {
  if (::unshare(CLONE_NEWNS | CLONE_NEWIPC) == 0) return true;
  const uid_t user = ::getuid();
  const gid_t group = ::getgid();
  if (errno != EPERM || ::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC) != 0) return false;
  return write_file("/proc/self/setgroups", "deny") &&
         write_file("/proc/self/uid_map", fmt::format("{} {} 1", user, user)) &&
         write_file("/proc/self/gid_map", fmt::format("{} {} 1", group, group));
}

// What is mounted on /dev/shm from now on stays in this process's namespace. The nearest mount decides that:
// in a chroot "/" is none.
bool keep_mounts_here() {
  for (const char* const place : {kShm, "/dev", "/"}) {
    if (::mount(nullptr, place, nullptr, MS_PRIVATE, nullptr) == 0) return true;
    if (errno != EINVAL) return false;  // EINVAL: it is no mount
  }
  return false;
}

void add_segments(const Known& of, std::set<std::string>* left) {
  std::ifstream segments("/proc/sysvipc/shm");
  std::string line;
  std::getline(segments, line);
  while (std::getline(segments, line)) {
    std::istringstream words(line);
    long key = 0, id = 0, maker = 0, last = 0, attached = 0;
    std::string mode, bytes;
    words >> key >> id >> mode >> bytes >> maker >> last >> attached;
    const auto pid = static_cast<pid_t>(maker);
    const bool ours = of.isolated || of.processes.contains(pid);
    if (ours && attached == 0 && ::kill(pid, 0) != 0) left->insert(fmt::format("segment {}", id));
  }
}

}  // namespace

bool isolate_shared_memory(std::string* why) {
  neighbours_folder();
  const bool done =
      own_namespaces() && keep_mounts_here() && ::mount("swale-test", kShm, "tmpfs", 0, "mode=1777") == 0;
  if (!done) *why = std::strerror(errno);
  known().isolated = done;
  return done;
}

void note_shared_memory_of(pid_t pid) {
  const std::set<std::string> now = mapped_files(text_of(fmt::format("/proc/{}/maps", pid)));
  const std::lock_guard lock(known().mutex);
  known().processes.insert(pid);
  known().mapped.insert(now.begin(), now.end());
}

std::set<std::string> shared_memory_files() {
  const std::lock_guard lock(known().mutex);
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kShm)) {
    const std::string path = entry.path();
    if (entry.is_regular_file() && (known().isolated || known().mapped.contains(path))) files.insert(path);
  }
  return files;
}

std::set<std::string> shared_memory_left() {
  std::set<std::string> left = shared_memory_files();
  const std::lock_guard lock(known().mutex);
  add_segments(known(), &left);
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    if (left.empty()) break;
    const std::string pid = process.path().filename();
    if (std::isdigit(static_cast<unsigned char>(pid.front())) == 0) continue;
    for (const std::string& path : mapped_files(text_of(process.path() / "maps"))) left.erase(path);
  }
  return left;
}

void OwnSharedMemory::SetUp() {
  std::string why;
  const bool own = isolate_shared_memory(&why);
  fmt::print("shared memory: {}\n",
             own ? "this test has its own" : fmt::format("what its ranks were seen to map ({})", why));
}

NeighboursSharedMemory::NeighboursSharedMemory(std::string name) : name_(std::move(name)) {
  const int file = ::openat(neighbours_folder(), name_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) throw std::runtime_error("no file in the machine's /dev/shm");
  ::close(file);
}

NeighboursSharedMemory::~NeighboursSharedMemory() { ::unlinkat(neighbours_folder(), name_.c_str(), 0); }

}  // namespace swale::test
