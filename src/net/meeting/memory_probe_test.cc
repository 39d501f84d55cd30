#include "net/meeting/memory_probe.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace swale::net::memory_probe_test {
namespace {

// What a child process says of the offer, after `prepare`: empty if it sees the memory; "skip" if `prepare`
// cannot.
template <class Prepare>
std::string look_in_child(const MemoryProbe::Offer& offer, const Prepare& prepare) {
  int ends[2];
  if (::pipe(ends) != 0) return "pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string said = prepare() ? std::string(look_for_memory(offer).message()) : std::string("skip");
    ::_exit(::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said;
  char bytes[512];
  for (ssize_t count; (count = ::read(ends[0], bytes, sizeof(bytes))) > 0;)
    said.append(bytes, static_cast<size_t>(count));
  ::close(ends[0]);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return said;
}

TEST(MemoryProbe, ProcessesThatShareMemorySeeItAndOthersSayWhyNot) {
  const MemoryProbe probe = MemoryProbe::make();
  ASSERT_NE(probe.offer().where, 0u) << "no /dev/shm here";
  EXPECT_TRUE(look_for_memory(probe.offer()).ok());
  EXPECT_EQ(look_in_child(probe.offer(), [] { return true; }), "");
  // As in a container: the same kernel, names or process numbers of its own.
  const std::string names = look_in_child(probe.offer(), [] { return ::unshare(CLONE_NEWIPC) == 0; });
  if (names == "skip") GTEST_SKIP() << "no namespaces here: needs root";
  EXPECT_THAT(names, testing::HasSubstr("System V names are not shared"));
}

TEST(MemoryProbe, LeavesNoNameAndNobodyElseMayOpenIt) {
  const MemoryProbe probe = MemoryProbe::make();
  struct stat found;
  const std::string path = fmt::format("/proc/self/fd/{}", probe.offer().where & 0xffffffff);
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0600u);
  EXPECT_EQ(found.st_nlink, 0u);
}

TEST(MemoryProbe, ANumberThatMeansSomethingElseHereIsNotBelieved) {
  MemoryProbe probe = MemoryProbe::make();
  MemoryProbe::Offer other = probe.offer();
  other.what ^= 1;
  EXPECT_THAT(std::string(look_for_memory(other).message()), testing::HasSubstr("another content"));
  // A FIFO would be waited for, a device might act when it is opened.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  other = probe.offer();
  other.where = (other.where >> 32 << 32) | static_cast<uint32_t>(ends[0]);
  EXPECT_THAT(std::string(look_for_memory(other).message()), testing::HasSubstr("something else"));
  ::close(ends[0]);
  ::close(ends[1]);
  other.where = (other.where >> 32 << 32) | 0x7ffffff0;
  EXPECT_FALSE(look_for_memory(other).ok());
  EXPECT_FALSE(look_for_memory({}).ok());
}

}  // namespace
}  // namespace swale::net::memory_probe_test
