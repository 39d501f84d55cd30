#include "net/job/job_settings.h"

#include <unistd.h>

#include <array>
#include <string_view>
#include <vector>

#include "net/meeting/rendezvous_base.h"

namespace swale::net {
namespace {

constexpr double kDay = 86'400;

constexpr std::array kRows = {
    OptionRow{.name = "job.transport",
              .type = OptionType::kEnum,
              .default_value = "auto",
              .choices = "auto|ucx|tls|loopback",
              .help = "how ranks talk: ucx (shared memory and RDMA; TCP if job.trust=network), tls (TCP "
                      "with a key and encryption), loopback (threads of one process); auto: ucx on one "
                      "node, where all nodes have RDMA, or if the network is trusted, else tls"},
    OptionRow{.name = "job.trust",
              .type = OptionType::kEnum,
              .default_value = "none",
              .choices = "none|network",
              .help = "network: nobody but this job's user reaches the nodes' ports, so UCX may use TCP: "
                      "faster than tls, and whoever reaches it writes into the memory of ranks; "
                      "/etc/swale/trust or tcp in UCX_TLS says the same"},
    OptionRow{.name = "job.rendezvous",
              .help = "directory where ranks without a communicator meet; all ranks see it, and no other "
                      "user can change it or a folder above it; by default, on one node, a folder of your "
                      "own in /dev/shm, /tmp or your home"},
    OptionRow{.name = "job.id",
              .help = "a word that all ranks of the job have and no other job at the same time; by default "
                      "the launcher's"},
    OptionRow{.name = "job.join_deadline_s",
              .type = OptionType::kSeconds,
              .default_value = "60",
              .min = 1,
              .max = kDay,
              .help = "how long ranks wait for each other in the rendezvous directory, plus 10 ms per rank"},
    OptionRow{.name = "job.collective_deadline_s",
              .type = OptionType::kSeconds,
              .default_value = "600",
              .min = 1,
              .max = 7 * kDay,
              .help = "how long a rank that opens a directory waits for living ranks that do not come to "
                      "the same call, plus 10 ms per rank"},
    OptionRow{.name = "job.memory",
              .type = OptionType::kBytes,
              .default_value = "0",
              .min = 0,
              .max = 1024.0 * kGiB,
              .help = "what all that this process has open may take together: the first gets half of it, "
                      "each further one half of what is left, and one that cannot get its least is not "
                      "opened; 0: directories get twice what one gets by default, or more if there are "
                      "many, stores and servers what their options say"},
    OptionRow{.name = "job.node",
              .help = "a word that all ranks of one node have and no others; by default the machine; for "
                      "tests of several nodes on one machine"},
    OptionRow{.name = "net.route",
              .type = OptionType::kEnum,
              .default_value = "auto",
              .choices = "auto|direct|three-hop",
              .help = "how records go to the rank that indexes them: direct, or three-hop by way of one "
                      "rank of either node, with buffers for few peers; auto: direct where its buffers fit "
                      "into a quarter of a directory's memory; all ranks give the same"},
    OptionRow{.name = "net.posting",
              .type = OptionType::kEnum,
              .default_value = "auto",
              .choices = "auto|queue|direct",
              .help = "which thread sends a full frame: the one that filled it (direct) or the network "
                      "thread (queue); auto: direct where several ranks share a node"},
    OptionRow{.name = "net.poll_s",
              .type = OptionType::kSeconds,
              .default_value = "100us",
              .min = 0,
              .max = 0.01,
              .help = "how long a thread polls for an answer or the next request before it sleeps, as long "
                      "as that pays; 0: it sleeps at once, as on nodes with more ranks than processors"},
    OptionRow{.name = "net.silence_deadline_s",
              .type = OptionType::kSeconds,
              .default_value = "30",
              .min = 0.1,
              .max = kDay,
              .help = "a peer that has sent nothing for this long, not even a heartbeat, is taken for dead"},
    OptionRow{.name = "net.heartbeat_interval_s",
              .type = OptionType::kSeconds,
              .default_value = "1",
              .min = 0.01,
              .max = 3'600,
              .help = "how often a heartbeat goes to connected peers; at most half of the silence deadline"},
    OptionRow{.name = "net.close_deadline_s",
              .type = OptionType::kSeconds,
              .default_value = "30",
              .min = 0.1,
              .max = kDay,
              .help = "how long closing a job waits for the peers"}};

Result<std::string> default_rendezvous(const LaunchEnvironment& launch,
                                       const Config::GetEnvironment& environment) {
  const char* slurm_nodes = environment("SLURM_NNODES");
  const bool one_slurm_node =
      launch.launcher == "slurm" && slurm_nodes != nullptr && std::string_view(slurm_nodes) == "1";
  if (launch.local_size != launch.size && !one_slurm_node) {
    return invalid_argument(
        "a job of {} ranks (launcher: {}) that may be on several nodes needs a directory which all of them "
        "see: set option job.rendezvous (or SWALE_JOB_RENDEZVOUS), or give a communicator",
        launch.size, launch.launcher);
  }
  std::vector<std::string> candidates;
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    if (::access(folder, W_OK | X_OK) == 0)
      candidates.push_back(fmt::format("{}/swale-{}", folder, ::geteuid()));
  }
  // Nobody else can take a name there.
  if (const char* home = environment("HOME"); home != nullptr && *home == '/')
    candidates.push_back(fmt::format("{}/.swale-{}", home, ::geteuid()));
  return own_rendezvous_base(candidates);
}

}  // namespace

std::span<const OptionRow> job_option_rows() { return kRows; }

Result<JobSettings> job_settings(const Config& config) {
  JobSettings settings;
  settings.job.transport = config.get_string("job.transport");
  settings.job.trusts_network = config.get_string("job.trust") == "network";
  settings.job.posting = config.get_string("net.posting");
  settings.job.poll = config.get_nanos("net.poll_s");
  settings.job.node = config.get_string("job.node");
  const std::string route = config.get_string("net.route");
  settings.job.route = route == "direct"      ? RouteChoice::kDirect
                       : route == "three-hop" ? RouteChoice::kThreeHop
                                              : RouteChoice::kAuto;
  settings.job.silence_deadline = config.get_nanos("net.silence_deadline_s");
  settings.job.heartbeat_interval = config.get_nanos("net.heartbeat_interval_s");
  settings.job.close_deadline = config.get_nanos("net.close_deadline_s");
  settings.job.collective_deadline = config.get_nanos("job.collective_deadline_s");
  settings.job.memory_bytes = config.get_bytes("job.memory");
  settings.rendezvous = config.get_string("job.rendezvous");
  settings.id = config.get_string("job.id");
  settings.join_deadline = config.get_nanos("job.join_deadline_s");
  if (settings.job.heartbeat_interval > settings.job.silence_deadline / 2) {
    return invalid_argument(
        "net.heartbeat_interval_s={} must be at most half of net.silence_deadline_s={}: a living peer would "
        "be taken for dead",
        to_seconds(settings.job.heartbeat_interval), to_seconds(settings.job.silence_deadline));
  }
  return settings;
}

Result<RendezvousOptions> rendezvous_options(const JobSettings& settings, const LaunchEnvironment& launch,
                                             const Config::GetEnvironment& environment) {
  RendezvousOptions options;
  options.rank = launch.rank;
  options.size = launch.size;
  options.deadline = settings.join_deadline;
  options.node_id = this_node_id();
  options.directory = settings.rendezvous;
  if (options.directory.empty()) {
    SWALE_ASSIGN_OR_RETURN(options.directory, default_rendezvous(launch, environment));
  }
  options.job_id = !settings.id.empty()     ? settings.id
                   : !launch.job_id.empty() ? launch.job_id
                                            : launcher_process_id(launch);
  if (options.job_id.empty()) {
    return invalid_argument(
        "the launcher ({}) gives this job of {} ranks no id: set option job.id (or SWALE_JOB_ID) to a word "
        "that is the same on all ranks and used by no other job, or give a communicator",
        launch.launcher, launch.size);
  }
  return options;
}

}  // namespace swale::net
