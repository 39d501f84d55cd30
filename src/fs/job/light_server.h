// LightServer: the socket at which programs of a node come that open files past the kernel
// (fs/log/light_format.h), and the threads that serve them: one, or with several nodes, where an open may
// wait for another node, one a program.
//
// A program is over when its connection ends, or its process does: a child of fork may hold the connection
// for longer.
//
// Threads: one of its own, and its workers'. Invariants: (1) Only processes of this user are served.
// (2) The destructor returns when all that programs had open is closed.
// Errors: of open: what the system refuses; of a program: an errno in its welcome, and in the log of the
// server. It goes on through the mount.
// Limits: kProgramsMax programs at a time.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "fs/job/job_fs.h"
#include "fs/job/light_worker.h"
#include "io/descriptor.h"

namespace swale::fs {

class LightServer {
 public:
  static constexpr size_t kProgramsMax = 256;

  // In `folder`, which must be this user's alone; `top`: where the tree is mounted. `fs` must outlive it.
  static Result<std::unique_ptr<LightServer>> open(JobFs& fs, const std::string& folder,
                                                   const std::string& top);
  ~LightServer();  // ends all programs, and removes the socket
  LightServer(const LightServer&) = delete;
  LightServer& operator=(const LightServer&) = delete;

 private:
  struct Connection {
    LightWorker::Seat seat;
    bool has_ended = false;
  };

  LightServer(JobFs& fs, const std::string& top) : fs_(fs), top_(top) {}
  void serve() noexcept;
  bool wait();  // false: the end
  void greet();
  Result<LightWorker*> worker();
  void end_those_that_are_over();

  JobFs& fs_;
  const std::string top_;
  io::Descriptor folder_;
  io::Descriptor listener_;
  io::Descriptor end_;   // readable: serve returns
  io::Descriptor over_;  // readable: a program is over
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<LightWorker>> workers_;
  std::thread thread_;
};

}  // namespace swale::fs
