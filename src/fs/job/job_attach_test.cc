// Programs that append to logs of their own, without a kernel: the file system's calls stand for the mount.
#include "fs/job/job_attach.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "base/rng.h"
#include "fs/client/attachment.h"
#include "fs/job/job_files.h"
#include "fs/job/testing/attach_rig.h"
#include "fs/job/testing/nodes_world.h"
#include "fs/log/testing/stepped_child.h"
#include "io/descriptor.h"

namespace swale::fs::job_attach_test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kFileBytes = 1 << 16;
constexpr int kEndTriesMax =
    6'000;  // looks for the end of a process, 10 ms apart: only a dead server takes all

class JobAttachTest : public AttachRig {
 protected:
  uint64_t random_calls(uint64_t seed, uint64_t calls);
};

TEST_F(JobAttachTest, WhatAProgramHasWrittenIsSeenAtOnce) {
  start();
  Open& writer = open("file", O_RDWR | O_CREAT | O_DIRECT);
  const auto program = attach();
  const meta::FileId id = granted(writer, program->token);
  const int64_t before = look(writer).st_mtim.tv_sec * 1'000'000'000 + look(writer).st_mtim.tv_nsec;
  for (uint64_t i = 0; i < 20; ++i) {
    const std::string bytes = pattern(i, 1000);
    ASSERT_EQ(program->writer.write(id, i * 1000, bytes.data(), bytes.size()), 1000);
    EXPECT_EQ(look(writer).st_size, static_cast<off_t>((i + 1) * 1000));
    EXPECT_EQ(read(writer, i * 1000), bytes);
  }
  EXPECT_GT(look(writer).st_mtim.tv_sec * 1'000'000'000 + look(writer).st_mtim.tv_nsec, before);
  std::string value;
  EXPECT_EQ(fs().get_attribute(*writer.node, kAttachAttribute, caller_, &value), 0);
  EXPECT_EQ(value, fmt::format("1 here {}/attach", folder_));
}

// Two programs, the mount, appends and truncates, one after the other, beside a string.
uint64_t JobAttachTest::random_calls(uint64_t seed, uint64_t calls) {
  Open& file = open("random", O_RDWR | O_CREAT | O_DIRECT);
  Open& appending = open("random", O_WRONLY | O_APPEND | O_DIRECT);
  const std::shared_ptr<Attachment> programs[] = {attach(), attach()};
  meta::FileId id;
  for (const auto& each : programs) id = granted(file, each->token);
  Rng rng(seed);
  std::string model;
  uint64_t wrong = 0;
  for (uint64_t call = 0; call < calls; ++call) {
    const std::string bytes = pattern(call, 1 + rng.below(2000));
    const uint64_t offset = rng.below(kFileBytes);
    const auto put = [&](uint64_t at) {
      if (model.size() < at + bytes.size()) model.resize(at + bytes.size(), '\0');
      model.replace(at, bytes.size(), bytes);
    };
    switch (rng.below(8)) {
      case 0:
      case 1:
      case 2:
        EXPECT_EQ(programs[rng.below(2)]->writer.write(id, offset, bytes.data(), bytes.size()),
                  static_cast<int64_t>(bytes.size()));
        put(offset);
        break;
      case 3:
        EXPECT_EQ(write_by_mount(file, offset, bytes), 0);
        put(offset);
        break;
      case 4:
        // The kernel does not know where the file ends, and says where it was some time ago.
        EXPECT_EQ(write_by_mount(appending, rng.below(model.size() + 1), bytes), 0);
        put(model.size());
        break;
      case 5:
        if (rng.below(8) == 0) {
          truncate(file, offset);
          model.resize(offset, '\0');
        }
        if (model.size() > 2 * kFileBytes) {
          truncate(file, 0);
          model.clear();
        }
        break;
      case 6:
        wrong += look(file).st_size != static_cast<off_t>(model.size());
        break;
      default:
        wrong += read(file, offset, bytes.size()) !=
                 (offset < model.size() ? model.substr(offset, bytes.size()) : std::string());
    }
  }
  wrong += read(file, 0, 4 * kFileBytes) != model;
  return wrong;
}

TEST_F(JobAttachTest, RandomCallsByLogAndMountGiveWhatAStringGives) {
  start();
  EXPECT_EQ(random_calls(31, 10'000), 0u);
}

TEST_F(JobAttachTest, AServerThatDoesNotTakeBeforeItAnswersIsNoticed) {
  world_.options().logs.rules.takes_first = false;
  start();
  EXPECT_GT(random_calls(31, 2'000), 0u);
}

TEST_F(JobAttachTest, AWriteWithoutAGrantIsRefusedAndToldOnce) {
  start();
  Open& mine = open("mine", O_RDWR | O_CREAT | O_DIRECT);
  Open& other = open("other", O_RDWR | O_CREAT | O_DIRECT);
  const auto program = attach();
  const auto owner = attach();
  const meta::FileId id = granted(mine, program->token), not_mine = granted(other, owner->token);
  EXPECT_EQ(owner->writer.write(not_mine, 0, "theirs", 6), 6);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(program->writer.write(not_mine, 0, "forged", 6), 6);
  EXPECT_EQ(program->writer.write({99, 99}, 0, "forged", 6), 6);
  EXPECT_EQ(program->writer.write(id, 0, "honest", 6), 6);
  EXPECT_EQ(read(other), "theirs");
  EXPECT_EQ(read(mine), "honest");
  ASSERT_EQ(fs().damage().size(), 1u);
  EXPECT_THAT(fs().damage()[0].message(), HasSubstr("has not opened this file"));
}

TEST_F(JobAttachTest, AGrantNeedsAnOpenToWriteAndAToken) {
  start();
  Open& writing = open("file", O_WRONLY | O_CREAT | O_DIRECT);
  Open& reading = open("file", O_RDONLY | O_DIRECT);
  Open& appending = open("file", O_WRONLY | O_APPEND | O_DIRECT);
  const auto program = attach();
  meta::FileId id;
  EXPECT_EQ(ask(reading, program->token, &id), EBADF);
  EXPECT_EQ(ask(appending, program->token, &id), EINVAL);
  EXPECT_EQ(ask(writing, {1, 2}, &id), EPERM);
  std::string answer;
  EXPECT_EQ(fs().command(*writing.file, kAskGrant, "short", &answer), EINVAL);
  EXPECT_EQ(fs().command(*writing.file, 0x5401, "", &answer), ENOTTY);
  EXPECT_EQ(ask(writing, program->token, &id), 0);
}

// F_SETFL changes O_APPEND after the open, and pages of mappings come through any descriptor.
TEST_F(JobAttachTest, AWriteIsAnAppendIfItsRequestSaysSo) {
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  Open& appending = open("file", O_WRONLY | O_APPEND | O_DIRECT);
  const auto program = attach();
  const meta::FileId id = granted(file, program->token);
  ASSERT_EQ(program->writer.write(id, 0, "0123", 4), 4);
  const auto put = [&](Open& out, uint64_t at, const char* text, std::optional<bool> appends) {
    Caller caller = caller_;
    caller.appends = appends;
    const Bytes bytes(text, 1);
    fs().write_bytes(*out.file, at, bytes, caller, [](int failed) { EXPECT_EQ(failed, 0); });
  };
  put(appending, 0, "a", std::nullopt);
  put(appending, 1, "b", false);
  put(file, 2, "c", true);
  put(file, 3, "d", false);
  EXPECT_EQ(read(file), "0b2dac");
}

TEST_F(JobAttachTest, WhoeverPromisesToMapNothingHindersNobody) {
  start();
  Open& one = open("file", O_RDWR | O_CREAT);
  Open& other = open("file", O_RDWR);
  const auto program = attach();
  meta::FileId id;
  // The mount has not said that the kernel keeps none of its pages.
  EXPECT_EQ(ask(one, {}, &id, kAskShortCut), EBUSY);
  one.file->direct = other.file->direct = true;
  EXPECT_EQ(ask(one, {}, &id, kAskShortCut), 0);
  EXPECT_EQ(program->writer.write(id, 0, "x", 1), 1);
  EXPECT_EQ(read(one), "") << "a promise is no grant";
  EXPECT_EQ(ask(one, program->token, &id, kAskShortCut), EBUSY) << "the other has promised nothing";
  EXPECT_EQ(ask(other, {}, &id, kAskShortCut), 0);
  EXPECT_EQ(ask(one, program->token, &id, kAskShortCut), 0);
  EXPECT_EQ(program->writer.write(id, 0, "y", 1), 1);
  EXPECT_EQ(read(other), "y");
  // Opens that have promised are not counted twice.
  close(&one);
  close(&other);
  Open& cached = open("file", O_RDWR);
  EXPECT_EQ(ask(cached, program->token, &id), EBUSY);
}

TEST_F(JobAttachTest, WhoeverLetsTheKernelKeepPagesKeepsTheMount) {
  start();
  Open& cached = open("file", O_RDWR | O_CREAT);
  Open& direct = open("file", O_RDWR | O_DIRECT);
  EXPECT_EQ(fs().pages(*cached.file, false), FileSystem::Pages::kOfOpen);
  const auto program = attach();
  meta::FileId id;
  EXPECT_EQ(ask(direct, program->token, &id), EBUSY);
  close(&cached);
  EXPECT_EQ(ask(direct, program->token, &id), 0);
  Open& later = open("file", O_RDONLY);
  EXPECT_EQ(fs().pages(*later.file, false), FileSystem::Pages::kNone);
  close(&direct);
  Open& after = open("file", O_RDONLY);
  EXPECT_EQ(fs().pages(*after.file, false), FileSystem::Pages::kOfOpen);
}

// By a mapping of an open that keeps none.
TEST_F(JobAttachTest, WhoeverMayWriteHearsOfPagesThatTheKernelReads) {
  start();
  int drops = 0;
  fs().drop_pages_by([&](Node&) { ++drops; });
  Open& writer = open("file", O_RDWR | O_CREAT | O_DIRECT);
  const auto program = attach(), later = attach();
  const meta::FileId id = granted(writer, program->token);
  EXPECT_EQ(program->writer.write(id, 0, "before", 6), 6);
  EXPECT_FALSE(program->writer.must_show());
  Open& reader = open("file", O_RDONLY);
  EXPECT_FALSE(fs().may_drop_pages(reader.node));
  fs().note_page_read(*reader.file);
  fs().note_page_read(*reader.file);
  EXPECT_TRUE(program->writer.must_show());
  EXPECT_FALSE(later->writer.must_show());
  EXPECT_TRUE(fs().may_drop_pages(reader.node));
  std::string answer;
  EXPECT_EQ(fs().command(*writer.file, kAskShow, {}, &answer), 0);
  EXPECT_EQ(drops, 1);
  meta::FileId same;
  EXPECT_EQ(ask(writer, later->token, &same), EBUSY);
  close(&reader);
  EXPECT_EQ(drops, 2) << "the next one would find them without a read";
  EXPECT_FALSE(program->writer.must_show());
  EXPECT_FALSE(fs().may_drop_pages(writer.node));
  EXPECT_EQ(ask(writer, later->token, &same), 0);
  fs().drop_pages_by({});
}

// As tar does: it writes, sets the time, closes.
TEST_F(JobAttachTest, ATimeThatIsSetAfterAWriteStays) {
  start();
  Open& writer = open("file", O_RDWR | O_CREAT | O_DIRECT);
  const auto program = attach();
  const meta::FileId id = granted(writer, program->token);
  EXPECT_EQ(program->writer.write(id, 0, "before", 6), 6);
  struct stat found;
  ASSERT_EQ(fs().change(*writer.node, {.modified = timespec{1'700'000'000, 0}}, caller_, &found), 0);
  EXPECT_EQ(found.st_mtim.tv_sec, 1'700'000'000);
  EXPECT_EQ(look(writer).st_mtim.tv_sec, 1'700'000'000);
  EXPECT_EQ(fs().flush(*writer.file), 0);
  EXPECT_EQ(look(writer).st_mtim.tv_sec, 1'700'000'000);
  EXPECT_EQ(program->writer.write(id, 6, "behind", 6), 6);
  EXPECT_EQ(fs().flush(*writer.file), 0);
  EXPECT_NE(look(writer).st_mtim.tv_sec, 1'700'000'000);
}

// A grant ends with the open file: a program that goes on writing writes nothing.
TEST_F(JobAttachTest, WritesBeforeACloseCountAndLaterOnesDoNot) {
  start();
  Open& writer = open("file", O_RDWR | O_CREAT | O_DIRECT);
  Open& reader = open("file", O_RDONLY | O_DIRECT);
  const auto program = attach();
  const meta::FileId id = granted(writer, program->token);
  EXPECT_EQ(program->writer.write(id, 0, "before", 6), 6);
  close(&writer);
  EXPECT_EQ(program->writer.write(id, 6, "behind", 6), 6);
  EXPECT_EQ(read(reader), "before");
}

// What a program had written when the server was killed is found by the next one, which ends its log.
TEST_F(JobAttachTest, AKilledServerLosesNoWriteThatHasReturned) {
  world_.start();
  LogWriter writer;
  {
    Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
    const auto program = fs().add_program();
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    const LogFiles files{program->files.log.get(), program->files.bell.get(), fs().folder_of_logs().c_str()};
    ASSERT_EQ(writer.attach(files, program->log), 0);
    const meta::FileId id = granted(file, program->token);
    EXPECT_EQ(writer.write(id, 0, "taken, ", 7), 7);
    EXPECT_EQ(read(file), "taken, ");
    EXPECT_EQ(writer.write(id, 7, "not taken", 9), 9);
    delete opens_.back();
    opens_.clear();
  }
  world_.restart();
  Open& reader = open("file", O_RDONLY | O_DIRECT);
  EXPECT_EQ(read(reader), "taken, not taken");
  EXPECT_LT(writer.write({1, 1}, 0, "late", 4), 0);
  writer.detach();
}

// The connection of a killed process ends; what it had written counts, and its log goes when that is drained.
TEST_F(JobAttachTest, TheEndOfAProcessEndsItsLog) {
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto program = Attachment::open({"here", folder_ + "/" + kAttachSocket});
    if (!program.ok()) ::_exit(1);
    static_cast<void>(::write(ends[1], &(*program)->token, sizeof(AttachToken)));
    ::pause();
    ::_exit(0);
  }
  AttachToken token;
  ASSERT_EQ(::read(ends[0], &token, sizeof(token)), static_cast<ssize_t>(sizeof(token)));
  meta::FileId id;
  EXPECT_EQ(ask(file, token, &id), 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  int asked = 0;
  for (int tries = 0; tries < kEndTriesMax && asked != EPERM; ++tries) {
    ::usleep(10'000);
    asked = ask(file, token, &id);
  }
  EXPECT_EQ(asked, EPERM);
  ::close(ends[0]);
  ::close(ends[1]);
}

// At every 23rd instruction of two writes: all of it is there, or nothing, and each write before it.
TEST_F(JobAttachTest, AKillInAWriteLeavesAllOfItOrNothing) {
  if (!SteppedChild::available()) GTEST_SKIP() << "this machine does not let a process trace its children";
  constexpr uint64_t kStep = 23;
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  struct Shared {
    AttachToken token;
    std::atomic<uint64_t> high, low;
  };
  auto* const shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const std::string first = pattern(1, 100), second = pattern(2, 200);
  uint64_t points = 0, nothing = 0, whole = 0, torn = 0;
  for (bool running = true; running; ++points) {
    truncate(file, 0);
    std::shared_ptr<Attachment> program;
    {
      SteppedChild child(
          [&] {
            auto opened = Attachment::open({"here", folder_ + "/" + kAttachSocket});
            if (!opened.ok()) ::_exit(1);
            program = *opened;
            shared->token = program->token;
          },
          [&] {
            const meta::FileId id{shared->high, shared->low};
            program->writer.write(id, 0, first.data(), first.size());
            program->writer.write(id, first.size(), second.data(), second.size());
          });
      const meta::FileId id = granted(file, shared->token);
      shared->high = id.high, shared->low = id.low;
      running = child.run(points * kStep);
    }
    const std::string left = read(file);
    if (left.size() < first.size() + second.size()) {
      ++nothing;
      torn += !left.empty() && left != first;
      torn += !running;  // it had returned
    } else {
      ++whole;
      torn += left != first + second;
    }
  }
  std::printf("killed at %lu instructions: %lu without the second write, %lu with it, %lu torn\n", points,
              nothing, whole, torn);
  EXPECT_GT(nothing, 5u);
  EXPECT_GT(whole, 0u);
  EXPECT_EQ(torn, 0u);
  ::munmap(shared, sizeof(Shared));
}

// Even where folder and socket would let it in.
TEST_F(JobAttachTest, AProcessOfAnotherUserGetsNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr uid_t kNobody = 65534;
  start();
  EXPECT_EQ(std::filesystem::status(folder_ + "/" + kAttachSocket).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const auto bytes_for = [&](uid_t user) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setresuid(user, user, user) != 0) ::_exit(100);
      sockaddr_un address = {};
      address.sun_family = AF_UNIX;
      ::snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", folder_.c_str(), kAttachSocket);
      const int to = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
      if (::connect(to, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) ::_exit(101);
      AttachAnswer answer;
      ::_exit(::recv(to, &answer, sizeof(answer), 0) > 0 ? 1 : 0);
    }
    int state = 0;
    ::waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  };
  EXPECT_EQ(bytes_for(kNobody), 101);  // cannot even look into the folder
  ::chmod(folder_.c_str(), 0755);
  ::chmod((folder_ + "/" + kAttachSocket).c_str(), 0666);
  EXPECT_EQ(bytes_for(kNobody), 0);
  EXPECT_EQ(bytes_for(0), 1);
}

// What another node reads of a file that a program of node 0 writes: after its commit, and after its end.
std::pair<std::string, std::string> seen_elsewhere(bool commits) {
  NodesWorld world(2);
  world.commits = commits;
  world.start();
  const auto read_there = [&] {
    int handle = -1;
    std::string bytes;
    EXPECT_EQ(world.calls(1).open("file", O_RDONLY, 0, &handle), 0);
    EXPECT_EQ(world.calls(1).read(handle, 0, 100, &bytes), 0);
    EXPECT_EQ(world.calls(1).close(handle), 0);
    return bytes;
  };
  JobFs& fs = world.fs(0);
  Entry entry;
  std::unique_ptr<OpenFile> file;
  EXPECT_EQ(
      fs.create(*fs.root(), "file", 0644, O_RDWR | O_CREAT | O_DIRECT, Caller::this_thread(), &entry, &file),
      0);
  const auto program = fs.add_program();
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  LogWriter writer;
  EXPECT_EQ(writer.attach({program->files.log.get(), program->files.bell.get(), ""}, program->log), 0);
  GrantRequest request{program->token, 0, 0};
  std::string answer;
  EXPECT_EQ(
      fs.command(*file, kAskGrant, Bytes(reinterpret_cast<const char*>(&request), sizeof(request)), &answer),
      0);
  std::memcpy(&request, answer.data(), sizeof(request));
  const meta::FileId id{request.file_high, request.file_low};
  EXPECT_EQ(writer.write(id, 0, "committed", 9), 9);
  EXPECT_EQ(fs.command(*file, kAskCommit, "", &answer), 0);
  const std::string after_commit = read_there();
  EXPECT_EQ(writer.write(id, 9, ", ended", 7), 7);
  EXPECT_TRUE(fs.end_program(program->log).ok());
  const std::string after_end = read_there();
  writer.detach();
  fs.release(std::move(file));
  fs.forget(entry.node, 1);
  return {after_commit, after_end};
}

TEST(JobAttachNodes, OtherNodesSeeItAfterACommitAndAfterTheEndOfTheProgram) {
  EXPECT_EQ(seen_elsewhere(true), std::pair(std::string("committed"), std::string("committed, ended")));
}

TEST(JobAttachNodes, WithoutCommitsTheyWouldNot) {
  EXPECT_EQ(seen_elsewhere(false), std::pair(std::string(), std::string()));
}

TEST_F(JobAttachTest, AProgramThatSpeaksIsOver) {
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  const auto program = attach();
  granted(file, program->token);
  EXPECT_GT(::send(program->connection.get(), "garbage", 7, MSG_NOSIGNAL), 0);
  pollfd ended = {program->connection.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 60'000), 1);
  meta::FileId id;
  EXPECT_EQ(ask(file, program->token, &id), EPERM);
  const auto again = attach();
  EXPECT_NE(again, nullptr);
}

}  // namespace
}  // namespace swale::fs::job_attach_test
