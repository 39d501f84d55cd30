// The tree of a job through the kernel: random calls beside a plain directory, over lives of a server that
// end by a drain, without one, or by SIGKILL.
#include "fuse/job_mount.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "fs/job/testing/job_world.h"
#include "fs/testing/random_calls.h"
#include "fuse/testing/test_mount.h"

namespace swale::fuse::job_mount_test {
namespace {

constexpr uint64_t kCallsOfALife = 800;
enum class End { kDrain, kKeep, kKill };

uint64_t lives() {
  const char* factor = std::getenv("SWALE_MOUNT_LIVES");
  return factor ? std::strtoull(factor, nullptr, 10) : 6;
}

class JobMountTest : public MountRig {
 protected:
  std::string begin(End end) {
    JobMountOptions options;
    options.backing = backing();
    options.at = mountpoint();
    options.buffer = root_ + "/buffer";
    options.memory_bytes = 32 * kMiB;
    options.at_end = end == End::kDrain ? JobMountOptions::AtEnd::kDrain : JobMountOptions::AtEnd::kKeep;
    options.threads = 4;
    return start([&](const std::function<void()>& ready) {
      options.ready = [ready](const std::string&) { ready(); };
      return run_job_mount(options);
    });
  }
  void finish(End end) {
    if (end == End::kKill) return kill_mount();
    ::kill(child_, SIGTERM);
    EXPECT_EQ(wait_for_mount(), 0);
    EXPECT_FALSE(mounted());
  }
};

TEST_F(JobMountTest, RandomCallsGiveWhatAPlainDirectoryGivesAlsoAfterKills) {
  fs::PosixCalls tested(mountpoint());
  fs::PlainCalls model(plain(), fs::PlainCalls::Above::kKernel), on_backing(backing());
  uint64_t calls = 0;
  End before = End::kDrain;
  for (uint64_t life = 0; life < lives(); ++life) {
    const End end = static_cast<End>((life + 1) % 3);
    ASSERT_EQ(begin(end), "") << "life " << life;
    fs::RandomCalls random(tested, model, 9000 + life);
    if (before == End::kKill) random.even_times();  // a kill may leave others
    ASSERT_EQ(random.compare_trees(), "") << "life " << life;
    ASSERT_EQ(random.run(kCallsOfALife), "") << "life " << life;
    ASSERT_EQ(random.compare_trees(), "") << "life " << life;
    finish(end);
    random.close_all();
    calls += random.calls();
    if (end == End::kDrain) {
      fs::RandomCalls compare(on_backing, model, 0);
      EXPECT_EQ(compare.compare_trees(), "") << "life " << life << ", the backing directory";
      EXPECT_FALSE(std::filesystem::exists(backing() + "/.swale"));
    }
    if (life + 1 == lives()) std::printf("%s\n%lu calls\n", random.summary().c_str(), calls);
    before = end;
  }
}

TEST_F(JobMountTest, SignalsComeToTheFirstThreadAlone) {
  ASSERT_EQ(begin(End::kDrain), "");
  std::ofstream(mountpoint() + "/f") << "some text";
  EXPECT_EQ(threads_that_take(SIGTERM), std::vector{std::to_string(child_)});
  finish(End::kDrain);
}

// Writes that come at the same time, within the file and behind its end.
TEST_F(JobMountTest, ProcessesWriteOneFileAtTheSameTime) {
  constexpr uint64_t kWriters = 4, kRecords = 60, kBytes = 47'008;
  ASSERT_EQ(begin(End::kDrain), "");
  const std::string path = mountpoint() + "/shared";
  std::vector<pid_t> writers;
  for (uint64_t writer = 0; writer < kWriters; ++writer) {
    writers.push_back(::fork());
    if (writers.back() != 0) continue;
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    bool wrote = file >= 0;
    for (uint64_t i = 0; i < kRecords; ++i) {
      const uint64_t record = i * kWriters + writer;
      const std::string bytes(kBytes, static_cast<char>('a' + record % 26));
      wrote = wrote && ::pwrite(file, bytes.data(), kBytes, static_cast<off_t>(record * kBytes)) == kBytes;
    }
    ::_exit(wrote ? 0 : 1);
  }
  // Who looks meanwhile sees it grow, and no further than it does.
  uint64_t seen = 0, looks = 0;
  for (const pid_t writer : writers) {
    int status = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(writer, &status, WNOHANG)) == 0) {
      struct stat found = {};
      if (::stat(path.c_str(), &found) != 0) continue;
      EXPECT_GE(static_cast<uint64_t>(found.st_size), seen);
      seen = static_cast<uint64_t>(found.st_size);
      ++looks;
    }
    ASSERT_EQ(ended, writer);
    EXPECT_EQ(status, 0);
  }
  EXPECT_LE(seen, kWriters * kRecords * kBytes);
  EXPECT_GT(looks, 0u);
  std::string expected;
  for (uint64_t record = 0; record < kWriters * kRecords; ++record)
    expected.append(kBytes, static_cast<char>('a' + record % 26));
  EXPECT_TRUE(content(path) == expected);
  finish(End::kDrain);
  EXPECT_TRUE(content(backing() + "/shared") == expected);
}

// Two descriptors of a file that take turns behind its end.
class TwoWriters {
 public:
  explicit TwoWriters(const std::string& path) {
    for (int& file : files_) file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  }
  ~TwoWriters() { close_all(); }
  void close_all() {
    for (int& file : files_)
      if (file >= 0) ::close(std::exchange(file, -1));
  }
  // Four records more. The size that is.
  uint64_t write_more() {
    for (int i = 0; i < 4; ++i, end_ += kRecord)
      EXPECT_EQ(::pwrite(files_[i % 2], std::string(kRecord, 'x').data(), kRecord, static_cast<off_t>(end_)),
                static_cast<ssize_t>(kRecord));
    return end_;
  }
  int file() const { return files_[0]; }
  // What the kernel takes for it, without asking.
  uint64_t believed() const {
    struct statx found = {};
    EXPECT_EQ(::statx(files_[0], "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &found), 0);
    return found.stx_size;
  }
  void appended(uint64_t bytes) { end_ += bytes; }

 private:
  static constexpr uint64_t kRecord = 1'000;
  int files_[2] = {-1, -1};
  uint64_t end_ = 0;
};

// Linux 6.7 and later: before, the kernel keeps pages of files, and is told nothing.
bool kernel_is_told() {
  utsname name = {};
  ::uname(&name);
  int major = 0, minor = 0;
  std::sscanf(name.release, "%d.%d", &major, &minor);
  return major > 6 || (major == 6 && minor >= 7);
}

// Writers that take turns have the kernel believe in a later end. No program sees that.
TEST_F(JobMountTest, AnEndAheadOfWritersIsTheKernelsAlone) {
  ASSERT_EQ(begin(End::kDrain), "");
  const std::string path = mountpoint() + "/f";
  TwoWriters writers(path);
  const auto is_ahead = [&](uint64_t size) { return writers.believed() > size; };
  struct stat found = {};
  uint64_t size = writers.write_more();
  EXPECT_EQ(is_ahead(size), kernel_is_told());
  char bytes[64];
  EXPECT_EQ(::pread(writers.file(), bytes, sizeof(bytes), static_cast<off_t>(size) - 10), 10);
  EXPECT_EQ(::pread(writers.file(), bytes, sizeof(bytes), static_cast<off_t>(size)), 0);
  EXPECT_EQ(is_ahead(size), kernel_is_told()) << "still: reads ask the server";
  EXPECT_EQ(::fstat(writers.file(), &found), 0);
  EXPECT_EQ(static_cast<uint64_t>(found.st_size), size);
  EXPECT_EQ(writers.believed(), size) << "from then on";

  size = writers.write_more();
  EXPECT_EQ(is_ahead(size), kernel_is_told());
  EXPECT_EQ(::lseek(writers.file(), 0, SEEK_END), static_cast<off_t>(size));
  size = writers.write_more();
  EXPECT_EQ(is_ahead(size), kernel_is_told());
  EXPECT_EQ(std::filesystem::file_size(path), size);
  size = writers.write_more();
  EXPECT_EQ(content(path).size(), size);

  size = writers.write_more();
  const int copy = ::open((mountpoint() + "/copy").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  off_t from = 0;
  EXPECT_EQ(::copy_file_range(writers.file(), &from, copy, nullptr, size + kMiB, 0),
            static_cast<ssize_t>(size));
  ::close(copy);

  size = writers.write_more();
  EXPECT_EQ(is_ahead(size), kernel_is_told());
  writers.close_all();
  ASSERT_EQ(::chmod(path.c_str(), 0444), 0);  // sealed: the kernel keeps its pages
  EXPECT_EQ(content(path).size(), size);
  EXPECT_EQ(content(path).size(), size);
  finish(End::kDrain);
  EXPECT_EQ(std::filesystem::file_size(backing() + "/f"), size);
}

// The kernel, which believes in a later end, writes the last page of a mapping whole.
TEST_F(JobMountTest, APageOfAMappingMakesNoFileLonger) {
  constexpr size_t kBytes = 3 * 4096 + 100;
  ASSERT_EQ(begin(End::kDrain), "");
  const std::string path = mountpoint() + "/f";
  std::ofstream(path) << std::string(kBytes, 'x');
  TwoWriters writers(path);
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, writers.file(), 0);
  ASSERT_NE(memory, MAP_FAILED) << ::strerror(errno);
  static_cast<char*>(memory)[kBytes - 1] = 'm';
  writers.write_more();  // at its beginning
  EXPECT_EQ(writers.believed() > kBytes, kernel_is_told());
  EXPECT_EQ(::msync(memory, kBytes, MS_SYNC), 0);
  ::munmap(memory, kBytes);
  EXPECT_EQ(std::filesystem::file_size(path), kBytes);
  EXPECT_EQ(content(path).back(), 'm');
  writers.close_all();
  finish(End::kDrain);
  EXPECT_EQ(std::filesystem::file_size(backing() + "/f"), kBytes);
}

// The kernel takes the place of an append, and so the descriptor's after it, from the end that it knows.
TEST_F(JobMountTest, FilesThatAreAppendedToAreLeftAlone) {
  ASSERT_EQ(begin(End::kDrain), "");
  TwoWriters writers(mountpoint() + "/f");
  writers.write_more();
  const int end = ::open((mountpoint() + "/f").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  const uint64_t size = writers.write_more();
  EXPECT_EQ(writers.believed(), size);
  EXPECT_EQ(::write(end, "appended", 8), 8);
  EXPECT_EQ(::lseek(end, 0, SEEK_CUR), static_cast<off_t>(size + 8));
  ::close(end);
  writers.appended(8);
  const auto is_told_again = [&] {
    const uint64_t now = writers.write_more();
    return writers.believed() > now;
  };
  while (kernel_is_told() && !is_told_again()) ::usleep(5'000);  // until it has heard of the release
  finish(End::kDrain);
}

// The kernel keeps no pages of a file but those that are mapped, where it can map such a file.
// Large reads are answered from the logs' memory: of one writer or several, over what was overwritten, with a
// hole, past the end, and after what is there was brought to the backing.
TEST_F(JobMountTest, LargeReadsGiveWhatWasWrittenLast) {
  ASSERT_EQ(begin(End::kDrain), "");
  const std::string path = mountpoint() + "/large";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  std::string model;
  const auto put = [&](uint64_t offset, size_t bytes, int seed) {
    std::string data(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>((i * 31 + i / 4096 + seed * 77u) >> 2 | 1);
    ASSERT_EQ(::pwrite(file, data.data(), bytes, static_cast<off_t>(offset)), static_cast<ssize_t>(bytes));
    if (model.size() < offset + bytes) model.resize(offset + bytes, '\0');
    model.replace(offset, bytes, data);
  };
  const auto look = [&](uint64_t offset, size_t bytes) {
    const int reader = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(reader, 0);
    std::string out(bytes, '?');
    const ssize_t got = ::pread(reader, out.data(), bytes, static_cast<off_t>(offset));
    ::close(reader);
    const std::string expected = offset < model.size() ? model.substr(offset, bytes) : "";
    ASSERT_EQ(got, static_cast<ssize_t>(expected.size())) << "at " << offset;
    EXPECT_TRUE(out.substr(0, expected.size()) == expected) << bytes << " bytes at " << offset;
  };
  const auto look_everywhere = [&] {
    const uint64_t offsets[] = {0, 4096, 65'536, 99'999, 1 << 20, 2'500'000, 5'000'000, 7'000'000};
    for (const size_t bytes : {size_t{64} << 10, size_t{300'000}, size_t{1} << 20})
      for (const uint64_t offset : offsets) look(offset, bytes);
  };
  for (int i = 0; i < 3; ++i) put(static_cast<uint64_t>(i) << 20, 1 << 20, i);
  look_everywhere();
  for (int i = 0; i < 40; ++i) put(static_cast<uint64_t>(i) * 70'003, 47'008, 10 + i);
  look_everywhere();
  put(5'500'000, 100'000, 99);  // behind a hole
  look_everywhere();
  ASSERT_EQ(::ftruncate(file, 2'600'000), 0);
  model.resize(2'600'000);
  look_everywhere();
  ASSERT_EQ(::fsync(file), 0);
  put(1'000'000, 200'000, 100);
  look_everywhere();
  ::close(file);
  finish(End::kDrain);
}

TEST_F(JobMountTest, MappingsAndCallsSeeEachOther) {
  ASSERT_EQ(begin(End::kDrain), "");
  const int file = ::open((mountpoint() + "/mapped").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(file, 0);
  const std::string first(20'000, 'a');
  ASSERT_EQ(::pwrite(file, first.data(), first.size(), 0), 20'000);
  void* const memory = ::mmap(nullptr, first.size(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(memory, MAP_FAILED) << ::strerror(errno);
  char* const mapped = static_cast<char*>(memory);
  EXPECT_EQ(std::string(mapped, 3), "aaa");
  ASSERT_EQ(::pwrite(file, "bb", 2, 1), 2);
  EXPECT_EQ(std::string(mapped, 4), "abba");
  mapped[2] = 'c';
  char found[4];
  ASSERT_EQ(::pread(file, found, 4, 0), 4);
  EXPECT_EQ(std::string(found, 4), "abca");
  mapped[19'999] = 'z';
  EXPECT_EQ(::msync(memory, first.size(), MS_SYNC), 0);
  ::munmap(memory, first.size());
  ::close(file);
  finish(End::kDrain);
  std::string expected = first;
  expected[1] = 'b', expected[2] = 'c', expected[19'999] = 'z';
  EXPECT_TRUE(content(backing() + "/mapped") == expected);
}

}  // namespace
}  // namespace swale::fuse::job_mount_test
