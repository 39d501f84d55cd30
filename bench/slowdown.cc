// bench_slowdown: the time of a frame written into a massive directory, over that of plain files, one per
// rank; generating and fsync included in both.
//   --path DIR --ranks N --keys N (in each frame, of all ranks) --frames N
//   --plain device|write  how plain files are written: through the same device, in direct writes of 1 MiB,
//                         eight in flight; or by write(), which is what there is to do where storage is
//                         memory
//   --first plain|swale   who begins. Frames alternate, and so does the order of the two: the second one of a
//                         frame writes into memory that the first one has used
//   --warmup N   frames before, which are not counted
//   --touch 1    before all frames, rank 0 writes and removes files as large as everything that will be
//                there: memory that is used for the first time since the machine started costs more than the
//                work that is measured
//   --limit BYTES/S of each rank's device; 0: no limit
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>

#include "bench/arguments.h"
#include "bench/dataset.h"
#include "bench/measure.h"
#include "bench/ranks.h"
#include "bench/writer_job.h"
#include "imd/write/writer.h"
#include "io/io_queue.h"

namespace swale::bench {
namespace {

struct Work {
  std::string path;
  int ranks = 4;
  Dataset frames;  // an epoch is a frame; those of the warm-up too
  uint32_t warmup = 0;
  uint64_t limit = 0;
  bool plain_write = false;
  bool swale_first = false;
  bool touch = false;

  // Whether the frame's plain file comes before Swale's part of it.
  bool plain_begins(uint32_t frame) const { return (frame % 2 == 0) != swale_first; }
};

// Records gathered into pieces of 1 MiB: full(piece) for each that is full, and the rest at the end.
template <class Full>
void write_pieces(const Work& work, uint32_t frame, Share share, char* piece, Full&& full) {
  constexpr size_t kPieceBytes = size_t{1} << 20;
  size_t fill = 0;
  work.frames.for_each(frame, share, [&](const Record& record) {
    const size_t part = std::min(sizeof record, kPieceBytes - fill);
    const char* bytes = reinterpret_cast<const char*>(&record);
    std::memcpy(piece + fill, bytes, part);
    fill += part;
    if (fill < kPieceBytes) return;
    full(Bytes(piece, fill));
    fill = sizeof record - part;
    std::memcpy(piece, bytes + part, fill);
  });
  full(Bytes(piece, fill));
}

void write_all(int file, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written <= 0) die(fmt::format("write: {}", std::strerror(errno)));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

// What a program does on a file system in memory: write() and fsync.
void write_file(const std::string& path, const Work& work, uint32_t frame, Share share, char* piece) {
  const int file = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) die(fmt::format("open {}: {}", path, std::strerror(errno)));
  write_pieces(work, frame, share, piece, [&](Bytes bytes) { write_all(file, bytes); });
  if (::fsync(file) != 0) die("fsync " + path);
  ::close(file);
}

// What a simulation does without Swale on a slow device, as well as it can be done: every rank appends its
// records to a file of its own, in writes of 1 MiB, eight in flight.
class PlainFrame {
 public:
  explicit PlainFrame(io::Device& device) : device_(device), queue_(take(device.make_queue(kBuffers))) {
    void* memory = ::mmap(nullptr, kBufferBytes * kBuffers, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) die("no memory");
    for (size_t i = 0; i < kBuffers; ++i) free_.push_back(static_cast<char*>(memory) + i * kBufferBytes);
  }

  void write(const std::string& path, const Work& work, uint32_t frame, Share share) {
    if (work.plain_write) return write_file(path, work, frame, share, free_.front());
    const std::unique_ptr<io::File> file = take(device_.open(path, io::OpenMode::kCreate));
    file->prefer_direct();
    file->reserve((share.last - share.first) * kRecordBytes);
    offset_ = 0;
    fill_ = 0;
    char* buffer = next_buffer();
    work.frames.for_each(frame, share, [&](const Record& record) {
      const size_t part = std::min(sizeof record, kBufferBytes - fill_);
      const char* bytes = reinterpret_cast<const char*>(&record);
      std::memcpy(buffer + fill_, bytes, part);
      fill_ += part;
      if (fill_ < kBufferBytes) return;
      submit(*file, buffer);
      buffer = next_buffer();
      fill_ = sizeof record - part;
      std::memcpy(buffer, bytes + part, fill_);
    });
    while (queue_->in_flight() > 0) reap();
    check(file->pwrite(offset_, Bytes(buffer, fill_)));
    free_.push_back(buffer);
    check(file->truncate(offset_ + fill_));
    check(file->sync());
  }

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 20;
  static constexpr size_t kBuffers = 8;

  char* next_buffer() {
    if (free_.empty()) reap();
    char* buffer = free_.back();
    free_.pop_back();
    return buffer;
  }

  void submit(io::File& file, char* buffer) {
    io::Operation operation;
    operation.kind = io::Operation::Kind::kWrite;
    operation.file = &file;
    operation.offset = offset_;
    operation.from = Bytes(buffer, kBufferBytes);
    operation.tag = reinterpret_cast<uint64_t>(buffer);
    queue_->submit({&operation, 1});
    offset_ += kBufferBytes;
  }

  void reap() {
    std::vector<io::Completion> done;
    queue_->wait(1, &done);
    for (const io::Completion& completion : done) {
      check(completion.status);
      free_.push_back(reinterpret_cast<char*>(completion.tag));
    }
  }

  io::Device& device_;
  const std::unique_ptr<io::IoQueue> queue_;
  std::vector<char*> free_;
  uint64_t offset_ = 0;
  size_t fill_ = 0;
};

// All of it, as pages that this machine has given to /dev/shm before.
void touch(const Work& work) {
  const std::string path = work.path + "/touched";
  const std::string piece(size_t{1} << 20, 't');
  const uint64_t frames = work.frames.epochs + 2;  // one plain, and what Swale adds
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) die(fmt::format("open {}: {}", path, std::strerror(errno)));
  for (uint64_t done = 0; done < work.frames.keys * kRecordBytes * frames; done += piece.size())
    write_all(file, piece);
  ::close(file);
  remove_all(path);
}

// Of a frame, in RankReport::frame_s.
enum Moment : size_t { kPlainBegin, kPlainEnd, kSwaleBegin, kSwaleEnd, kMoments };

void run_rank(const Work& work, int rank, RankReport& report, RankBarrier& barrier) {
  if (work.touch && rank == 0) touch(work);
  RankStorage storage(work.limit);
  io::Device& device = storage.device();
  const std::unique_ptr<net::Job> job = open_job(work.ranks);
  imd::WriterOptions options;
  options.memory_bytes = 64 * kMiB;
  const std::unique_ptr<imd::Writer> writer = take(
      imd::Writer::open(*job, device, work.path + "/directory", imd::Writer::Create::kExclusive, options));
  const Share share = share_of(work.frames.keys, rank, work.ranks);
  const std::string file = fmt::format("{}/plain-{}", work.path, rank);
  PlainFrame plain(device);
  const auto write_plain = [&](uint32_t frame, double* times) {
    barrier.wait();
    times[kPlainBegin] = now_s();
    plain.write(file, work, frame, share);
    times[kPlainEnd] = now_s();
    barrier.wait();
    remove_all(file);
  };
  const auto write_swale = [&](uint32_t frame, double* times) {
    barrier.wait();
    times[kSwaleBegin] = now_s();
    work.frames.for_each(frame, share, [&](const Record& record) {
      check(writer->append(Bytes(reinterpret_cast<const char*>(&record.key), kKeyBytes),
                           Bytes(reinterpret_cast<const char*>(record.value.data()), kValueBytes)));
    });
    check(writer->epoch_end(frame * 100, frame * 0.5));
    times[kSwaleEnd] = now_s();
  };
  for (uint32_t frame = 0; frame < work.frames.epochs; ++frame) {
    double* const times = report.frame_s + frame * kMoments;
    if (work.plain_begins(frame)) write_plain(frame, times);
    write_swale(frame, times);
    if (!work.plain_begins(frame)) write_plain(frame, times);
  }
  check(writer->close());
  check(job->close());
}

// From the first rank's begin to the last one's end.
double frame_s(const RanksReport& report, size_t at) {
  double begin = report.ranks.front().frame_s[at];
  double end = 0;
  for (const RankReport& rank : report.ranks) {
    begin = std::min(begin, rank.frame_s[at]);
    end = std::max(end, rank.frame_s[at + 1]);
  }
  return end - begin;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  register_network();
  Arguments arguments(argc, argv);
  Work work;
  work.path = arguments.text("path");
  work.ranks = static_cast<int>(arguments.number("ranks", 4));
  work.frames.keys = arguments.number("keys", 32'000'000);
  work.warmup = static_cast<uint32_t>(arguments.number("warmup", 0));
  work.frames.epochs = work.warmup + static_cast<uint32_t>(arguments.number("frames", 3));
  work.limit = arguments.number("limit", 0);
  constexpr const char* kPlain[] = {"device", "write"};
  constexpr const char* kFirst[] = {"plain", "swale"};
  work.plain_write = arguments.choice("plain", kPlain) == 1;
  work.swale_first = arguments.choice("first", kFirst) == 1;
  work.touch = arguments.number("touch", 0) != 0;
  arguments.expect_no_more();
  if (work.frames.epochs * kMoments > kFramesMax)
    die("--frames: at most " + std::to_string(kFramesMax / kMoments));
  remove_all(work.path);
  std::filesystem::create_directories(work.path);
  const RanksReport ranks = run_ranks(work.ranks, [&](int rank, RankReport& report, RankBarrier& barrier) {
    run_rank(work, rank, report, barrier);
  });
  std::vector<double> plain, swale, ratio;
  for (size_t frame = work.warmup; frame < work.frames.epochs; ++frame) {
    plain.push_back(frame_s(ranks, kMoments * frame + kPlainBegin));
    swale.push_back(frame_s(ranks, kMoments * frame + kSwaleBegin));
    ratio.push_back(swale.back() / plain.back());
  }
  report_as(
      "slowdown", work.plain_write ? "write" : "device",
      {{"limit", work.limit},
       {"ranks", work.ranks},
       {"records", work.frames.keys * work.frames.epochs},
       {"swale_bytes", bytes_on_disk(work.path + "/directory")},  // of all frames, those of the warm-up too
       {"bytes_per_rank", work.frames.keys / static_cast<uint64_t>(work.ranks) * kRecordBytes},
       {"plain_s", plain},
       {"swale_s", swale},
       {"ratio", ratio}});
  return 0;
}
