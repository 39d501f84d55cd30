#include "fs/job/program_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/contain.h"
#include "base/log.h"
#include "io/unix_address.h"

namespace swale::fs {
namespace {

constexpr int kWaitingMax = 256;  // connections

}  // namespace

Result<io::Descriptor> listen_for_programs(const std::string& folder, const char* name,
                                           io::Descriptor* opened_folder) {
  const auto failed = [&](std::string_view step) {
    return errno_status(errno, fmt::format("{}/{}: {}", folder, name, step));
  };
  io::Descriptor opened(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!opened.valid()) return failed("opening its folder");
  if (::unlinkat(opened.get(), name, 0) != 0 && errno != ENOENT) return failed("removing an old one");
  io::Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return failed("making a socket");
  if (::fchmod(listener.get(), 0600) != 0) return failed("its mode");  // bind makes the file with it
  const sockaddr_un address = io::unix_address(opened, name);
  if (::bind(listener.get(), io::general(address), sizeof(address)) != 0) return failed("binding a socket");
  if (::listen(listener.get(), kWaitingMax) != 0) return failed("listening");
  *opened_folder = std::move(opened);
  return listener;
}

io::Descriptor accept_program(const io::Descriptor& listener, const io::Descriptor& end, ucred* who) {
  io::Descriptor peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!peer.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {  // it waits, and would wake us at once
      pollfd over = {end.get(), POLLIN, 0};
      static_cast<void>(::poll(&over, 1, kMeetAgainMs));
    }
    return {};
  }
  socklen_t bytes = sizeof(*who);
  if (::getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, who, &bytes) != 0 || who->uid != ::geteuid()) {
    log_warn("process {} of user {} comes to the server of this job, and gets nothing", who->pid, who->uid);
    return {};
  }
  return peer;
}

void meet_programs(const io::Descriptor& end, const std::function<bool()>& step) noexcept {
  bool goes_on = true;
  while (goes_on) {
    const Status done = contain([&] { goes_on = step(); });
    if (done.ok()) continue;
    log_warn("{}", done.message());
    pollfd over = {end.get(), POLLIN, 0};
    goes_on = ::poll(&over, 1, kMeetAgainMs) == 0;
  }
}

void say_to_program(const io::Descriptor& to, Bytes message, std::span<const int> passed,
                    int flags) noexcept {
  iovec part = {const_cast<char*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kPassedMax * sizeof(int))] = {};
  msghdr sent = {};
  sent.msg_iov = &part;
  sent.msg_iovlen = 1;
  if (!passed.empty()) {
    sent.msg_control = control;
    sent.msg_controllen = CMSG_SPACE(passed.size_bytes());
    cmsghdr* const head = CMSG_FIRSTHDR(&sent);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(passed.size_bytes());
    std::memcpy(CMSG_DATA(head), passed.data(), passed.size_bytes());
  }
  static_cast<void>(io::continued([&] { return ::sendmsg(to.get(), &sent, MSG_NOSIGNAL | flags); }));
}

void ring(const io::Descriptor& event) noexcept {
  const uint64_t now = 1;
  static_cast<void>(io::continued([&] { return ::write(event.get(), &now, sizeof(now)); }));
}

io::Descriptor descriptor_of_process(pid_t process) {
  if (process <= 0) return {};  // of another namespace
  return io::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
}

}  // namespace swale::fs
