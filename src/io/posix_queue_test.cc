// What is particular to the queues of PosixDevice: sleeping and waking, fork, systems that allow no ring,
// file systems that promise direct transfers and then refuse them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/testing/sanitizers.h"
#include "base/testing/test_threads.h"
#include "io/advised_queue.h"
#include "io/io_queue.h"
#include "io/posix_file.h"
#include "io/testing/device_test_fixture.h"
#include "io/thread_queue.h"
#include "io/uring_queue.h"

namespace swale::io::posix_queue_test {
namespace {

using ::testing::HasSubstr;
using Engine = PosixOptions::Engine;
using Direct = PosixOptions::Direct;

// The file's reads last until somebody lets them go.
class SlowFile : public File {
 public:
  Result<size_t> pread(uint64_t /*offset*/, MutableBytes out) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
    return out.size();
  }
  void let_go() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  Status pwrite(uint64_t /*offset*/, Bytes /*data*/) override { return {}; }
  Status sync() override { return {}; }
  Result<uint64_t> size() override { return uint64_t{0}; }
  Status truncate(uint64_t /*size*/) override { return {}; }
  const std::string& path() const override { return path_; }

 private:
  const std::string path_ = "slow";
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// Runs the function in a child of fork; its answer, or -1 if it died.
int in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int state = 0;
  EXPECT_EQ(waitpid(child, &state, 0), child);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

// From now on this process gets EPERM for the system call, as in a container.
bool forbid(unsigned system_call) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, system_call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {sizeof(program) / sizeof(program[0]), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

bool have_ring() { return UringQueue::make(1).ok(); }

TEST(PosixQueue, AutomaticChoiceIsARingWhereThereIsOne) {
  const auto queue = PosixDevice().make_queue(4).value();
  EXPECT_EQ(dynamic_cast<UringQueue*>(queue.get()) != nullptr, have_ring());
  const auto threads = PosixDevice({.engine = Engine::kThreads}).make_queue(4).value();
  EXPECT_NE(dynamic_cast<ThreadQueue*>(threads.get()), nullptr);
}

TEST(PosixQueue, WithoutARingThreadsServeAndARequiredRingIsAClearError) {
  EXPECT_EQ(in_child([] {
              if (!forbid(SYS_io_uring_setup)) return 77;
              std::string logged;
              set_log_level(LogLevel::kDebug);
              set_log_sink([&](LogLevel level, std::string_view message) {
                if (level == LogLevel::kDebug) logged += message;
              });
              const auto queue = PosixDevice().make_queue(4);
              if (!queue.ok() || dynamic_cast<ThreadQueue*>(queue->get()) == nullptr) return 1;
              if (logged.find("using threads instead") == std::string::npos) return 2;
              const Status required = PosixDevice({.engine = Engine::kUring}).make_queue(4).status();
              if (required.message().find("io_uring_disabled") == std::string::npos) return 3;
              MemoryDevice memory;
              const auto file = memory.open("/a", OpenMode::kCreate).value();
              (*queue)->submit(
                  std::vector<Operation>{{Operation::Kind::kWrite, file.get(), 0, {}, "through threads", 5}});
              std::vector<Completion> out;
              (*queue)->wait(1, &out);
              return out.size() == 1 && out[0].tag == 5 && *file->size() == 15 ? 42 : 4;
            }),
            42);
}

TEST(ThreadQueue, WakeEndsAWaitThatSleeps) {
  SlowFile file;
  const auto queue = ThreadQueue::make(2).value();
  char byte = 0;
  queue->submit(std::vector<Operation>{{Operation::Kind::kRead, &file, 0, {&byte, 1}, {}, 9}});
  std::vector<Completion> out;
  std::thread waker([&] { queue->wake(); });
  EXPECT_EQ(queue->wait(1, &out), 0u);  // would last for ever
  waker.join();
  EXPECT_EQ(queue->in_flight(), 1u);
  file.let_go();
  EXPECT_EQ(queue->wait(1, &out), 1u);
  EXPECT_EQ(out[0].tag, 9u);
}

// What PosixDevice refuses to open.
std::unique_ptr<PosixFile> open_special(const std::string& path) {
  return std::make_unique<PosixFile>(Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC)),
                                     PosixPath{nullptr, path}, path, OpenMode::kReadWrite,
                                     PosixOptions::Direct::kNever, std::make_shared<PosixRooms>());
}

// A pipe is a file whose reads last; a ring does not mind that it has no offsets.
TEST(UringQueue, WakeEndsAWaitThatSleeps) {
  if (!have_ring()) GTEST_SKIP() << "no io_uring here";
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto pipe = open_special(path);
  const auto queue = UringQueue::make(2).value();
  char byte = 0;
  queue->submit(std::vector<Operation>{{Operation::Kind::kRead, pipe.get(), 0, {&byte, 1}, {}, 9}});
  std::vector<Completion> out;
  for (int round = 0; round < 50; ++round) {
    std::thread waker([&] { queue->wake(); });
    EXPECT_EQ(queue->wait(1, &out), 0u);  // would last for ever
    waker.join();
  }
  EXPECT_EQ(queue->in_flight(), 1u);
  const Descriptor end(::open(path.c_str(), O_WRONLY));
  ASSERT_EQ(::write(end.get(), "x", 1), 1);
  EXPECT_EQ(queue->wait(1, &out), 1u);
  EXPECT_EQ(out[0].bytes, 1u);
  EXPECT_EQ(byte, 'x');
}

TEST(UringQueue, AShortReadIsContinued) {
  if (!have_ring()) GTEST_SKIP() << "no io_uring here";
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto pipe = open_special(path);
  const auto queue = UringQueue::make(1).value();
  std::string got(6, '.');
  queue->submit(std::vector<Operation>{{Operation::Kind::kRead, pipe.get(), 0, got, {}, 1}});
  const Descriptor end(::open(path.c_str(), O_WRONLY));
  std::vector<Completion> out;
  ASSERT_EQ(::write(end.get(), "abc", 3), 3);
  EXPECT_EQ(queue->wait(0, &out), 0u);
  ASSERT_EQ(::write(end.get(), "def", 3), 3);
  EXPECT_EQ(queue->wait(1, &out), 1u);
  EXPECT_EQ(out[0].bytes, 6u);
  EXPECT_EQ(got, "abcdef");
}

class PosixQueueOver : public OverDevices {};
INSTANTIATE_TEST_SUITE_P(Engines, PosixQueueOver, ::testing::ValuesIn(posix_implementations()),
                         implementation_name);

TEST_P(PosixQueueOver, InAChildOfForkItRefusesAndTheParentsGoesOn) {
  const auto file = open("a", OpenMode::kCreate);
  const auto queue = device().make_queue(4).value();
  std::vector<Completion> out;
  queue->submit(std::vector<Operation>{{Operation::Kind::kWrite, file.get(), 0, {}, "before", 1}});
  EXPECT_EQ(
      in_child([&]() mutable {
        auto inherited = std::unique_ptr<IoQueue>(queue.get());
        inherited->submit(std::vector<Operation>{{Operation::Kind::kWrite, file.get(), 0, {}, "CHILD!", 2}});
        if (inherited->in_flight() != 1) return 1;
        std::vector<Completion> refused;
        if (inherited->wait(1, &refused) != 1 || refused[0].tag != 2) return 2;
        if (refused[0].status.message().find("fork") == std::string_view::npos) return 3;
        inherited->wake();
        inherited.reset();
        return 42;
      }),
      42);
  queue->submit(std::vector<Operation>{{Operation::Kind::kWrite, file.get(), 6, {}, " after", 3}});
  while (queue->in_flight() > 0) queue->wait(2, &out);
  ASSERT_EQ(out.size(), 2u);
  for (const Completion& completion : out) EXPECT_TRUE(completion.status.ok());
  EXPECT_EQ(read("a"), "before after");
}

TEST_P(PosixQueueOver, AQueueMadeInAChildOfForkWorks) {
  if (test::kThreadSanitizer && GetParam().name.find("Threads") != std::string::npos)
    GTEST_SKIP() << "the sanitizer allows no threads there";
  const auto file = open("a", OpenMode::kCreate);
  const auto parents = device().make_queue(4).value();
  EXPECT_EQ(in_child([&] {
              const auto queue = device().make_queue(4).value();
              queue->submit(std::vector<Operation>{{Operation::Kind::kWrite, file.get(), 0, {}, "child", 1}});
              std::vector<Completion> out;
              queue->wait(1, &out);
              return out.size() == 1 && out[0].status.ok() ? 42 : 1;
            }),
            42);
  EXPECT_EQ(read("a"), "child");
}

int descriptor_past_the_page_cache() {
  for (int fd = 3; fd < 256; ++fd) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_DIRECT) != 0) return fd;
  }
  return -1;
}

class LyingFileSystem : public ::testing::TestWithParam<Engine> {
 protected:
  // A file whose direct descriptor opens well and answers each write with EINVAL.
  std::unique_ptr<File> open(Direct direct) {
    auto file = PosixDevice({.direct = direct}).open(directory_.path() + "/a", OpenMode::kOpenOrCreate);
    if (!file.ok()) return nullptr;
    (*file)->prefer_direct();
    const int fd = descriptor_past_the_page_cache();
    const Descriptor refuses(::open("/proc/self/oom_score_adj", O_WRONLY));
    if (fd < 0 || !refuses.valid() || dup2(refuses.get(), fd) != fd) return nullptr;
    return std::move(file).value();
  }
  Completion write_page(File& file, uint64_t offset) {
    const auto queue = PosixDevice({.engine = GetParam()}).make_queue(2);
    if (!queue.ok()) return {0, 0, queue.status()};
    alignas(4096) static char page[4096];
    std::fill_n(page, sizeof(page), 'p');
    (*queue)->submit(
        std::vector<Operation>{{Operation::Kind::kWrite, &file, offset, {}, {page, sizeof(page)}, 0}});
    std::vector<Completion> out;
    (*queue)->wait(1, &out);
    return out.at(0);
  }
  const TemporaryDirectory directory_;
};
INSTANTIATE_TEST_SUITE_P(Engines, LyingFileSystem, ::testing::Values(Engine::kAuto, Engine::kThreads));

TEST_P(LyingFileSystem, IsServedThroughThePageCacheAfterTheFirstRefusal) {
  const auto file = open(Direct::kAuto);
  if (!file) GTEST_SKIP() << "no direct descriptor, or no /proc, here";
  EXPECT_NE(file->direct_alignment(), 0u);
  int lines = 0;
  set_log_level(LogLevel::kInfo);
  set_log_sink([&](LogLevel level, std::string_view /*message*/) { lines += level == LogLevel::kInfo; });
  for (const uint64_t offset : {0, 4096}) EXPECT_TRUE(write_page(*file, offset).status.ok());
  set_log_sink({});
  set_log_level(LogLevel::kWarn);
  EXPECT_EQ(lines, 1);
  EXPECT_EQ(file->direct_alignment(), 0u);
  EXPECT_EQ(*file->size(), 8192u);
}

TEST_P(LyingFileSystem, IsAnErrorWhereDirectTransfersAreRequired) {
  const auto file = open(Direct::kAlways);
  if (!file) GTEST_SKIP() << "no direct descriptor, or no /proc, here";
  const Status status = write_page(*file, 0).status;
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(file->path()));
}

TEST(PosixFile, DirectIsAPreferenceThatCanBeForbidden) {
  const TemporaryDirectory directory;
  const auto file =
      PosixDevice({.direct = Direct::kNever}).open(directory.path() + "/a", OpenMode::kCreate).value();
  file->prefer_direct();
  EXPECT_EQ(file->direct_alignment(), 0u);
}

TEST(PosixFile, DirectIsNotOpenedOnAnotherFileOfThatName) {
  const TemporaryDirectory directory;
  PosixDevice device;
  const std::string path = directory.path() + "/a";
  const auto file = device.open(path, OpenMode::kCreate).value();
  ASSERT_TRUE(device.rename(path, path + ".old").ok());
  ASSERT_TRUE(device.open(path, OpenMode::kCreate).ok());
  file->prefer_direct();
  EXPECT_EQ(file->direct_alignment(), 0u);
}

TEST(PosixFile, DirectIsAClearErrorWhereItIsRequiredAndImpossible) {
  const Status status =
      PosixDevice({.direct = Direct::kAlways}).open("/proc/self/comm", OpenMode::kRead).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("/proc/self/comm"));
}

TEST(PosixFile, WhatCannotBeReservedIsNoFailure) {
  const auto file = open_special("/dev/null");
  file->reserve(1);
  file->reserve(UINT64_MAX);
  EXPECT_TRUE(file->pwrite(0, "x").ok());
}

TEST(ReadQueues, AreAdvisedUnlessAnEngineIsAskedFor) {
  std::string path = testing::TempDir() + "swale-read-queue-XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  ::close(fd);
  const auto kind = [&](Engine engine) {
    PosixDevice device({.engine = engine});
    const auto file = device.open(path, OpenMode::kRead).value();
    const auto queue = device.make_read_queue(4, *file).value();
    if (dynamic_cast<AdvisedQueue*>(queue.get()) != nullptr) return "advised";
    return dynamic_cast<ThreadQueue*>(queue.get()) != nullptr ? "threads" : "ring";
  };
  EXPECT_STREQ(kind(Engine::kAuto), "advised");  // TempDir is local
  EXPECT_STREQ(kind(Engine::kThreads), "threads");
  EXPECT_STREQ(kind(Engine::kUring), "ring");
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace swale::io::posix_queue_test
