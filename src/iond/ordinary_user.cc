#include "iond/ordinary_user.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace swale::iond {

bool is_root(uid_t user, std::string_view uid_map) {
  if (user != 0) return false;
  std::istringstream lines{std::string(uid_map)};
  uint64_t inside = 0, outside = 0, count = 0;
  bool any = false;
  while (lines >> inside >> outside >> count) {
    any = true;
    if (inside == 0 && count > 0) return outside == 0;
  }
  return !any;  // nothing says that it is somebody else
}

Status expect_ordinary_user() {
  std::ifstream map("/proc/self/uid_map");
  const std::string text{std::istreambuf_iterator<char>(map), {}};
  if (!is_root(::geteuid(), text)) return {};
  return invalid_argument(
      "swale iond does not run as root: whoever is in the job would write with the rights of root; start "
      "it as the user whose job it serves (in a script that root runs: setpriv --reuid USER --regid GROUP "
      "--init-groups swale iond …), with directories that belong to that user");
}

}  // namespace swale::iond
