// UnmountedServer: the socket at which programs of a node come to a tree that is mounted nowhere
// (fs/log/unmounted_format.h), and the threads that serve them.
//
// Threads: kThreads of its own. Invariants: (1) Only processes of this user are served. (2) Whoever sends
// nothing, or takes no answer, holds a thread for kPatienceSeconds.
// Errors: of open: what the system refuses; of a program: an errno in its answer. A message that nobody may
// send ends the connection, with a line in the log.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "fs/job/unmounted_calls.h"
#include "io/descriptor.h"

namespace swale::fs {

class UnmountedServer {
 public:
  static constexpr size_t kThreads = 8;
  static constexpr int kPatienceSeconds = 5;

  // In `folder`, which must be this user's alone. `fs` and `stand_ins` must outlive it.
  static Result<std::unique_ptr<UnmountedServer>> open(JobFs& fs, StandInFiles& stand_ins,
                                                       const std::string& folder);
  ~UnmountedServer();  // ends what is under way, and removes the socket
  UnmountedServer(const UnmountedServer&) = delete;
  UnmountedServer& operator=(const UnmountedServer&) = delete;

 private:
  UnmountedServer(JobFs& fs, StandInFiles& stand_ins) : calls_(fs, stand_ins) {}
  void serve(const io::Descriptor& ready) noexcept;
  void serve_one(const io::Descriptor& peer, const ucred& who);

  UnmountedCalls calls_;
  io::Descriptor folder_;
  io::Descriptor listener_;
  io::Descriptor end_;                               // readable: serve returns
  std::array<io::Descriptor, kThreads> ready_ = {};  // of each thread: either of them
  std::vector<std::thread> threads_;
};

}  // namespace swale::fs
