// Sealed files: who seals them, who is refused, and what outlives the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "fs/job/testing/job_world.h"
#include "fs/log/attach_format.h"

namespace swale::fs::job_fs_seal_test {
namespace {

using testing::HasSubstr;

class JobFsSeal : public testing::Test {
 protected:
  void SetUp() override { world_.start(); }

  int open(const std::string& path, int flags) {
    int handle = -1;
    const int failed = calls().open(path, flags, 0644, &handle);
    return failed == 0 ? handle : -failed;
  }
  void close(int handle) { EXPECT_EQ(calls().close(handle), 0); }
  void make(const std::string& path, const std::string& bytes) {
    const int handle = open(path, O_RDWR | O_CREAT);
    ASSERT_GT(handle, 0);
    EXPECT_EQ(calls().write(handle, 0, bytes), 0);
    close(handle);
  }
  std::string read(const std::string& path) {
    const int handle = open(path, O_RDONLY);
    if (handle < 0) return "(" + std::string(std::strerror(-handle)) + ")";
    std::string out;
    EXPECT_EQ(calls().read(handle, 0, 1000, &out), 0);
    close(handle);
    return out;
  }
  SealState state(const std::string& path) {
    SealState found;
    Entry entry;
    EXPECT_EQ(world_.fs().lookup(*world_.fs().root(), path.c_str(), &entry), 0);
    std::unique_ptr<OpenFile> file;
    EXPECT_EQ(world_.fs().open_file(*entry.node, O_RDONLY, Caller::this_thread(), &file), 0);
    std::string answer;
    EXPECT_EQ(world_.fs().command(*file, kAskSeal, "", &answer), 0);
    if (answer.size() == sizeof(found)) std::memcpy(&found, answer.data(), sizeof(found));
    world_.fs().release(std::move(file));
    world_.fs().forget(entry.node, 1);
    return found;
  }
  mode_t mode(const std::string& path) {
    struct stat found = {};
    EXPECT_EQ(calls().look(path, &found), 0);
    return found.st_mode & 07777;
  }
  // All that changes bytes, as root may on another file system whatever the mode is.
  void expect_immutable(const std::string& path) {
    EXPECT_EQ(open(path, O_WRONLY), -EPERM);
    EXPECT_EQ(open(path, O_RDWR), -EPERM);
    EXPECT_EQ(open(path, O_WRONLY | O_APPEND), -EPERM);
    EXPECT_EQ(open(path, O_RDONLY | O_TRUNC), -EPERM);
    EXPECT_EQ(open(path, O_RDWR | O_CREAT), -EPERM);
    EXPECT_EQ(calls().truncate(path, 1), EPERM);
  }
  FileSystemCalls& calls() { return world_.calls(); }

  JobWorld world_;
};

TEST_F(JobFsSeal, AChmodToReadOnlySealsAndOneToWritableUnseals) {
  make("f", "some bytes");
  EXPECT_EQ(state("f").sealed, 0u);
  ASSERT_EQ(calls().set_mode("f", 0444), 0);
  EXPECT_EQ(state("f").sealed, 1u);
  expect_immutable("f");
  EXPECT_EQ(read("f"), "some bytes");
  EXPECT_EQ(mode("f"), 0444u);
  ASSERT_EQ(calls().set_mode("f", 0400), 0);
  expect_immutable("f");
  ASSERT_EQ(calls().set_mode("f", 0644), 0);
  EXPECT_EQ(state("f").sealed, 0u);
  const int handle = open("f", O_RDWR);
  ASSERT_GT(handle, 0);
  EXPECT_EQ(calls().write(handle, 0, "S"), 0);
  close(handle);
  EXPECT_EQ(read("f"), "Some bytes");
}

// Those that are refused leave nothing behind that would keep it from being sealed again.
TEST_F(JobFsSeal, NamesAndAttributesOfASealedFileChange) {
  make("f", "bytes");
  ASSERT_EQ(calls().set_mode("f", 0444), 0);
  expect_immutable("f");
  EXPECT_EQ(calls().rename("f", "g", 0), 0);
  EXPECT_EQ(calls().set_attribute("g", "user.a", "b"), 0);
  EXPECT_EQ(calls().set_time("g", 1'000'000), 0);
  expect_immutable("g");
  EXPECT_EQ(state("g").writers, 0u);
  EXPECT_EQ(calls().unlink("g"), 0);
  make("g", "another file of this name");
  EXPECT_EQ(state("g").sealed, 0u);
}

TEST_F(JobFsSeal, TheLastCloseOfItsWritersSealsAFileWhoseModeHasChanged) {
  make("f", "bytes");
  const int one = open("f", O_WRONLY), other = open("f", O_RDWR), reader = open("f", O_RDONLY);
  ASSERT_EQ(calls().set_mode("f", 0444), 0) << "a mode says nothing of what is open";
  EXPECT_EQ(state("f").sealed, 0u);
  EXPECT_EQ(state("f").writers, 2u);
  EXPECT_THAT(state("f").who, HasSubstr("of node here"));
  EXPECT_EQ(calls().write(one, 0, "B"), 0);
  close(one);
  EXPECT_EQ(state("f").sealed, 0u) << "one is left";
  EXPECT_EQ(calls().resize(other, 3), 0);
  close(other);
  EXPECT_EQ(state("f").sealed, 1u) << "who only reads is not in the way";
  expect_immutable("f");
  close(reader);
  EXPECT_EQ(read("f"), "Byt");
  ASSERT_EQ(calls().set_mode("f", 0644), 0);
  const int last = open("f", O_WRONLY);
  ASSERT_EQ(calls().set_mode("f", 0444), 0);
  ASSERT_EQ(calls().set_mode("f", 0644), 0) << "it was not meant so";
  close(last);
  EXPECT_EQ(state("f").sealed, 0u);
}

// git and tar make their files so.
TEST_F(JobFsSeal, AFileThatIsMadeReadOnlyIsWrittenByWhoMadeIt) {
  int handle = -1;
  ASSERT_EQ(calls().open("f", O_RDWR | O_CREAT | O_EXCL, 0444, &handle), 0);
  EXPECT_EQ(state("f").sealed, 0u);
  EXPECT_EQ(calls().write(handle, 0, "bytes"), 0);
  close(handle);
  EXPECT_EQ(state("f").sealed, 0u) << "no chmod has asked for it";
  EXPECT_EQ(read("f"), "bytes");
}

TEST_F(JobFsSeal, ASealOutlivesTheServerAndTheDrain) {
  make("in-logs", "one");
  make("drained", "two");
  ASSERT_TRUE(world_.fs().drain_all().ok());
  make("in-logs", "ONE");
  ASSERT_EQ(calls().set_mode("in-logs", 0444), 0);
  ASSERT_EQ(calls().set_mode("drained", 0444), 0);
  world_.stop();
  world_.start();
  expect_immutable("in-logs");
  expect_immutable("drained");
  ASSERT_TRUE(world_.fs().drain_all().ok());
  expect_immutable("in-logs");
  expect_immutable("drained");
  EXPECT_EQ(read("in-logs"), "ONE");
  EXPECT_EQ(read("drained"), "two");
  struct stat found = {};
  ASSERT_EQ(::stat((world_.backing() + "/in-logs").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0444u);
  ASSERT_EQ(calls().set_mode("in-logs", 0600), 0);
  const int handle = open("in-logs", O_WRONLY);
  EXPECT_GT(handle, 0);
  close(handle);
}

TEST_F(JobFsSeal, ACanaryThatSealsUnderAWriterIsNoticed) {
  world_.stop();
  world_.options().seals_wait = false;
  world_.start();
  make("f", "bytes");
  const int writer = open("f", O_WRONLY);
  ASSERT_EQ(calls().set_mode("f", 0444), 0);
  EXPECT_EQ(state("f").sealed, 1u);
  EXPECT_EQ(calls().write(writer, 0, "B"), 0);
  EXPECT_EQ(read("f"), "Bytes") << "a sealed file has changed";
  close(writer);
}

}  // namespace
}  // namespace swale::fs::job_fs_seal_test
