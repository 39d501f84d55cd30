#include "io/advised_queue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "io/fault_device.h"
#include "io/memory_device.h"
#include "io/posix_device.h"

namespace swale::io::advised_queue_test {
namespace {

Operation read_of(File& file, uint64_t offset, std::string& into, uint64_t tag) {
  return {Operation::Kind::kRead, &file, offset, into, {}, tag};
}

// On any device, announced or not.
void expect_reads(Device& device, const std::string& path) {
  const auto file = device.open(path, OpenMode::kCreate).value();
  AdvisedQueue queue;
  const Operation write{Operation::Kind::kWrite, file.get(), 0, {}, "0123456789", 7};
  queue.submit({&write, 1});
  const Operation sync{Operation::Kind::kSync, file.get(), 0, {}, {}, 8};
  queue.submit({&sync, 1});
  std::vector<std::string> pieces(10, std::string(3, '.'));
  std::vector<Operation> reads;
  for (size_t i = 0; i < pieces.size(); ++i) reads.push_back(read_of(*file, i, pieces[i], 100 + i));
  queue.submit(reads);
  EXPECT_EQ(queue.in_flight(), 12u);
  std::vector<Completion> done;
  // The write, the sync and reads of what is in memory are done already.
  const size_t done_already = queue.wait(1, &done);
  EXPECT_GE(done_already, 2u);
  const size_t next = queue.wait(4, &done);
  EXPECT_GE(next, std::min<size_t>(4, 12 - done_already));
  EXPECT_EQ(queue.in_flight(), 12 - done_already - next);
  EXPECT_EQ(queue.wait(100, &done), 12 - done_already - next);
  EXPECT_EQ(queue.wait(1, &done), 0u) << "nothing is in flight";
  ASSERT_EQ(done.size(), 12u);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Completion& completion = done[2 + i];
    EXPECT_TRUE(completion.status.ok()) << completion.status.to_string();
    EXPECT_EQ(completion.tag, 100 + i);
    const std::string expected = std::string("0123456789").substr(i, 3);
    EXPECT_EQ(completion.bytes, expected.size());
    EXPECT_EQ(pieces[i].substr(0, completion.bytes), expected);
  }
  EXPECT_TRUE(device.remove(path).ok());
}

TEST(AdvisedQueue, ReadsInOrderOnFilesWithAndWithoutDescriptor) {
  MemoryDevice memory;
  expect_reads(memory, "/file");
  PosixDevice posix;
  expect_reads(posix, testing::TempDir() + fmt::format("swale-advised-{}", getpid()));
}

TEST(AdvisedQueue, AFailureIsThatOfItsOperationAlone) {
  MemoryDevice memory;
  ASSERT_TRUE(memory.open("/file", OpenMode::kCreate).value()->pwrite(0, "0123456789").ok());
  FaultDevice faulty(memory);
  const auto file = faulty.open("/file", OpenMode::kRead).value();
  faulty.inject({.action = FaultAction::kFail,
                 .kind = {},
                 .path_part = {},
                 .nth = 2,
                 .from_then_on = false,
                 .status = error(Code::kIoError, Scope::kFile, "injected"),
                 .position = 0});
  AdvisedQueue queue;
  std::vector<std::string> pieces(3, std::string(2, '.'));
  std::vector<Operation> reads;
  for (size_t i = 0; i < pieces.size(); ++i) reads.push_back(read_of(*file, i, pieces[i], i));
  queue.submit(reads);
  std::vector<Completion> done;
  EXPECT_EQ(queue.wait(3, &done), 3u);
  EXPECT_TRUE(done[0].status.ok());
  EXPECT_EQ(done[1].status.code(), Code::kIoError);
  EXPECT_TRUE(done[2].status.ok());
}

}  // namespace
}  // namespace swale::io::advised_queue_test
