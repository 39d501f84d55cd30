// What every Device promises, run over every implementation.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>

#include "base/rng.h"
#include "io/beneath.h"
#include "io/testing/device_test_fixture.h"

namespace swale::io::device_contract_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DeviceContract : public OverDevices {
 protected:
  Code open_code(const std::string& name, OpenMode mode) {
    return device().open(in_root(name), mode).status().code();
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, DeviceContract, ::testing::ValuesIn(all_implementations()),
                         implementation_name);

TEST_P(DeviceContract, OpenModesSayWhatMustExist) {
  EXPECT_EQ(open_code("a", OpenMode::kRead), Code::kNotFound);
  EXPECT_EQ(open_code("a", OpenMode::kReadWrite), Code::kNotFound);
  EXPECT_EQ(open_code("a", OpenMode::kCreate), Code::kOk);
  EXPECT_EQ(open_code("a", OpenMode::kCreate), Code::kAlreadyExists);
  EXPECT_EQ(open_code("a", OpenMode::kOpenOrCreate), Code::kOk);
  EXPECT_EQ(open_code("b", OpenMode::kOpenOrCreate), Code::kOk);
  EXPECT_EQ(open_code("b", OpenMode::kRead), Code::kOk);
}

TEST_P(DeviceContract, OpenTruncatesNothing) {
  write("a", "content");
  open("a", OpenMode::kOpenOrCreate);
  EXPECT_EQ(read("a"), "content");
}

TEST_P(DeviceContract, DirectoryIsNotOpenedAsAFileNorAFileWalkedThrough) {
  ASSERT_TRUE(device().make_directory(in_root("d")).ok());
  EXPECT_EQ(open_code("d", OpenMode::kRead), Code::kIoError);
  EXPECT_EQ(open_code("d", OpenMode::kReadWrite), Code::kIoError);
  write("a", "");
  EXPECT_EQ(open_code("a/b", OpenMode::kOpenOrCreate), Code::kIoError);
  EXPECT_FALSE(*device().exists(in_root("a/b")));
}

TEST_P(DeviceContract, ReadsWhatWasWrittenAndStopsAtTheEnd) {
  const auto file = open("a", OpenMode::kCreate);
  ASSERT_TRUE(file->pwrite(0, "0123456789").ok());
  ASSERT_TRUE(file->pwrite(3, "xyz").ok());
  std::string out(8, '.');
  EXPECT_EQ(*file->pread(5, out), 5u);
  EXPECT_EQ(out, "z6789...");
  EXPECT_EQ(*file->pread(10, out), 0u);
  EXPECT_EQ(*file->pread(1000, out), 0u);
  EXPECT_EQ(*file->pread(0, MutableBytes()), 0u);
  EXPECT_EQ(*file->size(), 10u);
  EXPECT_EQ(file->path(), in_root("a"));
}

TEST_P(DeviceContract, AnnouncedBytesReadAsOthers) {
  write("a", "0123456789");
  const auto file = open("a", OpenMode::kRead);
  file->announce(2, 3);
  file->announce(8, 4096);  // beyond the end
  std::string out(10, '.');
  EXPECT_EQ(*file->pread(0, out), 10u);
  EXPECT_EQ(out, "0123456789");
}

TEST_P(DeviceContract, NamesThatWereUsedAreKnown) {
  write("a", "0123456789");
  EXPECT_TRUE(device().knows(in_root("a")));
}

TEST_P(DeviceContract, GapsReadAsZeros) {
  const auto file = open("a", OpenMode::kCreate);
  ASSERT_TRUE(file->pwrite(5000, "x").ok());
  EXPECT_EQ(read("a"), std::string(5000, '\0') + "x");
}

TEST_P(DeviceContract, TruncateCutsAndExtends) {
  write("a", "0123456789");
  const auto file = open("a", OpenMode::kReadWrite);
  ASSERT_TRUE(file->truncate(4).ok());
  ASSERT_TRUE(file->truncate(6).ok());
  EXPECT_EQ(read("a"), std::string("0123\0\0", 6));
}

TEST_P(DeviceContract, NextDataPassesOverNoByteThatIsNotZero) {
  const auto file = open("a", OpenMode::kCreate);
  ASSERT_TRUE(file->pwrite(3 * kMiB + 17, "x").ok());
  ASSERT_TRUE(file->truncate(9 * kMiB).ok());
  for (const uint64_t offset : {uint64_t{0}, kMiB, 3 * kMiB, 3 * kMiB + 17}) {
    EXPECT_GE(file->next_data(offset), offset);
    EXPECT_LE(file->next_data(offset), 3 * kMiB + 17);
  }
  EXPECT_GE(file->next_data(9 * kMiB), 9 * kMiB);
  EXPECT_GE(file->next_data(UINT64_MAX), 9 * kMiB);
  for (const uint64_t end : {3 * kMiB + 18, 4 * kMiB, 9 * kMiB}) {
    EXPECT_GT(data_end(*file, end), 3 * kMiB + 17);
    EXPECT_LE(data_end(*file, end), end);
  }
  EXPECT_EQ(data_end(*file, 0), 0u);
}

TEST_P(DeviceContract, DiscardTouchesNoOtherByte) {
  const std::string content(3 * 4096 + 5, 'x');
  write("a", content);
  const auto file = open("a", OpenMode::kReadWrite);
  file->discard(4096, 4096);
  file->discard(2 * 4096 + 7, 9);
  file->discard(content.size() - 2, 100);
  file->discard(9 * kMiB, kMiB);
  file->discard(UINT64_MAX, UINT64_MAX);
  std::string after = read("a");
  ASSERT_EQ(after.size(), content.size());
  for (size_t i = 0; i < after.size(); ++i) {
    const bool discarded =
        (i >= 4096 && i < 2 * 4096) || (i >= 2 * 4096 + 7 && i < 2 * 4096 + 16) || i >= content.size() - 2;
    EXPECT_TRUE(after[i] == 'x' || (discarded && after[i] == '\0')) << i;
  }
}

TEST_P(DeviceContract, FileOpenedForReadingIsNotWritten) {
  write("a", "old");
  const auto file = open("a", OpenMode::kRead);
  EXPECT_FALSE(file->pwrite(0, "new").ok());
  EXPECT_FALSE(file->truncate(0).ok());
  EXPECT_EQ(read("a"), "old");
}

TEST_P(DeviceContract, LargeTransferIsWhole) {
  Rng rng(1);
  std::string content(3 * kMiB + 17, '\0');
  for (char& byte : content) byte = static_cast<char>(rng.next());
  const auto file = open("a", OpenMode::kCreate);
  ASSERT_TRUE(file->pwrite(0, content).ok());
  ASSERT_TRUE(file->sync().ok());
  std::string out(content.size(), '\0');
  ASSERT_TRUE(read_exactly(*file, 0, out).ok());
  EXPECT_TRUE(out == content);
}

TEST_P(DeviceContract, ReadManyAnswersEachRequest) {
  write("a", "0123456789");
  const auto file = open("a", OpenMode::kRead);
  std::string out[3] = {std::string(2, '.'), std::string(4, '.'), std::string(3, '.')};
  ReadRequest requests[] = {{7, out[0], 0, {}}, {8, out[1], 0, {}}, {20, out[2], 99, {}}};
  file->read_many(requests);
  for (const ReadRequest& request : requests) EXPECT_TRUE(request.status.ok());
  EXPECT_EQ(requests[0].got, 2u);
  EXPECT_EQ(requests[1].got, 2u);
  EXPECT_EQ(requests[2].got, 0u);
  EXPECT_EQ(out[0], "78");
  EXPECT_EQ(out[1], "89..");
}

TEST_P(DeviceContract, RenameReplaces) {
  write("a", "new");
  write("b", "old");
  ASSERT_TRUE(device().rename(in_root("a"), in_root("b")).ok());
  EXPECT_EQ(read("b"), "new");
  EXPECT_FALSE(*device().exists(in_root("a")));
  EXPECT_EQ(device().rename(in_root("a"), in_root("b")).code(), Code::kNotFound);
  EXPECT_TRUE(device().rename(in_root("b"), in_root("b")).ok());
  EXPECT_EQ(read("b"), "new");
}

TEST_P(DeviceContract, RenameNewReplacesNothing) {
  write("a", "new");
  write("b", "old");
  EXPECT_EQ(device().rename_new(in_root("a"), in_root("b")).code(), Code::kAlreadyExists);
  EXPECT_EQ(read("a"), "new");
  EXPECT_EQ(read("b"), "old");
  EXPECT_EQ(device().rename_new(in_root("a"), in_root("a")).code(), Code::kAlreadyExists);
  ASSERT_TRUE(device().rename_new(in_root("a"), in_root("c")).ok());
  EXPECT_EQ(read("c"), "new");
  EXPECT_FALSE(*device().exists(in_root("a")));
  EXPECT_EQ(device().rename_new(in_root("a"), in_root("d")).code(), Code::kNotFound);
  EXPECT_EQ(device().rename_new(in_root("c"), in_root("nowhere/d")).code(), Code::kNotFound);
}

TEST_P(DeviceContract, OfManyThatTakeANewNameOneSucceeds) {
  std::vector<std::thread> threads;
  std::atomic<int> winners{0};
  for (int i = 0; i < 8; ++i) write(std::to_string(i), std::to_string(i));
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const Status taken = device().rename_new(in_root(std::to_string(i)), in_root("name"));
      winners += taken.ok() ? 1 : 0;
      EXPECT_TRUE(taken.ok() || taken.code() == Code::kAlreadyExists) << taken.to_string();
      EXPECT_NE(*device().exists(in_root(std::to_string(i))), taken.ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
}

TEST_P(DeviceContract, DirectoryIsRenamedWithItsContentButNotIntoItself) {
  ASSERT_TRUE(make_directories(device(), in_root("d/e")).ok());
  write("d/e/a", "content");
  EXPECT_FALSE(device().rename(in_root("d"), in_root("d/e/d")).ok());
  ASSERT_TRUE(device().rename(in_root("d"), in_root("f")).ok());
  EXPECT_EQ(read("f/e/a"), "content");
  write("g", "");
  EXPECT_FALSE(device().rename(in_root("g"), in_root("f")).ok());
}

TEST_P(DeviceContract, RemoveTakesFilesAndEmptyDirectories) {
  EXPECT_EQ(device().remove(in_root("a")).code(), Code::kNotFound);
  ASSERT_TRUE(device().make_directory(in_root("d")).ok());
  write("d/a", "");
  EXPECT_FALSE(device().remove(in_root("d")).ok());
  EXPECT_TRUE(device().remove(in_root("d/a")).ok());
  EXPECT_TRUE(device().remove(in_root("d")).ok());
  EXPECT_FALSE(*device().exists(in_root("d")));
}

TEST_P(DeviceContract, RemovedFileStaysReadableWhereItIsOpen) {
  write("a", "content");
  const auto file = open("a", OpenMode::kRead);
  ASSERT_TRUE(device().remove(in_root("a")).ok());
  std::string out(7, '.');
  EXPECT_TRUE(read_exactly(*file, 0, out).ok());
  EXPECT_EQ(out, "content");
}

TEST_P(DeviceContract, ListsNamesSorted) {
  ASSERT_TRUE(device().make_directory(in_root("d")).ok());
  EXPECT_THAT(*device().list(in_root("d")), IsEmpty());
  for (const char* name : {"d/b", "d/c", "d/a"}) write(name, "");
  ASSERT_TRUE(device().make_directory(in_root("d/bb")).ok());
  EXPECT_THAT(*device().list(in_root("d")), ElementsAre("a", "b", "bb", "c"));
  EXPECT_EQ(device().list(in_root("nowhere")).status().code(), Code::kNotFound);
  EXPECT_FALSE(device().list(in_root("d/a")).ok());
}

TEST_P(DeviceContract, DirectoriesAreMadeAndSynced) {
  EXPECT_TRUE(device().make_directory(in_root("d")).ok());
  EXPECT_EQ(device().make_directory(in_root("d")).code(), Code::kAlreadyExists);
  EXPECT_EQ(device().make_directory(in_root("x/y")).code(), Code::kNotFound);
  EXPECT_TRUE(device().sync_directory(in_root("d")).ok());
  EXPECT_EQ(device().sync_directory(in_root("x")).code(), Code::kNotFound);
  EXPECT_TRUE(make_directories(device(), in_root("d/e/f/g/")).ok());
  EXPECT_TRUE(make_directories(device(), in_root("d/e/f/g")).ok());
  EXPECT_TRUE(*device().exists(in_root("d/e/f/g")));
}

TEST_P(DeviceContract, FailuresNameThePath) {
  EXPECT_THAT(std::string(device().open(in_root("a"), OpenMode::kRead).status().message()),
              HasSubstr(in_root("a")));
  EXPECT_THAT(std::string(device().remove(in_root("b")).message()), HasSubstr(in_root("b")));
  write("c", "");
  EXPECT_THAT(std::string(open("c", OpenMode::kRead)->pwrite(77, "x").message()),
              testing::AllOf(HasSubstr(in_root("c")), HasSubstr("offset 77")));
}

TEST_P(DeviceContract, FailuresKeepTheirErrno) {
  ASSERT_TRUE(device().make_directory(in_root("d")).ok());
  write("d/a", "x");
  const auto opening = [&](const char* name, OpenMode mode) {
    return device().open(in_root(name), mode).status().error_number();
  };
  EXPECT_EQ(opening("none", OpenMode::kRead), ENOENT);
  EXPECT_EQ(opening("d/a", OpenMode::kCreate), EEXIST);
  EXPECT_EQ(opening("d", OpenMode::kRead), EISDIR);
  EXPECT_EQ(opening("d/a/b", OpenMode::kRead), ENOTDIR);
  EXPECT_EQ(device().remove(in_root("d")).posix_error(), ENOTEMPTY);
  EXPECT_EQ(device().make_directory(in_root("d")).posix_error(), EEXIST);
  EXPECT_EQ(device().list(in_root("none")).status().posix_error(), ENOENT);
  EXPECT_EQ(read_file(device(), in_root("none"), 1).status().with_context("reading").posix_error(), ENOENT);
  EXPECT_EQ(open("d/a", OpenMode::kRead)->pwrite(0, "y").posix_error(), EBADF);
}

TEST_P(DeviceContract, HelpersCheckLengths) {
  write("a", "0123456789");
  const auto file = open("a", OpenMode::kRead);
  std::string out(6, '.');
  const Status status = read_exactly(*file, 7, out);
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected 6 bytes at offset 7, found 3"));
  EXPECT_EQ(*read_file(device(), in_root("a"), 10), "0123456789");
  EXPECT_EQ(read_file(device(), in_root("a"), 9).status().code(), Code::kResourceExhausted);
}

TEST_P(DeviceContract, ReplaceFileReplacesAndLeavesNoTemporary) {
  ASSERT_TRUE(device().make_directory(in_root("d")).ok());
  write("d/a.tmp", "left behind by a crash, and longer than what follows");
  ASSERT_TRUE(replace_file(device(), in_root("d/a"), "first").ok());
  EXPECT_EQ(read("d/a"), "first");
  ASSERT_TRUE(replace_file(device(), in_root("d/a"), "").ok());
  EXPECT_EQ(read("d/a"), "");
  EXPECT_THAT(*device().list(in_root("d")), ElementsAre("a"));
}

TEST_P(DeviceContract, ThreadsShareAFile) {
  const auto file = open("a", OpenMode::kCreate);
  auto work = [&](uint64_t start, char letter) {
    for (uint64_t i = start; i < 400; i += 2) EXPECT_TRUE(file->pwrite(i * 10, std::string(10, letter)).ok());
  };
  std::thread other(work, 1, 'b');
  work(0, 'a');
  other.join();
  std::string expected;
  for (int i = 0; i < 200; ++i) expected += "aaaaaaaaaabbbbbbbbbb";
  EXPECT_EQ(read("a"), expected);
}

// Opens what is no regular file, with each mode; whoever waits in there waits for ever.
TEST(PosixDevice, RefusesWhatIsNoRegularFileWithoutWaitingForIt) {
  PosixFixture fixture;
  const std::string fifo = fixture.root() + "/fifo";
  const std::string link = fixture.root() + "/link";
  const std::string bound = fixture.root() + "/socket";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0666), 0);
  ASSERT_EQ(symlink("fifo", link.c_str()), 0);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(bound.size(), sizeof(address.sun_path));
  bound.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  close(fd);
  for (const OpenMode mode : {OpenMode::kRead, OpenMode::kReadWrite, OpenMode::kOpenOrCreate}) {
    for (const std::string& path : {fifo, link, bound, std::string("/dev/null")}) {
      const Status opened = fixture.device().open(path, mode).status();
      EXPECT_EQ(opened.code(), Code::kIoError);
      EXPECT_THAT(std::string(opened.message()),
                  testing::AllOf(HasSubstr(path), HasSubstr("not a regular file")));
    }
  }
  EXPECT_EQ(fixture.device().open(fifo, OpenMode::kCreate).status().code(), Code::kAlreadyExists);
}

TEST(PosixDevice, FindsTheDataOfALongHoleInFewCalls) {
  PosixFixture fixture;
  const auto file = fixture.device().open(fixture.root() + "/a", OpenMode::kCreate).value();
  constexpr uint64_t kEnd = 200 * kGiB;
  ASSERT_TRUE(file->truncate(kEnd).ok());
  if (file->next_data(0) < kEnd) GTEST_SKIP() << "this file system knows of no holes";
  EXPECT_EQ(data_end(*file, kEnd), 0u);
  ASSERT_TRUE(file->pwrite(70 * kGiB, "x").ok());
  EXPECT_EQ(file->next_data(0), 70 * kGiB);
  EXPECT_LE(data_end(*file, kEnd), 70 * kGiB + kMiB);  // a block
  EXPECT_GT(data_end(*file, kEnd), 70 * kGiB);
}

// A ring answers EAGAIN for a descriptor that does not wait.
TEST(PosixDevice, FilesWaitForTheirTransfers) {
  PosixFixture fixture(PosixOptions{PosixOptions::Engine::kAuto, PosixOptions::Direct::kAuto});
  const auto file = fixture.device().open(fixture.root() + "/a", OpenMode::kCreate).value();
  EXPECT_EQ(fcntl(file->descriptor(), F_GETFL) & O_NONBLOCK, 0);
}

#ifdef RESOLVE_CACHED
// Only the file system can say that it has no such name.
TEST(PosixDevice, ANameThatNobodyHasLookedUpIsNotKnown) {
  open_how cached = {};
  cached.flags = O_PATH | O_CLOEXEC;
  cached.resolve = RESOLVE_CACHED;
  const Descriptor root(static_cast<int>(openat2(AT_FDCWD, "/", cached)));
  if (!root.valid()) GTEST_SKIP() << "this kernel cannot tell";
  PosixFixture fixture;
  EXPECT_FALSE(fixture.device().knows(fixture.root() + "/a"));
}
#endif

TEST(PosixDevice, FilesAndDirectoriesHaveTheUsersUmask) {
  PosixFixture fixture;
  const mode_t before = umask(0027);
  EXPECT_TRUE(fixture.device().open(fixture.root() + "/a", OpenMode::kCreate).ok());
  EXPECT_TRUE(fixture.device().make_directory(fixture.root() + "/d").ok());
  umask(before);
  struct stat attributes;
  ASSERT_EQ(stat((fixture.root() + "/a").c_str(), &attributes), 0);
  EXPECT_EQ(attributes.st_mode & 0777, 0640u);
  ASSERT_EQ(stat((fixture.root() + "/d").c_str(), &attributes), 0);
  EXPECT_EQ(attributes.st_mode & 0777, 0750u);
}

TEST(ParentDirectory, IsThePathLessItsLastComponent) {
  EXPECT_EQ(parent_directory("/a/b"), "/a");
  EXPECT_EQ(parent_directory("/a/b/"), "/a");
  EXPECT_EQ(parent_directory("a//b"), "a");
  EXPECT_EQ(parent_directory("/a"), "/");
  EXPECT_EQ(parent_directory("/"), "/");
  EXPECT_EQ(parent_directory("a"), ".");
}

}  // namespace
}  // namespace swale::io::device_contract_test
