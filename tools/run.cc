// `swale run`: starts a program with the tree of a job over a directory (run_tree.cc), or as a rank of the
// launch that it is in, and I/O servers beside some of these programs.
//
// Each rank of the launch is a `swale run`, which becomes the program, or, where a server stands, is the
// parent of both. The servers are ranks of Swale's job, behind those of the program, and none of the
// launcher's: MPI does not know of them and waits for none. No process asks another one who it is: rank and
// size of the launch say where the servers stand.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/entropy.h"
#include "base/process_identity.h"
#include "capi/options.h"
#include "fs/log/unmounted_format.h"
#include "io/descriptor.h"
#include "iond/ordinary_user.h"
#include "net/meeting/rendezvous.h"
#include "net/meeting/topology.h"
#include "tools/child.h"
#include "tools/iond.h"
#include "tools/preload.h"
#include "tools/tree.h"
#include "tools/tree_engine.h"

namespace swale::tools {
namespace {

constexpr uint32_t kServersMax = 1024;
constexpr const char* kServersFiles = ".iond";    // beside the buffer: where they are mounted
constexpr std::string_view kOnServers = "iond:";  // --backing: the tree stands on the servers

struct Server {
  uint32_t number = 0;
  pid_t process = -1;
  io::Descriptor joined;  // has a byte, once all ranks have met
  bool ended = false;
  bool told_to_end = false;
  int exit_code = 0;
};

void set_variable(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

class RunCommand {
 public:
  IondChoices iond;
  TreeChoices tree;
  uint32_t servers = 1;
  bool fallback = false;
  bool preload = false;
  bool no_mount = false;
  std::string program;

  int run();

 private:
  bool joins_servers() const { return iond.tier.backing == kOnServers; }
  Status check_servers_tree() const;
  Status stand_on_servers(std::vector<std::string>* words, std::string* files) const;
  int run_on_servers(std::vector<std::string> words) const;
  Status place(net::LaunchEnvironment* launch, uint32_t more) const;
  std::vector<uint32_t> servers_beside(const net::LaunchEnvironment& launch) const;
  Status start_server(const net::LaunchEnvironment& launch, const sigset_t& usual, Server* server) const;
  pid_t start_program(const sigset_t& usual, const std::vector<std::string>& words) const;
  int run_in_tree(const std::vector<std::string>& words) const;
  int run_without_backing(const std::vector<std::string>& words) const;
  int run_in_unmounted(const std::vector<std::string>& words, const std::string& variable) const;
};

// Where in which job this process stands: what the program and the servers find in their environment. `more`:
// ranks of the job that the launch does not have.
Status RunCommand::place(net::LaunchEnvironment* launch, uint32_t more) const {
  SWALE_RETURN_IF_ERROR(capi::check_process_variables());
  SWALE_ASSIGN_OR_RETURN(const net::JobSettings settings, capi::job_settings("", capi::process_environment));
  SWALE_ASSIGN_OR_RETURN(*launch, net::detect_launch(capi::process_environment));
  if (launch->size == 1) {  // perhaps without a launcher
    launch->local_size = 1;
    if (launch->job_id.empty()) launch->job_id = fmt::format("run-{}-{:016x}", ::getpid(), random_number());
  }
  SWALE_ASSIGN_OR_RETURN(const net::RendezvousOptions meeting,
                         net::rendezvous_options(settings, *launch, capi::process_environment));
  if (more > 0) keep_launch_variables();
  set_variable("SWALE_JOB_RENDEZVOUS", meeting.directory);
  set_variable("SWALE_JOB_ID", meeting.job_id);
  set_variable("SWALE_JOB_SIZE", std::to_string(launch->size + static_cast<int32_t>(more)));
  set_variable("SWALE_JOB_RANK", std::to_string(launch->rank));
  return {};
}

// Server i of n stands beside rank i * ranks / n: launchers fill one node after the other, so one server a
// node does so.
std::vector<uint32_t> RunCommand::servers_beside(const net::LaunchEnvironment& launch) const {
  std::vector<uint32_t> mine;
  const auto ranks = static_cast<uint64_t>(launch.size);
  for (uint32_t i = 0; i < servers; ++i)
    if (i * ranks / servers == static_cast<uint64_t>(launch.rank)) mine.push_back(i);
  return mine;
}

Status RunCommand::start_server(const net::LaunchEnvironment& launch, const sigset_t& usual,
                                Server* server) const {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_status(errno, "making a pipe");
  server->joined = io::Descriptor(ends[0]);
  const io::Descriptor tell(ends[1]);
  const pid_t parent = ::getpid();
  server->process = ::fork();
  if (server->process < 0) return errno_status(errno, "starting an I/O server");
  if (server->process > 0) return {};
  // A session of its own: what ends the program and its group leaves the server, which ends when all ranks
  // have. Before they have met it would not hear of that.
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kExitSignal + SIGTERM);  // it was killed before that
  ::sigprocmask(SIG_SETMASK, &usual, nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  // Not the launcher's own connections, by whose end it knows that the program has ended.
  const int kept = ::dup2(tell.get(), STDERR_FILENO + 1);
  ::close_range(static_cast<unsigned>(STDERR_FILENO + 2), ~0u, 0);
  set_variable("SWALE_JOB_RANK", std::to_string(launch.size + static_cast<int32_t>(server->number)));
  IondChoices mine = iond;
  for (std::string* path : {&mine.tier.ssd, &mine.tier.backing})
    if (const size_t at = path->find("%s"); at != std::string::npos)
      path->replace(at, 2, std::to_string(server->number));
  const int exit_code = serve_iond(mine, [kept] {
    ::prctl(PR_SET_PDEATHSIG, 0);
    static_cast<void>(::write(kept, "j", 1));
    ::close(kept);
  });
  std::fflush(nullptr);
  ::_exit(exit_code);
}

pid_t RunCommand::start_program(const sigset_t& usual, const std::vector<std::string>& words) const {
  const pid_t parent = ::getpid();
  const pid_t process = ::fork();
  if (process != 0) return process;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a launcher that kills this process means the program
  if (::getppid() != parent) ::_exit(kExitSignal + SIGKILL);
  ::sigprocmask(SIG_SETMASK, &usual, nullptr);
  ::_exit(become(words));
}

// Waits for the processes that this one has started; signals go to the program.
class Family {
 public:
  Family(pid_t program, std::vector<Server> servers) : program_(program), servers_(std::move(servers)) {}

  // Of the program.
  int wait_for_program(const sigset_t& awaited) {
    while (!program_ended_) wait(awaited);
    return program_exit_;
  }
  // A server that has never met the program would wait for it.
  void end_those_that_wait() {
    for (Server& each : servers_) {
      char byte = 0;
      if (each.ended || ::read(each.joined.get(), &byte, 1) == 1) continue;
      complain("the program has ended without its I/O servers: it did not open a job that has them");
      each.told_to_end = true;
      ::kill(each.process, SIGTERM);
    }
  }
  int wait_for_servers(const sigset_t& awaited) {
    int failed = 0;
    for (const Server& each : servers_) {
      while (!each.ended) wait(awaited);
      if (each.exit_code != 0 && !each.told_to_end) failed = each.exit_code;
    }
    return failed;
  }

 private:
  void wait(const sigset_t& awaited) {
    const int signal = ::sigwaitinfo(&awaited, nullptr);
    if (signal < 0) return;
    if (signal != SIGCHLD) {
      if (!program_ended_) ::kill(program_, signal);
      return;
    }
    int state = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &state, WNOHANG)) > 0;) {
      if (ended == program_) {
        program_ended_ = true;
        program_exit_ = exit_code_of(state);
      }
      for (Server& each : servers_) {
        if (each.process != ended) continue;
        each.ended = true;
        each.exit_code = exit_code_of(state);
      }
    }
  }

  const pid_t program_;
  std::vector<Server> servers_;
  bool program_ended_ = false;
  int program_exit_ = 0;
};

// A step of a job whose tree outlives it.
int RunCommand::run_in_unmounted(const std::vector<std::string>& words, const std::string& variable) const {
  if (const Status enters = expect_preloadable(words.front()); !enters.ok()) return fail(enters);
  if (const Status ready = preload_programs(); !ready.ok()) return fail(ready);
  set_variable(fs::kUnmountedVariable, variable);
  return become(words);
}

// Alone, the program may be a launcher of several processes on this node.
int RunCommand::run_in_tree(const std::vector<std::string>& words) const {
  if (no_mount)
    if (const auto variable = find_started_unmounted(whole_path(iond.tier.backing)); variable.ok())
      return run_in_unmounted(words, *variable);
  if (ask_tree(whole_path(iond.tier.backing)).ok())
    return fail(
        error(Code::kBusy, Scope::kFile,
              "{}: a job has it now, and has its tree mounted; programs in that need no swale run, or "
              "with --preload one without --backing",
              iond.tier.backing));
  if (no_mount)
    if (const Status enters = expect_preloadable(words.front()); !enters.ok()) return fail(enters);
  if (preload || no_mount)
    if (const Status ready = preload_programs(); !ready.ok()) return fail(ready);
  auto nodes = find_launch();
  if (!nodes.ok()) return fail(nodes.status());
  fuse::JobMountOptions options = tree.options(iond.tier.backing, iond.tier.at_end);
  options.unmounted = no_mount;
  const Fallback without(fallback, options.backing);
  if (!*nodes) return run_with_tree(options, words, without);
  options.nodes = *std::move(nodes);
  return run_on_nodes(options, words, without);
}

int RunCommand::run_without_backing(const std::vector<std::string>& words) const {
  if ((!preload && !no_mount) || !iond.tier.ssd.empty() || !tree.at.empty() || !tree.buffer.empty()) {
    complain(
        "run: --backing DIR is missing; only with --preload or --no-mount alone a program runs in trees that "
        "are there already");
    return kExitUsage;
  }
  if (no_mount) {
    const auto variable = find_unmounted_here();
    return variable.ok() ? run_in_unmounted(words, *variable) : fail(variable.status());
  }
  if (const Status ready = preload_programs(); !ready.ok()) return fail(ready);
  return run_in_mounted_tree(words, fallback);
}

// The program works in a tree, whose backing is a mount of the servers' files beside the buffer. (The tree
// cannot lie over that mount: fusermount3, which is root's, does not get into a user's.)
Status RunCommand::check_servers_tree() const {
  if (!tree.at.empty() && !tree.buffer.empty() && joins_servers() == iond.tier.ssd.empty()) return {};
  return invalid_argument(
      "run --backing {}: a tree over I/O servers needs --at, where the tree is mounted, --buffer, by which "
      "it is found again, and --ssd DIR for servers that are started here, or iond: alone for those that "
      "are ranks of this job already",
      iond.tier.backing);
}

// Makes the folder for the servers' files. The program becomes a `swale run` with a tree over them.
Status RunCommand::stand_on_servers(std::vector<std::string>* words, std::string* files) const {
  const std::string buffer = whole_path(tree.buffer);
  *files = buffer + kServersFiles;
  if (::mkdir(files->c_str(), 0700) != 0 && errno != EEXIST)
    return errno_status(errno, *files + ": making the directory for the I/O servers' files");
  std::vector<std::string> before = {
      own_program(),       "run",      "--backing", *files,     "--at",
      whole_path(tree.at), "--buffer", buffer,      "--memory", std::to_string(tree.memory),
      "--fsync",           tree.fsync};
  if (preload) before.push_back("--preload");
  before.push_back("--");
  words->insert(words->begin(), before.begin(), before.end());
  return {};
}

// The servers are ranks of the job that this one is a rank of: of one launch, by hand, or of a `swale run`
// around this one.
int RunCommand::run_on_servers(std::vector<std::string> words) const {
  net::LaunchEnvironment launch;
  if (const Status placed = place(&launch, 0); !placed.ok()) return fail(placed);
  if (launch.size == 1) {
    complain(
        "run --backing {}: this process is alone in its job: give it the servers' SWALE_JOB_ID, "
        "SWALE_JOB_SIZE and a SWALE_JOB_RANK, or --ssd to start servers",
        kOnServers);
    return kExitUsage;
  }
  IondMountChoices mount;
  if (const Status made = stand_on_servers(&words, &mount.mountpoint); !made.ok()) return fail(made);
  mount.options = iond.tier.options;
  mount.joins = true;
  return run_on_iond_mount(mount, words);
}

int RunCommand::run() {
  std::vector<std::string> words = program_words(program);
  if (iond.tier.backing.empty()) return run_without_backing(words);
  const bool on_servers = iond.tier.backing.starts_with(kOnServers);
  if (on_servers) {
    if (const Status fit = check_servers_tree(); !fit.ok()) return fail(fit);
    if (joins_servers()) return run_on_servers(std::move(words));
    iond.tier.backing.erase(0, kOnServers.size());
  } else if (iond.tier.ssd.empty()) {
    return run_in_tree(words);
  } else if (preload || no_mount) {
    complain(
        "run --preload, --no-mount: belong to a tree: --backing DIR without --ssd, or --backing iond:DIR");
    return kExitUsage;
  }
  if (const Status user = iond::expect_ordinary_user(); !user.ok()) return fail(user);
  net::LaunchEnvironment launch;
  if (const Status placed = place(&launch, servers); !placed.ok()) return fail(placed);
  if (on_servers) {
    std::string files;
    if (const Status made = stand_on_servers(&words, &files); !made.ok()) return fail(made);
    std::vector<std::string> mount = {own_program(), "iond", "mount", files};
    if (!iond.tier.options.empty()) mount.insert(mount.end(), {"--options", iond.tier.options});
    mount.push_back("--");
    words.insert(words.begin(), mount.begin(), mount.end());
  }
  const std::vector<uint32_t> mine = servers_beside(launch);
  if (mine.empty()) return become(words);
  sigset_t awaited, usual;
  ::sigemptyset(&awaited);
  ::sigaddset(&awaited, SIGCHLD);
  for (const int signal : kForwarded) ::sigaddset(&awaited, signal);
  ::sigprocmask(SIG_BLOCK, &awaited, &usual);
  std::vector<Server> started;
  for (const uint32_t number : mine) {
    Server server;
    server.number = number;
    const Status ready = start_server(launch, usual, &server);
    if (!ready.ok()) {
      for (const Server& each : started) ::kill(each.process, SIGTERM);
      return fail(ready);
    }
    started.push_back(std::move(server));
  }
  const pid_t process = start_program(usual, words);
  if (process < 0) {
    const Status why = errno_status(errno, program + ": starting it");
    for (const Server& each : started) ::kill(each.process, SIGTERM);
    return fail(why);
  }
  for (const Server& each : started) ::fcntl(each.joined.get(), F_SETFL, O_NONBLOCK);
  Family family(process, std::move(started));
  const int program_exit = family.wait_for_program(awaited);
  family.end_those_that_wait();
  // The launcher ends the other ranks when it hears of the failure. The servers see that, and end; nobody
  // waits for them here.
  if (program_exit != 0 && launch.size > 1) return program_exit;
  const int server_exit = family.wait_for_servers(awaited);
  return program_exit != 0 ? program_exit : server_exit;
}

}  // namespace

void add_run(CLI::App& app, Run* run) {
  auto command = std::make_shared<RunCommand>();
  OptionSet sub = add_command(
      app, "run", "starts a program in the tree of a job, or with I/O servers beside it",
      {
          .description =
              "With --backing DIR and no --ssd: mounts the tree of a job over DIR while the program "
              "runs (swale serve has its promises), and brings all to DIR at the end, before it ends "
              "with the program's exit status; if that is 0, with the server's. The program may be a "
              "launcher with all its processes on this node. On several nodes put it between the launcher "
              "and the program (`mpirun -n 64 swale run --backing DIR -- program`): the first rank of each "
              "node starts its server, the programs start when all mounts are there, and each rank ends "
              "when all nodes have brought all to DIR. A server that is killed is started again, with "
              "those of all nodes: what was open fails, what was written is there.\n\n"
              "With --preload and without --backing: starts a program in trees that are mounted already "
              "(swale start, swale serve), which outlive it: `srun swale run --preload -- program`.\n\n"
              "With --ssd: I/O servers. Put it between the launcher and the program: `mpirun -n 4 "
              "swale run --ssd ... --backing ... -- program`. Each rank of the launch becomes the "
              "program, and beside some of them an I/O server is started (swale iond), as a process of "
              "its own. The launcher does not count the servers, so MPI neither sees them nor waits "
              "for them; the program may be one of MPI, or not. It opens the job with swale_job_open "
              "without a communicator: that has one rank for each process of the program, with the "
              "launcher's numbers, and then one for each server.\n\n"
              "Server i of n stands beside rank i * ranks / n. Launchers fill one node after the "
              "other; so as many servers as nodes are one on each. In the names of directories %s "
              "stands for the server's number, and %r for its rank. On several nodes "
              "SWALE_JOB_RENDEZVOUS must name a directory that all of them see.\n\n"
              "With --ssd and --backing iond:DIR: a tree whose backing the I/O servers are, each with its "
              "DIR. It is mounted at --at on each node, and brings all to the servers at the end; until "
              "then it is in --buffer, beside which the servers' files are mounted, at BUFFER.iond. If a "
              "server is killed, the end fails, and the next run with the same directories brings what "
              "was left. With --backing iond: alone, and no --ssd, it joins servers that are ranks of the "
              "same job: of the launch, by hand (SWALE_JOB_RANK), or of a swale run around it.\n\n"
              "It ends when the program has ended and the servers have, with the program's exit "
              "status; if that is 0, with a server's. If a program of several fails, it ends at once, "
              "so that the launcher hears of it; the servers end when they have seen that all ranks "
              "have. Signals go to the program.",
          .examples = {{"mkdir -p slow && swale run --ssd ssd --backing slow --size 16M -- echo done",
                        "starts a server and the program, and says that it has not used the server"}},
      });
  command->iond.add_to(sub, TierChoices::Folders::kOptional);
  command->tree.add_to(sub);
  sub.add_option("--servers", command->servers, "how many I/O servers all of the job has; by default 1")
      .between(1u, kServersMax)
      .type_name("N");
  sub.add_flag(
         "--fallback", command->fallback,
         "where the tree cannot be mounted: run the program all the same, on the directory itself, and say "
         "so; not where a job has not brought all to it (swale fs recover), nor with --at, where the "
         "program's paths lead")
      .excludes("--ssd")
      .excludes("--at");
  sub.add_flag("--no-mount", command->no_mount,
               "where nothing can be mounted: the program, and what it starts, come to the tree by "
               "libswale_preload.so alone, which must get into each of them (swale check); others read and "
               "write DIR itself; on several nodes what one has closed or synced is seen by opens of others. "
               "In a tree of swale start --no-mount, which outlives the program, also without --backing")
      .excludes("--ssd")
      .excludes("--at")
      .excludes("--fallback");
  sub.add_flag(
      "--preload", command->preload,
      "in a tree: the program writes past the kernel, by libswale_preload.so in LD_PRELOAD (swale "
      "check says what it does for a program); in the environment, SWALE_FS_DESCRIPTORS=light has it "
      "make files past the kernel, too, SWALE_FS_MASSIVE=GLOB takes empty directories whose whole path it "
      "matches for massive ones, and SWALE_FS_MASSIVE_TRUNCATE=append lets names in these be opened with "
      "O_TRUNC (\"w\"), to append");
  sub.add_program("program", command->program, "what to start, with its arguments: after --");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
