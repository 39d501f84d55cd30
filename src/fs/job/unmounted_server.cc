#include "fs/job/unmounted_server.h"

#include <fcntl.h>
#include <poll.h>
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
Result<std::unique_ptr<UnmountedServer>> UnmountedServer::open(JobFs& fs, StandIns& stand_ins,
                                                               const std::string& folder) {
  std::unique_ptr<UnmountedServer> made(new UnmountedServer(fs, stand_ins));
  made->end_ = io::Descriptor(::eventfd(0, EFD_CLOEXEC));
  if (!made->end_.valid()) return errno_status(errno, folder + ": an eventfd");
  SWALE_ASSIGN_OR_RETURN(made->listener_, listen_for_programs(folder, kUnmountedSocket, &made->folder_));
  for (size_t i = 0; i < kThreads; ++i)
    SWALE_RETURN_IF_ERROR(start_thread(&made->threads_.emplace_back(), "a thread that serves programs",
                                       [self = made.get()] { self->serve(); }));
  return made;
}

UnmountedServer::~UnmountedServer() {
  if (end_.valid()) ring(end_);
  for (std::thread& each : threads_)
    if (each.joinable()) each.join();
  if (folder_.valid()) ::unlinkat(folder_.get(), kUnmountedSocket, 0);
}

void UnmountedServer::serve() noexcept {
  meet_programs(end_, [this] {
    pollfd ready[] = {{end_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    if (io::continued([&] { return ::poll(ready, 2, -1); }) < 0) return errno == ENOMEM;
    if (ready[0].revents != 0) return false;
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
