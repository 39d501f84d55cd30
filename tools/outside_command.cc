#include "tools/outside_command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "base/status.h"
#include "tools/child.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

// The package's pyproject.toml has the same; python/tests/test_commands.py compares.
constexpr std::string_view kPackageCommands[] = {"example", "plot",   "histogram",
                                                 "export",  "import", "report"};

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// The folder of this program, with a slash; "" if the system does not tell.
std::string own_folder() {
  const std::string program = own_program();
  return program.substr(0, program.rfind('/') + 1);
}

bool is_program(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

}  // namespace

std::optional<std::string> find_outside_command(std::string_view name) {
  if (!is_plain_name(name)) return std::nullopt;
  const std::string program = fmt::format("swale-{}", name);
  if (std::string beside = own_folder(); !beside.empty()) {
    beside += program;
    if (is_program(beside)) return beside;
  }
  const char* const path = std::getenv("PATH");
  std::string_view left = path == nullptr ? "" : path;
  while (!left.empty()) {
    const std::string_view folder = left.substr(0, left.find(':'));
    left.remove_prefix(std::min(left.size(), folder.size() + 1));
    // A relative folder would make the meaning of a command depend on where it is typed.
    if (!folder.starts_with('/')) continue;
    if (std::string found = fmt::format("{}/{}", folder, program); is_program(found)) return found;
  }
  return std::nullopt;
}

bool is_package_command(std::string_view name) {
  return std::find(std::begin(kPackageCommands), std::end(kPackageCommands), name) !=
         std::end(kPackageCommands);
}

std::string package_hint(std::string_view name) {
  return fmt::format(
      "`swale {0}` is a command of the Python package swale-io, which is not installed (no swale-{0} "
      "beside this "
      "program or in PATH): in the source tree, python3 -m pip install ./python numpy matplotlib",
      name);
}

int become_outside_command(const std::string& program, const std::vector<std::string>& words) {
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  ::execv(program.c_str(), arguments.data());
  const int why = errno;
  complain("{}: {}", program, errno_status(why, "starting it").message());
  return kExitFailure;
}

}  // namespace swale::tools
