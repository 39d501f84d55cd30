// The options of a job, as rows of the table of options (base/config.h), and how the ranks of a launched job
// meet.
//
// Threads: free functions.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "net/job/job.h"
#include "net/meeting/rendezvous.h"
#include "net/meeting/topology.h"

namespace swale::net {

std::span<const OptionRow> job_option_rows();

struct JobSettings {
  JobOptions job;
  std::string rendezvous;  // "": the default, if there can be one
  std::string id;          // "": the launcher's
  Nanos join_deadline = seconds(60);
};

// What the rows say. Requires a Config that has them. kInvalidArgument if two options contradict each other.
Result<JobSettings> job_settings(const Config& config);

// How the ranks of a launched job meet without a communicator. The settings come first, then what the
// launcher says, then, if all ranks are certainly on one machine, a folder of this user there.
// kInvalidArgument says what to set. Requires launch.size > 1.
Result<RendezvousOptions> rendezvous_options(const JobSettings& settings, const LaunchEnvironment& launch,
                                             const Config::GetEnvironment& environment);

}  // namespace swale::net
