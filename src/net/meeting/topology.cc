#include "net/meeting/topology.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstring>

#include "base/process_identity.h"

namespace swale::net {
namespace {

constexpr int kAncestorsMax = 16;

// One family of variables; those it does not have are nullptr.
struct Family {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* node;
  const char* job;
  const char* job_part;  // appended to the job id: one allocation runs several steps
};

constexpr Family kByHand = {"swale", "SWALE_JOB_RANK", "SWALE_JOB_SIZE", nullptr,
                            nullptr, nullptr,          nullptr,          nullptr};
constexpr Family kOpenMpi = {"openmpi",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             nullptr,
                             "PMIX_NAMESPACE",
                             nullptr};
constexpr Family kFlux = {"flux",  "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID",
                          nullptr, nullptr,          "FLUX_JOB_ID",   nullptr};
constexpr Family kSlurm = {"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                           nullptr, "SLURM_NODEID", "SLURM_JOB_ID",         "SLURM_STEP_ID"};
// PALS gives no size; with --pmi=cray (the default) Cray's PMI does.
constexpr Family kPals = {"pals",        "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE",
                          "PALS_NODEID", "PALS_APID",   nullptr};
constexpr Family kHydra = {"hydra",           "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                           "MPI_LOCALNRANKS", nullptr,    nullptr,    nullptr};

// Slurm's numbers of the steps that are no parallel programs: interactive shells, batch scripts, and others
// above.
constexpr uint32_t kSlurmStepMax = 0xfffffff0;

const char* value_of(const GetEnvironment& get, const char* name) {
  const char* value = name != nullptr ? get(name) : nullptr;
  return value != nullptr && *value != '\0' ? value : nullptr;
}

Result<int32_t> number_of(const char* name, const char* value) {
  int32_t number = 0;
  const char* end = value + std::strlen(value);
  const auto [stop, failure] = std::from_chars(value, end, number);
  if (failure != std::errc() || stop != end || number < 0) {
    return invalid_argument("environment variable {} is \"{}\", expected a number from 0 to {}", name, value,
                            INT_MAX);
  }
  return number;
}

Status check(const Family& family, const LaunchEnvironment& found) {
  if (found.size < 1 || found.rank >= found.size) {
    return invalid_argument(
        "environment variables {}={} and {}={} contradict each other: a rank is less than the size",
        family.rank, found.rank, family.size, found.size);
  }
  if (found.local_size && (*found.local_size < 1 || *found.local_size > found.size)) {
    return invalid_argument("environment variables {}={} and {}={} contradict each other", family.local_size,
                            *found.local_size, family.size, found.size);
  }
  if (found.local_rank && *found.local_rank >= found.local_size.value_or(found.size)) {
    return invalid_argument(
        "environment variables {}={} and {}={} contradict each other: a rank is less than the size",
        family.local_rank, *found.local_rank, found.local_size ? family.local_size : family.size,
        found.local_size.value_or(found.size));
  }
  return ok_status();
}

Result<LaunchEnvironment> read_family(const Family& family, const GetEnvironment& get) {
  LaunchEnvironment found;
  found.launcher = family.launcher;
  const char* rank = value_of(get, family.rank);
  const char* size = value_of(get, family.size);
  if (rank == nullptr || size == nullptr) {
    return invalid_argument(
        "environment variable {} is set but {} is not: give SWALE_JOB_RANK and SWALE_JOB_SIZE by hand, or a "
        "communicator",
        rank != nullptr ? family.rank : family.size, rank != nullptr ? family.size : family.rank);
  }
  SWALE_ASSIGN_OR_RETURN(found.rank, number_of(family.rank, rank));
  SWALE_ASSIGN_OR_RETURN(found.size, number_of(family.size, size));
  if (const char* value = value_of(get, family.local_rank)) {
    SWALE_ASSIGN_OR_RETURN(found.local_rank, number_of(family.local_rank, value));
  }
  if (const char* value = value_of(get, family.local_size)) {
    SWALE_ASSIGN_OR_RETURN(found.local_size, number_of(family.local_size, value));
  }
  if (const char* value = value_of(get, family.node)) found.node_id = value;
  if (const char* value = value_of(get, family.job))
    found.job_id = fmt::format("{}-{}", family.launcher, value);
  if (const char* value = value_of(get, family.job_part)) found.job_id += fmt::format(".{}", value);
  // SWALE_JOB_ID names the job under any launcher.
  if (const char* value = value_of(get, "SWALE_JOB_ID")) found.job_id = fmt::format("swale-{}", value);
  SWALE_RETURN_IF_ERROR(check(family, found));
  return found;
}

std::string first_line(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::array<char, 512> bytes;
  const ssize_t count = ::read(fd, bytes.data(), bytes.size());
  ::close(fd);
  if (count <= 0) return "";
  const std::string_view text(bytes.data(), static_cast<size_t>(count));
  return std::string(text.substr(0, text.find('\n')));
}

struct ProcessStat {
  std::string command;
  int32_t parent = 0;
  std::string start_time;
};

// /proc/PID/stat: "pid (command) state parent ... start_time(22nd) ..."; the command may hold blanks and
// brackets.
std::optional<ProcessStat> stat_of(int32_t pid) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", pid).c_str());
  const size_t open = line.find('(');
  const size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  ProcessStat found;
  found.command = line.substr(open + 1, close - open - 1);
  size_t at = close + 2;
  for (int field = 3; field <= 22 && at < line.size(); ++field) {
    const size_t end = std::min(line.find(' ', at), line.size());
    if (field == 4) std::from_chars(line.data() + at, line.data() + end, found.parent);
    if (field == 22) found.start_time = line.substr(at, end - at);
    at = end + 1;
  }
  return found;
}

}  // namespace

namespace {

bool is_set(const GetEnvironment& get, const Family& family) {
  return value_of(get, family.rank) != nullptr || value_of(get, family.size) != nullptr;
}

// Whether this is a task of a step of srun; `family` with the variable that its version of Slurm gives the
// size by.
bool in_slurm_step(const GetEnvironment& get, Family* family) {
  const char* step = value_of(get, kSlurm.job_part);
  if (step == nullptr || value_of(get, kSlurm.rank) == nullptr) return false;
  uint32_t number = 0;
  const auto [stop, failure] = std::from_chars(step, step + std::strlen(step), number);
  if (failure != std::errc() || *stop != '\0' || number >= kSlurmStepMax) return false;
  *family = kSlurm;
  if (value_of(get, family->size) == nullptr) family->size = "SLURM_NTASKS";
  return true;
}

// Slurm's or PMI's, where both are there.
Result<LaunchEnvironment> slurm_beside_pmi(const Family& slurm, const GetEnvironment& get) {
  SWALE_ASSIGN_OR_RETURN(const LaunchEnvironment step, read_family(slurm, get));
  SWALE_ASSIGN_OR_RETURN(const LaunchEnvironment pmi, read_family(kHydra, get));
  // Of another size, or with Hydra's own variables: a launcher that was started by srun, or its proxies were.
  if (pmi.size != step.size || value_of(get, kHydra.local_size) != nullptr) return pmi;
  if (pmi.rank == step.rank) return step;
  return invalid_argument(
      "environment variables {}={} and {}={} contradict each other, and both say that there are {} ranks: "
      "give SWALE_JOB_RANK and SWALE_JOB_SIZE by hand, or a communicator",
      kHydra.rank, pmi.rank, slurm.rank, step.rank, pmi.size);
}

}  // namespace

Result<LaunchEnvironment> detect_launch(const GetEnvironment& get) {
  for (const Family& family : {kByHand, kOpenMpi, kFlux}) {
    if (is_set(get, family)) return read_family(family, get);
  }
  Family slurm{};
  if (in_slurm_step(get, &slurm))
    return is_set(get, kHydra) ? slurm_beside_pmi(slurm, get) : read_family(slurm, get);
  if (value_of(get, kPals.rank) != nullptr) return read_family(kPals, get);
  if (is_set(get, kHydra)) return read_family(kHydra, get);
  return LaunchEnvironment();
}

std::string this_machine() {
  const std::string boot = boot_id();
  return boot.empty() ? host_name() : boot;
}

std::string this_node_id() { return fmt::format("{}-{}", host_name(), boot_id().substr(0, 8)); }

std::string launcher_process_id(const LaunchEnvironment& launch) {
  if (launch.launcher != "hydra" || launch.local_size != launch.size) return "";
  int32_t pid = ::getppid();
  for (int i = 0; i < kAncestorsMax && pid > 1; ++i) {
    const std::optional<ProcessStat> process = stat_of(pid);
    if (!process) return "";
    if (process->command.starts_with("hydra_pmi_prox")) {
      return fmt::format("hydra-{}-{}-{}", this_node_id(), pid, process->start_time);
    }
    pid = process->parent;
  }
  return "";
}

}  // namespace swale::net
