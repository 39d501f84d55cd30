// NodeLogs: the server is killed between its stores to the memory that it shares with processes, at
// instructions that are spread over a round of it; the next one finds everything, and the process goes on.
#include <gtest/gtest.h>

#include "fs/log/testing/log_rig.h"
#include "fs/log/testing/stepped_child.h"

namespace swale::fs::log_server_steps_test {
namespace {

constexpr uint64_t kBytes = 20'000;
constexpr uint64_t kPoints = 25;

class LogServerStepsTest : public LogRig {
 protected:
  void write(uint64_t i) {
    const std::string bytes = pattern(i, kBytes);
    LogTrouble trouble;
    ASSERT_EQ(writer_.write(kFile, i * kBytes, bytes.data(), kBytes, &trouble), static_cast<int64_t>(kBytes))
        << trouble.text;
  }
  // Five writes, of which the server has handed out three, the whole first chunk. Then there is no server.
  void begin(uint64_t n) {
    logs_.reset();
    std::filesystem::remove_all(options_.memory_directory);
    options_.memory_directory = memory_.path() + "/node" + std::to_string(n);
    files_ = Files();
    open();
    attach(writer_, add());
    for (uint64_t i = 0; i < 3; ++i) write(i);
    take();
    serve();
    write(3);
    write(4);
    logs_.reset();
  }
  // A round of the child's server: takes two writes, drops the first chunk, uses its slot again.
  void round() {
    Files files;
    static_cast<void>(logs_->take(files));
    for (uint64_t i = 0; i < 3; ++i) static_cast<void>(logs_->drop(meta::Place(1, i * kBytes), kBytes));
    static_cast<void>(logs_->serve());
  }
  uint64_t instructions_of_a_round() {
    begin(0);
    SteppedChild child([this] { open(); }, [this] { round(); });
    uint64_t count = 0;
    while (child.run(1)) ++count;
    return count;
  }
  void expect_all(uint64_t point) {
    files_ = Files();
    open();
    ASSERT_TRUE(logs_->recover(files_).ok());
    take();
    serve();
    for (uint64_t i = 5; i < 12; ++i) write(i), take(), serve();
    std::map<uint64_t, int> found;
    for (const Segment& segment : files_.taken) {
      std::string bytes(segment.length, '\0');
      ASSERT_TRUE(logs_->read(segment.place, bytes).ok());
      ASSERT_EQ(bytes, pattern(segment.offset / kBytes, kBytes)) << "at point " << point;
      ++found[segment.offset / kBytes];
    }
    for (uint64_t i = 3; i < 12; ++i) ASSERT_EQ(found[i], 1) << "write " << i << " at point " << point;
    ASSERT_TRUE(files_.problems.empty()) << files_.problems[0].to_string();
  }

  LogWriter writer_;
};

TEST_F(LogServerStepsTest, AKilledServerLeavesEverything) {
  if (!SteppedChild::available()) GTEST_SKIP() << "this machine does not let a process trace its children";
  small_chunks(64 * 1024, 16);
  options_.spill_directory.clear();
  options_.memory_bytes = 64 << 20;
  const uint64_t instructions = instructions_of_a_round();
  const uint64_t stride = std::max<uint64_t>(1, instructions / kPoints);
  uint64_t points = 0;
  for (uint64_t at = 0; at < instructions; at += stride + points % 7, ++points) {
    begin(at + 1);
    {
      SteppedChild child([this] { open(); }, [this] { round(); });
      child.run(at);
    }
    expect_all(at);
    if (HasFatalFailure()) return;
  }
  std::printf("the server was killed at %lu of %lu instructions\n", points, instructions);
  EXPECT_GT(points, 20u);
}

}  // namespace
}  // namespace swale::fs::log_server_steps_test
