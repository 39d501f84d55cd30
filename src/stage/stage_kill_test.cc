// A stage is killed at each call on the destination, and in the middle of a write at any byte; the same
// command then ends the work. Each run is a process of its own: this one starts no thread before it forks.
#include <signal.h>
#include <sys/wait.h>

#include <set>

#include "stage/testing/stage_rig.h"

namespace swale::stage::stage_kill_test {
namespace {

class StageKillTest : public StageRig {
 protected:
  static constexpr char kOld[] = "old";
  static constexpr int kStoppedExit = 9;

  void fresh() {
    std::filesystem::remove_all(to());
    for (const char* const left : {"/status", "/status.journal", "/status.lock"})
      std::filesystem::remove(root_ + left);
    std::filesystem::create_directories(to() + "/d");
    put(to() + "/a", kOld);
  }

  // The wait status of a process that stages.
  int run_child(const Prepare& prepare) {
    const pid_t child = ::fork();
    if (child == 0) {
      const StageReport report = run(options(), prepare);
      ::_exit(report.state == StageState::kDone ? 0 : kStoppedExit);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }
  static bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
  void expect_the_next_run_ends_it() {
    const int status = run_child({});
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    expect_staged();
  }
};

TEST_F(StageKillTest, KilledAtEachCall) {
  make_small_tree();
  std::set<io::CallKind> kinds;
  uint64_t nth = 1;
  for (;; ++nth) {
    fresh();
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const int status = run_child([&](io::FaultDevice& device) {
      device.set_hook([&device, nth, out = pipe_ends[1]](const io::Call& call) -> Status {
        if (device.calls() < nth) return {};
        const char kind = static_cast<char>(call.kind);
        static_cast<void>(!::write(out, &kind, 1));
        ::kill(::getpid(), SIGKILL);
        return {};
      });
    });
    ::close(pipe_ends[1]);
    char kind = 0;
    if (::read(pipe_ends[0], &kind, 1) == 1) kinds.insert(static_cast<io::CallKind>(kind));
    ::close(pipe_ends[0]);
    expect_old_or_new(kOld);
    if (!was_killed(status)) break;
    expect_the_next_run_ends_it();
    if (HasFailure()) return;
  }
  std::string names;
  for (const io::CallKind kind : kinds) names += " " + std::string(io::call_kind_name(kind));
  printf("points: killed at %llu calls:%s\n", static_cast<unsigned long long>(nth - 1), names.c_str());
  for (const io::CallKind kind : {io::CallKind::kOpen, io::CallKind::kWrite, io::CallKind::kSync,
                                  io::CallKind::kRead, io::CallKind::kRename, io::CallKind::kSyncDirectory})
    EXPECT_TRUE(kinds.contains(kind)) << io::call_kind_name(kind);
}

TEST_F(StageKillTest, CutOffAtAnyByteOfAWrite) {
  make_small_tree();
  struct Cut {
    const char* part;
    uint64_t nth, bytes;
  };
  std::vector<Cut> cuts;
  for (uint64_t bytes = 0; bytes < 97; ++bytes) cuts.push_back({"d/.b.swale-part", 1, bytes});
  for (const uint64_t bytes : {1u, 511u, 512u, 4095u, 4096u, 4097u, 16'383u})
    for (const uint64_t nth : {1u, 2u, 4u, 5u, 9u}) cuts.push_back({"d/.large.swale-part", nth, bytes});
  uint64_t killed = 0;
  for (const Cut& cut : cuts) {
    fresh();
    const int status = run_child([&](io::FaultDevice& device) {
      device.inject({.action = io::FaultAction::kTear,
                     .kind = io::CallKind::kWrite,
                     .path_part = cut.part,
                     .nth = cut.nth,
                     .position = cut.bytes});
      device.set_hook([&device](const io::Call&) -> Status {
        if (device.faults() > 0) ::kill(::getpid(), SIGKILL);
        return {};
      });
    });
    killed += was_killed(status) ? 1 : 0;
    expect_old_or_new(kOld);
    expect_the_next_run_ends_it();
    if (HasFailure()) return;
  }
  EXPECT_EQ(killed, cuts.size());
  printf("points: %zu cuts\n", cuts.size());
}

}  // namespace
}  // namespace swale::stage::stage_kill_test
