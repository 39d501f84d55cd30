#include "net/fabric/sockets.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace swale::net {
namespace {

class KernelWatch final : public SocketWatch {
 public:
  ~KernelWatch() override {
    if (timer_ >= 0) ::close(timer_);
    if (epoll_ >= 0) ::close(epoll_);
  }
  Status init() {
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (epoll_ < 0 || timer_ < 0) return errno_status(errno, "epoll_create1, timerfd_create");
    return {};
  }
  int fd() const override { return epoll_; }
  int add(int socket, uint32_t events, void* what) override {
    return control(EPOLL_CTL_ADD, socket, events, what);
  }
  int change(int socket, uint32_t events, void* what) override {
    return control(EPOLL_CTL_MOD, socket, events, what);
  }
  int ready(epoll_event* out, int max) override { return ::epoll_wait(epoll_, out, max, 0); }
  void tick(Nanos period, void* what) override {
    if (!watches_timer_) watches_timer_ = add(timer_, EPOLLIN, what) == 0;
    itimerspec times{};
    times.it_interval = times.it_value = {period / seconds(1), period % seconds(1)};
    ::timerfd_settime(timer_, 0, &times, nullptr);
  }
  bool take_tick() override {
    uint64_t times;
    return ::read(timer_, &times, sizeof(times)) > 0;
  }

 private:
  int control(int how, int socket, uint32_t events, void* what) const {
    epoll_event event{};
    event.events = events;
    event.data.ptr = what;
    return ::epoll_ctl(epoll_, how, socket, &event);
  }
  int epoll_ = -1;
  int timer_ = -1;
  bool watches_timer_ = false;
};

class KernelSockets final : public Sockets {
 public:
  const Clock& clock() const override { return system_clock(); }
  Result<std::vector<InterfaceAddress>> addresses() override { return addresses_in_use(); }
  Result<std::unique_ptr<SocketWatch>> make_watch() override {
    auto made = std::make_unique<KernelWatch>();
    SWALE_RETURN_IF_ERROR(made->init());
    return std::unique_ptr<SocketWatch>(std::move(made));
  }
  int socket(int family) override { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }
  int connect(int socket, const Endpoint& to) override { return ::connect(socket, to.get(), to.bytes); }
  int failure_of(int socket) override {
    int failure = 0;
    socklen_t bytes = sizeof(failure);
    return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &failure, &bytes) != 0 ? errno : failure;
  }
  // Without these the connection is slower, or its end is found later.
  void set_patience(int socket, Nanos patience) override {
    const int on = 1;
    const auto ms = static_cast<unsigned>(std::min<Nanos>(patience / milliseconds(1), INT_MAX));
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
  }
  Result<int> listen(Endpoint* at) override {
    constexpr int kBacklog = 4096;  // the system's limit is the smaller one
    const int fd = socket(at->storage.ss_family);
    if (fd < 0) return errno_status(errno, "socket");
    const int on = 1;
    if (at->storage.ss_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    Endpoint bound;
    bound.bytes = sizeof(bound.storage);
    if (::bind(fd, at->get(), at->bytes) != 0 || ::listen(fd, kBacklog) != 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.bytes) != 0) {
      const Status why = errno_status(errno, fmt::format("listening at {}", at->text()));
      ::close(fd);
      return why;
    }
    *at = bound;
    return fd;
  }
  int accept(int listener, Endpoint* from) override {
    from->bytes = sizeof(from->storage);
    return ::accept4(listener, reinterpret_cast<sockaddr*>(&from->storage), &from->bytes,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
  }
  int reserve() override { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
  ssize_t receive(int socket, char* into, size_t room) override {
    return ::recv(socket, into, room, MSG_DONTWAIT);
  }
  ssize_t send(int socket, const char* bytes, size_t count) override {
    return ::send(socket, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void close(int socket) override { ::close(socket); }
};

}  // namespace

Sockets& kernel_sockets() {
  static KernelSockets sockets;
  return sockets;
}

}  // namespace swale::net
