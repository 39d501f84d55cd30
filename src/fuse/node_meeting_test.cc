// How the processes of a tree of several nodes meet.
#include "fuse/node_meeting.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "net/job/agree.h"
#include "net/meeting/rendezvous.h"

namespace swale::fuse::node_meeting_test {
namespace {

using testing::HasSubstr;

constexpr int32_t kRanks = 3;

void on_all(const std::function<void(net::Rank)>& act) {
  std::vector<std::thread> threads;
  for (net::Rank rank = 0; rank < kRanks; ++rank) threads.emplace_back([&, rank] { act(rank); });
  for (std::thread& thread : threads) thread.join();
}

TEST(NodeMeeting, EachRankLearnsWhichShareItsNode) {
  const auto group = std::make_shared<net::LocalGroup>(kRanks);
  const char* const words[kRanks] = {"one", "other", "one"};
  on_all([&](net::Rank rank) {
    const auto bootstrap = net::local_bootstrap(group, rank);
    const auto nodes = find_nodes(*bootstrap, words[rank]);
    ASSERT_TRUE(nodes.ok()) << nodes.status().to_string();
    EXPECT_EQ(nodes->nodes(), 2);
    EXPECT_EQ(nodes->seat(0).node, 0);
    EXPECT_EQ(nodes->seat(1).node, 1);
    EXPECT_EQ(nodes->seat(2).node, 0);
    EXPECT_EQ(nodes->seat(2).local, 1);
    EXPECT_EQ(nodes->ranks_on(0), 2);
  });
}

TEST(NodeMeeting, ANodeIsOfOneNamespaceOfMounts) {
  net::JobSettings settings;
  const std::string here = node_word(settings);
  EXPECT_EQ(node_word(settings), here);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool apart = ::unshare(::geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) == 0;
    const std::string word = apart ? node_word(settings) : "";
    ::_exit(::write(ends[1], word.data(), word.size()) < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  char there[256];
  const ssize_t bytes = ::read(ends[0], there, sizeof(there));
  ::close(ends[0]);
  int state = 0;
  ::waitpid(child, &state, 0);
  settings.job.node = "given";
  EXPECT_EQ(node_word(settings), "given");
  ASSERT_EQ(state, 0);
  if (bytes == 0) GTEST_SKIP() << "one machine: no namespaces of hosts here: one of mounts is refused";
  EXPECT_NE(std::string(there, static_cast<size_t>(bytes)), here);
}

TEST(NodeMeeting, RanksWithOtherOptionsAreToldBothValues) {
  const auto group = std::make_shared<net::LocalGroup>(kRanks);
  on_all([&](net::Rank rank) {
    const auto bootstrap = net::local_bootstrap(group, rank);
    JobMountOptions options;
    EXPECT_TRUE(net::agree_on_options(*bootstrap, options_in_common(options)).ok());
    if (rank == 2) options.fsync = JobMountOptions::Fsync::kBacking;
    const Status differ = net::agree_on_options(*bootstrap, options_in_common(options));
    EXPECT_EQ(differ.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(differ.message()),
                HasSubstr("rank 0 opened with --fsync=\"node\", rank 2 with --fsync=\"backing\""));
  });
}

// Another user may own, and write to, a folder above the backing: no path leads to where ranks meet.
TEST(NodeMeeting, RanksMeetInABackingBelowAFolderThatOthersMayWriteTo) {
  std::string root = (std::filesystem::temp_directory_path() / "swale-meeting-XXXXXX").string();
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  const std::string above = root + "/above", backing = above + "/backing";
  std::filesystem::create_directories(backing);
  ASSERT_EQ(::chmod(above.c_str(), 0777), 0);
  on_all([&](net::Rank rank) {
    JobFolders folders;
    folders.backing = backing;
    folders.root = io::Descriptor(::open(backing.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    JobMountOptions::Nodes nodes;
    nodes.own = rank;
    nodes.count = kRanks;
    nodes.meeting = "test";
    const auto meeting = meet_in_backing(folders, nodes);
    ASSERT_TRUE(meeting.ok()) << meeting.status().to_string();
    EXPECT_TRUE(net::agree(*meeting->bootstrap, {}).ok());
    const Status failed = net::agree(
        *meeting->bootstrap, rank == 1 ? Status(Code::kBusy, Scope::kNode, "what rank 1 says") : Status());
    EXPECT_THAT(std::string(failed.message()), HasSubstr("rank 1: what rank 1 says"));
  });
  net::RendezvousOptions by_path;  // the canary
  by_path.directory = backing + "/.swale/meeting";
  by_path.job_id = by_path.node_id = "test";
  const auto refused = net::rendezvous_bootstrap(by_path);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("others may write into it"));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace swale::fuse::node_meeting_test
