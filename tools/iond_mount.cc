// `swale iond mount`: the files of a job's I/O servers as a directory, for programs that know nothing of
// them: until it is unmounted, or while a program runs.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "capi/handles.h"
#include "capi/options.h"
#include "fuse/iond_mount.h"
#include "fuse/mounted.h"
#include "io/descriptor.h"
#include "tools/background.h"
#include "tools/child.h"
#include "tools/iond.h"
#include "tools/options.h"
#include "tools/tree.h"

namespace swale::tools {
namespace {

struct IondMountCommand {
  IondMountChoices choices;
  std::string program;
  bool foreground = false;
  bool json = false;

  int run() const;

 private:
  std::string said(uint32_t servers) const;
};

std::string IondMountCommand::said(uint32_t servers) const {
  if (json) return json_line({{"mountpoint", choices.mountpoint}, {"servers", servers}});
  return fmt::format("{}: the files of {} I/O servers\n", choices.mountpoint, servers);
}

int IondMountCommand::run() const {
  if (!program.empty()) {
    std::vector<std::string> words = {program};
    words.insert(words.end(), program_arguments().begin(), program_arguments().end());
    return run_on_iond_mount(choices, words);
  }
  IondMountChoices mine = choices;
  mine.mountpoint = whole_path(choices.mountpoint);
  Serving serving;
  serving.foreground = foreground;
  serving.json = json;
  serving.serve = [&](const auto& ready) {
    return serve_iond_mount(mine, [&](uint32_t servers) { ready(said(servers)); });
  };
  return serve_in_background(serving);
}

}  // namespace

Status serve_iond_mount(const IondMountChoices& choices, const std::function<void(uint32_t)>& ready) {
  swale_job* job = nullptr;
  {
    const fuse::SignalsBlocked blocked;  // the mount has a thread for them
    if (swale_job_open(nullptr, "", &job) != SWALE_OK)
      return error(Code::kUnavailable, Scope::kFatal, "{}", swale_last_error());
  }
  const auto read_options = [&]() -> Result<Config> {
    SWALE_RETURN_IF_ERROR(capi::check_process_variables());
    return capi::config_of(capi::Call::kIond, choices.options, capi::process_environment);
  };
  const auto wanted = read_options();
  fuse::IondMountOptions options;
  options.mountpoint = choices.mountpoint;
  options.threads = choices.threads;
  options.mine = wanted.status();
  if (wanted.ok()) options.servers = iond::iond_options(*wanted);
  options.ready = ready;
  const Status served = fuse::run_iond_mount(*job->state->job, options);
  const bool left = swale_job_close(job) == SWALE_OK;
  if (served.ok() && !left) return error(Code::kUnavailable, Scope::kFatal, "{}", swale_last_error());
  return served;
}

// The mount is a child. Signals go to the program; it ends the mount by its end.
int run_on_iond_mount(const IondMountChoices& choices, const std::vector<std::string>& words) {
  sigset_t awaited, usual;
  ::sigemptyset(&awaited);
  ::sigaddset(&awaited, SIGCHLD);
  for (const int signal : kForwarded) ::sigaddset(&awaited, signal);
  ::sigprocmask(SIG_BLOCK, &awaited, &usual);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(errno_status(errno, "a pipe"));
  io::Descriptor is_there(ends[0]), tell(ends[1]);
  const pid_t mount = ::fork();
  if (mount < 0) return fail(errno_status(errno, "starting the mount"));
  if (mount == 0) {
    ::setsid();
    ignore_signals_for_programs();
    ::sigprocmask(SIG_SETMASK, &usual, nullptr);
    is_there = io::Descriptor();
    const Status served =
        serve_iond_mount(choices, [&](uint32_t) { static_cast<void>(::write(tell.get(), "m", 1)); });
    const int exit_code = served.ok() ? kExitOk : fail(served);
    std::fflush(nullptr);
    ::_exit(exit_code);
  }
  tell = io::Descriptor();
  char byte = 0;
  const bool mounted = ::read(is_there.get(), &byte, 1) == 1;
  pid_t program = mounted ? start_beside(words, usual) : -1;
  const int failed = errno;
  int program_exit = kExitOk, mount_exit = kExitOk;
  if (mounted && program < 0) program_exit = fail(errno_status(failed, words.front() + ": starting it"));
  if (program < 0) ::kill(mount, SIGTERM);
  for (bool ended = false; !ended;) {
    const int signal = ::sigwaitinfo(&awaited, nullptr);
    if (signal > 0 && signal != SIGCHLD && program > 0) ::kill(program, signal);
    int state = 0;
    for (pid_t child = 0; (child = ::waitpid(-1, &state, WNOHANG)) > 0;) {
      if (child == program) {
        program_exit = exit_code_of(state);
        program = -1;
        ::kill(mount, SIGTERM);
      }
      if (child != mount) continue;
      mount_exit = exit_code_of(state);
      ended = true;
      if (program > 0) complain("{}: the mount has ended while the program runs", choices.mountpoint);
    }
  }
  if (program > 0) {  // it finds an empty directory
    int state = 0;
    while (::waitpid(program, &state, 0) < 0 && errno == EINTR) {
    }
    program_exit = exit_code_of(state);
  }
  return program_exit != kExitOk ? program_exit : mount_exit;
}

void add_iond_mount(CLI::App& app, Run* run) {
  auto command = std::make_shared<IondMountCommand>();
  OptionSet sub = add_command(
      app, "iond-mount", "mounts the files of a job's I/O servers",
      {
          .description =
              "Shows the files of I/O servers (swale iond) at MOUNTPOINT, by FUSE 3, to programs that know "
              "nothing of them. It is a rank of the servers' job, as a program that calls swale_iond_open "
              "is: `swale run` starts both. Several nodes may mount the same servers: each sees at its next "
              "call what another was answered for. Locks, and appends, are of one mount alone. `swale iond "
              "mount` is the same as `swale iond-mount`.\n\n"
              "Files have permission bits, times, links and attributes user.NAME, and one owner, who is the "
              "user that mounts; there are no special files, set-id bits or ACLs. If a server is gone, "
              "calls fail with EIO after iond.deadline_s at the latest, and its name is logged.\n\n"
              "With a program, it is mounted while that runs, and ends with the program's exit status; if "
              "that is 0, with the mount's. Else it runs in the background until it is unmounted "
              "(fusermount3 -u), or gets SIGTERM. The servers end when all ranks of their job have.",
          .examples = {{"mkdir -p slow mnt && swale run --ssd ssd --backing slow --size 16M -- swale iond "
                        "mount mnt -- sh -c 'date > mnt/now'",
                        "an I/O server, and a program that writes to it; slow/now has the date when the "
                        "server has drained"}},
      });
  sub.add_option("MOUNTPOINT", command->choices.mountpoint, "a directory").required().type_name("DIR");
  sub.add_option("--options", command->choices.options,
                 "options iond.deadline_s and so on: see swale-options(7)")
      .type_name("OPTIONS");
  sub.add_option("--threads", command->choices.threads, "that serve requests; by default 10")
      .between(1, 256)
      .type_name("N");
  sub.add_flag("--foreground", command->foreground, "stays until the mount has ended");
  sub.add_flag("--json", command->json, "print JSON when the mount is there");
  sub.add_program("program", command->program, "what to start, with its arguments: after --", false);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
