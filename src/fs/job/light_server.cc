#include "fs/job/light_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "fs/job/program_socket.h"

namespace swale::fs {
namespace {

void welcome(const io::Descriptor& peer, const std::string& top, int error) {
  LightWelcome said;
  said.error = top.size() < sizeof(said.top) ? error : ENAMETOOLONG;
  if (said.error == 0) top.copy(said.top, sizeof(said.top) - 1);
  static_cast<void>(::send(peer.get(), &said, sizeof(said), MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace

Result<std::unique_ptr<LightServer>> LightServer::open(JobFs& fs, const std::string& folder,
                                                       const std::string& top) {
  std::unique_ptr<LightServer> made(new LightServer(fs, top));
  made->end_ = io::Descriptor(::eventfd(0, EFD_CLOEXEC));
  made->over_ = io::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->end_.valid() || !made->over_.valid()) return errno_status(errno, folder + ": an eventfd");
  SWALE_ASSIGN_OR_RETURN(made->listener_, listen_for_programs(folder, kLightSocket, &made->folder_));
  SWALE_RETURN_IF_ERROR(start_thread(&made->thread_, "the thread that meets programs which make files",
                                     [self = made.get()] { self->serve(); }));
  return made;
}

LightServer::~LightServer() {
  if (thread_.joinable()) {
    ring(end_);
    thread_.join();
  }
  for (const auto& each : connections_) each->program->stop();
  for (const auto& each : connections_) each->thread.join();
  if (folder_.valid()) ::unlinkat(folder_.get(), kLightSocket, 0);
}

void LightServer::serve() noexcept {
  meet_programs(end_, [this] {
    const bool goes_on = wait();
    end_those_that_are_over();
    return goes_on;
  });
}

// Until somebody comes or goes.
bool LightServer::wait() {
  std::vector<pollfd> ready = {
      {end_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  const size_t first = ready.size();
  for (const auto& each : connections_) ready.push_back({each->process.get(), POLLIN, 0});
  if (io::continued([&] { return ::poll(ready.data(), ready.size(), -1); }) < 0) return errno == ENOMEM;
  if (ready[0].revents != 0) return false;
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (ready[first + i].revents == 0) continue;
    connections_[i]->program->stop();
    connections_[i]->process = {};  // is not told again
  }
  uint64_t count = 0;
  if (ready[1].revents != 0) static_cast<void>(::read(over_.get(), &count, sizeof(count)));
  if (ready[2].revents != 0) greet();
  return true;
}

void LightServer::end_those_that_are_over() {
  std::erase_if(connections_, [](const auto& each) {
    if (!each->program->over()) return false;
    each->thread.join();
    return true;
  });
}

void LightServer::greet() {
  ucred who = {};
  io::Descriptor peer = accept_program(listener_, end_, &who);
  if (!peer.valid()) return;
  const auto refuse = [&](int error, std::string_view why) {
    log_warn("process {} makes its files through the mount: {}", who.pid, why);
    welcome(peer, top_, error);
  };
  if (connections_.size() >= kProgramsMax)
    return refuse(EMFILE, fmt::format("{} others make theirs past the kernel", kProgramsMax));
  auto credentials = credentials_of({who.uid, who.gid, who.pid, 0, {}});
  if (!credentials.ok()) return refuse(credentials.status().posix_error(), credentials.status().message());
  auto made = std::make_unique<Connection>();
  made->process = descriptor_of_process(who.pid);
  io::Descriptor again(::fcntl(peer.get(), F_DUPFD_CLOEXEC, 0));
  if (!again.valid()) return refuse(errno, "no descriptor is left");
  made->program = std::make_unique<LightProgram>(fs_, std::move(again), std::move(*credentials));
  connections_.reserve(connections_.size() + 1);
  const Status started =
      start_thread(&made->thread, "a thread for a program", [this, program = made->program.get()] {
        program->serve();
        ring(over_);
      });
  if (!started.ok()) return refuse(started.posix_error(), started.message());
  connections_.push_back(std::move(made));
  welcome(peer, top_, 0);
}

}  // namespace swale::fs
