#include "io/lock_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "io/fault_device.h"
#include "io/lease_keeper.h"
#include "io/memory_device.h"
#include "io/posix_device.h"

namespace swale::io::lock_file_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kDir = "/dir";
const std::string kPath = "/dir/a.lock";

// Processes of two other machines, and this one, on a clock that only the test moves.
class LockFileTest : public testing::Test {
 protected:
  LockFileTest() {
    EXPECT_TRUE(device_.make_directory(kDir).ok());
    EXPECT_TRUE(device_.sync_directory("/").ok());
    set_log_sink([this](LogLevel, std::string_view message) { log_ += fmt::format("{}\n", message); });
  }
  ~LockFileTest() override { set_log_sink({}); }

  LockRequest request(const char* host = nullptr) {
    LockRequest made;
    made.job = "test";
    made.renewal = LockRequest::Renewal::kByCaller;
    made.clock = &clock_;
    made.sleep = [this](Nanos nanos) {
      clock_.advance(nanos);
      if (while_waiting_) while_waiting_();
    };
    if (host != nullptr) made.self = elsewhere(host);
    return made;
  }
  static ProcessIdentity elsewhere(const char* host) {
    return {host, fmt::format("boot-of-{}", host), "pid:[1]", 17, "4711"};
  }
  Result<LockFile> acquire(Device& device, const char* host = nullptr) {
    return LockFile::acquire(device, kPath, request(host));
  }
  std::string bytes() { return read_file(device_, kPath, 1 << 20).value(); }
  double seconds_passed() const { return to_seconds(clock_.now()); }

  MemoryDevice device_;
  ManualClock clock_;
  std::function<void()> while_waiting_;
  std::string log_;
};

TEST_F(LockFileTest, ALockOfAnotherHostThatIsNotRenewedLapses) {
  auto old = acquire(device_, "n17");
  ASSERT_TRUE(old.ok()) << old.status().to_string();
  auto lock = acquire(device_);
  ASSERT_TRUE(lock.ok()) << lock.status().to_string();
  EXPECT_GE(seconds_passed(), 60);
  EXPECT_LE(seconds_passed(), 62);
  EXPECT_THAT(log_,
              HasSubstr("waiting up to 60 s to see whether process 17 on host n17 still renews its lock"));
  EXPECT_THAT(log_, HasSubstr("took over the lock of process 17 on host n17"));
  EXPECT_THAT(log_, HasSubstr("has not renewed it for 60 s"));

  // The old holder wakes up: it learns who has the lock, and changes nothing.
  const std::string before = bytes();
  EXPECT_EQ(old->renew(clock_.now()), kForever);
  EXPECT_TRUE(old->lost());
  const Status status = old->check();
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(kPath), HasSubstr("was taken over by process")));
  old->release();
  EXPECT_EQ(bytes(), before);
  EXPECT_TRUE(lock->check().ok());
  EXPECT_FALSE(lock->lost());
  lock->release();
  EXPECT_TRUE(device_.list(kDir)->empty());
}

TEST_F(LockFileTest, ARenewedLockIsBusyAsSoonAsItsCounterMoves) {
  auto old = acquire(device_, "n17");
  ASSERT_TRUE(old.ok());
  Nanos next = clock_.now() + seconds(10);
  while_waiting_ = [&] {
    if (clock_.now() >= next) next = old->renew(clock_.now());
  };
  const Status status = acquire(device_).status();
  EXPECT_EQ(status.code(), Code::kBusy);
  EXPECT_LE(seconds_passed(), 11);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("n17"), HasSubstr("renews its lock")));
  EXPECT_TRUE(old->check().ok());
  EXPECT_EQ(read_lock(device_, kPath)->content->counter, 1u);
}

TEST_F(LockFileTest, WaitsNoLongerThanItMay) {
  auto old = acquire(device_, "n17");
  ASSERT_TRUE(old.ok());
  LockRequest hurried = request();
  hurried.lease.wait = seconds(5);
  const Status status = LockFile::acquire(device_, kPath, hurried).status();
  EXPECT_EQ(status.code(), Code::kBusy);
  EXPECT_LE(seconds_passed(), 6);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("not known after 5 s"), HasSubstr("its lease is 60 s"), HasSubstr("swale unlock")));
}

// A taker that slept, or whose storage hung, has not seen that the holder was silent: both may have been
// stopped.
TEST_F(LockFileTest, TimeInWhichTheTakerDidNotLookDoesNotCount) {
  auto old = acquire(device_, "n17");
  ASSERT_TRUE(old.ok());
  bool slept = false;
  while_waiting_ = [&] {
    if (!std::exchange(slept, true)) {
      clock_.advance(seconds(600));
    } else if (clock_.now() > seconds(605)) {
      old->renew(clock_.now());
    }
  };
  EXPECT_EQ(acquire(device_).status().code(), Code::kBusy);
  EXPECT_TRUE(old->check().ok());
}

TEST_F(LockFileTest, TheWitnessIsBelievedAtOnce) {
  auto old = acquire(device_, "n17");
  ASSERT_TRUE(old.ok());
  LockRequest told = request();
  told.witness = [&](const LockContent& content) {
    return content.nonce == old->content().nonce ? "rank 3 says that the process is gone" : "";
  };
  auto lock = LockFile::acquire(device_, kPath, told);
  ASSERT_TRUE(lock.ok()) << lock.status().to_string();
  EXPECT_EQ(clock_.now(), 0);
  EXPECT_THAT(log_, HasSubstr("rank 3 says"));
}

TEST_F(LockFileTest, ALockThatWasRemovedByHandIsLostAndStaysSo) {
  auto lock = acquire(device_);
  ASSERT_TRUE(lock.ok());
  ASSERT_TRUE(device_.remove(kPath).ok());
  EXPECT_EQ(lock->renew(clock_.now()), kForever);
  EXPECT_TRUE(device_.list(kDir)->empty()) << "a renewal does not make it anew";
  auto next = acquire(device_);
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  const Status status = lock->check();
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("was removed"));
  lock->release();
  EXPECT_TRUE(next->check().ok());
}

TEST_F(LockFileTest, ARenewalThatFailsIsSaidOnceAndTriedAgain) {
  FaultDevice faulty(device_);
  auto lock = acquire(faulty);
  ASSERT_TRUE(lock.ok());
  faulty.inject({.kind = CallKind::kSync, .from_then_on = true});
  EXPECT_EQ(lock->renew(0), seconds(10));
  const std::string once = log_;
  EXPECT_THAT(once, HasSubstr("could not be renewed"));
  EXPECT_EQ(lock->renew(seconds(10)), seconds(20));
  EXPECT_EQ(log_, once);
  EXPECT_FALSE(lock->lost());
  faulty.clear();
  EXPECT_EQ(lock->renew(seconds(20)), seconds(30));
  EXPECT_THAT(log_, HasSubstr("renewed again"));
}

// The n-th call of a takeover fails, for every n: the failure is said or overcome, and the next one takes
// over.
TEST_F(LockFileTest, AFailureAtAnyCallOfATakeover) {
  uint64_t points = 0;
  for (uint64_t n = 1;; ++n, ++points) {
    ASSERT_TRUE(replace_file(device_, kPath, "garbage").ok());
    FaultDevice faulty(device_);
    faulty.inject({.nth = n});
    bool acquired = false;
    {
      auto lock = acquire(faulty);
      acquired = lock.ok();
      EXPECT_EQ(lock.status().code(), lock.ok() ? Code::kOk : Code::kIoError) << lock.status().to_string();
    }
    const bool through = faulty.faults() == 0;
    const auto left = read_lock(device_, kPath);
    EXPECT_FALSE(!acquired && left.ok() && left->content.ok())
        << "call " << n << ": a lock that nobody holds";
    {
      auto next = acquire(device_);
      EXPECT_TRUE(next.ok()) << "call " << n << ": " << next.status().to_string();
    }
    EXPECT_TRUE(device_.list(kDir)->empty()) << "call " << n;
    ASSERT_FALSE(HasFailure());
    if (through) break;
  }
  EXPECT_GE(points, 9u);
  fmt::print("{} calls of a takeover failed\n", points);
}

// A taker that was delayed between its look and its rename moves whatever claim is there: then that is the
// lock.
TEST_F(LockFileTest, AClaimThatAnotherTakerHasMovedIsTheLock) {
  for (const CallKind moment : {CallKind::kOpen, CallKind::kRename}) {
    ASSERT_TRUE(replace_file(device_, kPath, "garbage").ok());
    FaultDevice watched(device_);
    int moved = 0;
    watched.set_hook([&](const Call& call) {
      const std::vector<std::string> names = device_.list(kDir).value();
      for (const std::string& name : names) {
        if (call.kind != moment || !name.ends_with(".claim") || moved++ != 0) continue;
        EXPECT_TRUE(device_.rename(kDir + "/" + name, kPath).ok());
      }
      return Status();
    });
    auto lock = acquire(watched);
    ASSERT_TRUE(lock.ok()) << lock.status().to_string();
    EXPECT_GE(moved, 1);
    EXPECT_TRUE(lock->check().ok());
    EXPECT_GT(lock->renew(clock_.now()), clock_.now());
    EXPECT_EQ(read_lock(device_, kPath)->content->counter, 1u);
    lock->release();
    EXPECT_TRUE(device_.list(kDir)->empty());
  }
}

// The machine of a taker dies at the n-th call of its takeover, for every n and in three ways; others see a
// lock, a claim or nothing. The next one needs no person, and no more than one lease.
TEST_F(LockFileTest, ATakerThatDiesAtAnyCallBlocksNobody) {
  uint64_t points = 0;
  for (const bool power_cut : {false, true}) {
    for (uint64_t seed = 1; seed <= (power_cut ? 20 : 1); ++seed) {
      for (uint64_t n = 1;; ++n, ++points) {
        MemoryDevice disk;
        ASSERT_TRUE(disk.make_directory(kDir).ok());
        ASSERT_TRUE(disk.sync_directory("/").ok());
        ASSERT_TRUE(replace_file(disk, kPath, "garbage").ok());
        FaultDevice dying(disk);
        uint64_t calls = 0;
        Rng rng(seed);
        dying.set_hook([&](const Call&) {
          if (++calls == n && power_cut)
            disk.crash(rng, seed % 2 == 0 ? CrashMode::kTearPages : CrashMode::kReorder);
          return calls >= n ? error(Code::kIoError, Scope::kNode, "dead") : Status();
        });
        static_cast<void>(acquire(dying, "n18"));
        const Nanos start = clock_.now();
        auto next = acquire(disk);
        ASSERT_TRUE(next.ok()) << "call " << n << ", seed " << seed << ": " << next.status().to_string();
        EXPECT_LE(clock_.now() - start, seconds(62)) << "call " << n;
        next->release();
        EXPECT_TRUE(disk.list(kDir)->empty()) << "call " << n;
        ASSERT_FALSE(HasFailure());
        if (calls < n) break;
      }
    }
  }
  fmt::print("{} deaths during a takeover\n", points);
}

// ---- races
// --------------------------------------------------------------------------------------------------------

// Threads of one process take a lock that has lapsed, give it back and take it again; never two hold it at a
// time.
TEST_F(LockFileTest, OfManyThreadsOneHoldsIt) {
  int taken = 0;
  std::atomic<int> holders{0};
  for (int round = 0; round < 10; ++round) {
    LockRequest left = request("n17");
    left.lease.lease = milliseconds(50);
    auto old = LockFile::acquire(device_, kPath, left);
    ASSERT_TRUE(old.ok());
    std::atomic<int> winners{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([&] {
        LockRequest request;
        request.lease.lease = seconds(60);
        auto lock = LockFile::acquire(device_, kPath, request);
        if (!lock.ok()) {
          EXPECT_EQ(lock.status().code(), Code::kBusy) << lock.status().to_string();
          return;
        }
        ++winners;
        EXPECT_EQ(++holders, 1);
        EXPECT_TRUE(lock->check().ok());
        std::this_thread::yield();
        EXPECT_TRUE(lock->check().ok());
        --holders;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_GE(winners, 1);
    taken += winners;
    EXPECT_EQ(old->check().code(), Code::kAborted);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_TRUE(device_.list(kDir)->empty());
  fmt::print("{} threads of 60 held the lock, one at a time\n", taken);
}

// Processes that take a lock on a real file system as quickly as they can, and are killed at any moment. A
// holder leaves a file inside.PID while it holds; whoever finds a living other's has found two holders.
class LockProcesses {
 public:
  explicit LockProcesses(bool locked) : locked_(locked) {
    directory_ = testing::TempDir() + "swale-lock-XXXXXX";
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    for (pid_t& child : children_) child = start();
  }
  ~LockProcesses() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    std::filesystem::remove_all(directory_);
  }

  // Kills one child and starts another in its place. False: two held the lock.
  bool kill_one(Rng& rng) {
    usleep(static_cast<useconds_t>(rng.below(6'000)));
    pid_t& child = children_[rng.below(std::size(children_))];
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    child = start();
    return !std::filesystem::exists(directory_ + "/two");
  }
  uint64_t taken() const {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(directory_ + "/taken", none);
    return none ? 0 : bytes;
  }
  const std::string& directory() const { return directory_; }

 private:
  pid_t start() {
    const pid_t child = fork();
    if (child == 0) run();
    return child;
  }

  [[noreturn]] void run() {
    set_log_sink([](LogLevel, std::string_view) {});
    for (;;) {
      if (!locked_) {
        hold();
        continue;
      }
      LockRequest request;
      request.lease.wait = seconds(20);
      auto lock = LockFile::acquire(device_, directory_ + "/a.lock", request);
      if (lock.ok()) {
        hold();
        if (!lock->check().ok()) mark("two");
      } else if (lock.status().code() != Code::kBusy) {
        mark("two");
      }
    }
  }
  void hold() {
    mark("inside." + std::to_string(getpid()));
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with("inside.")) continue;
      const pid_t pid = std::stoi(name.substr(7));
      if (pid == getpid()) continue;
      if (is_gone(pid)) {
        unlink(entry.path().c_str());
      } else {
        mark("two");
      }
    }
    mark("taken");
    unlink((directory_ + "/inside." + std::to_string(getpid())).c_str());
  }
  // Adds a byte to the file.
  void mark(const std::string& name) {
    const int fd = open((directory_ + "/" + name).c_str(), O_CREAT | O_APPEND | O_WRONLY, 0600);
    static_cast<void>(!write(fd, "x", 1));
    close(fd);
  }
  static bool is_gone(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(file, line);
    // Z: nobody has reaped it yet; X: somebody is just doing so.
    return line.empty() || std::string_view("ZX").find(line[line.rfind(')') + 2]) != std::string_view::npos;
  }

  const bool locked_;
  std::string directory_;
  PosixDevice device_;
  pid_t children_[4];
};

// Below an anchor a link that leads nowhere exists.
TEST(LockFile, WhereThereIsNoDirectoryNobodyIsWaitedFor) {
  std::string directory = testing::TempDir() + "swale-lock-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  std::filesystem::create_symlink("missing", directory + "/nowhere");
  std::ofstream(directory + "/file") << "text";
  PosixDevice here;
  const auto device = here.anchored(directory);
  ASSERT_TRUE(device.ok()) << device.status().to_string();
  for (const auto& [name, error_number] :
       {std::pair("missing", ENOENT), std::pair("nowhere", ENOENT), std::pair("file", ENOTDIR)}) {
    const auto lock = LockFile::acquire(**device, directory + "/" + name + "/a.lock", {});
    EXPECT_EQ(lock.status().posix_error(), error_number) << lock.status().to_string();
  }
  std::filesystem::remove_all(directory);
}

TEST(LockFileRace, OfProcessesThatAreKilledAtAnyMomentOneHoldsIt) {
  const char* wish = std::getenv("SWALE_LOCK_KILLS");
  const int kills = wish != nullptr ? std::atoi(wish) : 150;
  LockProcesses processes(/*locked=*/true);
  Rng rng(1);
  for (int i = 0; i < kills; ++i)
    ASSERT_TRUE(processes.kill_one(rng)) << "two held it at a time, after " << i;
  fmt::print("{} kills, the lock was taken {} times\n", kills, processes.taken());
  EXPECT_GT(processes.taken(), 0u);
}

TEST(LockFileRace, CanaryWithoutTheLockTwoAreNoticed) {
  LockProcesses processes(/*locked=*/false);
  Rng rng(1);
  int kills = 0;
  while (kills < 2'000 && processes.kill_one(rng)) ++kills;
  EXPECT_LT(kills, 2'000);
}

}  // namespace
}  // namespace swale::io::lock_file_test
