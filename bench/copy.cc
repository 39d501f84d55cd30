// bench_copy: what a copy of files costs at least: O_DIRECT reads of them and O_DIRECT writes of as many
// bytes as wanted, a piece of 1 MiB after the other on each thread, durable at the end.
//   --from DIR (files p000/*.data) --to FILE --write-bytes N --threads N
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "bench/arguments.h"
#include "bench/measure.h"

namespace swale::bench {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr size_t kPageBytes = 4096;

int open_direct(const std::string& path, int flags) {
  int fd = ::open(path.c_str(), flags | O_DIRECT, 0666);
  if (fd < 0) fd = ::open(path.c_str(), flags, 0666);
  if (fd < 0) die(fmt::format("{}: {}", path, std::strerror(errno)));
  return fd;
}

class Copy {
 public:
  Copy(const std::string& from, const std::string& to, uint64_t write_bytes) : write_bytes_(write_bytes) {
    for (const auto& file : std::filesystem::directory_iterator(from + "/p000")) {
      if (file.path().extension() != ".data") continue;
      const int fd = open_direct(file.path(), O_RDONLY);
      for (uint64_t at = 0; at < file.file_size(); at += kPieceBytes) pieces_.push_back({fd, at});
      files_.push_back(fd);
      read_bytes_ += file.file_size();
    }
    to_ = open_direct(to, O_WRONLY | O_CREAT | O_TRUNC);
    if (::posix_fallocate(to_, 0, static_cast<off_t>(write_bytes)) != 0) die(to + ": no space");
  }
  ~Copy() {
    for (const int fd : files_) ::close(fd);
    ::close(to_);
  }

  uint64_t read_bytes() const { return read_bytes_; }

  void run(uint64_t threads) {
    std::vector<std::thread> all;
    for (uint64_t i = 0; i < threads; ++i) all.emplace_back([this] { work(); });
    for (std::thread& thread : all) thread.join();
    if (::fdatasync(to_) != 0) die("fdatasync");
  }

 private:
  struct Piece {
    int fd;
    uint64_t at;
  };

  void work() {
    const std::unique_ptr<char, decltype(&std::free)> memory(
        static_cast<char*>(std::aligned_alloc(kPageBytes, kPieceBytes)), &std::free);
    std::memset(memory.get(), 'c', kPieceBytes);
    const uint64_t writes = (write_bytes_ + kPieceBytes - 1) / kPieceBytes;
    for (;;) {
      const uint64_t piece = next_++;
      if (piece >= std::max<uint64_t>(pieces_.size(), writes)) return;
      if (piece < pieces_.size()) {
        const auto at = static_cast<off_t>(pieces_[piece].at);
        if (::pread(pieces_[piece].fd, memory.get(), kPieceBytes, at) <= 0) die("pread");
      }
      if (piece < writes) {
        const uint64_t left = write_bytes_ - piece * kPieceBytes;
        const uint64_t bytes = std::min(kPieceBytes, (left + kPageBytes - 1) / kPageBytes * kPageBytes);
        const auto at = static_cast<off_t>(piece * kPieceBytes);
        if (::pwrite(to_, memory.get(), bytes, at) != static_cast<ssize_t>(bytes)) die("pwrite");
      }
    }
  }

  const uint64_t write_bytes_;
  uint64_t read_bytes_ = 0;
  int to_ = -1;
  std::vector<int> files_;
  std::vector<Piece> pieces_;
  std::atomic<uint64_t> next_{0};
};

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const std::string from = arguments.text("from");
  const std::string to = arguments.text("to");
  const uint64_t write_bytes = arguments.number("write-bytes", 0);
  const uint64_t threads = arguments.number("threads", 1);
  arguments.expect_no_more();
  const Stopwatch stopwatch;
  uint64_t read_bytes = 0;
  {
    Copy copy(from, to, write_bytes);
    copy.run(threads);
    read_bytes = copy.read_bytes();
  }
  const double wall_s = stopwatch.wall_s();
  remove_all(to);
  report({{"program", "copy"},
          {"threads", threads},
          {"bytes_read", read_bytes},
          {"bytes_written", write_bytes},
          {"wall_s", wall_s},
          {"cpu_s", stopwatch.cpu().total_s()}});
  return 0;
}
