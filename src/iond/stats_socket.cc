#include "iond/stats_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/contain.h"
#include "base/start_thread.h"
#include "io/unix_address.h"

namespace swale::iond {
namespace {

constexpr int kWaitingMax = 16;      // connections
constexpr int kAcceptAgainMs = 100;  // after a refusal, which the waiting connection would repeat at once

io::Descriptor open_directory(const std::string& directory) {
  return io::Descriptor(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

}  // namespace

Result<std::unique_ptr<StatsSocket>> StatsSocket::open(const std::string& directory, Text text) {
  std::unique_ptr<StatsSocket> made(new StatsSocket());
  made->text_ = std::move(text);
  const auto failed = [&](std::string_view step) {
    return errno_status(errno, fmt::format("{}/{}: {}", directory, kStatsSocket, step));
  };
  io::Descriptor folder = open_directory(directory);
  if (!folder.valid()) return failed("opening its directory");
  if (::unlinkat(folder.get(), kStatsSocket, 0) != 0 && errno != ENOENT) return failed("removing an old one");
  made->listener_ = io::Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  made->end_ = io::Descriptor(::eventfd(0, EFD_CLOEXEC));
  if (!made->listener_.valid() || !made->end_.valid()) return failed("making a socket");
  const sockaddr_un address = io::unix_address(folder, kStatsSocket);
  if (::bind(made->listener_.get(), io::general(address), sizeof(address)) != 0)
    return failed("binding a socket");
  made->directory_ = std::move(folder);  // the socket is there, and is removed at the end
  if (::listen(made->listener_.get(), kWaitingMax) != 0) return failed("listening");
  SWALE_RETURN_IF_ERROR(start_thread(&made->thread_, "the thread that tells statistics",
                                     [self = made.get()] { self->serve(); }));
  return made;
}

StatsSocket::~StatsSocket() {
  if (thread_.joinable()) {
    const uint64_t now = 1;
    static_cast<void>(io::continued([&] { return ::write(end_.get(), &now, sizeof(now)); }));
    thread_.join();
  }
  if (directory_.valid()) ::unlinkat(directory_.get(), kStatsSocket, 0);
}

void StatsSocket::serve() {
  for (;;) {
    std::array<pollfd, 2> ready = {pollfd{end_.get(), POLLIN, 0}, pollfd{listener_.get(), POLLIN, 0}};
    if (io::continued([&] { return ::poll(ready.data(), ready.size(), -1); }) < 0) return;
    if (ready[0].revents != 0) return;
    const io::Descriptor asker(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!asker.valid()) {                                          // has gone away, or no descriptor is free
      static_cast<void>(::poll(ready.data(), 1, kAcceptAgainMs));  // until the end
      continue;
    }
    static_cast<void>(contain([&] {
      const std::string text = text_();
      // Fits into the socket's buffer; who does not read it harms nobody.
      static_cast<void>(::send(asker.get(), text.data(), text.size(), MSG_NOSIGNAL));
    }));
  }
}

Result<std::string> ask_stats_socket(const std::string& directory, Nanos patience) {
  const auto failed = [&](std::string_view step) {
    const std::string what = fmt::format("{}/{}: {}", directory, kStatsSocket, step);
    if (errno == ECONNREFUSED)
      return error(Code::kUnavailable, Scope::kOperation,
                   "{}: nobody answers: the process was killed; start it again", what);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINPROGRESS)
      return error(Code::kDeadlineExceeded, Scope::kOperation, "{}: no answer within {:.1f} s", what,
                   to_seconds(patience));
    return errno_status(errno, what);
  };
  const io::Descriptor folder = open_directory(directory);
  if (!folder.valid()) return failed("opening its directory");
  const io::Descriptor asker(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!asker.valid()) return failed("making a socket");
  const timeval limit = {patience / 1'000'000'000, patience % 1'000'000'000 / 1'000};
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO})
    if (::setsockopt(asker.get(), SOL_SOCKET, option, &limit, sizeof(limit)) != 0)
      return failed("a deadline");
  const sockaddr_un address = io::unix_address(folder, kStatsSocket);
  if (io::continued([&] { return ::connect(asker.get(), io::general(address), sizeof(address)); }) != 0)
    return failed("connecting");
  std::string text(kStatsTextBytesMax, '\0');
  size_t got = 0;
  for (;;) {
    const ssize_t part =
        io::continued([&] { return ::recv(asker.get(), text.data() + got, text.size() - got, 0); });
    if (part < 0) return failed("reading");
    if (part == 0) break;
    got += static_cast<size_t>(part);
  }
  text.resize(got);
  return text;
}

}  // namespace swale::iond
