// ProcessIdentity: names one process of one machine, so that another process can later ask whether it still
// exists.
//
// A process id alone is not enough: the kernel reuses numbers, each container counts its own, and machines
// share host names. The boot id identifies a machine and its boot; the start time tells a process from a
// later namesake.
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
ProcessIdentity process_of(int64_t pid);  // in this process's pid namespace; start_time "": there is none

enum class ProcessState {
  kUnknown,  // on another machine or in another pid namespace: this process cannot find out
  kRunning,
  kStopped,  // exists, but is stopped by a signal or a debugger
  kGone,     // cannot run again
};

struct ProcessReport {
  ProcessState state = ProcessState::kUnknown;
  std::string why;  // for kGone: "the process is gone"
};

// What this process can find out about another one.
ProcessReport look_for(const ProcessIdentity& other);

// The batch scheduler's allocation that this process runs in, "slurm-70123"; "" if there is none.
using GetVariable = std::function<const char*(const char* name)>;
std::string scheduler_allocation(const GetVariable& get);
std::string scheduler_allocation();  // from this process's environment

}  // namespace swale
