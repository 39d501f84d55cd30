#include "iond/stats_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>
#include <vector>

#include "io/unix_address.h"

namespace swale::iond::stats_socket_test {
namespace {

constexpr Nanos kPatience = seconds(20);

class StatsSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Longer than the address of a socket may be.
    root_ = (std::filesystem::current_path() / "stats-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
    folder_ = root_ + "/" + std::string(150, 'd');
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::unique_ptr<StatsSocket> open(StatsSocket::Text text) {
    auto made = StatsSocket::open(folder_, std::move(text));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }

  std::string root_;
  std::string folder_;
};

TEST_F(StatsSocketTest, EachThatAsksGetsTheTextOfTheMoment) {
  std::atomic<int> calls = 0;
  const auto socket = open([&] { return "text " + std::to_string(++calls); });
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(*ask_stats_socket(folder_, kPatience), "text " + std::to_string(i));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([this] {
      for (int j = 0; j < 20; ++j) EXPECT_TRUE(ask_stats_socket(folder_, kPatience).ok());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls, 3 + 8 * 20);
}

TEST_F(StatsSocketTest, WhoeverConnectsAndSaysOrReadsNothingHoldsNobodyUp) {
  const auto socket = open([] { return std::string(10'000, 'x'); });
  const std::string path = folder_ + "/" + kStatsSocket;
  std::vector<io::Descriptor> idle;
  const io::Descriptor folder(::open(folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 50; ++i) {
    idle.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = io::unix_address(folder, kStatsSocket);
    ASSERT_EQ(::connect(idle.back().get(), io::general(address), sizeof(address)), 0);
  }
  EXPECT_EQ(ask_stats_socket(folder_, kPatience)->size(), 10'000u);
}

TEST_F(StatsSocketTest, WithoutAProcessTheReasonIsTold) {
  EXPECT_EQ(ask_stats_socket(folder_, kPatience).status().code(), Code::kNotFound);
  EXPECT_EQ(ask_stats_socket(folder_ + "/none", kPatience).status().code(), Code::kNotFound);
  // As a killed process leaves it.
  const auto left = folder_ + "/" + kStatsSocket;
  {
    const auto socket = open([] { return std::string("old"); });
    std::filesystem::rename(left, root_ + "/kept");
  }
  EXPECT_FALSE(std::filesystem::exists(left));
  std::filesystem::rename(root_ + "/kept", left);
  const Status refused = ask_stats_socket(folder_, kPatience).status();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_NE(refused.message().find("was killed"), std::string::npos) << refused.message();
  {
    const auto socket = open([] { return std::string("new"); });
    EXPECT_EQ(*ask_stats_socket(folder_, kPatience), "new");
  }
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(StatsSocketTest, ATextThatThrowsIsNoAnswerAndTheNextOneIs) {
  bool bad = true;
  const auto socket = open([&]() -> std::string {
    if (std::exchange(bad, false)) throw std::runtime_error("no");
    return "good";
  });
  EXPECT_EQ(*ask_stats_socket(folder_, kPatience), "");
  EXPECT_EQ(*ask_stats_socket(folder_, kPatience), "good");
}

}  // namespace
}  // namespace swale::iond::stats_socket_test
