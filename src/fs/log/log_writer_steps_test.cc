// LogWriter: killed, or interrupted by a signal handler that writes, at every instruction of a write.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <functional>

#include "fs/log/log_writer.h"
#include "fs/log/testing/log_rig.h"
#include "fs/log/testing/stepped_child.h"

namespace swale::fs::log_writer_steps_test {
namespace {

constexpr meta::FileId kOther{7, 2};
constexpr size_t kBytes = 200;

LogWriter writer;  // of the child; handlers see it
const std::string kStepped = pattern(1, kBytes);
const std::string kNested = pattern(2, kBytes);

void write_stepped() { writer.write(kFile, 0, kStepped.data(), kBytes); }

// The steps of a write in a wrong order: the canary.
void publish_before_the_copy(char* slot, uint32_t chunk_bytes, uint32_t log) {
  auto& word = head_of(slot, chunk_bytes)->reserve;
  Reservation now = Reservation::of(word.load());
  const Reservation at = now;
  now.used += kBytes, now.entries += 1;
  word.store(now.packed());
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  const EntryCopy copy{
      kPublished | (static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec)),
      kFile,
      0,
      kBytes,
      at.used,
      0,
      0};
  LogEntry& entry = *entry_of(slot, chunk_bytes, at.entries);
  entry.file_high = copy.file.high, entry.file_low = copy.file.low, entry.offset = 0;
  entry.length = copy.length, entry.place = copy.place, entry.number = 0;
  entry.check = check_of(copy, log);
  entry.published.store(copy.published, std::memory_order_release);
  std::memcpy(slot + at.used, kStepped.data(), kBytes);
}

class LogWriterStepsTest : public LogRig {
 protected:
  void SetUp() override {
    if (!SteppedChild::available()) GTEST_SKIP() << "this machine does not let a process trace its children";
    small_chunks(4 * kChunkBytesMin, 4);
    options_.memory_bytes = uint64_t{64} << 20;
    options_.spill_directory.clear();
    open();
  }
  // A log whose process has written `filled` bytes, of which the server knows.
  uint32_t new_log(uint32_t filled) {
    const uint32_t log = add();
    LogWriter before;
    attach(before, log);
    const std::string bytes = pattern(0, filled);
    EXPECT_EQ(before.write({7, 3}, 0, bytes.data(), filled), filled);
    before.detach();
    take();
    serve();
    files_ = Files();
    return log;
  }
  std::function<void()> attaches(uint32_t log) {
    return [this, log] { writer.attach(options_.memory_directory.c_str(), log); };
  }
  // What the server finds of the stepped write when its process is gone.
  std::string left_of(uint32_t log, const meta::FileId& file) {
    EXPECT_TRUE(logs_->end_log(log, files_).ok());
    return files_.bytes(*logs_, file);
  }
  void clean_up() {
    EXPECT_TRUE(files_.problems.empty()) << files_.problems[0].to_string();
    files_.drop_all(*logs_);
    files_ = Files();
  }
  // Kills the process at every instruction of the write. Returns how many points left something that is
  // neither the write nor nothing.
  uint64_t kill_everywhere(uint32_t filled, const std::function<void(uint32_t log)>& code);
  void interrupt_everywhere(uint32_t filled);
};

uint64_t LogWriterStepsTest::kill_everywhere(uint32_t filled, const std::function<void(uint32_t)>& code) {
  uint64_t points = 0, nothing = 0, whole = 0, torn = 0;
  for (bool running = true; running; ++points) {
    const uint32_t log = new_log(filled);
    {
      SteppedChild child(attaches(log), [&] { code(log); });
      running = child.run(points);
    }
    const std::string left = left_of(log, kFile);
    if (left.empty()) {
      ++nothing;
      torn += !running;  // it had returned
    } else {
      ++(left == kStepped ? whole : torn);
    }
    clean_up();
  }
  std::printf("killed at %lu instructions: %lu left nothing, %lu the write, %lu were torn\n", points, nothing,
              whole, torn);
  EXPECT_GT(nothing, 10u);
  EXPECT_GT(whole, 5u);
  return torn;
}

void LogWriterStepsTest::interrupt_everywhere(uint32_t filled) {
  uint64_t points = 0;
  for (bool running = true; running; ++points) {
    const uint32_t log = new_log(filled);
    {
      const auto prepare = [&] {
        attaches(log)();
        ::signal(SIGUSR1, [](int) { writer.write(kOther, 0, kNested.data(), kBytes); });
      };
      SteppedChild child(prepare, write_stepped);
      running = child.run(points);
      if (running) {
        ASSERT_TRUE(child.interrupt(SIGUSR1)) << "at instruction " << points;
      }
    }
    ASSERT_TRUE(logs_->end_log(log, files_).ok());
    ASSERT_EQ(files_.bytes(*logs_), kStepped) << "at instruction " << points;
    if (running) {
      ASSERT_EQ(files_.bytes(*logs_, kOther), kNested) << "at instruction " << points;
    }
    clean_up();
  }
  std::printf("a handler wrote at %lu instructions of a write\n", points - 1);
  EXPECT_GT(points, 50u);
}

TEST_F(LogWriterStepsTest, AKillLeavesTheWholeWriteOrNothing) {
  EXPECT_EQ(kill_everywhere(100, [](uint32_t) { write_stepped(); }), 0u);
}

TEST_F(LogWriterStepsTest, AKillLeavesTheWholeWriteOrNothingWhileTheChunkChanges) {
  EXPECT_EQ(kill_everywhere(4 * kChunkBytesMin - 300, [](uint32_t) { write_stepped(); }), 0u);
}

TEST_F(LogWriterStepsTest, PublishingBeforeTheCopyWouldBeNoticed) {
  const uint32_t chunk_bytes = options_.shape.chunk_bytes;
  char* slot = nullptr;
  uint64_t torn = 0, points = 0;
  for (bool running = true; running && torn == 0; ++points) {
    const uint32_t log = new_log(100);
    {
      const auto prepare = [&] {
        const int fd = ::open(log_path(log).c_str(), O_RDWR | O_CLOEXEC);
        void* const memory =
            ::mmap(nullptr, log_file_bytes(4, chunk_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        slot = static_cast<char*>(memory) + kPageBytes;
      };
      SteppedChild child(prepare, [&] { publish_before_the_copy(slot, chunk_bytes, log); });
      running = child.run(points);
    }
    const std::string left = left_of(log, kFile);
    torn += !left.empty() && left != kStepped;
    clean_up();
  }
  EXPECT_GT(torn, 0u) << "after " << points << " points";
}

TEST_F(LogWriterStepsTest, AHandlerMayWriteAtEveryInstruction) { interrupt_everywhere(100); }

TEST_F(LogWriterStepsTest, AHandlerMayWriteWhileTheChunkChanges) {
  interrupt_everywhere(4 * kChunkBytesMin - 300);
}

}  // namespace
}  // namespace swale::fs::log_writer_steps_test
