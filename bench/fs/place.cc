#include "bench/fs/place.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/measure.h"
#include "bench/processes.h"
#include "bench/tier/passthrough.h"
#include "fs/job/job_fs.h"
#include "fuse/job_mount.h"

namespace swale::bench {
namespace {

constexpr unsigned kThreads = 10;
constexpr double kEndSeconds = 20;  // of a server that was unmounted

}  // namespace

Place::Place(Kind kind, const std::string& directory, const std::string& buffer, uint64_t memory)
    : kind_(kind), directory_(directory) {
  std::filesystem::create_directories(directory_);
  if (kind == Kind::kPlain) return;
  if (kind != Kind::kTree) std::filesystem::create_directories(directory_ + "-files");
  server_ = serve_in_child([&](const std::function<void()>& ready) {
    if (kind != Kind::kTree)
      return run_passthrough(directory_ + "-files", directory_, kThreads, kind == Kind::kSpliced, ready);
    fuse::JobMountOptions options;
    options.backing = directory_;
    options.buffer = buffer;
    options.memory_bytes = memory;
    options.ready = [&](const std::string&) { ready(); };
    check(fuse::run_job_mount(options));
  });
}

Place::~Place() {
  if (server_ == 0) return;
  const bool unmounted = std::system(("fusermount3 -u " + directory_).c_str()) == 0;
  // A namespace of mounts that somebody has made meanwhile keeps this one.
  for (const double until = now_s() + (unmounted ? kEndSeconds : 0); now_s() < until; ::usleep(1000))
    if (::waitpid(server_, nullptr, WNOHANG) != 0) return;
  ::kill(server_, SIGTERM);
  ::waitpid(server_, nullptr, 0);
}

int Place::open(const std::string& name, int flags) const {
  const int file = ::open(path(name).c_str(), flags | O_CLOEXEC, 0644);
  if (file < 0) die(path(name) + ": " + ::strerror(errno));
  return file;
}

double Place::settle() const {
  const double began = now_s();
  if (kind_ == Kind::kTree && ::setxattr(directory_.c_str(), fs::kJobCommandAttribute, "sync", 4, 0) != 0)
    die(directory_ + ": sync");
  const double took = now_s() - began;
  ::sync();
  return took;
}

double Place::server_cpu_s() const {
  if (server_ == 0) return 0;
  std::ifstream stat("/proc/" + std::to_string(server_) + "/stat");
  std::string word;
  double ticks = 0;
  for (int field = 1; stat >> word; ++field)
    if (field == 14 || field == 15) ticks += std::stod(word);
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

void write_all(int file, const char* data, uint64_t bytes, uint64_t offset) {
  if (::pwrite(file, data, bytes, static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes))
    die(std::string("a write failed: ") + ::strerror(errno));
}

Took together(const Place& place, uint64_t processes,
              const std::function<void(uint64_t, const std::function<void()>&)>& work, Written then) {
  const Cpu before = cpu_of(RUSAGE_CHILDREN);
  double server_before = 0;
  const WorkTimes times = work_at_once(
      processes, work, [&] { server_before = place.server_cpu_s(); }, then);
  Took took;
  took.write_s = times.write_s;
  took.all_s = times.all_s;
  took.cpu_s = (cpu_of(RUSAGE_CHILDREN) - before).total_s() + place.server_cpu_s() - server_before;
  return took;
}

Took write_records(const Place& place, uint64_t mib, Files files, Written then) {
  const uint64_t each = std::max<uint64_t>(1, (mib << 20) / kProcesses / kRecord);
  const std::string data(kRecord, 'x');
  const bool shared = files == Files::kShared;
  const auto work = [&](uint64_t process, const std::function<void()>& written) {
    const int file = place.open(shared ? "shared" : "own" + std::to_string(process), O_RDWR | O_CREAT);
    for (uint64_t i = 0; i < each; ++i)
      write_all(file, data.data(), kRecord, kRecord * (shared ? i * kProcesses + process : i));
    written();
    if (::fsync(file) != 0) die("fsync");
    ::close(file);
  };
  Took took = together(place, kProcesses, work, then);
  took.settle_s = place.settle();
  for (uint64_t i = 0; i < kProcesses; ++i)
    ::unlink(place.path(shared ? "shared" : "own" + std::to_string(i)).c_str());
  return took;
}

}  // namespace swale::bench
