#include "fs/job/job_attach.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "fs/job/program_socket.h"

namespace swale::fs {

Result<std::unique_ptr<JobAttach>> JobAttach::open(JobFs& fs, const std::string& folder) {
  std::unique_ptr<JobAttach> made(new JobAttach(fs));
  made->folder_of_logs_ = fs.folder_of_logs();
  made->end_ = io::Descriptor(::eventfd(0, EFD_CLOEXEC));
  if (!made->end_.valid()) return errno_status(errno, folder + ": an eventfd");
  SWALE_ASSIGN_OR_RETURN(made->listener_, listen_for_programs(folder, kAttachSocket, &made->folder_));
  SWALE_RETURN_IF_ERROR(
      start_thread(&made->thread_, "the thread that meets programs", [self = made.get()] { self->serve(); }));
  fs.programs_meet_at(folder + "/" + kAttachSocket);
  return made;
}

JobAttach::~JobAttach() {
  static_cast<void>(contain([this] { fs_.programs_meet_at(""); }));
  if (thread_.joinable()) {
    ring(end_);
    thread_.join();
  }
  for (const Connection& each : connections_) static_cast<void>(fs_.end_program(each.log));
  if (folder_.valid()) ::unlinkat(folder_.get(), kAttachSocket, 0);
}

void JobAttach::serve() noexcept {
  meet_programs(end_, [this] {
    const bool goes_on = wait();
    end_those_that_are_over();
    return goes_on;
  });
}

// Until somebody comes or goes.
bool JobAttach::wait() {
  std::vector<pollfd> ready = {{end_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  int patience_ms = -1;
  for (const Connection& each : connections_) {
    // An invalid descriptor is passed over.
    ready.push_back({each.over ? -1 : each.socket.get(), POLLIN, 0});
    ready.push_back({each.over ? -1 : each.process.get(), POLLIN, 0});
    if (each.over) patience_ms = kMeetAgainMs;
  }
  if (io::continued([&] { return ::poll(ready.data(), ready.size(), patience_ms); }) < 0)
    return errno == ENOMEM;
  if (ready[0].revents != 0) return false;
  for (size_t i = 0; i < connections_.size(); ++i)
    if (ready[2 + 2 * i].revents != 0 || ready[3 + 2 * i].revents != 0) connections_[i].over = true;
  if (ready[1].revents != 0) greet();
  return true;
}

void JobAttach::end_those_that_are_over() {
  std::erase_if(connections_,
                [this](const Connection& each) { return each.over && fs_.end_program(each.log).ok(); });
}

void JobAttach::greet() {
  ucred who = {};
  io::Descriptor peer = accept_program(listener_, end_, &who);
  if (!peer.valid()) return;
  if (connections_.size() >= kProgramsMax) {
    log_warn("{} programs have a log here; process {} goes on through the mount", kProgramsMax, who.pid);
    return send(peer, {}, EMFILE);
  }
  connections_.reserve(connections_.size() + 1);
  const auto program = fs_.add_program();
  if (!program.ok()) {
    log_warn("process {} goes on through the mount: {}", who.pid, program.status().message());
    return send(peer, {}, program.status().posix_error());
  }
  connections_.push_back({program->log, std::move(peer), descriptor_of_process(who.pid)});
  send(connections_.back().socket, *program, 0);
}

// Fits into the socket's buffer. What the program does not get ends with its connection.
void JobAttach::send(const io::Descriptor& to, const JobFs::Program& program, int error) {
  AttachAnswer answer;
  answer.log = program.log;
  answer.token = program.token;
  answer.error = error;
  if (folder_of_logs_.size() < sizeof(answer.folder))
    std::memcpy(answer.folder, folder_of_logs_.data(), folder_of_logs_.size());
  const int passed[kAttachDescriptors] = {program.files.log.get(), program.files.bell.get()};
  say_to_program(to, {reinterpret_cast<const char*>(&answer), sizeof(answer)},
                 error == 0 ? std::span<const int>(passed) : std::span<const int>(), MSG_DONTWAIT);
}

}  // namespace swale::fs
