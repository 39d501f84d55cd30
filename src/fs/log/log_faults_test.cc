// The server is killed at each of its calls of storage, and another one finds everything that was written;
// calls that fail lose nothing.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include "fs/log/testing/log_rig.h"
#include "tier/store/testing/described_fault_device.h"

namespace swale::fs::log_faults_test {
namespace {

constexpr uint64_t kWriteBytes = 20'000;
constexpr uint64_t kWrites = 24;
constexpr uint64_t kDropped = 6;  // the first ones are dropped when as many again were handed out

// What the process has told: it is written to memory that outlives it.
struct Told {
  std::atomic<uint64_t> written;
  std::atomic<uint64_t> dropped;
  std::atomic<uint64_t> finished;
};

class LogFaultsTest : public LogRig {
 protected:
  void SetUp() override {
    small_chunks(64 * 1024, 16);
    options_.memory_bytes = 4 * 64 * 1024;
    memory_told_ = ::mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory_told_, MAP_FAILED);
  }
  void TearDown() override { ::munmap(memory_told_, sizeof(Told)); }
  Told& told() { return *static_cast<Told*>(memory_told_); }

  // Server and writer in one process. Failures of serve() are expected when `lenient`.
  void live(io::Device& device, bool lenient);
  void begin_anew(int n) {
    options_.memory_directory = memory_.path() + "/node" + std::to_string(n);
    options_.spill_directory = storage_.path() + "/spill" + std::to_string(n);
    new (memory_told_) Told{};
  }
  void end_anew() {
    logs_.reset();
    std::filesystem::remove_all(options_.memory_directory);
    std::filesystem::remove_all(options_.spill_directory);
  }
  void expect_all_found(int n);
  void kill_at_each_call();
  void fail_each_call();
  // Chunks go to storage before they must, past the page cache.
  void spill_ahead() {
    options_.outlives_power = true;
    options_.rules.direct_bytes_min = kPageBytes;
  }

 private:
  void* memory_told_ = nullptr;
};

void LogFaultsTest::live(io::Device& device, bool lenient) {
  const auto must = [&](const Status& status) {
    if (!status.ok() && !lenient) ::abort();
  };
  auto opened = NodeLogs::open(device, device, options_);
  if (!opened.ok()) return must(opened.status());
  NodeLogs& logs = **opened;
  Files files;
  must(logs.recover(files));
  const auto log = logs.add_log();
  if (!log.ok()) return must(log.status());
  LogWriter writer;
  if (writer.attach(options_.memory_directory.c_str(), *log) != 0) ::abort();
  for (uint64_t i = 0; i < kWrites; ++i) {
    const std::string bytes = pattern(i, kWriteBytes);
    for (int tries = 0; writer.write(kFile, i * kWriteBytes, bytes.data(), bytes.size()) < 0; ++tries) {
      if (!lenient || tries == 5) ::abort();
      must(logs.take(files));
      must(logs.serve());
    }
    told().written.store(i + 1);
    must(logs.take(files));
    if (files.taken.size() >= 2 * kDropped && told().dropped.load() == 0) {
      told().dropped.store(kDropped);
      for (uint64_t k = 0; k < kDropped; ++k) must(logs.drop(files.taken[k].place, files.taken[k].length));
    }
    must(logs.serve());
  }
  must(logs.end_log(*log, files));
  must(logs.serve());
  told().finished.store(1);
}

// All writes that were told, but those that were dropped, which may be there.
void LogFaultsTest::expect_all_found(int n) {
  files_ = Files();
  open();
  ASSERT_TRUE(logs_->recover(files_).ok()) << n;
  take();
  std::map<uint64_t, std::string> found;
  for (const Segment& segment : files_.taken) {
    std::string bytes(segment.length, '\0');
    const Status status = logs_->read(segment.place, bytes);
    ASSERT_TRUE(status.ok()) << "call " << n << ": " << status.to_string();
    ASSERT_TRUE(found.emplace(segment.offset / kWriteBytes, bytes).second) << "twice, at call " << n;
  }
  for (uint64_t i = told().dropped.load(); i < told().written.load(); ++i) {
    ASSERT_TRUE(found.contains(i)) << "write " << i << " at call " << n;
    ASSERT_EQ(found[i], pattern(i, kWriteBytes)) << "write " << i << " at call " << n;
  }
  EXPECT_TRUE(files_.problems.empty()) << files_.problems[0].to_string();
  for (const uint32_t log : logs_->logs()) ASSERT_TRUE(logs_->end_log(log, files_).ok());
  files_.drop_all(*logs_);
  serve();
  serve();  // what outlives a loss of power goes a turn later
  EXPECT_EQ(logs_->memory_bytes() + logs_->spilled_bytes(), 0u) << "after call " << n;
}

void LogFaultsTest::kill_at_each_call() {
  int killed = 0;
  for (int n = 1;; ++n) {
    begin_anew(n);
    const pid_t child = ::fork();
    if (child == 0) {
      tier::DescribedFaultDevice device;
      int calls = 0;
      device.faults.set_hook([&](const io::Call&) {
        if (++calls == n) ::raise(SIGKILL);
        return Status();
      });
      live(device, false);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0) << status;
    expect_all_found(n);
    end_anew();
    if (HasFatalFailure()) return;
    if (WIFEXITED(status)) break;
    ++killed;
  }
  std::printf("the server was killed at %d calls\n", killed);
  EXPECT_GT(killed, 40);
}

void LogFaultsTest::fail_each_call() {
  options_.shape.wait_ns = 1'000'000;
  int failed = 0;
  for (int n = 1;; ++n) {
    begin_anew(n);
    uint64_t faults = 0;
    {
      tier::DescribedFaultDevice device;
      int calls = 0;
      bool hit = false;
      device.faults.set_hook([&](const io::Call& call) {
        if (++calls != n) return Status();
        hit = true;
        return call.kind == io::CallKind::kWrite
                   ? errno_status(ENOSPC, call.path)
                   : error(Code::kIoError, Scope::kOperation, "{}: made to fail", call.path);
      });
      live(device, true);
      faults = hit;
    }
    if (told().written.load() > 0) expect_all_found(n);
    end_anew();
    if (HasFatalFailure()) return;
    if (faults == 0) break;
    ++failed;
  }
  std::printf("%d calls failed\n", failed);
  EXPECT_GT(failed, 40);
}

TEST_F(LogFaultsTest, AServerThatIsKilledAtEachCallLeavesEverything) { kill_at_each_call(); }
TEST_F(LogFaultsTest, OneThatSpillsAheadDoesSo) {
  spill_ahead();
  kill_at_each_call();
}

TEST_F(LogFaultsTest, ACallThatFailsLosesNothing) { fail_each_call(); }
TEST_F(LogFaultsTest, NorWhereChunksAreSpilledAhead) {
  spill_ahead();
  fail_each_call();
}

}  // namespace
}  // namespace swale::fs::log_faults_test
