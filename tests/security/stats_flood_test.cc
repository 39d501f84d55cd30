// The socket by which an I/O server tells how it stands, under attack by processes of its own user (nobody
// else gets into its folder): 10,000 connections that end at once, say half a word, random bytes, or nothing
// and stay; and no descriptor left for the next one. Whoever asks honestly is answered during and after that;
// then the server's thread sleeps, and no descriptor is gone.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "iond/stats_socket.h"

namespace swale::iond::stats_flood_test {
namespace {

constexpr Nanos kPatience = seconds(60);
constexpr int kAttackers = 4;
constexpr int kConnections = 2'500;  // of each
constexpr int kHeld = 200;           // of each, open at a time
constexpr uid_t kNeighbour = 65532;

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Of all threads of this process, while this one sleeps for half a second.
Nanos cpu_of_half_a_second() {
  const auto used = [] {
    timespec now = {};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return Nanos{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  };
  const Nanos before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  return used() - before;
}

// The threads come to rest: they use less than this in some half a second of the next minute. In the first
// one a busy machine may still have them end what was asked.
bool comes_to_rest(Nanos below) {
  for (int i = 0; i < 120; ++i)
    if (cpu_of_half_a_second() < below) return true;
  return false;
}

class StatsFloodTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::current_path() / "flood-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    auto opened = StatsSocket::open(folder_, [] { return std::string("how it stands"); });
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    socket_ = std::move(*opened);
  }
  void TearDown() override {
    socket_.reset();
    std::filesystem::remove_all(folder_);
  }

  // A connection; -1: refused, or no place now.
  static int connected(int folder) {
    const int made = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    ::snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", folder, kStatsSocket);
    if (made >= 0 && ::connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
      return made;
    if (made >= 0) ::close(made);
    return -1;
  }

  // In a process of its own: how many connections it could make, as exit status 0 (all) or 1.
  pid_t attacker(uint64_t seed) const {
    const pid_t process = ::fork();
    if (process != 0) return process;
    const int folder = ::open(folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    Rng rng(seed);
    char bytes[4096];
    for (char& byte : bytes) byte = static_cast<char>(rng.next());
    int held[kHeld];
    for (int& each : held) each = -1;
    int made = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (made < kConnections && std::chrono::steady_clock::now() < end) {
      const int one = connected(folder);
      if (one < 0) {
        ::usleep(200);  // as many wait as may
        continue;
      }
      const uint64_t how = rng.below(4);
      if (how == 1) static_cast<void>(::send(one, "sta", 3, MSG_NOSIGNAL));
      if (how == 2) static_cast<void>(::send(one, bytes, sizeof(bytes), MSG_NOSIGNAL));
      if (how == 3) ::shutdown(one, SHUT_WR);
      int& place = held[made++ % kHeld];
      if (place >= 0) ::close(place);
      place = one;
      if (how == 0) {
        ::close(one);
        place = -1;
      }
    }
    ::_exit(made == kConnections ? 0 : 1);
  }

  static bool ended_well(pid_t process) {
    int state = 0;
    return ::waitpid(process, &state, 0) == process && WIFEXITED(state) && WEXITSTATUS(state) == 0;
  }

  std::string folder_;
  std::unique_ptr<StatsSocket> socket_;
};

TEST_F(StatsFloodTest, TenThousandConnectionsHinderNobodyAndLeaveNothing) {
  const size_t before = open_descriptors();
  std::vector<pid_t> attackers;
  for (int i = 0; i < kAttackers; ++i) attackers.push_back(attacker(static_cast<uint64_t>(i) + 1));
  for (int i = 0; i < 20; ++i) {
    const auto text = ask_stats_socket(folder_, kPatience);
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    EXPECT_EQ(*text, "how it stands");
  }
  for (const pid_t each : attackers) EXPECT_TRUE(ended_well(each));
  EXPECT_EQ(*ask_stats_socket(folder_, kPatience), "how it stands");
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(comes_to_rest(milliseconds(50)));
}

TEST_F(StatsFloodTest, WithoutADescriptorItWaitsAsleepAndAnswersWhenThereIsOne) {
  const size_t before = open_descriptors();
  std::vector<int> taken;
  rlimit usual = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  // All below the limit are taken, so that the server gets none.
  const rlimit few = {64, usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  for (int one; (one = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken.push_back(one);
  EXPECT_EQ(errno, EMFILE);
  const pid_t honest = ::fork();
  if (honest == 0) {  // whose own descriptors are enough
    ::setrlimit(RLIMIT_NOFILE, &usual);
    const auto text = ask_stats_socket(folder_, kPatience);
    ::_exit(text.ok() && *text == "how it stands" ? 0 : 1);
  }
  EXPECT_TRUE(comes_to_rest(milliseconds(100)));  // it tries again ten times a second
  int state = 0;
  EXPECT_EQ(::waitpid(honest, &state, WNOHANG), 0) << "it was answered without a descriptor";
  for (const int one : taken) ::close(one);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_TRUE(ended_well(honest));
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(StatsFloodTest, AnotherUserDoesNotGetIn) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be two users";
  const pid_t neighbour = ::fork();
  if (neighbour == 0) {
    const int folder = ::open(folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    const bool dropped = ::setgid(kNeighbour) == 0 && ::setuid(kNeighbour) == 0;
    const int one = connected(folder);
    ::_exit(dropped && one < 0 && errno != EAGAIN ? 0 : 1);
  }
  EXPECT_TRUE(ended_well(neighbour));
}

}  // namespace
}  // namespace swale::iond::stats_flood_test
