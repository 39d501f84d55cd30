#include "tools/preload.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "tools/child.h"

namespace swale::tools {
namespace {

constexpr char kLibrary[] = "libswale_preload.so";
constexpr char kVariable[] = "LD_PRELOAD";

std::string own_folder() {
  const std::string program = own_program();
  return program.substr(0, program.rfind('/') == std::string::npos ? 0 : program.rfind('/'));
}

void preload_from_now_on(const std::string& library) {
  const char* const before = std::getenv(kVariable);
  const std::string all =
      before == nullptr || *before == '\0' ? library : fmt::format("{}:{}", before, library);
  ::setenv(kVariable, all.c_str(), 1);
}

// Starts this command with the library, and asks it whether it has come. Where it has not, the system has
// said why on standard error, and the status says what to do.
Status try_preload(const std::string& library) {
  const pid_t child = ::fork();
  if (child < 0) return errno_status(errno, "starting a process that tries the preload library");
  if (child == 0) {
    const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nothing >= 0) ::dup2(nothing, STDOUT_FILENO);
    preload_from_now_on(library);
    ::execl("/proc/self/exe", "swale", "check", static_cast<char*>(nullptr));
    ::_exit(kExitSignal);
  }
  int state = 0;
  while (::waitpid(child, &state, 0) < 0)
    if (errno != EINTR) return errno_status(errno, "a process that tries the preload library");
  if (exit_code_of(state) == 0) return {};
  return error(
      Code::kUnavailable, Scope::kFile,
      "{} was not loaded into a program that this command has started: the system ignores LD_PRELOAD for "
      "set-user-ID programs and those with capabilities, and a library that its C library does not load "
      "(its message is above); go on without --preload: programs then write through the mount",
      library);
}

}  // namespace

Result<std::string> find_preload_library() {
  const std::string folder = own_folder();
  const std::string installed =
      fmt::format("{}/" SWALE_LIBRARIES_FROM_PROGRAMS "/swale-{}/{}", folder, SWALE_VERSION, kLibrary);
  for (const std::string& place : {fmt::format("{}/{}", folder, kLibrary), installed}) {
    char resolved[PATH_MAX];
    if (::realpath(place.c_str(), resolved) == nullptr) continue;
    // The loader's list has no way to write them.
    if (std::string(resolved).find_first_of(": ") == std::string::npos) return std::string(resolved);
    return invalid_argument(
        "{}: a space or colon in its path: no preload library may have one; install Swale elsewhere",
        resolved);
  }
  return error(Code::kNotFound, Scope::kFile,
               "{} is neither in {} nor at {}: install all of Swale, or go on without --preload", kLibrary,
               folder, installed);
}

Status preload_programs() {
  SWALE_ASSIGN_OR_RETURN(const std::string library, find_preload_library());
  SWALE_RETURN_IF_ERROR(try_preload(library));
  preload_from_now_on(library);
  return {};
}

std::string preloaded_version() {
  const void* const version = ::dlsym(RTLD_DEFAULT, "swale_preload_version");
  return version == nullptr ? "" : std::string(static_cast<const char*>(version));
}

}  // namespace swale::tools
