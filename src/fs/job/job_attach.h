// JobAttach: the socket at which programs of a node come for a log of their own, and notice of their ends
// (fs/log/attach_format.h).
//
// A program is over when its connection ends, or its process does: a child of fork may hold the connection
// for longer. Nothing is read from it, so nobody can hold the thread up.
//
// Threads: one of its own, which calls the file system.
// Invariants: (1) Only processes of this user get an answer. (2) Each log that was given out is ended once.
// Errors: of open: what the file system refuses; of a program: an errno in its answer, and in the log of the
// server. No log: the program goes on through the mount.
// Limits: kProgramsMax programs at a time. Paths may be longer than a socket's address.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "fs/job/job_fs.h"
#include "io/descriptor.h"

namespace swale::fs {

class JobAttach {
 public:
  static constexpr size_t kProgramsMax = 4096;

  // In `folder`, which must be this user's alone. A socket that a killed server has left is replaced: the
  // caller is the node's only server. `fs` must outlive it.
  static Result<std::unique_ptr<JobAttach>> open(JobFs& fs, const std::string& folder);
  ~JobAttach();  // ends all programs, and removes the socket
  JobAttach(const JobAttach&) = delete;
  JobAttach& operator=(const JobAttach&) = delete;

 private:
  struct Connection {
    uint32_t log = 0;
    io::Descriptor socket;
    io::Descriptor process;  // readable when it has ended; invalid: the kernel has no such thing
    bool over = false;
  };

  explicit JobAttach(JobFs& fs) : fs_(fs) {}
  void serve() noexcept;
  bool wait();  // false: the end
  void greet();
  void send(const io::Descriptor& to, const JobFs::Program& program, int error);
  void end_those_that_are_over();

  JobFs& fs_;
  std::string folder_of_logs_;
  io::Descriptor folder_;
  io::Descriptor listener_;
  io::Descriptor end_;  // readable: serve returns
  std::vector<Connection> connections_;
  std::thread thread_;
};

}  // namespace swale::fs
