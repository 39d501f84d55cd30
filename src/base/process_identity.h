// ProcessIdentity: names one process of one machine, so that another process can later ask whether it still exists.
//
// A process id alone is not a name: numbers are given again, containers number on their own, and machines share host
// names. The boot id tells a machine (and a boot of it), the start time tells a process from a later one of its number.
//
// Threads: free functions; they read /proc and the environment.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace swale {

struct ProcessIdentity {
  std::string host;
  std::string boot;           // the kernel's boot id; "" if it cannot be read
  std::string pid_namespace;  // process ids of another namespace mean nothing here
  int64_t pid = 0;
  std::string start_time;  // in clock ticks since boot

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

std::string host_name();  // "localhost" if there is none
std::string boot_id();
ProcessIdentity this_process();

enum class ProcessState {
  kUnknown,  // of another machine or another pid namespace: it cannot be asked
  kRunning,
  kStopped,  // exists, but is stopped by a signal or a debugger
  kGone,     // cannot run again
};

struct ProcessReport {
  ProcessState state = ProcessState::kUnknown;
  std::string why;  // of kGone: "the process is gone"
};

// What this process can find out about another one.
ProcessReport look_for(const ProcessIdentity& other);

// The batch scheduler's allocation that this process runs in, "slurm-70123"; "" if there is none.
using GetVariable = std::function<const char*(const char* name)>;
std::string scheduler_allocation(const GetVariable& get);
std::string scheduler_allocation();  // by this process's environment

}  // namespace swale
