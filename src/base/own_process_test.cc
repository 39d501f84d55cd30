#include "base/own_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace swale::own_process_test {
namespace {

// Runs `body` in a child; returns whether it returned true.
template <class Body>
bool in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int state = 0;
  return ::waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

TEST(OwnProcess, IsNotThatOfAChild) {
  const OwnProcess parent;
  EXPECT_TRUE(parent.is_this());
  EXPECT_TRUE(in_child([&] {
    const OwnProcess child;
    return !parent.is_this() && child.is_this() &&
           in_child([&] { return !parent.is_this() && !child.is_this() && OwnProcess().is_this(); });
  }));
  EXPECT_TRUE(parent.is_this()) << "the parent goes on";
}

}  // namespace
}  // namespace swale::own_process_test
