// bench_fs: the node-local logs (src/fs/log) beside tmpfs, on one thread: what is timed is a process's own
// call; the server works between batches, and its time is reported apart.
//   --mode write      writes of --bytes into a log, and pwrite of the same to a tmpfs file whose pages are
//   there,
//                     in turn, batch by batch; both go round in the same amount of memory, as a drained log
//                     does
//   --mode recovery   a server finds logs of --mib that the one before has left, and checks them
//   --memory DIR      on a memory file system (made and removed)
//   --batches N       of a MiB at most
// Reported: nanoseconds a call and their ratio (median of the batches' ratios); the server's nanoseconds a
// piece; seconds a GiB of recovery.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/measure.h"
#include "fs/log/log_writer.h"
#include "fs/log/node_logs.h"
#include "io/posix_device.h"

namespace swale::bench {
namespace {

constexpr uint64_t kBatchBytes = 1 << 20;
constexpr uint64_t kWarmBytes = 64 << 20;
constexpr meta::FileId kFile{1, 1};

// What the metadata store would do with the segments is measured by bench_meta_index.
class Consumer : public fs::SegmentConsumer {
 public:
  Status take(std::span<const fs::Segment> segments) override {
    taken.assign(segments.begin(), segments.end());
    pieces += segments.size();
    for (const fs::Segment& segment : segments) bytes += segment.length;
    return {};
  }
  void damaged(const Status& status) override { die(status.to_string()); }

  std::vector<fs::Segment> taken;
  uint64_t pieces = 0;
  uint64_t bytes = 0;
};

struct Bed {
  explicit Bed(const std::string& memory) : folder(memory + "/swale-bench-fs-" + std::to_string(::getpid())) {
    options.memory_directory = folder + "/node";
    options.memory_bytes = uint64_t{4} << 30;
    options.shape.slots = fs::kSlotsMax;
    options.shape.wait_ns = 1'000'000'000;
    options.shape.node = "bench";
    remove_all(folder);
  }
  ~Bed() {
    logs.reset();
    remove_all(folder);
  }
  void open() {
    auto opened = fs::NodeLogs::open(device, device, options);
    check(opened.status());
    logs = std::move(*opened);
  }
  // Everything is taken, and dropped as if it had been drained.
  void serve() {
    check(logs->take(consumer));
    for (const fs::Segment& segment : consumer.taken) check(logs->drop(segment.place, segment.length));
    consumer.taken.clear();
    check(logs->serve());
  }
  void attach(fs::LogWriter& writer) {
    const auto log = logs->add_log();
    check(log.status());
    if (writer.attach(options.memory_directory.c_str(), *log) != 0) die("cannot attach to a log");
  }

  const std::string folder;
  io::PosixDevice device;
  fs::NodeLogsOptions options;
  std::unique_ptr<fs::NodeLogs> logs;
  Consumer consumer;
};

nlohmann::json write_mode(Bed& bed, uint64_t bytes, uint64_t batches) {
  bed.open();
  fs::LogWriter writer;
  bed.attach(writer);
  const std::string data(bytes, 'x');
  const uint64_t calls = std::max<uint64_t>(1, kBatchBytes / bytes);
  uint64_t offset = 0, place = 0;
  double served_s = 0;
  const auto ours = [&] {
    const double began = now_s();
    for (uint64_t i = 0; i < calls; ++i, offset += bytes) {
      if (writer.write(kFile, offset, data.data(), bytes) != static_cast<int64_t>(bytes))
        die("a write failed");
    }
    const double took = now_s() - began;
    const double serving = now_s();
    bed.serve();
    served_s += now_s() - serving;
    return took;
  };
  for (uint64_t i = 0; i < kWarmBytes / kBatchBytes; ++i) ours();
  // What a log needs that is drained at once; the rival gets as much, no more caches and no fewer.
  const uint64_t round_bytes = bed.logs->memory_bytes();
  const std::string path = bed.folder + "/plain";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ::posix_fallocate(fd, 0, round_bytes + static_cast<off_t>(bytes)) != 0)
    die(path + ": no space");
  const auto plain = [&] {
    const double began = now_s();
    for (uint64_t i = 0; i < calls; ++i) {
      if (::pwrite(fd, data.data(), bytes, static_cast<off_t>(place)) != static_cast<ssize_t>(bytes))
        die(path);
      place += bytes;
      if (place > round_bytes) place = 0;
    }
    return now_s() - began;
  };
  for (uint64_t i = 0; i < kWarmBytes / kBatchBytes; ++i) plain();
  ours();
  bed.consumer.pieces = 0, served_s = 0;
  std::vector<double> ratios, ours_ns, plain_ns;
  for (uint64_t i = 0; i < batches; ++i) {
    const bool first = i % 2 == 0;
    const double before = first ? ours() : plain();
    const double after = first ? plain() : ours();
    const double mine = first ? before : after, theirs = first ? after : before;
    ratios.push_back(theirs / mine);
    ours_ns.push_back(mine / static_cast<double>(calls) * 1e9);
    plain_ns.push_back(theirs / static_cast<double>(calls) * 1e9);
  }
  ::close(fd);
  return {{"bytes", bytes},
          {"calls", calls * batches},
          {"round_bytes", round_bytes},
          {"log_ns", percentile(ours_ns, 0.5)},
          {"tmpfs_ns", percentile(plain_ns, 0.5)},
          {"ratio", percentile(ratios, 0.5)},
          {"server_ns_per_piece", served_s * 1e9 / static_cast<double>(bed.consumer.pieces)}};
}

nlohmann::json recovery_mode(Bed& bed, uint64_t bytes, uint64_t mib) {
  bed.open();
  std::vector<fs::LogWriter> writers(4);
  for (auto& writer : writers) bed.attach(writer);
  const std::string data(bytes, 'x');
  const uint64_t calls = std::max<uint64_t>(1, (mib << 20) / bytes);
  for (uint64_t i = 0; i < calls; ++i) {
    if (writers[i % 4].write(kFile, i * bytes, data.data(), bytes) < 0) die("a write failed");
    if (i % 64 != 63) continue;
    check(bed.logs->take(bed.consumer));
    check(bed.logs->serve());
  }
  bed.logs.reset();
  bed.consumer = Consumer();
  const double began = now_s();
  bed.open();
  check(bed.logs->recover(bed.consumer));
  check(bed.logs->take(bed.consumer));
  const double took = now_s() - began;
  if (bed.consumer.pieces != calls || bed.consumer.bytes != calls * bytes) die("not all writes were found");
  return {{"bytes", calls * bytes},
          {"pieces", calls},
          {"recovery_s", took},
          {"s_per_gib", took * static_cast<double>(kGiB) / static_cast<double>(calls * bytes)}};
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  constexpr const char* kModes[] = {"write", "recovery"};
  Arguments arguments(argc, argv);
  const size_t mode = arguments.choice("mode", kModes);
  const uint64_t bytes = arguments.number("bytes", 4096);
  const uint64_t batches = arguments.number("batches", 400);
  const uint64_t mib = arguments.number("mib", 1024);
  Bed bed(arguments.text("memory", "/dev/shm"));
  arguments.expect_no_more();
  if (bytes < 1 || bytes > kBatchBytes) die("--bytes: 1 to 1048576");
  report_as("bench_fs", kModes[mode],
            mode == 0 ? write_mode(bed, bytes, batches) : recovery_mode(bed, bytes, mib));
  return 0;
}
