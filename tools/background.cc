#include "tools/background.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tools/options.h"

namespace swale::tools {
namespace {

void say(const Serving& serving, const std::string& text) {
  serving.json ? print_json_text(text) : print(text);
}

// In the child: nothing of the terminal is held any more.
void let_go(const Serving& serving, int tell, const std::string& text) {
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(nowhere, STDIN_FILENO);
  ::dup2(nowhere, STDOUT_FILENO);
  if (!serving.keeps_messages) ::dup2(nowhere, STDERR_FILENO);
  ::close(nowhere);
  static_cast<void>(::chdir("/") + ::write(tell, text.data(), text.size()));
  ::close(tell);
}

}  // namespace

// The parent ends when the child has said that it serves, or with the child that could not, which has said
// why.
int serve_in_background(const Serving& serving) {
  if (serving.foreground) {
    const Status ended = serving.serve([&](const std::string& text) {
      say(serving, text);
      static_cast<void>(finish_output(kExitOk));
    });
    return ended.ok() ? kExitOk : fail(ended);
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(errno_status(errno, "a pipe"));
  const pid_t child = ::fork();
  if (child < 0) return fail(errno_status(errno, "starting a process that serves"));
  if (child > 0) {
    ::close(ends[1]);
    std::string text;
    char part[512];
    for (ssize_t got; (got = ::read(ends[0], part, sizeof(part))) > 0;)
      text.append(part, static_cast<size_t>(got));
    if (!text.empty()) {
      say(serving, text);
      return finish_output(kExitOk);
    }
    int state = 0;
    ::waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : kExitFailure;
  }
  ::close(ends[0]);
  ::setsid();
  const Status ended = serving.serve([&](const std::string& text) { let_go(serving, ends[1], text); });
  ::_exit(ended.ok() ? kExitOk : fail(ended));
}

}  // namespace swale::tools
