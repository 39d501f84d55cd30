// Programs that append by themselves to the tree of a job, through the kernel: processes that write by log
// and by mount, read and cut one file in turn, beside a string; their ends and the server's.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/rng.h"
#include "fs/client/client_file.h"
#include "fs/job/job_attach.h"
#include "fs/job/testing/job_world.h"
#include "fuse/job_mount.h"
#include "fuse/mounted.h"
#include "fuse/testing/test_mount.h"

namespace swale::fuse::job_client_test {
namespace {

using fs::ClientFile;
using testing::HasSubstr;

constexpr uint64_t kFileBytes = 1 << 18;
constexpr size_t kWriteBytesMax = 50'000;
constexpr int kPrograms = 4;
constexpr int kReleaseTriesMax = 60'000;  // a millisecond apart: only a release that never comes takes all

uint64_t calls_wanted() {
  const char* const wanted = std::getenv("SWALE_CLIENT_CALLS");
  return wanted ? std::strtoull(wanted, nullptr, 10) : 4'000;
}

std::string pattern(uint64_t write, size_t bytes) {
  std::string out(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>((write * 2654435761u + i * 31) >> 3 | 1);
  return out;
}

// What a program is told to do with the file, and what it answers.
struct Order {
  enum class What : uint32_t { kWrite, kRead, kSize, kTruncate, kAppend, kCommit, kReopen, kEnd };
  What what = What::kEnd;
  uint32_t bytes = 0;
  uint64_t offset = 0;
  uint64_t write = 0;  // whose pattern
};
struct Answer {
  uint64_t number = 0;  // read: a hash of the bytes; size
  uint32_t bytes = 0;
  uint32_t failed = 0;
  uint32_t by_log = 0;
  uint64_t read_in_logs = 0;  // bytes, by this open of the file
};

uint64_t hash_of(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

// What a program of the test does, on one file.
class Program {
 public:
  Program(std::string path, const ClientFile::Options& options) : path_(std::move(path)), options_(options) {}
  Answer obey(const Order& order) {
    using What = Order::What;
    Answer answer;
    if (file_ == nullptr || order.what == What::kReopen) answer.failed = open() ? 0 : 1;
    if (file_ == nullptr) return answer;
    if (order.what == What::kWrite)
      answer.failed = !file_->write(order.offset, pattern(order.write, order.bytes)).ok();
    if (order.what == What::kTruncate) answer.failed = !file_->truncate(order.offset).ok();
    if (order.what == What::kAppend)
      answer.failed = !file_->write_next(pattern(order.write, order.bytes)).ok();
    if (order.what == What::kCommit) answer.failed = !file_->commit().ok();
    if (order.what == What::kSize) {
      const auto found = file_->stat();
      answer.failed = !found.ok();
      if (found.ok()) answer.number = static_cast<uint64_t>(found->st_size);
    }
    if (order.what == What::kRead) {
      std::string out(order.bytes, '\0');
      const auto got = file_->read(order.offset, out);
      answer.failed = !got.ok();
      if (got.ok()) out.resize(*got);
      answer.number = hash_of(out);
      answer.bytes = static_cast<uint32_t>(out.size());
    }
    answer.by_log = file_->writes_by_log();
    answer.read_in_logs = file_->bytes_read_in_logs();
    return answer;
  }

 private:
  bool open() {
    file_.reset();
    auto opened = ClientFile::open(path_, options_);
    if (!opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.status().to_string().c_str());
      return false;
    }
    file_ = std::move(*opened);
    return true;
  }

  const std::string path_;
  const ClientFile::Options options_;
  std::unique_ptr<ClientFile> file_;
};

// A process that does what it is told.
class Process {
 public:
  Process(const std::string& path, const ClientFile::Options& options) {
    EXPECT_EQ(::pipe2(orders_, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(answers_, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::close(orders_[1]);
    ::close(answers_[0]);
    Program program(path, options);
    Order order;
    while (::read(orders_[0], &order, sizeof(order)) == static_cast<ssize_t>(sizeof(order)) &&
           order.what != Order::What::kEnd) {
      const Answer answer = program.obey(order);
      static_cast<void>(::write(answers_[1], &answer, sizeof(answer)));
    }
    ::_exit(0);
  }
  ~Process() {
    if (pid_ > 0) kill();
    for (const int end : {orders_[0], orders_[1], answers_[0], answers_[1]}) ::close(end);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Answer tell(const Order& order) {
    Answer answer;
    EXPECT_EQ(::write(orders_[1], &order, sizeof(order)), static_cast<ssize_t>(sizeof(order)));
    EXPECT_EQ(::read(answers_[0], &answer, sizeof(answer)), static_cast<ssize_t>(sizeof(answer)));
    return answer;
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  int orders_[2] = {-1, -1};
  int answers_[2] = {-1, -1};
  pid_t pid_ = 0;
};

class JobClientTest : public MountRig {
 protected:
  std::string begin() {
    JobMountOptions options;
    options.backing = backing();
    options.at = mountpoint();
    options.buffer = root_ + "/buffer";
    options.memory_bytes = 128 * kMiB;
    options.at_end = JobMountOptions::AtEnd::kKeep;
    options.threads = 4;
    return start([&](const std::function<void()>& ready) {
      options.ready = [ready](const std::string&) { ready(); };
      return run_job_mount(options);
    });
  }
  std::string path(const std::string& name = "file") const { return mountpoint() + "/" + name; }
  static ClientFile::Options by_log(int flags = O_RDWR | O_CREAT) {
    return {flags, 0644, ClientFile::By::kLogOnly};
  }
  std::unique_ptr<ClientFile> open(const std::string& name, const ClientFile::Options& options) {
    auto opened = ClientFile::open(path(name), options);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return opened.ok() ? std::move(*opened) : nullptr;
  }
  // Without an open for which the kernel keeps pages.
  std::string content_now() {
    const auto file = open("file", {O_RDONLY, 0, ClientFile::By::kMount});
    return file == nullptr ? "(missing)" : read(*file, 0, 8 * kFileBytes);
  }
  static std::string read(const ClientFile& file, uint64_t offset = 0, size_t bytes = kFileBytes) {
    std::string out(bytes, '\0');
    const auto got = file.read(offset, out);
    EXPECT_TRUE(got.ok()) << got.status().to_string();
    out.resize(got.ok() ? *got : 0);
    return out;
  }
  static void write(ClientFile& file, uint64_t offset, const std::string& bytes) {
    const Status written = file.write(offset, bytes);
    EXPECT_TRUE(written.ok()) << written.to_string();
  }
  // A server of the test's own.
  std::string begin_with(const std::function<void(fs::JobFsOptions&)>& change) {
    return start([&](const std::function<void()>& ready) -> Status {
      fs::JobWorld world;
      change(world.options());
      std::unique_ptr<fs::JobAttach> attach;
      {
        const SignalsBlocked blocked;
        world.start();
        const std::filesystem::path folder = world.fs().folder_of_logs();
        SWALE_ASSIGN_OR_RETURN(attach, fs::JobAttach::open(world.fs(), folder.parent_path()));
      }
      Mounted mounted;
      mounted.mountpoint = mountpoint();
      mounted.name = "test";
      mounted.threads = 4;
      return serve_mounted(mounted, &world.fs(), raise_descriptor_limit(), ready);
    });
  }
  // Once the kernel has told that nobody keeps pages any more.
  static bool gets_a_log(Process& program) {
    for (int tries = 0; tries < kReleaseTriesMax; ++tries) {
      const Answer answer = program.tell({Order::What::kCommit, 0, 0, 0});
      EXPECT_EQ(answer.failed, 0u);
      if (answer.by_log != 0) return true;
      ::usleep(1'000);
    }
    return false;
  }
  uint64_t stale_reads(bool* by_log);
  uint64_t stale_under_a_grant(int flags);
  bool finds_pages_of_before();
};

// Any write that returned is seen by all processes of its node, by whatever way each of them goes.
TEST_F(JobClientTest, ProcessesSeeWhatOthersHaveWrittenAtOnce) {
  ASSERT_EQ(begin(), "");
  using What = Order::What;
  std::vector<std::unique_ptr<Process>> programs;
  for (int i = 0; i < kPrograms; ++i) programs.push_back(std::make_unique<Process>(path(), by_log()));
  programs.push_back(
      std::make_unique<Process>(path(), ClientFile::Options{O_RDWR | O_CREAT, 0644, ClientFile::By::kMount}));
  programs.push_back(std::make_unique<Process>(
      path(), ClientFile::Options{O_RDWR | O_CREAT | O_APPEND, 0644, ClientFile::By::kLog}));
  Process& appending = *programs.back();
  Rng rng(7);
  std::string model;
  uint64_t by_log = 0, reads_in_logs = 0, calls = calls_wanted();
  for (uint64_t call = 0; call < calls; ++call) {
    Process& program = *programs[rng.below(programs.size() - 1)];
    Order order;
    order.offset = rng.below(kFileBytes);
    order.bytes = static_cast<uint32_t>(1 + rng.below(kWriteBytesMax));
    order.write = call;
    const auto put = [&](uint64_t at) {
      if (model.size() < at + order.bytes) model.resize(at + order.bytes, '\0');
      model.replace(at, order.bytes, pattern(call, order.bytes));
    };
    const uint64_t die = rng.below(100);
    if (die < 40) {
      order.what = What::kWrite;
      const Answer answer = program.tell(order);
      ASSERT_EQ(answer.failed, 0u) << "call " << call;
      by_log += answer.by_log;
      put(order.offset);
    } else if (die < 75) {
      order.what = What::kRead;
      const Answer answer = program.tell(order);
      const std::string expected =
          order.offset < model.size() ? model.substr(order.offset, order.bytes) : std::string();
      ASSERT_EQ(answer.failed, 0u) << "call " << call;
      ASSERT_EQ(answer.bytes, expected.size()) << "call " << call;
      ASSERT_EQ(answer.number, hash_of(expected)) << "call " << call;
      reads_in_logs += answer.read_in_logs > 0;
    } else if (die < 85) {
      order.what = What::kSize;
      ASSERT_EQ(program.tell(order).number, model.size()) << "call " << call;
    } else if (die < 90 && model.size() < 2 * kFileBytes) {
      order.what = What::kAppend;
      ASSERT_EQ(appending.tell(order).failed, 0u) << "call " << call;
      put(model.size());
    } else if (die < 93) {
      order.what = What::kTruncate;
      ASSERT_EQ(program.tell(order).failed, 0u) << "call " << call;
      model.resize(order.offset, '\0');
    } else {
      order.what = die < 97 ? What::kCommit : What::kReopen;
      ASSERT_EQ(program.tell(order).failed, 0u) << "call " << call;
    }
  }
  std::printf("%lu calls of %zu processes, %lu writes by log, %lu reads by those that have read in logs\n",
              calls, programs.size(), by_log, reads_in_logs);
  EXPECT_GT(by_log, calls / 10);
  EXPECT_GT(reads_in_logs, calls / 20);
  EXPECT_EQ(content_now(), model);
}

// Looks at a shared mapping again and again, whose pages the kernel keeps, while another process writes the
// file. Returns how often what had been written was not seen.
uint64_t JobClientTest::stale_reads(bool* by_log) {
  constexpr uint64_t kRounds = 50;
  constexpr uint32_t kBytes = 5'000;
  using What = Order::What;
  Process writer(path(), {O_RDWR, 0644, ClientFile::By::kLog});  // opens it when it is told something
  const int fd = ::open(path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  EXPECT_EQ(::ftruncate(fd, kBytes), 0);
  void* const mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
  EXPECT_NE(mapped, MAP_FAILED) << ::strerror(errno);
  if (mapped == MAP_FAILED) return 0;
  uint64_t stale = 0;
  *by_log = false;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    const Answer answer = writer.tell({What::kWrite, kBytes, 0, round});
    EXPECT_EQ(answer.failed, 0u);
    *by_log |= answer.by_log != 0;
    stale += std::string(static_cast<const char*>(mapped), kBytes) != pattern(round, kBytes);
  }
  ::munmap(mapped, kBytes);
  ::close(fd);
  EXPECT_TRUE(gets_a_log(writer));
  return stale;
}

TEST_F(JobClientTest, AMappingThatTheKernelKeepsPagesForSeesWritesToo) {
  ASSERT_EQ(begin(), "");
  bool by_log = true;
  EXPECT_EQ(stale_reads(&by_log), 0u);
  EXPECT_FALSE(by_log);
}

TEST_F(JobClientTest, WritesByLogBesideKeptPagesWouldBeNoticed) {
  ASSERT_EQ(begin_with([](fs::JobFsOptions& options) { options.refuses_kept_pages = false; }), "");
  bool by_log = false;
  EXPECT_GT(stale_reads(&by_log), 0u);
  EXPECT_TRUE(by_log);
  ::kill(child_, SIGTERM);
  EXPECT_EQ(wait_for_mount(), 0);
}

// The same of a mapping of an open that comes after a grant, or with O_DIRECT.
uint64_t JobClientTest::stale_under_a_grant(int flags) {
  constexpr uint64_t kRounds = 50;
  constexpr uint32_t kBytes = 5'000;
  using What = Order::What;
  Process writer(path(), {O_RDWR | O_CREAT, 0644, ClientFile::By::kLog});
  Process other(path(), {O_RDWR, 0644, ClientFile::By::kLog});  // opens it later: it gets no grant
  EXPECT_EQ(writer.tell({What::kWrite, kBytes, 0, 0}).by_log, 1u);
  const int fd = ::open(path().c_str(), flags | O_CLOEXEC);
  void* const mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
  EXPECT_NE(mapped, MAP_FAILED) << ::strerror(errno);
  if (mapped == MAP_FAILED) return 0;
  const auto shows = [&](uint64_t round) {
    return std::string(static_cast<const char*>(mapped), kBytes) == pattern(round, kBytes);
  };
  EXPECT_TRUE(shows(0));
  uint64_t stale = 0, logged = 0;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    const Answer answer = writer.tell({What::kWrite, kBytes, 0, round});
    EXPECT_EQ(answer.failed, 0u);
    logged += answer.by_log;
    stale += shows(round) ? 0 : 1;
    const Answer by_mount = other.tell({What::kWrite, kBytes, 0, round + kRounds});
    EXPECT_EQ(by_mount.failed, 0u);
    stale += shows(round + kRounds) ? 0 : 1;
  }
  EXPECT_EQ(logged, kRounds);
  // The last write of a process that ends is seen, too; and the mapping's end lets others have grants.
  writer.kill();
  stale += shows(2 * kRounds) ? 0 : 1;
  ::munmap(mapped, kBytes);
  ::close(fd);
  EXPECT_TRUE(gets_a_log(other));
  return stale;
}

TEST_F(JobClientTest, AMappingThatComesAfterAGrantSeesWritesByLog) {
  ASSERT_EQ(begin(), "");
  for (const int flags : {O_RDONLY, O_RDWR, O_RDONLY | O_DIRECT, O_RDWR | O_DIRECT}) {
    EXPECT_EQ(stale_under_a_grant(flags), 0u) << "flags " << flags;
  }
}

// A mapping that nobody has looked at, and pages that another open, which is over, has left: they are not
// asked for again. The file is on the backing.
bool JobClientTest::finds_pages_of_before() {
  constexpr uint32_t kBytes = 5'000;
  using What = Order::What;
  Process writer(path(), {O_RDWR, 0644, ClientFile::By::kLog});
  const int direct = ::open(path().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  void* const mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, direct, 0);
  EXPECT_NE(mapped, MAP_FAILED) << ::strerror(errno);
  if (mapped == MAP_FAILED) return false;
  const int reader = ::open(path().c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(writer.tell({What::kCommit, 0, 0, 0}).by_log, 0u) << "the kernel may keep pages";
  std::string seen(kBytes, '\0');
  EXPECT_EQ(::pread(reader, seen.data(), kBytes, 0), kBytes);
  EXPECT_EQ(seen, pattern(0, kBytes));
  ::close(reader);
  EXPECT_TRUE(gets_a_log(writer));
  EXPECT_EQ(writer.tell({What::kWrite, kBytes, 0, 1}).by_log, 1u);
  const bool stale = std::string(static_cast<const char*>(mapped), kBytes) != pattern(1, kBytes);
  ::munmap(mapped, kBytes);
  ::close(direct);
  return stale;
}

TEST_F(JobClientTest, AMappingFindsNoPagesFromBeforeAGrant) {
  for (const bool shows : {true, false}) {
    const auto change = [shows](fs::JobFsOptions& options) {
      std::ofstream(options.backing + "/file") << pattern(0, 5'000);
      options.shows_to_mappings = shows;
    };
    ASSERT_EQ(begin_with(change), "");
    EXPECT_EQ(finds_pages_of_before(), !shows);  // where none are dropped it would be noticed
    ::kill(child_, SIGTERM);
    EXPECT_EQ(wait_for_mount(), 0);
  }
}

TEST_F(JobClientTest, WritesByLogThatNoMappingSeesWouldBeNoticed) {
  ASSERT_EQ(begin_with([](fs::JobFsOptions& options) { options.shows_to_mappings = false; }), "");
  EXPECT_GT(stale_under_a_grant(O_RDONLY), 0u);
  ::kill(child_, SIGTERM);
  EXPECT_EQ(wait_for_mount(), 0);
}

TEST_F(JobClientTest, AFileOnNoTreeIsNotMadeAndTheErrorSaysWhatToDo) {
  const auto opened = ClientFile::open(plain() + "/file", by_log());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::kNotFound);
  EXPECT_THAT(opened.status().message(), HasSubstr("swale run --backing"));
  EXPECT_FALSE(std::filesystem::exists(plain() + "/file"));
  // Nor by a link that leads out of the tree.
  ASSERT_EQ(begin(), "");
  std::filesystem::create_symlink(plain(), path("out"));
  EXPECT_EQ(ClientFile::open(path("out") + "/file", by_log()).status().code(), Code::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(plain() + "/file"));
}

// A log has them before the server does.
TEST_F(JobClientTest, SynchronousWritesGoThroughTheMount) {
  ASSERT_EQ(begin(), "");
  EXPECT_TRUE(open("file", by_log())->writes_by_log());
  for (const int synchronous : {O_SYNC, O_DSYNC}) {
    const int flags = O_RDWR | synchronous;
    const auto file = open("file", {flags, 0, ClientFile::By::kLog});
    write(*file, 0, "synced");
    EXPECT_FALSE(file->writes_by_log());
    EXPECT_TRUE(file->commit().ok());  // asks for a log, where one may be had
    EXPECT_FALSE(file->writes_by_log());
    const auto refused = ClientFile::open(path(), by_log(flags));
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("O_SYNC"));
  }
  EXPECT_EQ(content_now(), "synced");
}

TEST_F(JobClientTest, AChildOfForkGoesOnWithALogOfItsOwn) {
  ASSERT_EQ(begin(), "");
  const auto file = open("file", by_log());
  write(*file, 0, "parent, ");
  const pid_t child = ::fork();
  if (child == 0) {
    const bool good = file->write(8, "child, ").ok() && file->writes_by_log();
    ::_exit(good ? 0 : 1);
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  EXPECT_EQ(state, 0);
  EXPECT_TRUE(file->writes_by_log());
  write(*file, 15, "parent");
  EXPECT_EQ(read(*file), "parent, child, parent");
}

TEST_F(JobClientTest, WhatAKilledProcessHasWrittenIsThereAndItsFileIsClosed) {
  ASSERT_EQ(begin(), "");
  using What = Order::What;
  for (uint64_t round = 1; round <= 20; ++round) {
    Process writer(path(), by_log());
    for (uint64_t i = 0; i < round; ++i)
      EXPECT_EQ(writer.tell({What::kWrite, 1000, i * 1000, round * 100 + i}).failed, 0u);
    writer.kill();
    std::string expected;
    for (uint64_t i = 0; i < round; ++i) expected += pattern(round * 100 + i, 1000);
    EXPECT_EQ(content_now(), expected);
  }
}

TEST_F(JobClientTest, WritesFailNamingNodeAndFileWhenTheServerIsGone) {
  ASSERT_EQ(begin(), "");
  const auto file = open("file", by_log());
  write(*file, 0, "written");
  kill_mount();
  const std::string bytes(kWriteBytesMax, 'x');
  Status failed;
  char node[64] = "";
  ::gethostname(node, sizeof(node) - 1);
  for (uint64_t i = 0; failed.ok(); ++i) failed = file->write(i * bytes.size(), bytes);  // until memory ends
  EXPECT_EQ(failed.posix_error(), EIO);
  EXPECT_THAT(failed.message(), HasSubstr(node));
  EXPECT_THAT(failed.message(), HasSubstr(path()));
  failed = file->sync();
  EXPECT_EQ(failed.posix_error(), EIO);
  EXPECT_THAT(failed.message(), HasSubstr(node));
  EXPECT_THAT(failed.message(), HasSubstr(path()));
  ASSERT_EQ(begin(), "");
  EXPECT_EQ(content_now().substr(0, 10), "xxxxxxxxxx");
  const auto again = open("file", by_log());
  write(*again, 0, "anew");
  EXPECT_EQ(read(*again, 0, 4), "anew");
}

TEST_F(JobClientTest, StridedRecordsAndPartsStandWhereTheyBelong) {
  ASSERT_EQ(begin(), "");
  const auto file = open("file", by_log());
  const std::string records = pattern(1, 10 * 470);
  ASSERT_TRUE(file->write(fs::StridedRecords{100, 1000, 470, 10}, records.data()).ok());
  const std::array<Bytes, 3> parts = {Bytes("one"), Bytes(""), Bytes("three")};
  ASSERT_TRUE(file->write(0, parts).ok());
  ASSERT_TRUE(file->write_next("1").ok());
  ASSERT_TRUE(file->write_next("2").ok());
  std::string expected(9'570, '\0');
  expected.replace(0, 8, "12ethree");
  for (size_t i = 0; i < 10; ++i) expected.replace(100 + 1000 * i, 470, records.substr(470 * i, 470));
  EXPECT_EQ(read(*file), expected);
  EXPECT_TRUE(file->sync().ok());
  EXPECT_TRUE(file->close().ok());
}

}  // namespace
}  // namespace swale::fuse::job_client_test
