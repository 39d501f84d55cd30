#include "fs/job/light_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "fs/job/program_socket.h"

namespace swale::fs {
namespace {

void welcome(const io::Descriptor& peer, const std::string& top, int error, const ProgramPage* page) {
  LightWelcome said;
  said.error = top.size() < sizeof(said.top) ? error : ENAMETOOLONG;
  if (said.error == 0) top.copy(said.top, sizeof(said.top) - 1);
  int passed[kLightDescriptors] = {};
  const bool passes = page != nullptr && said.error == 0;
  if (passes) passed[0] = page->memory().get(), passed[1] = page->bell().get();
  say_to_program(peer, {reinterpret_cast<const char*>(&said), sizeof(said)},
                 std::span<const int>(passed).first(passes ? kLightDescriptors : 0), MSG_DONTWAIT);
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
  workers_.clear();
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
  for (const auto& each : connections_)
    ready.push_back({each->has_ended ? -1 : each->seat.process.get(), POLLIN, 0});
  if (io::continued([&] { return ::poll(ready.data(), ready.size(), -1); }) < 0) return errno == ENOMEM;
  if (ready[0].revents != 0) return false;
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (ready[first + i].revents == 0) continue;
    connections_[i]->seat.program.stop();
    connections_[i]->has_ended = true;  // is not told again
  }
  uint64_t count = 0;
  if (ready[1].revents != 0) static_cast<void>(::read(over_.get(), &count, sizeof(count)));
  if (ready[2].revents != 0) greet();
  return true;
}

void LightServer::end_those_that_are_over() {
  std::erase_if(connections_, [](const auto& each) { return each->seat.over.load(); });
}

// The one with the fewest programs.
Result<LightWorker*> LightServer::worker() {
  const auto idlest = std::min_element(workers_.begin(), workers_.end(), [](const auto& a, const auto& b) {
    return a->programs() < b->programs();
  });
  const size_t workers_max = fs_.light_waits() ? kProgramsMax : 1;
  if (idlest != workers_.end() && ((*idlest)->programs() == 0 || workers_.size() >= workers_max))
    return idlest->get();
  SWALE_ASSIGN_OR_RETURN(auto made, LightWorker::open(fs_, [this] { ring(over_); }));
  return workers_.emplace_back(std::move(made)).get();
}

void LightServer::greet() {
  ucred who = {};
  io::Descriptor peer = accept_program(listener_, end_, &who);
  if (!peer.valid()) return;
  const auto refuse = [&](int error, std::string_view why) {
    log_warn("process {} makes its files through the mount: {}", who.pid, why);
    welcome(peer, top_, error, nullptr);
  };
  if (connections_.size() >= kProgramsMax)
    return refuse(EMFILE, fmt::format("{} others make theirs past the kernel", kProgramsMax));
  auto credentials = credentials_of({who.uid, who.gid, who.pid, 0, {}});
  if (!credentials.ok()) return refuse(credentials.status().posix_error(), credentials.status().message());
  io::Descriptor again(::fcntl(peer.get(), F_DUPFD_CLOEXEC, 0));
  if (!again.valid()) return refuse(errno, "no descriptor is left");
  auto page = ProgramPage::make();
  if (!page.ok()) log_warn("process {} asks for files by a socket: {}", who.pid, page.status().message());
  std::unique_ptr<Connection> made(new Connection{
      {LightProgram(fs_, std::move(again), std::move(*credentials), page.ok() ? *std::move(page) : nullptr),
       descriptor_of_process(who.pid)}});
  const auto worker = this->worker();
  if (!worker.ok()) return refuse(worker.status().posix_error(), worker.status().message());
  connections_.reserve(connections_.size() + 1);
  // First: the worker may see its end at once.
  welcome(peer, top_, 0, made->seat.program.page());
  Connection& known = *connections_.emplace_back(std::move(made));
  if (const Status added = (*worker)->add(&known.seat); !added.ok()) {
    log_warn("process {} makes its files through the mount: {}", who.pid, added.message());
    known.seat.program.stop();
    connections_.pop_back();
  }
}

}  // namespace swale::fs
