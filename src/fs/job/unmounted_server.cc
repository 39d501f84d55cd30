#include "fs/job/unmounted_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "fs/job/program_socket.h"

namespace swale::fs {
Result<std::unique_ptr<UnmountedServer>> UnmountedServer::open(JobFs& fs, StandInFiles& stand_ins,
                                                               const std::string& folder) {
  std::unique_ptr<UnmountedServer> made(new UnmountedServer(fs, stand_ins));
  made->end_ = io::Descriptor(::eventfd(0, EFD_CLOEXEC));
  if (!made->end_.valid()) return errno_status(errno, folder + ": an eventfd");
  SWALE_ASSIGN_OR_RETURN(made->listener_, listen_for_programs(folder, kUnmountedSocket, &made->folder_));
  for (io::Descriptor& each : made->ready_) {
    each = io::Descriptor(::epoll_create1(EPOLL_CLOEXEC));
    const auto wait_for = [&](const io::Descriptor& of, uint32_t events) {
      epoll_event event = {.events = events, .data = {.fd = of.get()}};
      return ::epoll_ctl(each.get(), EPOLL_CTL_ADD, of.get(), &event) == 0;
    };
    if (!each.valid() || !wait_for(made->end_, EPOLLIN) ||
        !wait_for(made->listener_, EPOLLIN | EPOLLEXCLUSIVE))
      return errno_status(errno, folder + ": waiting for programs");
    SWALE_RETURN_IF_ERROR(start_thread(&made->threads_.emplace_back(), "a thread that serves programs",
                                       [self = made.get(), &each] { self->serve(each); }));
  }
  return made;
}

UnmountedServer::~UnmountedServer() {
  if (end_.valid()) ring(end_);
  for (std::thread& each : threads_)
    if (each.joinable()) each.join();
  if (folder_.valid()) ::unlinkat(folder_.get(), kUnmountedSocket, 0);
}

// A program that comes wakes one thread, not all.
void UnmountedServer::serve(const io::Descriptor& ready) noexcept {
  meet_programs(end_, [&] {
    epoll_event event = {};
    const int count = io::continued([&] { return ::epoll_wait(ready.get(), &event, 1, -1); });
    if (count < 0) return errno == ENOMEM;
    if (event.data.fd == end_.get()) return false;
    ucred who = {};
    const io::Descriptor peer = accept_program(listener_, end_, &who);
    if (peer.valid()) serve_one(peer, who);
    return true;
  });
}

void UnmountedServer::serve_one(const io::Descriptor& peer, const ucred& who) {
  const timeval patience = {kPatienceSeconds, 0};
  ::setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ::setsockopt(peer.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  UnmountedRequest request;
  const ssize_t got = io::continued([&] { return ::recv(peer.get(), &request, sizeof(request), MSG_TRUNC); });
  if (got <= 0) return;
  if (!UnmountedCalls::is_whole(request, static_cast<size_t>(got))) {
    log_warn("process {} has sent {} bytes that are no request of this version of Swale", who.pid, got);
    return;
  }
  const UnmountedCalls::Answer answer = calls_.serve(request, who);
  const int passed = answer.passed.get();
  say_to_program(peer, {reinterpret_cast<const char*>(&answer.said), sizeof(answer.said)},
                 std::span<const int>(&passed, answer.passed.valid() ? 1 : 0), 0);
}

}  // namespace swale::fs
