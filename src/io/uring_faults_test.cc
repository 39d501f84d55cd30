// What the kernel may answer an io_uring transfer besides all of it: the n-th answer, for every n, is made a
// short one, an interrupted one, or one to be tried again, and the files are as if nothing had happened; or a
// failure, and it is told.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/rng.h"
#include "io/posix_device.h"
#include "io/uring_queue.h"

namespace swale::io::uring_faults_test {
namespace {

constexpr size_t kPieces = 12;
constexpr size_t kPieceBytes = 8192 + 100;

class UringFaults : public ::testing::Test {
 protected:
  UringFaults() {
    std::string path = "/tmp/swale-test-XXXXXX";
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  ~UringFaults() override { std::filesystem::remove_all(folder_); }

  // Writes, syncs and reads a file; the n-th answer of the kernel becomes `answer(operation, its own)`. How
  // many answers there were.
  uint64_t run(uint64_t n, const UringQueue::ChangeAnswer& answer, std::vector<Status>* statuses) {
    uint64_t answers = 0;
    const auto queue = UringQueue::make(4, [&](const Operation& operation, int own) {
                         return ++answers == n ? answer(operation, own) : own;
                       }).value();
    PosixDevice device;
    const auto file = device.open(folder_ + "/file", OpenMode::kOpenOrCreate).value();
    EXPECT_TRUE(file->truncate(0).ok());
    Rng rng(n);
    std::string content(kPieces * kPieceBytes, '\0');
    std::generate(content.begin(), content.end(), [&] { return static_cast<char>(rng.next()); });
    std::string back(content.size(), '\0');
    for (const Operation::Kind kind :
         {Operation::Kind::kWrite, Operation::Kind::kSync, Operation::Kind::kRead}) {
      for (size_t i = 0; i < (kind == Operation::Kind::kSync ? 1 : kPieces); ++i) {
        Operation operation{kind, file.get(), i * kPieceBytes, {}, {}, i};
        if (kind == Operation::Kind::kWrite)
          operation.from = Bytes(content).substr(operation.offset, kPieceBytes);
        if (kind == Operation::Kind::kRead)
          operation.into = MutableBytes(back).subspan(operation.offset, kPieceBytes);
        queue->submit({&operation, 1});
      }
      std::vector<Completion> out;
      while (queue->in_flight() > 0) queue->wait(1, &out);
      for (const Completion& each : out) {
        statuses->push_back(each.status);
        if (kind == Operation::Kind::kRead && each.status.ok()) {
          EXPECT_EQ(each.bytes, kPieceBytes);
        }
      }
    }
    const bool well = std::all_of(statuses->begin(), statuses->end(), [](const Status& s) { return s.ok(); });
    if (well) {
      EXPECT_EQ(back, content);
    }
    return answers;
  }

  std::string folder_;
};

TEST_F(UringFaults, ShortInterruptedAndRepeatedAnswersAtAnyCallHaveNoEffect) {
  if (!UringQueue::make(1).ok()) GTEST_SKIP() << "no io_uring here";
  const auto with = [](int other) { return [other](const Operation&, int) { return other; }; };
  const auto shortened = [](const Operation& operation, int own) {
    return operation.kind == Operation::Kind::kSync || own < 2 ? own : own / 2;
  };
  uint64_t points = 0;
  for (const UringQueue::ChangeAnswer& answer :
       {UringQueue::ChangeAnswer(with(-EINTR)), UringQueue::ChangeAnswer(with(-EAGAIN)),
        UringQueue::ChangeAnswer(shortened)}) {
    for (uint64_t n = 1;; ++n, ++points) {
      std::vector<Status> statuses;
      const uint64_t answers = run(n, answer, &statuses);
      for (const Status& status : statuses)
        EXPECT_TRUE(status.ok()) << "answer " << n << ": " << status.to_string();
      if (answers < n) break;
    }
  }
  EXPECT_GE(points, 3 * (2 * kPieces + 1));
  fmt::print("{} answers of the kernel changed\n", points);
}

TEST_F(UringFaults, AFailureOrAnEmptyWriteAtAnyCallIsTold) {
  if (!UringQueue::make(1).ok()) GTEST_SKIP() << "no io_uring here";
  uint64_t points = 0;
  for (const int failure : {-EIO, -ENOSPC, 0}) {
    for (uint64_t n = 1; n <= kPieces; ++n, ++points) {
      std::vector<Status> statuses;
      run(
          n, [&](const Operation&, int) { return failure; }, &statuses);
      const auto failed =
          std::find_if(statuses.begin(), statuses.end(), [](const Status& s) { return !s.ok(); });
      ASSERT_NE(failed, statuses.end()) << "answer " << n;
      EXPECT_THAT(std::string(failed->message()), ::testing::HasSubstr(folder_ + "/file"));
    }
  }
  fmt::print("{} failures told\n", points);
}

// Canary: one byte that the file does not have.
TEST_F(UringFaults, BytesThatTheFileDoesNotHaveAreNoticed) {
  if (!UringQueue::make(1).ok()) GTEST_SKIP() << "no io_uring here";
  const auto change = [](const Operation& operation, int own) {
    if (operation.kind == Operation::Kind::kRead && own > 0) operation.into[0] ^= 1;
    return own;
  };
  std::vector<Status> statuses;
  EXPECT_NONFATAL_FAILURE(run(kPieces + 3, change, &statuses), "back");
}

}  // namespace
}  // namespace swale::io::uring_faults_test
