// fsync on a node whose folders are on a disk: what it has promised is there after the node has lost power,
// with all that its memory had and that its disk was not told to keep. The backing is another machine's.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "fs/job/testing/job_world.h"

namespace swale::fs::job_fs_power_test {
namespace {

std::string text_of(int i, size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t at = 0; at < bytes; ++at)
    text[at] = static_cast<char>('a' + (at * 7 + static_cast<size_t>(i)) % 26);
  return text;
}

constexpr char kOld[] = "old old old old old";
std::string patched(std::string text, uint64_t offset, const std::string& bytes) {
  text.resize(std::max<size_t>(text.size(), offset + bytes.size()));
  return text.replace(offset, bytes.size(), bytes);
}

class Calls {
 public:
  explicit Calls(FileSystemCalls& calls) : calls_(calls) {}
  // With an fsync, or none.
  void write(const std::string& path, const std::string& bytes, bool synced, uint64_t offset = 0) {
    int handle = -1;
    ASSERT_EQ(calls_.open(path, O_RDWR | O_CREAT, 0644, &handle), 0) << path;
    EXPECT_EQ(calls_.write(handle, offset, bytes), 0);
    EXPECT_EQ(synced ? calls_.sync(handle) : 0, 0);
    EXPECT_EQ(calls_.close(handle), 0);
  }
  std::string read(const std::string& path) {
    int handle = -1;
    if (const int failed = calls_.open(path, O_RDONLY, 0, &handle); failed != 0)
      return failed == ENOENT ? "-" : "(" + std::to_string(failed) + ")";
    std::string out;
    if (calls_.read(handle, 0, 1 << 20, &out) != 0) out = "(unreadable)";
    EXPECT_EQ(calls_.close(handle), 0);
    return out;
  }

 private:
  FileSystemCalls& calls_;
};

void put(const std::string& path, const std::string& bytes) { std::ofstream(path) << bytes; }

struct Story {
  const char* name;
  std::function<void(JobWorld&)> before;  // the power goes after it
  std::function<std::string(Calls&)> wrong;
};

const std::vector<Story>& stories() {
  static const std::vector<Story> all = {
      {"a new file in a new directory",
       [](JobWorld& world) {
         EXPECT_EQ(world.calls().make_directory("new", 0755), 0);
         Calls(world.calls()).write("new/f", text_of(1, 30'000), true);
         Calls(world.calls()).write("new/later", text_of(2, 100), false);
       },
       [](Calls& calls) { return calls.read("new/f") == text_of(1, 30'000) ? "" : "it is not there"; }},
      {"a file of the backing, changed in places",
       [](JobWorld& world) {
         Calls(world.calls()).write("old", "NEW", true, 3);
         Calls(world.calls()).write("old", "synced", true, 10);
       },
       [](Calls& calls) {
         return calls.read("old") == patched(patched(kOld, 3, "NEW"), 10, "synced") ? "" : calls.read("old");
       }},
      {"overwritten since",
       [](JobWorld& world) {
         Calls(world.calls()).write("f", text_of(1, 5000), true);
         for (int i = 2; i < 40; ++i) Calls(world.calls()).write("f", text_of(i, 5000), false);
       },
       [](Calls& calls) -> std::string {
         const std::string now = calls.read("f");
         for (int i = 1; i < 40; ++i)
           if (now == text_of(i, 5000)) return "";
         return "it is none of what was written: " + now.substr(0, 20);
       }},
      {"replaced by a rename",
       [](JobWorld& world) {
         Calls(world.calls()).write("f", text_of(1, 5000), true);
         Calls(world.calls()).write("f.new", text_of(2, 6000), true);
         EXPECT_EQ(world.calls().rename("f.new", "f", 0), 0);
       },
       [](Calls& calls) -> std::string {
         const std::string now = calls.read("f");
         return now == text_of(1, 5000) || now == text_of(2, 6000) ? "" : "neither the old nor the new file";
       }},
      {"removed",
       [](JobWorld& world) {
         Calls(world.calls()).write("f", text_of(1, 5000), true);
         EXPECT_EQ(world.calls().unlink("f"), 0);
       },
       [](Calls& calls) -> std::string {
         const std::string now = calls.read("f");
         return now == text_of(1, 5000) || now == "-" ? "" : "a part of it is there";
       }},
      {"of the backing, changed and renamed",
       [](JobWorld& world) {
         Calls(world.calls()).write("old", "NEW", true, 3);
         EXPECT_EQ(world.calls().rename("old", "other", 0), 0);
       },
       [](Calls& calls) -> std::string {
         const std::string one = calls.read("old"), two = calls.read("other");
         const bool right =
             (one == "-") != (two == "-") && (one == "-" ? two : one) == patched(kOld, 3, "NEW");
         return right ? "" : one + " and " + two;
       }},
      {"in a directory of the backing that is renamed",
       [](JobWorld& world) {
         Calls(world.calls()).write("d/in", "NEW", true);
         EXPECT_EQ(world.calls().rename("d", "e", 0), 0);
       },
       [](Calls& calls) -> std::string {
         const std::string one = calls.read("d/in"), two = calls.read("e/in");
         return (one == "-" ? two : one) == patched("inside", 0, "NEW") ? "" : one + " and " + two;
       }},
      {"renamed and brought to the backing",
       [](JobWorld& world) {
         Calls(world.calls()).write("f", text_of(1, 5000), true);
         EXPECT_EQ(world.calls().rename("f", "g", 0), 0);
         EXPECT_TRUE(world.fs().drain_all().ok());
       },
       [](Calls& calls) -> std::string {
         const std::string one = calls.read("f"), two = calls.read("g");
         return one == "-" && two == text_of(1, 5000) ? "" : one.substr(0, 20) + " and " + two.substr(0, 20);
       }},
  };
  return all;
}

// "" or what is wrong; after a drain, also with the backing.
std::string lose_power(const Story& story, io::CrashMode mode, uint64_t seed, const LogRules& rules) {
  JobWorld world(JobWorld::Storage::kLosesPower);
  put(world.backing() + "/old", kOld);
  std::filesystem::create_directory(world.backing() + "/d");
  put(world.backing() + "/d/in", "inside");
  world.options().logs.rules = rules;
  world.start();
  story.before(world);
  world.lose_power(seed, mode);
  Calls calls(world.calls());
  std::string wrong = story.wrong(calls);
  if (!wrong.empty()) return wrong;
  if (const Status drained = world.fs().drain_all(); !drained.ok()) return drained.to_string();
  if (world.fs().stats().kept_aside > 0) return "a file was kept aside, and nobody has changed it";
  wrong = story.wrong(calls);
  return wrong.empty() ? "" : "after a drain: " + wrong;
}

TEST(JobFsPower, WhatWasSyncedIsThere) {
  for (const Story& story : stories()) {
    EXPECT_EQ(lose_power(story, io::CrashMode::kDropAll, 1, {}), "") << story.name;
    for (uint64_t seed = 1; seed <= 4; ++seed)
      EXPECT_EQ(lose_power(story, io::CrashMode::kTearPages, seed, {}), "")
          << story.name << ", seed " << seed;
  }
  std::printf("%zu stories\n", stories().size());
}

TEST(JobFsPower, CanaryAnFsyncThatDoesNotSync) {
  LogRules rules;
  rules.sync_spills = false;
  EXPECT_NE(lose_power(stories()[0], io::CrashMode::kDropAll, 1, rules), "");
}

// The journal takes them. Without it each takes an open file: so many are too many, and then it is a drain.
void sync_often(bool journals) {
  JobWorld world(JobWorld::Storage::kLosesPower);
  if (!journals) world.options().logs.rules.journal_bytes_max = 0;
  world.start();
  int handle = -1;
  ASSERT_EQ(world.calls().open("journal", O_RDWR | O_CREAT, 0644, &handle), 0);
  uint64_t most = 0;
  std::string expected;
  for (int i = 0; i < 700; ++i) {
    const std::string line = text_of(i, 50);
    ASSERT_EQ(world.calls().write(handle, expected.size(), line), 0);
    ASSERT_EQ(world.calls().sync(handle), 0);
    expected += line;
    most = std::max(most, world.fs().stats().spilled_chunks);
  }
  EXPECT_EQ(world.calls().close(handle), 0);
  EXPECT_LT(most, 300u);
  EXPECT_EQ(world.fs().stats().drained_files > 0, !journals);
  world.lose_power(1, io::CrashMode::kDropAll);
  EXPECT_EQ(Calls(world.calls()).read("journal"), expected);
}
TEST(JobFsPower, ManySmallSyncsTakeFewFiles) {
  sync_often(true);
  sync_often(false);
}

// Of a write that was synced, whichever way; and a time that was set since, and synced.
TEST(JobFsPower, TheTimeOfASyncedFileIsThere) {
  for (const bool journals : {true, false}) {
    JobWorld world(JobWorld::Storage::kLosesPower);
    if (!journals) world.options().logs.rules.journal_bytes_max = 0;
    world.start();
    int written = -1, set = -1;
    struct stat before, after;
    for (const auto& [name, handle] : {std::pair("written", &written), std::pair("set", &set)}) {
      ASSERT_EQ(world.calls().open(name, O_RDWR | O_CREAT, 0644, handle), 0);
      ASSERT_EQ(world.calls().sync(*handle), 0);
      ASSERT_EQ(world.calls().write(*handle, 0, "bytes"), 0);
      ASSERT_EQ(world.calls().sync(*handle), 0);
    }
    ASSERT_EQ(world.calls().state(written, &before), 0);
    ASSERT_EQ(world.calls().set_time("set", 1000), 0);
    ASSERT_EQ(world.calls().sync(set), 0);
    world.lose_power(1, io::CrashMode::kDropAll);
    ASSERT_EQ(world.calls().look("written", &after), 0);
    EXPECT_EQ(after.st_size, 5);
    EXPECT_EQ(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
    EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    ASSERT_EQ(world.calls().look("set", &after), 0);
    EXPECT_EQ(after.st_mtim.tv_sec, 1000);
  }
}

// The program has not asked for a buffer that is large enough.
TEST(JobFsPower, AFullBufferIsNoFailureOfFsync) {
  JobWorld world(JobWorld::Storage::kLosesPower);
  world.options().logs.rules.journal_bytes_max = 0;
  world.start();
  world.disk().inject({.kind = io::CallKind::kWrite,
                       .path_part = kSpillPrefix,
                       .from_then_on = true,
                       .status = errno_status(ENOSPC, "spill")});
  Calls(world.calls()).write("f", text_of(1, 30'000), true);
  EXPECT_GT(world.disk().faults(), 0u);
  std::ifstream there(world.backing() + "/f", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(there), {}), text_of(1, 30'000));
}

// Files of several threads, that sync them at once.
TEST(JobFsPower, SyncsOfManyAtOnce) {
  for (const JobWorld::Storage storage : {JobWorld::Storage::kPlain, JobWorld::Storage::kLosesPower}) {
    JobWorld world(storage);
    world.start();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 6; ++thread) {
      threads.emplace_back([&world, thread] {
        FileSystemCalls calls(world.fs());
        for (int i = 0; i < 8; ++i) {
          const std::string name = fmt::format("f{}", (thread + i) % 5 * 10 + i);
          Calls(calls).write(name, text_of(i, 2000), true);
          EXPECT_EQ(Calls(calls).read(name), text_of(i, 2000));
        }
      });
    }
    for (std::thread& each : threads) each.join();
    const JobFsStats stats = world.fs().stats();
    EXPECT_EQ(stats.failed_drains, 0u) << stats.last_failure;
    if (storage == JobWorld::Storage::kLosesPower)
      world.lose_power(1, io::CrashMode::kDropAll);
    else
      EXPECT_EQ(stats.undrained_files, 0u);
    Calls calls(world.calls());
    for (int thread = 0; thread < 6; ++thread)
      for (int i = 0; i < 8; ++i)
        EXPECT_EQ(calls.read(fmt::format("f{}", (thread + i) % 5 * 10 + i)), text_of(i, 2000));
  }
}

}  // namespace
}  // namespace swale::fs::job_fs_power_test
