// Compiled without run-time type information, as Debian's LevelDB is: its classes have none to derive from.
#include "bench/pread_env.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace swale::bench {
namespace {

class PreadFile final : public leveldb::RandomAccessFile {
 public:
  PreadFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PreadFile() override { ::close(fd_); }

  leveldb::Status Read(uint64_t offset, size_t bytes, leveldb::Slice* result, char* scratch) const override {
    const ssize_t got = ::pread(fd_, scratch, bytes, static_cast<off_t>(offset));
    if (got < 0) return leveldb::Status::IOError(path_, std::strerror(errno));
    *result = leveldb::Slice(scratch, static_cast<size_t>(got));
    return leveldb::Status::OK();
  }

 private:
  const std::string path_;
  const int fd_;
};

class PreadEnv final : public leveldb::EnvWrapper {
 public:
  PreadEnv() : leveldb::EnvWrapper(leveldb::Env::Default()) {}

  leveldb::Status NewRandomAccessFile(const std::string& path, leveldb::RandomAccessFile** file) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return leveldb::Status::IOError(path, std::strerror(errno));
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);  // no read-ahead that nobody asked for
    *file = new PreadFile(path, fd);
    return leveldb::Status::OK();
  }
};

}  // namespace

std::unique_ptr<leveldb::Env> make_pread_env() { return std::make_unique<PreadEnv>(); }

}  // namespace swale::bench
