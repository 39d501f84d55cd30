#include "bench/processes.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <vector>

#include "bench/arguments.h"
#include "bench/measure.h"

namespace swale::bench {

pid_t serve_in_child(const std::function<void(const std::function<void()>&)>& serve) {
  int ends[2];
  if (::pipe(ends) != 0) die("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::close(ends[0]);
    serve([&] {
      if (::write(ends[1], "+", 1) != 1) die("nobody waits for the mount");
    });
    ::_exit(0);
  }
  ::close(ends[1]);
  char ready = 0;
  if (::read(ends[0], &ready, 1) != 1) die("the mount did not come");
  ::close(ends[0]);
  return child;
}

WorkTimes work_at_once(uint64_t processes,
                       const std::function<void(uint64_t, const std::function<void()>&)>& work,
                       const std::function<void()>& begins, Written then) {
  const size_t bytes = 2 * processes * sizeof(double);
  void* const shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int gate[2], others[2];
  if (shared == MAP_FAILED || ::pipe(gate) != 0 || ::pipe(others) != 0) die("no memory, or no pipe");
  auto* const times = static_cast<double*>(shared);
  std::vector<pid_t> children;
  for (uint64_t process = 0; process < processes; ++process) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    ::close(gate[1]);
    char nothing;
    static_cast<void>(::read(gate[0], &nothing, 1));  // until the gate is closed
    work(process, [&] {
      times[2 * process] = now_s();
      if (then == Written::kGoesOn) return;
      ::close(others[1]);
      static_cast<void>(::read(others[0], &nothing, 1));  // until all have closed it, or ended
    });
    times[2 * process + 1] = now_s();
    ::_exit(0);
  }
  ::close(gate[0]);
  ::close(others[0]);
  ::close(others[1]);
  if (begins) begins();
  const double began = now_s();
  ::close(gate[1]);
  for (const pid_t child : children) {
    int state = 0;
    ::waitpid(child, &state, 0);
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) die("a process failed");
  }
  WorkTimes took;
  for (uint64_t process = 0; process < processes; ++process) {
    took.write_s = std::max(took.write_s, times[2 * process] - began);
    took.all_s = std::max(took.all_s, times[2 * process + 1] - began);
  }
  ::munmap(shared, bytes);
  return took;
}

}  // namespace swale::bench
