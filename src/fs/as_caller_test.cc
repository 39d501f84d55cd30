#include "fs/as_caller.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

namespace swale::fs::as_caller_test {
namespace {

// The lines of a thread's status that say who it is.
std::string who_is(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/status");
  std::string text;
  for (std::string line; std::getline(file, line);)
    for (const char* name : {"Uid:", "Gid:", "Groups:", "CapEff:", "CapPrm:", "Umask:"})
      if (line.starts_with(name)) text += line + "\n";
  return text;
}
pid_t this_thread() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

// A process that waits to be killed, with its own user and groups.
pid_t sleeper(uid_t user, const std::vector<gid_t>& groups) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgroups(groups.size(), groups.data()) != 0 || ::setresgid(user, user, user) != 0 ||
        ::setresuid(user, user, user) != 0)
      ::_exit(1);
    static_cast<void>(::write(ends[1], "+", 1));
    for (;;) ::pause();
  }
  char there = 0;
  static_cast<void>(::read(ends[0], &there, 1));
  ::close(ends[0]);
  ::close(ends[1]);
  return child;
}
void end(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

class AsCallerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, which may act for others";
  }
};

TEST_F(AsCallerTest, AThreadIsItsCallerAndThenItselfAgain) {
  const auto own = Identity::of_this_process();
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  ASSERT_TRUE(own->switches());
  const pid_t child = sleeper(20001, {20100, 20101, 5});
  const std::string before = who_is(this_thread());
  std::string inside, beside;
  {
    const AsCaller as(*own, {.user = 20001, .group = 20001, .thread = child, .umask = 027});
    ASSERT_EQ(as.failed(), 0);
    inside = who_is(this_thread());
    std::thread([&] { beside = who_is(static_cast<pid_t>(::getpid())); }).join();
  }
  EXPECT_EQ(who_is(this_thread()), before);
  EXPECT_NE(inside.find("Uid:\t0\t0\t0\t20001"), std::string::npos) << inside;
  EXPECT_NE(inside.find("Gid:\t0\t0\t0\t20001"), std::string::npos) << inside;
  EXPECT_NE(inside.find("Groups:\t5 20100 20101"), std::string::npos) << inside;
  EXPECT_NE(inside.find("CapEff:\t0000000000000000"), std::string::npos) << inside;
  EXPECT_NE(inside.find("Umask:\t0027"), std::string::npos) << inside;
  end(child);
}

TEST_F(AsCallerTest, OtherThreadsStayWhatTheyAre) {
  const auto own = Identity::of_this_process();
  ASSERT_TRUE(own.ok());
  const std::string before = who_is(this_thread());
  std::string during;
  std::thread([&, me = this_thread()] {
    const AsCaller as(*own, {.user = 20001, .group = 20001, .umask = 077});
    EXPECT_EQ(as.failed(), 0);
    during = who_is(me);
  }).join();
  EXPECT_EQ(during, before);
}

TEST_F(AsCallerTest, RootKeepsItsCapabilitiesAndTakesTheGroup) {
  const auto own = Identity::of_this_process();
  ASSERT_TRUE(own.ok());
  const std::string before = who_is(this_thread());
  {
    const AsCaller as(*own, {.user = 0, .group = 20001, .umask = 0});
    ASSERT_EQ(as.failed(), 0);
    const std::string inside = who_is(this_thread());
    EXPECT_NE(inside.find("Gid:\t0\t0\t0\t20001"), std::string::npos) << inside;
    EXPECT_EQ(inside.substr(inside.find("CapPrm:")), before.substr(before.find("CapPrm:")));
  }
  EXPECT_EQ(who_is(this_thread()), before);
}

// A number that belongs to somebody else by now gives no groups.
TEST_F(AsCallerTest, GroupsAreThoseOfAThreadWithTheCallersIds) {
  const pid_t child = sleeper(20001, {20100});
  EXPECT_EQ(groups_of({.user = 20001, .group = 20001, .thread = child}), std::vector<gid_t>{20100});
  EXPECT_TRUE(groups_of({.user = 20002, .group = 20001, .thread = child}).empty());
  EXPECT_TRUE(groups_of({.user = 20001, .group = 20002, .thread = child}).empty());
  EXPECT_TRUE(groups_of({.user = 20001, .group = 20001, .thread = 0}).empty());
  end(child);
  EXPECT_TRUE(groups_of({.user = 20001, .group = 20001, .thread = child}).empty());
}

TEST_F(AsCallerTest, ManyGroupsAreAllRead) {
  std::vector<gid_t> many(5'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<gid_t>(1'000'000'000 + i);
  const pid_t child = sleeper(20001, many);
  EXPECT_EQ(groups_of({.user = 20001, .group = 20001, .thread = child}), many);
  end(child);
}

// The thread cannot become root again if a capability that it had is gone: no request may follow.
TEST_F(AsCallerTest, AProcessWhoseThreadCannotComeBackEnds) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        const auto own = Identity::of_this_process();
        const AsCaller as(*own, {.user = 20001, .group = 20001});
        static_cast<void>(give_up_capability(CAP_SETGID));
      },
      "cannot become this process again");
}

}  // namespace
}  // namespace swale::fs::as_caller_test
