// run_on_nodes: one rank of a launch, whose ranks share a tree on all of their nodes.
//
//   all ranks meet in the backing ─► the first of each node starts its keeper ─► all mounts are there, or all
//   ranks fail ─► each runs its program ─► and waits for the end of its node's server
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "fs/log/unmounted_format.h"
#include "fuse/job_folders.h"
#include "fuse/node_meeting.h"
#include "net/job/agree.h"
#include "tools/child.h"
#include "tools/node_keeper.h"
#include "tools/options.h"
#include "tools/tree.h"

namespace swale::tools {
namespace {

// The servers meet while the ranks wait for them, and are to say first who is missing.
constexpr Nanos kServersPart = 2;

class RankOnNode {
 public:
  RankOnNode(const fuse::JobMountOptions& options, const std::vector<std::string>& words,
             const Fallback& fallback)
      : options_(options), words_(words), fallback_(fallback) {
    ::sigemptyset(&awaited_);
    ::sigaddset(&awaited_, SIGCHLD);
    for (const int signal : kForwarded) ::sigaddset(&awaited_, signal);
  }

  int run() {
    if (const Status begun = begin(); !begun.ok()) {
      const int failed = fail(begun);
      if (failed_) end_failed_start();
      return run_without_tree(fallback_, failed, words_);
    }
    ::sigprocmask(SIG_BLOCK, &awaited_, &usual_);
    const auto connection = connect_to_keeper(folder_);
    if (!connection.ok()) return fail(connection.status());
    if (const Status started = start_program(); !started.ok()) return fail(started);
    const int program_exit = wait_for_program();
    // The launcher ends the other ranks when it hears of the failure; the keeper lives on for them.
    if (program_exit != 0) return program_exit;
    return end_at_keeper(*connection);
  }

 private:
  Status begin();
  fuse::JobMountOptions of_server(const net::NodeMap& nodes, const char* word) const;
  Status start_keeper_of(const net::NodeMap& nodes);
  void note_failed_start(const fuse::JobFolders& folders, net::Bootstrap& bootstrap,
                         const net::NodeMap& nodes);
  void end_failed_start();
  Status start_program();
  int wait_for_program();

  const fuse::JobMountOptions options_;
  fuse::JobMountOptions server_;  // of this node
  const std::vector<std::string>& words_;
  const Fallback& fallback_;
  std::string folder_;  // of the keeper's socket
  sigset_t awaited_ = {}, usual_ = {};
  std::optional<fuse::JobMountOptions> failed_;  // of this node's server, to end a start that failed
  pid_t keeper_ = -1;
  pid_t program_ = -1;
};

Status RankOnNode::begin() {
  SWALE_ASSIGN_OR_RETURN(const fuse::JobFolders folders, fuse::find_job_folders(options_));
  folder_ = folders.memory;
  fuse::JobMountOptions::Nodes all = *options_.nodes;
  all.meeting += ".run";
  SWALE_ASSIGN_OR_RETURN(const fuse::Meeting meeting, fuse::meet_in_backing(folders, all));
  net::Bootstrap& bootstrap = *meeting.bootstrap;
  SWALE_ASSIGN_OR_RETURN(const net::NodeMap nodes, fuse::find_nodes(bootstrap, all.settings.job.node));
  SWALE_RETURN_IF_ERROR(net::agree_on_options(bootstrap, fuse::options_in_common(options_)));
  server_ = of_server(nodes, ".servers");
  const Status own = nodes.seat(all.own).local == 0 ? start_keeper_of(nodes) : Status();
  const Status mounted = net::agree(bootstrap, own);
  if (!mounted.ok() && keeper_ > 0) {
    ::kill(keeper_, SIGTERM);
    ::waitpid(keeper_, nullptr, 0);
  }
  if (!mounted.ok() && mounted.code() != Code::kDeadlineExceeded)
    note_failed_start(folders, bootstrap, nodes);
  return mounted;
}

// `word`: by which the servers meet.
fuse::JobMountOptions RankOnNode::of_server(const net::NodeMap& nodes, const char* word) const {
  fuse::JobMountOptions server = options_;
  server.nodes->own = nodes.seat(options_.nodes->own).node;
  server.nodes->count = nodes.nodes();
  server.nodes->meeting += word;
  server.nodes->settings.join_deadline /= kServersPart;
  if (nodes.nodes() == 1) server.nodes.reset();
  return server;
}

// The servers of several nodes, of which one could not mount, leave a job, into which nobody has written;
// that of one node ends it by itself. Returns when no mount is over the directory: programs may fall back on
// it.
void RankOnNode::note_failed_start(const fuse::JobFolders& folders, net::Bootstrap& bootstrap,
                                   const net::NodeMap& nodes) {
  const std::string document = folders.buffer + "/" + fuse::kServeDocument;
  const bool leads = nodes.seat(options_.nodes->own).local == 0;
  Status own = fallback_.expect_none_before();
  if (own.ok() && leads && ::access(document.c_str(), F_OK) != 0) own = errno_status(errno, document);
  const Status all = net::agree(bootstrap, own);
  if (!all.ok() || !leads || nodes.nodes() == 1) return;
  failed_ = of_server(nodes, ".failed");
  failed_->mounts = false;
}

// As `swale fs recover` does. The ranks' own meeting is over, whose folder this removes.
void RankOnNode::end_failed_start() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Status ended = fuse::run_job_mount(*failed_);
    ::_exit(ended.ok() ? kExitOk : fail(ended));
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
}

Status RankOnNode::start_keeper_of(const net::NodeMap& nodes) {
  const net::Seat seat = nodes.seat(options_.nodes->own);
  NodeKeeperOptions keeper;
  keeper.mount = server_;
  keeper.folder = folder_;
  keeper.programs = static_cast<size_t>(nodes.ranks_on(seat.node));
  keeper.patience = options_.nodes->settings.join_deadline;
  sigset_t usual;
  ::sigprocmask(SIG_SETMASK, nullptr, &usual);
  SWALE_ASSIGN_OR_RETURN(keeper_, start_keeper(keeper, usual));
  return {};
}

Status RankOnNode::start_program() {
  if (options_.unmounted) {
    SWALE_ASSIGN_OR_RETURN(const std::string place, fuse::place_of_unmounted(server_));
    ::setenv(fs::kUnmountedVariable, place.c_str(), 1);
  }
  const pid_t parent = ::getpid();
  program_ = start_beside(words_, usual_, [parent] {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a launcher that kills this process means the program
    if (::getppid() != parent) ::_exit(kExitSignal + SIGKILL);
  });
  return program_ < 0 ? errno_status(errno, words_.front() + ": starting it") : Status();
}

int RankOnNode::wait_for_program() {
  for (;;) {
    const int signal = ::sigwaitinfo(&awaited_, nullptr);
    if (signal < 0) continue;
    if (signal != SIGCHLD) {
      ::kill(program_, signal);
      continue;
    }
    int state = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &state, WNOHANG)) > 0;) {
      if (ended == program_) return exit_code_of(state);
      if (ended == keeper_) complain("the keeper of this node's tree has ended: its mount may be gone");
    }
  }
}

}  // namespace

int run_on_nodes(const fuse::JobMountOptions& options, const std::vector<std::string>& program,
                 const Fallback& fallback) {
  return RankOnNode(options, program, fallback).run();
}

}  // namespace swale::tools
