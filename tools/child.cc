#include "tools/child.h"

#include <unistd.h>

#include <cerrno>
#include <climits>

#include "tools/options.h"

namespace swale::tools {
namespace {

constexpr int kExitNoProgram = 127, kExitNoStart = 126;  // as a shell has them

}  // namespace

std::string own_program() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0 || static_cast<size_t>(length) == sizeof(path)) return {};
  return {path, static_cast<size_t>(length)};
}

void ignore_signals_for_programs() {
  for (const int signal : kForwarded)
    if (signal != SIGTERM) ::signal(signal, SIG_IGN);
}

int become(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  const int why = errno;
  complain("{}: {}", words.front(), errno_status(why, "starting it").message());
  return why == ENOENT ? kExitNoProgram : kExitNoStart;
}

}  // namespace swale::tools
