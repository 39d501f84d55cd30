// bench_fs_tree: programs in the tree of a job (run_job_mount) beside the same programs in a plain directory
// and on a pass-through mount that does nothing, all on one file system, in turns.
//   --path DIR        where everything is (made and removed); the buffer of the tree is there, too
//   --mib N           of strided or own records of 47,008 bytes, of 8 processes, with an fsync each
//   --creates N       files that each of 8 processes makes and closes in one directory
//   --commits N       appends of 47,008 bytes, each with an fsync; plain: pwrite and fdatasync
//   --requests N      writes of 4 KiB at random places
//   --rounds N
// A place is settled, off the clock, after each work: all is on the backing, and synced.
// Reported: the medians of the rounds' ratios, and the seconds of each round. Processor time is that of all
// processes, the server's included; a plain directory has none, and what its kernel threads write is no
// process's.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/measure.h"
#include "bench/tier/passthrough.h"
#include "fs/job/job_fs.h"
#include "fuse/job_mount.h"

namespace swale::bench {
namespace {

constexpr uint64_t kRecord = 47'008;
constexpr uint64_t kProcesses = 8;
constexpr uint64_t kSmall = 4096;
constexpr unsigned kThreads = 10;

struct Took {
  double write_s = 0;  // until the last process has written
  double all_s = 0;    // and synced, and closed
  double cpu_s = 0;
};

class Place {
 public:
  enum class Kind { kPlain, kPassthrough, kSpliced, kTree };
  Place(const std::string& root, const char* name, Kind kind, uint64_t memory)
      : kind_(kind), directory_(root + "/" + name) {
    std::filesystem::create_directories(directory_);
    if (kind == Kind::kPlain) return;
    if (kind != Kind::kTree) std::filesystem::create_directories(directory_ + "-files");
    start([&](const std::function<void()>& ready) {
      if (kind != Kind::kTree)
        return run_passthrough(directory_ + "-files", directory_, kThreads, kind == Kind::kSpliced, ready);
      fuse::JobMountOptions options;
      options.backing = directory_;
      options.buffer = root + "/buffer";
      options.memory_bytes = memory;
      options.ready = [&](const std::string&) { ready(); };
      check(fuse::run_job_mount(options));
    });
  }
  ~Place() {
    if (server_ == 0) return;
    if (std::system(("fusermount3 -u " + directory_).c_str()) != 0) ::kill(server_, SIGTERM);
    ::waitpid(server_, nullptr, 0);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  int open(const std::string& name, int flags) const {
    const int file = ::open(path(name).c_str(), flags | O_CLOEXEC, 0644);
    if (file < 0) die(path(name) + ": " + ::strerror(errno));
    return file;
  }
  void settle() const {
    if (kind_ == Kind::kTree && ::setxattr(directory_.c_str(), fs::kJobCommandAttribute, "sync", 4, 0) != 0)
      die(directory_ + ": sync");
    ::sync();
  }
  double server_cpu_s() const {
    if (server_ == 0) return 0;
    std::ifstream stat("/proc/" + std::to_string(server_) + "/stat");
    std::string word;
    double ticks = 0;
    for (int field = 1; stat >> word; ++field)
      if (field == 14 || field == 15) ticks += std::stod(word);
    return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

 private:
  // A child that serves until it is unmounted, or this program has ended.
  void start(const std::function<void(const std::function<void()>&)>& serve) {
    int ends[2];
    if (::pipe(ends) != 0) die("no pipe");
    server_ = ::fork();
    if (server_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      ::close(ends[0]);
      serve([&] {
        if (::write(ends[1], "+", 1) != 1) die("nobody waits for the mount");
      });
      ::_exit(0);
    }
    ::close(ends[1]);
    char ready = 0;
    if (::read(ends[0], &ready, 1) != 1) die(directory_ + ": the mount did not come");
    ::close(ends[0]);
  }

  const Kind kind_;
  const std::string directory_;
  pid_t server_ = 0;
};

void write_all(int file, const char* data, uint64_t bytes, uint64_t offset) {
  if (::pwrite(file, data, bytes, static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes))
    die(std::string("a write failed: ") + ::strerror(errno));
}

// Runs `work(process, written)` in each process at the same time; it calls written() before it syncs.
Took together(const Place& place, const std::function<void(uint64_t, const std::function<void()>&)>& work) {
  const size_t bytes = 2 * kProcesses * sizeof(double);
  void* const shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) die("mmap");
  auto* const times = static_cast<double*>(shared);
  int gate[2];
  if (::pipe(gate) != 0) die("no pipe");
  const Cpu before = cpu_of(RUSAGE_CHILDREN);
  std::vector<pid_t> children;
  for (uint64_t process = 0; process < kProcesses; ++process) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    ::close(gate[1]);
    char nothing;
    static_cast<void>(::read(gate[0], &nothing, 1));  // until the gate is closed
    work(process, [&] { times[2 * process] = now_s(); });
    times[2 * process + 1] = now_s();
    ::_exit(0);
  }
  ::close(gate[0]);
  const double server_before = place.server_cpu_s(), began = now_s();
  ::close(gate[1]);
  for (const pid_t child : children) {
    int state = 0;
    ::waitpid(child, &state, 0);
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) die("a process failed");
  }
  Took took;
  for (uint64_t process = 0; process < kProcesses; ++process) {
    took.write_s = std::max(took.write_s, times[2 * process] - began);
    took.all_s = std::max(took.all_s, times[2 * process + 1] - began);
  }
  took.cpu_s = (cpu_of(RUSAGE_CHILDREN) - before).total_s() + place.server_cpu_s() - server_before;
  ::munmap(shared, bytes);
  return took;
}

struct Works {
  uint64_t mib, creates, commits, requests;
  std::string data = std::string(1 << 20, 'x');

  Took records(const Place& place, bool shared) const {
    const uint64_t each = std::max<uint64_t>(1, (mib << 20) / kProcesses / kRecord);
    const Took took = together(place, [&](uint64_t process, const std::function<void()>& written) {
      const int file = place.open(shared ? "shared" : "own" + std::to_string(process), O_RDWR | O_CREAT);
      for (uint64_t i = 0; i < each; ++i)
        write_all(file, data.data(), kRecord, kRecord * (shared ? i * kProcesses + process : i));
      written();
      if (::fsync(file) != 0) die("fsync");
      ::close(file);
    });
    place.settle();
    for (uint64_t i = 0; i < kProcesses; ++i)
      ::unlink(place.path(shared ? "shared" : "own" + std::to_string(i)).c_str());
    return took;
  }
  double create(const Place& place) const {
    const auto name = [](uint64_t process, uint64_t i) { return fmt::format("c{}-{}", process, i); };
    const Took took = together(place, [&](uint64_t process, const std::function<void()>& written) {
      for (uint64_t i = 0; i < creates; ++i)
        ::close(place.open(name(process, i), O_CREAT | O_EXCL | O_WRONLY));
      written();
    });
    for (uint64_t process = 0; process < kProcesses; ++process)
      for (uint64_t i = 0; i < creates; ++i) ::unlink(place.path(name(process, i)).c_str());
    place.settle();
    return took.all_s;
  }
  double commit(const Place& place, bool plain) const {
    const int file = place.open("log", O_RDWR | O_CREAT);
    const Stopwatch watch;
    for (uint64_t i = 0; i < commits; ++i) {
      write_all(file, data.data(), kRecord, i * kRecord);
      if ((plain ? ::fdatasync(file) : ::fsync(file)) != 0) die("fsync");
    }
    const double took = watch.wall_s();
    ::close(file);
    place.settle();
    ::unlink(place.path("log").c_str());
    return took;
  }
  double sequential(const Place& place) const {
    const int file = place.open("seq", O_RDWR | O_CREAT);
    const Stopwatch watch;
    for (uint64_t i = 0; i < mib; ++i) write_all(file, data.data(), data.size(), i << 20);
    const double took = watch.wall_s();
    ::close(file);
    place.settle();
    ::unlink(place.path("seq").c_str());
    return took;
  }
  double random(const Place& place, uint64_t seed) const {
    const int file = place.open("random", O_RDWR | O_CREAT);
    const uint64_t size = std::max<uint64_t>(1, mib / 4) << 20;
    for (uint64_t at = 0; at < size; at += data.size()) write_all(file, data.data(), data.size(), at);
    place.settle();
    Rng rng(seed);
    const Stopwatch watch;
    for (uint64_t i = 0; i < requests; ++i)
      write_all(file, data.data(), kSmall, rng.below(size / kSmall) * kSmall);
    const double took = watch.wall_s();
    ::close(file);
    place.settle();
    ::unlink(place.path("random").c_str());
    return took;
  }
};

// Figures of one round, by work and place.
using Round = std::map<std::string, double>;

Round measure(const Works& works, const std::vector<std::unique_ptr<Place>>& places, uint64_t round) {
  static constexpr const char* kNames[] = {"plain", "pass", "spliced", "tree"};
  Round found;
  const auto each = [&](size_t first, const auto& act) {
    for (size_t i = 0; i < places.size(); ++i) {
      const size_t which = (i + round) % places.size();
      if (which == 0 || which >= first) act(*places[which], std::string(kNames[which]));
    }
  };
  const auto keep = [&found](const std::string& name, const Took& took) {
    found[name + ".write"] = took.write_s;
    found[name + ".all"] = took.all_s;
    found[name + ".cpu"] = took.cpu_s;
  };
  each(3,
       [&](const Place& place, const std::string& name) { keep("n1." + name, works.records(place, true)); });
  each(3,
       [&](const Place& place, const std::string& name) { keep("nn." + name, works.records(place, false)); });
  each(3, [&](const Place& place, const std::string& name) {
    found["commit." + name] = works.commit(place, name == "plain");
  });
  each(1,
       [&](const Place& place, const std::string& name) { found["create." + name] = works.create(place); });
  each(1,
       [&](const Place& place, const std::string& name) { found["seq." + name] = works.sequential(place); });
  each(1, [&](const Place& place, const std::string& name) {
    found["random." + name] = works.random(place, round);
  });
  return found;
}

// The rival at its best: with splice or without.
double passthrough(const Round& round, const std::string& work) {
  return std::min(round.at(work + ".pass"), round.at(work + ".spliced"));
}

nlohmann::json ratios(const std::vector<Round>& rounds) {
  const auto median = [&](const std::function<double(const Round&)>& ratio) {
    std::vector<double> values;
    for (const Round& round : rounds) values.push_back(ratio(round));
    return percentile(values, 0.5);
  };
  const auto over_passthrough = [&](const std::string& work) {
    return median([&](const Round& r) { return passthrough(r, work) / r.at(work + ".tree"); });
  };
  return {
      {"n1_over_nn", median([](const Round& r) { return r.at("n1.tree.all") / r.at("nn.tree.all"); })},
      {"nn_over_direct", median([](const Round& r) { return r.at("nn.plain.all") / r.at("nn.tree.all"); })},
      {"n1_write_over_direct_mount",
       median([](const Round& r) { return r.at("n1.plain.write") / r.at("n1.tree.write"); })},
      {"cpu_over_direct", median([](const Round& r) { return r.at("nn.tree.cpu") / r.at("nn.plain.cpu"); })},
      {"commit_over_fdatasync",
       median([](const Round& r) { return r.at("commit.tree") / r.at("commit.plain"); })},
      {"create_mount_over_passthrough", over_passthrough("create")},
      {"mount_over_passthrough_seq", over_passthrough("seq")},
      {"mount_over_passthrough_random", over_passthrough("random")},
      {"rounds", rounds}};
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  std::string root = arguments.text("path");
  Works works;
  works.mib = arguments.number("mib", 2048);
  works.creates = arguments.number("creates", 2000);
  works.commits = arguments.number("commits", 200);
  works.requests = arguments.number("requests", 20'000);
  const uint64_t count = arguments.number("rounds", 3);
  arguments.expect_no_more();
  root += "/swale-bench-tree-" + std::to_string(::getpid());
  std::filesystem::create_directories(root);
  root = std::filesystem::canonical(root).string();
  std::vector<Round> rounds;
  {
    std::vector<std::unique_ptr<Place>> places;
    using Kind = Place::Kind;
    const std::pair<const char*, Kind> kinds[] = {{"plain", Kind::kPlain},
                                                  {"passthrough", Kind::kPassthrough},
                                                  {"spliced", Kind::kSpliced},
                                                  {"tree", Kind::kTree}};
    for (const auto& [name, kind] : kinds)
      places.push_back(std::make_unique<Place>(root, name, kind, (2 * works.mib << 20) + (64 << 20)));
    for (uint64_t round = 0; round < count; ++round) rounds.push_back(measure(works, places, round));
  }
  remove_all(root);
  report_as("bench_fs_tree", "tree", ratios(rounds));
  return 0;
}
