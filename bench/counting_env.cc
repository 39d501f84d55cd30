// Compiled without run-time type information, as Debian's LevelDB is: its classes have none to derive from.
#include "bench/counting_env.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace swale::bench {
namespace {

bool ends_with(const std::string& path, const char* suffix) { return path.ends_with(suffix); }

class CountedRead final : public leveldb::RandomAccessFile {
 public:
  CountedRead(EnvCounts& counts, std::string path, int fd)
      : counts_(counts), path_(std::move(path)), fd_(fd) {}
  ~CountedRead() override { ::close(fd_); }

  leveldb::Status Read(uint64_t offset, size_t bytes, leveldb::Slice* result, char* scratch) const override {
    const ssize_t got = ::pread(fd_, scratch, bytes, static_cast<off_t>(offset));
    if (got < 0) return leveldb::Status::IOError(path_, std::strerror(errno));
    *result = leveldb::Slice(scratch, static_cast<size_t>(got));
    counts_.bytes_read += static_cast<uint64_t>(got);
    ++counts_.reads;
    counts_.touch(path_);
    return leveldb::Status::OK();
  }

 private:
  EnvCounts& counts_;
  const std::string path_;
  const int fd_;
};

// As io::LimitedDevice: a virtual queue whose end moves on by bytes / rate and starts no earlier than now.
class Throttle {
 public:
  explicit Throttle(uint64_t limit) : nanos_per_byte_(limit == 0 ? 0 : 1e9 / static_cast<double>(limit)) {}

  Nanos take_place(uint64_t bytes) {
    if (nanos_per_byte_ == 0) return 0;
    const std::lock_guard lock(mutex_);
    due_ = std::max(due_, system_clock().now()) +
           static_cast<Nanos>(static_cast<double>(bytes) * nanos_per_byte_);
    return due_;
  }

  // A few milliseconds of writes may be ahead, as in a device's queue.
  static void wait_until(Nanos due, Nanos ahead) {
    const Nanos rest = due - ahead - system_clock().now();
    if (rest <= 0) return;
    const timespec pause = {.tv_sec = rest / 1'000'000'000, .tv_nsec = rest % 1'000'000'000};
    ::nanosleep(&pause, nullptr);
  }

 private:
  const double nanos_per_byte_;
  std::mutex mutex_;
  Nanos due_ = 0;
};

class TableFile final : public leveldb::WritableFile {
 public:
  TableFile(EnvCounts& counts, Throttle& throttle, leveldb::WritableFile* file)
      : counts_(counts), throttle_(throttle), file_(file) {}

  leveldb::Status Append(const leveldb::Slice& data) override {
    counts_.table_bytes_written += data.size();
    due_ = throttle_.take_place(data.size());
    Throttle::wait_until(due_, kAhead);
    return file_->Append(data);
  }
  leveldb::Status Close() override { return file_->Close(); }
  leveldb::Status Flush() override { return file_->Flush(); }
  leveldb::Status Sync() override {
    Throttle::wait_until(due_, 0);
    return file_->Sync();
  }

 private:
  static constexpr Nanos kAhead = milliseconds(10);
  EnvCounts& counts_;
  Throttle& throttle_;
  const std::unique_ptr<leveldb::WritableFile> file_;
  Nanos due_ = 0;
};

class UnsyncedFile final : public leveldb::WritableFile {
 public:
  explicit UnsyncedFile(leveldb::WritableFile* file) : file_(file) {}
  leveldb::Status Append(const leveldb::Slice& data) override { return file_->Append(data); }
  leveldb::Status Close() override { return file_->Close(); }
  leveldb::Status Flush() override { return file_->Flush(); }
  leveldb::Status Sync() override { return file_->Flush(); }

 private:
  const std::unique_ptr<leveldb::WritableFile> file_;
};

class NoFile final : public leveldb::WritableFile {
 public:
  leveldb::Status Append(const leveldb::Slice&) override { return leveldb::Status::OK(); }
  leveldb::Status Close() override { return leveldb::Status::OK(); }
  leveldb::Status Flush() override { return leveldb::Status::OK(); }
  leveldb::Status Sync() override { return leveldb::Status::OK(); }
};

class NoLogger final : public leveldb::Logger {
 public:
  void Logv(const char*, std::va_list) override {}
};

class CountingEnv final : public leveldb::EnvWrapper {
 public:
  CountingEnv(EnvCounts& counts, uint64_t limit)
      : leveldb::EnvWrapper(leveldb::Env::Default()), counts_(counts), throttle_(limit) {}

  leveldb::Status NewRandomAccessFile(const std::string& path, leveldb::RandomAccessFile** file) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return leveldb::Status::IOError(path, std::strerror(errno));
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);  // no read-ahead that nobody asked for
    *file = new CountedRead(counts_, path, fd);
    return leveldb::Status::OK();
  }

  leveldb::Status NewWritableFile(const std::string& path, leveldb::WritableFile** file) override {
    if (ends_with(path, ".log")) {
      *file = new NoFile;
      return leveldb::Status::OK();
    }
    leveldb::WritableFile* below = nullptr;
    if (leveldb::Status status = target()->NewWritableFile(path, &below); !status.ok()) return status;
    if (ends_with(path, ".ldb")) {
      ++counts_.tables_written;
      *file = new TableFile(counts_, throttle_, below);
    } else {
      *file = new UnsyncedFile(below);
    }
    return leveldb::Status::OK();
  }

  leveldb::Status NewLogger(const std::string&, leveldb::Logger** logger) override {
    *logger = new NoLogger;
    return leveldb::Status::OK();
  }

 private:
  EnvCounts& counts_;
  Throttle throttle_;
};

}  // namespace

std::unique_ptr<leveldb::Env> make_counting_env(EnvCounts& counts, uint64_t limit) {
  return std::make_unique<CountingEnv>(counts, limit);
}

}  // namespace swale::bench
