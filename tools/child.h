// What `swale run` does with the processes that it starts.
// Threads: one.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <string>
#include <vector>

namespace swale::tools {

inline constexpr int kExitSignal = 128;  // and the signal's number, as a shell has it
inline constexpr int kForwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// For a process that serves programs. Slurm signals all processes of a step, those with a session of their
// own, too: what is meant for a program may not end what it writes to. SIGTERM does, in order.
void ignore_signals_for_programs();

// Of a state that wait() gives.
inline int exit_code_of(int state) {
  return WIFEXITED(state) ? WEXITSTATUS(state) : kExitSignal + WTERMSIG(state);
}

// The path of this program; "": the system does not tell.
std::string own_program();

// The program takes this process's place. Returns the exit code that a shell has for one that could not be
// started; it has said why.
int become(const std::vector<std::string>& words);

}  // namespace swale::tools
