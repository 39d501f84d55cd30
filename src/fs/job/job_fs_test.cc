#include "fs/job/job_fs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "fs/job/job_marks.h"
#include "fs/job/testing/content.h"
#include "fs/job/testing/job_world.h"
#include "fs/testing/random_calls.h"

namespace swale::fs::job_fs_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kCallsOfALife = 2'000;

uint64_t lives() {
  const char* factor = std::getenv("SWALE_FS_LIVES");
  return factor ? std::strtoull(factor, nullptr, 10) : 6;
}

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}
bool is_there(const std::string& path) {
  struct stat found;
  return ::lstat(path.c_str(), &found) == 0;
}

class JobFsTest : public testing::Test {
 protected:
  int open(const std::string& path, int flags, mode_t mode = 0644) {
    int handle = -1;
    EXPECT_EQ(calls().open(path, flags, mode, &handle), 0) << path;
    return handle;
  }
  void write(const std::string& path, const std::string& bytes, uint64_t offset = 0) {
    const int handle = open(path, O_RDWR | O_CREAT);
    EXPECT_EQ(calls().write(handle, offset, bytes), 0);
    EXPECT_EQ(calls().close(handle), 0);
  }
  std::string read(const std::string& path) {
    int handle = -1;
    if (const int failed = calls().open(path, O_RDONLY, 0, &handle); failed != 0)
      return "(" + std::string(::strerror(failed)) + ")";
    std::string out;
    EXPECT_EQ(calls().read(handle, 0, 1 << 20, &out), 0);
    EXPECT_EQ(calls().close(handle), 0);
    return out;
  }
  std::vector<std::string> list(const std::string& path) {
    std::vector<std::string> names;
    EXPECT_EQ(calls().list(path, &names), 0);
    return names;
  }
  void drain() {
    const Status drained = world_.fs().drain_all();
    ASSERT_TRUE(drained.ok()) << drained.to_string();
  }
  FileSystemCalls& calls() { return world_.calls(); }
  std::string backing(const std::string& path) const { return world_.backing() + "/" + path; }

  JobWorld world_;
};

// Random calls beside a plain directory, with the server gone and back between; after each drain the backing
// directory itself is the same.
TEST_F(JobFsTest, RandomCallsGiveWhatAPlainDirectoryGives) {
  PlainCalls plain(world_.plain());
  uint64_t calls_made = 0;
  for (uint64_t life = 0; life < lives(); ++life) {
    world_.options().drains_alone = life % 3 == 2;
    world_.options().idle = milliseconds(1);
    world_.start();
    RandomCalls random(calls(), plain, 2000 + life);
    ASSERT_EQ(random.run(kCallsOfALife), "") << "life " << life;
    ASSERT_EQ(random.compare_trees(), "") << "life " << life;
    random.close_all();
    ASSERT_EQ(random.compare_trees(), "") << "life " << life;
    calls_made += random.calls();
    if (life % 2 == 1) {
      drain();
      PlainCalls on_backing(world_.backing());
      std::filesystem::remove_all(backing(".swale"));
      RandomCalls compare(on_backing, plain, 0);
      ASSERT_EQ(compare.compare_trees(), "") << "life " << life << ", the backing directory";
    }
    world_.stop();
    if (life + 1 == lives()) std::printf("%s\n", random.summary().c_str());
  }
  std::printf("%lu calls\n", calls_made);
}

TEST_F(JobFsTest, WhatIsOnTheBackingIsSeenAndStaysWhatItIs) {
  std::filesystem::create_directories(backing("d/e"));
  put(backing("f"), "old bytes");
  put(backing("d/g"), "inner");
  ASSERT_EQ(::symlink("d/g", backing("l").c_str()), 0);
  ASSERT_EQ(::mkfifo(backing("fifo").c_str(), 0600), 0);
  ASSERT_EQ(::setxattr(backing("f").c_str(), "user.kept", "yes", 3, 0), 0);
  ASSERT_EQ(::chmod(backing("f").c_str(), 0640), 0);
  const timespec times[2] = {{1000, 0}, {2000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, backing("f").c_str(), times, 0), 0);
  world_.start();
  EXPECT_THAT(list(""), ElementsAre("d", "f", "l"));
  EXPECT_THAT(list("d"), ElementsAre("e", "g"));
  EXPECT_EQ(read("f"), "old bytes");
  std::string text;
  EXPECT_EQ(calls().read_symlink("l", &text), 0);
  EXPECT_EQ(text, "d/g");
  EXPECT_EQ(calls().get_attribute("f", "user.kept", &text), 0);
  EXPECT_EQ(text, "yes");
  struct stat found;
  ASSERT_EQ(calls().look("f", &found), 0);
  EXPECT_EQ(found.st_mode, S_IFREG | 0640u);
  EXPECT_EQ(found.st_size, 9);
  EXPECT_EQ(found.st_mtim.tv_sec, 2000);
  EXPECT_EQ(calls().look("fifo", &found), ENOENT);

  // Bytes come with the drain; mode, owner and attributes stay.
  write("f", "NEW", 0);
  EXPECT_EQ(read("f"), "NEW bytes");
  EXPECT_EQ(content(backing("f")), "old bytes");
  EXPECT_EQ(calls().set_attribute("f", "user.more", "m"), 0);
  EXPECT_EQ(calls().truncate("d/g", 0), 0);
  write("d/g", "replaced", 0);
  EXPECT_EQ(calls().set_time("d/g", 77), 0);
  write("d/e/made", "made");
  EXPECT_EQ(calls().set_attribute("d/e/made", "user.", "m"), EINVAL) << "the backing could not keep it";
  drain();
  EXPECT_EQ(content(backing("f")), "NEW bytes");
  EXPECT_EQ(content(backing("d/g")), "replaced");
  EXPECT_EQ(content(backing("d/e/made")), "made");
  ASSERT_EQ(::stat(backing("f").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode, S_IFREG | 0640u);
  ASSERT_EQ(::stat(backing("d/g").c_str(), &found), 0);
  EXPECT_EQ(found.st_mtim.tv_sec, 77);
  char value[8];
  EXPECT_EQ(::getxattr(backing("f").c_str(), "user.kept", value, sizeof(value)), 3);
  EXPECT_EQ(::getxattr(backing("f").c_str(), "user.more", value, sizeof(value)), 1);
}

// A program that goes down folder by folder makes paths that the kernel does not take at once.
TEST_F(JobFsTest, AFileMayBeDeeperThanAPathIsLong) {
  world_.start();
  std::string folder(200, 'd');
  ASSERT_EQ(calls().make_directory(folder, 0755), 0);
  while (folder.size() < PATH_MAX + 1000) {
    folder += "/" + std::string(200, 'd');
    ASSERT_EQ(calls().make_directory(folder, 0755), 0);
  }
  write(folder + "/f", "deep");
  EXPECT_EQ(calls().set_attribute(folder + "/f", "user.a", "1"), 0);
  EXPECT_EQ(calls().make_symlink("g", folder + "/l"), 0);
  EXPECT_EQ(calls().rename(folder + "/f", folder + "/g", 0), 0);
  drain();
  EXPECT_EQ(calls().set_mode(folder + "/g", 0600), 0);
  EXPECT_EQ(calls().rename(folder + "/g", folder + "/h", 0), 0);
  write(folder + "/h", "D");
  drain();
  world_.stop();
  std::filesystem::remove_all(backing(".swale"));
  world_.start();
  EXPECT_EQ(read(folder + "/h"), "Deep");
  std::string text;
  EXPECT_EQ(calls().get_attribute(folder + "/h", "user.a", &text), 0);
  EXPECT_EQ(text, "1");
  EXPECT_EQ(world_.fs().stats().undrained_files, 0u);
}

TEST_F(JobFsTest, WhatOthersHaveRemovedIsMadeAnew) {
  put(backing("f"), "old");
  world_.start();
  EXPECT_EQ(read("f"), "old");
  int handle = -1;
  EXPECT_EQ(calls().open("f", O_RDWR | O_CREAT | O_EXCL, 0644, &handle), EEXIST);
  std::filesystem::remove(backing("f"));
  ASSERT_EQ(calls().open("f", O_RDWR | O_CREAT | O_EXCL, 0644, &handle), 0);
  EXPECT_EQ(calls().write(handle, 0, "new"), 0);
  EXPECT_EQ(calls().close(handle), 0);
  EXPECT_EQ(calls().open("f", O_RDWR | O_CREAT | O_EXCL, 0644, &handle), EEXIST);
  write("f", "n", 2);
  drain();
  EXPECT_EQ(content(backing("f")), "nen");
}

// Of what this node writes; what only the backing has changes with the kernel's knowledge.
TEST_F(JobFsTest, TheKernelKeepsNoPagesOfFilesInLogs) {
  put(backing("f"), "old");
  world_.start();
  FileSystem& fs = world_.fs();
  const Caller caller = Caller::this_thread();
  Entry entry;
  ASSERT_EQ(fs.lookup(*fs.root(), "f", &entry), 0);
  const auto pages = [&](int flags) {
    std::unique_ptr<OpenFile> file;
    EXPECT_EQ(fs.open_file(*entry.node, flags, caller, &file), 0);
    const FileSystem::Pages found = fs.pages(*file, true);
    EXPECT_EQ(fs.pages(*file, false), FileSystem::Pages::kOfOpen) << "a kernel that cannot map it so";
    fs.release(std::move(file));
    return found;
  };
  EXPECT_EQ(pages(O_RDONLY), FileSystem::Pages::kOfOpen);
  EXPECT_EQ(pages(O_RDWR), FileSystem::Pages::kNone);
  write("f", "new");
  EXPECT_EQ(pages(O_RDONLY), FileSystem::Pages::kNone);
  fs.forget(entry.node, 1);
}

// Names of what is on the backing change there at once, so that no file of others comes into their place.
TEST_F(JobFsTest, NamesOnTheBackingFollowAtOnceAndNewFilesWithTheDrain) {
  std::filesystem::create_directories(backing("d/e"));
  put(backing("d/e/f"), "f");
  put(backing("gone"), "gone");
  put(backing("over"), "over");
  world_.start();
  EXPECT_EQ(calls().unlink("gone"), 0);
  EXPECT_FALSE(is_there(backing("gone")));
  EXPECT_EQ(calls().rename("d", "moved", 0), 0);
  EXPECT_TRUE(is_there(backing("moved/e/f")));
  EXPECT_EQ(read("moved/e/f"), "f");
  EXPECT_EQ(calls().make_directory("moved/n", 0700), 0);
  EXPECT_TRUE(is_there(backing("moved/n")));
  write("new", "n");
  EXPECT_FALSE(is_there(backing("new")));
  EXPECT_EQ(calls().rename("new", "moved/n/new", 0), 0);
  EXPECT_EQ(calls().remove_directory("moved/n"), ENOTEMPTY);
  EXPECT_EQ(calls().remove_directory("moved/e"), ENOTEMPTY);
  EXPECT_EQ(calls().rename("moved", "moved/e/x", 0), EINVAL);
  // What takes the place of a file that is there is there itself.
  EXPECT_EQ(calls().rename("moved/n/new", "over", 0), 0);
  EXPECT_EQ(content(backing("over")), "n");
  EXPECT_EQ(read("over"), "n");
  EXPECT_THAT(list(""), ElementsAre("moved", "over"));
  world_.restart();
  EXPECT_THAT(list(""), ElementsAre("moved", "over"));
  EXPECT_EQ(read("moved/e/f"), "f");
}

TEST_F(JobFsTest, AnOpenFileOutlivesItsNameAndTheDrainOfItsSuccessor) {
  put(backing("f"), "0123456789");
  world_.start();
  const int old = open("f", O_RDWR);
  EXPECT_EQ(calls().write(old, 2, "ab"), 0);
  write("other", "new file");
  EXPECT_EQ(calls().rename("other", "f", 0), 0);
  drain();
  EXPECT_EQ(content(backing("f")), "new file");
  std::string out;
  EXPECT_EQ(calls().read(old, 0, 100, &out), 0);
  EXPECT_EQ(out, "01ab456789");
  struct stat found;
  EXPECT_EQ(calls().state(old, &found), 0);
  EXPECT_EQ(found.st_nlink, 0u);
  EXPECT_EQ(calls().close(old), 0);
  EXPECT_EQ(world_.fs().stats().undrained_files, 0u);
}

TEST_F(JobFsTest, SyncBringsAFileToTheBackingAndASyncOfItsDirectoryTheOthers) {
  world_.start();
  const int file = open("f", O_RDWR | O_CREAT);
  EXPECT_EQ(calls().write(file, 5, "bytes"), 0);
  EXPECT_EQ(calls().sync(file), 0);
  EXPECT_EQ(content(backing("f")), std::string(5, '\0') + "bytes");
  EXPECT_EQ(calls().write(file, 0, "again"), 0);
  EXPECT_EQ(calls().sync(file), 0);
  EXPECT_EQ(content(backing("f")), "againbytes");
  EXPECT_EQ(calls().close(file), 0);
  write("empty", "");
  write("g", "g");
  std::unique_ptr<OpenDirectory> directory;
  ASSERT_EQ(world_.fs().open_directory(*world_.fs().root(), Caller::this_thread(), &directory), 0);
  EXPECT_EQ(world_.fs().sync_directory(*directory), 0);
  EXPECT_EQ(content(backing("empty")), "");
  EXPECT_EQ(content(backing("g")), "g");
}

TEST_F(JobFsTest, WhatWasNotDrainedIsThereAfterAKill) {
  put(backing("f"), "old bytes");
  world_.start();
  write("empty", "");
  write("g", "bytes of g");
  write("f", "new", 0);
  EXPECT_EQ(calls().rename("f", "h", 0), 0);
  const int open_when_killed = open("late", O_RDWR | O_CREAT);
  EXPECT_EQ(calls().write(open_when_killed, 0, "late"), 0);
  EXPECT_EQ(calls().unlink("g"), 0);
  write("g", "again");
  world_.restart();
  EXPECT_THAT(list(""), ElementsAre("empty", "g", "h", "late"));
  EXPECT_EQ(read("h"), "new bytes");
  EXPECT_EQ(read("g"), "again");
  EXPECT_EQ(read("late"), "late");
  drain();
  EXPECT_EQ(content(backing("empty")), "");
  EXPECT_EQ(content(backing("g")), "again");
  EXPECT_EQ(content(backing("h")), "new bytes");
  EXPECT_EQ(content(backing("late")), "late");
  EXPECT_EQ(content(backing("f")), "(missing)");
}

TEST_F(JobFsTest, AFileThatOthersChangeIsKeptAndTheDrainFails) {
  put(backing("f"), "old");
  put(backing("g"), "old");
  world_.start();
  write("f", "ours");
  EXPECT_EQ(read("g"), "old");
  put(backing("f"), "theirs, longer");
  std::filesystem::remove(backing("g"));
  const Status drained = world_.fs().drain_all();
  EXPECT_THAT(drained.to_string(), HasSubstr("f: others have changed it"));
  EXPECT_EQ(content(backing("f")), "theirs, longer");
  EXPECT_EQ(content(backing("f.swale-test")), "ours");
  EXPECT_EQ(read("g"), "(No such file or directory)");
  EXPECT_EQ(read("f.swale-test"), "ours");
}

TEST_F(JobFsTest, WhatIsRefusedIsRefusedWithTheErrnoOfThePage) {
  put(backing("two"), "names");
  ASSERT_EQ(::link(backing("two").c_str(), backing("more").c_str()), 0);
  world_.start();
  write("f", "f");
  EXPECT_EQ(calls().link("f", "g"), EPERM);
  Entry entry;
  const Caller me = Caller::this_thread();
  Node& root = *world_.fs().root();
  for (const mode_t type : {S_IFIFO, S_IFSOCK, S_IFBLK, S_IFCHR})
    EXPECT_EQ(world_.fs().make_node(root, "n", type | 0600, 0, me, &entry), EPERM);
  EXPECT_EQ(calls().set_attribute("f", "trusted.x", "x"), EOPNOTSUPP);
  EXPECT_EQ(calls().set_attribute("f", "system.posix_acl_access", "x"), EOPNOTSUPP);
  ASSERT_EQ(world_.fs().lookup(root, "f", &entry), 0);
  struct stat now;
  EXPECT_EQ(world_.fs().change(*entry.node, {.user = me.user + 1}, me, &now), EPERM);
  EXPECT_EQ(world_.fs().change(*entry.node, {.user = me.user}, me, &now), 0);
  world_.fs().forget(entry.node, 1);
  const int file = open("f", O_RDWR);
  EXPECT_EQ(calls().allocate(file, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), EOPNOTSUPP);
  EXPECT_EQ(calls().allocate(file, FALLOC_FL_INSERT_RANGE, 0, 4096), EOPNOTSUPP);
  EXPECT_EQ(calls().allocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_EQ(calls().resize(file, meta::kOffsetEnd + 1), EFBIG);
  EXPECT_EQ(calls().write(file, meta::kOffsetEnd, "x"), EFBIG);
  EXPECT_EQ(calls().close(file), 0);
  EXPECT_EQ(read("f"), std::string(1, '\0'));
  int handle = -1;
  EXPECT_EQ(calls().open(std::string(256, 'n'), O_CREAT | O_RDWR, 0644, &handle), ENAMETOOLONG);
  EXPECT_EQ(read("two"), "names");
  EXPECT_EQ(calls().open("two", O_RDWR, 0, &handle), EPERM);
  EXPECT_EQ(calls().truncate("more", 0), EPERM);
  EXPECT_EQ(calls().make_directory(kSwaleDirectory, 0755), EPERM);
  EXPECT_EQ(calls().rename("f", kSwaleDirectory, 0), EPERM);
  EXPECT_EQ(world_.fs().lookup(root, kSwaleDirectory, &entry), ENOENT);
  EXPECT_THAT(list(""), Not(Contains(kSwaleDirectory)));
}

// tar and others take a time of change that moves for a change.
TEST_F(JobFsTest, ADrainChangesNoTimeOfADirectoryThatProgramsSee) {
  world_.devices_may_fail = true;
  world_.start();
  const auto times = [&] {
    struct stat found = {};
    EXPECT_EQ(calls().look("d", &found), 0);
    return std::pair(nanos_of(found.st_mtim), nanos_of(found.st_ctim));
  };
  const auto on_backing = [&] {
    struct stat found = {};
    EXPECT_EQ(::stat(backing("d").c_str(), &found), 0);
    return nanos_of(found.st_ctim);
  };
  ASSERT_EQ(calls().make_directory("d", 0755), 0);
  auto seen = times();
  int looked = 0;
  world_.backing_faults().set_hook([&](const io::Call&) -> Status {
    EXPECT_EQ(times(), seen) << "while it is drained";
    ++looked;
    return {};
  });
  for (const char* const name : {"d/f", "d/g"}) {
    write(name, "bytes");
    const auto before = std::exchange(seen, times());
    EXPECT_LT(before, seen) << "canary: a program has made a file";
    const auto there = on_backing();
    ASSERT_TRUE(world_.fs().drain_all().ok());
    EXPECT_EQ(times(), seen);
    EXPECT_LT(there, on_backing()) << "canary: the drain has changed the directory";
  }
  EXPECT_GT(looked, 20);
  world_.backing_faults().clear();
  ASSERT_EQ(calls().set_mode("d", 0700), 0);
  EXPECT_LT(seen.second, times().second) << "a program has changed it";
  seen = times();
  ASSERT_EQ(::chmod(backing("d").c_str(), 0750), 0);
  EXPECT_LT(seen.second, times().second) << "others have changed it";
}

// Ten times the memory: the drain makes space while the program writes.
TEST_F(JobFsTest, WritersWaitForTheDrainWhenMemoryIsFull) {
  world_.options().logs.memory_bytes = 4 * kChunkBytes;
  world_.start();
  const std::string bytes(kMiB, 'x');
  for (int file = 0; file < 20; ++file) {
    const int handle = open("f" + std::to_string(file), O_RDWR | O_CREAT);
    for (uint64_t at = 0; at < 8; ++at) ASSERT_EQ(calls().write(handle, at * kMiB, bytes), 0);
    ASSERT_EQ(calls().close(handle), 0);
  }
  EXPECT_LE(world_.fs().stats().memory_bytes, 4 * kChunkBytes);
  drain();
  for (int file = 0; file < 20; ++file)
    ASSERT_EQ(std::filesystem::file_size(backing("f" + std::to_string(file))), 8 * kMiB);
  EXPECT_EQ(world_.fs().stats().undrained_bytes, 0u);
}

TEST_F(JobFsTest, NodesAndDescriptorsAreGivenBack) {
  std::filesystem::create_directory(backing("d"));
  world_.start();
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto round = [&](int i) {
    const std::string name = "d/f" + std::to_string(i);
    write(name, "abc");
    EXPECT_EQ(read(name), "abc");
    EXPECT_EQ(calls().unlink(name), 0);
  };
  round(0);
  const auto before = descriptors();
  for (int i = 1; i < 50; ++i) round(i);
  EXPECT_EQ(descriptors(), before);
  EXPECT_EQ(world_.fs().nodes_known(), 1u);  // the root
}

}  // namespace
}  // namespace swale::fs::job_fs_test
