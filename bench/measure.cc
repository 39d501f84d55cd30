#include "bench/measure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "bench/arguments.h"

namespace swale::bench {
namespace {

namespace fs = std::filesystem;

// "VmHWM:   1234 kB" of /proc/self/status, "read_bytes: 1234" of /proc/self/io.
uint64_t field_of_file(const char* file, const std::string& field) {
  std::ifstream lines(file);
  std::string word;
  while (lines >> word) {
    if (word == field + ":") {
      uint64_t number = 0;
      lines >> number;
      return number;
    }
  }
  die(fmt::format("{} has no {}", file, field));
}

template <class Fn>
void for_each_file(const std::string& path, Fn&& fn) {
  if (!fs::is_directory(path)) return fn(path);
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) fn(entry.path().string());
  }
}

// fn(descriptor) for every file that is there: a store that is at work removes some.
template <class Fn>
void for_each_descriptor(const std::string& path, Fn&& fn) {
  for_each_file(path, [&](const std::string& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return;
    if (fd < 0) die(fmt::format("open {}: {}", file, std::strerror(errno)));
    fn(fd);
    ::close(fd);
  });
}

}  // namespace

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_cpu_s() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

Cpu cpu_of(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {seconds(usage.ru_utime), seconds(usage.ru_stime)};
}

uint64_t memory_bytes() { return field_of_file("/proc/self/status", "VmRSS") * 1024; }
uint64_t memory_peak_bytes() { return field_of_file("/proc/self/status", "VmHWM") * 1024; }
void reset_memory_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

DiskUse disk_use(const std::string& directory) {
  DiskUse use;
  for_each_file(directory, [&](const std::string& file) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0 && errno != ENOENT)
      die(fmt::format("stat {}: {}", file, std::strerror(errno)));
    use.size_bytes += static_cast<uint64_t>(info.st_size);
    use.allocated_bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  });
  return use;
}

void remove_all(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) die(fmt::format("remove {}: {}", path, error.message()));
}

void evict(const std::string& path) {
  for_each_descriptor(path, [](int fd) { ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); });
}

void preload(const std::string& path) {
  std::vector<char> buffer(1 << 20);
  for_each_descriptor(path, [&](int fd) {
    while (::read(fd, buffer.data(), buffer.size()) > 0) {
    }
  });
}

bool drop_all_caches() {
  std::ofstream control("/proc/sys/vm/drop_caches");
  control << "3" << std::flush;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return control.good();
}

void keep_code_resident() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    uint64_t begin = 0;
    uint64_t end = 0;
    char mode[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, mode) != 3 || mode[0] != 'r' ||
        mode[1] == 'w' || line.find('/') == std::string::npos) {
      continue;
    }
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
  }
}

uint64_t storage_bytes_read() { return field_of_file("/proc/self/io", "read_bytes"); }
uint64_t storage_bytes_written() { return field_of_file("/proc/self/io", "write_bytes"); }

double percentile(std::vector<double>& samples, double fraction) {
  if (samples.empty()) die("no samples");
  std::sort(samples.begin(), samples.end());
  const auto index = static_cast<size_t>(static_cast<double>(samples.size()) * fraction);
  return samples[std::min(index, samples.size() - 1)];
}

nlohmann::json summary(std::vector<double> samples) {
  const double p50 = percentile(samples, 0.5);
  return {{"p50", p50},
          {"p99", percentile(samples, 0.99)},
          {"min", samples.front()},
          {"max", samples.back()},
          {"count", samples.size()}};
}

nlohmann::json costs_of(double records, double wall_s, const Cpu& cpu) {
  return {{"records", records},
          {"wall_s", wall_s},
          {"cpu_user_s", cpu.user_s},
          {"cpu_system_s", cpu.system_s},
          {"cpu_ns_per_record", cpu.total_s() / records * 1e9}};
}

uint64_t bytes_on_disk(const std::string& directory) {
  const DiskUse use = disk_use(directory);
  return std::max(use.size_bytes, use.allocated_bytes);
}

uint64_t files_below(const std::string& directory) {
  uint64_t count = 0;
  for_each_file(directory, [&](const std::string&) { ++count; });
  return count;
}

void report_as(const char* program, const std::string& mode, nlohmann::json line) {
  line["program"] = program;
  if (!mode.empty()) line["mode"] = mode;
  report(line);
}

void report(const nlohmann::json& line) {
  fmt::print("{}\n", line.dump());
  if (std::fflush(stdout) != 0) die("stdout is closed");
}

nlohmann::json run_fresh(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"/proc/self/exe"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) die("pipe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const std::string program = fs::read_symlink("/proc/self/exe");
  if (::posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environ) != 0)
    die("posix_spawn");
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0)
    die(fmt::format("a fresh process failed: {}", text));
  return nlohmann::json::parse(text);
}

}  // namespace swale::bench
