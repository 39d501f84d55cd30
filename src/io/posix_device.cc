#include "io/posix_device.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace swale::io {
namespace {

// Repeats a system call for as long as signals interrupt it.
template <class Call>
auto continued(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  // Errors of close are not looked at: whoever wants the bytes to last has called sync.
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

class PosixFile : public File {
 public:
  PosixFile(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Result<size_t> pread(uint64_t offset, MutableBytes out) override {
    size_t got = 0;
    while (got < out.size()) {
      const ssize_t n = continued([&] {
        return ::pread(fd_.get(), out.data() + got, out.size() - got, static_cast<off_t>(offset + got));
      });
      if (n < 0) return failure("reading", out.size(), offset);
      if (n == 0) break;
      got += static_cast<size_t>(n);
    }
    return got;
  }

  void read_many(std::span<ReadRequest> requests) override {
    if (requests.size() > 1) {
      // Advice: a file system that cannot take it reads one range after the other, as it would have anyway.
      for (const ReadRequest& request : requests) {
        static_cast<void>(::posix_fadvise(fd_.get(), static_cast<off_t>(request.offset),
                                          static_cast<off_t>(request.out.size()), POSIX_FADV_WILLNEED));
      }
    }
    File::read_many(requests);
  }

  Status pwrite(uint64_t offset, Bytes data) override {
    size_t done = 0;
    while (done < data.size()) {
      const ssize_t n = continued([&] {
        return ::pwrite(fd_.get(), data.data() + done, data.size() - done, static_cast<off_t>(offset + done));
      });
      if (n < 0) return failure("writing", data.size(), offset);
      done += static_cast<size_t>(n);
    }
    return {};
  }

  Status sync() override {
    if (continued([&] { return ::fdatasync(fd_.get()); }) == 0) return {};
    return errno_status(errno, path_ + ": syncing");
  }

  Result<uint64_t> size() override {
    struct stat attributes;
    if (::fstat(fd_.get(), &attributes) != 0) return errno_status(errno, path_ + ": asking for the size");
    return static_cast<uint64_t>(attributes.st_size);
  }

  Status truncate(uint64_t size) override {
    if (continued([&] { return ::ftruncate(fd_.get(), static_cast<off_t>(size)); }) == 0) return {};
    return errno_status(errno, fmt::format("{}: setting the size to {}", path_, size));
  }

  const std::string& path() const override { return path_; }
  int descriptor() const override { return fd_.get(); }

 private:
  Status failure(std::string_view doing, size_t bytes, uint64_t offset) const {
    return errno_status(errno, fmt::format("{}: {} {} bytes at offset {}", path_, doing, bytes, offset));
  }

  const Descriptor fd_;
  const std::string path_;
};

int flags_of(OpenMode mode) {
  switch (mode) {
    case OpenMode::kRead:
      return O_RDONLY;
    case OpenMode::kReadWrite:
      return O_RDWR;
    case OpenMode::kOpenOrCreate:
      return O_RDWR | O_CREAT;
    case OpenMode::kCreate:
      return O_RDWR | O_CREAT | O_EXCL;
  }
  return O_RDONLY;
}

}  // namespace

Result<std::unique_ptr<File>> PosixDevice::open(const std::string& path, OpenMode mode) {
  Descriptor fd(continued([&] { return ::open(path.c_str(), flags_of(mode) | O_CLOEXEC, 0666); }));
  if (fd.get() < 0) return errno_status(errno, path + ": opening");
  if (mode == OpenMode::kRead) {  // the other modes cannot open a directory
    struct stat attributes;
    if (::fstat(fd.get(), &attributes) != 0) return errno_status(errno, path + ": opening");
    if (S_ISDIR(attributes.st_mode)) return errno_status(EISDIR, path + ": opening");
  }
  return std::unique_ptr<File>(std::make_unique<PosixFile>(std::move(fd), path));
}

Status PosixDevice::make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return {};
  return errno_status(errno, path + ": making the directory");
}

Status PosixDevice::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return errno_status(errno, from + ": renaming to " + to);
}

Status PosixDevice::remove(const std::string& path) {
  if (std::remove(path.c_str()) == 0) return {};
  return errno_status(errno, path + ": removing");
}

Status PosixDevice::sync_directory(const std::string& path) {
  const Descriptor fd(continued([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (fd.get() < 0) return errno_status(errno, path + ": opening the directory");
  if (continued([&] { return ::fsync(fd.get()); }) == 0) return {};
  // EINVAL: this file system does not sync directories, and nobody can make it.
  return errno == EINVAL ? Status() : errno_status(errno, path + ": syncing the directory");
}

Result<std::vector<std::string>> PosixDevice::list(const std::string& path) {
  std::vector<std::string> names;
  std::error_code failed;
  std::filesystem::directory_iterator entry(path, failed);
  for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed))
    names.push_back(entry->path().filename().string());
  if (failed) return errno_status(failed.value(), path + ": listing the directory");
  std::sort(names.begin(), names.end());
  return names;
}

Result<bool> PosixDevice::exists(const std::string& path) {
  struct stat attributes;
  if (::stat(path.c_str(), &attributes) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return errno_status(errno, path + ": looking it up");
}

}  // namespace swale::io
