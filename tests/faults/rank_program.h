// What programs share that are one rank of a job under test: its place in the job is in SWALE_JOB_*, and what
// they print is read by the test that started them (launcher.h).
//
// Threads: one.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "net/job/job.h"
#include "net/meeting/rendezvous.h"
#include "net/meeting/topology.h"

namespace swale::faults {

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

// The job of the environment, over the fabrics that are registered.
inline std::unique_ptr<net::Job> open_job() {
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

}  // namespace swale::faults
