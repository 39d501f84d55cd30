// LogWriter: threads, signals, forks, other processes; a server that is slow, gone or full.
#include "fs/log/log_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/time.h>

#include <atomic>
#include <thread>

#include "fs/log/testing/log_rig.h"

// A clock that moves in steps, as some virtual machines have it (the program is linked with --wrap). 0: as
// it is.
static std::atomic<long> clock_step_ns{0};
extern "C" int __real_clock_gettime(clockid_t clock, timespec* time);
extern "C" int __wrap_clock_gettime(clockid_t clock, timespec* time) {
  const int result = __real_clock_gettime(clock, time);
  if (const long step = clock_step_ns.load(); step != 0) time->tv_nsec -= time->tv_nsec % step;
  return result;
}

namespace swale::fs::log_writer_test {
namespace {

// Memory that children share with the test.
template <class T>
class Shared {
 public:
  Shared() : memory_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~Shared() { ::munmap(memory_, sizeof(T)); }
  T* operator->() { return static_cast<T*>(memory_); }

 private:
  void* memory_;
};

class LogWriterTest : public LogRig {
 protected:
  // The server's loop, until `done`.
  void serve_until(const std::atomic<bool>& done) {
    while (!done.load()) {
      static_cast<void>(logs_->wait(1'000'000));
      take();
      serve();
    }
    take();
  }
  // Of each of a writer's writes: a segment of its own file, with the write's bytes.
  void expect_all(const meta::FileId& file, uint64_t writes, size_t bytes) {
    uint64_t found = 0;
    for (const Segment& segment : files_.taken) {
      if (segment.file != file) continue;
      ASSERT_EQ(segment.offset, found * bytes);
      std::string content(segment.length, '\0');
      ASSERT_TRUE(logs_->read(segment.place, content).ok());
      ASSERT_EQ(content, pattern(found + file.low * 1000, bytes));
      ++found;
    }
    EXPECT_EQ(found, writes);
  }
  void expect_child(pid_t child) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
};

void write_all(LogWriter& writer, const meta::FileId& file, uint64_t writes, size_t bytes) {
  for (uint64_t i = 0; i < writes; ++i) {
    const std::string content = pattern(i + file.low * 1000, bytes);
    if (writer.write(file, i * bytes, content.data(), bytes) != static_cast<int64_t>(bytes)) ::abort();
  }
}

TEST_F(LogWriterTest, ThreadsWriteToOneLogInTheirOrder) {
  small_chunks(256 * 1024, 64);
  options_.memory_bytes = 6 * 256 * 1024;
  open();
  LogWriter writer;
  attach(writer, add());
  std::atomic<bool> done{false};
  std::thread threads([&] {
    std::vector<std::thread> all;
    for (uint64_t t = 1; t <= 4; ++t) all.emplace_back([&, t] { write_all(writer, {1, t}, 800, 777); });
    for (std::thread& thread : all) thread.join();
    done.store(true);
  });
  serve_until(done);
  threads.join();
  for (uint64_t t = 1; t <= 4; ++t) expect_all({1, t}, 800, 777);
}

LogWriter interrupted;
std::atomic<uint64_t> handled{0};

TEST_F(LogWriterTest, HandlersWriteInTheMiddleOfWrites) {
  open();
  attach(interrupted, add());
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) {
    const uint64_t n = handled.load();
    char bytes[100];
    for (size_t i = 0; i < sizeof(bytes); ++i)
      bytes[i] = static_cast<char>(((n + 2000) * 2654435761u + i * 31) >> 3 | 1);
    if (interrupted.write({1, 2}, n * sizeof(bytes), bytes, sizeof(bytes)) != sizeof(bytes)) ::abort();
    handled.store(n + 1);
  };
  ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
  const itimerval often{{0, 200}, {0, 200}}, never{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  uint64_t writes = 0;
  const std::string content = pattern(1000, 3000);
  while (handled.load() < 300)
    interrupted.write({1, 1}, 3000 * writes++, content.data(), 3000), take(), serve();
  ASSERT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
  ASSERT_EQ(::sigaction(SIGALRM, &before, nullptr), 0);
  take();
  expect_all({1, 2}, handled.load(), 100);
  std::printf("%lu handlers wrote during %lu writes\n", handled.load(), writes);
  interrupted.detach();
}

TEST_F(LogWriterTest, AChildOfForkNeedsALogOfItsOwn) {
  open();
  LogWriter writer;
  attach(writer, add());
  const uint32_t of_child = add();
  std::atomic<bool> stop{false};
  std::thread beside([&] {
    for (uint64_t i = 0; i < 50'000 && !stop.load(); ++i) writer.write({1, 9}, i, "x", 1);
  });
  writer.write({1, 1}, 0, pattern(1000, 500).data(), 500);
  const pid_t child = ::fork();
  if (child == 0) {
    LogTrouble trouble;
    if (writer.write(kFile, 0, "no", 2, &trouble) != -ECHILD) ::_exit(1);
    if (writer.attach(options_.memory_directory.c_str(), of_child) != 0) ::_exit(2);
    write_all(writer, {1, 2}, 100, 333);
    ::_exit(0);
  }
  stop.store(true);
  beside.join();
  expect_child(child);
  ASSERT_TRUE(logs_->end_log(of_child, files_).ok());
  expect_all({1, 1}, 1, 500);
  expect_all({1, 2}, 100, 333);
}

// A server ends the log of a process that goes on writing.
TEST_F(LogWriterTest, AWriteThatReturnsWhileItsLogEndsIsHandedOut) {
  constexpr int kRounds = 400;
  uint64_t returned = 0, refused = 0;
  open();
  for (int round = 0; round < kRounds; ++round) {
    LogWriter writer;
    const uint32_t log = add();
    attach(writer, log);
    std::atomic<uint64_t> written{0};
    std::thread beside([&] {
      while (writer.write(kFile, written.load(std::memory_order_relaxed), "x", 1) == 1)
        written.fetch_add(1, std::memory_order_relaxed);
    });
    while (written.load(std::memory_order_relaxed) < static_cast<uint64_t>(round)) {
    }
    ASSERT_TRUE(logs_->end_log(log, files_).ok());
    beside.join();
    uint64_t end = 0;
    for (const Segment& segment : files_.taken) end = std::max(end, segment.offset + segment.length);
    ASSERT_GE(end, written.load()) << "round " << round;
    returned += written.load();
    refused += end == written.load();
    files_.drop_all(*logs_);
  }
  std::printf("%lu writes returned; in %lu of %d rounds none was counted beside them\n", returned, refused,
              kRounds);
  EXPECT_GT(returned, uint64_t{kRounds});
}

// Processes hand a token round; each writes the same bytes while it has the token. What is handed out must
// come in the token's order, whenever the server looks.
TEST_F(LogWriterTest, WritesOfProcessesComeInTheOrderInWhichTheyHappened) {
  constexpr int kProcesses = 3;
  constexpr uint64_t kTurns = 3000;
  open();
  std::vector<uint32_t> logs;
  for (int p = 0; p < kProcesses; ++p) logs.push_back(add());
  Shared<std::atomic<uint64_t>> token;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    LogWriter writer;
    if (writer.attach(options_.memory_directory.c_str(), logs[p]) != 0) ::_exit(1);
    for (uint64_t turn = p; turn < kTurns; turn += kProcesses) {
      while (token->load() != turn) ::sched_yield();
      if (writer.write(kFile, turn % 7, &turn, sizeof(turn)) != sizeof(turn)) ::_exit(2);
      token->store(turn + 1);
    }
    ::_exit(0);
  }
  uint64_t rounds = 0;
  for (; token->load() < kTurns; ++rounds) take(), serve();
  for (const pid_t child : children) expect_child(child);
  take();
  ASSERT_EQ(files_.taken.size(), kTurns);
  for (uint64_t turn = 0; turn < kTurns; ++turn) {
    uint64_t value = 0;
    ASSERT_TRUE(logs_->read(files_.taken[turn].place, MutableBytes(reinterpret_cast<char*>(&value), 8)).ok());
    ASSERT_EQ(value, turn);
  }
  std::printf("%lu turns in %lu rounds of the server\n", kTurns, rounds);
}

TEST_F(LogWriterTest, ACoarseClockKeepsTheOrder) {
  open();
  LogWriter first, second;
  attach(second, add());  // the lower number, so that a tie would put its write first
  attach(first, add());
  clock_step_ns.store(500'000);
  for (uint64_t i = 0; i < 50; ++i) {
    first.write(kFile, 0, "old", 3);
    second.write(kFile, 0, "new", 3);
    take();
    ASSERT_EQ(files_.taken.size(), 2 * i + 2) << "a write that has returned is handed out";
    ASSERT_EQ(files_.bytes(*logs_), "new");
  }
  clock_step_ns.store(0);
}

TEST_F(LogWriterTest, PiecesOfAPageBeginNowhereNearAPagesBeginning) {
  options_.memory_bytes = 4 * uint64_t{kChunkBytes};
  open();
  LogWriter writer;
  attach(writer, add());
  std::string all;
  for (const size_t bytes : {size_t{1} << 20, size_t{4096}, size_t{47'008}, size_t{100}, size_t{69'632}}) {
    const std::string content = pattern(bytes, bytes);
    ASSERT_EQ(writer.write(kFile, all.size(), content.data(), bytes), static_cast<int64_t>(bytes));
    all += content;
  }
  take();
  EXPECT_EQ(files_.bytes(*logs_), all);
  ASSERT_EQ(files_.taken.size(), 5u);
  for (const Segment& segment : files_.taken) {
    const uint64_t in_page = segment.place.address % kChunkBytes % kPageBytes;
    if (segment.length < kPageBytes) continue;
    EXPECT_GE(in_page, kSkipBytes) << segment.length;
    EXPECT_LE(in_page, kPageBytes - kSkipBytes) << segment.length;
  }
}

// One that takes all of an empty chunk leaves nothing free before it: else it would wait for ever.
TEST_F(LogWriterTest, APieceThatFillsAChunkBeginsWhereTheChunkDoes) {
  small_chunks(kChunkBytesMin, 3);
  open();
  LogWriter writer;
  attach(writer, add());
  const std::string content = pattern(1, kChunkBytesMin - sizeof(ChunkHead) - sizeof(LogEntry));
  ASSERT_EQ(writer.write(kFile, 0, content.data(), content.size()), static_cast<int64_t>(content.size()));
  take();
  EXPECT_EQ(files_.bytes(*logs_), content);
  ASSERT_EQ(files_.taken.size(), 1u);
  EXPECT_EQ(files_.taken[0].place.address % kChunkBytesMin, 0u);
}

TEST_F(LogWriterTest, AFullLogWaitsForTheServer) {
  small_chunks(64 * 1024, 3);
  options_.spill_directory.clear();
  open();
  LogWriter writer;
  attach(writer, add());
  std::atomic<bool> done{false};
  std::thread thread([&] {
    for (uint64_t i = 0; i < 100; ++i) {
      const std::string content = pattern(i, 10'000);
      if (writer.write(kFile, 0, content.data(), content.size()) != 10'000) ::abort();
    }
    done.store(true);
  });
  while (!done.load()) {
    static_cast<void>(logs_->wait(10'000'000));
    take();
    files_.drop_all(*logs_);
    serve();
  }
  thread.join();
}

TEST_F(LogWriterTest, ASilentServerIsAnErrorThatNamesNodeAndFile) {
  small_chunks(64 * 1024, 3);
  options_.shape.wait_ns = 200'000'000;
  open();
  LogWriter writer;
  attach(writer, add());
  LogTrouble trouble;
  const std::string content = pattern(0, 30'000);
  int64_t result = 0;
  for (int i = 0; i < 100 && result >= 0; ++i)
    result = writer.write(kFile, 77, content.data(), content.size(), &trouble);
  EXPECT_EQ(result, -EIO);
  const std::string text = trouble.text;
  EXPECT_NE(text.find("node here"), std::string::npos) << text;
  EXPECT_NE(text.find("write at 77 of file 0000000000000007:0000000000000001"), std::string::npos) << text;
  EXPECT_NE(text.find("silent"), std::string::npos) << text;
  logs_->refuse(EDQUOT);
  EXPECT_EQ(writer.write(kFile, 77, content.data(), content.size(), &trouble), -EDQUOT);
  take();
  files_.drop_all(*logs_);
  serve();
  EXPECT_EQ(writer.write(kFile, 77, content.data(), content.size(), &trouble), 30'000) << trouble.text;
}

TEST_F(LogWriterTest, AServerThatWasKilledIsAnError) {
  small_chunks(64 * 1024, 3);
  Shared<std::atomic<uint32_t>> log;
  const pid_t child = ::fork();
  if (child == 0) {
    auto logs = NodeLogs::open(device_, device_, options_);
    if (!logs.ok()) ::_exit(1);
    log->store(*(*logs)->add_log());
    for (;;) ::pause();
  }
  while (log->load() == 0) {
    ASSERT_EQ(::waitpid(child, nullptr, WNOHANG), 0) << "the server has ended before it had a log";
    ::usleep(1000);
  }
  LogWriter writer;
  attach(writer, log->load());
  EXPECT_EQ(writer.write(kFile, 0, "before", 6), 6);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(writer.write(kFile, 6, "after", 5), 5) << "memory that was granted is there";
  LogTrouble trouble;
  const std::string content = pattern(0, 30'000);
  int64_t result = 0;
  for (int i = 0; i < 100 && result >= 0; ++i)
    result = writer.write(kFile, 11, content.data(), content.size(), &trouble);
  EXPECT_EQ(result, -EIO);
  EXPECT_NE(std::string(trouble.text).find("is gone"), std::string::npos) << trouble.text;
  open();
  ASSERT_TRUE(logs_->recover(files_).ok());
  take();
  EXPECT_EQ(files_.bytes(*logs_).substr(0, 11), "beforeafter");
  serve();
  EXPECT_EQ(writer.write(kFile, 11, content.data(), content.size(), &trouble), 30'000) << trouble.text;
}

// In a mount namespace of its own, with a memory file system that is smaller than the buffer.
int in_small_memory(NodeLogsOptions options, const std::string& memory, io::Device& device) {
  if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
  if (::mount("small", memory.c_str(), "tmpfs", 0, "size=700k") != 0) return 77;
  options.shape.wait_ns = 100'000'000;
  const bool spills = !options.spill_directory.empty();
  auto logs = NodeLogs::open(device, device, options);
  if (!logs.ok()) return 1;
  const auto log = (*logs)->add_log();
  if (!log.ok()) return 2;
  LogWriter writer;
  if (writer.attach(options.memory_directory.c_str(), *log) != 0) return 3;
  Files files;
  LogTrouble trouble;
  for (uint64_t i = 0; i < 200; ++i) {
    const std::string bytes = pattern(i, 20'000);
    const int64_t wrote = writer.write(kFile, i * 20'000, bytes.data(), bytes.size(), &trouble);
    if (wrote < 0) return !spills && wrote == -EIO && i > 10 ? 0 : 4;
    if (!(*logs)->take(files).ok()) return 5;
    if (!(*logs)->serve().ok()) return 6;
  }
  if (!spills) return 7;
  const std::string all = files.bytes(**logs);
  for (uint64_t i = 0; i < 200; ++i) {
    if (all.substr(i * 20'000, 20'000) != pattern(i, 20'000)) return 8;
  }
  return 0;
}

TEST_F(LogWriterTest, ASmallMemoryFileSystemIsSpilledAndNeverASignal) {
  small_chunks(128 * 1024, 64);
  options_.memory_bytes = 64 << 20;
  for (const bool spills : {true, false}) {
    if (!spills) options_.spill_directory.clear();
    const pid_t child = ::fork();
    if (child == 0) ::_exit(in_small_memory(options_, memory_.path(), device_));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespaces here";
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0) << "spills: " << spills;
  }
}

TEST_F(LogWriterTest, WhatIsNoLogIsRefused) {
  open();
  LogWriter writer;
  LogTrouble trouble;
  EXPECT_EQ(writer.attach(options_.memory_directory.c_str(), 99, &trouble), -ENOENT);
  const uint32_t log = add();
  {
    auto file = device_.open(log_path(log), io::OpenMode::kReadWrite);
    ASSERT_TRUE(file.ok() && (*file)->pwrite(20, "damage").ok());
  }
  EXPECT_EQ(writer.attach(options_.memory_directory.c_str(), log, &trouble), -EUCLEAN) << trouble.text;
  EXPECT_FALSE(writer.attached());
  EXPECT_EQ(writer.write(kFile, 0, "x", 1), -ECHILD);
}

}  // namespace
}  // namespace swale::fs::log_writer_test
