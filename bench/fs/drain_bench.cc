// bench_fs_drain: a node's files go to a backing directory (src/fs/node/drain.h) beside `cp -r` and `sync` of
// the same files from the same memory, in turn. Half of the bytes are one file that eight logs write in
// strided records, half are 64 files.
//   --memory DIR      on a memory file system: logs, rows and the files that cp reads (made and removed)
//   --backing DIR     where both write (made and removed)
//   --mib N           of all files together
//   --rounds N
// Reported: cp's time and processor time over the drain's (medians of the rounds' ratios); nanoseconds that
// the server needs to take in a record, its checksum apart from it.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/measure.h"
#include "fs/log/log_writer.h"
#include "fs/node/drain.h"
#include "io/posix_device.h"

namespace swale::bench {
namespace {

constexpr uint64_t kRecord = 47'008;
constexpr uint64_t kPiece = 1 << 20;
constexpr uint64_t kLogs = 8;
constexpr uint64_t kFiles = 64;
constexpr uint64_t kServeBytes = 8 << 20;  // written between two turns of the server

class BenchBacking final : public fs::Backing {
 public:
  using Backing::Backing;
  Result<std::string> path_of(const meta::FileId& file) override {
    return fmt::format("{}/f{}", root(), file.low);
  }
};

struct Took {
  double wall_s = 0;
  double cpu_s = 0;
};

class DrainBench {
 public:
  DrainBench(const std::string& memory, const std::string& backing, uint64_t mib)
      : own_("/swale-bench-drain-" + std::to_string(::getpid())),
        memory_(memory + own_),
        backing_(backing + own_),
        bytes_(std::max(mib << 20, 2 * kFiles * kPiece)) {
    remove_all(memory_);
    remove_all(backing_);
    std::filesystem::create_directories(memory_ + "/plain");
    std::filesystem::create_directories(backing_ + "/ours");
    anchored_ = take(io::PosixDevice({.links = io::PosixOptions::Links::kNone}).anchored(backing_ + "/ours"));
    names_ = std::make_unique<BenchBacking>(*anchored_, backing_ + "/ours");
    data_.resize(kPiece + kRecord);
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<char>(i * 2'654'435'761 >> 13);
    make_plain();
  }
  ~DrainBench() {
    files_.reset();
    remove_all(memory_);
    remove_all(backing_);
  }

  nlohmann::json run(uint64_t rounds) {
    std::vector<double> wall, cpu, taking;
    nlohmann::json each = nlohmann::json::array();
    for (uint64_t round = 0; round < rounds; ++round) {
      taking.push_back(write_logs());
      const bool first = round % 2 == 0;
      const Took before = first ? ours() : copied();
      const Took after = first ? copied() : ours();
      const Took mine = first ? before : after, theirs = first ? after : before;
      if (round == 0) compare();
      wall.push_back(theirs.wall_s / mine.wall_s);
      cpu.push_back(theirs.cpu_s / mine.cpu_s);
      each.push_back({mine.wall_s, mine.cpu_s, theirs.wall_s, theirs.cpu_s});
      clear();
    }
    return {{"bytes", bytes_},
            {"ratio", percentile(wall, 0.5)},
            {"cpu_ratio", percentile(cpu, 0.5)},
            {"take_ns_per_record", percentile(taking, 0.5)},
            {"seconds", each}};
  }

 private:
  template <class Write>
  void write_all(const Write& write) {  // write(file, offset, data, bytes, log)
    const uint64_t records = bytes_ / 2 / kRecord;
    for (uint64_t i = 0; i < records; ++i)
      write(0, i * kRecord, data_.data() + i % kPiece, kRecord, i % kLogs);
    shared_done();
    for (uint64_t at = 0; at < bytes_ / 2 / kFiles; at += kPiece)
      for (uint64_t file = 1; file <= kFiles; ++file)
        write(file, at, data_.data() + (file + at) % kRecord, kPiece, file % kLogs);
  }
  void shared_done() {
    if (files_) check(files_->take());
    shared_taken_s_ = taken_s_;
  }
  void make_plain() {
    std::map<uint64_t, int> open;
    write_all([&](uint64_t file, uint64_t offset, const char* data, uint64_t bytes, uint64_t) {
      const std::string path = fmt::format("{}/plain/f{}", memory_, file);
      auto at = open.find(file);
      if (at == open.end())
        at = open.emplace(file, ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)).first;
      if (::pwrite(at->second, data, bytes, static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes))
        die(path);
    });
    for (const auto& [file, fd] : open) ::close(fd);
  }
  double write_logs() {
    fs::NodeLogsOptions options;
    options.memory_directory = memory_ + "/node";
    options.spill_directory = memory_ + "/rows";
    options.memory_bytes = 2 * bytes_ + (kLogs << 24);
    options.shape = {"bench", fs::kChunkBytes, fs::kSlotsMax, 1'000'000'000};
    files_ = take(fs::NodeFiles::open(device_, device_, options, *names_));
    std::vector<fs::LogWriter> writers(kLogs);
    for (fs::LogWriter& writer : writers) {
      if (writer.attach(options.memory_directory.c_str(), take(files_->logs().add_log())) != 0)
        die("cannot attach to a log");
    }
    taken_s_ = 0;
    uint64_t written = 0;
    write_all([&](uint64_t file, uint64_t offset, const char* data, uint64_t bytes, uint64_t log) {
      if (writers[log].write({1, file}, offset, data, bytes) != static_cast<int64_t>(bytes))
        die("a write failed");
      written += bytes;
      if (written < kServeBytes) return;
      written = 0;
      const double began = thread_cpu_s();
      check(files_->take());
      taken_s_ += thread_cpu_s() - began;
      check(files_->serve());
    });
    check(files_->serve());
    return shared_taken_s_ * 1e9 / static_cast<double>(bytes_ / 2 / kRecord);
  }
  Took ours() {
    auto drain = take(fs::Drain::open(*files_, *names_, {.job = "bench", .rules = {}}));
    const Stopwatch watch;
    check(drain->all());
    return {watch.wall_s(), watch.cpu().total_s()};
  }
  Took copied() {
    const Cpu before = cpu_of(RUSAGE_CHILDREN);
    const double began = now_s();
    const std::string command =
        fmt::format("cp -r '{0}/plain' '{1}/theirs' && sync -f '{1}/theirs'", memory_, backing_);
    if (std::system(command.c_str()) != 0) die(command);
    return {now_s() - began, (cpu_of(RUSAGE_CHILDREN) - before).total_s()};
  }
  void compare() {
    const std::string command = fmt::format(
        "diff -r '{0}/plain' '{1}/theirs' && for f in '{0}'/plain/*; do "
        "cmp \"$f\" '{1}'/ours/\"$(basename \"$f\")\" || exit 1; done",
        memory_, backing_);
    if (std::system(command.c_str()) != 0) die("the drained files are not what was written");
  }
  void clear() {
    files_.reset();
    for (const char* const folder : {"/node", "/rows"}) remove_all(memory_ + folder);
    remove_all(backing_ + "/theirs");
    for (const auto& file : std::filesystem::directory_iterator(backing_ + "/ours")) remove_all(file.path());
    if (std::system(fmt::format("sync -f '{}'", backing_).c_str()) != 0) die("sync");
  }

  const std::string own_, memory_, backing_;
  const uint64_t bytes_;
  io::PosixDevice device_;
  std::unique_ptr<io::Device> anchored_;
  std::unique_ptr<BenchBacking> names_;
  std::unique_ptr<fs::NodeFiles> files_;
  std::string data_;
  double taken_s_ = 0, shared_taken_s_ = 0;
};

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const std::string memory = arguments.text("memory", "/dev/shm");
  const std::string backing = arguments.text("backing");
  const uint64_t mib = arguments.number("mib", 2048);
  const uint64_t rounds = arguments.number("rounds", 3);
  arguments.expect_no_more();
  report_as("bench_fs_drain", "drain", DrainBench(memory, backing, mib).run(rounds));
  return 0;
}
