// `swale iond mount`: the files of a job's I/O servers as a directory, for programs that know nothing of
// them: until it is unmounted, or while a program runs.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "capi/handles.h"
#include "capi/options.h"
#include "fuse/iond_mount.h"
#include "fuse/mounted.h"
#include "io/descriptor.h"
#include "tools/background.h"
#include "tools/child.h"
#include "tools/iond.h"
#include "tools/node_turn.h"
#include "tools/options.h"
#include "tools/tree.h"

namespace swale::tools {
namespace {

constexpr Nanos kMountPatience = seconds(60);  // of the ranks of a node for the one that mounts

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
  if (!program.empty()) return run_on_iond_mount(choices, program_words(program));
  IondMountChoices mine = choices;
  mine.mountpoint = whole_path(choices.mountpoint);
  Serving serving;
  serving.foreground = foreground;
  serving.json = json;
  serving.serve = [&](const auto& ready) {
    return serve_iond_mount(mine, nullptr, [&](const IondMountJob& job) { ready(said(job.servers)); });
  };
  return serve_in_background(serving);
}

IondMountJob job_of(const net::Job& job, const iond::Iond& servers) {
  const std::vector<net::Rank>& hosts = servers.hosts();
  const auto before = std::count_if(hosts.begin(), hosts.end(), [&](net::Rank r) { return r < job.rank(); });
  return {servers.servers(), job.size() - static_cast<int32_t>(hosts.size()),
          job.rank() - static_cast<int32_t>(before)};
}

}  // namespace

Status serve_iond_mount(const IondMountChoices& choices, const NodeTurn* turn,
                        const std::function<void(const IondMountJob&)>& ready) {
  swale_job* job = nullptr;
  {
    const fuse::SignalsBlocked blocked;  // the mount has a thread for them
    if (swale_job_open(nullptr, "", &job) != SWALE_OK)
      return error(Code::kUnavailable, Scope::kFatal, "{}", swale_last_error());
  }
  const auto read_options = [&]() -> Result<Config> {
    SWALE_RETURN_IF_ERROR(capi::check_process_variables());
    constexpr std::array kCalls = {capi::Call::kIond, capi::Call::kTier};  // as for the servers
    return capi::config_of(kCalls, choices.options, capi::process_environment);
  };
  const auto wanted = read_options();
  fuse::IondMountOptions options;
  options.mountpoint = choices.mountpoint;
  options.threads = choices.threads;
  options.mine = wanted.status();
  if (wanted.ok()) options.servers = iond::iond_options(*wanted);
  options.ready = [&](const iond::Iond& servers) {
    if (turn != nullptr && turn->is_first()) turn->tell_mounted();
    ready(job_of(*job->state->job, servers));
  };
  if (turn != nullptr && !turn->is_first())
    options.wait_for_mount = [turn] { return turn->wait_until_mounted(kMountPatience); };
  const Status served = fuse::run_iond_mount(*job->state->job, options);
  const bool left = swale_job_close(job) == SWALE_OK;
  if (served.ok() && !left) return error(Code::kUnavailable, Scope::kFatal, "{}", swale_last_error());
  return served;
}

namespace {

constexpr const char* kLaunchVariables[] = {"SWALE_JOB_RANK", "SWALE_JOB_SIZE", "SWALE_JOB_ID",
                                            "SWALE_JOB_RENDEZVOUS"};
constexpr std::string_view kJobPart = "SWALE_JOB_";
constexpr std::string_view kKeptPart = "SWALE_LAUNCH_";

std::string kept_name(std::string_view name) {
  return fmt::format("{}{}", kKeptPart, name.substr(kJobPart.size()));
}

// The program's launch: the ranks of the servers' job without the servers.
void set_launch_variables(const IondMountJob& job) {
  const char* const id = std::getenv("SWALE_JOB_ID");
  ::setenv("SWALE_JOB_ID", fmt::format("{}.programs", id == nullptr ? "" : id).c_str(), 1);
  ::setenv("SWALE_JOB_SIZE", std::to_string(job.programs).c_str(), 1);
  ::setenv("SWALE_JOB_RANK", std::to_string(job.program).c_str(), 1);
}

// The mount is a child, and the program is another one, which is no rank of the servers' job. Signals go to
// the program; it ends the mount by its end.
class OnMount {
 public:
  OnMount(const IondMountChoices& choices, const std::vector<std::string>& words)
      : choices_(choices), words_(words) {
    ::sigemptyset(&awaited_);
    ::sigaddset(&awaited_, SIGCHLD);
    for (const int signal : kForwarded) ::sigaddset(&awaited_, signal);
    ::sigprocmask(SIG_BLOCK, &awaited_, &usual_);
  }

  int run() {
    auto turn = NodeTurn::take(whole_path(choices_.mountpoint));
    if (!turn.ok()) return fail(turn.status());
    IondMountJob job;
    bool mounted = false;
    if (const Status begun = start_mount(*turn, &job, &mounted); !begun.ok()) return fail(begun);
    if (mounted) {
      choices_.joins ? set_launch_variables(job) : restore_launch_variables();
      program_ = start_beside(words_, usual_);
      if (program_ < 0) program_exit_ = fail(errno_status(errno, words_.front() + ": starting it"));
    }
    while (program_ > 0) wait();
    if (mounted) turn->end();
    if (mount_ > 0) ::kill(mount_, SIGTERM);
    while (mount_ > 0) wait();
    return program_exit_ != kExitOk ? program_exit_ : mount_exit_;
  }

 private:
  Status start_mount(const NodeTurn& turn, IondMountJob* job, bool* mounted) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return errno_status(errno, "a pipe");
    io::Descriptor is_there(ends[0]), tell(ends[1]);
    const pid_t parent = ::getpid();
    mount_ = ::fork();
    if (mount_ < 0) return errno_status(errno, "starting the mount");
    if (mount_ == 0) {
      ::setsid();
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // nobody else would end the mount
      if (::getppid() != parent) ::_exit(kExitSignal + SIGTERM);
      ignore_signals_for_programs();
      ::sigprocmask(SIG_SETMASK, &usual_, nullptr);
      is_there = io::Descriptor();
      const Status served = serve_iond_mount(choices_, &turn, [&](const IondMountJob& found) {
        static_cast<void>(::write(tell.get(), &found, sizeof(found)));
      });
      const int exit_code = served.ok() ? kExitOk : fail(served);
      std::fflush(nullptr);
      ::_exit(exit_code);
    }
    tell = io::Descriptor();
    *mounted = ::read(is_there.get(), job, sizeof(*job)) == sizeof(*job);
    return {};
  }

  // For the next signal, or child that has ended.
  void wait() {
    const int signal = ::sigwaitinfo(&awaited_, nullptr);
    if (signal > 0 && signal != SIGCHLD && program_ > 0) ::kill(program_, signal);
    int state = 0;
    for (pid_t child = 0; (child = ::waitpid(-1, &state, WNOHANG)) > 0;) {
      if (child == program_) {
        program_exit_ = exit_code_of(state);
        program_ = -1;
      } else if (child == mount_) {
        mount_exit_ = exit_code_of(state);
        mount_ = -1;
        if (program_ > 0) complain("{}: the mount has ended while the program runs", choices_.mountpoint);
      }
    }
  }

  const IondMountChoices& choices_;
  const std::vector<std::string>& words_;
  sigset_t awaited_ = {}, usual_ = {};
  pid_t mount_ = -1, program_ = -1;
  int program_exit_ = kExitOk, mount_exit_ = kExitOk;
};

}  // namespace

void keep_launch_variables() {
  for (const char* const name : kLaunchVariables)
    if (const char* const value = std::getenv(name)) ::setenv(kept_name(name).c_str(), value, 1);
}

void restore_launch_variables() {
  for (const char* const name : kLaunchVariables) {
    const std::string kept = kept_name(name);
    const char* const value = std::getenv(kept.c_str());
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
    ::unsetenv(kept.c_str());
  }
}

int run_on_iond_mount(const IondMountChoices& choices, const std::vector<std::string>& words) {
  return OnMount(choices, words).run();
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
              "that is 0, with the mount's; of several ranks on a node one mounts, for all. Else it runs in "
              "the background until it is unmounted "
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
