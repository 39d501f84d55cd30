// How the demo's programs give up: one line that names the program, then status 2 at once. Under mpirun that
// ends the whole job.
#ifndef EXAMPLES_LAMMPS_FAIL_H_
#define EXAMPLES_LAMMPS_FAIL_H_

#include <errno.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "swale/swale.h"

namespace impact {

[[noreturn]] inline void fail(const std::string& message) {
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, message);
  std::fflush(stderr);
  std::_Exit(2);
}

inline void check_swale(int code, const char* call) {
  if (code != SWALE_OK) fail(fmt::format("{}: {}: {}", call, swale_code_name(code), swale_last_error()));
}

}  // namespace impact

#endif  // EXAMPLES_LAMMPS_FAIL_H_
