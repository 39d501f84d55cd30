// Descriptor: an open file descriptor that closes itself; continued(): a system call that signals do not
// interrupt.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace swale::io {

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
  Descriptor() = default;  // none
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  // Ignores errors of close: callers that need durable bytes have called sync.
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }  // the caller closes it

 private:
  int fd_ = -1;
};

}  // namespace swale::io
