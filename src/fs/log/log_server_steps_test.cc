// NodeLogs: the server is killed between its stores to the memory that it shares with processes, at
// instructions that are spread over a round of it; the next one finds everything, and the process goes on.
#include <gtest/gtest.h>

#include <functional>

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

  // The child's server gets so far; then it gives the memory of a process that is over to the next one.
  void end_one() {
    open();
    files_ = Files();
    static_cast<void>(logs_->recover(files_));
    static_cast<void>(logs_->take(files_));
    static_cast<void>(logs_->serve());
    static_cast<void>(logs_->end_log(1, files_));
    files_.drop_all(*logs_);
  }
  void begin_anew() {
    static_cast<void>(logs_->serve());
    static_cast<void>(logs_->add_log());
  }
  struct Killed {
    std::function<void(uint64_t point)> begins;  // before the child is there
    std::function<void()> prepare, code;         // of the child, which is killed at points of `code`
    std::function<void(uint64_t point)> expects;
  };
  void kill_at_points(const Killed& killed) {
    uint64_t instructions = 0, points = 0;
    killed.begins(0);
    {
      SteppedChild child(killed.prepare, killed.code);
      while (child.run(1)) ++instructions;
    }
    const uint64_t stride = std::max<uint64_t>(1, instructions / kPoints);
    for (uint64_t at = 0; at < instructions; at += stride + points % 7, ++points) {
      killed.begins(at + 1);
      {
        SteppedChild child(killed.prepare, killed.code);
        child.run(at);
      }
      killed.expects(at);
      if (HasFatalFailure()) return;
    }
    std::printf("the server was killed at %lu of %lu instructions\n", points, instructions);
    EXPECT_GT(points, 20u);
  }

  LogWriter writer_;
};

TEST_F(LogServerStepsTest, AKilledServerLeavesEverything) {
  if (!SteppedChild::available()) GTEST_SKIP() << "this machine does not let a process trace its children";
  small_chunks(64 * 1024, 16);
  options_.spill_directory.clear();
  options_.memory_bytes = 64 << 20;
  kill_at_points({[this](uint64_t point) { begin(point); }, [this] { open(); }, [this] { round(); },
                  [this](uint64_t point) { expect_all(point); }});
}

// What was handed out is there until all of it is dropped; then there is an empty log, or none.
TEST_F(LogServerStepsTest, OneThatIsKilledWhileALogBeginsAnewLeavesNoDamage) {
  if (!SteppedChild::available()) GTEST_SKIP() << "this machine does not let a process trace its children";
  small_chunks(64 * 1024, 16);
  options_.spill_directory.clear();
  options_.memory_bytes = 64 << 20;
  std::map<uint32_t, int> logs_left;
  const auto begins = [this](uint64_t point) {
    begin(point);
    writer_.detach();
  };
  const auto expects = [&](uint64_t point) {
    files_ = Files();
    open();
    ASSERT_TRUE(logs_->recover(files_).ok());
    take();
    for (const Segment& segment : files_.taken) {
      std::string bytes(segment.length, '\0');
      ASSERT_TRUE(logs_->read(segment.place, bytes).ok());
      ASSERT_EQ(bytes, pattern(segment.offset / kBytes, kBytes)) << "at point " << point;
    }
    ASSERT_TRUE(files_.problems.empty()) << files_.problems[0].to_string();
    ++logs_left[logs_->logs().empty() ? 0 : logs_->logs().front()];
    files_ = Files();
    attach(writer_, add());
    for (uint64_t i = 5; i < 12; ++i) write(i), take(), serve();
    ASSERT_EQ(files_.taken.size(), 7u) << "at point " << point;
    ASSERT_TRUE(files_.problems.empty()) << files_.problems[0].to_string();
  };
  kill_at_points({begins, [this] { end_one(); }, [this] { begin_anew(); }, expects});
  for (const auto& [log, times] : logs_left) std::printf("log %u was left %d times\n", log, times);
  EXPECT_GT(logs_left[1], 0);
  EXPECT_GT(logs_left[2], 0) << "no log began anew";
}

}  // namespace
}  // namespace swale::fs::log_server_steps_test
