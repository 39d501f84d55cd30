// What programs share that are a node of a job, write in rounds until they are killed, and are started again
// to check: the job of the environment, lines for the test, and notes of what was committed.
//
// Threads: one.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "net/fabric/tls_fabric.h"
#include "net/job/job.h"
#include "net/meeting/rendezvous.h"
#include "net/meeting/topology.h"

namespace swale::fs {

[[noreturn]] inline void stop(const char* kind, const std::string& what) {
  fmt::print("{}: {}\n", kind, what);
  std::fflush(stdout);
  std::_Exit(1);
}
inline void expect(const Status& status) {
  if (!status.ok()) stop("failed", status.to_string());
}
template <class T>
T take(Result<T> result) {
  expect(result.status());
  return std::move(result).value();
}
inline std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}
inline void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

inline std::unique_ptr<net::Job> open_job() {
  net::register_fabric(net::tls_fabric());
  const net::LaunchEnvironment launch =
      take(net::detect_launch([](const char* name) { return std::getenv(name); }));
  net::RendezvousOptions meeting;
  meeting.directory = variable("SWALE_JOB_RENDEZVOUS");
  meeting.job_id = launch.job_id;
  meeting.node_id = variable("SWALE_JOB_NODE");
  meeting.rank = launch.rank;
  meeting.size = launch.size;
  net::JobOptions options;
  options.node = meeting.node_id;
  return take(net::Job::open(take(net::rendezvous_bootstrap(meeting)), options));
}

// Of a file and a node: the last round that was committed, and the last that was begun.
struct Noted {
  uint64_t committed = 0, begun = 0;
};
inline std::map<net::Rank, Noted> read_notes(const std::string& path) {
  std::map<net::Rank, Noted> noted;
  std::ifstream in(path);
  std::string kind;
  net::Rank file = 0;
  for (uint64_t round = 0; in >> kind >> file >> round;)
    (kind == "=" ? noted[file].committed : noted[file].begun) = round;
  return noted;
}

class RoundNotes {
 public:
  explicit RoundNotes(const std::string& path)
      : file_(::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600)) {}
  // '?': is about to be committed; '=': is committed.
  void add(char kind, net::Rank file, uint64_t round) const {
    const std::string line = fmt::format("{} {} {}\n", kind, file, round);
    if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      stop("failed", "the notes cannot be written");
  }

 private:
  const int file_;
};

}  // namespace swale::fs
