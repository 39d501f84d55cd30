#include "base/process_identity.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>

namespace swale::process_identity_test {
namespace {

std::string start_time_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string word;
  for (int field = 0; field < 22; ++field) file >> word;
  return word;
}

TEST(ProcessIdentity, NamesThisProcess) {
  const ProcessIdentity self = this_process();
  EXPECT_EQ(self.host, host_name());
  EXPECT_EQ(self.pid, getpid());
  EXPECT_EQ(self.start_time, start_time_of(getpid()));
  EXPECT_EQ(look_for(self).state, ProcessState::kRunning);
}

TEST(ProcessIdentity, SeesAChildRunStopAndEnd) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (;;) pause();
  }
  ProcessIdentity other = this_process();
  other.pid = child;
  other.start_time = start_time_of(child);
  EXPECT_EQ(look_for(other).state, ProcessState::kRunning);
  kill(child, SIGSTOP);
  ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child);
  EXPECT_EQ(look_for(other).state, ProcessState::kStopped);
  kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(look_for(other).state, ProcessState::kGone) << "ended, though nobody has asked for its status";
  waitpid(child, nullptr, 0);
  EXPECT_EQ(look_for(other).state, ProcessState::kGone);
}

TEST(ProcessIdentity, DoesNotJudgeWhatItCannotAsk) {
  ProcessIdentity other = this_process();
  other.boot = "another machine";
  other.host = "elsewhere";
  EXPECT_EQ(look_for(other).state, ProcessState::kUnknown);
  other = this_process();
  other.pid_namespace = "pid:[1]";
  EXPECT_EQ(look_for(other).state, ProcessState::kUnknown);
  other = this_process();
  other.start_time = "1";
  EXPECT_EQ(look_for(other).why, "the process is gone, another has its number");
}

TEST(ProcessIdentity, KnowsTheSchedulersAllocation) {
  std::map<std::string, std::string> variables;
  const auto allocation = [&] {
    return scheduler_allocation([&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(allocation(), "");
  variables = {{"SLURM_JOB_ID", "70123"}};
  EXPECT_EQ(allocation(), "slurm-70123");
  variables = {{"PBS_JOBID", "17.server"}};
  EXPECT_EQ(allocation(), "pbs-17.server");
  variables = {{"LSB_JOBID", ""}};
  EXPECT_EQ(allocation(), "");
}

}  // namespace
}  // namespace swale::process_identity_test
