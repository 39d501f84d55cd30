#include "imd/write/writer_lock.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "imd/testing/test_job.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::writer_lock_test {
namespace {

using json = nlohmann::ordered_json;  // the counter stays first
using testing::HasSubstr;

const std::string kDir = "/dir";
const io::LeaseOptions kNoWait{.wait = 0};

class WriterLockTest : public testing::Test {
 protected:
  WriterLockTest() {
    EXPECT_TRUE(device_.make_directory(kDir).ok());
    set_log_sink([this](LogLevel, std::string_view message) { log_ += std::string(message) + "\n"; });
  }
  ~WriterLockTest() override { set_log_sink({}); }

  json content() { return json::parse(*io::read_file(device_, lock_path(kDir), 4096)); }
  void forge(const std::string& text) { ASSERT_TRUE(io::replace_file(device_, lock_path(kDir), text).ok()); }
  // A lock of this process, then changed and left behind.
  void forge_changed(const char* member, const json& value) {
    json lock;
    {
      auto ours = acquire_writer_lock(device_, kDir, 1);
      ASSERT_TRUE(ours.ok());
      lock = content();
    }
    lock["host"] = host();
    lock[member] = value;
    forge(lock.dump());
  }
  std::string host() {
    char name[256] = {};
    EXPECT_EQ(gethostname(name, sizeof(name) - 1), 0);
    return name;
  }
  Code acquire_code() { return acquire_writer_lock(device_, kDir, 2, kNoWait).status().code(); }
  bool nothing_left() { return device_.list(kDir)->empty(); }

  io::MemoryDevice device_;
  std::string log_;
};

TEST_F(WriterLockTest, NamesItsHolderAndGoesWithIt) {
  {
    auto lock = acquire_writer_lock(device_, kDir, 0xab);
    ASSERT_TRUE(lock.ok()) << lock.status().to_string();
    EXPECT_EQ(content()["pid"], getpid());
    EXPECT_EQ(content()["host"], host());
    EXPECT_EQ(content()["job"], "00000000000000ab");
    WriterLock moved = std::move(*lock);
    EXPECT_FALSE(nothing_left());
  }
  EXPECT_TRUE(nothing_left());
}

TEST_F(WriterLockTest, ASecondWriterOfALivingProcessIsToldWhoHoldsIt) {
  auto lock = acquire_writer_lock(device_, kDir, 7);
  ASSERT_TRUE(lock.ok());
  const Status second = acquire_writer_lock(device_, kDir, 8).status();
  EXPECT_EQ(second.code(), Code::kBusy);
  EXPECT_THAT(std::string(second.message()), HasSubstr(lock_path(kDir)));
  EXPECT_THAT(std::string(second.message()), HasSubstr(std::to_string(getpid())));
  EXPECT_THAT(std::string(second.message()), HasSubstr(host()));
  EXPECT_THAT(std::string(second.message()), HasSubstr(content()["since"]));
  EXPECT_THAT(std::string(second.message()), HasSubstr("swale unlock /dir"));
  lock->release();
  EXPECT_EQ(acquire_code(), Code::kOk);
}

TEST_F(WriterLockTest, AnotherLivingProcessKeepsIt) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    pause();
    _exit(0);
  }
  forge_changed("pid", child);
  json lock = content();
  std::ifstream file("/proc/" + std::to_string(child) + "/stat");
  std::string stat;
  std::getline(file, stat);
  std::istringstream behind_command(stat.substr(stat.rfind(')') + 2));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(behind_command), {}};
  lock["start_time"] = fields.at(19);
  forge(lock.dump());
  EXPECT_EQ(acquire_code(), Code::kBusy);
  kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(acquire_code(), Code::kOk) << "dead now, though nobody has asked for its status";
  waitpid(child, nullptr, 0);
  EXPECT_THAT(log_, HasSubstr("took over the lock of process " + std::to_string(child)));
  EXPECT_TRUE(nothing_left());
}

TEST_F(WriterLockTest, TakesOverFromTheDeadOnly) {
  const Code restarted = host().starts_with("localhost") ? Code::kBusy : Code::kOk;  // of which localhost?
  struct Case {
    const char* member;
    json value;
    Code code;
  };
  const Case cases[] = {{"start_time", "1", Code::kOk},  // the number was given to another process
                        {"boot", "another-boot", restarted},
                        {"pid", 0x3fffffff, Code::kOk},
                        {"nonce", "00000000000000ff", Code::kOk},  // ours, but no writer of ours
                        {"boot", "", Code::kBusy},
                        {"pid_namespace", "pid:[1]", Code::kBusy}};
  for (const Case& c : cases) {
    forge_changed(c.member, c.value);
    EXPECT_EQ(acquire_code(), c.code) << c.member << " " << c.value;
    static_cast<void>(device_.remove(lock_path(kDir)));
  }
}

TEST_F(WriterLockTest, AnotherHostIsNotJudgedAtOneLook) {
  forge_changed("host", "elsewhere");
  json lock = content();
  lock["boot"] = "another-boot";
  forge(lock.dump());
  const Status status = acquire_writer_lock(device_, kDir, 2, kNoWait).status();
  EXPECT_EQ(status.code(), Code::kBusy);
  EXPECT_THAT(std::string(status.message()), HasSubstr("on host elsewhere"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("its lease is 60 s"));
}

TEST_F(WriterLockTest, ATornLockIsTakenOverWithAMessage) {
  const std::string whole = R"({"host":"h","boot":"b"})";
  for (const std::string& text : {std::string(), std::string(200, '\0'), whole.substr(0, 9),
                                  std::string("not json"), std::string("[1,2]"), std::string(4'097, 'x'),
                                  std::string(1'000'000, '\0'), "{}" + std::string(5'000, ' ')}) {
    forge(text);
    log_.clear();
    EXPECT_EQ(acquire_code(), Code::kOk) << text;
    EXPECT_THAT(log_, HasSubstr("took over a file that is no lock"));
    EXPECT_TRUE(nothing_left());
  }
}

// At any moment of a power cut the next writer finds no lock, or a whole one, or a torn draft.
TEST_F(WriterLockTest, APowerCutAnywhereLeavesNothingThatBlocksTheNextJob) {
  int cuts = 0;
  for (const io::CrashMode mode :
       {io::CrashMode::kDropAll, io::CrashMode::kTearPages, io::CrashMode::kReorder}) {
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      for (uint64_t call = 1; call <= 10; ++call) {
        io::MemoryDevice disk;
        ASSERT_TRUE(disk.make_directory(kDir).ok());
        ASSERT_TRUE(disk.sync_directory("/").ok());
        {
          io::FaultDevice cut(disk);
          Rng rng(seed);
          uint64_t calls = 0;
          cut.set_hook([&](const io::Call&) {
            if (++calls == call) disk.crash(rng, mode);
            return Status();
          });
          static_cast<void>(acquire_writer_lock(cut, kDir, seed));
        }
        ++cuts;
        const Status next = acquire_writer_lock(disk, kDir, 1000).status();
        EXPECT_TRUE(next.ok()) << next.to_string();
        EXPECT_TRUE(disk.list(kDir)->empty());
      }
    }
  }
  fmt::print("{} power cuts while a lock is taken and given back\n", cuts);
}

// Canary of the cuts: a lock that stays is seen by the same two looks.
TEST_F(WriterLockTest, ALockThatStaysIsNoticed) {
  const auto held = acquire_writer_lock(device_, kDir, 1);
  ASSERT_TRUE(held.ok());
  EXPECT_FALSE(acquire_writer_lock(device_, kDir, 1000, kNoWait).ok());
  EXPECT_FALSE(nothing_left());
}

TEST_F(WriterLockTest, DraftsOfTheDeadAreRemoved) {
  ASSERT_TRUE(device_.open(kDir + "/swale.lock.0123456789abcdef.tmp", io::OpenMode::kCreate).ok());
  EXPECT_EQ(acquire_code(), Code::kOk);
  EXPECT_TRUE(nothing_left());
}

TEST_F(WriterLockTest, AFileThatSaysOtherThingsIsBusyWithARemedy) {
  for (const char* text : {"{}", "{\"host\":1}"}) {
    forge(text);
    const Status status = acquire_writer_lock(device_, kDir, 2, kNoWait).status();
    EXPECT_EQ(status.code(), Code::kBusy) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("`swale unlock /dir` removes it"));
  }
}

TEST_F(WriterLockTest, DoesNotRemoveALockThatIsNoLongerItsOwn) {
  auto lock = acquire_writer_lock(device_, kDir, 1);
  ASSERT_TRUE(lock.ok());
  forge("{\"somebody\":\"else\"}");
  lock->release();
  EXPECT_FALSE(nothing_left());
  EXPECT_THAT(log_, HasSubstr("was overwritten"));
}

TEST_F(WriterLockTest, OfManyThatFindADeadLockOneTakesOver) {
  forge_changed("pid", 0x3fffffff);
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<WriterLock> winners;
  for (uint64_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      auto lock = acquire_writer_lock(device_, kDir, 100 + i);
      const std::lock_guard guard(mutex);
      if (lock.ok()) {
        winners.push_back(std::move(*lock));
      } else {
        EXPECT_EQ(lock.status().code(), Code::kBusy) << lock.status().to_string();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners.size(), 1u);
}

TEST_F(WriterLockTest, AFailureAtAnyCallIsSaidAndLeavesNoLock) {
  for (uint64_t call = 1; call <= 5; ++call) {  // look, open, write, sync, rename
    io::FaultDevice faulty(device_);
    faulty.inject({.nth = call});
    auto lock = acquire_writer_lock(faulty, kDir, 1);
    EXPECT_EQ(lock.status().code(), Code::kIoError) << call;
    EXPECT_TRUE(nothing_left()) << call;
  }
  auto missing = acquire_writer_lock(device_, "/nowhere", 1);
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
}

// A job that starts again in its old allocation has a rank on the old holder's host: here every rank can ask
// for the process.
TEST_F(WriterLockTest, ARankOnTheHoldersHostSaysThatItIsGone) {
  forge_changed("pid", 0x3fffffff);
  std::atomic<int> taken{0};
  run_ranks(3, [&](net::Job& job) {
    const auto witness = ask_ranks_about_lock(net::ranks_of(job), device_, kDir);
    ASSERT_TRUE(witness.ok()) << witness.status().to_string();
    if (job.rank() != 0) return;
    ASSERT_TRUE(*witness);
    io::LockRequest elsewhere;  // rank 0 is on another host, as far as the lock can tell
    elsewhere.self = ProcessIdentity{"n1", "boot-of-n1", "pid:[1]", 17, "4711"};
    elsewhere.lease.wait = 0;
    EXPECT_EQ(io::LockFile::acquire(device_, lock_path(kDir), elsewhere).status().code(), Code::kBusy);
    elsewhere.witness = *witness;
    auto lock = io::LockFile::acquire(device_, lock_path(kDir), elsewhere);
    EXPECT_TRUE(lock.ok()) << lock.status().to_string();
    ++taken;
  });
  EXPECT_EQ(taken, 1);
  EXPECT_THAT(log_, HasSubstr("rank 0, on that host, says that the process is gone"));
}

TEST_F(WriterLockTest, RanksDoNotTalkAboutALivingHolder) {
  auto lock = acquire_writer_lock(device_, kDir, 1);
  ASSERT_TRUE(lock.ok());
  run_ranks(2, [&](net::Job& job) {
    const auto witness = ask_ranks_about_lock(net::ranks_of(job), device_, kDir);
    ASSERT_TRUE(witness.ok()) << witness.status().to_string();
    EXPECT_FALSE(*witness);
  });
  run_ranks(2, [&](net::Job& job) {
    EXPECT_TRUE(ask_ranks_about_lock(net::ranks_of(job), device_, "/nowhere").ok());
  });
}

}  // namespace
}  // namespace swale::imd::writer_lock_test
