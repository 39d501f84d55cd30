#include "base/process_identity.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>

namespace swale {
namespace {

// Fields of /proc/PID/stat, as proc(5) numbers them.
constexpr int kStateField = 3;
constexpr int kThreadsField = 20;
constexpr int kStartTimeField = 22;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string own_pid_namespace() {
  std::array<char, 64> name{};
  const ssize_t count = ::readlink("/proc/self/ns/pid", name.data(), name.size());
  return count < 0 ? "" : std::string(name.data(), static_cast<size_t>(count));
}

// One field of a line of /proc/PID/stat (the third or a later one); "" if the line does not have it.
std::string field_of(const std::string& line, int number) {
  size_t at = line.rfind(')');  // the end of the command, which may contain blanks
  for (int field = 2; field < number && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  if (at == std::string::npos) return "";
  return line.substr(at + 1, line.find(' ', at + 1) - at - 1);
}

std::string stat_of(int64_t pid) { return first_line(fmt::format("/proc/{}/stat", pid)); }

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string boot_id() { return first_line("/proc/sys/kernel/random/boot_id"); }

ProcessIdentity this_process() { return process_of(::getpid()); }

ProcessIdentity process_of(int64_t pid) {
  ProcessIdentity found;
  found.host = host_name();
  found.boot = boot_id();
  found.pid_namespace = own_pid_namespace();
  found.pid = pid;
  found.start_time = field_of(stat_of(pid), kStartTimeField);
  return found;
}

ProcessReport look_for(const ProcessIdentity& other) {
  const ProcessIdentity self = this_process();
  if (other.boot.empty() || self.boot.empty()) return {};
  if (other.boot != self.boot) {
    // Another machine, or this one before its last start. Many machines may call themselves localhost.
    const bool this_host = other.host == self.host && !self.host.starts_with("localhost");
    if (this_host) return {ProcessState::kGone, "the host was restarted since"};
    return {};
  }
  if (other.pid_namespace != self.pid_namespace) return {};
  if (other == self) return {ProcessState::kRunning, {}};
  if (other.pid <= 0) return {ProcessState::kGone, "there is no process of such a number"};
  if (::kill(static_cast<pid_t>(other.pid), 0) != 0 && errno == ESRCH)
    return {ProcessState::kGone, "the process is gone"};
  const std::string line = stat_of(other.pid);
  const std::string start_time = field_of(line, kStartTimeField);
  if (start_time.empty()) return {ProcessState::kRunning, {}};  // exists, but /proc does not show it
  if (start_time != other.start_time)
    return {ProcessState::kGone, "the process is gone, another has its number"};
  const std::string state = field_of(line, kStateField);
  // A zombie: its parent has not reaped it yet. Its other threads, if any are left, may still run.
  if (state == "Z" && field_of(line, kThreadsField) == "1")
    return {ProcessState::kGone, "the process has ended"};
  if (state == "T" || state == "t") return {ProcessState::kStopped, {}};
  return {ProcessState::kRunning, {}};
}

std::string scheduler_allocation(const GetVariable& get) {
  struct Scheduler {
    const char* name;
    const char* variable;
  };
  constexpr std::array kSchedulers = {Scheduler{"flux", "FLUX_JOB_ID"}, Scheduler{"slurm", "SLURM_JOB_ID"},
                                      Scheduler{"pbs", "PBS_JOBID"}, Scheduler{"lsf", "LSB_JOBID"},
                                      Scheduler{"cobalt", "COBALT_JOBID"}};
  for (const Scheduler& scheduler : kSchedulers) {
    const char* value = get(scheduler.variable);
    if (value != nullptr && *value != '\0') return fmt::format("{}-{}", scheduler.name, value);
  }
  return "";
}

std::string scheduler_allocation() {
  return scheduler_allocation([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace swale
