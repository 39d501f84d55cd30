// Programs that read in the logs of their node by themselves, beside a string: when they ask, and what they
// must notice. (map_reads_test.cc has what a reader looks at.)
#include "fs/client/log_reads.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "base/rng.h"
#include "fs/job/testing/attach_rig.h"

namespace swale::fs::log_reads_test {
namespace {

using How = MapReader::How;

class LogReadsTest : public AttachRig {
 protected:
  LogReadsTest() { small_logs(); }
  LogReads::Ask ask(Open& in) {
    return [this, &in](MapRequest* map) {
      ++questions_;
      std::string answer;
      const int failed =
          fs().command(*in.file, kAskMap, Bytes(reinterpret_cast<const char*>(map), sizeof(*map)), &answer);
      if (failed == 0) std::memcpy(map, answer.data(), sizeof(*map));
      return failed;
    };
  }

  uint64_t questions_ = 0;
};

TEST_F(LogReadsTest, RandomReadsInLogsGiveWhatAStringGives) {
  start();
  LogReads reads;
  const uint64_t wrong = random_reads(20'000, [&](Open& in, uint64_t offset, size_t bytes) {
    std::string out(bytes, '\0');
    const auto got = reads.read(ask(in), offset, out);
    out.resize(got.bytes);
    return got.how == How::kAll ? out : out + read(in, offset + got.bytes, bytes - got.bytes);
  });
  std::printf("%lu bytes were read in logs, after %lu questions\n", reads.bytes_read(), questions_);
  EXPECT_GT(reads.bytes_read(), 2'000'000u);
  EXPECT_EQ(wrong, 0u);
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
    ASSERT_EQ(reads.read(ask(file), i * 400, out).how, How::kAll);
    ASSERT_EQ(out, bytes.substr(i * 400, 400));
  }
  EXPECT_EQ(questions_, 1u);
  const auto beyond = reads.read(ask(file), 20'000, out);
  EXPECT_EQ(beyond.how, How::kAll) << "the map says where the file ends";
  EXPECT_EQ(beyond.bytes, 0u);
  EXPECT_EQ(questions_, 1u);
  ASSERT_EQ(program->writer.write(id, 10, "new", 3), 3);
  ASSERT_EQ(reads.read(ask(file), 0, out).how, How::kAll);
  EXPECT_EQ(out, bytes.substr(0, 10) + "new" + bytes.substr(13, 387));
  EXPECT_EQ(questions_, 2u);
}

TEST_F(LogReadsTest, AnswersOfNoUseMakeSmallReadsAskMoreRarely) {
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  ASSERT_EQ(write_by_mount(file, 1'000'000, "far"), 0);
  LogReads reads;
  std::string out(400, '\0');
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_EQ(reads.read(ask(file), 0, out).bytes, 0u) << "a hole";
    ASSERT_EQ(write_by_mount(file, 1'000'000, "far"), 0);  // the map counts no more
  }
  EXPECT_LT(questions_, 40u);
  questions_ = 0;
  std::string large(256 << 10, '\0');
  reads.read(ask(file), 0, large);
  EXPECT_EQ(questions_, 1u) << "a large one asks always";
}

// A shared mapping stores past all logs: the kernel gives its pages back when the server reads.
TEST_F(LogReadsTest, WhileSomebodyMayMapTheFileTheMountReads) {
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  ASSERT_EQ(write_by_mount(file, 0, pattern(1, 2'000)), 0);
  LogReads reads;
  std::string out(400, '\0');
  ASSERT_EQ(reads.read(ask(file), 0, out).how, How::kAll);
  Open& mapped = open("file", O_RDWR);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(reads.read(ask(file), 0, out).bytes, 0u);
  close(&mapped);
  std::string large(256 << 10, '\0');
  EXPECT_EQ(reads.read(ask(file), 0, large).bytes, 2'000u);
}

// Logs of more processes than a reader keeps: a descriptor stays a log's when another log takes its place.
TEST_F(LogReadsTest, LogsOfManyProcessesTakeTheirPlacesByTurns) {
  world_.options().logs.memory_bytes = 64 << 20;
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  constexpr uint64_t kProcesses = 150, kPiece = 500;
  std::string model;
  for (uint64_t i = 0; i < kProcesses; ++i) {
    const auto program = attach();
    const std::string bytes = pattern(i, kPiece);
    ASSERT_EQ(program->writer.write(granted(file, program->token), i * kPiece, bytes.data(), kPiece),
              static_cast<int64_t>(kPiece));
    model += bytes;
  }
  ASSERT_EQ(read(file, 0, model.size()), model);
  LogReads reads;
  for (int round = 0; round < 3; ++round) {
    std::string out(model.size(), '\0');
    ASSERT_EQ(reads.read(ask(file), 0, out).how, How::kAll);
    ASSERT_EQ(out, model);
  }
  uint64_t logs = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    logs += std::filesystem::read_symlink(entry.path(), gone).string().find("/log-") != std::string::npos;
  }
  std::printf("%lu descriptors of logs\n", logs);
  EXPECT_LT(logs, 2 * kProcesses) << "the server's, and the reader's";
}

TEST_F(LogReadsTest, NothingIsToldAfterTheServerHasEnded) {
  world_.start();
  LogReads reads;
  std::string out(4, '\0');
  {
    Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
    ASSERT_EQ(write_by_mount(file, 0, "text"), 0);
    ASSERT_EQ(reads.read(ask(file), 0, out).bytes, 4u);
    delete opens_.back();
    opens_.clear();
  }
  world_.restart();
  int asked = 0;
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(reads.read([&](MapRequest*) { return ++asked, EIO; }, 0, out).bytes, 0u);
  EXPECT_EQ(asked, 1);
}

TEST_F(LogReadsTest, GarbageInsteadOfAnAnswerIsRefused) {
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  const std::string bytes = pattern(1, 20'000);
  ASSERT_EQ(write_by_mount(file, 0, bytes), 0);
  Rng rng(11);
  std::string out(1'000, '\0');
  for (int round = 0; round < 2'000; ++round) {
    LogReads reads;
    const uint64_t offset = rng.below(30'000);
    const auto got = reads.read(
        [&](MapRequest* map) {
          const int failed = ask(file)(map);
          auto* const words = reinterpret_cast<uint32_t*>(map);
          for (int i = 0; i < 2; ++i)
            words[rng.below(sizeof(*map) / 4)] =
                static_cast<uint32_t>(rng.below(2) == 0 ? rng.next() : rng.below(300));
          return failed;
        },
        offset, out);
    ASSERT_EQ(out.substr(0, got.bytes), offset < bytes.size() ? bytes.substr(offset, got.bytes) : "");
  }
  std::string answer;
  EXPECT_EQ(fs().command(*file.file, kAskMap, "short", &answer), EINVAL);
}

}  // namespace
}  // namespace swale::fs::log_reads_test
