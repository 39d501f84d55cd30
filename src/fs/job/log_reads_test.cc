// Programs that read in the logs of their node by themselves, beside a string, and what they must notice.
#include "fs/client/log_reads.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "base/rng.h"
#include "fs/job/testing/attach_rig.h"
#include "fs/job/testing/nodes_world.h"

namespace swale::fs::log_reads_test {
namespace {

constexpr std::chrono::minutes kPatience(5);  // for what must happen, on a machine however slow

class LogReadsTest : public AttachRig {
 protected:
  LogReadsTest() { small_logs(); }
  LogReads::Ask ask(Open& in) {
    return [this, &in](ToldPlaces* told) {
      ++questions_;
      std::string answer;
      const int failed = fs().command(*in.file, kAskPlaces,
                                      Bytes(reinterpret_cast<const char*>(told), sizeof(*told)), &answer);
      if (failed == 0) std::memcpy(told, answer.data(), sizeof(*told));
      return failed;
    };
  }
  // In the logs, and what is not there by the mount.
  std::string read_both_ways(LogReads& reads, Open& in, uint64_t offset, size_t bytes) {
    std::string out(bytes, '\0');
    const size_t got = reads.read(ask(in), offset, out);
    out.resize(got);
    return got == bytes ? out : out + read(in, offset + got, bytes - got);
  }
  uint64_t random_calls(const LogReads::Rules& rules, uint64_t calls);

  uint64_t questions_ = 0;
};

// Returns the wrong reads.
uint64_t LogReadsTest::random_calls(const LogReads::Rules& rules, uint64_t calls) {
  LogReads reads(rules);
  const uint64_t wrong = random_reads(calls, [&](Open& in, uint64_t offset, size_t bytes) {
    return read_both_ways(reads, in, offset, bytes);
  });
  std::printf("%lu of %lu bytes were read in logs, after %lu questions\n", reads.bytes_read(), calls * 8'000,
              questions_);
  EXPECT_GT(reads.bytes_read(), calls * 100);
  return wrong;
}

TEST_F(LogReadsTest, RandomReadsInLogsGiveWhatAStringGives) {
  start();
  EXPECT_EQ(random_calls({}, 20'000), 0u);
}

TEST_F(LogReadsTest, ReadsThatDoNotLookAtMarksAreNoticed) {
  start();
  EXPECT_GT(random_calls({.looks_at_marks = false}, 4'000), 0u);
}

TEST_F(LogReadsTest, ReadsThatDoNotLookAtTheEpochAreNoticed) {
  start();
  EXPECT_GT(random_calls({.looks_at_epoch = false}, 20'000), 0u);
}

// (Half a chunk would make the server grant another one, which is told anew.)
TEST_F(LogReadsTest, OneQuestionServesReadsUntilSomebodyWrites) {
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  const auto program = attach();
  const meta::FileId id = granted(file, program->token);
  const std::string bytes = pattern(1, 20'000);
  ASSERT_EQ(program->writer.write(id, 0, bytes.data(), bytes.size()), 20'000);
  LogReads reads;
  std::string out(400, '\0');
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_EQ(reads.read(ask(file), i * 400, out), 400u);
    ASSERT_EQ(out, bytes.substr(i * 400, 400));
  }
  EXPECT_EQ(questions_, 1u);
  EXPECT_EQ(reads.read(ask(file), 20'000, out), 0u) << "the mount says where the file ends";
  EXPECT_EQ(questions_, 1u);
  ASSERT_EQ(program->writer.write(id, 10, "new", 3), 3);
  ASSERT_EQ(reads.read(ask(file), 0, out), 400u);
  EXPECT_EQ(out, bytes.substr(0, 10) + "new" + bytes.substr(13, 387));
  EXPECT_EQ(questions_, 2u);
}

TEST_F(LogReadsTest, AFlippedBitIsLeftToTheMountWhichTellsOfIt) {
  world_.options().logs.shape.chunk_bytes = kChunkBytes;
  world_.options().logs.memory_bytes = 32 << 20;
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  const auto program = attach();
  const meta::FileId id = granted(file, program->token);
  const std::string bytes = pattern(1, 200'000);
  ASSERT_EQ(program->writer.write(id, 0, bytes.data(), bytes.size()), 200'000);
  LogReads reads, careless({.checks = false});
  std::string out(1'000, '\0');
  ASSERT_EQ(reads.read(ask(file), 70'000, out), 1'000u);
  // The server takes checksums when nobody writes.
  std::unique_ptr<ToldPlaces> told;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  do {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "the server takes no checksums";
    told = std::make_unique<ToldPlaces>();
    ASSERT_EQ(ask(file)(told.get()), 0);
    ASSERT_EQ(told->place_count, 1u);
  } while (told->checks[2] == 0 || told->check_count < 3);
  LogReads after;
  ASSERT_EQ(after.read(ask(file), 70'000, out), 1'000u);
  const std::string log = fs().folder_of_logs() + "/" + kLogPrefix + std::to_string(told->places[0].log);
  const int there = ::open(log.c_str(), O_WRONLY | O_CLOEXEC);
  const auto at = static_cast<off_t>(told->places[0].chunk_at + told->places[0].place + 70'500);
  const char other = static_cast<char>(bytes[70'500] ^ 4);
  ASSERT_EQ(::pwrite(there, &other, 1, at), 1);
  EXPECT_EQ(after.read(ask(file), 70'000, out), 0u);
  EXPECT_EQ(careless.read(ask(file), 70'000, out), 1'000u) << "the canary";
  EXPECT_EQ(after.read(ask(file), 140'000, out), 1'000u) << "another block";
  size_t got = 0;
  EXPECT_EQ(fs().read(*file.file, 70'000, out, &got), EIO);
  ASSERT_EQ(::pwrite(there, &bytes[70'500], 1, at), 1);
  ::close(there);
}

TEST_F(LogReadsTest, NothingIsToldAfterTheServerHasEnded) {
  world_.start();
  LogReads reads;
  std::string out(4, '\0');
  {
    Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
    ASSERT_EQ(write_by_mount(file, 0, "text"), 0);
    ASSERT_EQ(reads.read(ask(file), 0, out), 4u);
    delete opens_.back();
    opens_.clear();
  }
  world_.restart();
  int asked = 0;
  EXPECT_EQ(reads.read([&](ToldPlaces*) { return ++asked, EIO; }, 0, out), 0u);
  EXPECT_EQ(asked, 1);
}

TEST_F(LogReadsTest, GarbageInsteadOfAnAnswerIsRefused) {
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  ASSERT_EQ(write_by_mount(file, 0, pattern(1, 20'000)), 0);
  Rng rng(11);
  std::string out(1'000, '\0');
  for (int round = 0; round < 2'000; ++round) {
    LogReads reads;
    reads.read(
        [&](ToldPlaces* told) {
          const int failed = ask(file)(told);
          auto* const words = reinterpret_cast<uint32_t*>(told);
          for (int i = 0; i < 3; ++i) {
            const uint64_t at = rng.below(2) == 0 ? rng.below(80) : rng.below(sizeof(*told) / 4);
            words[at] = static_cast<uint32_t>(rng.below(2) == 0 ? rng.next() : rng.below(300));
          }
          return failed;
        },
        rng.below(30'000), out);
  }
  std::string answer;
  EXPECT_EQ(fs().command(*file.file, kAskPlaces, "short", &answer), EINVAL);
}

TEST(LogReadsNodes, OfSeveralNodesNothingIsTold) {
  NodesWorld world(2);
  world.start();
  JobFs& fs = world.fs(0);
  Entry entry;
  std::unique_ptr<OpenFile> file;
  ASSERT_EQ(
      fs.create(*fs.root(), "file", 0644, O_RDWR | O_CREAT | O_DIRECT, Caller::this_thread(), &entry, &file),
      0);
  const auto told = std::make_unique<ToldPlaces>();
  std::string answer;
  EXPECT_EQ(
      fs.command(*file, kAskPlaces, Bytes(reinterpret_cast<const char*>(told.get()), sizeof(*told)), &answer),
      EOPNOTSUPP);
  fs.release(std::move(file));
  fs.forget(entry.node, 1);
}

}  // namespace
}  // namespace swale::fs::log_reads_test
