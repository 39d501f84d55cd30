// What is full, hangs or fails beneath a job's tree: memory, the node's storage, the backing, descriptors. No
// call that was answered with success is lost, and none waits for what it does not need.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "fs/job/testing/job_world.h"

namespace swale::fs::job_fs_full_test {
namespace {

constexpr int kErrors[] = {ENOSPC, EDQUOT, EMFILE, EIO};
constexpr uint64_t kFileBytesMax = 100'000;

// Bytes of a file as its calls have left it: what a call that failed may have changed is unknown.
struct Model {
  static constexpr char kUnknown = '?';
  std::string bytes;
  uint64_t end_min = 0;  // of the file

  void wrote(int failed, uint64_t offset, const std::string& written) {
    const uint64_t end = offset + written.size();
    if (bytes.size() < end) bytes.resize(end, '\0');
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), written.size(), kUnknown);
    if (failed != 0) return;
    bytes.replace(offset, written.size(), written);
    end_min = std::max(end_min, end);
  }
  void cut(int failed, uint64_t size) {
    if (failed == 0) {
      bytes.resize(size, '\0');
      end_min = size;
      return;
    }
    end_min = std::min(end_min, size);
    if (size < bytes.size())
      std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(size), bytes.end(), kUnknown);
  }
  // What is wrong with these; "": nothing.
  std::string judge(const std::string& found) const {
    if (found.size() < end_min || found.size() > bytes.size())
      return fmt::format("{} bytes, between {} and {} were answered", found.size(), end_min, bytes.size());
    for (size_t i = 0; i < found.size(); ++i)
      if (bytes[i] != kUnknown && bytes[i] != found[i])
        return fmt::format("offset {} has {:?} in the place of {:?}", i, found.substr(i, 1),
                           bytes.substr(i, 1));
    return "";
  }
};

class JobFsFull : public testing::Test {
 protected:
  void SetUp() override {
    world_.devices_may_fail = true;
    world_.start();
  }
  FileSystemCalls& calls() { return world_.calls(); }
  int open(const std::string& path, int flags) {
    int handle = -1;
    const int failed = calls().open(path, flags, 0644, &handle);
    return failed == 0 ? handle : -failed;
  }
  std::string read(const std::string& path) {
    const int handle = open(path, O_RDONLY);
    EXPECT_GT(handle, 0) << path << ": " << std::strerror(-handle);
    std::string out;
    EXPECT_EQ(calls().read(handle, 0, kFileBytesMax, &out), 0) << path;
    EXPECT_EQ(calls().close(handle), 0) << path;
    return out;
  }
  std::string on_backing(const std::string& path) {
    std::ifstream in(world_.backing() + "/" + path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // A program that goes on after each failure. False: it could not make the file.
  bool run(const std::string& path, Model* model);
  void fail_each_call(io::FaultDevice& device, const char* name);
  int expected(int failed) {
    const bool known =
        failed == 0 || std::find(std::begin(kErrors), std::end(kErrors), failed) != std::end(kErrors);
    EXPECT_TRUE(known) << std::strerror(failed);
    return failed;
  }

  JobWorld world_;
};

bool JobFsFull::run(const std::string& path, Model* model) {
  const int handle = open(path, O_RDWR | O_CREAT | O_EXCL);
  if (handle < 0) {
    expected(-handle);
    return false;
  }
  const auto write = [&](uint64_t offset, size_t bytes, char with) {
    const std::string text(bytes, with);
    model->wrote(expected(calls().write(handle, offset, text)), offset, text);
  };
  write(0, 50'000, 'a');
  expected(calls().sync(handle));  // it comes to the backing
  write(30'000, 40'000, 'b');
  model->cut(expected(calls().resize(handle, 60'000)), 60'000);
  write(60'000, 10'000, 'c');
  expected(calls().sync(handle));  // and is changed there
  write(10, 100, 'd');
  expected(calls().close(handle));
  return true;
}

void JobFsFull::fail_each_call(io::FaultDevice& device, const char* name) {
  std::vector<std::pair<std::string, Model>> files;
  size_t points = 0, unmade = 0;
  for (bool hit = true; hit; ++points) {
    const std::string path = fmt::format("{}{}", name, points);
    Model model;
    device.inject(
        {.nth = points + 1, .status = errno_status(kErrors[points % std::size(kErrors)], "a fault")});
    const bool made = run(path, &model);
    hit = device.faults() > 0;
    device.clear();
    if (!made) {
      ++unmade;
      continue;
    }
    EXPECT_EQ(model.judge(read(path)), "") << path;
    files.emplace_back(path, model);
  }
  EXPECT_TRUE(world_.fs().drain_all().ok());
  world_.restart();
  for (const auto& [path, model] : files) {
    EXPECT_EQ(model.judge(read(path)), "") << path << ", by the next server";
    EXPECT_TRUE(read(path) == on_backing(path)) << path;
  }
  std::printf("%s: %zu points, %zu files that could not be made\n", name, points - 1, unmade);
  EXPECT_GT(points, 4u);
}

TEST_F(JobFsFull, EachCallToMemoryMayFail) { fail_each_call(world_.memory_faults(), "memory"); }
TEST_F(JobFsFull, EachCallToTheStorageOfTheNodeMayFail) {
  fail_each_call(world_.storage_faults(), "storage");
}
TEST_F(JobFsFull, EachCallToTheBackingMayFail) { fail_each_call(world_.backing_faults(), "backing"); }

TEST_F(JobFsFull, CanaryTheJudgeNoticesAByteThatIsLost) {
  Model model;
  ASSERT_TRUE(run("f", &model));
  EXPECT_EQ(model.judge(read("f")), "");
  model.wrote(0, 20, "a write that never was");
  EXPECT_NE(model.judge(read("f")), "");
  model.wrote(1, 20, "a write that has failed");
  EXPECT_EQ(model.judge(read("f")), "");
  model.end_min = 80'000;
  EXPECT_NE(model.judge(read("f")), "");
}

constexpr auto kPatience = std::chrono::seconds(120);  // reached by what hangs only

// A drain that hangs at its n-th call, of two new files and one that is changed in place: programs write and
// read, also the file that is being drained, and make files; fsync, which needs the backing, waits. When it
// goes on, nothing has been lost.
TEST_F(JobFsFull, ABackingThatHangsStopsWhatNeedsItAlone) {
  size_t points = 0;
  std::map<std::string, int> kinds;
  for (bool hung = true; hung; ++points) {
    const std::string path = fmt::format("f{}", points), other = fmt::format("other{}", points);
    const std::string old = fmt::format("old{}", points);
    std::ofstream(world_.backing() + "/" + old) << "0123456789";
    const int handle = open(path, O_RDWR | O_CREAT), second = open(other, O_RDWR | O_CREAT);
    const int third = open(old, O_RDWR);
    ASSERT_GT(handle, 0);
    ASSERT_GT(second, 0);
    ASSERT_GT(third, 0);
    ASSERT_EQ(calls().write(handle, 0, "drained"), 0);
    ASSERT_EQ(calls().write(third, 4, "drained"), 0);

    std::mutex mutex;
    std::condition_variable changed;
    bool hangs = false, released = false, drained = false, worked = false;
    size_t left = points + 1;
    const auto set = [&](bool* what) {
      const std::lock_guard lock(mutex);
      *what = true;
      changed.notify_all();
    };
    std::string where;
    world_.backing_faults().set_hook([&](const io::Call& call) -> Status {
      std::unique_lock lock(mutex);
      if (drained || left == 0 || --left > 0) return {};
      where = fmt::format("{} of {}", io::call_kind_name(call.kind), call.path);
      ++kinds[std::string(io::call_kind_name(call.kind))];
      hangs = true;
      changed.notify_all();
      changed.wait(lock, [&] { return released; });
      return {};
    });
    Status outcome;
    std::thread drainer([&] {
      outcome = world_.fs().drain_all();
      set(&drained);
    });
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return hangs || drained; });
      hung = hangs;
    }
    std::thread program([&] {
      EXPECT_EQ(calls().write(handle, 20, "more"), 0);
      EXPECT_EQ(calls().write(second, 0, "another"), 0);
      std::string out;
      EXPECT_EQ(calls().read(handle, 0, 100, &out), 0);
      EXPECT_EQ(out, std::string("drained") + std::string(13, '\0') + "more");
      EXPECT_EQ(calls().read(second, 0, 100, &out), 0);
      EXPECT_EQ(out, "another");
      EXPECT_EQ(calls().read(third, 4, 100, &out), 0);
      EXPECT_EQ(out, "drained");
      const int made = open(path + ".made", O_RDWR | O_CREAT | O_EXCL);
      EXPECT_GT(made, 0);
      EXPECT_EQ(calls().close(made), 0);
      set(&worked);
    });
    {
      std::unique_lock lock(mutex);
      EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return worked; })) << where;
    }
    std::thread syncer([&] {
      EXPECT_EQ(calls().sync(handle), 0);
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(released || !hangs) << "what needs the backing waits for it";
    });
    set(&released);
    for (std::thread* const each : {&drainer, &program, &syncer}) each->join();
    if (HasFailure()) return;
    world_.backing_faults().clear();
    EXPECT_TRUE(outcome.ok()) << outcome.to_string();
    EXPECT_EQ(calls().close(handle), 0);
    EXPECT_EQ(calls().close(second), 0);
    EXPECT_EQ(calls().close(third), 0);
    ASSERT_TRUE(world_.fs().drain_all().ok());
    EXPECT_EQ(on_backing(old), "0123drained");
    EXPECT_EQ(on_backing(path), std::string("drained") + std::string(13, '\0') + "more");
    EXPECT_EQ(on_backing(other), "another");
  }
  std::printf("%zu calls of a drain that hung:", points - 1);
  for (const auto& [kind, count] : kinds) std::printf(" %s %d,", kind.c_str(), count);
  std::printf("\n");
  EXPECT_GT(points, 30u);
  for (const char* const kind : {"open", "read", "write", "sync", "rename", "remove", "sync_directory"})
    EXPECT_GT(kinds[kind], 0) << kind;
}

// The read waits; who does not need those bytes goes on.
TEST_F(JobFsFull, AReadOfTheBackingThatHangsStopsWhoReadsAlone) {
  std::ofstream(world_.backing() + "/old") << "0123456789";
  const int old = open("old", O_RDWR);
  ASSERT_GT(old, 0);
  ASSERT_EQ(calls().write(old, 4, "logged"), 0);
  std::mutex mutex;
  std::condition_variable changed;
  bool hangs = false, released = false, worked = false, canary = false;
  world_.backing_faults().set_hook([&](const io::Call& call) -> Status {
    std::unique_lock lock(mutex);
    if (call.kind != io::CallKind::kRead || !call.path.ends_with("/old")) return {};
    hangs = true;
    changed.notify_all();
    changed.wait(lock, [&] { return released; });
    return {};
  });
  std::thread reader([&] {
    std::string out;
    EXPECT_EQ(calls().read(old, 0, 100, &out), 0);
    EXPECT_EQ(out, "0123logged");
    const std::lock_guard lock(mutex);
    canary = released;
  });
  std::thread program([&] {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return hangs; });
    }
    std::string out;
    EXPECT_EQ(calls().read(old, 4, 100, &out), 0);
    EXPECT_EQ(out, "logged");
    const int made = open("made", O_RDWR | O_CREAT);
    EXPECT_GT(made, 0);
    EXPECT_EQ(calls().write(made, 0, "bytes"), 0);
    EXPECT_EQ(calls().sync(made), 0);
    EXPECT_EQ(calls().close(made), 0);
    const std::lock_guard lock(mutex);
    worked = true;
    changed.notify_all();
  });
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return worked; }));
    released = true;
    changed.notify_all();
  }
  reader.join();
  program.join();
  EXPECT_TRUE(canary) << "the read that hung had its bytes before the backing gave them";
  world_.backing_faults().clear();
  EXPECT_EQ(calls().close(old), 0);
}

// Files of the backing are read by descriptors of the server.
TEST_F(JobFsFull, WhereDescriptorsEndOpensFailAndNothingElse) {
  constexpr int kFiles = 100, kLeft = 40;
  for (int i = 0; i < kFiles; ++i) std::ofstream(world_.backing() + fmt::format("/old{}", i)) << i;
  const int writer = open("new", O_RDWR | O_CREAT);
  ASSERT_GT(writer, 0);
  rlimit usual;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const int next = ::dup(STDOUT_FILENO);
  ASSERT_GE(next, 0);
  ::close(next);
  rlimit few = usual;
  few.rlim_cur = static_cast<rlim_t>(next + kLeft);
  const auto open_all = [&] {
    std::vector<int> handles;
    for (int i = 0; i < kFiles; ++i) {
      const int handle = open(fmt::format("old{}", i), O_RDONLY);
      if (handle < 0) {
        EXPECT_EQ(-handle, EMFILE) << std::strerror(-handle);
        break;
      }
      handles.push_back(handle);
    }
    return handles;
  };
  const auto close_all = [&](const std::vector<int>& handles) {
    for (size_t i = 0; i < handles.size(); ++i) {
      std::string out;
      EXPECT_EQ(calls().read(handles[i], 0, 10, &out), 0);
      EXPECT_EQ(out, std::to_string(i));
      EXPECT_EQ(calls().close(handles[i]), 0);
    }
  };
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  size_t opened = 0;
  for (int round = 0; round < 3; ++round) {
    const std::vector<int> handles = open_all();
    EXPECT_EQ(calls().write(writer, static_cast<uint64_t>(round) * 10, "ten bytes."), 0);
    std::string out;
    EXPECT_EQ(calls().read(writer, static_cast<uint64_t>(round) * 10, 10, &out), 0);
    EXPECT_EQ(out, "ten bytes.");
    if (round == 0) opened = handles.size();
    EXPECT_EQ(handles.size(), opened) << "all that are closed can be opened again";
    close_all(handles);
  }
  EXPECT_LT(opened, static_cast<size_t>(kFiles));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  const std::vector<int> handles = open_all();
  EXPECT_EQ(handles.size(), static_cast<size_t>(kFiles)) << "canary: without a limit none fails";
  close_all(handles);
  EXPECT_EQ(calls().close(writer), 0);
  ASSERT_TRUE(world_.fs().drain_all().ok());
  EXPECT_EQ(on_backing("new"), "ten bytes.ten bytes.ten bytes.");
  std::printf("%zu of %d files were open when descriptors ended\n", opened, kFiles);
}

}  // namespace
}  // namespace swale::fs::job_fs_full_test
